/* pass.c - packing real tokens, the buffers of a pass, and the chain of blocks. */
#include "models/pass.h"
#include <stdlib.h>
#include <string.h>
#include "core/context.h"

static attn_status reserve_scratch(attn_session *s, double floats)
{
    if (floats > 0x1p44)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "n_tokens is too large");
    if ((int64_t)floats <= s->scratch_floats)
        return ATTN_OK;
    free(s->scratch);
    s->scratch_floats = 0;
    s->scratch = aligned_alloc(64, ((size_t)floats * sizeof(float) + 63) / 64 * 64);
    if (!s->scratch)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "no memory for a pass");
    s->scratch_floats = (int64_t)floats;
    return ATTN_OK;
}

/* 64-byte aligned parts of the scratch memory. */
static float *take(float **at, int64_t floats)
{
    float *part = *at;
    *at += (floats + 15) / 16 * 16;
    return part;
}

/* The most inputs that a linear layer has. */
static int64_t widest(const attn_description *d)
{
    const int64_t widths[] = {d->d_model, d->n_heads * d->head_dim, d->d_ff, attn_embedding_dim(d),
                              d->n_channels * d->patch_size * d->patch_size};
    int64_t most = 0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        most = widths[i] > most ? widths[i] : most;
    return most;
}

static attn_status share_scratch(attn_pass *pass)
{
    const attn_description *d = pass->d;
    const int64_t t = pass->total, width = d->n_heads * d->head_dim, kv_width = d->n_kv_heads * d->head_dim;
    int64_t mlp = attn_mlp_scratch(&d->mlp, t, d->d_model, d->d_ff);
    const int64_t patch = d->n_channels * d->patch_size * d->patch_size;
    const int64_t wait = t * (patch > d->embedding_dim ? patch : d->embedding_dim); /* what becomes embeddings waits there, too */
    mlp = mlp < wait ? wait : mlp;
    const int64_t dots = pass->s->model->short_acts ? (int64_t)(attn_linear_scratch(t, widest(d)) / sizeof(float)) : 0;
    ATTN_TRY(reserve_scratch(pass->s, (double)t * (double)(3 * d->d_model + 2 * width + 2 * kv_width) + (double)mlp +
                                          (double)dots + 9 * 16));
    float *at = pass->s->scratch;
    pass->x = take(&at, t * d->d_model);
    pass->y = take(&at, t * d->d_model);
    pass->h = take(&at, t * d->d_model);
    pass->q = take(&at, t * width);
    pass->k = take(&at, t * kv_width);
    pass->v = take(&at, t * kv_width);
    pass->heads = take(&at, t * width);
    pass->mlp = take(&at, mlp);
    pass->s->worker.scratch = take(&at, dots);
    return ATTN_OK;
}

/* Which tokens are real, where they stand. */
static void pack_tokens(attn_pass *pass)
{
    const attn_forward_args *a = pass->args;
    pass->uniform = 0;
    for (int64_t b = 0; b < pass->s->batch; b++) {
        int64_t position = pass->encoder ? 0 : pass->s->lengths[b];
        pass->first[b] = pass->total;
        for (int64_t i = 0; i < a->n_tokens; i++) {
            const int64_t slot = b * a->n_tokens + i;
            if (a->keep && !a->keep[slot])
                continue;
            pass->slots[pass->total] = slot;
            pass->positions[pass->total++] = position++;
        }
        const int64_t here = pass->total - pass->first[b];
        pass->uniform = b == 0 || pass->uniform == here ? here : -1;
    }
    pass->first[pass->s->batch] = pass->total;
}

attn_status attn_pass_start(attn_pass *pass, attn_session *session, const attn_forward_args *args, bool encoder)
{
    const attn_description *d = &session->model->d;
    const int64_t batch = session->batch, all = batch * args->n_tokens;
    memset(pass, 0, sizeof *pass);
    pass->s = session;
    pass->args = args;
    pass->d = d;
    pass->encoder = encoder;
    const bool own_encoder = d->kind == ATTN_MODEL_ENCODER_DECODER && encoder;
    pass->stack = own_encoder ? &session->model->w.encoder : &session->model->w.stack;
    pass->relative = own_encoder ? session->relative_encoder : session->relative;
    pass->has_cross = d->kind == ATTN_MODEL_ENCODER_DECODER && !encoder;
    pass->first = malloc((size_t)(batch + 1) * sizeof *pass->first);
    pass->slots = malloc((size_t)(all + 1) * sizeof *pass->slots);
    pass->positions = malloc((size_t)(all + 1) * sizeof *pass->positions);
    if (!pass->first || !pass->slots || !pass->positions)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    pack_tokens(pass);
    return share_scratch(pass);
}

void attn_pass_finish(attn_pass *pass)
{
    free(pass->first);
    free(pass->slots);
    free(pass->positions);
    attn_pass_drop_tables(pass);
}

static void swap_streams(attn_pass *pass)
{
    float *x = pass->x;
    pass->x = pass->y;
    pass->y = x;
}

static void norm(const attn_pass *pass, const attn_norm *n, const float *x, float *y)
{
    attn_norm_rows(&pass->s->worker, &pass->d->norm, n, pass->total, pass->d->d_model, x, pass->d->d_model, y,
                   pass->d->d_model);
}

/* y = o(heads) + residual */
static void project_out(const attn_pass *pass, const attn_attention_weights *a, const float *residual, float *y)
{
    const int64_t dm = pass->d->d_model;
    const attn_linear_job job = {.linear = &a->o, .x = pass->heads, .ldx = pass->d->n_heads * pass->d->head_dim, .y = y,
                                 .ldy = dm, .residual = residual, .ld_residual = dm};
    attn_linear_run(&pass->s->worker, &job, 1, pass->total);
}

/* h = x behind the norm, or where the norm comes later, x itself, which is not written before the sublayer has read it. Returns the
 * memory of h, to be put back. */
static float *open_sublayer(attn_pass *pass, const attn_norm *n, bool post)
{
    float *h = pass->h;
    if (post)
        pass->h = pass->x;
    else
        norm(pass, n, pass->x, pass->h);
    return h;
}

/* One sublayer of attention on x; the result is x again. */
static attn_status attention_sublayer(attn_pass *pass, int64_t layer, int32_t kind)
{
    const attn_layer_weights *w = &pass->stack->layers[layer];
    const bool cross = kind == ATTN_ATTENTION_CROSS, post = pass->d->place == ATTN_NORM_POST;
    const attn_norm *own = cross ? &w->norm_cross : &w->norm1;
    const attn_attention_weights *a = cross ? &w->cross : &w->self;
    float *h = open_sublayer(pass, own, post);
    const attn_status status = attn_pass_attention(pass, layer, kind);
    pass->h = h;
    ATTN_TRY(status);
    if (w->post1.weight && !cross) {
        project_out(pass, a, NULL, pass->y);
        norm(pass, &w->post1, pass->y, pass->y);
        attn_add_rows(&pass->s->worker, pass->total, pass->d->d_model, pass->y, pass->x);
        return ATTN_OK;
    }
    project_out(pass, a, pass->x, pass->y);
    if (post)
        norm(pass, own, pass->y, pass->y);
    swap_streams(pass);
    return ATTN_OK;
}

static void mlp(const attn_pass *pass, const attn_layer_weights *w, const float *residual, float *y)
{
    attn_mlp_forward(&pass->s->worker, &pass->d->mlp, w, pass->total, pass->d->d_model, pass->d->d_ff, pass->h,
                     residual, y, pass->mlp);
}

static void mlp_sublayer(attn_pass *pass, int64_t layer)
{
    const attn_layer_weights *w = &pass->stack->layers[layer];
    const bool post = pass->d->place == ATTN_NORM_POST;
    float *h = open_sublayer(pass, &w->norm2, post);
    mlp(pass, w, w->post2.weight ? NULL : pass->x, pass->y);
    pass->h = h;
    if (w->post2.weight) {
        norm(pass, &w->post2, pass->y, pass->y);
        attn_add_rows(&pass->s->worker, pass->total, pass->d->d_model, pass->y, pass->x);
        return;
    }
    if (post)
        norm(pass, &w->norm2, pass->y, pass->y);
    swap_streams(pass);
}

/* y = x + attention(norm1(x)) + mlp(norm2(x)) */
static attn_status parallel_block(attn_pass *pass, int64_t layer)
{
    const attn_layer_weights *w = &pass->stack->layers[layer];
    norm(pass, &w->norm1, pass->x, pass->h);
    ATTN_TRY(attn_pass_attention(pass, layer, ATTN_ATTENTION_SELF));
    if (w->norm2.weight)
        norm(pass, &w->norm2, pass->x, pass->h); /* else both read norm1's output */
    project_out(pass, &w->self, pass->x, pass->y);
    swap_streams(pass);
    mlp(pass, w, pass->x, pass->y);
    swap_streams(pass);
    return ATTN_OK;
}

attn_status attn_pass_blocks(attn_pass *pass, void (*hidden)(attn_pass *pass, int64_t layer))
{
    const attn_forward_args *a = pass->args;
    for (int64_t layer = 0; layer < pass->stack->n_layers; layer++) {
        if (hidden)
            hidden(pass, layer);
        if (pass->total && pass->d->place == ATTN_NORM_PARALLEL) {
            ATTN_TRY(parallel_block(pass, layer));
        } else if (pass->total) {
            ATTN_TRY(attention_sublayer(pass, layer, ATTN_ATTENTION_SELF));
            if (pass->has_cross && pass->stack->layers[layer].has_cross)
                ATTN_TRY(attention_sublayer(pass, layer, ATTN_ATTENTION_CROSS));
            mlp_sublayer(pass, layer);
        }
        if (a->progress && a->progress(a->progress_user, layer + 1, pass->stack->n_layers))
            return attn_model_fail(ATTN_ERR_CANCELLED, "the progress callback asked to stop");
    }
    return ATTN_OK;
}
