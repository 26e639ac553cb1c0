/* bpe.c - byte pair encoding. Short pieces look for the best merge in a row of ranks; long ones in a heap over a linked
 * list, so that a megabyte without a blank stays n log n. Both make the same merges in the same order. */
#include "text/bpe.h"

#include <stdio.h>

#include "text/bytelevel.h"

#define NO_RANK UINT32_MAX
/* Up to here the quadratic search in one cache line or two is faster than the heap. */
#define SHORT_PIECE 48

typedef struct attn_bpe_link {
    int32_t entry;
    uint32_t len;
    int64_t prev, next; /* -1: none */
} attn_bpe_link;

typedef struct attn_bpe_candidate {
    uint32_t rank;
    int32_t result;
    uint64_t at;
} attn_bpe_candidate;

static uint64_t lookup(const attn_bpe *bpe, int32_t left, int32_t right)
{
    return attn_pairmap_get(&bpe->merges, (uint64_t)(uint32_t)left << 32 | (uint32_t)right);
}

attn_status attn_bpe_add_merge(attn_bpe *bpe, const attn_vocab *vocab, const char *left, size_t left_len,
                               const char *right, size_t right_len, size_t rank, const char *where)
{
    if (rank >= NO_RANK)
        return attn_text_fail(ATTN_ERR_UNSUPPORTED, "%s has more than %u entries", where, NO_RANK - 1);
    int32_t a = attn_vocab_find_model(vocab, left, left_len), b = attn_vocab_find_model(vocab, right, right_len);
    size_t skip = right_len >= bpe->prefix_len ? bpe->prefix_len : right_len;
    attn_strbuf joined = {0};
    attn_status status = attn_strbuf_add(&joined, left, left_len);
    if (status == ATTN_OK)
        status = attn_strbuf_add(&joined, right + skip, right_len - skip);
    if (status == ATTN_OK) {
        int32_t result = attn_vocab_find_model(vocab, joined.data, joined.len);
        if (a < 0 || b < 0 || result < 0)
            status = attn_text_fail(
                ATTN_ERR_FORMAT, "%s[%zu]: \"%.*s\" is not in the vocabulary", where, rank,
                (int)(a < 0 ? left_len : b < 0 ? right_len : joined.len), a < 0 ? left : b < 0 ? right : joined.data);
        else
            status = attn_pairmap_put(&bpe->merges, (uint64_t)(uint32_t)a << 32 | (uint32_t)b,
                                      (uint64_t)rank << 32 | (uint32_t)result);
    }
    attn_strbuf_free(&joined);
    return status;
}

static attn_status fill_raw_pieces(attn_bpe *bpe, const attn_vocab *vocab, attn_strbuf *bytes)
{
    ATTN_TEXT_TRY(attn_strmap_reserve(&bpe->raw_pieces, vocab->n_entries));
    for (size_t e = 0; e < vocab->n_entries; e++) {
        size_t len;
        const char *text = attn_vocab_text(vocab, (int32_t)e, &len);
        bool all;
        bytes->len = 0;
        ATTN_TEXT_TRY(attn_bytelevel_bytes(text, len, bytes, &all));
        if (all && attn_vocab_find_model(vocab, text, len) == (int32_t)e)
            ATTN_TEXT_TRY(attn_strmap_put(&bpe->raw_pieces, bytes->data, bytes->len, (int32_t)e));
    }
    return ATTN_OK;
}

attn_status attn_bpe_prepare_raw(attn_bpe *bpe, const attn_vocab *vocab)
{
    bpe->raw = false;
    if (bpe->prefix_len || bpe->suffix_len)
        return ATTN_OK;
    for (int byte = 0; byte < 256; byte++) {
        char spelled[4];
        size_t size = attn_utf8_put(attn_bytelevel_point((unsigned char)byte), spelled);
        bpe->byte_entry[byte] = attn_vocab_find_model(vocab, spelled, size);
        bool in_utf8 = byte != 0xc0 && byte != 0xc1 && byte < 0xf5;
        bpe->raw_gaps |= bpe->byte_entry[byte] < 0 && in_utf8;
    }
    bpe->raw = true;
    attn_status status = ATTN_OK;
    if (bpe->ignore_merges) {
        attn_strbuf bytes = {0};
        status = fill_raw_pieces(bpe, vocab, &bytes);
        attn_strbuf_free(&bytes);
    }
    return status;
}

void attn_bpe_prepare_fallback(attn_bpe *bpe, const attn_vocab *vocab)
{
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        bpe->fallback_entry[byte] = attn_vocab_find_model(vocab, name, 6);
    }
}

/* ---- The pieces' first symbols ---- */

/* The unknown characters seen and not yet written. */
typedef struct unknown_run {
    size_t len;
    bool open;
} unknown_run;

static attn_status flush_unknown(const attn_bpe *bpe, unknown_run *run, attn_symbols *out)
{
    if (!run->open)
        return ATTN_OK;
    run->open = false;
    return attn_symbols_add(out, bpe->unk_entry, run->len);
}

static attn_status add_unknown(const attn_bpe *bpe, unknown_run *run, size_t size, attn_symbols *out)
{
    if (bpe->unk_entry == ATTN_UNK_MISSING)
        return attn_text_fail(ATTN_ERR_FORMAT, "model.unk_token is needed for this text and is not in model.vocab");
    if (bpe->unk_entry < 0)
        return ATTN_OK;
    if (run->open && bpe->fuse_unk) {
        run->len += size;
        return ATTN_OK;
    }
    ATTN_TEXT_TRY(flush_unknown(bpe, run, out));
    *run = (unknown_run){.len = size, .open = true};
    return ATTN_OK;
}

/* True when all bytes of the spelling have a fallback token; then they are appended. */
static attn_status add_fallback(const attn_bpe *bpe, const char *spelled, size_t len, attn_symbols *out, bool *done)
{
    *done = bpe->byte_fallback;
    for (size_t i = 0; i < len && *done; i++)
        *done = bpe->fallback_entry[(unsigned char)spelled[i]] >= 0;
    for (size_t i = 0; i < len && *done; i++)
        ATTN_TEXT_TRY(attn_symbols_add(out, bpe->fallback_entry[(unsigned char)spelled[i]], 1));
    return ATTN_OK;
}

static attn_status first_symbols(const attn_bpe *bpe, const attn_vocab *vocab, attn_strbuf *spelling, const char *piece,
                                 size_t len, attn_symbols *out)
{
    unknown_run run = {0};
    for (size_t at = 0; at < len;) {
        size_t size = attn_utf8_size(piece[at]);
        const char *spelled = piece + at;
        size_t spelled_len = size;
        bool with_prefix = at > 0 && bpe->prefix_len, with_suffix = at + size == len && bpe->suffix_len;
        if (with_prefix || with_suffix) {
            spelling->len = 0;
            if (with_prefix)
                ATTN_TEXT_TRY(attn_strbuf_add(spelling, bpe->prefix, bpe->prefix_len));
            ATTN_TEXT_TRY(attn_strbuf_add(spelling, piece + at, size));
            if (with_suffix)
                ATTN_TEXT_TRY(attn_strbuf_add(spelling, bpe->suffix, bpe->suffix_len));
            spelled = spelling->data;
            spelled_len = spelling->len;
        }
        int32_t entry = attn_vocab_find_model(vocab, spelled, spelled_len);
        bool done = false;
        if (entry >= 0) {
            ATTN_TEXT_TRY(flush_unknown(bpe, &run, out));
            ATTN_TEXT_TRY(attn_symbols_add(out, entry, size));
        } else {
            ATTN_TEXT_TRY(add_fallback(bpe, spelled, spelled_len, out, &done));
            if (!done)
                ATTN_TEXT_TRY(add_unknown(bpe, &run, size, out));
        }
        at += size;
    }
    return flush_unknown(bpe, &run, out);
}

/* ---- Merging ---- */

static void merge_short(const attn_bpe *bpe, attn_symbol *symbols, size_t *count)
{
    uint64_t pair[SHORT_PIECE]; /* rank << 32 | result of symbols i and i + 1; UINT64_MAX: they do not merge */
    size_t n = *count;
    for (size_t i = 0; i + 1 < n; i++)
        pair[i] = lookup(bpe, symbols[i].entry, symbols[i + 1].entry);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (pair[i] < pair[best]) /* one rank, one result: equal only when the pair is the same */
                best = i;
        if (pair[best] == UINT64_MAX)
            break;
        symbols[best].entry = (int32_t)(uint32_t)pair[best];
        symbols[best].len += symbols[best + 1].len;
        n--;
        memmove(symbols + best + 1, symbols + best + 2, (n - best - 1) * sizeof *symbols);
        if (best + 1 < n)
            memmove(pair + best, pair + best + 1, (n - best - 1) * sizeof *pair);
        if (best > 0)
            pair[best - 1] = lookup(bpe, symbols[best - 1].entry, symbols[best].entry);
        if (best + 1 < n)
            pair[best] = lookup(bpe, symbols[best].entry, symbols[best + 1].entry);
    }
    *count = n;
}

static bool candidate_before(const attn_bpe_candidate *a, const attn_bpe_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static attn_status heap_push(attn_bpe_scratch *scratch, size_t *n, attn_bpe_candidate candidate)
{
    ATTN_TEXT_TRY(attn_grow(&scratch->heap, &scratch->heap_cap, *n + 1, sizeof *scratch->heap));
    attn_bpe_candidate *heap = scratch->heap;
    size_t i = (*n)++;
    for (; i > 0 && candidate_before(&candidate, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = candidate;
    return ATTN_OK;
}

static attn_bpe_candidate heap_pop(attn_bpe_candidate *heap, size_t *n)
{
    attn_bpe_candidate top = heap[0], last = heap[--*n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < *n; i = child) {
        if (child + 1 < *n && candidate_before(&heap[child + 1], &heap[child]))
            child++;
        if (!candidate_before(&heap[child], &last))
            break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

static attn_status push_pair(const attn_bpe *bpe, attn_bpe_scratch *scratch, size_t *n_heap, int64_t at)
{
    const attn_bpe_link *links = scratch->links;
    if (at < 0 || links[at].next < 0)
        return ATTN_OK;
    uint64_t found = lookup(bpe, links[at].entry, links[links[at].next].entry);
    if (found == UINT64_MAX)
        return ATTN_OK;
    attn_bpe_candidate candidate = {(uint32_t)(found >> 32), (int32_t)(uint32_t)found, (uint64_t)at};
    return heap_push(scratch, n_heap, candidate);
}

static attn_status merge_long(const attn_bpe *bpe, attn_bpe_scratch *scratch, attn_symbol *symbols, size_t *count)
{
    size_t n = *count, n_heap = 0;
    ATTN_TEXT_TRY(attn_grow(&scratch->links, &scratch->links_cap, n, sizeof *scratch->links));
    attn_bpe_link *links = scratch->links;
    for (size_t i = 0; i < n; i++)
        links[i] = (attn_bpe_link){symbols[i].entry, symbols[i].len, (int64_t)i - 1, i + 1 < n ? (int64_t)i + 1 : -1};
    for (size_t i = 0; i + 1 < n; i++)
        ATTN_TEXT_TRY(push_pair(bpe, scratch, &n_heap, (int64_t)i));
    while (n_heap) {
        attn_bpe_candidate top = heap_pop(scratch->heap, &n_heap);
        attn_bpe_link *left = &links[top.at];
        if (left->entry < 0 || left->next < 0)
            continue; /* swallowed since, or last */
        attn_bpe_link *right = &links[left->next];
        uint64_t found = lookup(bpe, left->entry, right->entry);
        if (found == UINT64_MAX || (int32_t)(uint32_t)found != top.result)
            continue; /* one of the two has grown since */
        left->entry = top.result;
        left->len += right->len;
        right->entry = -1;
        left->next = right->next;
        if (right->next >= 0)
            links[right->next].prev = (int64_t)top.at;
        ATTN_TEXT_TRY(push_pair(bpe, scratch, &n_heap, left->prev));
        ATTN_TEXT_TRY(push_pair(bpe, scratch, &n_heap, (int64_t)top.at));
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (links[i].entry >= 0)
            symbols[kept++] = (attn_symbol){links[i].entry, links[i].len};
    *count = kept;
    return ATTN_OK;
}

bool attn_bpe_has_bytes(const attn_bpe *bpe, const char *text, size_t len)
{
    if (!bpe->raw_gaps)
        return true;
    for (size_t i = 0; i < len; i++)
        if (bpe->byte_entry[(unsigned char)text[i]] < 0)
            return false;
    return true;
}

attn_status attn_bpe_encode(const attn_bpe *bpe, const attn_vocab *vocab, attn_bpe_scratch *scratch, bool raw,
                            const char *piece, size_t len, attn_symbols *out)
{
    if (bpe->ignore_merges) {
        int32_t whole = raw ? attn_strmap_get(&bpe->raw_pieces, piece, len) : attn_vocab_find_model(vocab, piece, len);
        if (whole >= 0)
            return attn_symbols_add(out, whole, len);
    }
    size_t first = out->len;
    if (raw) {
        ATTN_TEXT_TRY(attn_grow(&out->data, &out->cap, first + len, sizeof *out->data));
        for (size_t i = 0; i < len; i++)
            out->data[first + i] = (attn_symbol){bpe->byte_entry[(unsigned char)piece[i]], 1};
        out->len += len;
    } else {
        ATTN_TEXT_TRY(first_symbols(bpe, vocab, &scratch->spelling, piece, len, out));
    }
    size_t count = out->len - first;
    if (count > SHORT_PIECE)
        ATTN_TEXT_TRY(merge_long(bpe, scratch, out->data + first, &count));
    else
        merge_short(bpe, out->data + first, &count);
    out->len = first + count;
    return ATTN_OK;
}

void attn_bpe_free(attn_bpe *bpe)
{
    attn_pairmap_free(&bpe->merges);
    attn_strmap_free(&bpe->raw_pieces);
    free(bpe->prefix);
    free(bpe->suffix);
    memset(bpe, 0, sizeof *bpe);
}

void attn_bpe_scratch_free(attn_bpe_scratch *scratch)
{
    free(scratch->links);
    free(scratch->heap);
    attn_strbuf_free(&scratch->spelling);
    memset(scratch, 0, sizeof *scratch);
}
