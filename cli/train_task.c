/* train_task.c - `attn train --task numbers`: the encoder-decoder of 2017 on numbers in words, post-norm beside pre-norm. */
#include "train_cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { THOUSAND = 1000, ROUND = 999, OTHERS = 999 * 999, ITEMS = 24000, HELD_OUT = 1000 };

/* ---- The grammar ----
 *
 *     number   = "zero" | thousands [" " hundreds] | hundreds
 *     thousands = hundreds " thousand"
 *     hundreds = unit " hundred" [" and " tens] | tens             1 .. 999
 *     tens     = "one" .. "nineteen" | ten ["-" unit]              1 .. 99
 */

static void append(char *out, const char *word)
{
    strcat(out, word); /* the longest number has 83 bytes */
}

static void append_tens(char *out, int n)
{
    static const char *const small[] = {"zero",    "one",     "two",       "three",    "four",     "five",    "six",
                                        "seven",   "eight",   "nine",      "ten",      "eleven",   "twelve",  "thirteen",
                                        "fourteen", "fifteen", "sixteen",  "seventeen", "eighteen", "nineteen"};
    static const char *const ten[] = {"", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"};
    append(out, n < 20 ? small[n] : ten[n / 10]);
    if (n >= 20 && n % 10) {
        append(out, "-");
        append(out, small[n % 10]);
    }
}

static void append_hundreds(char *out, int n)
{
    if (n >= 100) {
        append_tens(out, n / 100);
        append(out, n % 100 ? " hundred and " : " hundred");
    }
    if (n % 100)
        append_tens(out, n % 100);
}

void train_number_in_words(int n, char out[TRAIN_NUMBER_BYTES])
{
    out[0] = '\0';
    if (n == 0)
        append(out, "zero");
    if (n >= 1000) {
        append_hundreds(out, n / 1000);
        append(out, n % 1000 ? " thousand " : " thousand");
    }
    if (n % 1000)
        append_hundreds(out, n % 1000);
}

/* Every number below a thousand, every multiple of a thousand, and others drawn from the rest, each once; shuffled, so that the
 * last HELD_OUT are a fair sample of all three. */
static int number_at(uint64_t seed, int64_t i)
{
    const int64_t item = attn_train_order(seed + 1, i, ITEMS);
    if (item < THOUSAND)
        return (int)item;
    if (item < THOUSAND + ROUND)
        return (int)(item - THOUSAND + 1) * THOUSAND;
    const int64_t other = attn_train_order(seed, item - THOUSAND - ROUND, OTHERS);
    return (int)((1 + other / 999) * THOUSAND + 1 + other % 999);
}

/* Items first .. first + n - 1 as lines "words<TAB>digits". */
static bool write_pairs(const char *path, uint64_t seed, int64_t first, int64_t n)
{
    char words[TRAIN_NUMBER_BYTES];
    FILE *file = fopen(path, "w");
    bool good = file != NULL;
    for (int64_t i = first; good && i < first + n; i++) {
        train_number_in_words(number_at(seed, i), words);
        good = fprintf(file, "%s\t%d\n", words, number_at(seed, i)) > 0;
    }
    good = file && fclose(file) == 0 && good;
    if (!good)
        cli_error("train", "cannot write %s: %s", path, strerror(errno));
    return good;
}

/* ---- Settings ---- */

void train_task_settings(train_settings *s)
{
    s->model.arch = ATTN_TRAIN_ENCDEC;
    s->model.n_layers = 2;
    s->model.n_heads = 4;
    s->model.d_model = 64;
    s->model.d_ff = 256;
    s->model.context = 48;
    s->vocab_size = 320; /* 259 for bytes and special tokens; the rest go to the words */
    s->batch = 64;
    s->schedule.steps = 2000;
    s->schedule.peak = 2e-3;
    s->model.weight_decay = 0;
}

/* ---- Both runs ---- */

static bool make_folder(const char *path)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return true;
    cli_error("train", "cannot make %s: %s", path, strerror(errno));
    return false;
}

/* Both losses on the same axes, side by side. */
static bool draw_both(const train_settings *s, const char *const folders[2])
{
    static const char *const titles[] = {"post-norm, with warm-up", "pre-norm, without"};
    attn_train_curve curves[2];
    attn_train_point *points[2] = {NULL, NULL};
    char *svg = train_path(s, "curves.svg");
    bool good = svg != NULL;
    for (int i = 0; good && i < 2; i++) {
        train_settings one = {.folder = folders[i]};
        points[i] = train_points(&one, &curves[i].n);
        curves[i].points = points[i];
        curves[i].title = titles[i];
        good = points[i] != NULL;
    }
    if (good && attn_train_draw_curves(curves, 2, svg) != ATTN_OK) {
        cli_error("train", "no curves: %s", attn_model_error(NULL));
        good = false;
    }
    if (good)
        printf("%s shows both losses side by side\n", svg);
    free(points[0]);
    free(points[1]);
    free(svg);
    return good;
}

/* The settings of one run; those of a run that is there already are its own, and it goes on. */
static train_settings variant(const train_settings *s, const char *folder, bool pre_norm, const char *texts,
                              const char *held_out)
{
    train_settings one = *s;
    one.folder = folder;
    char *checkpoint = train_path(&one, "checkpoint.safetensors");
    one.resume = checkpoint && access(checkpoint, F_OK) == 0;
    free(checkpoint);
    one.steps_given = true;
    if (one.resume)
        return one;
    one.texts[one.n_texts++] = texts;
    one.validation[one.n_validation++] = held_out;
    if (pre_norm) {
        one.model.flags |= ATTN_TRAIN_PRE_NORM;
        one.schedule.warmup = 0;
    }
    return one;
}

int train_task(train_settings *s)
{
    char *texts = train_path(s, "numbers.tsv"), *held_out = train_path(s, "held-out.tsv");
    char *post = train_path(s, "post-norm"), *pre = train_path(s, "pre-norm");
    const char *const folders[2] = {post, pre};
    int code = CLI_FAILED;
    bool finished = true;
    if (texts && held_out && post && pre && make_folder(s->folder) &&
        write_pairs(texts, s->order_seed, 0, ITEMS - HELD_OUT) &&
        write_pairs(held_out, s->order_seed, ITEMS - HELD_OUT, HELD_OUT))
        code = CLI_OK;
    for (int i = 0; code == CLI_OK && finished && i < 2; i++) {
        train_settings one = variant(s, folders[i], i == 1, texts, held_out);
        printf("%s%s\n", i ? "\n" : "", i ? "pre-norm, without warm-up" : "post-norm, with warm-up");
        code = train_one(&one, &finished);
    }
    if (code == CLI_OK && finished) {
        code = draw_both(s, folders) ? CLI_OK : CLI_FAILED;
        printf("to use one: attn generate --model %s \"forty-two thousand seven\"\n", folders[0]);
    }
    free(texts);
    free(held_out);
    free(post);
    free(pre);
    return code;
}
