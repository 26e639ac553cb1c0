/* relative.h - T5's relative position bias as a table over distances, for attn_mask.relative. */
#ifndef ATTN_MODELS_RELATIVE_H
#define ATTN_MODELS_RELATIVE_H

#include "models/description.h"

/* table[head][distance + d->relative_max_distance], distance = key - query clamped to that range; beyond it the bucket
 * is the last one anyway (Raffel et al. 2020, section 2.1). NULL: out of memory. The caller frees it. */
float *attn_relative_table(const attn_description *d, const attn_stack_weights *stack, bool causal);

#endif
