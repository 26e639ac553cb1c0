/* view.h - reading and writing single elements of views, and checks on whole views. For the doors and the
 * reference; kernels use raw pointers. */
#ifndef ATTN_CORE_VIEW_H
#define ATTN_CORE_VIEW_H

#include <stdbool.h>
#include "attn/attn.h"

/* Bytes of one element; 0 for an unknown dtype. */
size_t attn_dtype_size(int32_t dtype);
/* "f32", "bf16", ...; "unknown" for an unknown dtype. Static. */
const char *attn_dtype_name(int32_t dtype);

/* Element `offset` (in elements) of an array of dtype, as a double (exact). */
double attn_load_element(const void *data, int32_t dtype, int64_t offset);
/* Stores x at element `offset`, rounded once to nearest even. */
void attn_store_element(void *data, int32_t dtype, int64_t offset, double x);

/* |x|, INT64_MAX for the one number that has none. */
static inline int64_t attn_magnitude(int64_t x)
{
    return x == INT64_MIN ? INT64_MAX : x < 0 ? -x : x;
}

static inline int64_t attn_offset(const int64_t stride[4], int64_t a, int64_t b, int64_t c, int64_t d)
{
    return a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3];
}

static inline double attn_cview_at(const attn_cview *v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return attn_load_element(v->data, v->dtype, attn_offset(v->stride, a, b, c, d));
}

static inline attn_cview attn_view_const(const attn_view *v)
{
    attn_cview c;
    c.data = v->data;
    c.dtype = v->dtype;
    c.reserved = v->reserved;
    for (int n = 0; n < 4; n++) {
        c.shape[n] = v->shape[n];
        c.stride[n] = v->stride[n];
    }
    return c;
}

/* True when a non-empty view is C-contiguous. */
bool attn_view_contiguous(const attn_cview *v);
/* First and one-past-last byte that the view touches. False on overflow of 63 bits. Empty: first == last. */
bool attn_view_extent(const attn_cview *v, uintptr_t *first, uintptr_t *last);
/* True when the byte ranges of two views meet (conservative: interleaved views count as overlapping only
 * when their ranges meet and they do not share all strides with disjoint offsets). */
bool attn_views_overlap(const attn_cview *a, const attn_cview *b);
/* Number of elements of the shape; false on overflow or a negative extent. */
bool attn_shape_count(const int64_t shape[4], int64_t *count);

/* a * b and a + b for sizes; false when the result does not fit. */
static inline bool attn_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool attn_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

#endif
