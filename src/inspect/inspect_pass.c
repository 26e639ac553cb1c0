/* inspect_pass.c - whole passes of a text under edits or a hook, down to the numbers that the outcome is made of. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "inspect/inspect_run.h"

int32_t attn_inspect_map_of(const attn_inspect_run *run, bool in_encoder, const attn_layer_view *view)
{
    if (run->model->d.kind != ATTN_MODEL_ENCODER_DECODER || in_encoder)
        return 0;
    return view->kind == ATTN_ATTENTION_CROSS ? 2 : 1;
}

int64_t attn_inspect_pooled(const attn_inspect_run *run, int64_t *first)
{
    const int32_t pooling = run->model->card.pooling;
    *first = pooling == ATTN_POOL_LAST ? run->a.n_tokens - 1 : 0;
    return pooling == ATTN_POOL_FIRST || pooling == ATTN_POOL_LAST ? 1 : run->a.n_tokens;
}

void attn_inspect_embedding(const attn_inspect_run *run, const float *hidden, float *embedding)
{
    int64_t first;
    const int64_t dm = run->model->d.d_model, n = attn_inspect_pooled(run, &first);
    double squares = 0;
    for (int64_t i = 0; i < dm; i++) {
        double sum = 0;
        for (int64_t t = first; t < first + n; t++)
            sum += (double)hidden[t * dm + i];
        embedding[i] = (float)(sum / (double)n);
        squares += (double)embedding[i] * (double)embedding[i];
    }
    for (int64_t i = 0; i < dm && squares > 0; i++)
        embedding[i] = (float)((double)embedding[i] / sqrt(squares));
}

/* An encoder's hidden states to logits at the outcome's position, or to the embedding. */
static attn_status encoder_results(attn_inspect_run *run, attn_session *session, const float *hidden, float *results)
{
    const int64_t dm = run->model->d.d_model, n = run->a.n_tokens;
    for (int64_t b = 0; b < session->batch; b++) {
        const float *rows = hidden + b * n * dm;
        float *to = results + b * run->n_results;
        if (run->out->outcome_kind == ATTN_OUTCOME_MASKED)
            ATTN_TRY(attn_pass_logits(session, rows + run->out->outcome_position * dm, 1, to));
        else
            attn_inspect_embedding(run, rows, to);
    }
    return ATTN_OK;
}

static attn_status run_encoder(attn_inspect_run *run, attn_session *session, attn_forward_args *args, float *results)
{
    float *hidden = malloc((size_t)(session->batch * run->a.n_tokens * run->model->d.d_model) * sizeof *hidden);
    args->last_hidden = hidden;
    attn_status status = hidden ? attn_model_forward(session, args) : attn_inspect_no_memory();
    if (status == ATTN_OK)
        status = encoder_results(run, session, hidden, results);
    free(hidden);
    return status;
}

/* The encoder's part of an encoder-decoder; left out where the session holds what it would give. */
static attn_status run_encoder_first(attn_inspect_run *run, attn_session *session, attn_inspect_pass *pass,
                                     attn_forward_args *args)
{
    const bool own = session == run->s, changed = (pass->map == 0 && pass->n_edits > 0) || pass->hook || pass->tokens;
    if (own && !changed && !run->encoder_dirty)
        return ATTN_OK;
    args->edits = pass->map == 0 ? pass->edits : NULL;
    args->n_edits = pass->map == 0 ? pass->n_edits : 0;
    pass->in_encoder = true;
    attn_status status = attn_model_forward_encoder(session, args);
    pass->in_encoder = false;
    if (own)
        run->encoder_dirty = changed;
    return status;
}

/* The same tokens in every sequence; NULL: no memory. */
static int32_t *repeated(const int32_t *tokens, int64_t n, int64_t batch)
{
    int32_t *all = malloc((size_t)(batch * n) * sizeof *all);
    for (int64_t b = 0; all && b < batch; b++)
        memcpy(all + b * n, tokens, (size_t)n * sizeof *all);
    return all;
}

attn_status attn_inspect_whole(attn_inspect_run *run, attn_session *session, attn_inspect_pass *pass, float *results)
{
    const bool two = run->model->d.kind == ATTN_MODEL_ENCODER_DECODER;
    const int32_t *text = pass->tokens ? pass->tokens : run->a.tokens;
    int32_t *tokens = repeated(text, run->a.n_tokens, session->batch);
    int32_t *target = two ? repeated(run->a.target, run->a.n_target, session->batch) : NULL;
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    args.tokens = tokens;
    args.n_tokens = run->a.n_tokens;
    args.hook = pass->hook;
    args.hook_user = pass->hook_user;
    attn_status status = tokens && (!two || target) ? ATTN_OK : attn_inspect_no_memory();
    if (status == ATTN_OK && two)
        status = run_encoder_first(run, session, pass, &args);
    const bool edits_here = !two || pass->map > 0;
    args.edits = edits_here ? pass->edits : NULL;
    args.n_edits = edits_here ? pass->n_edits : 0;
    if (two) {
        args.tokens = target;
        args.n_tokens = run->a.n_target;
    }
    if (status == ATTN_OK && run->model->d.kind == ATTN_MODEL_ENCODER) {
        status = run_encoder(run, session, &args, results);
    } else if (status == ATTN_OK) {
        args.logits = results;
        status = attn_session_truncate(session, -1, 0);
        if (status == ATTN_OK)
            status = attn_model_forward(session, &args);
    }
    free(tokens);
    free(target);
    return status;
}
