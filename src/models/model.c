/* model.c - loading, and what a model says about itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/context.h"
#include "core/cpu.h"
#include "io/io_error.h"
#include "models/model_internal.h"

/* Threads where nobody says: as a context would choose. */
static attn_status default_threads(int32_t given, int32_t *n_threads)
{
    attn_ctx_options options;
    attn_ctx *ctx;
    ATTN_ARGS_INIT(&options);
    options.n_threads = given;
    attn_status status = attn_ctx_create(&options, &ctx);
    if (status != ATTN_OK)
        return attn_model_fail(status, "%s", attn_ctx_error(NULL));
    *n_threads = attn_ctx_threads(ctx);
    attn_ctx_destroy(ctx);
    return ATTN_OK;
}

static void model_name(attn_model *model)
{
    attn_gguf_string text;
    const char *slash = strrchr(model->source.path, '/');
    const char *name = slash && slash[1] ? slash + 1 : model->source.path;
    if (model->source.gguf &&
        attn_gguf_get_string(model->source.gguf, "general.name", &text, NULL, 0) == ATTN_OK && text.length)
        attn_io_printable(text.text, text.length, model->name, sizeof model->name);
    else
        attn_io_printable(name, strlen(name), model->name, sizeof model->name);
}

/* "Q4_1 66%, Q8_0 34%": dtypes by bytes, the largest first, below half a percent left out. */
static void dtype_mix(attn_model *model)
{
    struct {
        const char *name;
        size_t bytes;
    } mix[48] = {{0}};
    size_t n = 0, total = 0, at = 0;
    for (int64_t i = 0; i < attn_source_count(&model->source); i++) {
        attn_source_tensor t;
        size_t j = 0;
        attn_source_at(&model->source, i, &t);
        while (j < n && strcmp(mix[j].name, t.dtype))
            j++;
        if (j == sizeof mix / sizeof *mix)
            continue;
        n = j == n ? n + 1 : n;
        mix[j].name = t.dtype;
        mix[j].bytes += t.bytes;
        total += t.bytes;
    }
    for (size_t round = 0; round < n; round++) {
        size_t best = 0;
        for (size_t j = 1; j < n; j++)
            best = mix[j].bytes > mix[best].bytes ? j : best;
        const double percent = 100.0 * (double)mix[best].bytes / (double)(total ? total : 1);
        if (round && percent < 0.5)
            break;
        int written = snprintf(model->mix + at, sizeof model->mix - at, "%s%s %.0f%%", at ? ", " : "", mix[best].name,
                               percent);
        at += written > 0 ? (size_t)written : 0;
        if (at >= sizeof model->mix)
            break;
        mix[best].bytes = 0;
    }
}

static void count_linear(attn_model *m, const attn_linear *l)
{
    m->n_parameters += l->w.n_in * l->w.n_out + (l->bias ? l->w.n_out : 0);
    m->weight_bytes += (int64_t)l->bytes + (l->bias ? l->w.n_out * 4 : 0);
}

static void count_vector(attn_model *m, const float *p, int64_t n)
{
    m->n_parameters += p ? n : 0;
    m->weight_bytes += p ? n * 4 : 0;
}

static void count_norm(attn_model *m, const attn_norm *norm, int64_t n)
{
    count_vector(m, norm->weight, n);
    count_vector(m, norm->bias, n);
}

static void count_attention(attn_model *m, const attn_attention_weights *a)
{
    const attn_linear *linears[] = {&a->q, &a->k, &a->v, &a->o};
    for (int i = 0; i < 4; i++)
        count_linear(m, linears[i]);
    count_norm(m, &a->q_norm, a->q_norm_dim);
    count_norm(m, &a->k_norm, a->k_norm_dim);
    count_vector(m, a->sinks, m->d.n_heads);
}

static void count_stack(attn_model *m, const attn_stack_weights *stack)
{
    const int64_t dm = m->d.d_model;
    for (int64_t i = 0; i < stack->n_layers; i++) {
        const attn_layer_weights *w = &stack->layers[i];
        const attn_norm *norms[] = {&w->norm1, &w->post1, &w->norm2, &w->post2, &w->norm_cross};
        const attn_linear *linears[] = {&w->gate, &w->up, &w->down, &w->router};
        for (int j = 0; j < 5; j++)
            count_norm(m, norms[j], dm);
        for (int j = 0; j < 4; j++)
            count_linear(m, linears[j]);
        count_attention(m, &w->self);
        count_attention(m, &w->cross);
        for (int64_t e = 0; w->expert_down && e < m->d.mlp.n_experts; e++) {
            count_linear(m, &w->expert_gate[e]);
            count_linear(m, &w->expert_up[e]);
            count_linear(m, &w->expert_down[e]);
        }
    }
    count_vector(m, stack->positions, m->d.position_rows * dm);
    count_norm(m, &stack->embedding_norm, dm);
    count_norm(m, &stack->final_norm, dm);
    count_vector(m, stack->relative, m->d.relative_buckets * m->d.n_heads);
}

static void count_all(attn_model *m)
{
    const int64_t dm = m->d.d_model;
    const attn_linear *linears[] = {&m->w.embedding, &m->w.transform,  &m->w.head,
                                    &m->w.pooler,    &m->w.project_in, &m->w.project_out, &m->w.patches};
    for (int i = 0; i < 7; i++)
        count_linear(m, linears[i]);
    if (m->w.table.data) {
        m->n_parameters += m->d.vocab_size * attn_embedding_dim(&m->d);
        m->weight_bytes += (int64_t)m->w.table.bytes;
    }
    count_vector(m, m->w.types, m->d.n_types * dm);
    count_norm(m, &m->w.transform_norm, dm);
    count_vector(m, m->w.head_bias, m->d.vocab_size);
    count_vector(m, m->w.class_token, dm);
    count_stack(m, &m->w.stack);
    count_stack(m, &m->w.encoder);
}

/* The description from the files, and what cannot be known before the tensors are seen. */
static attn_status describe(attn_model *model, const attn_family **family, char *error, size_t size)
{
    attn_description *d = &model->d;
    d->bos_id = d->pad_id = d->decoder_start_id = d->forced_bos_id = -1;
    attn_status status = attn_family_of(&model->source, family, d->family, sizeof d->family, error, size);
    if (status != ATTN_OK)
        return status;
    const json_t *quantised = json_object_get(model->source.config, "quantization_config");
    if (json_is_object(quantised)) { /* GPTQ, AWQ, FP8, MXFP4, ...: tensors that need scales beside them */
        const char *method = json_string_value(json_object_get(quantised, "quant_method"));
        return attn_io_fail(error, size, ATTN_ERR_UNSUPPORTED,
                            "config.json: quantization_config: quant_method \"%.40s\" is not served (GGUF files may be quantised)",
                            method ? method : "?");
    }
    status = (*family)->describe(&model->source, d, error, size);
    if (status != ATTN_OK)
        return status;
    return attn_family_complete(&model->source, *family, d, error, size);
}

static attn_status load(attn_model *model, const char *path, const attn_model_options *options)
{
    char *error = attn_model_error_buffer();
    const attn_family *family;
    attn_load_options load_options = {.weights = options->weights, .progress = options->progress,
                                      .progress_user = options->progress_user};
    load_options.act_i8 = options->flags & ATTN_LOAD_ACT_I8 ? 1 : 0;
    load_options.act_bf16 = options->flags & ATTN_LOAD_ACT_BF16 ? 1 : 0;
    model->short_acts = load_options.act_i8 || load_options.act_bf16;
    ATTN_TRY(default_threads(options->n_threads, &load_options.n_threads));
    ATTN_TRY(attn_source_open(path, &model->source, error, ATTN_MODEL_ERROR_BYTES));
    ATTN_TRY(describe(model, &family, error, ATTN_MODEL_ERROR_BYTES));
    ATTN_TRY(attn_weights_load(&model->source, family, &model->d, &load_options, &model->w, error,
                               ATTN_MODEL_ERROR_BYTES));
    if (!(options->flags & ATTN_LOAD_NO_TOKENIZER))
        ATTN_TRY(attn_model_load_tokenizer(&model->source, &model->tokenizer, error, ATTN_MODEL_ERROR_BYTES));
    if (attn_embed_card_read(&model->source, &model->card) != ATTN_OK)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    model_name(model);
    dtype_mix(model);
    count_all(model);
    return ATTN_OK;
}

attn_status attn_model_load(const char *path, const attn_model_options *options, attn_model **model)
{
    attn_model_options given;
    ATTN_ARGS_INIT(&given);
    ATTN_MODEL_REQUIRE(model, "model is NULL");
    *model = NULL;
    ATTN_MODEL_REQUIRE(path && *path, "path is empty");
    if (options)
        ATTN_TRY(attn_model_args(&given, sizeof given, options, "options"));
    ATTN_MODEL_REQUIRE(given.weights >= ATTN_WEIGHTS_AS_STORED && given.weights <= ATTN_WEIGHTS_I8,
                       "options.weights is %d", given.weights);
    ATTN_MODEL_REQUIRE(!(given.flags & ATTN_LOAD_ACT_I8) || given.weights == ATTN_WEIGHTS_AS_STORED ||
                           given.weights == ATTN_WEIGHTS_I8,
                       "options.weights is %d; 8-bit activations go with stored or 8-bit weights", given.weights);
    ATTN_MODEL_REQUIRE(!(given.flags & ATTN_LOAD_ACT_BF16) || given.weights == ATTN_WEIGHTS_AS_STORED ||
                           given.weights == ATTN_WEIGHTS_BF16,
                       "options.weights is %d; bf16 activations go with stored or bf16 weights", given.weights);
    ATTN_MODEL_REQUIRE(!(given.flags & ATTN_LOAD_ACT_BF16) || !(given.flags & ATTN_LOAD_ACT_I8),
                       "options.flags is 0x%x: activations of 8 bits and of bf16", given.flags);
    if (given.flags & ~(uint32_t)(ATTN_LOAD_NO_TOKENIZER | ATTN_LOAD_ACT_I8 | ATTN_LOAD_ACT_BF16))
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "options.flags is 0x%x", given.flags);
    attn_model *loaded = calloc(1, sizeof *loaded);
    if (!loaded)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
    loaded->n_threads = given.n_threads;
    attn_status status = load(loaded, path, &given);
    if (status != ATTN_OK)
        attn_model_destroy(loaded);
    else
        *model = loaded;
    return status;
}

void attn_model_destroy(attn_model *model)
{
    if (!model)
        return;
    attn_weights_destroy(&model->w);
    attn_model_free_tokenizer(model->tokenizer);
    attn_source_close(&model->source);
    attn_embed_card_free(&model->card);
    free(model->d.windowed);
    free(model->d.rope.divisors);
    free(model->d.local_rope.divisors);
    free(model);
}

attn_status attn_model_get_info(const attn_model *model, attn_model_info *info)
{
    ATTN_MODEL_REQUIRE(model, "model is NULL");
    ATTN_MODEL_REQUIRE(info, "info is NULL");
    attn_model_info all;
    ATTN_TRY(attn_model_args(&all, sizeof all, info, "info"));
    const size_t size = info->struct_size;
    const attn_description *d = &model->d;
    ATTN_ARGS_INIT(&all);
    all.struct_size = size;
    all.family = d->family;
    all.name = model->name;
    all.file_format = model->source.gguf ? "gguf" : "safetensors";
    all.weights = model->mix;
    all.kind = d->kind;
    all.has_logits = d->has_logits;
    all.n_layers = d->n_layers;
    all.n_encoder_layers = d->kind == ATTN_MODEL_DECODER ? 0 : d->kind == ATTN_MODEL_ENCODER ? d->n_layers
                                                                                            : d->n_encoder_layers;
    all.d_model = d->d_model;
    all.d_ff = d->d_ff;
    all.n_heads = d->n_heads;
    all.n_kv_heads = d->n_kv_heads;
    all.head_dim = all.value_dim = d->head_dim;
    all.vocab_size = d->vocab_size;
    all.context_length = d->context_length;
    all.window = d->window_two_sided ? 2 * d->window + 1 : d->window;
    all.n_parameters = model->n_parameters;
    all.weight_bytes = model->weight_bytes;
    all.cache_bytes_per_token =
        d->kind == ATTN_MODEL_ENCODER ? 0 : attn_kv_token_bytes(ATTN_F32, d->n_layers, d->n_kv_heads, d->head_dim);
    all.rope_base = d->position == ATTN_POSITION_ROPE ? d->rope.base : 0;
    all.embed_tokens = model->card.max_tokens;
    all.embed_prompt = model->card.prompt ? model->card.prompt : "";
    all.query_prompt = model->card.query_prompt ? model->card.query_prompt : "";
    memcpy(info, &all, size < sizeof all ? size : sizeof all);
    return ATTN_OK;
}

int64_t attn_model_tensor_count(const attn_model *model)
{
    return model ? attn_source_count(&model->source) : 0;
}

attn_status attn_model_get_tensor(const attn_model *model, int64_t index, attn_tensor_info *info)
{
    ATTN_MODEL_REQUIRE(model && info, "model or info is NULL");
    return attn_source_tensor_info(&model->source, index, info);
}

void attn_model_embedding(const attn_model *model, int64_t token, float *out)
{
    const attn_weights *w = &model->w;
    const int64_t columns = attn_embedding_dim(&model->d);
    if (w->embedding.w.values)
        attn_linear_row(&w->embedding, token, out);
    else /* type and shape were checked when it was loaded */
        attn_source_read(&w->table, token * columns, columns, out, NULL, 0);
}

attn_status attn_model_weight_rows(const attn_model *model, int32_t weight, int64_t layer, int64_t first_row,
                                   int64_t n_rows, float *out)
{
    ATTN_MODEL_REQUIRE(model && (out || n_rows == 0), "model or out is NULL");
    const attn_weights *w = &model->w;
    const bool in_layer = weight >= ATTN_WEIGHT_Q && weight <= ATTN_WEIGHT_O;
    ATTN_MODEL_REQUIRE(!in_layer || (layer >= 0 && layer < model->d.n_layers), "layer is %lld of %lld",
                       (long long)layer, (long long)model->d.n_layers);
    if (weight == ATTN_WEIGHT_FINAL_NORM) {
        if (!w->stack.final_norm.weight)
            return attn_model_fail(ATTN_ERR_UNSUPPORTED, "the %s family has no final norm", model->d.family);
        ATTN_MODEL_REQUIRE(first_row == 0 && n_rows == 1, "row %lld of 1", (long long)first_row);
        for (int64_t i = 0; i < model->d.d_model; i++)
            out[i] = w->stack.final_norm.weight[i] + model->d.norm.offset;
        return ATTN_OK;
    }
    if (model->d.embedding_dim && (weight == ATTN_WEIGHT_EMBEDDING || weight == ATTN_WEIGHT_LM_HEAD))
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "the embedding has %lld columns, not d_model",
                               (long long)model->d.embedding_dim);
    if (weight == ATTN_WEIGHT_EMBEDDING && model->d.no_tokens)
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "the %s family has no embedding", model->d.family);
    if (weight == ATTN_WEIGHT_EMBEDDING) {
        ATTN_MODEL_REQUIRE(first_row >= 0 && n_rows >= 0 && first_row <= model->d.vocab_size - n_rows,
                           "rows %lld + %lld of %lld", (long long)first_row, (long long)n_rows,
                           (long long)model->d.vocab_size);
        for (int64_t r = 0; r < n_rows; r++)
            attn_model_embedding(model, first_row + r, out + r * model->d.d_model);
        return ATTN_OK;
    }
    const attn_attention_weights *a = in_layer ? &w->stack.layers[layer].self : NULL;
    const attn_linear *head = model->d.tied ? &w->embedding : &w->head;
    const attn_linear *matrices[] = {&w->embedding, model->d.has_logits ? head : NULL, in_layer ? &a->q : NULL,
                                     in_layer ? &a->k : NULL, in_layer ? &a->v : NULL, in_layer ? &a->o : NULL};
    ATTN_MODEL_REQUIRE(weight >= 0 && weight <= ATTN_WEIGHT_O, "weight is %d", weight);
    const attn_linear *matrix = matrices[weight];
    if (!matrix || !matrix->w.values)
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "the %s family has no such matrix (weight %d)", model->d.family,
                               weight);
    ATTN_MODEL_REQUIRE(first_row >= 0 && n_rows >= 0 && first_row <= matrix->w.n_out - n_rows,
                       "rows %lld + %lld of %lld", (long long)first_row, (long long)n_rows,
                       (long long)matrix->w.n_out);
    for (int64_t r = 0; r < n_rows; r++)
        attn_linear_row(matrix, first_row + r, out + r * matrix->w.n_in);
    return ATTN_OK;
}
