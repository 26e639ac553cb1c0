/* embedder.h - texts to vectors, as `attn embed`, `similar` and `search` need them. */
#ifndef ATTN_CLI_EMBEDDER_H
#define ATTN_CLI_EMBEDDER_H

#include "model_use.h"

typedef struct embedder {
    cli_model m;
    int64_t truncate;       /* tokens of a text that are read, special ones included */
    uint32_t text_flags;    /* ATTN_TEXT_* */
    int32_t pooling;        /* ATTN_POOL_* */
    bool raw;               /* leave the vectors' lengths as they are */
    const char *prompt;     /* what stands before each text */
    int64_t prefix, suffix; /* special tokens that the model puts around a text */
} embedder;

/* Options that the three commands share. */
typedef struct embedder_options {
    const char *model;
    int64_t truncate; /* 0: the default */
    int32_t n_threads, pooling, weights;
    const char *prompt; /* NULL: the model's own */
    bool raw, replace_invalid;
    bool query; /* texts are queries of a search */
} embedder_options;

enum {
    EMBED_OPT_MODEL = 768,
    EMBED_OPT_THREADS,
    EMBED_OPT_WEIGHTS,
    EMBED_OPT_ACT_I8,
    EMBED_OPT_ACT_BF16,
    EMBED_OPT_TRUNCATE,
    EMBED_OPT_POOL,
    EMBED_OPT_PROMPT,
    EMBED_OPT_RAW,
    EMBED_OPT_REPLACE
};

#define EMBEDDER_OPTIONS                                                                           \
    {"model", required_argument, NULL, EMBED_OPT_MODEL},                                           \
        {"threads", required_argument, NULL, EMBED_OPT_THREADS},                                   \
        {"weights", required_argument, NULL, EMBED_OPT_WEIGHTS},                                   \
        {"act-int8", no_argument, NULL, EMBED_OPT_ACT_I8},                                         \
        {"act-bf16", no_argument, NULL, EMBED_OPT_ACT_BF16},                                       \
        {"truncate", required_argument, NULL, EMBED_OPT_TRUNCATE},                                 \
        {"pooling", required_argument, NULL, EMBED_OPT_POOL},                                      \
        {"prompt", required_argument, NULL, EMBED_OPT_PROMPT},                                     \
        {"no-normalize", no_argument, NULL, EMBED_OPT_RAW},                                        \
    {                                                                                              \
        "replace-invalid", no_argument, NULL, EMBED_OPT_REPLACE                                    \
    }

/** 1: option was one of these, 0: not, -1: after a message. */
int embedder_take_option(const char *command, embedder_options *o, int option, const char *value);

/** The lines about these options in a help page. */
#define EMBEDDER_HELP                                                                              \
    "  --model PATH       an encoder, or a decoder (default all-MiniLM-L6-v2 in the cache folder)\n" \
    CLI_WEIGHTS_HELP                                                                               \
    "  --truncate N       tokens of a text that are read (default: as the model folder says; "     \
    "MiniLM: 256)\n"                                                                               \
    "  --pooling HOW      mean, first, max, last, weighted or sqrt (default: "                     \
    "what the model says,\n                     else mean)\n"                                      \
    "  --prompt TEXT      stands before each text (default: as the model folder says; \"\": nothing)\n" \
    "  --no-normalize     keep the vectors' lengths (default: length 1)\n"                         \
    "  --threads N        default: ATTN_NUM_THREADS, else as many as the process may use\n"        \
    "  --replace-invalid  read bytes that are not UTF-8 as U+FFFD instead of refusing them\n"

/** Loads the model. An exit code. */
int embedder_open(const char *command, const embedder_options *o, embedder *e);
void embedder_close(embedder *e);

/** One text; bytes without a terminator. */
typedef struct embedder_text {
    const char *text;
    size_t bytes;
} embedder_text;

/** Vectors of n texts: out[n, d_model]. progress may be NULL. An exit code. */
int embedder_run(const char *command, embedder *e, const embedder_text *texts, int64_t n,
                 float *out, cli_progress *progress);

/** Cosine of two vectors; 0 when one of them is 0. */
double embedder_cosine(const float *a, const float *b, int64_t n);

#endif /* ATTN_CLI_EMBEDDER_H */
