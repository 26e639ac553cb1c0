/* explain.h - one attention step taken apart: the numbers in, each stage out, and how they are
 * shown. */
#ifndef ATTN_CLI_EXPLAIN_H
#define ATTN_CLI_EXPLAIN_H

#include "attn/attn.h"
#include "cli.h"

/* The numbers that a step starts from. Matrices are row-major and contiguous. */
typedef struct explain_input {
    char *title;
    char **names;  /* [n_key] tokens, or NULL: positions 1, 2, ... */
    double *query; /* [n_query, head_dim] */
    double *key;   /* [n_key, head_dim]   */
    double *value; /* [n_key, value_dim]  */
    int64_t n_query, n_key, head_dim, value_dim;
    int64_t offset; /* query i stands at key position i + offset */
    bool causal;
    bool scale_given; /* else 1/sqrt(head_dim) */
    double scale;
} explain_input;

/* What the operator made of them, in one setting of scale and mask. */
typedef struct explain_steps {
    double *score;  /* [n_query, n_key] dot products                            */
    double *scaled; /* [n_query, n_key] scaled and masked; -inf where masked    */
    double *weight; /* [n_query, n_key]                                         */
    double *out;    /* [n_query, value_dim]                                     */
} explain_steps;

/* ---- explain_steps.c: every number comes out of the library's operator ----------------------- */

typedef enum explain_scaling { EXPLAIN_SCALED, EXPLAIN_UNSCALED } explain_scaling;

/** Computes all stages in f64. On failure writes a message, frees what it had and returns false. */
bool explain_compute(attn_ctx *ctx, const explain_input *input, explain_scaling scaling,
                     bool causal, explain_steps *steps);
void explain_steps_free(explain_steps *steps);

/** How much query 0's weight on key `of` changes with its scaled score of key `by`:
 * attn_sdpa_backward's gradient of a bias on that score. false after a message. */
bool explain_gradient(attn_ctx *ctx, const explain_input *input, explain_scaling scaling,
                      int64_t of, int64_t by, double *gradient);

/** Which keys query positions admit in one causal layer of n positions, from the operator's
 * weights: weight[i * n + j] > 0. window 0: all earlier positions; else the last `window`, the own
 * one included. Returns n * n weights to be freed, or NULL after a message. */
double *explain_admitted(attn_ctx *ctx, int64_t n, bool causal, int64_t window);

/** The factor that the scores are multiplied with. */
double explain_scale(const explain_input *input);

/* ---- explain_input.c ------------------------------------------------------------------------- */

/** The two worked examples of the lessons; false after a message (memory). */
bool explain_input_bridge(explain_input *input);
bool explain_input_trace(explain_input *input);

/** Reads {"q", "k", "v", "causal", "tokens", "scale", "query_offset", "title"}; false after a
 * message. */
bool explain_input_file(const char *path, explain_input *input);
void explain_input_free(explain_input *input);

/** Heading of query i or key j: the token at its position, else "q3", "k1"; at most 12 columns. */
void explain_query_name(const explain_input *input, int64_t i, char out[64]);
void explain_key_name(const explain_input *input, int64_t j, char out[64]);

/* ---- explain_show.c -------------------------------------------------------------------------- */

/** One matrix [n_query, n_key] under its headings, in column blocks that fit the terminal. Where
 * masked (NULL: nowhere) is -inf a dash stands. heat: the numbers are weights, shown on a heat
 * scale. */
void explain_matrix(const cli_term *term, const explain_input *input, const double *matrix,
                    const double *masked, bool heat);

/** One line for each query: the weights times the values, and what they add up to. */
void explain_show_outputs(const explain_input *input, const explain_steps *steps);

/** All steps of one example, for a person. false after a message. */
bool explain_show(const cli_term *term, attn_ctx *ctx, const explain_input *input);

/* ---- explain_json.c -------------------------------------------------------------------------- */

/** The same as explain_show as a JSON object (a new reference), or NULL after a message. */
json_t *explain_json(attn_ctx *ctx, const explain_input *input);

/** A matrix as nested JSON arrays; what is not finite becomes null. */
json_t *explain_json_matrix(const double *matrix, int64_t rows, int64_t columns);

/* ---- explain_topics.c: shown to a person, or added to a JSON object where `into` is given
 * ---------- */

bool explain_saturation(const cli_term *term, attn_ctx *ctx, json_t *into);
bool explain_mask(const cli_term *term, attn_ctx *ctx, json_t *into);
bool explain_paths(const cli_term *term, attn_ctx *ctx, json_t *into);

/** The winner's weight of two keys one standard deviation apart at this head_dim; false after a message. */
bool explain_winner(attn_ctx *ctx, int64_t head_dim, explain_scaling scaling, double *winner);

/** Which positions a recurrent layer reads, as explain_admitted; NULL without memory. */
double *explain_recurrent(int64_t n);

/** Fewest steps from position 0 to each position over readings reads[i * n + j] > 0. */
void explain_hops(const double *reads, int64_t n, int64_t *hops);

/* ---- explain_figures.c ----------------------------------------------------------------------- */

/** Writes figure-1.svg ... figure-6.svg, the first lesson's figures from computed numbers, into a folder that is made
 * where it is missing. false after a message. */
bool explain_figures(attn_ctx *ctx, const char *folder);

#endif /* ATTN_CLI_EXPLAIN_H */
