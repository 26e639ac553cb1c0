/* train_texts.c - from text files to a vocabulary and ids on the disk. */
#include "train_cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void free_texts(train_texts *list)
{
    for (int64_t i = 0; i < list->n; i++)
        free((char *)list->texts[i].data);
    list->n = 0;
}

static bool read_texts(const char *const *paths, int64_t n, train_texts *list)
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
    train_texts list = {.n = 0};
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

static bool learn(const train_run *run, const train_texts *texts, const char *path)
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

static bool encode(const train_run *run, const train_texts *texts, const train_texts *validation, const char *path)
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

/* ---- Files of another run ---- */

/* FNV-1a over a file, eight bytes at a time; "" where it cannot be read. */
static void digest_of(const char *path, char digest[17])
{
    enum { WORDS = 4096 };
    static uint64_t words[WORDS];
    uint64_t hash = 14695981039346656037u;
    size_t n;
    FILE *file = fopen(path, "rb");
    digest[0] = '\0';
    if (!file)
        return;
    while (memset(words, 0, sizeof words), (n = fread(words, 1, sizeof words, file)) > 0) {
        for (size_t i = 0; i < (n + 7) / 8; i++)
            hash = (hash ^ words[i]) * 1099511628211u;
        hash = (hash ^ n) * 1099511628211u;
    }
    snprintf(digest, 17, "%016llx", (unsigned long long)hash);
    fclose(file);
}

/* The digest of a file of the run; a resumed one goes on only with what it began with. want is "" in checkpoints of before. */
static bool is_our_own(const train_run *run, const char *path, const char *want, char digest[17])
{
    digest_of(path, digest);
    if (!run->s.resume || !want[0] || strcmp(want, digest) == 0)
        return true;
    cli_error("train", "%s is not the one that the run began with", path);
    return false;
}

/* ---- All of it ---- */

bool train_prepare_data(train_run *run)
{
    train_texts texts = {.n = 0}, validation = {.n = 0};
    char *vocabulary = train_path(&run->s, "tokenizer.json"), *ids = train_path(&run->s, "tokens.bin");
    const bool pairs = run->s.model.arch == ATTN_TRAIN_ENCDEC;
    bool good = vocabulary && ids;
    if (good && !run->s.resume)
        good = read_texts(run->s.texts, run->s.n_texts, &texts) &&
               read_texts(run->s.validation, run->s.n_validation, &validation);
    if (good && !run->s.resume && !run->s.from)
        good = learn(run, &texts, vocabulary);
    good = good && is_our_own(run, vocabulary, run->s.tokenizer_digest, run->tokenizer_digest) &&
           load_tokenizer(run, vocabulary);
    if (good && !run->s.resume)
        good = pairs ? train_write_pairs(run, &texts, &validation, ids) : encode(run, &texts, &validation, ids);
    if (good && pairs)
        good = train_open_pairs(run, ids);
    else if (good)
        good = is_our_own(run, ids, run->s.tokens_digest, run->tokens_digest) &&
               (attn_train_data_open(ids, &run->data) == ATTN_OK || failed(run, "opening the ids"));
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
    train_close_pairs(run);
}
