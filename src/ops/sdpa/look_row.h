/* look_row.h - the weights of one row, for the looking-in functions. */
#ifndef ATTN_OPS_SDPA_LOOK_ROW_H
#define ATTN_OPS_SDPA_LOOK_ROW_H

#include "ops/sdpa/validate.h"

typedef struct attn_looked {
    int64_t first, count;          /* the keys that may have weight: first .. first + count - 1 on the key axis */
    int64_t position;              /* p_i - (first of these keys in its entry): distance to key j is |position - j| */
    const double *weight;          /* [count]; 0 where excluded */
    const unsigned char *excluded; /* [count] */
} attn_looked;

/* Doubles of scratch that attn_look_row needs. */
int64_t attn_look_scratch(const attn_problem *p);

/* Weights of one row (query on the whole query axis), exp(score - lse) with the caller's lse or, where that is NULL, with
 * the row's own. A row outside every entry has count 0. The result lives in scratch. */
attn_looked attn_look_row(const attn_problem *p, const attn_row *row, double *scratch);

#endif
