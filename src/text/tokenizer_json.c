/* tokenizer_json.c - tokenizers from Hugging Face's tokenizer.json. */
#include <errno.h>
#include <stdio.h>

#include "text/json_fields.h"

/* The id of an added token that the model does not have: Hugging Face's library counts on from the model's size, whatever the
 * file says (they are the same in files that it wrote). */
static int64_t next_id(const attn_tokenizer *tokenizer, size_t n_model)
{
    int64_t highest = -1;
    for (size_t i = 0; i < tokenizer->added.len; i++) {
        int32_t id = tokenizer->vocab.entries[tokenizer->added.tokens[i].entry].id;
        highest = id > highest ? id : highest;
    }
    return highest >= (int64_t)n_model ? highest + 1 : (int64_t)n_model;
}

static attn_status read_added_token(const attn_field *field, attn_tokenizer *tokenizer, size_t n_model)
{
    attn_field content = attn_field_member(field, "content"), id_field = attn_field_member(field, "id");
    attn_added_token token = {0};
    attn_text text;
    int64_t id;
    ATTN_TEXT_TRY(attn_field_object(field));
    ATTN_TEXT_TRY(attn_field_text(&content, &text));
    ATTN_TEXT_TRY(attn_field_int(&id_field, 0, INT32_MAX, &id));
    ATTN_TEXT_TRY(attn_field_flag(field, "special", false, &token.special));
    ATTN_TEXT_TRY(attn_field_flag(field, "single_word", false, &token.single_word));
    ATTN_TEXT_TRY(attn_field_flag(field, "lstrip", false, &token.lstrip));
    ATTN_TEXT_TRY(attn_field_flag(field, "rstrip", false, &token.rstrip));
    ATTN_TEXT_TRY(attn_field_flag(field, "normalized", !token.special, &token.normalized));
    token.entry = attn_vocab_find(&tokenizer->vocab, text.data, text.size);
    if (token.entry < 0) {
        id = next_id(tokenizer, n_model);
        if (id > INT32_MAX)
            return attn_field_expected(&id_field, "an id from 0 to 2147483647");
        ATTN_TEXT_TRY(attn_vocab_add(&tokenizer->vocab, text.data, text.size, (int32_t)id, &token.entry));
        tokenizer->vocab.entries[token.entry].flags |= ATTN_TOKEN_OUTSIDE;
    }
    return attn_added_add(tokenizer, &token);
}

static attn_status read_added_tokens(const attn_field *root, attn_tokenizer *tokenizer)
{
    attn_field list = attn_field_member(root, "added_tokens");
    if (!list.value)
        return ATTN_OK;
    ATTN_TEXT_TRY(attn_field_array(&list));
    size_t n_model = tokenizer->vocab.n_entries;
    for (size_t i = 0; i < json_array_size(list.value); i++) {
        attn_field item = attn_field_at(&list, i);
        ATTN_TEXT_TRY(read_added_token(&item, tokenizer, n_model));
    }
    return ATTN_OK;
}

/* The roles that tokenizer.json does not name, by the usual spellings. */
static void find_roles(attn_tokenizer *tokenizer)
{
    static const char *const spellings[7][6] = {
        {"<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "[BOS]", NULL},
        {"</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "[EOS]", NULL},
        {"[UNK]", "<unk>", "<|unk|>", NULL, NULL, NULL},
        {"[PAD]", "<pad>", "<|pad|>", "<|padding|>", NULL, NULL},
        {"[SEP]", "</s>", "<sep>", NULL, NULL, NULL},
        {"[CLS]", "<s>", "<cls>", NULL, NULL, NULL},
        {"[MASK]", "<mask>", "<|mask|>", NULL, NULL, NULL}};
    const attn_vocab *vocab = &tokenizer->vocab;
    for (int role = 0; role < 7; role++)
        for (int i = 0; i < 6 && spellings[role][i] && tokenizer->special_ids[role] < 0; i++) {
            int32_t entry = attn_vocab_find(vocab, spellings[role][i], strlen(spellings[role][i]));
            if (entry >= 0 && vocab->entries[entry].flags & ATTN_TOKEN_SPECIAL)
                tokenizer->special_ids[role] = vocab->entries[entry].id;
        }
    int32_t unk = tokenizer->model == ATTN_MODEL_BPE         ? tokenizer->bpe.unk_entry
                  : tokenizer->model == ATTN_MODEL_WORDPIECE ? tokenizer->wordpiece.unk_entry
                  : tokenizer->model == ATTN_MODEL_UNIGRAM   ? tokenizer->unigram.unk_entry
                                                             : tokenizer->unk_entry;
    if (unk >= 0)
        tokenizer->special_ids[ATTN_SPECIAL_UNK] = vocab->entries[unk].id;
}

static attn_status read_max_length(const attn_field *root, attn_tokenizer *tokenizer)
{
    attn_field truncation = attn_field_member(root, "truncation");
    if (!truncation.value)
        return ATTN_OK;
    ATTN_TEXT_TRY(attn_field_object(&truncation));
    attn_field max_length = attn_field_member(&truncation, "max_length");
    return attn_field_int(&max_length, 0, INT64_MAX, &tokenizer->max_length);
}

static attn_status read_root(const json_t *json, attn_tokenizer *tokenizer)
{
    const attn_field root = {.value = json};
    ATTN_TEXT_TRY(attn_field_object(&root));
    attn_field normalizer = attn_field_member(&root, "normalizer"), splitter = attn_field_member(&root, "pre_tokenizer"),
               decoder = attn_field_member(&root, "decoder"), model = attn_field_member(&root, "model"),
               post = attn_field_member(&root, "post_processor");
    ATTN_TEXT_TRY(attn_json_model(&model, tokenizer));
    ATTN_TEXT_TRY(attn_json_steps(&normalizer, ATTN_FAMILY_NORMALIZER, &tokenizer->normalizers));
    ATTN_TEXT_TRY(attn_json_steps(&splitter, ATTN_FAMILY_SPLITTER, &tokenizer->splitters));
    ATTN_TEXT_TRY(attn_json_steps(&decoder, ATTN_FAMILY_DECODER, &tokenizer->decoders));
    for (size_t i = 0; i < tokenizer->normalizers.len; i++)
        for (size_t j = 0; tokenizer->normalizers.data[i].kind == ATTN_STEP_PRECOMPILED && j < tokenizer->splitters.len; j++)
            tokenizer->splitters.data[j].behind_map = true;
    tokenizer->has_decoder = decoder.value != NULL;
    ATTN_TEXT_TRY(attn_json_post(&post, tokenizer));
    ATTN_TEXT_TRY(read_added_tokens(&root, tokenizer));
    ATTN_TEXT_TRY(read_max_length(&root, tokenizer));
    find_roles(tokenizer);
    return attn_tokenizer_finish(tokenizer);
}

static attn_status from_json(const void *bytes, size_t size, attn_tokenizer **tokenizer)
{
    char why[256];
    json_t *json = attn_json_parse(bytes, size, why, sizeof why);
    if (!json)
        return attn_text_fail(ATTN_ERR_FORMAT, "tokenizer.json: %s", why);
    attn_tokenizer *made = attn_tokenizer_new();
    attn_status status = made ? read_root(json, made) : ATTN_ERR_OUT_OF_MEMORY;
    json_decref(json);
    if (status != ATTN_OK) {
        attn_tokenizer_destroy(made);
        return status;
    }
    *tokenizer = made;
    return ATTN_OK;
}

attn_status attn_tokenizer_from_json(const void *bytes, size_t size, attn_tokenizer **tokenizer)
{
    attn_text_clear_error();
    if (!bytes || !tokenizer)
        return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "%s is NULL", !bytes ? "bytes" : "tokenizer");
    *tokenizer = NULL;
    return from_json(bytes, size, tokenizer);
}

static attn_status read_file(const char *path, attn_strbuf *out)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return attn_text_fail(ATTN_ERR_IO, "%s: %s", path, strerror(errno));
    attn_status status = ATTN_OK;
    size_t got = 1;
    while (status == ATTN_OK && got) {
        status = attn_strbuf_reserve(out, 1 << 16);
        if (status == ATTN_OK) {
            got = fread(out->data + out->len, 1, 1 << 16, file);
            out->len += got;
        }
    }
    if (status == ATTN_OK && ferror(file))
        status = attn_text_fail(ATTN_ERR_IO, "%s: %s", path, strerror(errno));
    fclose(file);
    return status;
}

attn_status attn_tokenizer_load(const char *path, attn_tokenizer **tokenizer)
{
    attn_text_clear_error();
    if (!path || !tokenizer)
        return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "%s is NULL", !path ? "path" : "tokenizer");
    *tokenizer = NULL;
    attn_strbuf bytes = {0};
    attn_status status = read_file(path, &bytes);
    if (status == ATTN_OK) {
        status = from_json(bytes.data, bytes.len, tokenizer);
        if (status != ATTN_OK && status != ATTN_ERR_OUT_OF_MEMORY) {
            char why[ATTN_TEXT_ERROR_BYTES];
            snprintf(why, sizeof why, "%s", attn_tokenizer_error());
            attn_text_fail(status, "%.200s: %.300s", path, why);
        }
    }
    attn_strbuf_free(&bytes);
    return status;
}
