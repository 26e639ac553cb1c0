/* postprocess.c - tokens to the final encoding: truncation, special tokens, type ids, trimmed offsets. */
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

/* ---- Truncation ---- */

static size_t n_special(const attn_tokenizer *tokenizer, int n_texts)
{
    size_t n = 0;
    for (size_t p = 0; p < tokenizer->n_posts; p++) {
        const attn_post *post = &tokenizer->posts[p];
        if (post->kind == ATTN_POST_TEMPLATE)
            for (size_t i = 0; i < post->n_items[n_texts - 1]; i++)
                if (post->items[n_texts - 1][i].sequence < 0)
                    n += post->specials[post->items[n_texts - 1][i].special].len;
    }
    return n;
}

static void keep(attn_pieces *pieces, size_t n, bool drop_left)
{
    if (n >= pieces->len)
        return;
    if (drop_left)
        memmove(pieces->data, pieces->data + (pieces->len - n), n * sizeof *pieces->data);
    pieces->len = n;
}

/* Cuts the texts to `room` tokens together, the longer one first ("longest first" of Hugging Face's library). */
static void truncate(attn_pieces pieces[2], int n_texts, size_t room, bool drop_left)
{
    if (n_texts == 1) {
        keep(&pieces[0], room, drop_left);
        return;
    }
    size_t n0 = pieces[0].len, n1 = pieces[1].len;
    if (n0 + n1 <= room)
        return;
    bool swap = n0 > n1;
    size_t shorter = swap ? n1 : n0, longer;
    if (shorter > room)
        longer = shorter;
    else
        longer = room - shorter > shorter ? room - shorter : shorter;
    if (shorter + longer > room) {
        shorter = room / 2;
        longer = shorter + room % 2;
    }
    keep(&pieces[0], swap ? longer : shorter, drop_left);
    keep(&pieces[1], swap ? shorter : longer, drop_left);
}

/* ---- Trimmed offsets ---- */

static const char *piece_text(const attn_tokenizer *tokenizer, const attn_scratch *scratch, const attn_piece *piece,
                              size_t *len)
{
    if (piece->text < 0)
        return attn_vocab_text(&tokenizer->vocab, piece->entry, len);
    *len = piece->text_len;
    return scratch->extra.data + piece->text;
}

/* U+0120 is how the byte-level alphabet spells a blank. */
static bool is_blank(const char *text, size_t size)
{
    uint32_t point = attn_utf8_get(text, size);
    return point == 0x120 || attn_is_space(point);
}

static size_t leading_blanks(const char *text, size_t len)
{
    size_t count = 0;
    for (size_t at = 0; at < len && is_blank(text + at, attn_utf8_size(text[at])); count++)
        at += attn_utf8_size(text[at]);
    return count;
}

static size_t trailing_blanks(const char *text, size_t len)
{
    size_t count = 0;
    while (len > 0) {
        size_t start = len - 1;
        while (start > 0 && attn_utf8_continues(text[start]))
            start--;
        if (!is_blank(text + start, len - start))
            break;
        len = start;
        count++;
    }
    return count;
}

static void trim_piece(const attn_post *post, const attn_strbuf *original, bool first, const char *text, size_t len,
                       attn_piece *piece)
{
    size_t leading = leading_blanks(text, len), trailing = trailing_blanks(text, len);
    if (leading == 1 && (first || piece->start == 0) && post->prefix_space)
        leading = 0; /* the blank that was put in front; of more than one, all were in the text */
    for (; leading && piece->start < piece->end; leading--)
        piece->start += (uint32_t)attn_utf8_size(original->data[piece->start]);
    for (; trailing && piece->end > piece->start; trailing--) {
        piece->end--;
        while (piece->end > piece->start && attn_utf8_continues(original->data[piece->end]))
            piece->end--;
    }
}

static void trim(const attn_tokenizer *tokenizer, const attn_post *post, const attn_scratch *scratch,
                 const attn_strbuf *original, attn_pieces *pieces)
{
    for (size_t i = 0; i < pieces->len; i++) {
        attn_piece *piece = &pieces->data[i];
        size_t len;
        const char *text = piece_text(tokenizer, scratch, piece, &len);
        trim_piece(post, original, i == 0, text, len, piece);
    }
}

/* ---- Writing the encoding ---- */

static attn_status reserve(attn_encoding *encoding, size_t need)
{
    if (need <= encoding->cap)
        return ATTN_OK;
    size_t want = need > SIZE_MAX / 64 ? need : need + need / 2 + 16;
    struct {
        void *array;
        size_t size;
    } fields[] = {{&encoding->ids, sizeof(int32_t)},
                  {&encoding->type_ids, sizeof(int32_t)},
                  {&encoding->sequences, sizeof(int32_t)},
                  {&encoding->byte_offsets, 2 * sizeof(int64_t)},
                  {&encoding->char_offsets, 2 * sizeof(int64_t)},
                  {&encoding->places, sizeof *encoding->places}};
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
        size_t cap = encoding->cap;
        ATTN_TEXT_TRY(attn_grow(fields[f].array, &cap, want, fields[f].size));
    }
    encoding->cap = want;
    return ATTN_OK;
}

static void put(attn_encoding *encoding, int32_t id, int32_t type_id, int32_t sequence, uint32_t start, uint32_t end,
                attn_text_place place)
{
    size_t i = (size_t)encoding->len++;
    encoding->ids[i] = id;
    encoding->type_ids[i] = type_id;
    encoding->sequences[i] = sequence;
    encoding->byte_offsets[2 * i] = start;
    encoding->byte_offsets[2 * i + 1] = end;
    encoding->places[i] = place;
}

static attn_status put_text(const attn_tokenizer *tokenizer, const attn_scratch *scratch, int32_t sequence,
                            int32_t type_id, attn_encoding *encoding)
{
    const attn_pieces *pieces = &scratch->pieces[sequence];
    ATTN_TEXT_TRY(reserve(encoding, (size_t)encoding->len + pieces->len));
    for (size_t i = 0; i < pieces->len; i++) {
        const attn_piece *piece = &pieces->data[i];
        attn_text_place place = {.entry = piece->entry};
        if (piece->text >= 0)
            place = (attn_text_place){.entry = -1, .len = piece->text_len, .at = (size_t)piece->text};
        put(encoding, tokenizer->vocab.entries[piece->entry].id, type_id, sequence, piece->start, piece->end, place);
    }
    return ATTN_OK;
}

static attn_status put_special(const attn_template_special *special, int32_t type_id, attn_encoding *encoding)
{
    ATTN_TEXT_TRY(reserve(encoding, (size_t)encoding->len + special->len));
    for (size_t i = 0; i < special->len; i++) {
        const attn_special_token *token = &special->tokens[i];
        attn_text_place place = {.entry = -1, .len = (uint32_t)token->len, .at = encoding->spelled.len};
        ATTN_TEXT_TRY(attn_strbuf_add(&encoding->spelled, special->text.data + token->at, token->len));
        put(encoding, token->id, type_id, -1, 0, 0, place);
    }
    return ATTN_OK;
}

attn_status attn_post_process(const attn_tokenizer *tokenizer, attn_scratch *scratch, int n_texts,
                              const attn_encode_options *options, attn_encoding *encoding)
{
    bool with_special = !(options->flags & ATTN_ENCODE_NO_SPECIAL);
    if (options->max_length) {
        size_t special = with_special ? n_special(tokenizer, n_texts) : 0;
        if ((uint64_t)options->max_length < special)
            return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "options.max_length is %lld, but %zu special tokens are added",
                                  (long long)options->max_length, special);
        uint64_t room = (uint64_t)options->max_length - special;
        truncate(scratch->pieces, n_texts, room > SIZE_MAX ? SIZE_MAX : (size_t)room,
                 options->flags & ATTN_ENCODE_TRUNCATE_LEFT);
    }
    encoding->spelled.len = 0;
    ATTN_TEXT_TRY(attn_strbuf_add(&encoding->spelled, scratch->extra.data, scratch->extra.len));
    const attn_post *template = NULL;
    for (size_t p = 0; p < tokenizer->n_posts; p++) {
        if (tokenizer->posts[p].kind == ATTN_POST_TEMPLATE)
            template = &tokenizer->posts[p];
        else
            for (int i = 0; i < n_texts; i++)
                trim(tokenizer, &tokenizer->posts[p], scratch, &encoding->texts[i], &scratch->pieces[i]);
    }
    if (!template) {
        for (int i = 0; i < n_texts; i++)
            ATTN_TEXT_TRY(put_text(tokenizer, scratch, i, i, encoding));
        return ATTN_OK;
    }
    for (size_t i = 0; i < template->n_items[n_texts - 1]; i++) {
        const attn_template_item *item = &template->items[n_texts - 1][i];
        if (item->sequence >= 0)
            ATTN_TEXT_TRY(put_text(tokenizer, scratch, item->sequence, item->type_id, encoding));
        else if (with_special)
            ATTN_TEXT_TRY(put_special(&template->specials[item->special], item->type_id, encoding));
    }
    return ATTN_OK;
}
