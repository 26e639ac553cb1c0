/* model_use.h - what the subcommands that use a model share: finding it, loading it, its tokens. */
#ifndef ATTN_CLI_MODEL_USE_H
#define ATTN_CLI_MODEL_USE_H

#include "attn/model.h"
#include "cli.h"

#define CLI_DEFAULT_MODEL    "SmolLM2-135M-Instruct.Q4_1.gguf"
#define CLI_DEFAULT_EMBEDDER "all-MiniLM-L6-v2"

typedef struct cli_model {
    attn_model *model;
    attn_session *session; /* of one sequence, unless a command makes its own */
    attn_model_info info;
    char path[4096];
} cli_model;

/** Puts the path of a model into path: name as a path, or in the cache folder (see cli_model_load),
 * where .gguf or .safetensors may be left out. CLI_OK, or CLI_NO_MODEL after a message. */
int cli_model_find(const char *command, const char *name, const char *default_name, char *path,
                   size_t capacity);

/** Finds and loads a model. name: a path, or a name in the cache folder ($XDG_CACHE_HOME/attn, else
 * ~/.cache/attn), or NULL for default_name there. n_threads 0: the library's choice. A progress bar
 * appears on a terminal when it takes longer than half a second. weights: ATTN_WEIGHTS_*, and CLI_ACT_I8. Returns an exit code; after an
 * error a message has been written and *m is empty. The session is made by cli_model_session. */
int cli_model_load(const char *command, const char *name, const char *default_name,
                   int32_t n_threads, int32_t weights, cli_model *m);

/** Added to ATTN_WEIGHTS_*: linear layers take activations of 8 bits (--act-int8). */
#define CLI_ACT_I8 0x100
/** The same in bf16 (--act-bf16). */
#define CLI_ACT_BF16 0x200

/** --weights: f32, bf16, int8 or stored; false after a message. */
bool cli_parse_weights(const char *command, const char *text, int32_t *weights);

/** The line about it in a help page. */
#define CLI_WEIGHTS_HELP                                                                           \
    "  --weights TYPE     how matrices are held: stored (default: as in the file), f32, bf16, int8\n"  \
    "  --act-int8         activations of linear layers in 8 bits: faster, a little less exact\n"                 \
    "  --act-bf16         weights and activations of linear layers in bf16, where the CPU multiplies them\n"

/** Makes m->session. Returns an exit code. */
int cli_model_session(const char *command, cli_model *m, const attn_session_options *options);

void cli_model_close(cli_model *m);

/** Writes attn_model_error with `what` in front; returns CLI_FAILED. */
int cli_model_failed(const char *command, const char *what, attn_status status);

/** Token ids of a text, to be freed; false after a message. flags: ATTN_TEXT_*. */
bool cli_tokenize(const char *command, const cli_model *m, const char *text, size_t bytes,
                  uint32_t flags, int32_t **ids, int64_t *n_ids);
/** The same, of one text among many: `name` stands in the message. */
bool cli_tokenize_named(const char *command, const char *name, const cli_model *m, const char *text, size_t bytes,
                        uint32_t flags, int32_t **ids, int64_t *n_ids);

/** The text of one token, NUL-terminated (it may hold part of a UTF-8 character), to be freed;
 * NULL: no memory. *bytes counts without the NUL. */
char *cli_token_text(const cli_model *m, int32_t id, size_t *bytes);

/** The same, but where a token is only a part of a character, the bytes that it stands for. */
char *cli_token_bytes(const cli_model *m, int32_t id, size_t *bytes);

/** The text of a token as it can be shown in a line: see attn_text_visible. A leading space stays.
 */
void cli_token_visible(const cli_model *m, int32_t id, int max_columns, char *out, size_t capacity);

/** Words of the command line from `first` on, joined by single spaces; "-" alone: standard input,
 * one line end at its end removed. To be freed; NULL after a message. */
char *cli_words(const char *command, int argc, char **argv, int first, size_t *bytes);

/** ln P(ids[i] | ids[0 .. i-1]) for i = from .. n - 1 into logprobs[i - from]; from >= 1. Starts
 * the session anew and runs in chunks, so that memory does not grow with n times the vocabulary. */
attn_status cli_logprobs(cli_model *m, const int32_t *ids, int64_t n, int64_t from,
                         double *logprobs);

/** ln sum exp over n logits. */
double cli_log_sum_exp(const float *logits, int64_t n);

/** An option value f32, bf16, f16 or int8 as a cache type; false after a message. */
bool cli_parse_kv_type(const char *command, const char *text, int32_t *dtype);

/** Name of an ATTN_STOP_* reason. */
const char *cli_stop_name(int32_t reason);

/** Any bytes as a JSON string: what is not UTF-8 becomes U+FFFD. */
json_t *cli_text_json(const char *text, size_t bytes);

/** Reads the sampling options that `attn run` and `attn generate` share: returns 1 when `option` (a
 * CLI_OPT_*) was one of them, 0 when not, -1 after a message. */
enum {
    CLI_OPT_TEMP = 512,
    CLI_OPT_TOP_K,
    CLI_OPT_TOP_P,
    CLI_OPT_MIN_P,
    CLI_OPT_PENALTY,
    CLI_OPT_SEED
};
#define CLI_SAMPLING_OPTIONS                                                                       \
    {"temp", required_argument, NULL, CLI_OPT_TEMP},                                               \
        {"top-k", required_argument, NULL, CLI_OPT_TOP_K},                                         \
        {"top-p", required_argument, NULL, CLI_OPT_TOP_P},                                         \
        {"min-p", required_argument, NULL, CLI_OPT_MIN_P},                                         \
        {"repetition-penalty", required_argument, NULL, CLI_OPT_PENALTY},                          \
    {                                                                                              \
        "seed", required_argument, NULL, CLI_OPT_SEED                                              \
    }
typedef struct cli_sampling {
    attn_sampling options;
    bool temperature_given, sampled;
} cli_sampling;
int cli_take_sampling(const char *command, cli_sampling *s, int option, const char *value);
/** After all options: an option that only makes sense when sampling implies a temperature of 1. */
void cli_finish_sampling(cli_sampling *s);

/** Seconds of a clock that only goes forward. */
double cli_seconds(void);

/** A progress bar on stderr, on a terminal only, once half a second has passed. */
typedef struct cli_progress {
    const char *label;
    double start, last;
    bool terminal, shown;
    const char *unit; /* NULL: per cent only; else a rate of this unit is shown */
    /* Where whole > 0, each run of the bar's callback is a part of something larger: of `whole`
     * units, `base` are behind and the part holds `part`. */
    int64_t whole, base, part;
} cli_progress;

cli_progress cli_progress_start(const char *label, const char *unit);
int cli_progress_step(void *progress, int64_t done, int64_t total); /* an attn_progress */

/** From now on the first Ctrl-C (or SIGTERM, SIGHUP) makes cli_progress_step ask to stop, so that half-written files are removed. */
void cli_stop_in_order(void);
void cli_progress_end(cli_progress *progress);

/** 134515008 -> "135 M", 98000000 -> "98.0 M". */
void cli_count_text(int64_t count, char out[32]);
/** Bytes in MB or GB (powers of 1000). */
void cli_bytes_text(int64_t bytes, char out[32]);
/** 49152 -> "49,152". */
void cli_grouped_text(int64_t number, char out[32]);

#endif /* ATTN_CLI_MODEL_USE_H */
