/* models.c - WordPiece, Unigram and WordLevel on one piece. */
#include "text/tokenizer_impl.h"

/* ---- WordPiece ---- */

/* The longest token that piece[start, len) begins with, -1 when there is none; *size is its length. */
static int32_t longest_token(const attn_tokenizer *tokenizer, const char *piece, size_t len, size_t start, size_t *size)
{
    const attn_strmap *continuing = &tokenizer->wordpiece.continuing;
    size_t most = start ? continuing->max_len : tokenizer->vocab.by_text.max_len;
    size_t end = len - start > most ? start + most : len;
    while (end < len && end > start && attn_utf8_continues(piece[end]))
        end--;
    while (end > start) {
        int32_t entry = start ? attn_strmap_get(continuing, piece + start, end - start)
                              : attn_vocab_find_model(&tokenizer->vocab, piece, end);
        if (entry >= 0) {
            *size = end - start;
            return entry;
        }
        end--;
        while (end > start && attn_utf8_continues(piece[end]))
            end--;
    }
    return -1;
}

attn_status attn_wordpiece_prepare(attn_tokenizer *tokenizer, attn_text prefix)
{
    const attn_vocab *vocab = &tokenizer->vocab;
    for (size_t e = 0; e < vocab->n_entries; e++) {
        size_t len;
        const char *text = attn_vocab_text(vocab, (int32_t)e, &len);
        if (len >= prefix.size && !memcmp(text, prefix.data, prefix.size) &&
            attn_vocab_find(vocab, text, len) == (int32_t)e)
            ATTN_TEXT_TRY(attn_strmap_put(&tokenizer->wordpiece.continuing, text + prefix.size, len - prefix.size,
                                          (int32_t)e));
    }
    return ATTN_OK;
}

static attn_status unknown_word(const attn_tokenizer *tokenizer, size_t len, attn_symbols *out)
{
    out->len = 0;
    if (tokenizer->wordpiece.unk_entry < 0)
        return attn_text_fail(ATTN_ERR_FORMAT, "model.unk_token is needed for this text and is not in model.vocab");
    return attn_symbols_add(out, tokenizer->wordpiece.unk_entry, len);
}

/* Longest match first; a word of which any part is not in the vocabulary, or that is too long, is unknown. */
attn_status attn_wordpiece_encode(const attn_tokenizer *tokenizer, const char *piece, size_t len, attn_symbols *out)
{
    if (len > tokenizer->wordpiece.max_chars && attn_utf8_count(piece, len) > tokenizer->wordpiece.max_chars)
        return unknown_word(tokenizer, len, out);
    for (size_t start = 0, size; start < len; start += size) {
        int32_t entry = longest_token(tokenizer, piece, len, start, &size);
        if (entry < 0)
            return unknown_word(tokenizer, len, out);
        ATTN_TEXT_TRY(attn_symbols_add(out, entry, size));
    }
    return ATTN_OK;
}

/* ---- WordLevel ---- */

attn_status attn_wordlevel_encode(const attn_tokenizer *tokenizer, const char *piece, size_t len, attn_symbols *out)
{
    int32_t entry = attn_vocab_find_model(&tokenizer->vocab, piece, len);
    if (entry < 0)
        entry = tokenizer->unk_entry;
    if (entry < 0)
        return attn_text_fail(ATTN_ERR_FORMAT, "model.unk_token is needed for this text and is not in model.vocab");
    return attn_symbols_add(out, entry, len);
}

/* ---- Unigram ---- */

/* The best way to reach a place in the piece: its score, its last token and where that begins. */
typedef struct attn_lattice_node {
    double score;
    size_t start; /* SIZE_MAX: not reached */
    int32_t entry;
} attn_lattice_node;

static void reach(attn_lattice_node *node, double score, size_t start, int32_t entry)
{
    if (node->start == SIZE_MAX || score > node->score)
        *node = (attn_lattice_node){.score = score, .start = start, .entry = entry};
}

/* All tokens that begin at `at`. */
static attn_status extend(const attn_tokenizer *tokenizer, attn_lattice_node *nodes, const char *piece, size_t len,
                          size_t at)
{
    const attn_unigram *model = &tokenizer->unigram;
    size_t first = attn_utf8_size(piece[at]);
    bool single = false;
    uint64_t node = 0;
    for (size_t i = at; i < len && model->trie.n_nodes; i++) {
        node = attn_pairmap_get(&model->trie.edges, node << 8 | (unsigned char)piece[i]);
        if (node == UINT64_MAX)
            break;
        int32_t entry = model->trie.values[node];
        if (entry >= 0) {
            reach(&nodes[i + 1], model->scores[entry] + nodes[at].score, at, entry);
            single |= i + 1 - at == first;
        }
    }
    if (single)
        return ATTN_OK;
    if (model->unk_entry < 0)
        return attn_text_fail(ATTN_ERR_FORMAT, "model.unk_id is needed for this text and is not given");
    reach(&nodes[at + first], model->unk_score + nodes[at].score, at, model->unk_entry);
    return ATTN_OK;
}

/* Appends the token for piece[start, end): its own, its bytes', or the unknown one. */
static attn_status add_unigram(const attn_tokenizer *tokenizer, const char *piece, size_t start, size_t end,
                               attn_symbols *out)
{
    int32_t entry = attn_vocab_find_model(&tokenizer->vocab, piece + start, end - start);
    if (entry >= 0)
        return attn_symbols_add(out, entry, end - start);
    const int32_t *bytes = tokenizer->bpe.fallback_entry;
    bool all = tokenizer->unigram.byte_fallback;
    for (size_t i = start; i < end && all; i++)
        all = bytes[(unsigned char)piece[i]] >= 0;
    if (!all)
        return attn_symbols_add(out, tokenizer->unigram.unk_entry, end - start);
    for (size_t i = start; i < end; i++) /* each stands for all the bytes */
        ATTN_TEXT_TRY(attn_symbols_add(out, bytes[(unsigned char)piece[i]],
                                       (end - start) | (i + 1 < end ? ATTN_SYMBOL_STAYS : 0)));
    return ATTN_OK;
}

/* The sequence of tokens of highest total score (Viterbi). */
attn_status attn_unigram_encode(const attn_tokenizer *tokenizer, attn_scratch *scratch, const char *piece, size_t len,
                                attn_symbols *out)
{
    ATTN_TEXT_TRY(attn_grow(&scratch->lattice, &scratch->lattice_cap, len + 1, sizeof *scratch->lattice));
    attn_lattice_node *nodes = scratch->lattice;
    for (size_t i = 0; i <= len; i++)
        nodes[i] = (attn_lattice_node){.start = SIZE_MAX};
    for (size_t at = 0; at < len; at += attn_utf8_size(piece[at]))
        ATTN_TEXT_TRY(extend(tokenizer, nodes, piece, len, at));
    /* Turn the links round, so that nodes[start].start is where its token ends; unknown neighbours become one. */
    size_t end = len, start = nodes[len].start;
    while (end > 0) {
        bool unknown = tokenizer->unigram.fuse_unk && nodes[end].entry == tokenizer->unigram.unk_entry;
        while (unknown && start > 0 && nodes[start].entry == tokenizer->unigram.unk_entry)
            start = nodes[start].start;
        size_t before = nodes[start].start;
        nodes[start].start = end;
        end = start;
        start = before;
    }
    for (size_t at = 0; at < len; at = nodes[at].start)
        ATTN_TEXT_TRY(add_unigram(tokenizer, piece, at, nodes[at].start, out));
    return ATTN_OK;
}
