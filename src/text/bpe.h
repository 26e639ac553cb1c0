/* bpe.h - byte pair encoding of one piece. */
#ifndef ATTN_TEXT_BPE_H
#define ATTN_TEXT_BPE_H

#include "text/vocab.h"

enum { /* entries of the unknown token that are none */
    ATTN_UNK_NONE = -1,   /* the model has no unknown token */
    ATTN_UNK_MISSING = -2 /* it names one that its vocabulary lacks: an error when one is needed */
};

typedef struct attn_bpe {
    attn_pairmap merges;  /* left entry << 32 | right entry -> rank << 32 | entry of the result */
    bool raw;             /* pieces may be plain bytes of a byte-level vocabulary */
    bool raw_gaps;        /* and it lacks a byte that UTF-8 can have: text with one must be spelled out */
    int32_t byte_entry[256];     /* raw: the entry of each byte, -1: none */
    int32_t fallback_entry[256]; /* the entry of "<0xHH>", -1: none */
    attn_strmap raw_pieces;      /* raw and ignore_merges: plain bytes -> entry */
    bool ignore_merges;          /* a piece that is in the vocabulary as a whole is that token */
    bool byte_fallback;          /* characters outside the vocabulary become their bytes */
    bool fuse_unk;               /* neighbouring unknown characters become one unknown token */
    int32_t unk_entry;           /* or ATTN_UNK_*; NONE: unknown characters are dropped */
    char *prefix, *suffix;       /* continuing_subword_prefix, end_of_word_suffix; NULL or "": none */
    size_t prefix_len, suffix_len;
} attn_bpe;

/* One token of a piece: its entry, and how many bytes of the piece it stands for. With ATTN_SYMBOL_STAYS the next token
 * stands for the same bytes. */
#define ATTN_SYMBOL_STAYS ((size_t)1 << 31)
typedef struct attn_symbol {
    int32_t entry;
    uint32_t len;
} attn_symbol;

typedef struct attn_symbols {
    attn_symbol *data;
    size_t len, cap;
} attn_symbols;

/* Memory for one merge at a time. */
typedef struct attn_bpe_scratch {
    struct attn_bpe_link *links;
    struct attn_bpe_candidate *heap;
    size_t links_cap, heap_cap;
    attn_strbuf spelling;
} attn_bpe_scratch;

/* Adds the merge number `rank` of two spellings. Errors name `where`[rank]. */
attn_status attn_bpe_add_merge(attn_bpe *bpe, const attn_vocab *vocab, const char *left, size_t left_len,
                               const char *right, size_t right_len, size_t rank, const char *where);

/* Fills raw, byte_entry and raw_pieces where the vocabulary allows it (the pre-tokenizer must be byte-level). */
attn_status attn_bpe_prepare_raw(attn_bpe *bpe, const attn_vocab *vocab);
/* Fills fallback_entry. */
void attn_bpe_prepare_fallback(attn_bpe *bpe, const attn_vocab *vocab);

/* Splits a piece into tokens, appended to out: first its characters (or bytes), then, as long as there is one, the merge of
 * lowest rank, leftmost first. raw: the piece is plain bytes, all of which have entries. Time n log n in the length n of the piece. */
attn_status attn_bpe_encode(const attn_bpe *bpe, const attn_vocab *vocab, attn_bpe_scratch *scratch, bool raw,
                            const char *piece, size_t len, attn_symbols *out);

/* True when all bytes of a text have entries. */
bool attn_bpe_has_bytes(const attn_bpe *bpe, const char *text, size_t len);

void attn_bpe_free(attn_bpe *bpe);
void attn_bpe_scratch_free(attn_bpe_scratch *scratch);

static inline attn_status attn_symbols_add(attn_symbols *symbols, int32_t entry, size_t len)
{
    ATTN_TEXT_TRY(attn_grow(&symbols->data, &symbols->cap, symbols->len + 1, sizeof *symbols->data));
    symbols->data[symbols->len++] = (attn_symbol){.entry = entry, .len = (uint32_t)len};
    return ATTN_OK;
}

#endif
