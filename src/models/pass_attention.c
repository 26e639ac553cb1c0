/* pass_attention.c - the attention of one layer inside a forward pass: projections, rotation, cache, the operator's
 * call, then what looks at it or changes it: edits, hook, rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/context.h"
#include "core/view.h"
#include "models/pass.h"

/* Where knockouts leave less than this share of a row, it is computed anew without the keys instead of being divided by
 * what is left: that division would lose digits. */
#define KNOCKOUT_LEAST 0.01f

static attn_status operator_failed(const attn_pass *pass, attn_status status)
{
    return attn_model_fail(status, "attention: %s", attn_ctx_error(pass->s->ctx));
}

#define OPERATOR(call)                                                                                                 \
    do {                                                                                                               \
        attn_status operator_status = (call);                                                                          \
        if (operator_status != ATTN_OK)                                                                                \
            return operator_failed(pass, operator_status);                                                             \
    } while (0)

static bool has_window(const attn_pass *pass, int64_t layer)
{
    const attn_description *d = pass->d;
    return d->window > 0 && (!d->windowed || d->windowed[layer]);
}

/* [1, heads, rows, head_dim] over a buffer of rows. */
static attn_cview rows_view(const float *data, int64_t heads, int64_t rows, int64_t dim)
{
    attn_cview v = attn_cview_of(data, ATTN_F32, 1, heads, rows, dim);
    v.stride[0] = rows * heads * dim;
    v.stride[1] = dim;
    v.stride[2] = heads * dim;
    return v;
}

static attn_view writable(attn_cview v)
{
    attn_view w;
    memset(&w, 0, sizeof w);
    w.data = (void *)(uintptr_t)v.data;
    w.dtype = v.dtype;
    memcpy(w.shape, v.shape, sizeof w.shape);
    memcpy(w.stride, v.stride, sizeof w.stride);
    return w;
}

/* [1, kv heads, n, head_dim] of one sequence's keys or values from an encoder. */
static attn_cview cross_view(const attn_pass *pass, const float *cache, int64_t entry, int64_t n)
{
    const int64_t capacity = pass->s->cross_capacity, heads = pass->d->n_kv_heads, dim = pass->d->head_dim;
    attn_cview v = attn_cview_of(cache + entry * heads * capacity * dim, ATTN_F32, 1, heads, n, dim);
    v.stride[0] = heads * capacity * dim;
    v.stride[1] = capacity * dim;
    return v;
}

static void common_args(const attn_pass *pass, int64_t layer, int32_t kind, attn_sdpa_args *args)
{
    const attn_description *d = pass->d;
    ATTN_ARGS_INIT(args);
    args->scale = d->scale;
    args->flags = d->scale_given ? ATTN_SCALE_GIVEN : 0;
    if (d->scale_by_layer) {
        args->scale = (d->scale_given ? d->scale : 1 / sqrt((double)d->head_dim)) / (double)(layer + 1);
        args->flags |= ATTN_SCALE_GIVEN;
    }
    args->softcap = d->softcap;
    if (kind == ATTN_ATTENTION_CROSS)
        return;
    args->sinks = pass->stack->layers[layer].self.sinks;
    if (!pass->encoder || d->kind == ATTN_MODEL_DECODER)
        args->mask.flags = ATTN_MASK_CAUSAL | ATTN_MASK_OFFSET;
    if (has_window(pass, layer)) {
        args->mask.flags |= ATTN_MASK_WINDOW;
        args->mask.left = d->window_two_sided ? d->window : d->window - 1;
        args->mask.right = d->window_two_sided ? d->window : -1;
    }
    if (pass->relative) {
        args->mask.relative = pass->relative;
        args->mask.rel_left = args->mask.rel_right = d->relative_max_distance;
        args->mask.relative_stride = 2 * d->relative_max_distance + 1;
    }
}

/* The call for one sequence alone. */
static void entry_args(const attn_pass *pass, int64_t layer, int32_t kind, int64_t entry, attn_sdpa_args *args)
{
    const attn_description *d = pass->d;
    const attn_session *s = pass->s;
    const int64_t first = pass->first[entry], n = pass->first[entry + 1] - first;
    const int64_t width = d->n_heads * d->head_dim, kv_width = d->n_kv_heads * d->head_dim;
    common_args(pass, layer, kind, args);
    args->query = rows_view(pass->q + first * width, d->n_heads, n, d->head_dim);
    args->out = writable(rows_view(pass->heads + first * width, d->n_heads, n, d->head_dim));
    if (kind == ATTN_ATTENTION_CROSS) {
        args->key = cross_view(pass, s->cross_key[layer], entry, s->cross_lengths[entry]);
        args->value = cross_view(pass, s->cross_value[layer], entry, s->cross_lengths[entry]);
    } else if (pass->encoder) {
        args->key = rows_view(pass->k + first * kv_width, d->n_kv_heads, n, d->head_dim);
        args->value = rows_view(pass->v + first * kv_width, d->n_kv_heads, n, d->head_dim);
    } else {
        args->mask.query_offset = args->mask.bias_offset = s->lengths[entry];
        const int64_t keys = s->lengths[entry] + n;
        args->key = attn_kv_view(&s->cache, ATTN_KV_KEY, layer, entry, 1, keys);
        args->value = attn_kv_view(&s->cache, ATTN_KV_VALUE, layer, entry, 1, keys);
        args->key_scale = attn_kv_view(&s->cache, ATTN_KV_KEY_SCALE, layer, entry, 1, keys);
        args->value_scale = attn_kv_view(&s->cache, ATTN_KV_VALUE_SCALE, layer, entry, 1, keys);
    }
}

/* ---- before the operator ---- */

/* A norm over each head (or, where its weight is that long, over all heads of a token). */
static void norm_heads(const attn_pass *pass, const attn_norm *norm, int64_t dim, int64_t heads, float *x)
{
    if (norm->weight)
        attn_norm_rows(&pass->s->worker, &pass->d->norm, norm, pass->total * heads * pass->d->head_dim / dim, dim, x, dim,
                       x, dim);
}

/* Frequency i of a sequence of `length` tokens. LongRoPE divides by one list up to the length that the model was first trained on
 * and by another beyond it; a dynamic base grows beyond it, by the NTK rule. */
static double rope_frequency(const attn_rope_desc *rope, int64_t length, int64_t i)
{
    const double n = (double)rope->rotary_dim, share = (double)length / (double)rope->original_length;
    double base = rope->base, divisor = 1;
    if (rope->scaling == ATTN_ROPE_LONG)
        divisor = rope->divisors[length > rope->original_length ? rope->rotary_dim / 2 + i : i];
    else if (share > 1 && i > 0)
        base *= pow(rope->factor * share - (rope->factor - 1), n / (n - 2));
    return pow(base, -2 * (double)i / n) / divisor;
}

/* A row for each token. Frequencies are those of its sequence's length after this call (cached keys stay as they are). */
static float *make_tables(const attn_pass *pass, const attn_rope_desc *rope)
{
    const int64_t n = rope->rotary_dim / 2, sequences = pass->first ? pass->s->batch : 1;
    const double amplitude = rope->scaling == ATTN_ROPE_LONG ? rope->attention_factor : 1;
    float *tables = malloc((size_t)(2 * pass->total * n + 1) * sizeof *tables);
    for (int64_t b = 0; tables && b < sequences; b++) {
        const int64_t first = pass->first ? pass->first[b] : 0, end = pass->first ? pass->first[b + 1] : pass->total;
        for (int64_t i = 0; first < end && i < n; i++) {
            const double frequency = rope_frequency(rope, pass->positions[end - 1] + 1, i);
            for (int64_t t = first; t < end; t++) {
                const double angle = (double)pass->positions[t] * frequency;
                tables[t * n + i] = (float)(amplitude * cos(angle));
                tables[(pass->total + t) * n + i] = (float)(amplitude * sin(angle));
            }
        }
    }
    return tables;
}

void attn_pass_drop_tables(attn_pass *pass)
{
    for (int i = 0; i < 2; i++) {
        free(pass->rope_tables[i]);
        pass->rope_tables[i] = NULL;
    }
}

static attn_status rotate_by_tables(attn_pass *pass, const attn_rope_desc *rope, attn_rope_args *r)
{
    float **tables = &pass->rope_tables[rope == &pass->d->local_rope];
    if (!*tables && !(*tables = make_tables(pass, rope)))
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "no memory for a pass");
    r->positions = NULL; /* row t of the tables is token t */
    r->cos_table = *tables;
    r->sin_table = *tables + pass->total * (rope->rotary_dim / 2);
    r->table_rows = pass->total;
    OPERATOR(attn_rope(pass->s->ctx, r));
    return ATTN_OK;
}

attn_status attn_pass_rotate(attn_pass *pass, int64_t layer, int64_t heads, bool back, float *x)
{
    const attn_description *d = pass->d;
    const attn_rope_desc *rope = d->has_local_rope && has_window(pass, layer) ? &d->local_rope : &d->rope;
    attn_rope_args r;
    ATTN_ARGS_INIT(&r);
    r.x = rows_view(x, heads, pass->total, d->head_dim);
    r.out = writable(r.x);
    r.rotary_dim = rope->rotary_dim;
    r.flags = (rope->interleaved ? ATTN_ROPE_INTERLEAVED : 0) | (back ? ATTN_ROPE_INVERSE : 0);
    r.base = rope->base;
    r.positions = pass->positions;
    r.positions_stride = pass->total;
    if (rope->scaling >= ATTN_ROPE_LONG)
        return rotate_by_tables(pass, rope, &r);
    if (rope->scaling != ATTN_ROPE_PLAIN) {
        r.flags |= rope->no_truncate && rope->scaling == ATTN_ROPE_YARN ? ATTN_ROPE_YARN_EXACT : 0;
        r.scaling = rope->scaling;
        r.factor = rope->factor;
        r.low_freq_factor = rope->low_freq_factor;
        r.high_freq_factor = rope->high_freq_factor;
        r.beta_fast = rope->beta_fast;
        r.beta_slow = rope->beta_slow;
        r.attention_factor = rope->attention_factor;
        r.original_length = rope->original_length;
    }
    OPERATOR(attn_rope(pass->s->ctx, &r));
    return ATTN_OK;
}

static attn_status project(attn_pass *pass, int64_t layer, int32_t kind)
{
    const attn_description *d = pass->d;
    const bool cross = kind == ATTN_ATTENTION_CROSS;
    const attn_layer_weights *w = &pass->stack->layers[layer];
    const attn_attention_weights *a = cross ? &w->cross : &w->self;
    const int64_t width = d->n_heads * d->head_dim, kv_width = d->n_kv_heads * d->head_dim;
    attn_linear_job jobs[3] = {
        {.linear = &a->q, .x = pass->h, .ldx = d->d_model, .y = pass->q, .ldy = width},
        {.linear = &a->k, .x = pass->h, .ldx = d->d_model, .y = pass->k, .ldy = kv_width},
        {.linear = &a->v, .x = pass->h, .ldx = d->d_model, .y = pass->v, .ldy = kv_width}};
    attn_linear_run(&pass->s->worker, jobs, cross ? 1 : 3, pass->total);
    norm_heads(pass, &a->q_norm, a->q_norm_dim, d->n_heads, pass->q);
    if (cross)
        return ATTN_OK;
    norm_heads(pass, &a->k_norm, a->k_norm_dim, d->n_kv_heads, pass->k);
    if (d->position == ATTN_POSITION_ROPE) {
        ATTN_TRY(attn_pass_rotate(pass, layer, d->n_heads, false, pass->q));
        ATTN_TRY(attn_pass_rotate(pass, layer, d->n_kv_heads, false, pass->k));
    }
    return ATTN_OK;
}

/* ---- the operator's call ---- */

/* All sequences of an encoder in one call over the packed rows. */
static attn_status attend_packed(attn_pass *pass, int64_t layer)
{
    const attn_description *d = pass->d;
    attn_sdpa_args args;
    common_args(pass, layer, ATTN_ATTENTION_SELF, &args);
    args.query = rows_view(pass->q, d->n_heads, pass->total, d->head_dim);
    args.key = rows_view(pass->k, d->n_kv_heads, pass->total, d->head_dim);
    args.value = rows_view(pass->v, d->n_kv_heads, pass->total, d->head_dim);
    args.out = writable(rows_view(pass->heads, d->n_heads, pass->total, d->head_dim));
    args.mask.cu_seqlens_q = args.mask.cu_seqlens_k = pass->first;
    args.mask.n_segments = pass->s->batch;
    OPERATOR(attn_sdpa_forward(pass->s->ctx, &args, NULL, 0));
    return ATTN_OK;
}

/* Sequences entry .. entry + batch - 1, with n new tokens each: appended to the cache, then attended with. */
static attn_status attend_cached(attn_pass *pass, int64_t layer, int64_t entry, int64_t batch, int64_t n)
{
    const attn_description *d = pass->d;
    attn_session *s = pass->s;
    const int64_t first = pass->first[entry], capacity = s->cache.capacity;
    const int64_t width = d->n_heads * d->head_dim, kv_width = d->n_kv_heads * d->head_dim;
    attn_sdpa_args common;
    attn_decode_args args;
    common_args(pass, layer, ATTN_ATTENTION_SELF, &common);
    ATTN_ARGS_INIT(&args);
    args.query = rows_view(pass->q + first * width, d->n_heads, n, d->head_dim);
    args.new_key = rows_view(pass->k + first * kv_width, d->n_kv_heads, n, d->head_dim);
    args.new_value = rows_view(pass->v + first * kv_width, d->n_kv_heads, n, d->head_dim);
    args.out = writable(rows_view(pass->heads + first * width, d->n_heads, n, d->head_dim));
    args.query.shape[0] = args.new_key.shape[0] = args.new_value.shape[0] = args.out.shape[0] = batch;
    args.cache_key = writable(attn_kv_view(&s->cache, ATTN_KV_KEY, layer, entry, batch, capacity));
    args.cache_value = writable(attn_kv_view(&s->cache, ATTN_KV_VALUE, layer, entry, batch, capacity));
    args.cache_key_scale = writable(attn_kv_view(&s->cache, ATTN_KV_KEY_SCALE, layer, entry, batch, capacity));
    args.cache_value_scale = writable(attn_kv_view(&s->cache, ATTN_KV_VALUE_SCALE, layer, entry, batch, capacity));
    args.cache_len = s->lengths + entry;
    args.mask = common.mask;
    args.mask.flags &= ~(uint32_t)ATTN_MASK_OFFSET;
    args.scale = common.scale;
    args.softcap = common.softcap;
    args.flags = common.flags;
    args.sinks = common.sinks;
    OPERATOR(attn_sdpa_decode(s->ctx, &args, NULL, 0));
    return ATTN_OK;
}

/* A decoder's queries on the encoder's keys: sequences with equally many new tokens in one call. */
static attn_status attend_cross(attn_pass *pass, int64_t layer)
{
    const attn_description *d = pass->d;
    const attn_session *s = pass->s;
    const int64_t n = pass->uniform, batch = s->batch;
    int64_t longest = 0;
    attn_sdpa_args args;
    entry_args(pass, layer, ATTN_ATTENTION_CROSS, 0, &args);
    for (int64_t b = 0; b < batch; b++)
        longest = s->cross_lengths[b] > longest ? s->cross_lengths[b] : longest;
    args.query.shape[0] = args.out.shape[0] = args.key.shape[0] = args.value.shape[0] = batch;
    args.query.stride[0] = args.out.stride[0] = n * d->n_heads * d->head_dim;
    args.key.shape[2] = args.value.shape[2] = longest;
    args.key.stride[0] = args.value.stride[0] = d->n_kv_heads * s->cross_capacity * d->head_dim;
    args.mask.kv_len = s->cross_lengths;
    OPERATOR(attn_sdpa_forward(pass->s->ctx, &args, NULL, 0));
    return ATTN_OK;
}

static attn_status attend(attn_pass *pass, int64_t layer, int32_t kind)
{
    const bool self = kind == ATTN_ATTENTION_SELF;
    if (pass->encoder && self)
        return attend_packed(pass, layer);
    if (pass->uniform >= 0 && pass->s->batch > 1)
        return self ? attend_cached(pass, layer, 0, pass->s->batch, pass->uniform) : attend_cross(pass, layer);
    for (int64_t b = 0; b < pass->s->batch; b++) {
        const int64_t n = pass->first[b + 1] - pass->first[b];
        attn_sdpa_args args;
        if (n == 0)
            continue;
        if (self) {
            ATTN_TRY(attend_cached(pass, layer, b, 1, n));
            continue;
        }
        entry_args(pass, layer, kind, b, &args);
        OPERATOR(attn_sdpa_forward(pass->s->ctx, &args, NULL, 0));
    }
    return ATTN_OK;
}

/* ---- edits ---- */

/* One row of one head under the edits that concern it, in order: weights are what is left of them so far. */
typedef struct edited_row {
    const attn_sdpa_args *all;
    int64_t head, row;
    float *weights;   /* [keys] */
    uint8_t *allow;   /* [keys] 0: knocked out */
    float kept;       /* share of the row's mass that knockouts have left, without those computed anew */
    bool looked;      /* weights and allow are filled */
} edited_row;

static float *head_row(const attn_sdpa_args *all, int64_t head, int64_t row)
{
    return (float *)all->out.data + head * all->out.stride[1] + row * all->out.stride[2];
}

static attn_status look_at_row(attn_pass *pass, edited_row *r)
{
    const int64_t n_keys = r->all->key.shape[2];
    const attn_row wanted = {0, r->head, r->row};
    const attn_view view = attn_view_of(r->weights, ATTN_F32, 1, 1, 1, n_keys);
    if (r->looked)
        return ATTN_OK;
    OPERATOR(attn_sdpa_rows(pass->s->ctx, r->all, &wanted, 1, &view));
    memset(r->allow, 1, (size_t)n_keys);
    r->kept = 1.0f;
    r->looked = true;
    return ATTN_OK;
}

/* The row computed anew over the keys that are still allowed. */
static attn_status attend_allowed(attn_pass *pass, const edited_row *r)
{
    const attn_sdpa_args *all = r->all;
    const int64_t n_keys = all->key.shape[2], group = all->query.shape[1] / all->key.shape[1];
    attn_sdpa_args one = *all;
    one.query.data = (const float *)all->query.data + r->head * all->query.stride[1] + r->row * all->query.stride[2];
    one.out.data = head_row(all, r->head, r->row);
    attn_cview *of_group[] = {&one.key, &one.value, &one.key_scale, &one.value_scale};
    for (int n = 0; n < 4; n++) {
        if (!of_group[n]->data)
            continue;
        of_group[n]->data = (const char *)of_group[n]->data +
                            (size_t)(r->head / group * of_group[n]->stride[1]) * attn_dtype_size(of_group[n]->dtype);
        of_group[n]->shape[1] = 1;
    }
    one.query.shape[1] = one.query.shape[2] = one.out.shape[1] = one.out.shape[2] = 1;
    one.mask.flags |= one.mask.flags ? ATTN_MASK_OFFSET : 0;
    one.mask.query_offset += r->row;
    one.mask.bias_offset += r->row;
    one.mask.relative = all->mask.relative ? all->mask.relative + r->head * all->mask.relative_stride : NULL;
    one.sinks = all->sinks ? all->sinks + r->head : NULL;
    one.mask.allow = attn_cview_of(r->allow, ATTN_BOOL, 1, 1, 1, n_keys);
    OPERATOR(attn_sdpa_forward(pass->s->ctx, &one, NULL, 0));
    return ATTN_OK;
}

/* Number i of the value of a key, whatever the cache's type. */
static float value_at(const attn_sdpa_args *all, int64_t kv_head, int64_t key, int64_t i)
{
    const attn_cview *v = &all->value, *scale = &all->value_scale;
    const double x = attn_load_element(v->data, v->dtype, attn_offset(v->stride, 0, kv_head, key, i));
    return v->dtype == ATTN_I8
               ? (float)(x * attn_load_element(scale->data, ATTN_F32, attn_offset(scale->stride, 0, kv_head, key, 0)))
               : (float)x;
}

/* A later edit of the same row sees the weights that this one leaves: two knockouts equal one of both keys. */
static attn_status edit_reading(attn_pass *pass, const attn_edit *edit, edited_row *r)
{
    const attn_sdpa_args *all = r->all;
    const int64_t n_keys = all->key.shape[2], group = all->query.shape[1] / all->key.shape[1];
    ATTN_TRY(look_at_row(pass, r));
    const float a = r->weights[edit->key];
    float *y = head_row(all, r->head, r->row);
    if (edit->kind == ATTN_EDIT_KNOCKOUT) {
        r->allow[edit->key] = 0;
        r->kept *= 1.0f - a;
        if (r->kept < KNOCKOUT_LEAST) {
            const attn_row wanted = {0, r->head, r->row};
            const attn_view view = attn_view_of(r->weights, ATTN_F32, 1, 1, 1, n_keys);
            attn_sdpa_args left = *all;
            left.mask.allow = attn_cview_of(r->allow, ATTN_BOOL, 1, 1, 1, n_keys);
            ATTN_TRY(attend_allowed(pass, r));
            OPERATOR(attn_sdpa_rows(pass->s->ctx, &left, &wanted, 1, &view));
            r->kept = 1.0f;
            return ATTN_OK;
        }
    }
    for (int64_t i = 0; i < pass->d->head_dim; i++) {
        y[i] -= a * value_at(all, r->head / group, edit->key, i);
        if (edit->kind == ATTN_EDIT_KNOCKOUT)
            y[i] /= 1.0f - a;
        if (edit->kind == ATTN_EDIT_REPLACE && edit->value)
            y[i] += a * edit->value[i];
    }
    r->weights[edit->key] = 0;
    for (int64_t j = 0; edit->kind == ATTN_EDIT_KNOCKOUT && j < n_keys; j++)
        r->weights[j] /= 1.0f - a;
    return ATTN_OK;
}

static bool concerns(const attn_edit *edit, int64_t layer, int32_t kind, int64_t entry)
{
    return edit->attention == kind && (edit->layer < 0 || edit->layer == layer) &&
           (edit->entry < 0 || edit->entry == entry);
}

/* All edits of one row of one head, in order. */
static attn_status edit_row(attn_pass *pass, int64_t layer, int32_t kind, int64_t entry, int64_t position,
                            edited_row *r)
{
    const size_t bytes = (size_t)pass->d->head_dim * sizeof(float);
    r->looked = false;
    for (int32_t e = 0; e < pass->args->n_edits; e++) {
        const attn_edit *edit = &pass->args->edits[e];
        if (!concerns(edit, layer, kind, entry) || (edit->head >= 0 && edit->head != r->head) ||
            (edit->query >= 0 && edit->query != position))
            continue;
        if (edit->kind != ATTN_EDIT_HEAD) {
            if (edit->key < r->all->key.shape[2])
                ATTN_TRY(edit_reading(pass, edit, r));
        } else if (edit->value) {
            memcpy(head_row(r->all, r->head, r->row), edit->value, bytes);
        } else {
            memset(head_row(r->all, r->head, r->row), 0, bytes);
        }
    }
    return ATTN_OK;
}

static attn_status apply_edits(attn_pass *pass, int64_t layer, int32_t kind, int64_t entry, const attn_sdpa_args *all)
{
    const int64_t offset = pass->encoder ? 0 : pass->s->lengths[entry], n_keys = all->key.shape[2];
    edited_row r = {.all = all};
    bool any = false;
    for (int32_t e = 0; e < pass->args->n_edits; e++)
        any |= concerns(&pass->args->edits[e], layer, kind, entry);
    if (!any)
        return ATTN_OK;
    r.weights = malloc((size_t)(n_keys + 1) * sizeof *r.weights);
    r.allow = malloc((size_t)(n_keys + 1));
    attn_status status =
        r.weights && r.allow ? ATTN_OK : attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    for (r.head = 0; r.head < all->query.shape[1]; r.head++)
        for (r.row = 0; status == ATTN_OK && r.row < all->query.shape[2]; r.row++)
            status = edit_row(pass, layer, kind, entry, offset + r.row, &r);
    free(r.weights);
    free(r.allow);
    return status;
}

/* ---- looking ---- */

static attn_status call_hook(attn_pass *pass, int64_t layer, int32_t kind, int64_t entry, const attn_sdpa_args *all)
{
    attn_layer_view view;
    ATTN_ARGS_INIT(&view);
    view.layer = layer;
    view.entry = entry;
    view.kind = kind;
    view.first_position = pass->encoder ? 0 : pass->s->lengths[entry];
    view.ctx = pass->s->ctx;
    view.attention = all;
    view.head_out = all->out;
    view.residual = attn_cview_of(pass->x + pass->first[entry] * pass->d->d_model, ATTN_F32, 1, 1,
                                  all->query.shape[2], pass->d->d_model);
    *attn_model_error_buffer() = '\0'; /* what the hook itself may have failed with says more */
    const attn_status status = pass->args->hook(pass->args->hook_user, &view);
    if (status != ATTN_OK && !*attn_model_error_buffer())
        attn_model_fail(status, "the hook ended the pass in layer %lld", (long long)layer);
    return status;
}

/* The token slot of a sequence's query (negative: from the end) as an index among its real tokens; -1: padding. */
static int64_t real_index(const attn_pass *pass, int64_t entry, int64_t query)
{
    const int64_t n_tokens = pass->args->n_tokens;
    const int64_t slot = entry * n_tokens + (query < 0 ? n_tokens + query : query);
    for (int64_t t = pass->first[entry]; t < pass->first[entry + 1]; t++)
        if (pass->slots[t] == slot)
            return t - pass->first[entry];
    return -1;
}

/* Puts the weights of one row where the caller counts keys: behind the cached ones by token slot. */
static void place_row(const attn_pass *pass, int64_t entry, int32_t kind, const float *weights, int64_t n_keys,
                      float *to)
{
    const int64_t cached = pass->encoder ? 0 : pass->s->lengths[entry];
    memset(to, 0, (size_t)pass->args->row_stride * sizeof *to);
    for (int64_t j = 0; j < n_keys; j++) {
        int64_t at = j;
        if (kind == ATTN_ATTENTION_CROSS)
            at = pass->s->cross_slots[entry * pass->s->cross_capacity + j];
        else if (j >= cached)
            at = cached + pass->slots[pass->first[entry] + j - cached] - entry * pass->args->n_tokens;
        to[at] = weights[j];
    }
}

static attn_status copy_rows(attn_pass *pass, int64_t layer, int32_t kind, int64_t entry, const attn_sdpa_args *all)
{
    const attn_forward_args *args = pass->args;
    const int64_t n_keys = all->key.shape[2];
    attn_row *rows = malloc((size_t)args->n_rows * sizeof *rows);
    int64_t *which = malloc((size_t)args->n_rows * sizeof *which), n = 0;
    for (int64_t r = 0; rows && which && r < args->n_rows; r++) {
        const attn_attention_row *wanted = &args->rows[r];
        if (wanted->layer != layer || wanted->entry != entry || wanted->kind != kind)
            continue;
        const int64_t query = real_index(pass, entry, wanted->query);
        if (query < 0) {
            memset(args->row_weights + r * args->row_stride, 0, (size_t)args->row_stride * sizeof(float));
            continue;
        }
        rows[n] = (attn_row){0, wanted->head, query};
        which[n++] = r;
    }
    float *weights = n ? malloc((size_t)n * (size_t)(n_keys + 1) * sizeof *weights) : NULL;
    attn_status status = ATTN_OK;
    if (!rows || !which || (n && !weights)) {
        status = attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    } else if (n) {
        const attn_view view = attn_view_of(weights, ATTN_F32, 1, 1, n, n_keys);
        status = attn_sdpa_rows(pass->s->ctx, all, rows, n, &view);
        if (status != ATTN_OK)
            operator_failed(pass, status);
    }
    for (int64_t i = 0; status == ATTN_OK && i < n; i++)
        place_row(pass, entry, kind, weights + i * n_keys, n_keys, args->row_weights + which[i] * args->row_stride);
    free(rows);
    free(which);
    free(weights);
    return status;
}

attn_status attn_pass_attention(attn_pass *pass, int64_t layer, int32_t kind)
{
    const attn_forward_args *args = pass->args;
    ATTN_TRY(project(pass, layer, kind));
    ATTN_TRY(attend(pass, layer, kind));
    if (!args->hook && !args->n_rows && !args->n_edits)
        return ATTN_OK;
    for (int64_t b = 0; b < pass->s->batch; b++) {
        attn_sdpa_args all;
        if (pass->first[b] == pass->first[b + 1])
            continue;
        entry_args(pass, layer, kind, b, &all);
        if (args->n_rows)
            ATTN_TRY(copy_rows(pass, layer, kind, b, &all));
        if (args->n_edits)
            ATTN_TRY(apply_edits(pass, layer, kind, b, &all));
        if (args->hook)
            ATTN_TRY(call_hook(pass, layer, kind, b, &all));
    }
    return ATTN_OK;
}
