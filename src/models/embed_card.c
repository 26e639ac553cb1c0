/* embed_card.c - what a folder of sentence-transformers, or a GGUF file, says about the vectors of texts. */
#include "models/embed_card.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attn/model.h"

/* The field of 1_Pooling/config.json that is on; NULL: none. */
static const char *pooling_mode(json_t *config, const char **second)
{
    const char *key, *mode = json_string_value(json_object_get(config, "pooling_mode"));
    json_t *value;
    *second = NULL;
    json_object_foreach(config, key, value)
        if (!strncmp(key, "pooling_mode_", 13) && json_is_true(value)) {
            *second = mode;
            mode = key;
        }
    return mode;
}

static bool is_one_of(const char *text, const char *const *list)
{
    while (*list && strcmp(text, *list))
        list++;
    return *list != NULL;
}

/* A name of 1_Pooling/config.json, in its older and newer form; 0: not served. */
static int32_t pooling_of(const char *mode)
{
    static const struct {
        const char *older, *newer;
        int32_t pooling;
    } modes[] = {{"pooling_mode_mean_tokens", "mean", ATTN_POOL_MEAN},
                 {"pooling_mode_cls_token", "cls", ATTN_POOL_FIRST},
                 {"pooling_mode_max_tokens", "max", ATTN_POOL_MAX},
                 {"pooling_mode_lasttoken", "lasttoken", ATTN_POOL_LAST},
                 {"pooling_mode_weightedmean_tokens", "weightedmean", ATTN_POOL_WEIGHTED},
                 {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", ATTN_POOL_SQRT}};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(mode, modes[i].older) || !strcmp(mode, modes[i].newer))
            return modes[i].pooling;
    return 0;
}

/* pooling_type of llama.cpp: 0 where a file asks for none. */
static void read_gguf_pooling(const attn_model_source *source, attn_embed_card *card)
{
    static const char *const names[] = {"bert.pooling_type", "qwen2.pooling_type", "qwen3.pooling_type",
                                        "llama.pooling_type"};
    static const int32_t poolings[] = {ATTN_POOL_MEAN, ATTN_POOL_MEAN, ATTN_POOL_FIRST, ATTN_POOL_LAST};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int64_t kind;
        if (attn_gguf_get_i64(source->gguf, names[i], &kind, NULL, 0) != ATTN_OK)
            continue;
        if (kind >= 0 && kind < (int64_t)(sizeof poolings / sizeof *poolings))
            card->pooling = poolings[kind];
        else
            snprintf(card->refused, sizeof card->refused, "%s %lld", names[i], (long long)kind);
    }
}

static void read_pooling(const attn_model_source *source, attn_embed_card *card)
{
    static const char *const served[] = {"Transformer", "Pooling", "Normalize", "Dropout", NULL};
    json_t *modules = attn_source_side_file(source, "modules.json");
    json_t *config = attn_source_side_file(source, "1_Pooling/config.json");
    const char *second, *mode = pooling_mode(config, &second);
    card->pooling = mode ? pooling_of(mode) : ATTN_POOL_MEAN;
    if (source->gguf)
        read_gguf_pooling(source, card);
    if (second)
        snprintf(card->refused, sizeof card->refused, "1_Pooling/config.json: %.40s and %.40s together", second, mode);
    else if (!card->pooling)
        snprintf(card->refused, sizeof card->refused, "1_Pooling/config.json: %.40s", mode);
    for (size_t i = 0; !*card->refused && i < json_array_size(modules); i++) {
        const char *type = json_string_value(json_object_get(json_array_get(modules, i), "type"));
        const char *dot = type ? strrchr(type, '.') : NULL;
        if (type && !is_one_of(dot ? dot + 1 : type, served))
            snprintf(card->refused, sizeof card->refused, "modules.json: %.80s", type);
    }
    json_decref(modules);
    json_decref(config);
}

/* Texts end after so many tokens. Files of sentence-transformers 6 and up leave it to the tokenizer's settings. */
static int64_t read_max_tokens(const attn_model_source *source)
{
    json_t *own = attn_source_side_file(source, "sentence_bert_config.json");
    json_t *tokenizer = attn_source_side_file(source, "tokenizer_config.json");
    double most = json_number_value(json_object_get(own, "max_seq_length"));
    if (!(most > 0))
        most = json_number_value(json_object_get(tokenizer, "model_max_length"));
    json_decref(own);
    json_decref(tokenizer);
    return most >= 1 && most < 1 << 30 ? (int64_t)most : 0;
}

static attn_status copy_prompt(const json_t *prompts, const char *name, char **out)
{
    const char *text = name ? json_string_value(json_object_get(prompts, name)) : NULL;
    if (!text)
        return ATTN_OK;
    free(*out);
    *out = strdup(text);
    return *out ? ATTN_OK : ATTN_ERR_OUT_OF_MEMORY;
}

/* As encode() and encode_query() there: the prompt of default_prompt_name, and for a query the one named "query". */
static attn_status read_prompts(const attn_model_source *source, attn_embed_card *card)
{
    json_t *config = attn_source_side_file(source, "config_sentence_transformers.json");
    json_t *pooling = attn_source_side_file(source, "1_Pooling/config.json");
    const json_t *prompts = json_object_get(config, "prompts");
    const char *usual = json_string_value(json_object_get(config, "default_prompt_name"));
    attn_status status = copy_prompt(prompts, usual, &card->prompt);
    if (status == ATTN_OK)
        status = copy_prompt(prompts, usual, &card->query_prompt);
    if (status == ATTN_OK)
        status = copy_prompt(prompts, "query", &card->query_prompt);
    const bool given = (card->prompt && *card->prompt) || (card->query_prompt && *card->query_prompt);
    if (given && json_is_false(json_object_get(pooling, "include_prompt")) && !*card->refused)
        snprintf(card->refused, sizeof card->refused, "1_Pooling/config.json: include_prompt false");
    json_decref(config);
    json_decref(pooling);
    return status;
}

attn_status attn_embed_card_read(const attn_model_source *source, attn_embed_card *card)
{
    memset(card, 0, sizeof *card);
    read_pooling(source, card);
    card->max_tokens = read_max_tokens(source);
    return read_prompts(source, card);
}

void attn_embed_card_free(attn_embed_card *card)
{
    free(card->prompt);
    free(card->query_prompt);
}
