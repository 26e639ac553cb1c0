/* gguf_names.c - tables of names, one for each kind of architecture. %d stands for the layer;
 * ".weight" and ".bias" at the end stay as they are. */
#include "io/gguf_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/io_error.h"

typedef struct name_pair {
    const char *gguf, *hf;
    enum attn_gguf_layout layout;
} name_pair;

/* In GGUF's llama the rows of query and key stand in another order than in the checkpoint; qwen's
 * do not. */
#define LLAMA_NAMES(query_layout, key_layout)                                                      \
    {"token_embd", "model.embed_tokens", ATTN_GGUF_SAME},                                          \
        {"output_norm", "model.norm", ATTN_GGUF_SAME}, {"output", "lm_head", ATTN_GGUF_SAME},      \
        {"blk.%d.attn_norm", "model.layers.%d.input_layernorm", ATTN_GGUF_SAME},                   \
        {"blk.%d.attn_q", "model.layers.%d.self_attn.q_proj", query_layout},                       \
        {"blk.%d.attn_k", "model.layers.%d.self_attn.k_proj", key_layout},                         \
        {"blk.%d.attn_v", "model.layers.%d.self_attn.v_proj", ATTN_GGUF_SAME},                     \
        {"blk.%d.attn_output", "model.layers.%d.self_attn.o_proj", ATTN_GGUF_SAME},                \
        {"blk.%d.attn_q_norm", "model.layers.%d.self_attn.q_norm", ATTN_GGUF_SAME},                \
        {"blk.%d.attn_k_norm", "model.layers.%d.self_attn.k_norm", ATTN_GGUF_SAME},                \
        {"blk.%d.ffn_norm", "model.layers.%d.post_attention_layernorm", ATTN_GGUF_SAME},           \
        {"blk.%d.ffn_gate", "model.layers.%d.mlp.gate_proj", ATTN_GGUF_SAME},                      \
        {"blk.%d.ffn_up", "model.layers.%d.mlp.up_proj", ATTN_GGUF_SAME},                          \
        {"blk.%d.ffn_down", "model.layers.%d.mlp.down_proj", ATTN_GGUF_SAME},                      \
    {                                                                                              \
        NULL, NULL, ATTN_GGUF_SAME                                                                 \
    }

static const name_pair llama_names[] = {LLAMA_NAMES(ATTN_GGUF_ROPE_QUERY, ATTN_GGUF_ROPE_KEY)};
static const name_pair qwen_names[] = {LLAMA_NAMES(ATTN_GGUF_SAME, ATTN_GGUF_SAME)};

static const name_pair gpt2_names[] = {
    {"token_embd", "transformer.wte", ATTN_GGUF_SAME},
    {"position_embd", "transformer.wpe", ATTN_GGUF_SAME},
    {"output_norm", "transformer.ln_f", ATTN_GGUF_SAME},
    {"output", "lm_head", ATTN_GGUF_SAME},
    {"blk.%d.attn_norm", "transformer.h.%d.ln_1", ATTN_GGUF_SAME},
    {"blk.%d.attn_qkv", "transformer.h.%d.attn.c_attn", ATTN_GGUF_TRANSPOSED},
    {"blk.%d.attn_output", "transformer.h.%d.attn.c_proj", ATTN_GGUF_TRANSPOSED},
    {"blk.%d.ffn_norm", "transformer.h.%d.ln_2", ATTN_GGUF_SAME},
    {"blk.%d.ffn_up", "transformer.h.%d.mlp.c_fc", ATTN_GGUF_TRANSPOSED},
    {"blk.%d.ffn_down", "transformer.h.%d.mlp.c_proj", ATTN_GGUF_TRANSPOSED},
    {NULL, NULL, ATTN_GGUF_SAME},
};

static const name_pair bert_names[] = {
    {"token_embd", "embeddings.word_embeddings", ATTN_GGUF_SAME},
    {"token_types", "embeddings.token_type_embeddings", ATTN_GGUF_SAME},
    {"position_embd", "embeddings.position_embeddings", ATTN_GGUF_SAME},
    {"token_embd_norm", "embeddings.LayerNorm", ATTN_GGUF_SAME},
    {"blk.%d.attn_q", "encoder.layer.%d.attention.self.query", ATTN_GGUF_SAME},
    {"blk.%d.attn_k", "encoder.layer.%d.attention.self.key", ATTN_GGUF_SAME},
    {"blk.%d.attn_v", "encoder.layer.%d.attention.self.value", ATTN_GGUF_SAME},
    {"blk.%d.attn_output", "encoder.layer.%d.attention.output.dense", ATTN_GGUF_SAME},
    {"blk.%d.attn_output_norm", "encoder.layer.%d.attention.output.LayerNorm", ATTN_GGUF_SAME},
    {"blk.%d.ffn_up", "encoder.layer.%d.intermediate.dense", ATTN_GGUF_SAME},
    {"blk.%d.ffn_down", "encoder.layer.%d.output.dense", ATTN_GGUF_SAME},
    {"blk.%d.layer_output_norm", "encoder.layer.%d.output.LayerNorm", ATTN_GGUF_SAME},
    {NULL, NULL, ATTN_GGUF_SAME},
};

static const struct {
    const char *architecture;
    const name_pair *names;
} tables[] = {
    {"llama", llama_names}, {"qwen2", qwen_names}, {"qwen3", qwen_names},
    {"gpt2", gpt2_names},   {"bert", bert_names},
};

/* Compares a pattern with the first `length` bytes of text; *layer is the number that stood for %d,
 * -1 without one. */
static bool matches(const char *pattern, const char *text, size_t length, int *layer)
{
    size_t at = 0;
    *layer = -1;
    for (; *pattern; pattern++) {
        if (pattern[0] != '%') {
            if (at >= length || text[at++] != *pattern)
                return false;
            continue;
        }
        size_t start = at;
        *layer = 0;
        for (; at < length && text[at] >= '0' && text[at] <= '9' && at - start < 6; at++)
            *layer = 10 * *layer + (text[at] - '0');
        if (at == start || (text[start] == '0' && at > start + 1))
            return false; /* no number, or one that would not come out as it went in */
        pattern++;
    }
    return at == length;
}

/* The translated name: a prefix of the pattern, the layer, the rest, and the ending. */
static void write_name(const char *pattern, int layer, const char *ending, char *out, size_t size)
{
    const char *mark = strchr(pattern, '%');
    if (mark)
        snprintf(out, size, "%.*s%d%s%s", (int)(mark - pattern), pattern, layer, mark + 2, ending);
    else
        snprintf(out, size, "%s%s", pattern, ending);
}

attn_status attn_gguf_hf_name(attn_gguf_string architecture, const char *tensor,
                              char name[ATTN_GGUF_HF_NAME], enum attn_gguf_layout *layout,
                              char *error, size_t error_size)
{
    const name_pair *names = NULL;
    char shown[64];
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (architecture.length == strlen(tables[i].architecture) &&
            !memcmp(architecture.text, tables[i].architecture, architecture.length))
            names = tables[i].names;
    attn_io_printable(architecture.text, architecture.length, shown, sizeof shown);
    if (!names)
        return attn_io_fail(error, error_size, ATTN_ERR_UNSUPPORTED,
                            "general.architecture: '%s' cannot be converted", shown);
    const char *dot = strrchr(tensor, '.');
    bool weight = dot && !strcmp(dot, ".weight"), bias = dot && !strcmp(dot, ".bias");
    for (; (weight || bias) && names->gguf; names++) {
        int layer;
        if (!matches(names->gguf, tensor, (size_t)(dot - tensor), &layer))
            continue;
        write_name(names->hf, layer, dot, name, ATTN_GGUF_HF_NAME);
        *layout = bias && names->layout == ATTN_GGUF_TRANSPOSED ? ATTN_GGUF_SAME : names->layout;
        return ATTN_OK;
    }
    return attn_io_fail(error, error_size, ATTN_ERR_UNSUPPORTED,
                        "tensor '%s': has no counterpart in a checkpoint of %s", tensor, shown);
}
