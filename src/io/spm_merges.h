/* spm_merges.h - the merges that a SentencePiece vocabulary stands for.
 *
 * SentencePiece joins, again and again, the two neighbours whose joined piece has the highest score. The same comes out of BPE whose
 * merges are all ways to cut a piece into two pieces of the vocabulary, ordered by the whole's score; Hugging Face's converter
 * takes the same.
 */
#ifndef ATTN_IO_SPM_MERGES_H
#define ATTN_IO_SPM_MERGES_H

#include <stdbool.h>
#include "attn/attn.h"

typedef struct attn_spm_merge {
    double score;
    size_t token;     /* the whole */
    const char *text; /* of the whole, not terminated; the vocabulary's */
    size_t length, left; /* bytes of it, and of its left part */
} attn_spm_merge;

typedef struct attn_spm_vocabulary {
    const void *user;
    size_t n;
    /* Text, length and score of token i. False: it takes no part. */
    bool (*token)(const void *user, size_t i, attn_spm_merge *whole);
    bool (*known)(const void *user, const char *text, size_t length);
    const char *names[2]; /* of tokens and scores, for messages */
} attn_spm_vocabulary;

/* *merges (malloc) in order, the best first: higher scores, then lower tokens, then the longer left part. NULL, 0 on an error. */
attn_status attn_spm_merges(const attn_spm_vocabulary *vocabulary, attn_spm_merge **merges, size_t *n, char *error,
                            size_t error_size);

#endif
