#include "core/view.h"
#include "core/half.h"

size_t attn_dtype_size(int32_t dtype)
{
    switch (dtype) {
    case ATTN_F32:
        return 4;
    case ATTN_F64:
        return 8;
    case ATTN_BF16:
    case ATTN_F16:
        return 2;
    case ATTN_I8:
    case ATTN_BOOL:
        return 1;
    default:
        return 0;
    }
}

const char *attn_dtype_name(int32_t dtype)
{
    static const char *const names[] = {"f32", "f64", "bf16", "f16", "i8", "bool"};
    return dtype >= 0 && dtype <= ATTN_BOOL ? names[dtype] : "unknown";
}

double attn_load_element(const void *data, int32_t dtype, int64_t offset)
{
    switch (dtype) {
    case ATTN_F32:
        return (double)((const float *)data)[offset];
    case ATTN_F64:
        return ((const double *)data)[offset];
    case ATTN_BF16:
        return (double)attn_bf16_to_f32(((const uint16_t *)data)[offset]);
    case ATTN_F16:
        return (double)attn_f16_to_f32(((const uint16_t *)data)[offset]);
    case ATTN_I8:
        return (double)((const int8_t *)data)[offset];
    case ATTN_BOOL:
        return ((const uint8_t *)data)[offset] != 0;
    default:
        return 0;
    }
}

void attn_store_element(void *data, int32_t dtype, int64_t offset, double x)
{
    switch (dtype) {
    case ATTN_F32:
        ((float *)data)[offset] = (float)x;
        break;
    case ATTN_F64:
        ((double *)data)[offset] = x;
        break;
    case ATTN_BF16:
        ((uint16_t *)data)[offset] = attn_f64_to_bf16(x);
        break;
    case ATTN_F16:
        ((uint16_t *)data)[offset] = attn_f64_to_f16(x);
        break;
    default:
        break;
    }
}

bool attn_view_contiguous(const attn_cview *v)
{
    int64_t expected = 1;
    for (int n = 3; n >= 0; n--) {
        if (v->shape[n] != 1 && v->stride[n] != expected)
            return false;
        expected *= v->shape[n];
    }
    return true;
}

bool attn_shape_count(const int64_t shape[4], int64_t *count)
{
    int64_t n = 1;
    bool empty = false;
    for (int a = 0; a < 4; a++) {
        if (shape[a] < 0)
            return false;
        empty |= shape[a] == 0;
        if (shape[a] > 0 && __builtin_mul_overflow(n, shape[a], &n))
            return false;
    }
    *count = empty ? 0 : n;
    return true;
}

bool attn_view_extent(const attn_cview *v, uintptr_t *first, uintptr_t *last)
{
    int64_t low = 0, high = 0, count, size = (int64_t)attn_dtype_size(v->dtype);
    *first = *last = (uintptr_t)v->data;
    if (!attn_shape_count(v->shape, &count))
        return false;
    if (count == 0)
        return true;
    for (int n = 0; n < 4; n++) {
        int64_t reach;
        if (__builtin_mul_overflow(v->shape[n] - 1, v->stride[n], &reach))
            return false;
        if (__builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high))
            return false;
    }
    if (__builtin_mul_overflow(low, size, &low) || __builtin_add_overflow(high, 1, &high) ||
        __builtin_mul_overflow(high, size, &high))
        return false;
    *first = (uintptr_t)v->data + (uintptr_t)low;
    *last = (uintptr_t)v->data + (uintptr_t)high;
    return true;
}

/* Views cut from one array by slicing an axis share their strides; they are disjoint when their offset along
 * some axis is at least the extent there and everything inside that axis stays within one step of it. */
static bool sliced_apart(const attn_cview *a, const attn_cview *b)
{
    int64_t size = (int64_t)attn_dtype_size(a->dtype);
    int64_t delta = (int64_t)((uintptr_t)b->data - (uintptr_t)a->data);
    if (a->dtype != b->dtype || size == 0 || delta % size)
        return false;
    delta /= size;
    if (delta < 0) {
        const attn_cview *swap = a;
        a = b;
        b = swap;
        delta = -delta;
    }
    for (int n = 0; n < 4; n++) {
        int64_t step = a->stride[n], inside = 0, inside_b = 0;
        if (step <= 0 || step != b->stride[n])
            continue;
        bool simple = true;
        for (int m = 0; m < 4; m++) {
            if (m == n)
                continue;
            if (a->stride[m] < 0 || b->stride[m] < 0)
                simple = false;
            else if (a->stride[m] < step && b->stride[m] < step) {
                inside += (a->shape[m] - 1) * a->stride[m];
                inside_b += (b->shape[m] - 1) * b->stride[m];
            } else if (a->stride[m] % step || b->stride[m] != a->stride[m])
                simple = false;
        }
        /* both live in rows of `step` elements: apart when their columns inside a row do not meet */
        int64_t column = delta % step;
        if (simple && column > inside && column + inside_b < step)
            return true;
    }
    return false;
}

bool attn_views_overlap(const attn_cview *a, const attn_cview *b)
{
    uintptr_t a0, a1, b0, b1;
    if (!a->data || !b->data || !attn_view_extent(a, &a0, &a1) || !attn_view_extent(b, &b0, &b1))
        return false;
    if (a0 == a1 || b0 == b1 || a1 <= b0 || b1 <= a0)
        return false;
    return !sliced_apart(a, b);
}
