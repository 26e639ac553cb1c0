/* json_model.c - the model of a tokenizer.json: its vocabulary and rules. */
#include "text/json_fields.h"

/* {"spelling": id, ...}. */
static attn_status read_vocab(const attn_field *model, attn_vocab *vocab)
{
    attn_field field = attn_field_member(model, "vocab");
    ATTN_TEXT_TRY(attn_field_object(&field));
    json_t *object = (json_t *)(uintptr_t)field.value; /* iteration asks for it without const */
    size_t key_len;
    const char *key;
    json_t *value;
    json_object_keylen_foreach(object, key, key_len, value)
    {
        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > INT32_MAX) {
            attn_field id = attn_field_member(&field, key);
            return attn_field_expected(&id, "an id from 0 to 2147483647");
        }
        ATTN_TEXT_TRY(attn_vocab_add(vocab, key, key_len, (int32_t)json_integer_value(value), NULL));
    }
    return ATTN_OK;
}

/* The entry of the unknown token that the model names. */
static attn_status read_unknown(const attn_field *model, const char *missing, const attn_vocab *vocab, int32_t *entry)
{
    attn_field field = attn_field_member(model, "unk_token");
    attn_text text;
    if (!field.value && !missing) {
        *entry = ATTN_UNK_NONE;
        return ATTN_OK;
    }
    ATTN_TEXT_TRY(attn_field_text_of(model, "unk_token", missing, &text));
    *entry = attn_vocab_find(vocab, text.data, text.size);
    if (*entry < 0)
        *entry = ATTN_UNK_MISSING;
    return ATTN_OK;
}

static attn_status copy_string(const attn_field *model, const char *key, char **copy, size_t *len)
{
    attn_text text;
    ATTN_TEXT_TRY(attn_field_text_of(model, key, "", &text));
    *len = text.size;
    *copy = malloc(text.size + 1);
    if (!*copy)
        return attn_text_no_memory();
    memcpy(*copy, text.data, text.size + 1);
    return ATTN_OK;
}

/* "left right" or ["left", "right"]. */
static attn_status read_merge(const attn_field *merge, attn_text *left, attn_text *right)
{
    if (json_is_array(merge->value) && json_array_size(merge->value) == 2) {
        attn_field first = attn_field_at(merge, 0), second = attn_field_at(merge, 1);
        ATTN_TEXT_TRY(attn_field_text(&first, left));
        return attn_field_text(&second, right);
    }
    attn_text text = {NULL, 0};
    if (json_is_string(merge->value))
        ATTN_TEXT_TRY(attn_field_text(merge, &text));
    const char *blank = text.data ? memchr(text.data, ' ', text.size) : NULL;
    if (!blank || memchr(blank + 1, ' ', text.size - (size_t)(blank + 1 - text.data)))
        return attn_field_expected(merge, "two tokens with a blank between");
    *left = (attn_text){text.data, (size_t)(blank - text.data)};
    *right = (attn_text){blank + 1, text.size - left->size - 1};
    return ATTN_OK;
}

static attn_status read_bpe(const attn_field *model, attn_tokenizer *tokenizer)
{
    attn_bpe *bpe = &tokenizer->bpe;
    attn_field merges = attn_field_member(model, "merges"), dropout = attn_field_member(model, "dropout");
    if (dropout.value && json_number_value(dropout.value) != 0)
        return attn_field_unsupported(&dropout);
    ATTN_TEXT_TRY(read_vocab(model, &tokenizer->vocab));
    ATTN_TEXT_TRY(read_unknown(model, NULL, &tokenizer->vocab, &bpe->unk_entry));
    ATTN_TEXT_TRY(attn_field_flag(model, "fuse_unk", false, &bpe->fuse_unk));
    ATTN_TEXT_TRY(attn_field_flag(model, "byte_fallback", false, &bpe->byte_fallback));
    ATTN_TEXT_TRY(attn_field_flag(model, "ignore_merges", false, &bpe->ignore_merges));
    ATTN_TEXT_TRY(copy_string(model, "continuing_subword_prefix", &bpe->prefix, &bpe->prefix_len));
    ATTN_TEXT_TRY(copy_string(model, "end_of_word_suffix", &bpe->suffix, &bpe->suffix_len));
    ATTN_TEXT_TRY(attn_field_array(&merges));
    size_t n = json_array_size(merges.value);
    ATTN_TEXT_TRY(attn_pairmap_reserve(&bpe->merges, n));
    for (size_t i = 0; i < n; i++) {
        attn_field merge = attn_field_at(&merges, i);
        attn_text left, right;
        ATTN_TEXT_TRY(read_merge(&merge, &left, &right));
        ATTN_TEXT_TRY(attn_bpe_add_merge(bpe, &tokenizer->vocab, left.data, left.size, right.data, right.size, i,
                                         merges.path));
    }
    return ATTN_OK;
}

static attn_status read_wordpiece(const attn_field *model, attn_tokenizer *tokenizer)
{
    attn_text prefix;
    int64_t max_chars = 100;
    attn_field limit = attn_field_member(model, "max_input_chars_per_word");
    ATTN_TEXT_TRY(read_vocab(model, &tokenizer->vocab));
    ATTN_TEXT_TRY(read_unknown(model, "[UNK]", &tokenizer->vocab, &tokenizer->wordpiece.unk_entry));
    ATTN_TEXT_TRY(attn_field_text_of(model, "continuing_subword_prefix", "##", &prefix));
    if (limit.value)
        ATTN_TEXT_TRY(attn_field_int(&limit, 0, INT64_MAX, &max_chars));
    tokenizer->wordpiece.max_chars = (size_t)max_chars;
    return attn_wordpiece_prepare(tokenizer, prefix);
}

static attn_status read_wordlevel(const attn_field *model, attn_tokenizer *tokenizer)
{
    ATTN_TEXT_TRY(read_vocab(model, &tokenizer->vocab));
    return read_unknown(model, "<unk>", &tokenizer->vocab, &tokenizer->unk_entry);
}

/* [["spelling", score], ...]: the id is the index. */
static attn_status read_unigram(const attn_field *model, attn_tokenizer *tokenizer)
{
    attn_unigram *unigram = &tokenizer->unigram;
    attn_field vocab = attn_field_member(model, "vocab"), unk = attn_field_member(model, "unk_id");
    ATTN_TEXT_TRY(attn_field_array(&vocab));
    size_t n = json_array_size(vocab.value);
    int64_t unk_id = -1;
    if (unk.value)
        ATTN_TEXT_TRY(attn_field_int(&unk, 0, (int64_t)n - 1, &unk_id));
    unigram->unk_entry = (int32_t)unk_id;
    ATTN_TEXT_TRY(attn_field_flag(model, "byte_fallback", false, &unigram->byte_fallback));
    ATTN_TEXT_TRY(attn_field_flag(model, "fuse_unk", true, &unigram->fuse_unk));
    unigram->scores = malloc((n ? n : 1) * sizeof *unigram->scores);
    if (!unigram->scores)
        return attn_text_no_memory();
    double least = 0;
    for (size_t i = 0; i < n; i++) {
        attn_field item = attn_field_at(&vocab, i);
        if (json_array_size(item.value) != 2 || !json_is_number(json_array_get(item.value, 1)))
            return attn_field_expected(&item, "[text, number]");
        attn_field spelling = attn_field_at(&item, 0);
        attn_text text;
        ATTN_TEXT_TRY(attn_field_text(&spelling, &text));
        ATTN_TEXT_TRY(attn_vocab_add(&tokenizer->vocab, text.data, text.size, (int32_t)i, NULL));
        if (text.size)
            ATTN_TEXT_TRY(attn_trie_add(&unigram->trie, text.data, text.size, (int32_t)i));
        unigram->scores[i] = json_number_value(json_array_get(item.value, 1));
        least = i == 0 || unigram->scores[i] < least ? unigram->scores[i] : least;
    }
    unigram->unk_score = least - 10; /* SentencePiece's penalty */
    return ATTN_OK;
}

attn_status attn_json_model(const attn_field *field, attn_tokenizer *tokenizer)
{
    ATTN_TEXT_TRY(attn_field_object(field));
    attn_field type = attn_field_member(field, "type");
    if (attn_field_is(&type, "BPE") || (!type.value && json_object_get(field->value, "merges"))) {
        tokenizer->model = ATTN_MODEL_BPE;
        return read_bpe(field, tokenizer);
    }
    if (attn_field_is(&type, "WordPiece")) {
        tokenizer->model = ATTN_MODEL_WORDPIECE;
        return read_wordpiece(field, tokenizer);
    }
    if (attn_field_is(&type, "Unigram")) {
        tokenizer->model = ATTN_MODEL_UNIGRAM;
        return read_unigram(field, tokenizer);
    }
    if (attn_field_is(&type, "WordLevel")) {
        tokenizer->model = ATTN_MODEL_WORDLEVEL;
        return read_wordlevel(field, tokenizer);
    }
    return json_is_string(type.value) ? attn_field_unsupported(&type) : attn_field_expected(&type, "a text");
}
