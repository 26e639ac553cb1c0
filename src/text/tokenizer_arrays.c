/* tokenizer_arrays.c - tokenizers from the arrays of a GGUF file. */
#include "text/tokenizer_arrays.h"

#include <string.h>

#include "text/bytelevel.h"

/* How the text is split for each value of tokenizer.ggml.pre (a fact of the format's converters). */
typedef struct pre_tokenizer {
    const char *name;
    const char *patterns[3]; /* applied one after another, pieces isolated; NULL: no more */
    bool ignore_merges;
} pre_tokenizer;

#define GPT2 attn_bytelevel_pattern
#define LLAMA3 attn_llama3_pattern
#define QWEN2 attn_qwen2_pattern

static const pre_tokenizer pre_tokenizers[] = {
    {"gpt-2", {GPT2, NULL, NULL}, false},     {"gpt2", {GPT2, NULL, NULL}, false},
    {"default", {GPT2, NULL, NULL}, false},   {"phi-2", {GPT2, NULL, NULL}, false},
    {"olmo", {GPT2, NULL, NULL}, false},      {"mpt", {GPT2, NULL, NULL}, false},
    {"roberta-bpe", {GPT2, NULL, NULL}, false}, {"jina-es", {GPT2, NULL, NULL}, false},
    {"jina-de", {GPT2, NULL, NULL}, false},   {"smollm", {"\\p{N}", GPT2, NULL}, false},
    {"starcoder", {"\\p{N}", GPT2, NULL}, false}, {"refact", {"\\p{N}", GPT2, NULL}, false},
    {"command-r", {"\\p{N}", GPT2, NULL}, false}, {"codeshell", {"\\p{N}", GPT2, NULL}, false},
    {"exaone", {"\\p{N}", GPT2, NULL}, false}, {"llama-bpe", {LLAMA3, NULL, NULL}, true},
    {"llama3", {LLAMA3, NULL, NULL}, true},   {"llama-v3", {LLAMA3, NULL, NULL}, true},
    {"dbrx", {LLAMA3, NULL, NULL}, false},    {"smaug-bpe", {LLAMA3, NULL, NULL}, false},
    {"qwen2", {QWEN2, NULL, NULL}, false},    {"stablelm2", {QWEN2, NULL, NULL}, false},
    {"deepseek-r1-qwen", {QWEN2, NULL, NULL}, false},
};

static const pre_tokenizer *find_pre(const char *name)
{
    if (!name || !*name)
        name = "gpt-2";
    for (size_t i = 0; i < sizeof pre_tokenizers / sizeof *pre_tokenizers; i++)
        if (!strcmp(pre_tokenizers[i].name, name))
            return &pre_tokenizers[i];
    return NULL;
}

static attn_status check_ids(const attn_tokenizer_arrays *arrays)
{
    const struct {
        const char *name;
        int32_t id;
    } ids[] = {{"bos_id", arrays->bos_id}, {"eos_id", arrays->eos_id}, {"unk_id", arrays->unk_id},
               {"pad_id", arrays->pad_id}, {"sep_id", arrays->sep_id}, {"cls_id", arrays->cls_id},
               {"mask_id", arrays->mask_id}};
    if (arrays->n_tokens < 1 || arrays->n_tokens > INT32_MAX || !arrays->tokens)
        return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "arrays.n_tokens is %lld", (long long)arrays->n_tokens);
    if (arrays->n_merges < 0 || (arrays->n_merges && !arrays->merges))
        return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "arrays.n_merges is %lld", (long long)arrays->n_merges);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i].id < -1 || ids[i].id >= arrays->n_tokens)
            return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "arrays.%s is %d; there are %lld tokens", ids[i].name,
                                  (int)ids[i].id, (long long)arrays->n_tokens);
    return ATTN_OK;
}

static attn_status add_tokens(attn_tokenizer *tokenizer, const attn_tokenizer_arrays *arrays, attn_strbuf *spelling)
{
    for (int64_t i = 0; i < arrays->n_tokens; i++) {
        const attn_text *token = &arrays->tokens[i];
        if (!token->data && token->size)
            return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "arrays.tokens[%lld].data is NULL", (long long)i);
        if (attn_utf8_valid_prefix(token->data, token->size) != token->size)
            return attn_text_fail(ATTN_ERR_FORMAT, "arrays.tokens[%lld] is not UTF-8", (long long)i);
        attn_text spelled = *token;
        if (arrays->model == ATTN_TOKENIZER_WORDPIECE) {
            ATTN_TEXT_TRY(attn_arrays_bert_spelling(token, arrays->token_types ? arrays->token_types[i] : 1, spelling));
            spelled = (attn_text){spelling->data, spelling->len};
        }
        ATTN_TEXT_TRY(attn_vocab_add(&tokenizer->vocab, spelled.data, spelled.size, (int32_t)i, NULL));
    }
    for (int64_t i = 0; arrays->token_types && i < arrays->n_tokens; i++) {
        int32_t type = arrays->token_types[i];
        if (type != 3 && type != 4)
            continue;
        attn_added_token added = {.entry = (int32_t)i, .special = type == 3};
        ATTN_TEXT_TRY(attn_added_add(tokenizer, &added));
        if (added.special && arrays->model == ATTN_TOKENIZER_SPM)
            tokenizer->vocab.entries[i].flags |= ATTN_TOKEN_OUTSIDE;
    }
    return ATTN_OK;
}

static attn_status add_merges(attn_tokenizer *tokenizer, const attn_tokenizer_arrays *arrays)
{
    ATTN_TEXT_TRY(attn_pairmap_reserve(&tokenizer->bpe.merges, (size_t)arrays->n_merges));
    for (int64_t i = 0; i < arrays->n_merges; i++) {
        const attn_text *merge = &arrays->merges[i];
        /* The separator is a blank, and a byte-level spelling has none; the search starts behind the first byte so that
         * no half is empty. */
        const char *blank = merge->data && merge->size > 2 ? memchr(merge->data + 1, ' ', merge->size - 2) : NULL;
        if (!blank)
            return attn_text_fail(ATTN_ERR_FORMAT, "arrays.merges[%lld] is not two tokens with a blank between", (long long)i);
        size_t left = (size_t)(blank - merge->data);
        ATTN_TEXT_TRY(attn_bpe_add_merge(&tokenizer->bpe, &tokenizer->vocab, merge->data, left, blank + 1,
                                         merge->size - left - 1, (size_t)i, "arrays.merges"));
    }
    return ATTN_OK;
}

static attn_status add_byte_level_steps(attn_tokenizer *tokenizer, const pre_tokenizer *pre)
{
    /* the file does not say so, but Qwen's vocabulary was learnt from composed characters */
    if (!strcmp(pre->name, "qwen2") && !attn_steps_add(&tokenizer->normalizers, ATTN_STEP_NFC))
        return ATTN_ERR_OUT_OF_MEMORY;
    for (int i = 0; i < 3 && pre->patterns[i]; i++) {
        attn_step *split = attn_steps_add(&tokenizer->splitters, ATTN_STEP_SPLIT);
        if (!split)
            return ATTN_ERR_OUT_OF_MEMORY;
        split->behavior = ATTN_BEHAVIOR_ISOLATED;
        split->fast = attn_fast_split_of(pre->patterns[i], strlen(pre->patterns[i]));
        ATTN_TEXT_TRY(attn_regex_create(pre->patterns[i], strlen(pre->patterns[i]), "arrays.pre", &split->regex));
    }
    tokenizer->has_decoder = true;
    return attn_steps_add(&tokenizer->splitters, ATTN_STEP_BYTE_LEVEL) &&
                   attn_steps_add(&tokenizer->decoders, ATTN_STEP_BYTE_LEVEL)
               ? ATTN_OK
               : ATTN_ERR_OUT_OF_MEMORY;
}

/* A template with one token in front and one behind each text, where the ids are not -1. */
static attn_status add_template(attn_tokenizer *tokenizer, int32_t front, int32_t behind, bool front_of_pair,
                                int32_t pair_type)
{
    attn_post *post;
    int32_t special[2] = {-1, -1};
    const int32_t ids[2] = {front, behind};
    ATTN_TEXT_TRY(attn_post_add(tokenizer, ATTN_POST_TEMPLATE, &post));
    for (int i = 0; i < 2; i++)
        if (ids[i] >= 0) {
            size_t len;
            const char *text = attn_vocab_text(&tokenizer->vocab, ids[i], &len);
            ATTN_TEXT_TRY(attn_post_special(post, text, len, &special[i]));
            if (!post->specials[special[i]].len)
                ATTN_TEXT_TRY(attn_post_special_id(&post->specials[special[i]], ids[i], text, len));
        }
    for (int pair = 0; pair < 2; pair++)
        for (int32_t sequence = 0; sequence <= pair; sequence++) {
            int32_t type = sequence ? pair_type : 0;
            if (special[0] >= 0 && (sequence == 0 || front_of_pair))
                ATTN_TEXT_TRY(attn_post_item(post, pair, -1, type, special[0]));
            ATTN_TEXT_TRY(attn_post_item(post, pair, sequence, type, -1));
            if (special[1] >= 0)
                ATTN_TEXT_TRY(attn_post_item(post, pair, -1, type, special[1]));
        }
    return ATTN_OK;
}

static attn_status build_byte_bpe(attn_tokenizer *tokenizer, const attn_tokenizer_arrays *arrays)
{
    const pre_tokenizer *pre = find_pre(arrays->pre);
    if (!pre)
        return attn_text_fail(ATTN_ERR_UNSUPPORTED, "arrays.pre is \"%.80s\", which is not known", arrays->pre);
    tokenizer->model = ATTN_MODEL_BPE;
    tokenizer->bpe.ignore_merges = pre->ignore_merges;
    ATTN_TEXT_TRY(add_merges(tokenizer, arrays));
    return add_byte_level_steps(tokenizer, pre);
}

static attn_status build_model(attn_tokenizer *tokenizer, const attn_tokenizer_arrays *arrays)
{
    switch (arrays->model) {
    case ATTN_TOKENIZER_BYTE_BPE:
        return build_byte_bpe(tokenizer, arrays);
    case ATTN_TOKENIZER_SPM:
        return attn_arrays_spm(tokenizer, arrays);
    case ATTN_TOKENIZER_WORDPIECE:
        return attn_arrays_wordpiece(tokenizer, arrays);
    default:
        return attn_text_fail(ATTN_ERR_UNSUPPORTED, "arrays.model is %d", (int)arrays->model);
    }
}

static attn_status build(attn_tokenizer *tokenizer, const attn_tokenizer_arrays *arrays)
{
    attn_strbuf spelling = {0};
    attn_status status = add_tokens(tokenizer, arrays, &spelling);
    attn_strbuf_free(&spelling);
    ATTN_TEXT_TRY(status);
    ATTN_TEXT_TRY(build_model(tokenizer, arrays));
    const int32_t ids[7] = {arrays->bos_id, arrays->eos_id, arrays->unk_id, arrays->pad_id,
                            arrays->sep_id, arrays->cls_id, arrays->mask_id};
    memcpy(tokenizer->special_ids, ids, sizeof ids);
    if (arrays->model == ATTN_TOKENIZER_WORDPIECE)
        ATTN_TEXT_TRY(add_template(tokenizer, arrays->cls_id, arrays->sep_id, false, 1));
    else
        ATTN_TEXT_TRY(add_template(tokenizer, arrays->add_bos ? arrays->bos_id : -1,
                                   arrays->add_eos ? arrays->eos_id : -1, true, 0));
    return attn_tokenizer_finish(tokenizer);
}

attn_status attn_tokenizer_from_arrays(const attn_tokenizer_arrays *arrays, attn_tokenizer **tokenizer)
{
    attn_text_clear_error();
    if (!arrays || !tokenizer)
        return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "%s is NULL", !arrays ? "arrays" : "tokenizer");
    *tokenizer = NULL;
    if (arrays->struct_size != sizeof *arrays) /* one version so far; ids have no zero that means "none" */
        return attn_text_fail(ATTN_ERR_INVALID_ARGUMENT, "arrays.struct_size is %zu, expected %zu", arrays->struct_size,
                              sizeof *arrays);
    ATTN_TEXT_TRY(check_ids(arrays));
    attn_tokenizer *made = attn_tokenizer_new();
    if (!made)
        return ATTN_ERR_OUT_OF_MEMORY;
    attn_status status = build(made, arrays);
    if (status != ATTN_OK) {
        attn_tokenizer_destroy(made);
        return status;
    }
    *tokenizer = made;
    return ATTN_OK;
}
