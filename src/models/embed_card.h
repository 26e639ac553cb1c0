/* embed_card.h - what the files of a model say about the vectors of texts. */
#ifndef ATTN_MODELS_EMBED_CARD_H
#define ATTN_MODELS_EMBED_CARD_H

#include <stdint.h>
#include "models/model_source.h"

typedef struct attn_embed_card {
    int32_t pooling;             /* ATTN_POOL_MEAN or one of those behind it */
    char refused[128];           /* the entry that is not served; "": all is */
    int64_t max_tokens;          /* of a text that are read; 0: not said */
    char *prompt, *query_prompt; /* what stands before a text, and before the query of a search; NULL: nothing */
} attn_embed_card;

/* Reads 1_Pooling/config.json, modules.json, sentence_bert_config.json, tokenizer_config.json and
 * config_sentence_transformers.json, or a GGUF file's pooling_type. ATTN_ERR_OUT_OF_MEMORY at worst; free it anyway. */
attn_status attn_embed_card_read(const attn_model_source *source, attn_embed_card *card);
void attn_embed_card_free(attn_embed_card *card);

#endif
