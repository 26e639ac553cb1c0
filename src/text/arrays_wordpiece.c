/* arrays_wordpiece.c - WordPiece vocabularies of GGUF files ("bert"). Their pieces are not spelled as BERT spells them: what
 * begins a word has U+2581 in front, and what goes on has nothing. Here they get BERT's spelling back. */
#include "text/tokenizer_arrays.h"

#define MARK "\xe2\x96\x81"

/* BERT's spelling of a token: without the mark, or with ## in front; special tokens as they are. */
attn_status attn_arrays_bert_spelling(const attn_text *token, int32_t type, attn_strbuf *out)
{
    out->len = 0;
    bool marked = token->size > 3 && !memcmp(token->data, MARK, 3);
    if (marked)
        return attn_strbuf_add(out, token->data + 3, token->size - 3);
    bool special = type != 1 || (token->size > 2 && token->data[0] == '[' && token->data[token->size - 1] == ']');
    if (!special)
        ATTN_TEXT_TRY(attn_strbuf_add(out, "##", 2));
    return attn_strbuf_add(out, token->data, token->size);
}

attn_status attn_arrays_wordpiece(attn_tokenizer *tokenizer, const attn_tokenizer_arrays *arrays)
{
    tokenizer->model = ATTN_MODEL_WORDPIECE;
    tokenizer->wordpiece.unk_entry = arrays->unk_id >= 0 ? arrays->unk_id : ATTN_UNK_MISSING;
    tokenizer->wordpiece.max_chars = 100;
    ATTN_TEXT_TRY(attn_wordpiece_prepare(tokenizer, (attn_text){"##", 2}));
    attn_step *step = attn_steps_add(&tokenizer->normalizers, ATTN_STEP_BERT);
    if (!step)
        return ATTN_ERR_OUT_OF_MEMORY;
    step->clean_text = step->chinese = true;
    step->lowercase = step->strip_accents = arrays->lowercase != 0;
    step = attn_steps_add(&tokenizer->decoders, ATTN_STEP_WORDPIECE);
    if (!step || !attn_steps_add(&tokenizer->splitters, ATTN_STEP_BERT_SPLIT))
        return ATTN_ERR_OUT_OF_MEMORY;
    step->cleanup = tokenizer->has_decoder = true;
    return attn_strbuf_add(&step->content, "##", 2);
}
