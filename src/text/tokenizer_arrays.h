/* tokenizer_arrays.h - the kinds of tokenizers that GGUF files hold. */
#ifndef ATTN_TEXT_TOKENIZER_ARRAYS_H
#define ATTN_TEXT_TOKENIZER_ARRAYS_H

#include "text/tokenizer_impl.h"

/* Set up the model and the steps; the vocabulary is there already. */
attn_status attn_arrays_spm(attn_tokenizer *tokenizer, const attn_tokenizer_arrays *arrays);
attn_status attn_arrays_wordpiece(attn_tokenizer *tokenizer, const attn_tokenizer_arrays *arrays);

/* Writes a token of a "bert" file as BERT spells it. */
attn_status attn_arrays_bert_spelling(const attn_text *token, int32_t type, attn_strbuf *out);

#endif
