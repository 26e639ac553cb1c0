/* spm_merges.c - pieces with scores as merges. */
#include "io/spm_merges.h"
#include <stdlib.h>
#include "io/io_error.h"

enum { LONGEST_PIECE = 512 }; /* bytes; the cuts of a piece are tried one by one */

static int by_score(const void *a, const void *b)
{
    const attn_spm_merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->token != y->token)
        return x->token < y->token ? -1 : 1;
    return x->left > y->left ? -1 : x->left < y->left;
}

static attn_status collect(const attn_spm_vocabulary *v, attn_spm_merge **merges, size_t *n, char *error, size_t error_size)
{
    size_t room = 0;
    for (size_t i = 0; i < v->n; i++) {
        attn_spm_merge m = {.token = i};
        if (!v->token(v->user, i, &m))
            continue;
        if (m.score != m.score)
            return attn_io_fail(error, error_size, ATTN_ERR_FORMAT, "%s[%zu] is not a number", v->names[1], i);
        if (m.length > LONGEST_PIECE)
            return attn_io_fail(error, error_size, ATTN_ERR_UNSUPPORTED, "%s[%zu] has %zu bytes, more than %d", v->names[0], i,
                                m.length, (int)LONGEST_PIECE);
        for (m.left = 1; m.left < m.length; m.left++) {
            if (((unsigned char)m.text[m.left] & 0xC0) == 0x80 || !v->known(v->user, m.text, m.left) ||
                !v->known(v->user, m.text + m.left, m.length - m.left))
                continue;
            if (*n == room) {
                room = room ? 2 * room : 1024;
                attn_spm_merge *larger = realloc(*merges, room * sizeof *larger);
                if (!larger)
                    return attn_io_no_memory(error, error_size, v->names[0]);
                *merges = larger;
            }
            (*merges)[(*n)++] = m;
        }
    }
    return ATTN_OK;
}

attn_status attn_spm_merges(const attn_spm_vocabulary *vocabulary, attn_spm_merge **merges, size_t *n, char *error,
                            size_t error_size)
{
    *merges = NULL;
    *n = 0;
    const attn_status status = collect(vocabulary, merges, n, error, error_size);
    if (status != ATTN_OK) {
        free(*merges);
        *merges = NULL;
        *n = 0;
    } else if (*n) {
        qsort(*merges, *n, sizeof **merges, by_score);
    }
    return status;
}
