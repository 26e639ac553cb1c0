/* trie.c - the longest of a set of strings at a place. */
#include "text/tokenizer_impl.h"

attn_status attn_trie_add(attn_trie *trie, const char *text, size_t len, int32_t value)
{
    if (!trie->n_nodes) {
        ATTN_TEXT_TRY(attn_grow(&trie->values, &trie->values_cap, 1, sizeof *trie->values));
        trie->values[0] = -1;
        trie->n_nodes = 1;
    }
    uint64_t node = 0;
    for (size_t i = 0; i < len; i++) {
        uint64_t key = node << 8 | (unsigned char)text[i];
        uint64_t next = attn_pairmap_get(&trie->edges, key);
        if (next == UINT64_MAX) {
            next = trie->n_nodes;
            ATTN_TEXT_TRY(attn_grow(&trie->values, &trie->values_cap, trie->n_nodes + 1, sizeof *trie->values));
            ATTN_TEXT_TRY(attn_pairmap_put(&trie->edges, key, next));
            trie->values[trie->n_nodes++] = -1;
        }
        node = next;
    }
    if (len)
        trie->first[(unsigned char)text[0]] = true;
    trie->values[node] = value;
    return ATTN_OK;
}

int32_t attn_trie_longest(const attn_trie *trie, const char *text, size_t len, size_t *matched)
{
    int32_t best = -1;
    uint64_t node = 0;
    for (size_t i = 0; i < len; i++) {
        node = attn_pairmap_get(&trie->edges, node << 8 | (unsigned char)text[i]);
        if (node == UINT64_MAX)
            break;
        if (trie->values[node] >= 0) {
            best = trie->values[node];
            *matched = i + 1;
        }
    }
    return best;
}

void attn_trie_free(attn_trie *trie)
{
    attn_pairmap_free(&trie->edges);
    free(trie->values);
    memset(trie, 0, sizeof *trie);
}
