/* attn/inspect.h - what the heads of a model read in a text, and what a weight can be held against (libattn_model).
 *
 *     attn_inspect -> attn_inspection: weights of all layers and heads, sparse for long texts; beside them the sizes of
 *     what they move and the effects of cutting single readings -> attn/viz.h draws it
 *     attn_head_tests -> scores of every head on repeated random tokens
 *
 * An attention weight is a coefficient of one head in one layer at one position. It is no cause and no explanation:
 * that is what the measures beside it are for. Everything is plain data, owned by the inspection. The rules of attn.h
 * and model.h hold: zero is the default, errors are values (attn_model_error says which), sizes are int64_t.
 */
#ifndef ATTN_INSPECT_H
#define ATTN_INSPECT_H

#include "attn/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What is asked ----------------------------------------------------------------------------- */

enum { /* attn_inspect_args.flags */
    ATTN_INSPECT_NO_MEASURES = 1, /* weights only */
    ATTN_INSPECT_HEADS = 2        /* also cut every head: a pass for each head and kind of ablation */
};

typedef struct attn_inspect_args {
    size_t struct_size;
    const int32_t *tokens;      /* [n_tokens]; of an encoder-decoder: what the encoder reads */
    int64_t n_tokens;
    const int32_t *target;      /* [n_target]: what the decoder of an encoder-decoder reads; else NULL */
    int64_t n_target;
    const int32_t *pair;        /* [n_tokens]: a paired prompt for patching (of an encoder-decoder: what the encoder reads,
                                   the target staying as it is); NULL: none */
    int64_t at;                 /* the position looked at (of the decoder where there is one); negative: from the end, so
                                   that ATTN_ARGS_INIT, which sets 0, looks at the first token */
    int64_t layer, head;        /* this one's rows are kept for every query even in a long text; -1: none */
    const int32_t *answers;     /* [2]: the outcome is logit(answers[0]) - logit(answers[1]) after the last token, of an
                                   encoder with a masked-language-model head at `at`; NULL: the two likeliest */
    int64_t most_weights;       /* weights kept of all rows of all heads together; 0: 2,000,000 */
    int64_t most_pairs;         /* pairs of positions computed for all heads together; 0: 600,000,000. A longer text keeps
                                   evenly spaced rows instead of all */
    int64_t n_exact;            /* readings with the largest estimates, cut in the model (but see ATTN_EDGE_NOT_CUT); 0: 24;
                                   -1: none */
    int64_t n_sample;           /* readings drawn at random that are cut, too, for the rank correlation; 0: 48; -1: none. Of
                                   decoders and more than 256 tokens: by the last 32 positions */
    int64_t window;             /* layers cut together in `windows`; 0: a fifth of them, at least 1 */
    uint64_t seed;
    uint32_t flags;             /* ATTN_INSPECT_* */
    uint32_t reserved;
    attn_progress progress;     /* NULL: none; told passes done of all */
    void *progress_user;
} attn_inspect_args;

/* ---- What was read ------------------------------------------------------------------------------ */

typedef struct attn_inspect_stat { /* of one head, over the stored rows with more than one key */
    float entropy;                 /* mean of -sum w ln w, nats */
    float distance;                /* mean of sum w |i - j| (not of cross attention: 0) */
    float first;                   /* mean weight of key 0 */
    float largest;                 /* the largest weight on a key other than 0 and the own one ... */
    int32_t query, key;            /* ... and where; -1: none */
} attn_inspect_stat;

/* The attention of one stack. Heads are counted layer * n_heads + head. */
typedef struct attn_inspect_map {
    int32_t attention;     /* ATTN_ATTENTION_* */
    int32_t encoder;       /* 1: of an encoder (bidirectional), 0: of a decoder */
    int64_t n_layers, n_heads, n_queries, n_keys;
    int64_t n_rows;        /* stored rows of each head */
    int32_t *queries;      /* [n_rows] which, ascending; all of them unless the text is too long */
    int64_t most_kept;     /* weights kept of a row at most; n_keys: all */
    float least_kept;      /* and none below this */
    int32_t reserved;
    int64_t *starts;       /* [n_layers * n_heads * n_rows + 1] where each row's weights begin in keys and weights */
    int32_t *keys;         /* ascending within a row */
    float *weights;
    float *at_rows;        /* [n_layers * n_heads, n_keys] what `at` reads, complete */
    float *at_columns;     /* [n_layers * n_heads, n_queries] who reads `at`; -1 where the row is not stored. NULL: CROSS */
    float *value_norms;    /* [n_layers * n_heads, n_keys] |W_O v_j|: weight times this is the size of what is moved */
    float *value_directs;  /* [n_layers * n_heads, n_keys] weight times this is the direct effect of a reading by the last
                              position on the outcome (see attn_inspect_edge); NULL: not defined for this model */
    attn_inspect_stat *stats; /* [n_layers * n_heads] */
} attn_inspect_map;

/* ---- What it can be held against ------------------------------------------------------------------ */

typedef struct attn_inspect_effect { /* of one intervention, against the pass without it */
    float difference;                /* change of logit(answers[0]) - logit(answers[1]) */
    float kl;                        /* KL(without || with) of the next-token distribution, nats */
} attn_inspect_effect;

enum { /* attn_inspect_edge.why */
    ATTN_EDGE_LARGEST = 1, /* among the n_exact largest estimates */
    ATTN_EDGE_SAMPLE = 2,  /* drawn at random among all readings */
    ATTN_EDGE_AT = 4,      /* the largest reading of `at` by its head, for the heads that read most elsewhere */
    ATTN_EDGE_NOT_CUT = 8  /* a large estimate alone: its effects are NaN, because a cut so early in a long text would run
                              more tokens again than are left of what all cuts may run (some 2.5 TFLOP; of models that are run
                              whole for each cut 65,536 tokens) */
};

/* One reading: `query` reads `key` in one head of one layer. The effects of cutting it are total ones: all that follows is
 * computed anew. */
typedef struct attn_inspect_edge {
    int64_t layer, head, query, key;
    int32_t why;                   /* ATTN_EDGE_* */
    int32_t map;                   /* of attn_inspection.maps */
    float weight;
    float moved;                   /* weight |W_O v| */
    float direct;                  /* <d outcome / d stream, weight W_O v>, the final norm's scale frozen: what reaches the
                                      logits without passing another layer. 0 for queries before the last and for an
                                      encoder beside a decoder; NaN: not defined for this model */
    float estimate;                /* by which all readings of the text were screened; NaN: not screened */
    attn_inspect_effect knockout;  /* weight 0, the rest of the row renormalised */
    attn_inspect_effect removal;   /* weight 0, the rest as it was */
    attn_inspect_effect mean;      /* v replaced by the mean of this head's values over the text */
    attn_inspect_effect pair;      /* v replaced by the paired prompt's at this position; NaN without a pair */
} attn_inspect_edge;

/* One head's output replaced at every position. */
typedef struct attn_inspect_head {
    int64_t layer, head;
    int32_t map, reserved;        /* of attn_inspection.maps */
    float direct;                 /* direct effect of its whole output at the last position */
    attn_inspect_effect mean;     /* by its mean over the text's positions */
    attn_inspect_effect resample; /* by its outputs at the positions of a random permutation (seeded) */
    attn_inspect_effect zero;     /* by zero: far from anything the model knows, for comparison only */
    attn_inspect_effect patch;    /* by the paired prompt's: activation patching */
    attn_inspect_effect path;     /* the same, all other heads held at what they were: path patching of head -> logits */
} attn_inspect_head;

enum { /* attn_inspection.estimate */
    ATTN_ESTIMATE_DIRECT = 0,  /* |direct| of the last position's readings, others not: where the gradient would take more than
                                  2 GB, or there are more than 20 billion readings */
    ATTN_ESTIMATE_GRADIENT = 1, /* first-order effect of the knockout: <d outcome / d head output, a (y - v) / (1 - a)> */
    ATTN_ESTIMATE_DISTANCE = 2  /* of an embedding: the first-order distance that the knockout moves it, from gradients along
                                   random directions u: sqrt(mean (u J delta)^2), 8 of them: some 25 % off */
};

enum { /* attn_inspection.outcome_kind: of what effects are changes */
    ATTN_OUTCOME_NEXT = 0,     /* logit(answers[0]) - logit(answers[1]) after the last token (of the decoder) */
    ATTN_OUTCOME_MASKED = 1,   /* the same at outcome_position of an encoder with a masked-language-model head */
    ATTN_OUTCOME_EMBEDDING = 2 /* of an encoder without one: `difference` is the distance between the text's embeddings of
                                  unit length (attn_embed's) with and without the intervention; KL is NaN */
};

/* Spearman's rank correlation of weight and |effect|; NaN below 3 readings. */
typedef struct attn_inspect_correlation {
    int64_t n, n_without_first;
    double all;           /* over all readings of the set */
    double without_first; /* without those of key 0, where heads park what they do not use */
} attn_inspect_correlation;

typedef struct attn_inspection {
    size_t struct_size;
    int64_t n_tokens, n_target;
    int32_t *tokens, *target, *pair;   /* copies; NULL where not given */
    int64_t at;                        /* as an index from 0 */
    int64_t layer, head;               /* as asked */
    int32_t n_maps, kind;              /* ATTN_MODEL_* */
    attn_inspect_map *maps;            /* encoder's, decoder's self, decoder's cross attention: those that exist */
    attn_inspect_map *focus;           /* of (layer, head) alone with every row, where the first map has not; NULL */

    int32_t n_top, measured;           /* likeliest next tokens; 1: the fields below are filled */
    int32_t top_ids[10];
    float top_probabilities[10], top_logits[10];
    int32_t answers[2];
    int32_t outcome_kind;              /* ATTN_OUTCOME_* */
    int32_t outcome_map;               /* maps[outcome_map] is looked at from `at`; the windows cut its readings */
    int64_t outcome_position;          /* where the logits are taken */
    float outcome;                     /* logit(answers[0]) - logit(answers[1]); 0 for an embedding */
    float pair_outcome;                /* of the paired prompt (EMBEDDING: its distance); NaN: none */
    int32_t estimate;                  /* ATTN_ESTIMATE_* */
    int32_t window;                    /* layers cut together */
    int64_t n_screened;                /* readings that have an estimate */
    int64_t n_edges;
    attn_inspect_edge *edges;          /* by |estimate|, largest first */
    int64_t window_query, window_key;  /* the reading cut in all heads of ... */
    int64_t window_map;                /* (which attention) */
    attn_inspect_effect *windows;      /* [its n_layers] layers l - window / 2 .. of that many; NULL: none */
    int64_t n_cut_heads;               /* of all maps together */
    attn_inspect_head *heads;          /* [n_cut_heads], map after map; NULL unless ATTN_INSPECT_HEADS */
    attn_inspect_correlation estimated; /* weight against |estimate|, over 200,000 of the screened readings, evenly spaced */
    attn_inspect_correlation sampled;   /* weight against |knockout|, over the random sample */
    char note[256];                    /* what is not defined for this model, and why; "" */
    uint64_t seed;                     /* as asked: the same seed gives the same numbers again */
    int64_t n_exact, n_sample;         /* as asked, the defaults filled in */
} attn_inspection;

/** Runs the text through the model and measures it. The session must be of batch 1; it is started anew and holds the
 * text's tokens afterwards. Memory is linear in the text: rows are taken one block at a time (attn_sdpa_rows), kept as their
 * largest weights, and screened by a gradient whose passes go back layer by layer. args->tokens are borrowed for the call.
 *
 * Measures are defined for decoders with logits, and for encoders; of an encoder without logits by its embedding, where that is
 * pooled by mean, first or last token (or the square root's mean), else UNSUPPORTED. Direct effects need norms before the layers only (pre-norm), the gradient
 * also a plain or gated feed-forward part; else the note says what is missing and NaN stands there.
 *
 * *inspection is to be freed by attn_inspection_destroy; NULL on error. Returns OK; INVALID_ARGUMENT; UNSUPPORTED;
 * OUT_OF_MEMORY; CANCELLED. */
ATTN_API attn_status attn_inspect(attn_session *session, const attn_inspect_args *args, attn_inspection **inspection);

/** Frees an inspection. NULL is fine. */
ATTN_API void attn_inspection_destroy(attn_inspection *inspection);

/* ---- Head tests ----------------------------------------------------------------------------------- */

typedef struct attn_head_score { /* means over sequences of random tokens r r (a beginning token in front, if any) */
    float previous;              /* weight on the token before, over all positions */
    float duplicate;             /* second half: weight on the same token in the first half */
    float induction;             /* second half: weight on the token after that one (Olsson et al. 2022) */
    float sink;                  /* weight on the first position */
    float distance;              /* mean of sum w |i - j|, tokens */
    float local;                 /* weight on the last 8 positions, the own one included */
} attn_head_score;

typedef struct attn_head_tests_args {
    size_t struct_size;
    int64_t n_random;      /* length of r; 0: 50, or half the context where that is less */
    int64_t n_sequences;   /* 0: 4 */
    int64_t n_cut;         /* best induction heads cut at once; 0: 5, of fewer than 20 heads a quarter */
    uint64_t seed;
    attn_progress progress;
    void *progress_user;
} attn_head_tests_args;

typedef struct attn_head_tests_result {
    size_t struct_size;
    int64_t n_layers, n_heads, n_random, n_sequences, n_cut;
    uint64_t seed;
    attn_head_score *scores;   /* [n_layers * n_heads] */
    double loss_first;         /* nats per token of the first r, where nothing can be copied */
    double loss_second;        /* of the second r */
    double loss_cut;           /* of the second r with the n_cut best induction heads replaced by their means */
    double loss_control;       /* the same with as many random heads of the same layers or, where those have no others, of any */
    int32_t *cut, *control;    /* [n_cut] layer * n_heads + head */
} attn_head_tests_result;

/** Scores every head of a decoder. Random tokens are drawn from the vocabulary without its special tokens.
 * *result is to be freed by attn_head_tests_destroy; NULL on error. Returns as attn_inspect. */
ATTN_API attn_status attn_head_tests(attn_session *session, const attn_head_tests_args *args,
                                     attn_head_tests_result **result);

/** Frees a result. NULL is fine. */
ATTN_API void attn_head_tests_destroy(attn_head_tests_result *result);

#ifdef __cplusplus
}
#endif
#endif /* ATTN_INSPECT_H */
