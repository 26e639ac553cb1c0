/* admitted.h - which keys of a row the mask arrays can admit, so that blocks which they exclude cost no products. */
#ifndef ATTN_KERNELS_SDPA_ADMITTED_H
#define ATTN_KERNELS_SDPA_ADMITTED_H

#include <string.h>
#include "core/view.h"
#include "kernels/sdpa/problem.h"

/* Whether element `at` excludes its pair: allow of 0, a bias of -inf. */
static inline bool attn_element_excludes(const attn_cview *mask, int64_t at)
{
    switch (mask->dtype) {
    case ATTN_BOOL:
        return ((const uint8_t *)mask->data)[at] == 0;
    case ATTN_F32:
        return ((const float *)mask->data)[at] == -INFINITY;
    case ATTN_BF16:
        return ((const uint16_t *)mask->data)[at] == 0xFF80;
    case ATTN_F16:
        return ((const uint16_t *)mask->data)[at] == 0xFC00;
    default:
        return attn_load_element(mask->data, mask->dtype, at) == -INFINITY;
    }
}

/* The first of n elements from `at` on that does not exclude; n: none. Long runs of a row are what this is for. */
static inline int64_t attn_excluded_run(const attn_cview *mask, int64_t at, int64_t n)
{
    int64_t j = 0;
    if (mask->stride[3] == 1 && mask->dtype == ATTN_BOOL) {
        const uint8_t *x = (const uint8_t *)mask->data + at;
        for (uint64_t eight; j + 8 <= n; j += 8) {
            memcpy(&eight, x + j, sizeof eight);
            if (eight)
                break;
        }
    } else if (mask->stride[3] == 1 && mask->dtype == ATTN_F32) {
        const float *x = (const float *)mask->data + at;
        while (j < n && x[j] == -INFINITY)
            j++;
        return j;
    }
    while (j < n && attn_element_excludes(mask, at + j * mask->stride[3]))
        j++;
    return j;
}

/* [*from, *to) of row i, head h, without the keys at both ends that this array excludes; empty: it excludes all. */
static inline void attn_narrow(const attn_cview *mask, const attn_entry *e, int64_t h, int64_t i, int64_t *from, int64_t *to)
{
    const int64_t row = attn_offset(mask->stride, e->batch, h, e->q_begin + i, e->k_begin);
    if (!mask->data || *from >= *to)
        return;
    *from += attn_excluded_run(mask, row + *from * mask->stride[3], *to - *from);
    while (*to > *from && attn_element_excludes(mask, row + (*to - 1) * mask->stride[3]))
        --*to;
}

/* The same with both arrays of a problem. */
static inline void attn_narrow_row(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i, int64_t *from, int64_t *to)
{
    attn_narrow(&p->a.mask.allow, e, h, i, from, to);
    attn_narrow(&p->a.mask.bias, e, h, i, from, to);
}

#endif
