/* inspect_run.h - what the parts of one attn_inspect call share. */
#ifndef ATTN_INSPECT_INSPECT_RUN_H
#define ATTN_INSPECT_INSPECT_RUN_H

#include "core/context.h"
#include "inspect/collect.h"
#include "models/pass.h"

/* Texts up to this length are screened whole by the gradient; of longer ones the readings of the last TAIL positions
 * are drawn from, so that a cut runs few tokens again. */
#define ATTN_INSPECT_WHOLE 256
#define ATTN_INSPECT_TAIL  64

typedef struct attn_inspect_run {
    attn_session *s;
    const attn_model *model;
    attn_inspect_args a;
    attn_inspection *out;
    attn_collector collectors[2], focus; /* self and cross attention of the pass that runs */
    attn_status hook_status;
    bool encoder_pass, look_twice;

    /* of the decoder's pass, for measures */
    bool capture;
    int64_t first_kept;    /* head outputs are kept from this position on */
    float *heads;          /* [n_layers][n - first_kept][n_heads * head_dim] before W_O */
    float *queries;        /* the same: rotated queries, where first_kept is 0 */
    attn_sdpa_args *attention; /* [n_layers] the operator's calls, over the session's cache, where first_kept is 0 */
    float *stream;         /* [n_layers][n][d_model] what entered each layer, where first_kept is 0 */
    float *values;         /* [n_layers][n_kv_heads][n][head_dim] */
    float *head_directs;   /* [n_layers * n_heads] direct effect of a head's whole output at the last position */
    float *final_residual; /* [n][d_model] */
    float *logits;         /* [vocab_size] */
    double log_sum;        /* ln sum exp of them */
    float *to_outcome;     /* [d_model] d outcome / d final residual at the last position, the norm's scale frozen; NULL:
                              not defined */
    float *estimates;      /* of readings query >= first_screened; see attn_estimate_at; NULL: DIRECT */
    int64_t first_screened;
    float *pair_heads, *pair_values; /* as heads (from position 0) and values; NULL: no pair */
    int64_t passes, all_passes;
    uint64_t random;
} attn_inspect_run;

static inline attn_status attn_inspect_no_memory(void)
{
    return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "no memory for an inspection");
}

/* 64 random bits (SplitMix64). */
uint64_t attn_inspect_random(uint64_t *state);

/* inspect_values.c: sizes of what readings move, and their direct effects. */
attn_status attn_inspect_values(const attn_model *model, const attn_attention_weights *weights,
                                const attn_layer_view *view, float *norms);
/* Fills run->to_outcome, or the note where it is not defined. */
attn_status attn_inspect_outcome_direction(attn_inspect_run *run);
attn_status attn_inspect_directs(attn_inspect_run *run);

/* The value of a reading, in run->values or run->pair_values: key j's row of the kv head that `head` reads. */
static inline const float *attn_inspect_value(const attn_inspect_run *run, const float *values, int64_t layer,
                                              int64_t head, int64_t key)
{
    const attn_description *d = &run->model->d;
    const int64_t kv = head / (d->n_heads / d->n_kv_heads);
    return values + ((layer * d->n_kv_heads + kv) * run->out->n_tokens + key) * d->head_dim;
}

/* inspect_gradient.c: first-order effects of all knockouts. Fills run->estimates where the model allows it. */
attn_status attn_inspect_gradient(attn_inspect_run *run);
/* Where the estimate of a reading lies. */
static inline int64_t attn_estimate_at(const attn_inspect_run *run, int64_t layer, int64_t head, int64_t query,
                                       int64_t key)
{
    const int64_t n = run->out->n_tokens, rows = n - run->first_screened;
    return ((layer * run->model->d.n_heads + head) * rows + query - run->first_screened) * n + key;
}

/* inspect_cuts.c: single readings, cut in the model. inspect_heads.c: whole heads. */
attn_status attn_inspect_cuts(attn_inspect_run *run);
attn_status attn_inspect_cut_heads(attn_inspect_run *run);
/* One more pass is done. */
attn_status attn_inspect_progress(attn_inspect_run *run);
/* How logits differ from others whose ln sum exp is known. */
attn_inspect_effect attn_inspect_compare(const attn_inspect_run *run, const float *before, double before_sum,
                                         const float *after);
double attn_inspect_log_sum(const float *logits, int64_t n);

/* rank_correlation.c: Spearman's, ties by their mean rank; NaN below 3 or where one side is constant. */
double attn_rank_correlation(const float *a, const float *b, int64_t n);

#endif
