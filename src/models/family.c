/* family.c - which family a file belongs to. */
#include "models/family.h"
#include <stdio.h>
#include <string.h>
#include "core/context.h"
#include "io/io_error.h"

#define NAME_BYTES 192

static const attn_family *const families[] = {
    &attn_family_llama, &attn_family_gpt2,     &attn_family_bert,    &attn_family_distilbert, &attn_family_gemma,
    &attn_family_opt,   &attn_family_gpt_neox, &attn_family_gpt_oss, &attn_family_t5,
    &attn_family_modernbert, &attn_family_torch, &attn_family_vaswani, &attn_family_vit, &attn_family_bart};

static bool listed(const char *const *list, const char *name)
{
    for (; list && *list; list++)
        if (!strcmp(*list, name))
            return true;
    return false;
}

attn_status attn_family_of(const attn_model_source *source, const attn_family **family, char *name, size_t name_size,
                           char *error, size_t error_size)
{
    if (source->gguf) {
        attn_gguf_string text;
        attn_status status = attn_gguf_get_string(source->gguf, "general.architecture", &text, error, error_size);
        if (status != ATTN_OK)
            return status;
        attn_io_printable(text.text, text.length, name, name_size);
    } else {
        const char *text = json_string_value(json_object_get(source->config, "model_type"));
        if (!text)
            return attn_io_fail(error, error_size, ATTN_ERR_FORMAT, "config.json: model_type is missing");
        attn_io_printable(text, strlen(text), name, name_size);
    }
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (listed(source->gguf ? families[i]->gguf_architectures : families[i]->model_types, name)) {
            *family = families[i];
            return ATTN_OK;
        }
    return attn_io_fail(error, error_size, ATTN_ERR_UNSUPPORTED, "%s \"%s\" is not a family that is served",
                        source->gguf ? "general.architecture" : "model_type", name);
}

static const attn_weight_name *names_of(const attn_model_source *source, const attn_family *family)
{
    return source->gguf ? family->gguf_names : family->names;
}

static bool find_with(const attn_model_source *source, const attn_family *family, const char *prefix,
                      enum attn_slot slot, attn_source_tensor *t)
{
    char name[NAME_BYTES];
    for (const attn_weight_name *n = names_of(source, family); n && n->name; n++) {
        if (n->slot != slot)
            continue;
        snprintf(name, sizeof name, "%s%s%s", prefix, n->name, n->flags & ATTN_NAME_BARE ? "" : ".weight");
        if (attn_source_find(source, name, t) || attn_source_find(source, name + strlen(prefix), t))
            return true;
    }
    return false;
}

/* The prefix under which the embedding is found; the last one where it is not. */
const char *attn_family_prefix(const attn_model_source *source, const attn_family *family)
{
    const char *prefix = "";
    if (source->gguf)
        return prefix;
    for (const char *const *p = family->prefixes; *p; p++) {
        char name[NAME_BYTES];
        attn_source_tensor t;
        prefix = *p;
        for (const attn_weight_name *n = family->names; n->name; n++) {
            snprintf(name, sizeof name, "%s%s%s", prefix, n->name, n->flags & ATTN_NAME_BARE ? "" : ".weight");
            if ((n->slot == ATTN_SLOT_EMBEDDING || n->slot == ATTN_SLOT_CLASS_TOKEN) && attn_source_find(source, name, &t))
                return prefix;
        }
    }
    return prefix;
}

bool attn_family_find(const attn_model_source *source, const attn_family *family, enum attn_slot slot,
                      attn_source_tensor *tensor)
{
    return find_with(source, family, attn_family_prefix(source, family), slot, tensor);
}

/* config.json names a class that gives no logits over the vocabulary: LlamaModel, LlamaForSequenceClassification. */
static bool saved_without_head(const attn_model_source *source)
{
    static const char *const with_head[] = {"LMHead", "ForCausalLM", "ForMaskedLM", "ForConditionalGeneration", "ForPreTraining"};
    const char *name = json_string_value(json_array_get(json_object_get(source->config, "architectures"), 0));
    for (size_t i = 0; name && i < sizeof with_head / sizeof *with_head; i++)
        if (strstr(name, with_head[i]))
            return false;
    return name != NULL;
}

attn_status attn_family_complete(const attn_model_source *source, const attn_family *family, attn_description *d,
                                 char *error, size_t error_size)
{
    attn_source_tensor t;
    if (!source->gguf && !names_of(source, family))
        return attn_io_fail(error, error_size, ATTN_ERR_UNSUPPORTED, "%s is not served as safetensors", d->family);
    if (source->gguf && !names_of(source, family))
        return attn_io_fail(error, error_size, ATTN_ERR_UNSUPPORTED, "%s is not served as GGUF", d->family);
    if (!d->vocab_size && !d->no_tokens) {
        if (!attn_family_find(source, family, ATTN_SLOT_EMBEDDING, &t))
            return attn_io_fail(error, error_size, ATTN_ERR_FORMAT, "the embedding tensor is missing");
        d->vocab_size = t.shape[0];
    }
    const bool head = attn_family_find(source, family, ATTN_SLOT_HEAD, &t);
    if (source->gguf && d->has_logits)
        d->tied = !head;
    else if (!d->tied && !head && saved_without_head(source))
        d->has_logits = false;
    else if (d->has_logits && !d->tied && !head)
        return attn_io_fail(error, error_size, ATTN_ERR_FORMAT,
                            "config.json: tie_word_embeddings is false, but the tensor of the head is missing");
    if (d->n_heads > 65536 || d->head_dim > 65536 || d->d_model < 1 || (d->vocab_size < 1 && !d->no_tokens) || d->d_ff < 1)
        return attn_io_fail(error, error_size, ATTN_ERR_FORMAT, "sizes of the model are out of range");
    if (!(d->norm.eps >= 0) || !(d->softcap >= 0) || !(d->final_softcap >= 0))
        return attn_io_fail(error, error_size, ATTN_ERR_FORMAT, "below 0: epsilon of norms %g, cap of scores %g, cap of logits %g",
                            d->norm.eps, d->softcap, d->final_softcap);
    if (d->mlp.n_experts && (d->mlp.experts_per_token < 1 || d->mlp.experts_per_token > d->mlp.n_experts ||
                             d->mlp.experts_per_token > 64))
        return attn_io_fail(error, error_size, ATTN_ERR_FORMAT, "config.json: %lld experts per token of %lld",
                            (long long)d->mlp.experts_per_token, (long long)d->mlp.n_experts);
    return ATTN_OK;
}
