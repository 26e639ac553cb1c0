/* encoding.c - what attn_tokenizer_encode filled, and code-point offsets from byte offsets. */
#include "text/tokenizer_impl.h"

attn_status attn_encoding_create(attn_encoding **encoding)
{
    attn_text_clear_error();
    if (!encoding)
        return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "encoding is NULL");
    *encoding = calloc(1, sizeof **encoding);
    return *encoding ? ATTN_OK : attn_text_no_memory();
}

void attn_encoding_destroy(attn_encoding *encoding)
{
    if (!encoding)
        return;
    free(encoding->ids);
    free(encoding->type_ids);
    free(encoding->sequences);
    free(encoding->byte_offsets);
    free(encoding->char_offsets);
    free(encoding->places);
    attn_strbuf_free(&encoding->spelled);
    attn_strbuf_free(&encoding->texts[0]);
    attn_strbuf_free(&encoding->texts[1]);
    free(encoding);
}

int64_t attn_encoding_length(const attn_encoding *encoding)
{
    return encoding ? encoding->len : 0;
}

const int32_t *attn_encoding_ids(const attn_encoding *encoding)
{
    return encoding ? encoding->ids : NULL;
}

const int32_t *attn_encoding_type_ids(const attn_encoding *encoding)
{
    return encoding ? encoding->type_ids : NULL;
}

const int32_t *attn_encoding_sequences(const attn_encoding *encoding)
{
    return encoding ? encoding->sequences : NULL;
}

const int64_t *attn_encoding_byte_offsets(const attn_encoding *encoding)
{
    return encoding ? encoding->byte_offsets : NULL;
}

/* A place in a text, in bytes and in code points; moves forward and back from where it was asked last. */
typedef struct cursor {
    const attn_strbuf *text;
    size_t byte, point;
} cursor;

static int64_t points_before(cursor *c, int64_t byte)
{
    size_t target = (size_t)byte < c->text->len ? (size_t)byte : c->text->len;
    for (; c->byte < target; c->byte++)
        c->point += !attn_utf8_continues(c->text->data[c->byte]);
    while (c->byte > target)
        c->point -= !attn_utf8_continues(c->text->data[--c->byte]);
    return (int64_t)c->point;
}

const int64_t *attn_encoding_char_offsets(attn_encoding *encoding)
{
    if (!encoding || encoding->has_chars)
        return encoding ? encoding->char_offsets : NULL;
    cursor cursors[2] = {{.text = &encoding->texts[0]}, {.text = &encoding->texts[1]}};
    for (int64_t i = 0; i < encoding->len; i++)
        for (int side = 0; side < 2; side++) {
            int32_t sequence = encoding->sequences[i];
            encoding->char_offsets[2 * i + side] =
                sequence < 0 ? 0 : points_before(&cursors[sequence], encoding->byte_offsets[2 * i + side]);
        }
    encoding->has_chars = true;
    return encoding->char_offsets;
}

const char *attn_encoding_token(const attn_encoding *encoding, int64_t i, size_t *size)
{
    if (!encoding || !size || i < 0 || i >= encoding->len)
        return NULL;
    const attn_text_place *place = &encoding->places[i];
    if (place->entry >= 0)
        return attn_vocab_text(&encoding->tokenizer->vocab, place->entry, size);
    *size = place->len;
    return encoding->spelled.data + place->at;
}
