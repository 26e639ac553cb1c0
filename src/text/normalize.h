/* normalize.h - the larger normalisers. */
#ifndef ATTN_TEXT_NORMALIZE_H
#define ATTN_TEXT_NORMALIZE_H

#include "text/tokenizer_impl.h"

/* NFC (compose), NFD, NFKC (compose, compatible), NFKD over the work text: Unicode Standard Annex 15. */
attn_status attn_normalize_form(attn_scratch *scratch, bool compose, bool compatible);

/* SentencePiece's precompiled character map (step->content) over the work text, grapheme by grapheme. */
attn_status attn_precompiled(const attn_step *step, attn_scratch *scratch);

/* Checks the shape of such a map. */
attn_status attn_precompiled_check(const attn_strbuf *map);

#endif
