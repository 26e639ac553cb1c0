#include "ops/sdpa/validate_backward.h"
#include "ops/sdpa/validate.h"
#include "core/view.h"

#include <stdlib.h>

#define LL(x) ((long long)(x))
#define MOST_ARRAYS 20

static bool is_float(int32_t dtype)
{
    return dtype == ATTN_F32 || dtype == ATTN_F64 || dtype == ATTN_BF16 || dtype == ATTN_F16;
}

static attn_status check_view(attn_ctx *ctx, const attn_cview *v, const char *name)
{
    uintptr_t first, last;
    int64_t count;
    ATTN_REQUIRE(ctx, attn_dtype_size(v->dtype), "%s.dtype is %d, not a dtype of attn/attn.h", name, v->dtype);
    ATTN_REQUIRE(ctx, v->reserved == 0, "%s.reserved is %d, must be 0", name, v->reserved);
    for (int n = 0; n < 4; n++)
        ATTN_REQUIRE(ctx, v->shape[n] >= 0, "%s.shape[%d] is %lld, must be 0 or more", name, n, LL(v->shape[n]));
    ATTN_REQUIRE(ctx, attn_shape_count(v->shape, &count) && attn_view_extent(v, &first, &last),
                 "%s has shape and strides whose extent overflows", name);
    return ATTN_OK;
}

static attn_status check_shape(attn_ctx *ctx, const attn_cview *v, const char *name, const int64_t shape[4], const char *like)
{
    for (int n = 0; n < 4; n++)
        ATTN_REQUIRE(ctx, v->shape[n] == shape[n], "%s.shape[%d] is %lld, must be as %s, %lld", name, n, LL(v->shape[n]), like,
                     LL(shape[n]));
    return ATTN_OK;
}

/* d_query, d_key or d_value: the shape of what it is the gradient of, its dtype or f32. */
static attn_status check_gradient(attn_ctx *ctx, const attn_view *view, const char *name, const attn_cview *of,
                                  const char *like)
{
    attn_cview v = attn_view_const(view);
    if (!v.data)
        return ATTN_OK;
    ATTN_TRY(check_view(ctx, &v, name));
    ATTN_TRY(check_shape(ctx, &v, name, of->shape, like));
    if (v.dtype != of->dtype && v.dtype != ATTN_F32)
        return attn_fail(ctx, ATTN_ERR_UNSUPPORTED, "%s.dtype is %s with %s.dtype %s: must be the same or f32", name,
                         attn_dtype_name(v.dtype), like, attn_dtype_name(of->dtype));
    ATTN_REQUIRE(ctx, attn_elements_distinct(&v), "%s.stride makes elements of %s overlap", name, name);
    return ATTN_OK;
}

static attn_status check_d_bias(attn_ctx *ctx, attn_bwd_problem *g)
{
    const attn_problem *p = &g->forward;
    const int64_t full[4] = {p->batch, p->n_heads, p->seq_q, p->seq_kv};
    attn_view *d_bias = &g->a.d_bias;
    if (!d_bias->data)
        return ATTN_OK;
    ATTN_REQUIRE(ctx, p->a.mask.bias.data, "d_bias is given but forward->mask.bias is not");
    attn_cview v = attn_view_const(d_bias);
    ATTN_TRY(check_view(ctx, &v, "d_bias"));
    int32_t wanted = p->a.query.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    if (v.dtype != wanted)
        return attn_fail(ctx, ATTN_ERR_UNSUPPORTED, "d_bias.dtype is %s with query.dtype %s: must be %s",
                         attn_dtype_name(v.dtype), attn_dtype_name(p->a.query.dtype), attn_dtype_name(wanted));
    for (int n = 0; n < 4; n++) {
        ATTN_REQUIRE(ctx, v.shape[n] == full[n] || v.shape[n] == 1, "d_bias.shape[%d] is %lld, must be 1 or %lld", n,
                     LL(v.shape[n]), LL(full[n]));
        g->bias_sums[n] = v.shape[n] == 1 || v.stride[n] == 0; /* one element along the axis, written either way */
        if (g->bias_sums[n])
            d_bias->shape[n] = 1, d_bias->stride[n] = 0, v.shape[n] = 1, v.stride[n] = 0;
    }
    ATTN_REQUIRE(ctx, attn_elements_distinct(&v), "d_bias.stride makes elements of d_bias overlap");
    return ATTN_OK;
}

static attn_status check_tables(attn_ctx *ctx, const attn_bwd_problem *g)
{
    const attn_mask *m = &g->forward.a.mask;
    ATTN_REQUIRE(ctx, !g->a.d_sinks || g->forward.a.sinks, "d_sinks is given but forward->sinks is NULL");
    if (!g->a.d_relative)
        return ATTN_OK;
    ATTN_REQUIRE(ctx, m->relative, "d_relative is given but forward->mask.relative is NULL");
    ATTN_REQUIRE(ctx, m->relative_stride == 0 || attn_magnitude(m->relative_stride) >= m->rel_left + m->rel_right + 1,
                 "forward->mask.relative_stride is %lld: tables of %lld elements overlap, which d_relative may not",
                 LL(m->relative_stride), LL(m->rel_left + m->rel_right + 1));
    return ATTN_OK;
}

/* The arrays of a call, for the overlap check: plain pointers as views of bytes. */
typedef struct array_list {
    attn_cview view[MOST_ARRAYS];
    const char *name[MOST_ARRAYS];
    int count;
} array_list;

static void add_view(array_list *list, const char *name, attn_cview view)
{
    if (view.data) {
        list->view[list->count] = view;
        list->name[list->count++] = name;
    }
}

static void add_plain(array_list *list, const char *name, const void *data, int32_t dtype, int64_t count)
{
    add_view(list, name, attn_cview_of(data, dtype, 1, 1, 1, count));
}

static void add_relative(array_list *list, const char *name, const float *data, const attn_problem *p)
{
    const attn_mask *m = &p->a.mask;
    if (!data) /* the table's extents were not checked then */
        return;
    attn_cview view = attn_cview_of(data, ATTN_F32, 1, 1, m->relative_stride ? p->n_heads : 1, m->rel_left + m->rel_right + 1);
    view.stride[2] = m->relative_stride;
    add_view(list, name, view);
}

static attn_status check_overlaps(attn_ctx *ctx, const attn_bwd_problem *g)
{
    const attn_problem *p = &g->forward;
    const attn_sdpa_backward_args *a = &g->a;
    int64_t rows = p->batch * p->n_heads * p->seq_q;
    array_list outputs = {.count = 0}, inputs = {.count = 0};
    add_view(&outputs, "d_query", attn_view_const(&a->d_query));
    add_view(&outputs, "d_key", attn_view_const(&a->d_key));
    add_view(&outputs, "d_value", attn_view_const(&a->d_value));
    add_view(&outputs, "d_bias", attn_view_const(&a->d_bias));
    add_relative(&outputs, "d_relative", a->d_relative, p);
    add_plain(&outputs, "d_sinks", a->d_sinks, ATTN_F32, p->n_heads);
    add_view(&inputs, "forward->query", p->a.query);
    add_view(&inputs, "forward->key", p->a.key);
    add_view(&inputs, "forward->value", p->a.value);
    add_view(&inputs, "forward->out", attn_view_const(&p->a.out));
    add_view(&inputs, "d_out", a->d_out);
    add_plain(&inputs, "forward->lse", p->a.lse, p->lse_dtype, rows);
    add_plain(&inputs, "d_lse", a->d_lse, p->lse_dtype, rows);
    add_view(&inputs, "forward->mask.allow", p->a.mask.allow);
    add_view(&inputs, "forward->mask.bias", p->a.mask.bias);
    add_view(&inputs, "forward->keep", p->a.keep);
    add_plain(&inputs, "forward->mask.alibi_slopes", p->a.mask.alibi_slopes, ATTN_F32, p->n_heads);
    add_relative(&inputs, "forward->mask.relative", p->a.mask.relative, p);
    add_plain(&inputs, "forward->sinks", p->a.sinks, ATTN_F32, p->n_heads);
    for (int n = 0; n < outputs.count; n++) {
        for (int m = 0; m < inputs.count; m++)
            ATTN_REQUIRE(ctx, !attn_views_overlap(&outputs.view[n], &inputs.view[m]), "%s overlaps %s", outputs.name[n],
                         inputs.name[m]);
        for (int m = 0; m < n; m++)
            ATTN_REQUIRE(ctx, !attn_views_overlap(&outputs.view[n], &outputs.view[m]), "%s overlaps %s", outputs.name[n],
                         outputs.name[m]);
    }
    return ATTN_OK;
}

static attn_status check_d_out(attn_ctx *ctx, const attn_bwd_problem *g, bool with_data)
{
    const attn_cview *d_out = &g->a.d_out;
    const attn_view *out = &g->forward.a.out;
    int64_t count;
    ATTN_TRY(check_view(ctx, d_out, "d_out"));
    ATTN_TRY(check_shape(ctx, d_out, "d_out", out->shape, "forward->out"));
    if (!is_float(d_out->dtype) || (d_out->dtype != out->dtype && d_out->dtype != ATTN_F32))
        return attn_fail(ctx, ATTN_ERR_UNSUPPORTED, "d_out.dtype is %s with forward->out.dtype %s: must be the same or f32",
                         attn_dtype_name(d_out->dtype), attn_dtype_name(out->dtype));
    ATTN_REQUIRE(ctx, !with_data || !attn_shape_count(d_out->shape, &count) || count == 0 || d_out->data, "d_out.data is NULL");
    return ATTN_OK;
}

attn_status attn_sdpa_validate_backward(attn_ctx *ctx, const attn_sdpa_backward_args *args, bool with_data,
                                        attn_bwd_problem *g)
{
    if (!ctx)
        return ATTN_ERR_INVALID_ARGUMENT;
    ctx->error[0] = 0;
    memset(g, 0, sizeof *g);
    ATTN_TRY(attn_args_copy(ctx, &g->a, sizeof g->a, args, "args"));
    ATTN_REQUIRE(ctx, g->a.forward, "forward is NULL");
    const attn_problem *p = &g->forward;
    ATTN_TRY(attn_sdpa_validate(ctx, g->a.forward, with_data ? ATTN_NEED_ALL : ATTN_NEED_VALUE, &g->forward));
    if (g->a.flags & ~(uint64_t)ATTN_GRAD_ACCUMULATE)
        return attn_fail(ctx, ATTN_ERR_UNSUPPORTED, "flags is 0x%llx, unknown bits", (unsigned long long)g->a.flags);
    g->accumulate = (g->a.flags & ATTN_GRAD_ACCUMULATE) != 0;
    ATTN_REQUIRE(ctx, !p->a.layout.block_table && !p->a.layout.ring,
                 "forward->layout is %s: backward needs plain keys and values", p->a.layout.ring ? "a ring" : "paged");
    if (p->a.key.dtype != p->a.query.dtype)
        return attn_fail(ctx, ATTN_ERR_UNSUPPORTED, "forward->key.dtype is %s, query.dtype is %s: backward needs them equal",
                         attn_dtype_name(p->a.key.dtype), attn_dtype_name(p->a.query.dtype));
    const int64_t *shape = p->a.query.shape;
    bool rows = shape[0] && shape[1] && shape[2];
    ATTN_REQUIRE(ctx, !with_data || !rows || p->a.lse, "forward->lse is NULL: backward recomputes the weights from it");
    ATTN_TRY(check_d_out(ctx, g, with_data));
    ATTN_TRY(check_gradient(ctx, &g->a.d_query, "d_query", &p->a.query, "query"));
    ATTN_TRY(check_gradient(ctx, &g->a.d_key, "d_key", &p->a.key, "key"));
    ATTN_TRY(check_gradient(ctx, &g->a.d_value, "d_value", &p->a.value, "value"));
    ATTN_TRY(check_d_bias(ctx, g));
    ATTN_TRY(check_tables(ctx, g));
    return with_data ? check_overlaps(ctx, g) : ATTN_OK;
}
