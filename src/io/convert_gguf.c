/* convert_gguf.c - the tensors of a GGUF file under the names and in the order of rows of a
 * checkpoint. */
#include "io/convert_internal.h"

#include <stdlib.h>
#include <string.h>

#include "io/dequant.h"
#include "io/gguf_config.h"
#include "io/gguf_names.h"
#include "io/gguf_tokenizer.h"
#include "io/io_error.h"

/* One tensor on its way: what read functions get as `user`. */
typedef struct source {
    const attn_gguf_tensor *tensor;
    int64_t head_dim; /* rows of a head, of query and key in llama */
    int64_t shape[4]; /* in the checkpoint, outermost first */
    char name[ATTN_GGUF_HF_NAME];
} source;

static attn_status read_part(const attn_gguf_tensor *tensor, int64_t first, int64_t n, float *out,
                             char *error, size_t error_size)
{
    return attn_dequant(tensor->type, tensor->data, tensor->bytes, first, n, out, error,
                        error_size);
}

static attn_status read_same(void *user, int64_t first_row, int64_t n_rows, float *out, char *error,
                             size_t error_size)
{
    const attn_gguf_tensor *tensor = ((const source *)user)->tensor;
    int64_t length = tensor->shape[0];
    return read_part(tensor, first_row * length, n_rows * length, out, error, error_size);
}

/* Rows of the checkpoint are columns here. A column range is widened to whole blocks and read row
 * by row. */
static attn_status read_transposed(void *user, int64_t first_row, int64_t n_rows, float *out,
                                   char *error, size_t error_size)
{
    const attn_gguf_tensor *tensor = ((const source *)user)->tensor;
    int64_t block = attn_ggml_type(tensor->type)->block_elements, length = tensor->shape[0],
            columns = tensor->shape[1];
    int64_t from = first_row / block * block, to = (first_row + n_rows + block - 1) / block * block;
    float *part = malloc((size_t)(to - from) * sizeof *part);
    if (!part)
        return attn_io_no_memory(error, error_size, tensor->name);
    attn_status status = ATTN_OK;
    for (int64_t c = 0; status == ATTN_OK && c < columns; c++) {
        status = read_part(tensor, c * length + from, to - from, part, error, error_size);
        for (int64_t r = 0; status == ATTN_OK && r < n_rows; r++)
            out[r * columns + c] = part[first_row - from + r];
    }
    free(part);
    return status;
}

/* Where row `row` of the checkpoint stands here: (head, half, i) there is (head, i, half) here. */
static int64_t rope_row(int64_t row, int64_t head_dim)
{
    int64_t head = row / head_dim, within = row % head_dim, half = within / (head_dim / 2);
    return head * head_dim + 2 * (within % (head_dim / 2)) + half;
}

static attn_status read_rope_rows(void *user, int64_t first_row, int64_t n_rows, float *out,
                                  char *error, size_t error_size)
{
    const source *s = user;
    int64_t length = s->tensor->shape[0];
    attn_status status = ATTN_OK;
    for (int64_t r = 0; status == ATTN_OK && r < n_rows; r++)
        status = read_part(s->tensor, rope_row(first_row + r, s->head_dim) * length, length,
                           out + r * length, error, error_size);
    return status;
}

/* A bias is one row: its elements change places. */
static attn_status read_rope_bias(void *user, int64_t first_row, int64_t n_rows, float *out,
                                  char *error, size_t error_size)
{
    const source *s = user;
    int64_t n = s->tensor->elements;
    (void)first_row;
    (void)n_rows;
    float *here = malloc((size_t)n * sizeof *here);
    if (!here)
        return attn_io_no_memory(error, error_size, s->tensor->name);
    attn_status status = read_part(s->tensor, 0, n, here, error, error_size);
    for (int64_t i = 0; status == ATTN_OK && i < n; i++)
        out[i] = here[rope_row(i, s->head_dim)];
    free(here);
    return status;
}

/* Heads of query or key, from the metadata. */
static attn_status find_head_dim(const attn_convert_job *job, const attn_gguf *gguf, bool query,
                                 const attn_gguf_tensor *tensor, int64_t *head_dim)
{
    const char *key = query || !attn_gguf_find(gguf, "llama.attention.head_count_kv")
                          ? "llama.attention.head_count"
                          : "llama.attention.head_count_kv";
    int64_t heads, rows = tensor->n_dims > 1 ? tensor->shape[1] : tensor->shape[0];
    attn_status status = attn_gguf_get_i64(gguf, key, &heads, job->error, job->error_size);
    if (status != ATTN_OK)
        return status;
    if (heads <= 0 || rows % heads || rows / heads % 2)
        return attn_io_fail(job->error, job->error_size, ATTN_ERR_FORMAT,
                            "tensor '%s': %lld rows are not %lld heads (%s) of an even size",
                            tensor->name, (long long)rows, (long long)heads, key);
    *head_dim = rows / heads;
    return ATTN_OK;
}

static attn_status describe(const attn_convert_job *job, const attn_gguf *gguf,
                            attn_gguf_string architecture, const attn_gguf_tensor *tensor,
                            source *s, attn_export_tensor *out)
{
    enum attn_gguf_layout layout;
    attn_status status = attn_gguf_hf_name(architecture, tensor->name, s->name, &layout, job->error,
                                           job->error_size);
    if (status != ATTN_OK)
        return status;
    if (!attn_dequant_function(tensor->type))
        return attn_io_fail(job->error, job->error_size, ATTN_ERR_UNSUPPORTED,
                            "tensor '%s': type %s cannot be read as numbers here", tensor->name,
                            attn_ggml_type_name(tensor->type));
    if (layout == ATTN_GGUF_TRANSPOSED && tensor->n_dims != 2)
        return attn_io_fail(job->error, job->error_size, ATTN_ERR_FORMAT,
                            "tensor '%s': n_dims is %d, 2 expected", tensor->name,
                            (int)tensor->n_dims);
    for (int32_t d = 0; d < tensor->n_dims; d++) {
        bool turned = layout == ATTN_GGUF_TRANSPOSED;
        s->shape[d] = tensor->shape[turned ? d : tensor->n_dims - 1 - d];
    }
    s->tensor = tensor;
    bool rope = layout == ATTN_GGUF_ROPE_QUERY || layout == ATTN_GGUF_ROPE_KEY;
    if (rope)
        status = find_head_dim(job, gguf, layout == ATTN_GGUF_ROPE_QUERY, tensor, &s->head_dim);
    *out =
        (attn_export_tensor){.name = s->name,
                             .dtype = job->options->dtype,
                             .n_dims = tensor->n_dims,
                             .shape = s->shape,
                             .read = rope ? (tensor->n_dims > 1 ? read_rope_rows : read_rope_bias)
                                     : layout == ATTN_GGUF_TRANSPOSED ? read_transposed
                                                                      : read_same,
                             .user = s};
    return status;
}

static attn_status write_tensors(attn_convert_job *job, const attn_gguf *gguf)
{
    size_t n = attn_gguf_tensor_count(gguf);
    attn_gguf_string architecture;
    attn_status status = attn_gguf_get_string(gguf, "general.architecture", &architecture,
                                              job->error, job->error_size);
    if (status != ATTN_OK)
        return status;
    source *sources = calloc(n + 1, sizeof *sources);
    attn_export_tensor *tensors = calloc(n + 1, sizeof *tensors);
    if (!sources || !tensors)
        status = attn_io_no_memory(job->error, job->error_size, "a conversion");
    size_t taken = 0;
    for (size_t i = 0; status == ATTN_OK && i < n; i++) {
        const attn_gguf_tensor *tensor = attn_gguf_tensor_at(gguf, i);
        if (!strcmp(tensor->name, "rope_freqs.weight"))
            continue; /* config.json says it */
        status = describe(job, gguf, architecture, tensor, &sources[taken], &tensors[taken]);
        taken++;
    }
    if (status == ATTN_OK)
        status = attn_convert_write(job, tensors, taken);
    free(sources);
    free(tensors);
    return status;
}

/* A tokenizer that cannot be written is a note, not a failure: the weights are what was asked for.
 */
static attn_status write_tokenizer(attn_convert_job *job, const attn_gguf *gguf)
{
    json_t *tokenizer, *config;
    attn_status status = attn_gguf_tokenizer_json(gguf, &tokenizer, &config, job->report.note,
                                                  sizeof job->report.note);
    if (status != ATTN_OK)
        return status == ATTN_ERR_OUT_OF_MEMORY
                   ? attn_io_no_memory(job->error, job->error_size, "a tokenizer")
                   : ATTN_OK;
    status = attn_convert_json(job, "tokenizer.json", tokenizer);
    if (status == ATTN_OK)
        status = attn_convert_json(job, "tokenizer_config.json", config);
    json_decref(tokenizer);
    json_decref(config);
    job->report.has_tokenizer = status == ATTN_OK;
    return status;
}

/* What sentence-transformers reads: how an encoder's rows become a vector (1: their mean, 2: the first), where the file says it. */
static attn_status write_pooling(attn_convert_job *job, const attn_gguf *gguf, const json_t *config)
{
    int64_t kind;
    if (attn_gguf_get_i64(gguf, "bert.pooling_type", &kind, NULL, 0) != ATTN_OK || kind < 1 || kind > 2)
        return ATTN_OK;
    json_t *pooling = json_pack("{s:O?, s:b, s:b}", "word_embedding_dimension", json_object_get(config, "hidden_size"),
                                "pooling_mode_cls_token", kind == 2, "pooling_mode_mean_tokens", kind == 1);
    json_t *modules = json_pack("[{s:i, s:s, s:s, s:s}, {s:i, s:s, s:s, s:s}]", "idx", 0, "name", "0", "path", "", "type",
                                "sentence_transformers.models.Transformer", "idx", 1, "name", "1", "path", "1_Pooling", "type",
                                "sentence_transformers.models.Pooling");
    attn_status status = pooling && modules ? attn_convert_json(job, "modules.json", modules)
                                            : attn_io_no_memory(job->error, job->error_size, "modules.json");
    if (status == ATTN_OK) {
        attn_convert_folder(job, "1_Pooling/config.json");
        status = attn_convert_json(job, "1_Pooling/config.json", pooling);
    }
    json_decref(pooling);
    json_decref(modules);
    return status;
}

attn_status attn_convert_gguf(attn_convert_job *job, const attn_gguf *gguf)
{
    json_t *config;
    attn_status status = attn_gguf_config_json(gguf, attn_convert_dtype_name(job->options->dtype),
                                               &config, job->error, job->error_size);
    if (status != ATTN_OK)
        return status;
    status = write_tensors(job, gguf);
    if (status == ATTN_OK)
        status = attn_convert_json(job, "config.json", config);
    job->report.has_config = status == ATTN_OK;
    if (status == ATTN_OK)
        status = write_pooling(job, gguf, config);
    json_decref(config);
    return status == ATTN_OK ? write_tokenizer(job, gguf) : status;
}
