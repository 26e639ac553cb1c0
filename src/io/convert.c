/* convert.c - conversion of safetensors checkpoints, and the door to that of GGUF files. */
#include "io/convert_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/io_error.h"
#include "io/json.h"
#include "io/mapped_file.h"
#include "io/safetensors.h"

const char *attn_convert_dtype_name(attn_st_dtype dtype)
{
    return dtype == ATTN_ST_F32 ? "float32" : dtype == ATTN_ST_BF16 ? "bfloat16" : "float16";
}

char *attn_convert_join(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/%s", folder, name);
    return path;
}

attn_status attn_convert_json(attn_convert_job *job, const char *name, const json_t *json)
{
    char *path = attn_convert_join(job->folder, name);
    if (!path)
        return attn_io_no_memory(job->error, job->error_size, name);
    attn_status status = attn_export_json(path, json, job->error, job->error_size);
    free(path);
    return status;
}

attn_status attn_convert_write(attn_convert_job *job, const attn_export_tensor *tensors, size_t n)
{
    char *path = attn_convert_join(job->folder, "model.safetensors");
    if (!path)
        return attn_io_no_memory(job->error, job->error_size, "model.safetensors");
    attn_status status = attn_export_safetensors(
        path, tensors, n, job->options->progress, job->options->progress_user,
        &job->report.overflows, job->error, job->error_size);
    free(path);
    job->report.tensors = (int64_t)n;
    for (size_t i = 0; status == ATTN_OK && i < n; i++) {
        int64_t elements = 1;
        for (int32_t d = 0; d < tensors[i].n_dims; d++)
            elements *= tensors[i].shape[d];
        job->report.elements += elements;
    }
    return status;
}

/* ---- Safetensors ---------------------------------------------------------------------------- */

static attn_status read_rows(void *user, int64_t first_row, int64_t n_rows, float *out, char *error,
                             size_t error_size)
{
    const attn_st_tensor *tensor = user;
    int64_t length = tensor->n_dims ? tensor->shape[tensor->n_dims - 1] : 1;
    return attn_st_read_f32(tensor, first_row * length, n_rows * length, out, error, error_size);
}

static bool is_floating(attn_st_dtype dtype)
{
    return dtype == ATTN_ST_F16 || dtype == ATTN_ST_BF16 || dtype == ATTN_ST_F32 ||
           dtype == ATTN_ST_F64 || dtype == ATTN_ST_F8_E4M3 || dtype == ATTN_ST_F8_E5M2;
}

static attn_status write_checkpoint(attn_convert_job *job, const attn_safetensors *st)
{
    size_t n = attn_safetensors_count(st);
    attn_export_tensor *tensors = calloc(n + 1, sizeof *tensors);
    if (!tensors)
        return attn_io_no_memory(job->error, job->error_size, "a conversion");
    for (size_t i = 0; i < n; i++) {
        const attn_st_tensor *tensor = attn_safetensors_at(st, i);
        bool as_is = !is_floating(tensor->dtype) || tensor->dtype == job->options->dtype;
        tensors[i] = (attn_export_tensor){.name = tensor->name,
                                          .dtype = as_is ? tensor->dtype : job->options->dtype,
                                          .n_dims = tensor->n_dims,
                                          .shape = tensor->shape,
                                          .read = read_rows,
                                          .user = (void *)(uintptr_t)tensor,
                                          .bytes = as_is ? tensor->data : NULL};
    }
    attn_status status = attn_convert_write(job, tensors, n);
    free(tensors);
    return status;
}

/* The configuration at `path` with the new dtype; *config NULL when there is no such file. */
static attn_status read_config(attn_convert_job *job, const char *path, json_t **config)
{
    struct stat info;
    attn_mapped_file *file;
    char text[256];
    *config = NULL;
    if (stat(path, &info))
        return ATTN_OK;
    attn_status status = attn_mapped_file_open(path, &file, job->error, job->error_size);
    if (status != ATTN_OK)
        return status;
    json_t *json = attn_json_parse((const char *)file->data, file->size, text, sizeof text);
    attn_mapped_file_close(file);
    if (!json || !json_is_object(json)) {
        status = attn_io_fail(job->error, job->error_size, ATTN_ERR_FORMAT, "%s: %s", path,
                              json ? "is not an object" : text);
    } else if (json_object_get(json, "quantization_config")) {
        status = attn_io_fail(job->error, job->error_size, ATTN_ERR_UNSUPPORTED,
                              "%s: quantization_config: the weights are not plain numbers", path);
    } else {
        const char *key = json_object_get(json, "torch_dtype") ? "torch_dtype" : "dtype";
        if (json_object_set_new(json, key,
                                json_string(attn_convert_dtype_name(job->options->dtype))))
            status = attn_io_no_memory(job->error, job->error_size, path);
    }
    if (status != ATTN_OK) {
        json_decref(json);
        return status;
    }
    *config = json;
    return ATTN_OK;
}

/* The folder in which a path lies (free it). */
static char *folder_of(const char *path)
{
    struct stat info;
    if (!stat(path, &info) && S_ISDIR(info.st_mode))
        return strdup(path);
    const char *slash = strrchr(path, '/');
    return !slash          ? strdup(".")
           : slash == path ? strdup("/")
                           : strndup(path, (size_t)(slash - path));
}

void attn_convert_folder(const attn_convert_job *job, const char *name)
{
    char *path = attn_convert_join(job->folder, name), *folder = path ? folder_of(path) : NULL;
    if (folder)
        mkdir(folder, 0777);
    free(folder);
    free(path);
}

/* NAME.config.json of NAME.safetensors where that is there, else config.json in the folder (free it). */
static char *config_of(const char *path, const char *folder)
{
    static const char end[] = ".safetensors", own[] = ".config.json";
    struct stat info;
    const size_t n = strlen(path), n_end = sizeof end - 1;
    if (n > n_end && !strcmp(path + n - n_end, end)) {
        char *name = malloc(n - n_end + sizeof own);
        if (!name)
            return NULL;
        memcpy(name, path, n - n_end);
        memcpy(name + n - n_end, own, sizeof own);
        if (!stat(name, &info))
            return name;
        free(name);
    }
    return attn_convert_join(folder, "config.json");
}

static attn_status copy_files(attn_convert_job *job, const char *from_folder)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "vocab.txt",
                                        "generation_config.json",
                                        "modules.json",
                                        "chat_template.jinja",
                                        "chat_template.json",
                                        "tokenizer.model",
                                        "spiece.model",
                                        "sentencepiece.bpe.model",
                                        "preprocessor_config.json",
                                        "config_sentence_transformers.json",
                                        "sentence_bert_config.json",
                                        "1_Pooling/config.json",
                                        "2_Normalize/config.json"};
    attn_status status = ATTN_OK;
    for (size_t i = 0; status == ATTN_OK && i < sizeof names / sizeof *names; i++) {
        struct stat info;
        char *from = attn_convert_join(from_folder, names[i]);
        char *to = attn_convert_join(job->folder, names[i]);
        if (!from || !to)
            status = attn_io_no_memory(job->error, job->error_size, names[i]);
        else if (!stat(from, &info)) {
            attn_convert_folder(job, names[i]);
            status = attn_export_copy(from, to, job->error, job->error_size);
            job->report.has_tokenizer |= i == 0 && status == ATTN_OK;
        }
        free(from);
        free(to);
    }
    return status;
}

static attn_status convert_checkpoint(attn_convert_job *job)
{
    attn_safetensors *st = NULL;
    json_t *config = NULL;
    char *from = folder_of(job->path),
         *config_path = from ? config_of(job->path, from) : NULL;
    attn_status status =
        config_path ? ATTN_OK : attn_io_no_memory(job->error, job->error_size, job->path);
    if (status == ATTN_OK)
        status = read_config(job, config_path, &config);
    if (status == ATTN_OK)
        status = attn_safetensors_open(job->path, &st, job->error, job->error_size);
    if (status == ATTN_OK)
        status = write_checkpoint(job, st);
    if (status == ATTN_OK && config)
        status = attn_convert_json(job, "config.json", config);
    if (status == ATTN_OK)
        status = copy_files(job, from);
    job->report.has_config = config != NULL;
    if (!config)
        snprintf(job->report.note, sizeof job->report.note,
                 "there is no config.json beside the model");
    attn_safetensors_close(st);
    json_decref(config);
    free(config_path);
    free(from);
    return status;
}

/* ---- The door ------------------------------------------------------------------------------- */

static bool is_gguf(const char *path)
{
    char magic[4] = "";
    struct stat info;
    FILE *file = !stat(path, &info) && S_ISREG(info.st_mode) ? fopen(path, "rb") : NULL;
    if (!file)
        return false;
    bool same = fread(magic, 1, sizeof magic, file) == sizeof magic && !memcmp(magic, "GGUF", 4);
    fclose(file);
    return same;
}

/* Makes the folder, and sees to it that it is not the one that the model lies in. */
static attn_status make_folder(const attn_convert_job *job, bool *made)
{
    struct stat own, wanted;
    char *from = folder_of(job->path);
    if (!from)
        return attn_io_no_memory(job->error, job->error_size, job->path);
    bool known = !stat(from, &own);
    free(from);
    *made = mkdir(job->folder, 0777) == 0;
    if (!*made && errno != EEXIST)
        return attn_io_fail(job->error, job->error_size, ATTN_ERR_IO, "%s: %s", job->folder,
                            strerror(errno));
    if (stat(job->folder, &wanted) || !S_ISDIR(wanted.st_mode))
        return attn_io_fail(job->error, job->error_size, ATTN_ERR_IO, "%s: is not a folder",
                            job->folder);
    if (known && own.st_dev == wanted.st_dev && own.st_ino == wanted.st_ino)
        return attn_io_fail(job->error, job->error_size, ATTN_ERR_INVALID_ARGUMENT,
                            "%s: is the model's own folder; give another one", job->folder);
    return ATTN_OK;
}

attn_status attn_convert(const char *path, const char *folder, const attn_convert_options *options,
                         attn_convert_report *report, char *error, size_t error_size)
{
    attn_convert_job job = {.path = path,
                            .folder = folder,
                            .options = options,
                            .error = error,
                            .error_size = error_size};
    struct stat info;
    if (options->dtype != ATTN_ST_F32 && options->dtype != ATTN_ST_BF16 &&
        options->dtype != ATTN_ST_F16)
        return attn_io_fail(error, error_size, ATTN_ERR_INVALID_ARGUMENT,
                            "dtype: %s, must be F32, BF16 or F16",
                            attn_st_dtype_name(options->dtype));
    if (stat(path, &info))
        return attn_io_fail(error, error_size, ATTN_ERR_IO, "%s: %s", path, strerror(errno));
    bool made = false;
    attn_status status = make_folder(&job, &made);
    if (status == ATTN_OK && is_gguf(path)) {
        attn_gguf *gguf;
        status = attn_gguf_open(path, &gguf, error, error_size);
        if (status == ATTN_OK) {
            status = attn_convert_gguf(&job, gguf);
            attn_gguf_close(gguf);
        }
    } else if (status == ATTN_OK) {
        status = convert_checkpoint(&job);
    }
    if (report && status == ATTN_OK)
        *report = job.report;
    if (status != ATTN_OK && made)
        rmdir(job.folder); /* where nothing was written into it */
    return status;
}
