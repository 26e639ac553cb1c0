/* export.c - tensors to one safetensors file, piece by piece. */
#include "io/export.h"

#include <stdlib.h>
#include <string.h>

#include "io/atomic_file.h"
#include "io/bytes.h"
#include "io/io_error.h"
#include "io/json.h"
#include "io/mapped_file.h"
#include "io/safetensors_write.h"

#define PIECE ((int64_t)1 << 20) /* floats read at a time, when a row is not longer: 4 MiB */

typedef struct export_job {
    const attn_export_tensor *tensors;
    size_t n;
    attn_st_writer *writer;
    int64_t done, total; /* elements */
    attn_export_progress progress;
    void *progress_user;
    char *error;
    size_t error_size;
} export_job;

/* Rows and row length; false on overflow or a negative axis (the writer refuses those by name). */
static bool rows_of(const attn_export_tensor *tensor, int64_t *rows, int64_t *length)
{
    uint64_t product = 1;
    *rows = 0;
    *length = tensor->n_dims > 0 ? tensor->shape[tensor->n_dims - 1] : 1;
    for (int32_t d = 0; d + 1 < tensor->n_dims; d++)
        if (tensor->shape[d] < 0 || !attn_mul_u64(product, (uint64_t)tensor->shape[d], &product))
            return false;
    *rows = (int64_t)product;
    return product <= INT64_MAX && *length >= 0 &&
           attn_mul_u64(product, (uint64_t)*length, &product) && product <= INT64_MAX;
}

static attn_status add_tensors(export_job *job)
{
    for (size_t i = 0; i < job->n; i++) {
        const attn_export_tensor *tensor = &job->tensors[i];
        int64_t rows, length;
        size_t index; /* counts up with i */
        attn_status status =
            attn_st_writer_add(job->writer, tensor->name, tensor->dtype, tensor->n_dims,
                               tensor->shape, &index, job->error, job->error_size);
        if (status != ATTN_OK)
            return status;
        if (!rows_of(tensor, &rows, &length) || rows * length > INT64_MAX - job->total)
            return attn_io_fail(job->error, job->error_size, ATTN_ERR_INVALID_ARGUMENT,
                                "tensor '%s': too many elements", tensor->name);
        job->total += rows * length;
    }
    return ATTN_OK;
}

static attn_status advance(export_job *job, int64_t elements)
{
    job->done += elements;
    if (job->progress && job->progress(job->progress_user, job->done, job->total))
        return attn_io_fail(job->error, job->error_size, ATTN_ERR_CANCELLED, "stopped");
    return ATTN_OK;
}

static attn_status write_bytes(export_job *job, size_t index)
{
    const attn_export_tensor *tensor = &job->tensors[index];
    int64_t rows, length;
    rows_of(tensor, &rows, &length);
    size_t bytes = (size_t)(rows * length) * attn_st_dtype_bits(tensor->dtype) / 8;
    attn_status status = attn_st_writer_put_bytes(job->writer, index, tensor->bytes, bytes,
                                                  job->error, job->error_size);
    return status == ATTN_OK ? advance(job, rows * length) : status;
}

static attn_status write_numbers(export_job *job, size_t index)
{
    const attn_export_tensor *tensor = &job->tensors[index];
    int64_t rows, length;
    rows_of(tensor, &rows, &length);
    int64_t step = length > 0 && length < PIECE ? PIECE / length : 1;
    if (rows == 0 || length == 0)
        return ATTN_OK;
    step = step < rows ? step : rows;
    float *piece = malloc((size_t)(step * length) * sizeof *piece);
    if (!piece)
        return attn_io_no_memory(job->error, job->error_size, tensor->name);
    attn_status status = ATTN_OK;
    for (int64_t row = 0; status == ATTN_OK && row < rows; row += step) {
        int64_t n = rows - row < step ? rows - row : step;
        status = tensor->read(tensor->user, row, n, piece, job->error, job->error_size);
        if (status == ATTN_OK)
            status = attn_st_writer_put_f32(job->writer, index, piece, n * length, job->error,
                                            job->error_size);
        if (status == ATTN_OK)
            status = advance(job, n * length);
    }
    free(piece);
    return status;
}

attn_status attn_export_safetensors(const char *path, const attn_export_tensor *tensors, size_t n,
                                    attn_export_progress progress, void *progress_user,
                                    uint64_t *overflows, char *error, size_t error_size)
{
    export_job job = {.tensors = tensors,
                      .n = n,
                      .progress = progress,
                      .progress_user = progress_user,
                      .error = error,
                      .error_size = error_size};
    attn_status status = attn_st_writer_create(&job.writer, error, error_size);
    if (status != ATTN_OK)
        return status;
    status = attn_st_writer_metadata(job.writer, "format", "pt", error, error_size);
    if (status == ATTN_OK)
        status = add_tensors(&job);
    if (status == ATTN_OK)
        status = attn_st_writer_begin(job.writer, path, error, error_size);
    for (size_t i = 0; status == ATTN_OK && i < n; i++)
        status = tensors[i].bytes ? write_bytes(&job, i) : write_numbers(&job, i);
    if (status == ATTN_OK)
        status = attn_st_writer_finish(job.writer, error, error_size);
    if (overflows)
        *overflows = attn_st_writer_overflows(job.writer);
    attn_st_writer_destroy(job.writer);
    return status;
}

attn_status attn_export_copy(const char *from, const char *to, char *error, size_t error_size)
{
    attn_mapped_file *file;
    attn_status status = attn_mapped_file_open(from, &file, error, error_size);
    if (status != ATTN_OK)
        return status;
    status = attn_atomic_file_save(to, file->data, file->size, error, error_size);
    attn_mapped_file_close(file);
    return status;
}

attn_status attn_export_json(const char *path, const json_t *json, char *error, size_t error_size)
{
    size_t length;
    char *text = attn_json_text(json, JSON_INDENT(2), &length);
    if (!text)
        return attn_io_no_memory(error, error_size, path);
    text[length] = '\n'; /* in place of the 0: nothing reads the text as a string any more */
    attn_status status = attn_atomic_file_save(path, text, length + 1, error, error_size);
    free(text);
    return status;
}
