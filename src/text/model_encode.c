/* model_encode.c - one piece through the model, with a cache of short pieces in front: text repeats its words. */
#include "text/tokenizer_impl.h"

/* Appends a token that stands for bytes [start, end) of the work text. */
static inline void emit(const attn_worktext *text, int32_t entry, size_t start, size_t end, attn_pieces *out)
{
    uint32_t from, to;
    if (start >= end || end > text->len) { /* nothing of the text: where it would be */
        from = to = (uint32_t)(text->start ? (start < text->len ? text->start[start] : 0) : text->origin + start);
    } else if (text->start) {
        from = text->start[start];
        to = text->end[end - 1];
    } else {
        while (start > 0 && attn_utf8_continues(text->data[start]))
            start--;
        while (end < text->len && attn_utf8_continues(text->data[end]))
            end++;
        from = (uint32_t)(text->origin + start);
        to = (uint32_t)(text->origin + end);
    }
    out->data[out->len++] = (attn_piece){.entry = entry, .start = from, .end = to, .text = -1};
}

static attn_cache_slot *cache_slot(attn_scratch *scratch, const char *piece, size_t len)
{
    return &scratch->cache[attn_hash_bytes(piece, len) >> (64 - ATTN_CACHE_BITS)];
}

static void cache_store(attn_cache_slot *slot, const char *piece, size_t len, bool raw, const attn_symbols *symbols)
{
    if (!symbols->len || symbols->len > ATTN_CACHE_TOKENS)
        return;
    for (size_t i = 0; i < symbols->len; i++)
        if (symbols->data[i].len & ATTN_SYMBOL_STAYS)
            return;
    slot->len = (uint8_t)len;
    slot->n = (uint8_t)(symbols->len | (raw ? ATTN_CACHE_RAW : 0));
    memcpy(slot->key, piece, len);
    for (size_t i = 0; i < symbols->len; i++) {
        slot->entries[i] = symbols->data[i].entry;
        slot->lens[i] = (uint8_t)symbols->data[i].len;
    }
}

static attn_status encode_piece(const attn_tokenizer *tokenizer, attn_scratch *scratch, const char *piece, size_t len)
{
    scratch->symbols.len = 0;
    switch (tokenizer->model) {
    case ATTN_MODEL_BPE:
        return attn_bpe_encode(&tokenizer->bpe, &tokenizer->vocab, &scratch->bpe, scratch->raw, piece, len,
                               &scratch->symbols);
    case ATTN_MODEL_WORDPIECE:
        return attn_wordpiece_encode(tokenizer, piece, len, &scratch->symbols);
    case ATTN_MODEL_UNIGRAM:
        return attn_unigram_encode(tokenizer, scratch, piece, len, &scratch->symbols);
    case ATTN_MODEL_WORDLEVEL:
        return attn_wordlevel_encode(tokenizer, piece, len, &scratch->symbols);
    }
    return attn_text_fail(ATTN_ERR_UNSUPPORTED, "model kind %d is not served", (int)tokenizer->model);
}

/* Unigram gives an unknown token the text that it stands for. */
static attn_status keep_unknown_text(const attn_tokenizer *tokenizer, attn_scratch *scratch, size_t start, size_t len,
                                     attn_piece *piece)
{
    if (tokenizer->model != ATTN_MODEL_UNIGRAM || piece->entry != tokenizer->unigram.unk_entry)
        return ATTN_OK;
    piece->text = (int64_t)scratch->extra.len;
    piece->text_len = (uint32_t)len;
    return attn_strbuf_add(&scratch->extra, scratch->text.data + start, len);
}

attn_status attn_tokenizer_model_encode(const attn_tokenizer *tokenizer, attn_scratch *scratch, size_t start, size_t end,
                              attn_pieces *out)
{
    const char *piece = scratch->text.data + start;
    size_t len = end - start;
    attn_cache_slot *slot = NULL;
    if (len <= ATTN_CACHE_KEY) {
        slot = cache_slot(scratch, piece, len);
        size_t n = slot->n & (ATTN_CACHE_RAW - 1);
        if (n && (slot->n >= ATTN_CACHE_RAW) == scratch->raw && slot->len == len && !memcmp(slot->key, piece, len)) {
            ATTN_TEXT_TRY(attn_grow(&out->data, &out->cap, out->len + n, sizeof *out->data));
            for (size_t i = 0; i < n; start += slot->lens[i++])
                emit(&scratch->text, slot->entries[i], start, start + slot->lens[i], out);
            return ATTN_OK;
        }
    }
    ATTN_TEXT_TRY(encode_piece(tokenizer, scratch, piece, len));
    const attn_symbols *symbols = &scratch->symbols;
    bool cached = slot != NULL;
    ATTN_TEXT_TRY(attn_grow(&out->data, &out->cap, out->len + symbols->len, sizeof *out->data));
    for (size_t i = 0; i < symbols->len; i++) {
        bool stays = symbols->data[i].len & ATTN_SYMBOL_STAYS;
        size_t size = symbols->data[i].len & ~ATTN_SYMBOL_STAYS;
        emit(&scratch->text, symbols->data[i].entry, start, start + size, out);
        attn_piece *made = &out->data[out->len - 1];
        ATTN_TEXT_TRY(keep_unknown_text(tokenizer, scratch, start, size, made));
        cached &= made->text < 0;
        start += stays ? 0 : size;
    }
    if (cached)
        cache_store(slot, piece, len, scratch->raw, symbols);
    return ATTN_OK;
}
