/* run_view.h - `attn run`: one pass of a decoder over a text, what follows, and which heads read
 * what.
 */
#ifndef ATTN_CLI_RUN_VIEW_H
#define ATTN_CLI_RUN_VIEW_H

#include "look.h"

enum { RUN_TOP = 50, RUN_SHOWN = 10 }; /* likeliest tokens kept (JSON), shown (text) */

typedef struct run_options {
    look_options look; /* layer, head -1: all, ranked */
    const char *page;
    int64_t n_new; /* tokens to generate */
    attn_sampling sampling;
    int64_t show;        /* rows of the reading view */
    bool cut;            /* measure what each shown reading moves */
    bool json, all_heads, replace_invalid;
} run_options;

typedef struct run_token {
    int32_t id;
    float logit;
    double probability;
} run_token;

/* One head's row of weights at the chosen position, the first token (where heads park what they do
 * not use) set apart. */
typedef struct run_reading {
    int64_t layer, head;
    const float *weights;         /* [n] */
    double first, own, elsewhere; /* sums: first token, the position itself, all others */
    int64_t key;                  /* the largest weight elsewhere; -1: there is no other token */
    double weight;
    bool measured;     /* the cut below was made */
    double difference; /* logit(best) - logit(second) with that reading cut */
    double kl;         /* KL(uncut || cut) of the next-token distribution, nats */
    int32_t moved;     /* token among the top RUN_TOP whose logit moved most ... */
    double moved_by;   /* ... and by how much */
} run_reading;

typedef struct run_state {
    const run_options *options;
    cli_model m;
    char *text;
    size_t text_bytes;
    int32_t *ids;
    int64_t n;        /* tokens */
    int64_t at;       /* the position looked at, from 0 */
    float *logits;    /* [vocab_size] after the last token */
    double log_sum;   /* ln sum exp(logits) */
    double *logprobs; /* [n - 1] of each following token; JSON only */
    float *rows;      /* [n_layers * n_heads, n] at `at` */
    run_token top[RUN_TOP];
    int n_top;
    run_reading *readings; /* chosen ones, in layer order */
    int64_t n_readings;
    double seconds; /* of the pass over the prompt */
} run_state;

/* ---- run_pass.c ---------------------------------------------------------------------------- */

/** The `most` largest of n logits, descending, equal ones by id, with probabilities by log_sum = ln sum exp; how many. */
int run_find_top(const float *logits, int64_t n, double log_sum, run_token *top, int most);

/** The pass over the prompt: logits, top, log-probabilities (JSON), rows. An exit code. */
int run_pass(run_state *s);

/** Chooses the readings to show. An exit code. */
int run_choose(run_state *s);

/** Cuts the largest reading of each chosen head, one at a time, and notes what moved. An exit code.
 */
int run_cut(run_state *s);

/* ---- run_page.c ---------------------------------------------------------------------------- */

/** Writes the HTML page of the text and says where. The session is used. An exit code. */
int run_page(run_state *s);

/* ---- run_show.c ---------------------------------------------------------------------------- */

void run_show_model(const cli_term *term, const run_state *s);
void run_show_tokens(const cli_term *term, const run_state *s);
void run_show_top(const cli_term *term, const run_state *s);
void run_show_readings(const cli_term *term, const run_state *s);
/** A token as a heading, without its leading space, in at most max_columns; and the width of its column. */
void run_label(const run_state *s, int32_t id, int max_columns, char *out, size_t capacity);
int run_label_columns(const run_state *s, int32_t id, int max_columns);
/** A cell of a heat map. */
void run_print_cell(const cli_term *term, double weight, int columns, bool own);

/* ---- run_translate.c ----------------------------------------------------------------------- */

/** All of `attn run` on an encoder-decoder, once tokens and session are there. An exit code. */
int run_translate(run_state *s);

/* ---- run_generate.c ------------------------------------------------------------------------ */

typedef struct run_generated {
    int32_t *ids; /* end token included, when it came */
    double *margins, *logprobs;
    char *text; /* without the end token */
    size_t text_bytes;
    int64_t n, capacity;
    int32_t stop;
    double seconds;
    bool failed;
} run_generated;

/** Continues the text; echoes to stdout as it comes when term is not NULL. An exit code. */
int run_generate(run_state *s, const cli_term *term, run_generated *out);
void run_generated_free(run_generated *g);

/* ---- run_json.c ---------------------------------------------------------------------------- */

json_t *run_json(const run_state *s, const run_generated *g);

/* ---- run_masked.c -------------------------------------------------------------------------- */

/** All of `attn run` on a masked language model. An exit code. */
int run_masked(run_state *s);

#endif /* ATTN_CLI_RUN_VIEW_H */
