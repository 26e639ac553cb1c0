/* inspect_run.h - what the parts of one attn_inspect call share. */
#ifndef ATTN_INSPECT_INSPECT_RUN_H
#define ATTN_INSPECT_INSPECT_RUN_H

#include "core/context.h"
#include "inspect/collect.h"
#include "models/pass.h"

/* What the gradient may take: bytes (the stream, keys and values of every layer, and a layer's activations), and readings to be
 * screened (some 3 minutes on two Zen 3 cores). Of a longer text only the last position's are screened, by direct effect. */
#define ATTN_INSPECT_MOST_BYTES 2e9
#define ATTN_INSPECT_MOST_READINGS 20e9

/* What measures need of one kind of attention in the clean pass; sites and maps have the same numbers. Arrays are over the
 * site's own layers. */
typedef struct attn_inspect_site {
    const attn_stack_weights *stack;
    bool cross, causal;
    int64_t n_queries, n_keys;
    int64_t first_kept;        /* head outputs are kept from this query on */
    float *heads;              /* [n_layers][n_queries - first_kept][n_heads * head_dim] before W_O */
    float *values;             /* [n_layers][n_kv_heads][n_keys][head_dim] */
    float *keys;               /* [n_layers][n_keys][n_kv_heads * head_dim], rotated; this and what follows for the gradient */
    float *stream;             /* [n_layers][n_queries][d_model] what entered the sublayer */
    attn_sdpa_args *attention; /* [n_layers] the operator's calls; their views are to be replaced */
    float *head_directs;       /* [n_layers * n_heads] direct effect of a head's whole output at the last position */
    float *pair_heads, *pair_values; /* as heads (from position 0) and values; NULL: no pair */
} attn_inspect_site;

typedef struct attn_inspect_run {
    attn_session *s;
    const attn_model *model;
    attn_inspect_args a;
    attn_inspection *out;
    attn_collector collectors[2], focus; /* self and cross attention of the pass that runs */
    bool encoder_pass, capture;          /* an encoder-decoder's encoder runs; measures are wanted */
    bool gradient;                       /* readings are screened by it */

    attn_inspect_site sites[3];
    float *final_residual, *encoder_residual; /* [n][d_model] behind the last layer of the (decoder's) stack, the encoder's */
    int64_t n_results;     /* numbers of an outcome: the logits, or the embedding's */
    float *results;        /* [n_results] of the clean pass */
    double log_sum;        /* ln sum exp of them, where they are logits */
    float *to_outcome;     /* [d_model] d outcome / d final residual at the last position, the norm's scale frozen; NULL:
                              not defined */
    bool encoder_dirty;    /* the session's encoder has run with edits */
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
attn_status attn_inspect_values(const attn_inspect_run *run, const attn_attention_weights *weights,
                                const attn_layer_view *view, float *norms);
/* Fills run->to_outcome, or the note where it is not defined. */
attn_status attn_inspect_outcome_direction(attn_inspect_run *run);
attn_status attn_inspect_directs(attn_inspect_run *run);

/* The value of a reading, in site->values or site->pair_values: key j's row of the kv head that `head` reads. */
static inline const float *attn_inspect_value(const attn_inspect_run *run, const attn_inspect_site *site,
                                              const float *values, int64_t layer, int64_t head, int64_t key)
{
    const attn_description *d = &run->model->d;
    const int64_t kv = head / (d->n_heads / d->n_kv_heads);
    return values + ((layer * d->n_kv_heads + kv) * site->n_keys + key) * d->head_dim;
}

/* Positions in the text of the outcome's stack. */
static inline int64_t attn_inspect_length(const attn_inspect_run *run)
{
    return run->model->d.kind == ATTN_MODEL_ENCODER_DECODER ? run->a.n_target : run->a.n_tokens;
}

/* inspect_pass.c: whole passes. A pass over `tokens` in every sequence of a session; NULL: the text's. edits concern one
 * map; a hook sees all of them. */
typedef struct attn_inspect_pass {
    const int32_t *tokens;
    int32_t map, n_edits;
    const attn_edit *edits;
    attn_layer_hook hook;
    void *hook_user;
    bool in_encoder; /* set while an encoder-decoder's encoder runs, for the hook */
} attn_inspect_pass;

/* results: [batch][n_results], what the outcome is made of. */
attn_status attn_inspect_whole(attn_inspect_run *run, attn_session *session, attn_inspect_pass *pass, float *results);
/* The number of the map whose attention a hook sees. */
int32_t attn_inspect_map_of(const attn_inspect_run *run, bool in_encoder, const attn_layer_view *view);
/* The rows of an encoder's output whose mean has the direction of the text's embedding: how many, from *first on. */
int64_t attn_inspect_pooled(const attn_inspect_run *run, int64_t *first);
/* The embedding of rows [n][d_model], of unit length. */
void attn_inspect_embedding(const attn_inspect_run *run, const float *hidden, float *embedding);

/* One reading, and what screening knows of it. */
typedef struct attn_reading {
    int32_t map;
    float weight, estimate;
    int64_t layer, head, query, key;
} attn_reading;

/* inspect_choose.c: the readings to be cut, weighed. */
attn_status attn_inspect_choose(attn_inspect_run *run);
/* The weight that a map keeps of a reading; 0: none. */
float attn_inspect_weight(const attn_inspect_map *map, const attn_reading *r);
/* Fills what follows from an edge's weight, and its estimate. */
void attn_edge_weigh(const attn_inspect_run *run, attn_inspect_edge *e, float weight, float estimate);
/* Tokens that one cut of a reading by `query` runs, and that all of them may run. */
int64_t attn_inspect_cost(const attn_inspect_run *run, int64_t query);
int64_t attn_inspect_budget(const attn_inspect_run *run);

/* inspect_gradient.c: d outcome / d output of every head, layer after layer; each is screened as it passes. */
struct attn_screen;
attn_status attn_inspect_gradient(attn_inspect_run *run, struct attn_screen *screen);

/* inspect_cuts.c: single readings, cut in the model. inspect_heads.c: whole heads. */
attn_status attn_inspect_cuts(attn_inspect_run *run);
attn_status attn_inspect_cut_heads(attn_inspect_run *run);
/* One more pass is done. */
attn_status attn_inspect_progress(attn_inspect_run *run);
/* How results differ from others, logits whose ln sum exp is known or embeddings. */
attn_inspect_effect attn_inspect_compare(const attn_inspect_run *run, const float *before, double before_sum,
                                         const float *after);
double attn_inspect_log_sum(const float *logits, int64_t n);

/* rank_correlation.c: Spearman's, ties by their mean rank; NaN below 3 or where one side is constant. */
double attn_rank_correlation(const float *a, const float *b, int64_t n);

#endif
