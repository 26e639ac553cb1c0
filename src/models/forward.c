/* forward.c - attn_model_forward and attn_model_forward_encoder: check, embed, run the blocks, put results where they are
 * wanted. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/context.h"
#include "models/pass.h"
#include "ops/nn/nn_parallel.h"

/* Rows of logits that are computed at a time where they must be moved afterwards. */
#define LOGIT_ROWS 64

/* ---- checks ---- */

/* Is there a position, and a place in the cache, for so many tokens of a sequence? */
static attn_status check_length(const attn_session *s, int64_t tokens, bool encoder)
{
    const attn_description *d = &s->model->d;
    const int64_t limit = encoder ? d->context_length : s->max_capacity;
    const bool bounded = !encoder || d->position == ATTN_POSITION_LEARNED;
    ATTN_MODEL_REQUIRE(!bounded || tokens <= limit, "n_tokens: %lld tokens are more than the context of %lld",
                       (long long)tokens, (long long)limit);
    return ATTN_OK;
}

static attn_status check_tokens(const attn_session *s, const attn_forward_args *a, bool encoder)
{
    const attn_description *d = &s->model->d;
    ATTN_MODEL_REQUIRE(a->n_tokens >= 0 && a->n_tokens <= INT32_MAX, "n_tokens is %lld", (long long)a->n_tokens);
    const int64_t patches = d->patch_size ? d->image_size / d->patch_size * (d->image_size / d->patch_size) : 0;
    ATTN_MODEL_REQUIRE(!a->pixels == !d->patch_size, "pixels %s, but the %s family %s images", a->pixels ? "is given" : "is NULL",
                       d->family, d->patch_size ? "reads" : "has no");
    ATTN_MODEL_REQUIRE(!a->pixels || (a->n_tokens == 1 + patches && !a->keep && !a->tokens && !a->embeddings),
                       "with pixels n_tokens is %lld (not %lld), or tokens, keep or embeddings is given",
                       (long long)a->n_tokens, (long long)(1 + patches));
    ATTN_MODEL_REQUIRE(a->pixels || a->embeddings || !d->no_tokens || a->n_tokens == 0,
                       "embeddings is NULL, and the %s family has no tokens", d->family);
    ATTN_MODEL_REQUIRE(a->tokens || a->embeddings || a->pixels || a->n_tokens == 0, "tokens is NULL");
    ATTN_MODEL_REQUIRE(!a->token_types || d->n_types, "token_types is given, but the %s family has none", d->family);
    for (int64_t b = 0; b < s->batch && !a->keep; b++) /* a wrong n_tokens is told before tokens are read */
        ATTN_TRY(check_length(s, a->n_tokens + (encoder ? 0 : s->lengths[b]), encoder));
    for (int64_t i = 0; i < s->batch * a->n_tokens; i++) {
        if (a->keep && !a->keep[i])
            continue;
        ATTN_MODEL_REQUIRE(a->embeddings || a->pixels || (a->tokens[i] >= 0 && a->tokens[i] < d->vocab_size),
                           "tokens[%lld] is %d, the vocabulary has %lld", (long long)i, a->tokens ? a->tokens[i] : 0,
                           (long long)d->vocab_size);
        ATTN_MODEL_REQUIRE(!a->token_types || (a->token_types[i] >= 0 && a->token_types[i] < d->n_types),
                           "token_types[%lld] is %d of %lld", (long long)i, a->token_types[i], (long long)d->n_types);
    }
    return ATTN_OK;
}

static attn_status check_looks(const attn_session *s, const attn_forward_args *a, const attn_stack_weights *stack)
{
    const attn_description *d = &s->model->d;
    ATTN_MODEL_REQUIRE(a->n_edits >= 0 && (a->edits || !a->n_edits), "edits is NULL or n_edits negative");
    for (int32_t e = 0; e < a->n_edits; e++) {
        const attn_edit *edit = &a->edits[e];
        ATTN_MODEL_REQUIRE(edit->kind >= ATTN_EDIT_HEAD && edit->kind <= ATTN_EDIT_REPLACE, "edits[%d].kind is %d", e,
                           edit->kind);
        ATTN_MODEL_REQUIRE(edit->attention == ATTN_ATTENTION_SELF ||
                               (edit->attention == ATTN_ATTENTION_CROSS && d->kind == ATTN_MODEL_ENCODER_DECODER &&
                                stack != &s->model->w.encoder),
                           "edits[%d].attention is %d, and there is no such attention", e, edit->attention);
        ATTN_MODEL_REQUIRE(edit->layer >= -1 && edit->layer < stack->n_layers, "edits[%d].layer is %lld of %lld", e,
                           (long long)edit->layer, (long long)stack->n_layers);
        ATTN_MODEL_REQUIRE(edit->entry >= -1 && edit->entry < s->batch, "edits[%d].entry is %lld of %lld", e,
                           (long long)edit->entry, (long long)s->batch);
        ATTN_MODEL_REQUIRE(edit->head >= -1 && edit->head < d->n_heads, "edits[%d].head is %lld of %lld", e,
                           (long long)edit->head, (long long)d->n_heads);
        ATTN_MODEL_REQUIRE(edit->query >= -1 && (edit->key >= 0 || edit->kind == ATTN_EDIT_HEAD),
                           "edits[%d] reads query %lld, key %lld", e, (long long)edit->query, (long long)edit->key);
    }
    ATTN_MODEL_REQUIRE(a->n_rows >= 0 && ((a->rows && a->row_weights) || !a->n_rows), "rows or row_weights is NULL");
    for (int64_t r = 0; r < a->n_rows; r++) {
        const attn_attention_row *row = &a->rows[r];
        const bool cross = row->kind == ATTN_ATTENTION_CROSS;
        ATTN_MODEL_REQUIRE(!cross || (s->model->d.kind == ATTN_MODEL_ENCODER_DECODER && stack != &s->model->w.encoder),
                           "rows[%lld].kind is CROSS, but there is no cross attention", (long long)r);
        ATTN_MODEL_REQUIRE(row->layer >= 0 && row->layer < stack->n_layers && row->entry >= 0 &&
                               row->entry < s->batch && row->head >= 0 && row->head < d->n_heads,
                           "rows[%lld] is layer %lld of %lld, entry %lld of %lld, head %lld of %lld", (long long)r,
                           (long long)row->layer, (long long)stack->n_layers, (long long)row->entry,
                           (long long)s->batch, (long long)row->head, (long long)d->n_heads);
        ATTN_MODEL_REQUIRE(row->query >= -a->n_tokens && row->query < a->n_tokens, "rows[%lld].query is %lld of %lld",
                           (long long)r, (long long)row->query, (long long)a->n_tokens);
        int64_t need = a->n_tokens + (s->model->d.kind == ATTN_MODEL_ENCODER || stack == &s->model->w.encoder
                                          ? 0
                                          : s->lengths[row->entry]);
        need = cross ? s->cross_tokens : need;
        ATTN_MODEL_REQUIRE(a->row_stride >= need, "row_stride is %lld, %lld keys are there", (long long)a->row_stride,
                           (long long)need);
    }
    return ATTN_OK;
}

/* Room for the new tokens in the cache. */
static attn_status make_room(attn_session *s, const attn_pass *pass)
{
    int64_t longest = 0;
    for (int64_t b = 0; b < s->batch; b++) {
        const int64_t n = pass->first[b + 1] - pass->first[b] + (pass->encoder ? 0 : s->lengths[b]);
        longest = n > longest ? n : longest;
    }
    ATTN_TRY(check_length(s, longest, pass->encoder));
    return pass->encoder ? ATTN_OK : attn_session_reserve(s, longest);
}

/* y = W x of `rows` rows */
static void run_linear(const attn_pass *pass, const attn_linear *linear, const float *x, int64_t ldx, int64_t rows, float *y,
                       int64_t ldy)
{
    const attn_linear_job job = {.linear = linear, .x = x, .ldx = ldx, .y = y, .ldy = ldy};
    attn_linear_run(&pass->s->worker, &job, 1, rows);
}

/* ---- embedding ---- */

/* Vaswani et al. 2017, section 3.5: sin and cos of position / 10000^(2i / d_model), interleaved or one half each. */
static void add_sinusoid(int64_t position, int64_t d_model, bool halves, float *x)
{
    for (int64_t i = 0; i < d_model; i++) {
        const double angle = (double)position / pow(10000.0, (double)(i / 2 * 2) / (double)d_model);
        x[halves ? i % 2 * ((d_model + 1) / 2) + i / 2 : i] += (float)(i % 2 ? cos(angle) : sin(angle));
    }
}

static void look_up_task(void *arg, int64_t t)
{
    const attn_pass *pass = arg;
    const attn_description *d = pass->d;
    const int64_t slot = pass->slots[t], columns = attn_embedding_dim(d);
    if (pass->args->embeddings) {
        memcpy(pass->x + t * d->d_model, pass->args->embeddings + slot * d->d_model, (size_t)d->d_model * sizeof(float));
        return;
    }
    float *to = (d->embedding_dim ? pass->mlp : pass->x) + t * columns;
    attn_model_embedding(pass->s->model, pass->args->tokens[slot], to);
    if (d->embedding_scale != 0)
        for (int64_t i = 0; i < columns; i++)
            to[i] *= (float)d->embedding_scale;
}

/* The numbers of patch t - 1 of an image, channel by channel, as the convolution's weights have them. */
static void patch_task(void *arg, int64_t t)
{
    const attn_pass *pass = arg;
    const attn_description *d = pass->d;
    const int64_t p = d->patch_size, side = d->image_size / p, n = pass->args->n_tokens;
    const int64_t image = t / n, patch = t % n - 1;
    if (patch < 0)
        return;
    float *to = pass->mlp + t * d->n_channels * p * p;
    for (int64_t c = 0; c < d->n_channels; c++)
        for (int64_t i = 0; i < p; i++, to += p)
            memcpy(to, pass->args->pixels + ((image * d->n_channels + c) * d->image_size + patch / side * p + i) * d->image_size +
                           patch % side * p, (size_t)p * sizeof *to);
}

/* Dosovitskiy et al. 2021: a linear map of each patch, behind the class token. */
static void embed_images(attn_pass *pass)
{
    const attn_description *d = pass->d;
    const attn_weights *w = &pass->s->model->w;
    const int64_t n = pass->args->n_tokens, numbers = d->n_channels * d->patch_size * d->patch_size;
    attn_nn_for(pass->s->n_threads, pass->total, patch_task, pass);
    for (int64_t b = 0; b < pass->s->batch; b++) {
        memcpy(pass->x + b * n * d->d_model, w->class_token, (size_t)d->d_model * sizeof(float));
        run_linear(pass, &w->patches, pass->mlp + (b * n + 1) * numbers, numbers, n - 1, pass->x + (b * n + 1) * d->d_model,
                   d->d_model);
    }
}

static void embed_task(void *arg, int64_t t)
{
    const attn_pass *pass = arg;
    const attn_description *d = pass->d;
    const attn_weights *w = &pass->s->model->w;
    const int64_t slot = pass->slots[t];
    float *x = pass->x + t * d->d_model;
    if (w->types) {
        const int64_t type = pass->args->token_types ? pass->args->token_types[slot] : 0;
        pass->s->worker.kernels->add(x, w->types + type * d->d_model, d->d_model);
    }
    if (d->position == ATTN_POSITION_LEARNED)
        pass->s->worker.kernels->add(x, pass->stack->positions + (pass->positions[t] + d->position_offset) * d->d_model,
                                     d->d_model);
    else if (d->position == ATTN_POSITION_SINUSOIDAL || d->position == ATTN_POSITION_HALVES)
        add_sinusoid(pass->positions[t], d->d_model, d->position == ATTN_POSITION_HALVES, x);
}

static void embed(attn_pass *pass)
{
    const attn_weights *w = &pass->s->model->w;
    const int64_t columns = pass->d->embedding_dim;
    if (pass->args->pixels)
        embed_images(pass);
    else
        attn_nn_for(pass->s->n_threads, pass->total, look_up_task, pass);
    if (columns && !pass->args->embeddings)
        run_linear(pass, &w->project_in, pass->mlp, columns, pass->total, pass->x, pass->d->d_model);
    attn_nn_for(pass->s->n_threads, pass->total, embed_task, pass);
    if (pass->stack->embedding_norm.weight)
        attn_norm_rows(&pass->s->worker, &pass->d->norm, &pass->stack->embedding_norm, pass->total, pass->d->d_model, pass->x,
                       pass->d->d_model, pass->x, pass->d->d_model);
}

/* ---- results ---- */

/* Packed rows to the slots of the tokens; padding gets zeros. */
static void scatter(const attn_pass *pass, const float *rows, int64_t n, float *out)
{
    const int64_t all = pass->s->batch * pass->args->n_tokens;
    if (pass->total < all)
        memset(out, 0, (size_t)(all * n) * sizeof *out);
    for (int64_t t = 0; t < pass->total; t++)
        memcpy(out + pass->slots[t] * n, rows + t * n, (size_t)n * sizeof *out);
}

static void keep_hidden(attn_pass *pass, int64_t layer)
{
    const int64_t size = pass->s->batch * pass->args->n_tokens * pass->d->d_model;
    if (pass->args->hidden_states)
        scatter(pass, pass->x, pass->d->d_model, pass->args->hidden_states + layer * size);
}

/* rows of h (after the final norm) to logits; h is the input of the head, or of its transform. */
static void run_head(const attn_pass *pass, const float *h, int64_t rows, float *logits)
{
    const attn_description *d = pass->d;
    const attn_weights *w = &pass->s->model->w;
    const int64_t dm = d->d_model;
    const attn_linear *head = d->tied ? &w->embedding : &w->head;
    if (w->transform.w.values) {
        attn_linear_act_rows(&pass->s->worker, &w->transform, d->transform_act, rows, h, pass->y);
        attn_norm_rows(&pass->s->worker, &d->norm, &w->transform_norm, rows, dm, pass->y, dm, pass->y, dm);
        h = pass->y;
    }
    if (d->embedding_dim) {
        run_linear(pass, &w->project_out, h, dm, rows, pass->mlp, d->embedding_dim);
        h = pass->mlp;
    }
    run_linear(pass, head, h, attn_embedding_dim(d), rows, logits, d->vocab_size);
    for (int64_t r = 0; r < rows; r++) {
        float *y = logits + r * d->vocab_size;
        if (w->head_bias)
            pass->s->worker.kernels->add(y, w->head_bias, d->vocab_size);
        if (d->logit_scale != 0)
            for (int64_t i = 0; i < d->vocab_size; i++)
                y[i] *= (float)d->logit_scale;
        if (d->final_softcap > 0)
            for (int64_t i = 0; i < d->vocab_size; i++)
                y[i] = (float)d->final_softcap * tanhf(y[i] / (float)d->final_softcap);
    }
}

/* The row that logits of a sequence come from: its last token's, or an image's class token's. */
static int64_t head_row(const attn_pass *pass, int64_t b)
{
    return pass->d->patch_size ? pass->first[b] : pass->first[b + 1] - 1;
}

attn_status attn_pass_logits(attn_session *session, const float *h, int64_t rows, float *logits)
{
    attn_pass pass = {.s = session, .d = &session->model->d};
    pass.y = malloc((size_t)(rows * (pass.d->d_model + attn_embedding_dim(pass.d))) * sizeof *pass.y);
    if (!pass.y)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "no memory for logits");
    pass.mlp = pass.y + rows * pass.d->d_model;
    run_head(&pass, h, rows, logits);
    free(pass.y);
    return ATTN_OK;
}

static attn_status last_logits(attn_pass *pass)
{
    const int64_t dm = pass->d->d_model, vocab = pass->d->vocab_size, batch = pass->s->batch;
    int64_t rows = 0;
    /* pass->q has room for a row of each sequence with tokens only where heads fill d_model; so x is gathered into h */
    for (int64_t b = 0; b < batch; b++)
        if (pass->first[b + 1] > pass->first[b])
            memmove(pass->h + rows++ * dm, pass->h + head_row(pass, b) * dm, (size_t)dm * sizeof(float));
    if (rows == batch) {
        run_head(pass, pass->h, rows, pass->args->logits);
        return ATTN_OK;
    }
    float *logits = malloc((size_t)(rows ? rows : 1) * (size_t)vocab * sizeof *logits);
    if (!logits)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "no memory for logits");
    run_head(pass, pass->h, rows, logits);
    for (int64_t b = 0, r = 0; b < batch; b++)
        if (pass->first[b + 1] > pass->first[b])
            memcpy(pass->args->logits + b * vocab, logits + r++ * vocab, (size_t)vocab * sizeof *logits);
        else
            memset(pass->args->logits + b * vocab, 0, (size_t)vocab * sizeof *logits);
    free(logits);
    return ATTN_OK;
}

static attn_status all_logits(attn_pass *pass)
{
    const int64_t dm = pass->d->d_model, vocab = pass->d->vocab_size, all = pass->s->batch * pass->args->n_tokens;
    if (pass->total == all) {
        run_head(pass, pass->h, all, pass->args->logits);
        return ATTN_OK;
    }
    float *logits = malloc((size_t)LOGIT_ROWS * (size_t)vocab * sizeof *logits);
    if (!logits)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "no memory for logits");
    memset(pass->args->logits, 0, (size_t)(all * vocab) * sizeof(float));
    for (int64_t t = 0; t < pass->total; t += LOGIT_ROWS) {
        const int64_t rows = pass->total - t < LOGIT_ROWS ? pass->total - t : LOGIT_ROWS;
        run_head(pass, pass->h + t * dm, rows, logits);
        for (int64_t r = 0; r < rows; r++)
            memcpy(pass->args->logits + pass->slots[t + r] * vocab, logits + r * vocab,
                   (size_t)vocab * sizeof *logits);
    }
    free(logits);
    return ATTN_OK;
}

/* BERT: tanh of a linear layer over the first token. */
static attn_status pool(attn_pass *pass)
{
    const int64_t dm = pass->d->d_model;
    const attn_linear *pooler = &pass->s->model->w.pooler;
    for (int64_t b = 0; b < pass->s->batch; b++) {
        float *out = pass->args->pooled + b * dm;
        const attn_linear_job job = {.linear = pooler, .x = pass->h + pass->first[b] * dm, .ldx = dm, .y = out,
                                     .ldy = dm, .act = ATTN_ACT_TANH};
        if (pass->first[b + 1] > pass->first[b])
            attn_linear_run(&pass->s->worker, &job, 1, 1);
        else
            memset(out, 0, (size_t)dm * sizeof *out);
    }
    return ATTN_OK;
}

/* h = norm(x): of the last tokens alone where nothing else is wanted. */
static void final_norm(attn_pass *pass)
{
    const attn_forward_args *a = pass->args;
    const int64_t dm = pass->d->d_model;
    const bool last_only = !a->last_hidden && !a->hidden_states && !a->pooled && a->logits_rows == ATTN_LOGITS_LAST;
    if (!last_only) {
        attn_norm_rows(&pass->s->worker, &pass->d->norm, &pass->stack->final_norm, pass->total, dm, pass->x, dm,
                       pass->h, dm);
        return;
    }
    for (int64_t b = 0; b < pass->s->batch; b++) {
        const int64_t t = head_row(pass, b);
        if (pass->first[b + 1] > pass->first[b])
            attn_norm_rows(&pass->s->worker, &pass->d->norm, &pass->stack->final_norm, 1, dm, pass->x + t * dm, dm,
                           pass->h + t * dm, dm);
    }
}

static attn_status finish(attn_pass *pass)
{
    const attn_forward_args *a = pass->args;
    const int64_t dm = pass->d->d_model;
    if (a->final_residual)
        scatter(pass, pass->x, dm, a->final_residual);
    if (!a->logits && !a->last_hidden && !a->hidden_states && !a->pooled)
        return ATTN_OK;
    final_norm(pass);
    if (a->last_hidden)
        scatter(pass, pass->h, dm, a->last_hidden);
    if (a->hidden_states)
        scatter(pass, pass->h, dm, a->hidden_states + pass->stack->n_layers * pass->s->batch * a->n_tokens * dm);
    if (a->pooled)
        ATTN_TRY(pool(pass));
    if (!a->logits)
        return ATTN_OK;
    return a->logits_rows == ATTN_LOGITS_ALL ? all_logits(pass) : last_logits(pass);
}

attn_status attn_pass_hidden(attn_pass *pass)
{
    const int64_t dm = pass->d->d_model;
    ATTN_TRY(make_room(pass->s, pass));
    embed(pass);
    ATTN_TRY(attn_pass_blocks(pass, NULL));
    attn_norm_rows(&pass->s->worker, &pass->d->norm, &pass->stack->final_norm, pass->total, dm, pass->x, dm, pass->h,
                   dm);
    return ATTN_OK;
}

static attn_status check_outputs(const attn_session *s, const attn_forward_args *a)
{
    ATTN_MODEL_REQUIRE(a->logits_rows == ATTN_LOGITS_LAST || a->logits_rows == ATTN_LOGITS_ALL, "logits_rows is %d",
                       a->logits_rows);
    if (a->logits && !s->model->d.has_logits)
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "logits: this %s model has no head", s->model->d.family);
    if (a->pooled && !s->model->w.pooler.w.values)
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "pooled: this %s model has no pooler", s->model->d.family);
    return ATTN_OK;
}

attn_status attn_model_forward(attn_session *session, const attn_forward_args *args)
{
    attn_forward_args a;
    attn_pass pass;
    ATTN_MODEL_REQUIRE(session, "session is NULL");
    ATTN_TRY(attn_model_args(&a, sizeof a, args, "args"));
    const attn_description *d = &session->model->d;
    ATTN_TRY(check_outputs(session, &a));
    ATTN_TRY(check_tokens(session, &a, d->kind == ATTN_MODEL_ENCODER));
    ATTN_TRY(check_looks(session, &a, &session->model->w.stack));
    ATTN_MODEL_REQUIRE(d->kind != ATTN_MODEL_ENCODER_DECODER || session->cross_capacity,
                       "an encoder-decoder needs attn_model_forward_encoder first");
    attn_status status = attn_pass_start(&pass, session, &a, d->kind == ATTN_MODEL_ENCODER);
    if (status == ATTN_OK)
        status = make_room(session, &pass);
    if (status == ATTN_OK) {
        embed(&pass);
        status = attn_pass_blocks(&pass, keep_hidden);
    }
    if (status == ATTN_OK)
        status = finish(&pass);
    if (status == ATTN_OK && !pass.encoder)
        for (int64_t b = 0; b < session->batch; b++)
            session->lengths[b] += pass.first[b + 1] - pass.first[b];
    attn_pass_finish(&pass);
    return status;
}

/* ---- the encoder of an encoder-decoder ---- */

/* Keys and values of cross attention of every decoder layer, from the encoder's output in h. */
static attn_status keep_cross(attn_pass *pass)
{
    attn_session *s = pass->s;
    const attn_description *d = pass->d;
    const int64_t width = d->n_kv_heads * d->head_dim, capacity = pass->args->n_tokens ? pass->args->n_tokens : 1;
    free(s->cross_slots);
    s->cross_capacity = 0;
    s->cross_slots = malloc((size_t)(s->batch * capacity) * sizeof *s->cross_slots);
    for (int64_t l = 0; l < d->n_layers; l++) {
        float **arrays[2] = {&s->cross_key[l], &s->cross_value[l]};
        const attn_attention_weights *a = &s->model->w.stack.layers[l].cross;
        const attn_linear *linears[2] = {&a->k, &a->v};
        for (int i = 0; i < 2; i++) {
            free(*arrays[i]);
            *arrays[i] = malloc((size_t)(s->batch * capacity * width) * sizeof(float));
            if (!*arrays[i] || !s->cross_slots)
                return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "no memory for the encoder's keys");
            const attn_linear_job job = {.linear = linears[i], .x = pass->h, .ldx = d->d_model, .y = pass->k,
                                         .ldy = width};
            attn_linear_run(&s->worker, &job, 1, pass->total);
            for (int64_t b = 0; b < s->batch; b++)
                for (int64_t t = pass->first[b]; t < pass->first[b + 1]; t++)
                    for (int64_t h = 0; h < d->n_kv_heads; h++)
                        memcpy(*arrays[i] + ((b * d->n_kv_heads + h) * capacity + t - pass->first[b]) * d->head_dim,
                               pass->k + t * width + h * d->head_dim, (size_t)d->head_dim * sizeof(float));
        }
    }
    for (int64_t b = 0; b < s->batch; b++) {
        s->cross_lengths[b] = pass->first[b + 1] - pass->first[b];
        s->lengths[b] = 0;
        for (int64_t t = pass->first[b]; t < pass->first[b + 1]; t++)
            s->cross_slots[b * capacity + t - pass->first[b]] = pass->slots[t] - b * pass->args->n_tokens;
    }
    s->cross_capacity = capacity;
    s->cross_tokens = pass->args->n_tokens;
    return ATTN_OK;
}

attn_status attn_model_forward_encoder(attn_session *session, const attn_forward_args *args)
{
    attn_forward_args a;
    attn_pass pass;
    ATTN_MODEL_REQUIRE(session, "session is NULL");
    ATTN_TRY(attn_model_args(&a, sizeof a, args, "args"));
    if (session->model->d.kind != ATTN_MODEL_ENCODER_DECODER)
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "%s is not an encoder-decoder", session->model->d.family);
    ATTN_MODEL_REQUIRE(!a.logits && !a.pooled, "logits and pooled must be NULL for the encoder");
    ATTN_TRY(check_tokens(session, &a, true));
    ATTN_TRY(check_looks(session, &a, &session->model->w.encoder));
    attn_status status = attn_pass_start(&pass, session, &a, true);
    if (status == ATTN_OK)
        status = make_room(session, &pass);
    if (status == ATTN_OK) {
        embed(&pass);
        status = attn_pass_blocks(&pass, keep_hidden);
    }
    if (status == ATTN_OK) {
        status = finish(&pass);
        attn_norm_rows(&session->worker, &pass.d->norm, &pass.stack->final_norm, pass.total, pass.d->d_model, pass.x,
                       pass.d->d_model, pass.h, pass.d->d_model);
    }
    if (status == ATTN_OK)
        status = keep_cross(&pass);
    attn_pass_finish(&pass);
    return status;
}
