/* safetensors.c - opening a file, an index or a directory; access to tensors and metadata. */
#include "io/safetensors_internal.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "io/io_error.h"
#include "io/json.h"

#define SHOWN 160

void attn_safetensors_close(attn_safetensors *st)
{
    if (!st)
        return;
    for (size_t i = 0; i < st->n_shards; i++)
        attn_safetensors_close(st->shards[i]);
    free(st->shards);
    free(st->tensors);
    free(st->extents);
    free(st->metadata_keys);
    free(st->in_order);
    free(st->by_name);
    json_decref(st->header);
    attn_mapped_file_close(st->file);
    free(st);
}

size_t attn_safetensors_count(const attn_safetensors *st)
{
    return st->n_tensors;
}

const attn_st_tensor *attn_safetensors_at(const attn_safetensors *st, size_t index)
{
    return st->in_order[index];
}

static int compare_name(const void *name, const void *tensor)
{
    return strcmp(name, (*(attn_st_tensor *const *)tensor)->name);
}

const attn_st_tensor *attn_safetensors_find(const attn_safetensors *st, const char *name)
{
    const attn_st_tensor *const *found =
        bsearch(name, st->by_name, st->n_tensors, sizeof *st->by_name, compare_name);
    return found ? *found : NULL;
}

size_t attn_safetensors_file_size(const attn_safetensors *st)
{
    size_t size = st->file ? st->file->size : 0;
    for (size_t i = 0; i < st->n_shards; i++)
        size += attn_safetensors_file_size(st->shards[i]);
    return size;
}

/* The file whose metadata stands for all. */
static const attn_safetensors *metadata_file(const attn_safetensors *st)
{
    return st->n_shards ? st->shards[0] : st;
}

static json_t *metadata_of(const attn_safetensors *st)
{
    return json_object_get(metadata_file(st)->header, "__metadata__");
}

const char *attn_safetensors_metadata(const attn_safetensors *st, const char *key)
{
    return json_string_value(json_object_get(metadata_of(st), key));
}

size_t attn_safetensors_metadata_count(const attn_safetensors *st)
{
    return json_object_size(metadata_of(st));
}

void attn_safetensors_metadata_at(const attn_safetensors *st, size_t index, const char **key,
                                  const char **text)
{
    *key = metadata_file(st)->metadata_keys[index];
    *text = attn_safetensors_metadata(st, *key);
}

/* ---- Reading numbers ------------------------------------------------------------------------ */

static attn_status check_range(const attn_st_tensor *tensor, int64_t first, int64_t n,
                               const uint8_t **data, char *error, size_t error_size)
{
    char shown[SHOWN];
    attn_io_printable(tensor->name, strlen(tensor->name), shown, sizeof shown);
    if (first < 0 || n < 0 || first > tensor->elements || n > tensor->elements - first)
        return attn_io_fail(error, error_size, ATTN_ERR_INVALID_ARGUMENT,
                            "tensor '%s': elements %lld + %lld are outside its %lld", shown,
                            (long long)first, (long long)n, (long long)tensor->elements);
    if ((unsigned)tensor->dtype > ATTN_ST_F8_E5M2)
        return attn_io_fail(error, error_size, ATTN_ERR_UNSUPPORTED,
                            "tensor '%s': dtype %s cannot be read as numbers here", shown,
                            attn_st_dtype_name(tensor->dtype));
    *data = tensor->data + (size_t)first * (attn_st_dtype_bits(tensor->dtype) / 8);
    return ATTN_OK;
}

attn_status attn_st_read_f32(const attn_st_tensor *tensor, int64_t first, int64_t n, float *out,
                             char *error, size_t error_size)
{
    const uint8_t *data = NULL;
    attn_status status = check_range(tensor, first, n, &data, error, error_size);
    return status == ATTN_OK ? attn_st_to_f32(tensor->dtype, data, (size_t)n, out) : status;
}

attn_status attn_st_read_f64(const attn_st_tensor *tensor, int64_t first, int64_t n, double *out,
                             char *error, size_t error_size)
{
    const uint8_t *data = NULL;
    attn_status status = check_range(tensor, first, n, &data, error, error_size);
    return status == ATTN_OK ? attn_st_to_f64(tensor->dtype, data, (size_t)n, out) : status;
}

/* ---- Shards --------------------------------------------------------------------------------- */

/* A shard lies beside its index: its name is a plain file name. */
static bool plain_file_name(const char *name)
{
    return name[0] && !strchr(name, '/') && !strchr(name, '\\') && strcmp(name, ".") &&
           strcmp(name, "..");
}

attn_status attn_safetensors_read_index(const uint8_t *bytes, size_t size, attn_st_index_fn each,
                                        void *user, size_t *count, char *error, size_t error_size)
{
    char text[256] = "", shown[SHOWN], shown_file[SHOWN];
    json_t *index = attn_json_parse((const char *)bytes, size, text, sizeof text);
    json_t *map = json_object_get(index, "weight_map"), *file;
    const char *tensor;
    size_t at = 0;
    attn_status status = ATTN_OK;
    *count = json_object_size(map);
    if (!index)
        status = attn_io_fail(error, error_size, ATTN_ERR_FORMAT, "%s", text);
    else if (!json_is_object(map))
        status = attn_io_fail(error, error_size, ATTN_ERR_FORMAT,
                              "weight_map: missing or not an object");
    if (status == ATTN_OK)
        json_object_foreach(map, tensor, file)
        {
            const char *name = json_string_value(file);
            if (!name || !plain_file_name(name)) {
                status = attn_io_fail(
                    error, error_size, ATTN_ERR_FORMAT,
                    "weight_map: tensor '%s' is in '%s', not a plain file name",
                    attn_io_printable(tensor, strlen(tensor), shown, sizeof shown),
                    name ? attn_io_printable(name, strlen(name), shown_file, sizeof shown_file)
                         : "(no string)");
            } else {
                status = each(user, at++, tensor, name);
            }
            if (status != ATTN_OK)
                break;
        }
    json_decref(index);
    return status;
}

typedef struct index_entry {
    size_t at; /* place in the index */
    char *tensor, *file;
} index_entry;

typedef struct index_list {
    index_entry *entries;
    size_t count, room;
    char *error;
    size_t error_size;
} index_list;

static attn_status add_entry(void *user, size_t at, const char *tensor, const char *file)
{
    index_list *list = user;
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        index_entry *larger = realloc(list->entries, room * sizeof *larger);
        if (!larger)
            return attn_io_no_memory(list->error, list->error_size, "an index");
        list->entries = larger;
        list->room = room;
    }
    index_entry *entry = &list->entries[list->count++];
    entry->at = at;
    entry->tensor = strdup(tensor);
    entry->file = strdup(file);
    return entry->tensor && entry->file
               ? ATTN_OK
               : attn_io_no_memory(list->error, list->error_size, "an index");
}

static void free_entries(index_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->entries[i].tensor);
        free(list->entries[i].file);
    }
    free(list->entries);
}

void attn_safetensors_release(const attn_safetensors *st, const uint8_t *data, size_t bytes)
{
    if (st->file)
        attn_mapped_file_release(st->file, data, bytes);
    for (size_t i = 0; i < st->n_shards; i++)
        attn_safetensors_release(st->shards[i], data, bytes);
}

static int compare_entries(const void *a, const void *b)
{
    const index_entry *x = a, *y = b;
    int order = strcmp(x->file, y->file);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

static attn_status open_single(const char *path, attn_safetensors **out, char *error,
                               size_t error_size)
{
    attn_mapped_file *file;
    attn_status status = attn_mapped_file_open(path, &file, error, error_size);
    return status == ATTN_OK ? attn_safetensors_parse(file, out, error, error_size) : status;
}

/* The path of a file beside `path`; NULL: out of memory. */
static char *beside(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) + 1 : 0;
    char *joined = malloc(length + strlen(name) + 1);
    if (joined) {
        memcpy(joined, path, length);
        strcpy(joined + length, name);
    }
    return joined;
}

/* Opens one shard and takes the tensors that the entries (all of that file) name. */
static attn_status add_shard(attn_safetensors *st, const char *index_path,
                             const index_entry *entries, size_t count, char *error,
                             size_t error_size)
{
    char shown[SHOWN];
    char *path = beside(index_path, entries[0].file);
    if (!path)
        return attn_io_no_memory(error, error_size, entries[0].file);
    attn_status status = open_single(path, &st->shards[st->n_shards], error, error_size);
    free(path);
    if (status != ATTN_OK)
        return status;
    const attn_safetensors *shard = st->shards[st->n_shards++];
    for (size_t i = 0; i < count; i++) {
        const attn_st_tensor *tensor = attn_safetensors_find(shard, entries[i].tensor);
        if (!tensor)
            return attn_io_fail(error, error_size, ATTN_ERR_FORMAT,
                                "%s: weight_map: tensor '%s' is not in '%s'", index_path,
                                attn_io_printable(entries[i].tensor, strlen(entries[i].tensor),
                                                  shown, sizeof shown),
                                entries[i].file);
        st->in_order[entries[i].at] = tensor;
    }
    return ATTN_OK;
}

static const char *file_of(const index_list *list, const char *tensor)
{
    for (size_t i = 0; i < list->count; i++)
        if (!strcmp(list->entries[i].tensor, tensor))
            return list->entries[i].file;
    return "";
}

/* A tensor lies in the shard that the index names, and in no other. */
static attn_status check_once(const attn_safetensors *st, const char *path, const index_list *list,
                              char *error, size_t error_size)
{
    char shown[SHOWN];
    for (size_t s = 0; s < st->n_shards; s++)
        for (size_t i = 0; i < st->shards[s]->n_tensors; i++) {
            const attn_st_tensor *tensor = st->shards[s]->in_order[i];
            const attn_st_tensor *named = attn_safetensors_find(st, tensor->name);
            if (named && named != tensor)
                return attn_io_fail(error, error_size, ATTN_ERR_FORMAT,
                                    "%s: weight_map: tensor '%s' is in '%s', but '%s' holds one too", path,
                                    attn_io_printable(tensor->name, strlen(tensor->name), shown, sizeof shown),
                                    file_of(list, tensor->name), st->shards[s]->file->name);
        }
    return ATTN_OK;
}

static attn_status open_shards(attn_safetensors *st, const char *path, index_list *list,
                               char *error, size_t error_size)
{
    st->in_order = calloc(list->count + 1, sizeof *st->in_order);
    st->by_name = calloc(list->count + 1, sizeof *st->by_name);
    st->shards = calloc(list->count + 1, sizeof *st->shards);
    if (!st->in_order || !st->by_name || !st->shards)
        return attn_io_no_memory(error, error_size, "an index");
    if (list->count)
        qsort(list->entries, list->count, sizeof *list->entries, compare_entries);
    for (size_t first = 0; first < list->count;) {
        size_t last = first + 1;
        while (last < list->count && !strcmp(list->entries[last].file, list->entries[first].file))
            last++;
        attn_status status =
            add_shard(st, path, list->entries + first, last - first, error, error_size);
        if (status != ATTN_OK)
            return status;
        first = last;
    }
    st->n_tensors = list->count;
    attn_safetensors_sort(st);
    return check_once(st, path, list, error, error_size);
}

static attn_status open_index(const char *path, attn_safetensors **out, char *error,
                              size_t error_size)
{
    attn_mapped_file *file;
    attn_status status = attn_mapped_file_open(path, &file, error, error_size);
    if (status != ATTN_OK)
        return status;
    char text[512] = "";
    size_t count;
    index_list list = {.error = text, .error_size = sizeof text};
    status = attn_safetensors_read_index(file->data, file->size, add_entry, &list, &count, text,
                                         sizeof text);
    attn_mapped_file_close(file);
    attn_safetensors *st = NULL;
    if (status != ATTN_OK)
        attn_io_fail(error, error_size, status, "%s: %s", path, text);
    else if (!(st = calloc(1, sizeof *st)))
        status = attn_io_no_memory(error, error_size, path);
    else
        status = open_shards(st, path, &list, error, error_size);
    free_entries(&list);
    if (status != ATTN_OK) {
        attn_safetensors_close(st);
        return status;
    }
    *out = st;
    return ATTN_OK;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

static bool holds_pickle(const char *path)
{
    struct stat info;
    char name[4096];
    const int written = snprintf(name, sizeof name, "%s/pytorch_model.bin", path);
    return written > 0 && (size_t)written < sizeof name && !stat(name, &info);
}

static attn_status open_directory(const char *path, attn_safetensors **out, char *error,
                                  size_t error_size)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    struct stat info;
    for (size_t i = 0; i < 2; i++) {
        size_t room = strlen(path) + strlen(names[i]) + 2;
        char *inside = malloc(room);
        if (!inside)
            return attn_io_no_memory(error, error_size, path);
        snprintf(inside, room, "%s/%s", path, names[i]);
        if (!stat(inside, &info)) {
            attn_status status = i ? open_index(inside, out, error, error_size)
                                   : open_single(inside, out, error, error_size);
            free(inside);
            return status;
        }
        free(inside);
    }
    return attn_io_fail(error, error_size, ATTN_ERR_IO, "%s: holds neither %s nor %s%s", path, names[0], names[1],
                        holds_pickle(path) ? "; pytorch_model.bin is not read" : "");
}

attn_status attn_safetensors_open(const char *path, attn_safetensors **out, char *error,
                                  size_t error_size)
{
    struct stat info;
    *out = NULL;
    if (!stat(path, &info) && S_ISDIR(info.st_mode))
        return open_directory(path, out, error, error_size);
    if (ends_with(path, ".json"))
        return open_index(path, out, error, error_size);
    return open_single(path, out, error, error_size);
}
