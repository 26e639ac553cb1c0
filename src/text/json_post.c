/* json_post.c - post-processors of a tokenizer.json. */
#include "text/json_fields.h"

static attn_status read_specials(const attn_field *field, attn_post *post)
{
    attn_field all = attn_field_member(field, "special_tokens");
    ATTN_TEXT_TRY(attn_field_object(&all));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)all.value, key, value)
    {
        attn_field special = attn_field_member(&all, key);
        ATTN_TEXT_TRY(attn_field_object(&special));
        attn_field ids = attn_field_member(&special, "ids"), tokens = attn_field_member(&special, "tokens");
        ATTN_TEXT_TRY(attn_field_array(&ids));
        ATTN_TEXT_TRY(attn_field_array(&tokens));
        if (json_array_size(ids.value) != json_array_size(tokens.value))
            return attn_field_expected(&tokens, "as many texts as there are ids");
        int32_t index;
        ATTN_TEXT_TRY(attn_post_special(post, key, strlen(key), &index));
        for (size_t i = 0; i < json_array_size(ids.value); i++) {
            attn_field id_field = attn_field_at(&ids, i), token = attn_field_at(&tokens, i);
            int64_t id;
            attn_text text;
            ATTN_TEXT_TRY(attn_field_int(&id_field, 0, INT32_MAX, &id));
            ATTN_TEXT_TRY(attn_field_text(&token, &text));
            ATTN_TEXT_TRY(attn_post_special_id(&post->specials[index], (int32_t)id, text.data, text.size));
        }
    }
    return ATTN_OK;
}

static attn_status read_special_item(const attn_field *item, attn_post *post, int pair)
{
    attn_field name = attn_field_member(item, "id"), type = attn_field_member(item, "type_id");
    attn_text text;
    int64_t type_id;
    size_t known = post->n_specials;
    int32_t index;
    ATTN_TEXT_TRY(attn_field_text(&name, &text));
    ATTN_TEXT_TRY(attn_field_int(&type, 0, INT32_MAX, &type_id));
    ATTN_TEXT_TRY(attn_post_special(post, text.data, text.size, &index));
    if ((size_t)index == known)
        return attn_field_expected(&name, "a name out of special_tokens");
    return attn_post_item(post, pair, -1, (int32_t)type_id, index);
}

static attn_status read_items(const attn_field *field, const char *key, attn_post *post, int pair)
{
    attn_field list = attn_field_member(field, key);
    int seen[2] = {0, 0};
    ATTN_TEXT_TRY(attn_field_array(&list));
    for (size_t i = 0; i < json_array_size(list.value); i++) {
        attn_field item = attn_field_at(&list, i);
        attn_field special = attn_field_member(&item, "SpecialToken"), sequence = attn_field_member(&item, "Sequence");
        if (special.value) {
            ATTN_TEXT_TRY(read_special_item(&special, post, pair));
            continue;
        }
        attn_field id = attn_field_member(&sequence, "id"), type = attn_field_member(&sequence, "type_id");
        int64_t type_id;
        if (!attn_field_is(&id, "A") && !(pair && attn_field_is(&id, "B")))
            return attn_field_expected(&id, pair ? "A or B" : "A");
        ATTN_TEXT_TRY(attn_field_int(&type, 0, INT32_MAX, &type_id));
        int32_t which = attn_field_is(&id, "B");
        seen[which]++;
        ATTN_TEXT_TRY(attn_post_item(post, pair, which, (int32_t)type_id, -1));
    }
    if (seen[0] != 1 || seen[1] != pair)
        return attn_text_fail(ATTN_ERR_FORMAT, "%s holds text A %d times and text B %d times", list.path, seen[0], seen[1]);
    return ATTN_OK;
}

static attn_status read_template(const attn_field *field, attn_tokenizer *tokenizer)
{
    attn_post *post;
    ATTN_TEXT_TRY(attn_post_add(tokenizer, ATTN_POST_TEMPLATE, &post));
    ATTN_TEXT_TRY(read_specials(field, post));
    ATTN_TEXT_TRY(read_items(field, "single", post, 0));
    return read_items(field, "pair", post, 1);
}

/* ["[SEP]", 102]. */
static attn_status read_token_pair(const attn_field *field, const char *key, attn_post *post, int32_t *index)
{
    attn_field pair = attn_field_member(field, key);
    attn_field token = attn_field_at(&pair, 0), id_field = attn_field_at(&pair, 1);
    attn_text text;
    int64_t id;
    ATTN_TEXT_TRY(attn_field_text(&token, &text));
    ATTN_TEXT_TRY(attn_field_int(&id_field, 0, INT32_MAX, &id));
    ATTN_TEXT_TRY(attn_post_special(post, key, strlen(key), index));
    return attn_post_special_id(&post->specials[*index], (int32_t)id, text.data, text.size);
}

/* BERT: [CLS] A [SEP] B [SEP] with types 0 and 1; RoBERTa: <s> A </s></s> B </s>, all of type 0. */
static attn_status read_bert(const attn_field *field, attn_tokenizer *tokenizer, bool roberta)
{
    attn_post *post;
    int32_t cls, sep;
    ATTN_TEXT_TRY(attn_post_add(tokenizer, ATTN_POST_TEMPLATE, &post));
    ATTN_TEXT_TRY(read_token_pair(field, "sep", post, &sep));
    ATTN_TEXT_TRY(read_token_pair(field, "cls", post, &cls));
    int32_t pair_type = roberta ? 0 : 1;
    for (int pair = 0; pair < 2; pair++) {
        ATTN_TEXT_TRY(attn_post_item(post, pair, -1, 0, cls));
        ATTN_TEXT_TRY(attn_post_item(post, pair, 0, 0, -1));
        ATTN_TEXT_TRY(attn_post_item(post, pair, -1, 0, sep));
    }
    if (roberta)
        ATTN_TEXT_TRY(attn_post_item(post, 1, -1, 0, sep));
    ATTN_TEXT_TRY(attn_post_item(post, 1, 1, pair_type, -1));
    return attn_post_item(post, 1, -1, pair_type, sep);
}

static attn_status read_trim(const attn_field *field, attn_tokenizer *tokenizer)
{
    bool trim, prefix_space;
    attn_post *post;
    ATTN_TEXT_TRY(attn_field_flag(field, "trim_offsets", true, &trim));
    ATTN_TEXT_TRY(attn_field_flag(field, "add_prefix_space", true, &prefix_space));
    if (!trim)
        return ATTN_OK;
    ATTN_TEXT_TRY(attn_post_add(tokenizer, ATTN_POST_TRIM, &post));
    post->prefix_space = prefix_space;
    return ATTN_OK;
}

static attn_status read_one(const attn_field *field, attn_tokenizer *tokenizer)
{
    attn_field type = attn_field_member(field, "type");
    if (attn_field_is(&type, "ByteLevel"))
        return read_trim(field, tokenizer);
    for (size_t i = 0; i < tokenizer->n_posts; i++)
        if (tokenizer->posts[i].kind == ATTN_POST_TEMPLATE)
            return attn_text_fail(ATTN_ERR_UNSUPPORTED, "%s is a second template, which is not served", field->path);
    if (attn_field_is(&type, "TemplateProcessing"))
        return read_template(field, tokenizer);
    if (attn_field_is(&type, "BertProcessing"))
        return read_bert(field, tokenizer, false);
    if (attn_field_is(&type, "RobertaProcessing")) {
        ATTN_TEXT_TRY(read_trim(field, tokenizer));
        return read_bert(field, tokenizer, true);
    }
    return json_is_string(type.value) ? attn_field_unsupported(&type) : attn_field_expected(&type, "a text");
}

attn_status attn_json_post(const attn_field *field, attn_tokenizer *tokenizer)
{
    if (!field->value)
        return ATTN_OK;
    ATTN_TEXT_TRY(attn_field_object(field));
    attn_field type = attn_field_member(field, "type");
    if (!attn_field_is(&type, "Sequence"))
        return read_one(field, tokenizer);
    attn_field list = attn_field_member(field, "processors");
    ATTN_TEXT_TRY(attn_field_array(&list));
    for (size_t i = 0; i < json_array_size(list.value); i++) {
        attn_field item = attn_field_at(&list, i);
        ATTN_TEXT_TRY(attn_field_object(&item));
        ATTN_TEXT_TRY(attn_json_post(&item, tokenizer));
    }
    return ATTN_OK;
}
