/* learn_vocabulary.c - byte-level BPE and character vocabularies from text, written as tokenizer.json. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "attn/train.h"
#include "io/export.h"
#include "text/bytelevel.h"
#include "train/pair_table.h"
#include "train/piece_count.h"
#include "train/train_error.h"

/* ---- BPE ---- */

typedef struct bpe_word { /* a piece as symbols: first .. first + n - 1 of the learner's array */
    size_t first;
    uint32_t n;
    int64_t count;
} bpe_word;

typedef struct bpe_learner {
    attn_pieces pieces;
    attn_pair_table pairs;
    uint32_t *symbols;
    bpe_word *words;
    uint64_t *merges; /* keys of the pairs, in order */
    int64_t n_merges, n_specials;
    uint32_t byte_id[256];
    uint8_t byte_of[256]; /* the bytes in the order of their ids */
} bpe_learner;

/* The bytes' ids follow the order of the characters that spell them, as in Hugging Face's trainer. */
static void number_bytes(bpe_learner *l)
{
    int n = 0;
    for (uint32_t point = 0; point < 1024 && n < 256; point++) {
        int byte = attn_bytelevel_byte(point);
        if (byte < 0)
            continue;
        l->byte_id[byte] = (uint32_t)(l->n_specials + n);
        l->byte_of[n++] = (uint8_t)byte;
    }
}

static attn_status count_pairs(bpe_learner *l)
{
    const attn_pieces *p = &l->pieces;
    size_t total = 0;
    for (size_t i = 0; i < p->n; i++)
        total += p->data[i].size;
    l->symbols = malloc((total + 1) * sizeof *l->symbols);
    l->words = malloc((p->n + 1) * sizeof *l->words);
    if (!l->symbols || !l->words)
        return attn_train_no_memory();
    size_t at = 0;
    for (size_t i = 0; i < p->n; i++) {
        const attn_piece *piece = &p->data[i];
        l->words[i] = (bpe_word){at, piece->size, piece->count};
        for (uint32_t k = 0; k < piece->size; k++, at++) {
            l->symbols[at] = l->byte_id[(uint8_t)piece->bytes[k]];
            if (k > 0)
                ATTN_TRAIN_TRY(attn_pair_add(&l->pairs,
                                             attn_pair_key(l->symbols[at - 1], l->symbols[at]),
                                             piece->count, (uint32_t)i));
        }
    }
    return attn_pair_rank_all(&l->pairs);
}

/* Replaces left right by `made` in one word, from the left, and counts only the pairs that this takes away and makes: those with
 * `made` note that they come in the word. */
static attn_status merge_word(bpe_learner *l, uint32_t index, uint32_t left, uint32_t right, uint32_t made)
{
    bpe_word *w = &l->words[index];
    uint32_t *s = l->symbols + w->first;
    uint32_t n = 0, before = 0; /* before: the symbol that stood in front */
    bool joined = false;        /* what stood in front was merged, and its pairs are gone already */
    for (uint32_t k = 0; k < w->n; n++) {
        const bool here = k + 1 < w->n && s[k] == left && s[k + 1] == right;
        const uint32_t last = here ? right : s[k];
        if (here && k > 0 && !joined)
            ATTN_TRAIN_TRY(attn_pair_add(&l->pairs, attn_pair_key(before, left), -w->count, ATTN_PAIR_NO_WORD));
        if (here)
            ATTN_TRAIN_TRY(attn_pair_add(&l->pairs, attn_pair_key(left, right), -w->count, ATTN_PAIR_NO_WORD));
        k += here ? 2 : 1;
        if (here && k < w->n)
            ATTN_TRAIN_TRY(attn_pair_add(&l->pairs, attn_pair_key(right, s[k]), -w->count, ATTN_PAIR_NO_WORD));
        s[n] = here ? made : last;
        if (n > 0 && (here || joined))
            ATTN_TRAIN_TRY(attn_pair_add(&l->pairs, attn_pair_key(s[n - 1], s[n]), w->count, index));
        before = last;
        joined = here;
    }
    w->n = n;
    return ATTN_OK;
}

/* Merges a pair everywhere and ranks the pairs that this makes. */
static attn_status apply_merge(bpe_learner *l, uint64_t key, uint32_t *words, size_t n_words,
                               uint32_t made)
{
    uint32_t left = (uint32_t)(key >> 32), right = (uint32_t)key;
    size_t first_new = l->pairs.n;
    for (size_t i = 0; i < n_words; i++)
        ATTN_TRAIN_TRY(merge_word(l, words[i], left, right, made));
    /* pairs with `made` are new, and all new pairs have it */
    for (size_t i = first_new; i < l->pairs.n; i++)
        ATTN_TRAIN_TRY(attn_pair_rank_it(&l->pairs, l->pairs.data[i].key));
    return ATTN_OK;
}

static attn_status learn_merges(bpe_learner *l, const attn_train_learn_args *args)
{
    int64_t most = args->vocab_size - l->n_specials - 256;
    l->merges = malloc((size_t)(most + 1) * sizeof *l->merges);
    if (!l->merges)
        return attn_train_no_memory();
    while (l->n_merges < most) {
        attn_pair *best = attn_pair_best(&l->pairs);
        if (!best || best->count < 2)
            break;
        if (args->progress && args->progress(args->progress_user, l->n_merges, most))
            return attn_train_fail(ATTN_ERR_CANCELLED, "stopped after %lld merges",
                                   (long long)l->n_merges);
        uint64_t key = best->key;
        uint32_t *words = best->words; /* taken over: the table may move while words are changed */
        size_t n_words = best->n_words;
        best->words = NULL;
        best->n_words = best->words_capacity = 0;
        l->merges[l->n_merges++] = key;
        attn_status status = apply_merge(l, key, words, n_words,
                                         (uint32_t)(l->n_specials + 256 + l->n_merges - 1));
        free(words);
        ATTN_TRAIN_TRY(status);
    }
    return ATTN_OK;
}

/* ---- tokenizer.json ---- */

static json_t *special_tokens(const char *const *specials, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(
            list, json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)i, "content",
                            specials[i], "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized",
                            0, "special", 1));
    return list;
}

static json_t *byte_level_step(void)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", 1);
}

/* tokenizer_config.json beside a path that ends in tokenizer.json: without it Transformers would take the class that usually goes
 * with the model (BERT's: WordPiece) instead of the file as it is. */
static attn_status write_config(const char *path, const char *const *specials, int64_t n_specials, bool byte_level)
{
    static const struct {
        const char *role, *spelling;
    } known[] = {{"bos_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}, {"bos_token", "<s>"}, {"eos_token", "</s>"},
                 {"pad_token", "<pad>"}, {"pad_token", "[PAD]"}, {"mask_token", "[MASK]"}};
    static const char ending[] = "tokenizer.json";
    const size_t n = strlen(path), base = n - (sizeof ending - 1);
    if (n < sizeof ending - 1 || strcmp(path + base, ending) != 0 || (base > 0 && path[base - 1] != '/'))
        return ATTN_OK;
    char *beside = malloc(n + sizeof "_config");
    json_t *root = json_pack("{s:s, s:b}", "tokenizer_class", "PreTrainedTokenizerFast", "clean_up_tokenization_spaces", 0);
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        for (int64_t i = 0; i < n_specials; i++)
            if (strcmp(specials[i], known[k].spelling) == 0)
                json_object_set_new(root, known[k].role, json_string(specials[i]));
    if (!byte_level)
        json_object_set_new(root, "unk_token", json_string("<unk>"));
    attn_status status = beside && root ? ATTN_OK : attn_train_no_memory();
    if (status == ATTN_OK) {
        snprintf(beside, n + sizeof "_config", "%.*stokenizer_config.json", (int)base, path);
        status = attn_export_json(beside, root, attn_train_error_buffer(), ATTN_TRAIN_ERROR_BYTES);
    }
    json_decref(root);
    free(beside);
    return status;
}

/* Writes the files; takes vocab and merges over. */
static attn_status write_tokenizer(const char *path, const char *const *specials,
                                   int64_t n_specials, json_t *vocab, json_t *merges,
                                   bool byte_level)
{
    json_t *model = json_pack("{s:s, s:n, s:o, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE",
                              "dropout", "unk_token",
                              byte_level ? json_null() : json_string("<unk>"),
                              "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                              "byte_fallback", 0, "ignore_merges", 0, "vocab", vocab, "merges",
                              merges);
    json_t *root =
        json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:n, s:o, s:o}", "version", "1.0", "truncation",
                  "padding", "added_tokens", special_tokens(specials, n_specials), "normalizer",
                  "pre_tokenizer", byte_level ? byte_level_step() : json_null(), "post_processor",
                  "decoder", byte_level ? byte_level_step() : json_pack("{s:s}", "type", "Fuse"),
                  "model", model);
    if (!root)
        return attn_train_no_memory();
    attn_status status = attn_export_json(path, root, attn_train_error_buffer(),
                                          ATTN_TRAIN_ERROR_BYTES);
    json_decref(root);
    return status == ATTN_OK ? write_config(path, specials, n_specials, byte_level) : status;
}

/* The spelling of every id that is not special: [256 + n_merges], each to be freed. */
static char **spell_tokens(const bpe_learner *l)
{
    char **names = calloc((size_t)(256 + l->n_merges), sizeof *names);
    for (int64_t i = 0; names && i < 256 + l->n_merges; i++) {
        if (i < 256) {
            char text[5] = {0};
            text[attn_utf8_put(attn_bytelevel_point(l->byte_of[i]), text)] = '\0';
            names[i] = strdup(text);
        } else {
            const char *left = names[(int64_t)(l->merges[i - 256] >> 32) - l->n_specials];
            const char *right = names[(int64_t)(uint32_t)l->merges[i - 256] - l->n_specials];
            names[i] = malloc(strlen(left) + strlen(right) + 1);
            if (names[i])
                strcat(strcpy(names[i], left), right);
        }
        if (!names[i]) {
            while (i-- > 0)
                free(names[i]);
            free(names);
            return NULL;
        }
    }
    return names;
}

static attn_status write_bpe(const bpe_learner *l, const char *const *specials, const char *path)
{
    char **names = spell_tokens(l);
    if (!names)
        return attn_train_no_memory();
    json_t *vocab = json_object(), *merges = json_array();
    for (int64_t i = 0; i < l->n_specials; i++)
        json_object_set_new(vocab, specials[i], json_integer(i));
    for (int64_t i = 0; i < 256 + l->n_merges; i++)
        json_object_set_new(vocab, names[i], json_integer(l->n_specials + i));
    for (int64_t i = 0; i < l->n_merges; i++)
        json_array_append_new(
            merges,
            json_sprintf("%s %s", names[(int64_t)(l->merges[i] >> 32) - l->n_specials],
                         names[(int64_t)(uint32_t)l->merges[i] - l->n_specials]));
    for (int64_t i = 0; i < 256 + l->n_merges; i++)
        free(names[i]);
    free(names);
    return write_tokenizer(path, specials, l->n_specials, vocab, merges, true);
}

static attn_status learn_bpe(const attn_train_learn_args *args, const char *path)
{
    bpe_learner l = {.n_specials = args->n_specials};
    attn_status status = ATTN_OK;
    number_bytes(&l);
    for (int64_t i = 0; status == ATTN_OK && i < args->n_texts; i++)
        status = attn_pieces_add_text(&l.pieces, &args->texts[i], i);
    if (status == ATTN_OK)
        status = count_pairs(&l);
    if (status == ATTN_OK)
        status = learn_merges(&l, args);
    if (status == ATTN_OK)
        status = write_bpe(&l, args->specials, path);
    attn_pieces_free(&l.pieces);
    attn_pair_table_free(&l.pairs);
    free(l.symbols);
    free(l.words);
    free(l.merges);
    return status;
}

/* ---- Characters ---- */

static attn_status learn_chars(const attn_train_learn_args *args, const char *path)
{
    enum { POINTS = 0x110000 };
    uint8_t *seen = calloc(POINTS, 1);
    attn_status status = seen ? ATTN_OK : attn_train_no_memory();
    for (int64_t i = 0; status == ATTN_OK && i < args->n_texts; i++) {
        const attn_text *text = &args->texts[i];
        status = attn_train_check_utf8(text, i);
        for (size_t at = 0; status == ATTN_OK && at < text->size;) {
            size_t n = attn_utf8_size(text->data[at]);
            seen[attn_utf8_get(text->data + at, n)] = 1;
            at += n;
        }
    }
    if (status == ATTN_OK) {
        json_t *vocab = json_object();
        int64_t id = 0;
        for (; id < args->n_specials; id++)
            json_object_set_new(vocab, args->specials[id], json_integer(id));
        json_object_set_new(vocab, "<unk>", json_integer(id++));
        for (uint32_t point = 1; point < POINTS; point++) { /* a JSON key cannot hold U+0000 */
            char text[5] = {0};
            if (!seen[point])
                continue;
            text[attn_utf8_put(point, text)] = '\0';
            json_object_set_new(vocab, text, json_integer(id++));
        }
        status = write_tokenizer(path, args->specials, args->n_specials, vocab, json_array(), false);
    }
    free(seen);
    return status;
}

/* ---- The door ---- */

static attn_status check(const attn_train_learn_args *a)
{
    ATTN_TRAIN_REQUIRE(a->n_texts >= 1 && a->texts, "n_texts is %lld; there must be a text",
                       (long long)a->n_texts);
    ATTN_TRAIN_REQUIRE((a->flags & ~(uint32_t)ATTN_LEARN_CHARS) == 0 && a->reserved == 0,
                       "flags is 0x%x; only ATTN_LEARN_CHARS is known", a->flags);
    ATTN_TRAIN_REQUIRE(a->n_specials >= 0 && a->n_specials <= 1024 && (!a->n_specials || a->specials),
                       "n_specials is %lld; 0 to 1024 can be had", (long long)a->n_specials);
    for (int64_t i = 0; i < a->n_specials; i++)
        ATTN_TRAIN_REQUIRE(a->specials[i] && a->specials[i][0] &&
                               attn_utf8_valid_prefix(a->specials[i], strlen(a->specials[i])) ==
                                   strlen(a->specials[i]),
                           "specials[%lld] is empty or not UTF-8", (long long)i);
    for (int64_t i = 0; i < a->n_specials; i++)
        for (int64_t k = 0; k < i; k++)
            ATTN_TRAIN_REQUIRE(strcmp(a->specials[i], a->specials[k]) != 0,
                               "specials[%lld] is specials[%lld] again", (long long)i, (long long)k);
    return ATTN_OK;
}

attn_status attn_train_learn(const attn_train_learn_args *args, const char *path)
{
    static const char *const end_of_text[] = {"<|endoftext|>"};
    attn_train_learn_args a;
    attn_train_clear_error();
    ATTN_TRAIN_TRY(attn_train_args(&a, sizeof a, args, "attn_train_learn_args"));
    ATTN_TRAIN_REQUIRE(path, "path is NULL");
    ATTN_TRAIN_TRY(check(&a));
    if (a.n_specials == 0) {
        a.specials = end_of_text;
        a.n_specials = 1;
    }
    if (a.flags & ATTN_LEARN_CHARS)
        return learn_chars(&a, path);
    ATTN_TRAIN_REQUIRE(a.vocab_size >= 256 + a.n_specials && a.vocab_size <= 1 << 24,
                       "vocab_size is %lld; %lld (the bytes and the special tokens) to %d can be had",
                       (long long)a.vocab_size, (long long)(256 + a.n_specials), 1 << 24);
    return learn_bpe(&a, path);
}
