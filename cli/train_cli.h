/* train_cli.h - what the files of `attn train` share. */
#ifndef ATTN_TRAIN_CLI_H
#define ATTN_TRAIN_CLI_H

#include "attn/train.h"
#include "cli.h"

enum { TRAIN_MOST_TEXTS = 256, TRAIN_NUMBER_BYTES = 96 };

/* What the command line asks for; a run's own are kept in its checkpoint. */
typedef struct train_settings {
    const char *texts[TRAIN_MOST_TEXTS], *validation[TRAIN_MOST_TEXTS];
    int64_t n_texts, n_validation;
    const char *folder, *prompt;
    const char *from;   /* the model to start from; NULL: none */
    bool given[11];     /* options that --from excludes */
    attn_trainer_options model;
    attn_train_schedule schedule;
    int64_t vocab_size, batch, accumulate, length;
    int64_t eval_every, eval_batches, save_every, sample_every;
    double validation_share, repeat;
    int32_t export_dtype;
    uint64_t order_seed;
    bool chars, dry_run, resume, steps_given, vocab_given, task;
    bool lr_given, min_lr_given, clip_given; /* what --resume takes anew */
    char pairs_digest[17];     /* of a resumed run's pairs, in hexadecimal; "": not known */
    char tokens_digest[17];    /* of its tokens.bin and tokenizer.json */
    char tokenizer_digest[17];
    const char *kept_option; /* one that --resume does not change, NULL: none was given */
} train_settings;

typedef struct train_texts {
    attn_text texts[TRAIN_MOST_TEXTS];
    int64_t n;
} train_texts;

/* Pairs of an encoder-decoder's corpus, as ids behind one another in a mapped file: line i has its source at starts[2 i] and its target at
 * starts[2 i + 1], which ends at starts[2 i + 2]. */
typedef struct train_pairs {
    const int32_t *ids;
    const int64_t *starts;
    int64_t n, n_train; /* the last n - n_train are for validation */
    int64_t longest_source, longest_target;
    void *map;
    size_t map_bytes;
} train_pairs;

/* What a validation found; NaN: not measured. */
typedef struct train_score {
    double loss;
    double exact; /* ENCDEC: share of pairs that come out exactly */
} train_score;

typedef struct train_run {
    train_settings s;
    attn_trainer *trainer;
    attn_train_data *data;
    attn_tokenizer *tokenizer;
    train_pairs pairs;
    attn_trainer_info info;
    FILE *log;
    double rate;           /* operations a second of large products: what "share" is of */
    double seconds;        /* of training before this process */
    train_score validation; /* the last one of eval_batches batches */
    train_score whole;      /* of all validation batches, after the last step */
    int64_t validated_at, saved_at; /* the steps of the last validation and checkpoint */
    bool pending;           /* all steps are made; the whole validation is not */
    int64_t vocab_size;
    int32_t *tokens, *targets, *source;
    int64_t *source_lengths;
    char pairs_digest[17], tokens_digest[17], tokenizer_digest[17];
    bool interactive, made_folder;
} train_run;

/* ---- cmd_train.c ---- */

/* One run, fresh or resumed; *finished: it made all its steps. An exit code. */
int train_one(const train_settings *s, bool *finished);

/* ---- train_options.c ---- */

/* The command line, defaults filled in; false: a message was written. */
bool train_read_settings(train_settings *s, int argc, char **argv);

/* Whether the schedule's last rate is not above its peak; false: a message was written. */
bool train_rates_suit(const train_settings *s);

/* ---- train_task.c ---- */

/* --task numbers: defaults of its runs, then both of them, in folders of their own. An exit code. */
void train_task_settings(train_settings *s);
int train_task(train_settings *s);
/* n in 0 .. 999,999. */
void train_number_in_words(int n, char out[TRAIN_NUMBER_BYTES]);

/* ---- train_texts.c ---- */

/* Learns the vocabulary and encodes the texts into the folder, unless they are there (resume); opens both. */
bool train_prepare_data(train_run *run);
void train_free_data(train_run *run);
/* Bytes of all texts; -1: a message was written. */
int64_t train_text_bytes(const train_settings *s);

/* ---- train_pairs.c ---- */

/* The pairs of the texts as one file of ids; its file, mapped and checked (a resumed run: against its checkpoint). */
bool train_write_pairs(const train_run *run, const train_texts *texts, const train_texts *validation, const char *path);
bool train_open_pairs(train_run *run, const char *path);
void train_close_pairs(train_run *run);

/* ---- train_loop.c ---- */

int train_loop(train_run *run);
/* The whole validation of a run that was stopped within it: measured, logged and saved. */
bool train_make_up_validation(train_run *run);
/* A validation loss in bits per byte of text; NaN for pairs. */
double train_bits_per_byte(const train_run *run, double loss);
/* Fills the run's arrays with batch `index` (validation: of those); *n_batches may be NULL. */
bool train_fill_batch(train_run *run, bool validation, int64_t index, attn_train_batch *batch, int64_t *n_batches);

/* ---- train_show.c ---- */

double train_now(void);
/* Bytes that a run will take in all. */
double train_memory(const train_run *run);
void train_show_plan(const train_run *run, double seconds_per_step);
void train_show_progress(const train_run *run, int64_t step, double loss, double tokens_per_second);
void train_end_progress(const train_run *run);
/* One line of log.jsonl. */
void train_log(train_run *run, json_t *line);
/* The points of log.jsonl, to be freed; NULL: none. */
attn_train_point *train_points(const train_settings *s, int64_t *n);
/* loss.svg and loss.png from log.jsonl. */
void train_draw(const train_run *run);
/* What the exported model makes of the prompt, a masked one of the held-out text, an encoder-decoder of held-out pairs. */
void train_show_sample(train_run *run, int64_t step);
char *train_path(const train_settings *s, const char *name);

#endif
