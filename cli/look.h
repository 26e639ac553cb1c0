/* look.h - the options that `attn run` and `attn inspect` share: which model, and what is looked at. */
#ifndef ATTN_CLI_LOOK_H
#define ATTN_CLI_LOOK_H

#include "model_use.h"

typedef struct look_options {
    const char *model, *at; /* NULL: not given */
    int32_t n_threads;      /* 0: the library's choice */
    int64_t layer, head;    /* -1: not given */
} look_options;

enum { LOOK_MODEL = 640, LOOK_THREADS, LOOK_AT, LOOK_LAYER, LOOK_HEAD };
#define LOOK_OPTIONS                                                                                                   \
    {"model", required_argument, NULL, LOOK_MODEL}, {"threads", required_argument, NULL, LOOK_THREADS},                \
        {"at", required_argument, NULL, LOOK_AT}, {"layer", required_argument, NULL, LOOK_LAYER},                      \
    {                                                                                                                  \
        "head", required_argument, NULL, LOOK_HEAD                                                                     \
    }

/** Nothing given. */
void look_start(look_options *o);

/** 1 when `option` (a LOOK_*) was one of these, 0 when not, -1 after a message. */
int look_take(const char *command, look_options *o, int option, const char *value);

/** Do the model's layers and heads hold --layer and --head? An exit code. */
int look_check(const char *command, const look_options *o, const attn_model_info *info);

/** --at among the n tokens of a text, as an index from 0: a position from 1, or from the end (-1 is the last, the
 * default), or a token: its last occurrence. An exit code. */
int look_position(const char *command, const look_options *o, const cli_model *m, const int32_t *ids, int64_t n,
                  int64_t *at);

#endif /* ATTN_CLI_LOOK_H */
