/* load_weights.c - tensors of a file into the places that the description has for them: found by the family's names,
 * checked against the description's sizes, packed in parallel. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "io/dequant.h"
#include "core/context.h"
#include "core/cpu.h"
#include "io/io_error.h"
#include "models/family.h"
#include "models/linear_blocks.h"
#include "ops/nn/nn_parallel.h"

#define NAME_BYTES 192
#define PANELS_PER_TASK 8

typedef struct loader {
    const attn_model_source *source;
    const attn_description *d;
    const attn_load_options *options;
    attn_weights *weights;
    const char *prefix;
    int64_t total_bytes, done_bytes;
    char *error;
    size_t error_size;
} loader;

/* Rows of a layer's matrix inside a tensor. */
typedef struct piece {
    attn_source_tensor tensor;
    int64_t base;               /* elements before the matrix (experts) */
    int64_t first_row, n_in;
    int64_t group, group_stride; /* row r is stored row r / group * group_stride + first_row + r % group; 0: first_row + r */
    int64_t columns;            /* transposed: stored [n_in, columns], row r is column first_row + r * column_step */
    int64_t column_step;
} piece;

static void piece_row(void *arg, int64_t row, float *out)
{
    const piece *p = arg;
    const attn_source_tensor *t = &p->tensor;
    if (!p->columns) {
        int64_t stored = p->first_row + row;
        if (p->group)
            stored = row / p->group * p->group_stride + p->first_row + row % p->group;
        attn_source_read(t, p->base + stored * p->n_in, p->n_in, out, NULL, 0);
        return;
    }
    const int64_t column = p->base + p->first_row + row * p->column_step;
    for (int64_t k = 0; k < p->n_in; k++)
        if (t->ggml_type == ATTN_GGML_F32)
            memcpy(&out[k], t->data + (size_t)(column + k * p->columns) * 4, 4);
        else
            attn_source_read(t, column + k * p->columns, 1, &out[k], NULL, 0);
}

typedef struct pack_job {
    attn_linear *linear;
    const piece *piece;
} pack_job;

static void pack_task(void *arg, int64_t task)
{
    const pack_job *job = arg;
    const piece *p = job->piece;
    const int64_t panels = attn_panel_count(&job->linear->w), first = task * PANELS_PER_TASK;
    const int64_t count = panels - first < PANELS_PER_TASK ? panels - first : PANELS_PER_TASK;
    if (!p->columns && !p->group && p->tensor.ggml_type >= 0) {
        const attn_ggml_type_info *info = attn_ggml_type((uint32_t)p->tensor.ggml_type);
        const int64_t row_bytes = p->n_in / info->block_elements * info->block_bytes;
        const uint8_t *data = p->tensor.data + (p->base / p->n_in + p->first_row) * row_bytes;
        if (attn_linear_pack_blocks(job->linear, first, count, (uint32_t)p->tensor.ggml_type, data, row_bytes))
            return;
    }
    float *scratch = malloc((size_t)p->n_in * sizeof *scratch);
    if (scratch)
        attn_linear_pack_rows(job->linear, first, count, piece_row, (void *)(uintptr_t)p, scratch);
    else
        job->linear->w.n_out = 0; /* seen by pack() */
    free(scratch);
}

/* As the file holds it; f32 where weights are asked for in another type. */
static attn_linear_format stored_format(const loader *l, const piece *p)
{
    if (l->options->weights == ATTN_WEIGHTS_AS_STORED && p->tensor.ggml_type >= 0)
        return attn_linear_format_of((uint32_t)p->tensor.ggml_type, p->n_in);
    return (attn_linear_format){.format = ATTN_PANEL_F32};
}

/* For 8-bit activations: nibbles stay, blocks of 32 bytes keep their scales, anything else gets such blocks. Measured on
 * MiniLM, 40 passages: one scale for an output and a row leaves a cosine of 0.9953 (0.9971 in the mean), 0.9986 with activations in
 * blocks of 32, and 0.9991 by rounding weights alone; blocks of 32 on both sides, balanced, are above 0.999. */
static attn_linear_format dot_format(const loader *l, const piece *p)
{
    const attn_linear_format f = stored_format(l, p);
    if (f.format == ATTN_PANEL_U4)
        return f;
    if (f.format != ATTN_PANEL_I8)
        return (attn_linear_format){ATTN_PANEL_D8, 32, 0, 0};
    return (attn_linear_format){ATTN_PANEL_D8, 32, f.half_scales, f.has_min};
}

static attn_linear_format choose_format(const loader *l, const piece *p)
{
    if (l->options->act_i8)
        return dot_format(l, p);
    if (l->options->act_bf16) {
        const bool pairs = attn_cpu_has_isa(ATTN_ISA_AVX512BF16) || attn_cpu_has_isa(ATTN_ISA_NEONBF16);
        const attn_linear_format stored = stored_format(l, p);
        if (stored.format >= ATTN_PANEL_I8)
            return stored;
        return (attn_linear_format){.format = pairs ? ATTN_PANEL_P16 : ATTN_PANEL_BF16};
    }
    switch (l->options->weights) {
    case ATTN_WEIGHTS_F32:
        return (attn_linear_format){.format = ATTN_PANEL_F32};
    case ATTN_WEIGHTS_BF16:
        return (attn_linear_format){.format = ATTN_PANEL_BF16};
    case ATTN_WEIGHTS_I8:
        return (attn_linear_format){ATTN_PANEL_I8, 32, 0, 0};
    default:
        if (p->tensor.ggml_type < 0)
            return (attn_linear_format){.format = ATTN_PANEL_F32};
        return attn_linear_format_of((uint32_t)p->tensor.ggml_type, p->n_in);
    }
}

/* Matrices that get blocks of 8 bits here, for 8-bit activations, are balanced first; a file's own blocks stay as they are. */
static attn_status balance(loader *l, attn_linear *linear, const piece *p)
{
    if (linear->w.format != ATTN_PANEL_D8 || stored_format(l, p).format >= ATTN_PANEL_I8)
        return ATTN_OK;
    float *scratch = malloc((size_t)p->n_in * sizeof *scratch);
    const attn_status status =
        scratch ? attn_linear_balance(linear, piece_row, (void *)(uintptr_t)p, scratch) : ATTN_ERR_OUT_OF_MEMORY;
    free(scratch);
    return status == ATTN_OK ? status : attn_io_no_memory(l->error, l->error_size, p->tensor.name);
}

static attn_status pack(loader *l, attn_linear *linear, const piece *p, int64_t n_out)
{
    attn_status status = attn_linear_create_in(&l->weights->memory, linear, choose_format(l, p), p->n_in, n_out);
    if (status != ATTN_OK)
        return attn_io_fail(l->error, l->error_size, status, "tensor %s: no memory for %lld x %lld", p->tensor.name,
                            (long long)n_out, (long long)p->n_in);
    linear->act_i8 = l->options->act_i8;
    ATTN_TRY(balance(l, linear, p));
    pack_job job = {linear, p};
    attn_nn_for(l->options->n_threads, (attn_panel_count(&linear->w) + PANELS_PER_TASK - 1) / PANELS_PER_TASK,
                pack_task, &job);
    if (linear->w.n_out != n_out)
        return attn_io_no_memory(l->error, l->error_size, p->tensor.name);
    attn_source_release(l->source, &p->tensor); /* else the file's pages count beside the panels */
    return ATTN_OK;
}

/* ---- finding and checking ---- */

static void full_name(const loader *l, const attn_weight_name *n, int64_t layer, const char *end, char *out)
{
    char name[NAME_BYTES / 2];
    const char *percent = strstr(n->name, "%d");
    if (percent)
        snprintf(name, sizeof name, "%.*s%lld%s", (int)(percent - n->name), n->name, (long long)layer, percent + 2);
    else
        snprintf(name, sizeof name, "%s", n->name);
    const char *separator = n->flags & ATTN_NAME_UNDERSCORE && *end ? "_" : "";
    snprintf(out, NAME_BYTES, "%s%s%s%s", l->prefix, name, separator,
             n->flags & ATTN_NAME_BARE ? "" : *separator ? end + 1 : end);
}

/* The tensor with or without the prefix (heads stand beside the model); the first checkpoints of BERT have norms with gamma
 * and beta. */
static bool find_named(const loader *l, const attn_weight_name *n, int64_t layer, const char *end,
                       attn_source_tensor *t)
{
    char name[NAME_BYTES];
    const char *old = !strcmp(end, ".weight") ? ".gamma" : !strcmp(end, ".bias") ? ".beta" : NULL;
    full_name(l, n, layer, end, name);
    if (attn_source_find(l->source, name, t) || (*l->prefix && attn_source_find(l->source, name + strlen(l->prefix), t)))
        return true;
    return old && strstr(n->name, "LayerNorm") && find_named(l, n, layer, old, t);
}

static attn_status missing(loader *l, const attn_weight_name *n, int64_t layer)
{
    char name[NAME_BYTES];
    full_name(l, n, layer, ".weight", name);
    return attn_io_fail(l->error, l->error_size, ATTN_ERR_FORMAT, "tensor %s is missing", name);
}

static attn_status check_type(loader *l, const attn_source_tensor *t)
{
    float number;
    if (t->ggml_type >= 0 && attn_dequant_function((uint32_t)t->ggml_type))
        return ATTN_OK;
    if (t->ggml_type < 0 && attn_st_to_f32(t->st_dtype, t->data, 0, &number) == ATTN_OK)
        return ATTN_OK;
    return attn_io_fail(l->error, l->error_size, ATTN_ERR_UNSUPPORTED, "tensor %s: type %s is not served", t->name,
                        t->dtype);
}

static attn_status check_shape(loader *l, const attn_source_tensor *t, int64_t rows, int64_t columns)
{
    /* a convolution over patches has its columns in several axes */
    if (t->n_dims >= 2 && t->shape[0] == rows && t->elements == rows * columns && (t->n_dims == 2 || l->d->patch_size))
        return check_type(l, t);
    return attn_io_fail(l->error, l->error_size, ATTN_ERR_FORMAT,
                        "tensor %s has %d axes [%lld, %lld, ...], expected [%lld, %lld]", t->name, t->n_dims,
                        (long long)t->shape[0], (long long)t->shape[1], (long long)rows, (long long)columns);
}

static attn_status read_vector(loader *l, const attn_source_tensor *t, int64_t first, int64_t n, int64_t total,
                               float **out)
{
    if (t->elements != total)
        return attn_io_fail(l->error, l->error_size, ATTN_ERR_FORMAT, "tensor %s has %lld elements, expected %lld",
                            t->name, (long long)t->elements, (long long)total);
    attn_status status = check_type(l, t);
    if (status != ATTN_OK)
        return status;
    free(*out);
    *out = malloc((size_t)n * sizeof **out);
    if (!*out)
        return attn_io_no_memory(l->error, l->error_size, t->name);
    return attn_source_read(t, first, n, *out, l->error, l->error_size);
}

/* A bias of n_out values, from `first` on of `total`, with the layout of the rows; absent is fine. */
static attn_status load_bias(loader *l, const attn_weight_name *n, int64_t layer, const piece *p, int64_t total,
                             attn_linear *linear)
{
    attn_source_tensor t;
    const int64_t n_out = linear->w.n_out;
    if (n->flags & ATTN_NAME_BARE || !find_named(l, n, layer, ".bias", &t))
        return ATTN_OK;
    float *all = NULL;
    attn_status status = read_vector(l, &t, 0, total, total, &all);
    if (status == ATTN_OK) {
        linear->bias = malloc((size_t)n_out * sizeof(float));
        if (!linear->bias)
            status = attn_io_no_memory(l->error, l->error_size, t.name);
        for (int64_t r = 0; status == ATTN_OK && r < n_out; r++)
            linear->bias[r] =
                all[p->group ? r / p->group * p->group_stride + p->first_row + r % p->group : p->first_row + r];
    }
    free(all);
    return status;
}

static attn_status progress(loader *l, size_t bytes)
{
    l->done_bytes += (int64_t)bytes;
    if (l->options->progress && l->options->progress(l->options->progress_user, l->done_bytes, l->total_bytes))
        return attn_io_fail(l->error, l->error_size, ATTN_ERR_CANCELLED, "loading was cancelled");
    return ATTN_OK;
}

/* n_out rows of a matrix of total_rows, from first_row on. */
static attn_status load_part(loader *l, const attn_weight_name *n, int64_t layer, attn_linear *linear, int64_t n_out,
                             int64_t n_in, int64_t first_row, int64_t total_rows)
{
    piece p = {.n_in = n_in, .first_row = first_row};
    if (linear->w.values)
        return ATTN_OK; /* another name of the same slot was there */
    if (!find_named(l, n, layer, ".weight", &p.tensor))
        return n->flags & ATTN_NAME_OPTIONAL ? ATTN_OK : missing(l, n, layer);
    const bool transposed = n->flags & ATTN_NAME_TRANSPOSED && !l->source->gguf;
    ATTN_TRY(transposed ? check_shape(l, &p.tensor, n_in, total_rows) : check_shape(l, &p.tensor, total_rows, n_in));
    if (transposed) {
        p.columns = total_rows;
        p.column_step = 1;
    }
    ATTN_TRY(pack(l, linear, &p, n_out));
    ATTN_TRY(load_bias(l, n, layer, &p, total_rows, linear));
    return progress(l, p.tensor.bytes / (size_t)total_rows * (size_t)n_out);
}

static attn_status load_linear(loader *l, const attn_weight_name *n, int64_t layer, attn_linear *linear, int64_t n_out,
                               int64_t n_in)
{
    return load_part(l, n, layer, linear, n_out, n_in, 0, n_out);
}

/* q, k and v of each head one after the other: [heads][3][head_dim] rows. */
static attn_status load_qkv_heads(loader *l, const attn_weight_name *n, int64_t layer, attn_attention_weights *a)
{
    const attn_description *d = l->d;
    const int64_t rows = 3 * d->n_heads * d->head_dim;
    attn_linear *parts[3] = {&a->q, &a->k, &a->v};
    for (int64_t i = 0; i < 3; i++) {
        piece p = {.n_in = d->d_model, .first_row = i * d->head_dim, .group = d->head_dim,
                   .group_stride = 3 * d->head_dim};
        if (!find_named(l, n, layer, ".weight", &p.tensor))
            return missing(l, n, layer);
        ATTN_TRY(check_shape(l, &p.tensor, rows, d->d_model));
        ATTN_TRY(pack(l, parts[i], &p, d->n_heads * d->head_dim));
        ATTN_TRY(load_bias(l, n, layer, &p, rows, parts[i]));
        ATTN_TRY(progress(l, p.tensor.bytes / 3));
    }
    return ATTN_OK;
}

static attn_status load_vector(loader *l, const attn_weight_name *n, int64_t layer, int64_t size, float **out)
{
    attn_source_tensor t;
    if (!find_named(l, n, layer, ".weight", &t))
        return n->flags & ATTN_NAME_OPTIONAL || *out ? ATTN_OK : missing(l, n, layer);
    ATTN_TRY(read_vector(l, &t, 0, size, size, out));
    return progress(l, t.bytes);
}

static attn_status load_norm(loader *l, const attn_weight_name *n, int64_t layer, int64_t size, attn_norm *norm)
{
    attn_source_tensor t;
    if (l->d->plain_norms) {
        norm->weight = malloc((size_t)size * sizeof(float));
        for (int64_t i = 0; norm->weight && i < size; i++)
            norm->weight[i] = 1;
        return norm->weight ? ATTN_OK : attn_io_no_memory(l->error, l->error_size, n->name);
    }
    ATTN_TRY(load_vector(l, n, layer, size, &norm->weight));
    if (!norm->weight || n->flags & ATTN_NAME_BARE || !find_named(l, n, layer, ".bias", &t))
        return ATTN_OK;
    return read_vector(l, &t, 0, size, size, &norm->bias);
}

/* A norm over each head, or over all heads of a token: its length says. */
static attn_status load_head_norm(loader *l, const attn_weight_name *n, int64_t layer, int64_t heads, attn_norm *norm,
                                  int64_t *dim)
{
    attn_source_tensor t;
    if (!find_named(l, n, layer, ".weight", &t))
        return n->flags & ATTN_NAME_OPTIONAL ? ATTN_OK : missing(l, n, layer);
    *dim = t.elements == heads * l->d->head_dim ? t.elements : l->d->head_dim;
    return load_norm(l, n, layer, *dim, norm);
}

/* ---- experts (gpt-oss): matrices stored [experts, in, out] ---- */

static attn_status load_expert(loader *l, const attn_weight_name *n, int64_t layer, attn_linear *linear, int64_t e,
                               int64_t n_out, int64_t n_in, int64_t first, int64_t step, int64_t columns)
{
    const attn_description *d = l->d;
    char bias_name[NAME_BYTES];
    attn_source_tensor bias;
    piece p = {.n_in = n_in, .base = e * n_in * columns, .first_row = first, .columns = columns, .column_step = step};
    if (!find_named(l, n, layer, "", &p.tensor))
        return missing(l, n, layer);
    const attn_source_tensor *t = &p.tensor;
    if (t->n_dims != 3 || t->shape[0] != d->mlp.n_experts || t->shape[1] != n_in || t->shape[2] != columns)
        return attn_io_fail(l->error, l->error_size, ATTN_ERR_FORMAT, "tensor %s is not [%lld, %lld, %lld]", t->name,
                            (long long)d->mlp.n_experts, (long long)n_in, (long long)columns);
    ATTN_TRY(check_type(l, t));
    ATTN_TRY(pack(l, linear, &p, n_out));
    snprintf(bias_name, sizeof bias_name, "%s_bias", t->name);
    if (attn_source_find(l->source, bias_name, &bias)) {
        float *all = NULL;
        ATTN_TRY(read_vector(l, &bias, 0, d->mlp.n_experts * columns, d->mlp.n_experts * columns, &all));
        linear->bias = malloc((size_t)n_out * sizeof(float));
        for (int64_t r = 0; linear->bias && r < n_out; r++)
            linear->bias[r] = all[e * columns + first + r * step];
        free(all);
        if (!linear->bias)
            return attn_io_no_memory(l->error, l->error_size, bias_name);
    }
    return progress(l, t->bytes / (size_t)d->mlp.n_experts / (size_t)columns * (size_t)n_out);
}

static attn_status load_experts(loader *l, const attn_weight_name *n, int64_t layer, attn_layer_weights *w)
{
    const attn_description *d = l->d;
    attn_linear **lists[3] = {&w->expert_gate, &w->expert_up, &w->expert_down};
    for (int i = 0; i < 3; i++)
        if (!*lists[i] && !(*lists[i] = calloc((size_t)d->mlp.n_experts, sizeof(attn_linear))))
            return attn_io_no_memory(l->error, l->error_size, n->name);
    for (int64_t e = 0; e < d->mlp.n_experts; e++)
        if (n->slot == ATTN_SLOT_EXPERT_DOWN) {
            ATTN_TRY(load_expert(l, n, layer, &w->expert_down[e], e, d->d_model, d->d_ff, 0, 1, d->d_model));
        } else {
            ATTN_TRY(load_expert(l, n, layer, &w->expert_gate[e], e, d->d_ff, d->d_model, 0, 2, 2 * d->d_ff));
            ATTN_TRY(load_expert(l, n, layer, &w->expert_up[e], e, d->d_ff, d->d_model, 1, 2, 2 * d->d_ff));
        }
    return ATTN_OK;
}

/* ---- slots ---- */

static attn_status load_layer_slot(loader *l, const attn_weight_name *n, int64_t layer, attn_layer_weights *w)
{
    const attn_description *d = l->d;
    const int64_t dm = d->d_model, nq = d->n_heads * d->head_dim, nkv = d->n_kv_heads * d->head_dim;
    attn_attention_weights *a = n->slot >= ATTN_SLOT_CROSS_Q && n->slot <= ATTN_SLOT_CROSS_QKV ? &w->cross : &w->self;
    switch (n->slot) {
    case ATTN_SLOT_NORM1:
        return load_norm(l, n, layer, dm, &w->norm1);
    case ATTN_SLOT_POST1:
        return load_norm(l, n, layer, dm, d->post_norm_first ? &w->norm2 : &w->post1);
    case ATTN_SLOT_NORM2:
        return load_norm(l, n, layer, dm, &w->norm2);
    case ATTN_SLOT_POST2:
        return load_norm(l, n, layer, dm, &w->post2);
    case ATTN_SLOT_NORM_CROSS:
        return load_norm(l, n, layer, dm, &w->norm_cross);
    case ATTN_SLOT_Q:
    case ATTN_SLOT_CROSS_Q:
        w->has_cross |= n->slot == ATTN_SLOT_CROSS_Q;
        return load_linear(l, n, layer, &a->q, nq, dm);
    case ATTN_SLOT_K:
    case ATTN_SLOT_CROSS_K:
        return load_linear(l, n, layer, &a->k, nkv, dm);
    case ATTN_SLOT_V:
    case ATTN_SLOT_CROSS_V:
        return load_linear(l, n, layer, &a->v, nkv, dm);
    case ATTN_SLOT_O:
    case ATTN_SLOT_CROSS_O:
        return load_linear(l, n, layer, &a->o, dm, nq);
    case ATTN_SLOT_QKV:
    case ATTN_SLOT_CROSS_QKV:
        w->has_cross |= n->slot == ATTN_SLOT_CROSS_QKV;
        ATTN_TRY(load_part(l, n, layer, &a->q, nq, dm, 0, nq + 2 * nkv));
        ATTN_TRY(load_part(l, n, layer, &a->k, nkv, dm, nq, nq + 2 * nkv));
        return load_part(l, n, layer, &a->v, nkv, dm, nq + nkv, nq + 2 * nkv);
    case ATTN_SLOT_QKV_HEADS:
        return load_qkv_heads(l, n, layer, a);
    case ATTN_SLOT_Q_NORM:
        return load_head_norm(l, n, layer, d->n_heads, &a->q_norm, &a->q_norm_dim);
    case ATTN_SLOT_K_NORM:
        return load_head_norm(l, n, layer, d->n_kv_heads, &a->k_norm, &a->k_norm_dim);
    case ATTN_SLOT_SINKS:
        return load_vector(l, n, layer, d->n_heads, &a->sinks);
    case ATTN_SLOT_GATE:
        return load_linear(l, n, layer, &w->gate, d->d_ff, dm);
    case ATTN_SLOT_UP:
        return load_linear(l, n, layer, &w->up, d->d_ff, dm);
    case ATTN_SLOT_GATE_UP:
        ATTN_TRY(load_part(l, n, layer, &w->gate, d->d_ff, dm, 0, 2 * d->d_ff));
        return load_part(l, n, layer, &w->up, d->d_ff, dm, d->d_ff, 2 * d->d_ff);
    case ATTN_SLOT_DOWN:
        return load_linear(l, n, layer, &w->down, dm, d->d_ff);
    case ATTN_SLOT_ROUTER:
        return load_linear(l, n, layer, &w->router, d->mlp.n_experts, dm);
    default:
        return load_experts(l, n, layer, w);
    }
}

/* Packed only where it is multiplied with, as the tied head; else nothing is copied. */
static attn_status load_embedding(loader *l, const attn_weight_name *n)
{
    const attn_description *d = l->d;
    const int64_t columns = attn_embedding_dim(d);
    attn_source_tensor t;
    if (d->no_tokens)
        return ATTN_OK;
    if (d->has_logits && d->tied)
        return load_linear(l, n, 0, &l->weights->embedding, d->vocab_size, columns);
    if (l->weights->table.data)
        return ATTN_OK;
    if (!find_named(l, n, 0, ".weight", &t))
        return n->flags & ATTN_NAME_OPTIONAL ? ATTN_OK : missing(l, n, 0);
    ATTN_TRY(check_shape(l, &t, d->vocab_size, columns));
    l->weights->table = t;
    return progress(l, t.bytes);
}

static attn_stack_weights *stack_of(loader *l, const attn_weight_name *n)
{
    const bool beside = n->flags & ATTN_NAME_ENCODER && l->d->kind == ATTN_MODEL_ENCODER_DECODER;
    return beside ? &l->weights->encoder : &l->weights->stack;
}

static attn_status load_model_slot(loader *l, const attn_weight_name *n)
{
    const attn_description *d = l->d;
    attn_weights *w = l->weights;
    attn_stack_weights *stack = stack_of(l, n);
    switch (n->slot) {
    case ATTN_SLOT_EMBEDDING:
        return load_embedding(l, n);
    case ATTN_SLOT_POSITIONS:
        return d->position != ATTN_POSITION_LEARNED
                   ? ATTN_OK /* sines that the file keeps as a table, too */
                   : load_vector(l, n, 0, d->position_rows * d->d_model, &stack->positions);
    case ATTN_SLOT_TYPES:
        return load_vector(l, n, 0, d->n_types * d->d_model, &w->types);
    case ATTN_SLOT_EMBEDDING_NORM:
        return load_norm(l, n, 0, d->d_model, &stack->embedding_norm);
    case ATTN_SLOT_PATCHES:
        return load_linear(l, n, 0, &w->patches, d->d_model, d->n_channels * d->patch_size * d->patch_size);
    case ATTN_SLOT_CLASS_TOKEN:
        return load_vector(l, n, 0, d->d_model, &w->class_token);
    case ATTN_SLOT_PROJECT_IN:
        return d->embedding_dim ? load_linear(l, n, 0, &w->project_in, d->d_model, d->embedding_dim) : ATTN_OK;
    case ATTN_SLOT_PROJECT_OUT:
        return d->embedding_dim ? load_linear(l, n, 0, &w->project_out, d->embedding_dim, d->d_model) : ATTN_OK;
    case ATTN_SLOT_FINAL_NORM:
        return d->no_final_norm ? ATTN_OK : load_norm(l, n, 0, d->d_model, &stack->final_norm);
    case ATTN_SLOT_HEAD:
        return d->tied ? ATTN_OK : load_linear(l, n, 0, &w->head, d->vocab_size, attn_embedding_dim(d));
    case ATTN_SLOT_HEAD_BIAS: /* a head of its own brings its own along */
        return !d->tied ? ATTN_OK : load_vector(l, n, 0, d->vocab_size, &w->head_bias);
    case ATTN_SLOT_TRANSFORM:
        return load_linear(l, n, 0, &w->transform, d->d_model, d->d_model);
    case ATTN_SLOT_TRANSFORM_NORM:
        return load_norm(l, n, 0, d->d_model, &w->transform_norm);
    case ATTN_SLOT_POOLER:
        return load_linear(l, n, 0, &w->pooler, d->d_model, d->d_model);
    default:
        return load_vector(l, n, 0, d->relative_buckets * d->n_heads, &stack->relative);
    }
}

static bool has_encoder_names(const attn_weight_name *names)
{
    while (names->name && !(names->flags & ATTN_NAME_ENCODER))
        names++;
    return names->name != NULL;
}

static attn_status load_names(loader *l, const attn_weight_name *names)
{
    const bool alone = l->d->kind == ATTN_MODEL_ENCODER;
    for (const attn_weight_name *n = names; n->name; n++) {
        if (alone && !strncmp(n->name, "decoder.", 8) && has_encoder_names(names))
            continue; /* the encoder of an encoder-decoder by itself */
        if (n->slot < ATTN_SLOT_NORM1) {
            ATTN_TRY(load_model_slot(l, n));
            continue;
        }
        attn_stack_weights *stack = stack_of(l, n);
        for (int64_t layer = 0; layer < stack->n_layers; layer++)
            ATTN_TRY(load_layer_slot(l, n, layer, &stack->layers[layer]));
    }
    return ATTN_OK;
}

static attn_status create_stack(attn_stack_weights *stack, int64_t n_layers)
{
    stack->n_layers = n_layers;
    if (n_layers)
        stack->layers = calloc((size_t)n_layers, sizeof *stack->layers);
    return n_layers && !stack->layers ? ATTN_ERR_OUT_OF_MEMORY : ATTN_OK;
}

attn_status attn_weights_load(const attn_model_source *source, const attn_family *family, const attn_description *d,
                              const attn_load_options *options, attn_weights *weights, char *error, size_t error_size)
{
    memset(weights, 0, sizeof *weights);
    loader l = {.source = source, .d = d, .options = options, .weights = weights,
                .prefix = attn_family_prefix(source, family), .error = error, .error_size = error_size};
    for (int64_t i = 0; i < attn_source_count(source); i++) {
        attn_source_tensor t;
        attn_source_at(source, i, &t);
        l.total_bytes += (int64_t)t.bytes;
    }
    weights->memory.expected = (size_t)l.total_bytes;
    attn_status status = create_stack(&weights->stack, d->n_layers);
    if (status == ATTN_OK)
        status = create_stack(&weights->encoder, d->kind == ATTN_MODEL_ENCODER_DECODER ? d->n_encoder_layers : 0);
    if (status != ATTN_OK)
        attn_io_no_memory(error, error_size, "layers");
    else
        status = load_names(&l, source->gguf ? family->gguf_names : family->names);
    if (status == ATTN_OK && l.done_bytes < l.total_bytes)
        status = progress(&l, (size_t)(l.total_bytes - l.done_bytes));
    if (status != ATTN_OK)
        attn_weights_destroy(weights);
    return status;
}

/* ---- freeing ---- */

static void free_norm(attn_norm *norm)
{
    free(norm->weight);
    free(norm->bias);
}

static void free_attention(attn_attention_weights *a)
{
    attn_linear_destroy(&a->q);
    attn_linear_destroy(&a->k);
    attn_linear_destroy(&a->v);
    attn_linear_destroy(&a->o);
    free_norm(&a->q_norm);
    free_norm(&a->k_norm);
    free(a->sinks);
}

static void free_experts(attn_linear *experts, int64_t n)
{
    for (int64_t e = 0; experts && e < n; e++)
        attn_linear_destroy(&experts[e]);
    free(experts);
}

static void free_stack(attn_stack_weights *stack)
{
    for (int64_t i = 0; stack->layers && i < stack->n_layers; i++) {
        attn_layer_weights *w = &stack->layers[i];
        attn_norm *norms[] = {&w->norm1, &w->post1, &w->norm2, &w->post2, &w->norm_cross};
        for (size_t j = 0; j < sizeof norms / sizeof *norms; j++)
            free_norm(norms[j]);
        free_attention(&w->self);
        free_attention(&w->cross);
        free_experts(w->expert_gate, w->router.w.n_out);
        free_experts(w->expert_up, w->router.w.n_out);
        free_experts(w->expert_down, w->router.w.n_out);
        attn_linear *linears[] = {&w->gate, &w->up, &w->down, &w->router};
        for (size_t j = 0; j < sizeof linears / sizeof *linears; j++)
            attn_linear_destroy(linears[j]);
    }
    free(stack->layers);
    free(stack->relative);
    free(stack->positions);
    free_norm(&stack->embedding_norm);
    free_norm(&stack->final_norm);
}

void attn_weights_destroy(attn_weights *w)
{
    free_stack(&w->stack);
    free_stack(&w->encoder);
    attn_linear_destroy(&w->embedding);
    attn_linear_destroy(&w->transform);
    attn_linear_destroy(&w->head);
    attn_linear_destroy(&w->pooler);
    attn_linear_destroy(&w->patches);
    free(w->class_token);
    attn_linear_destroy(&w->project_in);
    attn_linear_destroy(&w->project_out);
    free_norm(&w->transform_norm);
    free(w->types);
    free(w->head_bias);
    attn_linear_memory_free(&w->memory);
    memset(w, 0, sizeof *w);
}
