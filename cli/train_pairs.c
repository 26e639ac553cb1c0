/* train_pairs.c - pairs for an encoder-decoder: from lines "source<TAB>target" to a memory-mapped file of ids. */
#include "train_cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Lines ---- */

/* Where pairs are read, for messages, and what they are read with. */
typedef struct pair_reader {
    const char *name;
    int64_t line;
    attn_encoding *encoding;
    int32_t *ids;
    int64_t *starts;         /* as train_pairs */
    int64_t n, total, capacity; /* pairs and ids so far, and room for ids */
} pair_reader;

static bool out_of_memory(void)
{
    cli_error("train", "out of memory");
    return false;
}

static bool add_ids(const train_run *run, pair_reader *r, const char *text, size_t n)
{
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
        int32_t *ids = realloc(r->ids, (size_t)r->capacity * sizeof *ids);
        if (!ids)
            return out_of_memory();
        r->ids = ids;
    }
    if (count)
        memcpy(r->ids + r->total, attn_encoding_ids(r->encoding), (size_t)count * sizeof *r->ids);
    r->total += count;
    return true;
}

/* One line "source<TAB>target", at .. stop. */
static bool add_pair(const train_run *run, pair_reader *r, const char *at, const char *stop)
{
    const char *tab = memchr(at, '\t', (size_t)(stop - at));
    if (!tab || tab == at || tab + 1 == stop) {
        cli_error("train", "%s, line %lld: no source, tab and target", r->name, (long long)r->line);
        return false;
    }
    if (memchr(tab + 1, '\t', (size_t)(stop - tab - 1))) {
        cli_error("train", "%s, line %lld: more than one tab", r->name, (long long)r->line);
        return false;
    }
    int64_t *starts = realloc(r->starts, (size_t)(2 * r->n + 3) * sizeof *starts);
    if (!starts)
        return out_of_memory();
    r->starts = starts;
    starts[2 * r->n] = r->total;
    if (!add_ids(run, r, at, (size_t)(tab - at)))
        return false;
    starts[2 * r->n + 1] = r->total;
    if (!add_ids(run, r, tab + 1, (size_t)(stop - tab - 1)))
        return false;
    starts[2 * r->n + 2] = r->total;
    r->n++;
    return true;
}

/* The lines of one text, behind those that are there; empty ones are skipped, and lines may end as Windows ends them. */
static bool add_pairs(const train_run *run, pair_reader *r, const attn_text *text, const char *name)
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

/* ---- The file: a header, starts, ids; little-endian, as the machines are that train ---- */

enum { HEADER_WORDS = 4, WORD_BYTES = 8 };
static const char magic[WORD_BYTES] = "attnpair";

/* FNV-1a over cuts and ids: a resumed run goes on with the pairs that it began with, or not at all. */
static uint64_t digest_of(const int32_t *ids, const int64_t *starts, int64_t n, int64_t n_train)
{
    uint64_t digest = 14695981039346656037u;
    for (int64_t i = 0; i < starts[2 * n]; i++)
        digest = (digest ^ (uint32_t)ids[i]) * 1099511628211u;
    for (int64_t i = 0; i <= 2 * n; i++)
        digest = (digest ^ (uint64_t)starts[i]) * 1099511628211u;
    return (digest ^ (uint64_t)n_train) * 1099511628211u;
}

static bool write_file(const pair_reader *r, int64_t n_train, const char *path)
{
    const uint64_t words[HEADER_WORDS - 1] = {(uint64_t)r->n, (uint64_t)n_train, digest_of(r->ids, r->starts, r->n, n_train)};
    cli_output out;
    if (!cli_output_open("train", path, &out))
        return false;
    fwrite(magic, 1, sizeof magic, out.file);
    fwrite(words, sizeof *words, HEADER_WORDS - 1, out.file);
    fwrite(r->starts, sizeof *r->starts, (size_t)(2 * r->n + 1), out.file);
    fwrite(r->ids, sizeof *r->ids, (size_t)r->total, out.file);
    fflush(out.file); /* an error stays with the file */
    fsync(fileno(out.file));
    return cli_output_close("train", &out, true) == CLI_OK;
}

bool train_write_pairs(const train_run *run, const train_texts *texts, const train_texts *validation, const char *path)
{
    pair_reader reader = {.name = ""};
    const train_settings *s = &run->s;
    if (attn_encoding_create(&reader.encoding) != ATTN_OK)
        return out_of_memory();
    bool good = true;
    for (int64_t i = 0; good && i < texts->n; i++)
        good = add_pairs(run, &reader, &texts->texts[i], s->texts[i]);
    int64_t n_train = reader.n;
    for (int64_t i = 0; good && i < validation->n; i++)
        good = add_pairs(run, &reader, &validation->texts[i], s->validation[i]);
    if (validation->n == 0)
        n_train -= (int64_t)((double)reader.n * s->validation_share);
    if (good && (n_train < 1 || (validation->n > 0 && reader.n == n_train))) {
        cli_error("train", n_train < 1 ? "the texts hold no pair" : "--val %s holds no pair", s->validation[0]);
        good = false;
    }
    good = good && write_file(&reader, n_train, path);
    attn_encoding_destroy(reader.encoding);
    free(reader.ids);
    free(reader.starts);
    return good;
}

/* Fills p from the mapped file; sizes are checked before they are multiplied. */
static bool read_file(train_pairs *p, int64_t vocab_size, uint64_t *digest)
{
    const char *bytes = p->map;
    const int64_t room = (int64_t)(p->map_bytes / sizeof(int32_t));
    int64_t words[HEADER_WORDS];
    if (p->map_bytes < sizeof words || memcmp(bytes, magic, sizeof magic) != 0)
        return false;
    memcpy(words, bytes, sizeof words);
    p->n = words[1], p->n_train = words[2], *digest = (uint64_t)words[3];
    if (p->n < 1 || p->n > room / 4 || p->n_train < 1 || p->n_train > p->n)
        return false;
    const size_t before = sizeof words + (size_t)(2 * p->n + 1) * sizeof(int64_t);
    if (before > p->map_bytes)
        return false;
    p->starts = (const int64_t *)(const void *)(bytes + sizeof words);
    p->ids = (const int32_t *)(const void *)(bytes + before);
    if (p->starts[0] != 0 || p->starts[2 * p->n] < 0 || p->starts[2 * p->n] > room ||
        before + (size_t)p->starts[2 * p->n] * sizeof(int32_t) != p->map_bytes)
        return false;
    for (int64_t i = 0; i < 2 * p->n; i++) {
        const int64_t length = p->starts[i + 1] - p->starts[i];
        int64_t *longest = i % 2 ? &p->longest_target : &p->longest_source;
        if (p->starts[i] < 0 || length < 0 || p->starts[i + 1] > p->starts[2 * p->n])
            return false;
        *longest = length > *longest ? length : *longest;
    }
    for (int64_t i = 0; i < p->starts[2 * p->n]; i++)
        if (p->ids[i] < 0 || p->ids[i] >= vocab_size)
            return false;
    return digest_of(p->ids, p->starts, p->n, p->n_train) == *digest;
}

bool train_open_pairs(train_run *run, const char *path)
{
    train_pairs *p = &run->pairs;
    uint64_t digest = 0;
    struct stat info;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && fstat(file, &info) == 0 && info.st_size > 0) {
        p->map_bytes = (size_t)info.st_size;
        p->map = mmap(NULL, p->map_bytes, PROT_READ, MAP_PRIVATE, file, 0);
        p->map = p->map == MAP_FAILED ? NULL : p->map;
    }
    const int reason = errno;
    if (file >= 0)
        close(file);
    if (file < 0 || !p->map) {
        cli_error("train", "cannot read %s: %s", path, file < 0 || p->map_bytes ? strerror(reason) : "it is empty");
        return false;
    }
    const bool whole = read_file(p, run->vocab_size, &digest);
    snprintf(run->pairs_digest, sizeof run->pairs_digest, "%016llx", (unsigned long long)digest);
    if (whole && (!run->s.resume || strcmp(run->s.pairs_digest, run->pairs_digest) == 0))
        return true;
    cli_error("train", "%s does not hold the pairs that the run began with", path);
    return false;
}

void train_close_pairs(train_run *run)
{
    if (run->pairs.map)
        munmap(run->pairs.map, run->pairs.map_bytes);
    run->pairs = (train_pairs){0};
}
