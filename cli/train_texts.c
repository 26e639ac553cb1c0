/* train_texts.c - from text files to a vocabulary and ids on the disk; pairs for an encoder-decoder. */
#include "train_cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text_list {
    attn_text texts[TRAIN_MOST_TEXTS];
    int64_t n;
} text_list;

static void free_texts(text_list *list)
{
    for (int64_t i = 0; i < list->n; i++)
        free((char *)list->texts[i].data);
    list->n = 0;
}

static bool read_texts(const char *const *paths, int64_t n, text_list *list)
{
    for (int64_t i = 0; i < n; i++) {
        char *text;
        size_t bytes;
        if (!cli_read_all("train", paths[i], &text, &bytes))
            return false;
        list->texts[list->n++] = (attn_text){text, bytes};
    }
    return true;
}

int64_t train_text_bytes(const train_settings *s)
{
    text_list list = {.n = 0};
    int64_t bytes = read_texts(s->texts, s->n_texts, &list) ? 0 : -1;
    for (int64_t i = 0; bytes >= 0 && i < list.n; i++)
        bytes += (int64_t)list.texts[i].size;
    free_texts(&list);
    return bytes;
}

/* "texts[1]: ..." is said with the name of that file. */
static bool failed(const train_run *run, const char *what)
{
    const train_settings *s = &run->s;
    const char *error = attn_train_error();
    long long at;
    int used = 0;
    if (sscanf(error, "texts[%lld]%n", &at, &used) == 1 && used && at >= 0 && at < s->n_texts)
        cli_error("train", "%s: %s%s", what, s->texts[at], error + used);
    else if (sscanf(error, "validation[%lld]%n", &at, &used) == 1 && used && at >= 0 && at < s->n_validation)
        cli_error("train", "%s: %s%s", what, s->validation[at], error + used);
    else
        cli_error("train", "%s: %s", what, error);
    return false;
}

/* ---- Vocabulary ---- */

static bool learn(const train_run *run, const text_list *texts, const char *path)
{
    static const char *const decoder[] = {"<|endoftext|>"}, *const masked[] = {"<|endoftext|>", "[MASK]", "[PAD]"},
                             *const pairs[] = {"<pad>", "<s>", "</s>"};
    attn_train_learn_args a;
    const int32_t arch = run->s.model.arch;
    ATTN_ARGS_INIT(&a);
    a.texts = texts->texts;
    a.n_texts = texts->n;
    a.vocab_size = run->s.vocab_size;
    a.specials = arch == ATTN_TRAIN_BERT ? masked : arch == ATTN_TRAIN_ENCDEC ? pairs : decoder;
    a.n_specials = arch == ATTN_TRAIN_BERT || arch == ATTN_TRAIN_ENCDEC ? 3 : 1;
    a.flags = run->s.chars ? ATTN_LEARN_CHARS : 0;
    return attn_train_learn(&a, path) == ATTN_OK || failed(run, "learning the vocabulary");
}

static bool load_tokenizer(train_run *run, const char *path)
{
    if (attn_tokenizer_load(path, &run->tokenizer) != ATTN_OK) {
        cli_error("train", "%s", attn_tokenizer_error());
        return false;
    }
    run->vocab_size = attn_tokenizer_size(run->tokenizer);
    return true;
}

/* ---- Plain text ---- */

static bool encode(const train_run *run, const text_list *texts, const text_list *validation, const char *path)
{
    attn_train_encode_args a;
    ATTN_ARGS_INIT(&a);
    a.tokenizer = run->tokenizer;
    a.texts = texts->texts;
    a.n_texts = texts->n;
    a.validation = validation->texts;
    a.n_validation = validation->n;
    a.validation_share = run->s.validation_share;
    a.path = path;
    return attn_train_encode(&a) == ATTN_OK || failed(run, "encoding the texts");
}

/* ---- Pairs ---- */

/* Where pairs are read, for messages, and what they are read with. */
typedef struct pair_reader {
    const char *name;
    int64_t line;
    attn_encoding *encoding;
    int64_t total, capacity; /* ids so far, and room for them */
} pair_reader;

static bool out_of_memory(void)
{
    cli_error("train", "out of memory");
    return false;
}

static bool add_ids(train_run *run, pair_reader *r, const char *text, size_t n)
{
    train_pairs *p = &run->pairs;
    attn_encode_options options;
    ATTN_ARGS_INIT(&options);
    options.flags = ATTN_ENCODE_NO_SPECIAL | ATTN_ENCODE_SPECIALS_AS_TEXT;
    if (attn_tokenizer_encode(run->tokenizer, text, n, NULL, 0, &options, r->encoding) != ATTN_OK) {
        cli_error("train", "%s, line %lld: %s", r->name, (long long)r->line, attn_tokenizer_error());
        return false;
    }
    const int64_t count = attn_encoding_length(r->encoding);
    if (r->total + count > r->capacity) {
        r->capacity = 2 * (r->total + count) + 4096;
        int32_t *ids = realloc(p->ids, (size_t)r->capacity * sizeof *ids);
        if (!ids)
            return out_of_memory();
        p->ids = ids;
    }
    if (count)
        memcpy(p->ids + r->total, attn_encoding_ids(r->encoding), (size_t)count * sizeof *p->ids);
    r->total += count;
    return true;
}

/* One line "source<TAB>target", at .. stop. */
static bool add_pair(train_run *run, pair_reader *r, const char *at, const char *stop)
{
    train_pairs *p = &run->pairs;
    const char *tab = memchr(at, '\t', (size_t)(stop - at));
    if (!tab || tab == at || tab + 1 == stop) {
        cli_error("train", "%s, line %lld: no source, tab and target", r->name, (long long)r->line);
        return false;
    }
    int64_t *starts = realloc(p->starts, (size_t)(2 * p->n + 3) * sizeof *starts);
    if (!starts)
        return out_of_memory();
    p->starts = starts;
    starts[2 * p->n] = r->total;
    if (!add_ids(run, r, at, (size_t)(tab - at)))
        return false;
    starts[2 * p->n + 1] = r->total;
    if (!add_ids(run, r, tab + 1, (size_t)(stop - tab - 1)))
        return false;
    starts[2 * p->n + 2] = r->total;
    const int64_t source = starts[2 * p->n + 1] - starts[2 * p->n], target = r->total - starts[2 * p->n + 1];
    p->longest_source = source > p->longest_source ? source : p->longest_source;
    p->longest_target = target > p->longest_target ? target : p->longest_target;
    p->n++;
    return true;
}

/* The lines of one text, behind those that are there; empty ones are skipped, and lines may end as Windows ends them. */
static bool add_pairs(train_run *run, pair_reader *r, const attn_text *text, const char *name)
{
    r->name = name;
    r->line = 0;
    for (const char *at = text->data, *end = at + text->size; at < end;) {
        const char *next = memchr(at, '\n', (size_t)(end - at)), *stop = next ? next : end;
        r->line++;
        if (stop > at && stop[-1] == '\r')
            stop--;
        if (stop > at && !add_pair(run, r, at, stop))
            return false;
        at = next ? next + 1 : end;
    }
    return true;
}

static bool make_pairs(train_run *run, const text_list *texts, const text_list *validation)
{
    pair_reader reader = {.name = ""};
    train_pairs *p = &run->pairs;
    if (attn_encoding_create(&reader.encoding) != ATTN_OK)
        return out_of_memory();
    bool good = true;
    for (int64_t i = 0; good && i < texts->n; i++)
        good = add_pairs(run, &reader, &texts->texts[i], run->s.texts[i]);
    p->n_train = p->n;
    for (int64_t i = 0; good && i < validation->n; i++)
        good = add_pairs(run, &reader, &validation->texts[i], run->s.validation[i]);
    if (validation->n == 0)
        p->n_train -= (int64_t)((double)p->n * run->s.validation_share);
    attn_encoding_destroy(reader.encoding);
    if (good && p->n_train < 1) {
        cli_error("train", "the texts hold no pair");
        good = false;
    }
    if (good && validation->n > 0 && p->n == p->n_train) {
        cli_error("train", "--val %s holds no pair", run->s.validation[0]);
        good = false;
    }
    return good;
}

/* FNV-1a over ids and cuts: a resumed run goes on with the pairs that it began with, or not at all. */
static bool pairs_are_the_same(train_run *run)
{
    const train_pairs *p = &run->pairs;
    uint64_t digest = 14695981039346656037u;
    for (int64_t i = 0; i < p->starts[2 * p->n]; i++)
        digest = (digest ^ (uint32_t)p->ids[i]) * 1099511628211u;
    for (int64_t i = 0; i <= 2 * p->n; i++)
        digest = (digest ^ (uint64_t)p->starts[i]) * 1099511628211u;
    digest = (digest ^ (uint64_t)p->n_train) * 1099511628211u;
    snprintf(run->pairs_digest, sizeof run->pairs_digest, "%016llx", (unsigned long long)digest);
    if (!run->s.resume || !run->s.pairs_digest[0] || strcmp(run->s.pairs_digest, run->pairs_digest) == 0)
        return true;
    cli_error("train", "%s%s: the pairs are not those that the run in %s began with", run->s.texts[0],
              run->s.n_texts + run->s.n_validation > 1 ? " and the other texts" : "", run->s.folder);
    return false;
}

/* ---- All of it ---- */

bool train_prepare_data(train_run *run)
{
    text_list texts = {.n = 0}, validation = {.n = 0};
    char *vocabulary = train_path(&run->s, "tokenizer.json"), *ids = train_path(&run->s, "tokens.bin");
    const bool pairs = run->s.model.arch == ATTN_TRAIN_ENCDEC, need_texts = !run->s.resume || pairs;
    bool good = vocabulary && ids;
    if (good && need_texts)
        good = read_texts(run->s.texts, run->s.n_texts, &texts) &&
               read_texts(run->s.validation, run->s.n_validation, &validation);
    if (good && !run->s.resume && !run->s.from)
        good = learn(run, &texts, vocabulary);
    good = good && load_tokenizer(run, vocabulary);
    if (good && pairs)
        good = make_pairs(run, &texts, &validation) && pairs_are_the_same(run);
    if (good && !pairs && !run->s.resume)
        good = encode(run, &texts, &validation, ids);
    if (good && !pairs)
        good = attn_train_data_open(ids, &run->data) == ATTN_OK || failed(run, "opening the ids");
    free_texts(&texts);
    free_texts(&validation);
    free(vocabulary);
    free(ids);
    return good;
}

void train_free_data(train_run *run)
{
    attn_train_data_close(run->data);
    attn_tokenizer_destroy(run->tokenizer);
    free(run->pairs.ids);
    free(run->pairs.starts);
}
