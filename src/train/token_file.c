/* token_file.c - texts to a file of ids, and its mapping. */
#include "train/token_file.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "io/atomic_file.h"
#include "train/train_error.h"

enum { HEADER_BYTES = 64 };
static const char magic[8] = "ATTNIDS1";

/* ---- Little-endian numbers ---- */

static void put_number(uint8_t *out, int bytes, uint64_t value)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get_number(const uint8_t *in, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)in[i] << 8 * i;
    return value;
}

int32_t attn_token_at(const attn_train_data *data, const uint8_t *ids, int64_t at)
{
    const uint8_t *p = ids + at * data->width;
    return data->width == 2 ? (int32_t)(p[0] | p[1] << 8) : (int32_t)get_number(p, 4);
}

/* FNV-1a over ids in place of bytes; never 0, which stands for a file that has none. */
static uint64_t digest_of(const attn_train_data *view, const uint8_t *ids, int64_t n)
{
    uint64_t digest = 14695981039346656037u;
    for (int64_t i = 0; i < n; i++)
        digest = (digest ^ (uint32_t)attn_token_at(view, ids, i)) * 1099511628211u;
    return digest ? digest : 1;
}

/* ---- Writing ---- */

typedef struct id_list {
    uint8_t *bytes;
    int64_t n, capacity; /* ids */
} id_list;

typedef struct encoder {
    const attn_train_encode_args *args;
    attn_encoding *encoding;
    id_list ids;
    int64_t vocab_size, done, total; /* bytes of text */
    int width;
    int32_t separator; /* -1: none */
} encoder;

static attn_status add_ids(encoder *e, const int32_t *ids, int64_t n)
{
    id_list *list = &e->ids;
    if (list->n + n > list->capacity) {
        int64_t capacity = 2 * list->capacity > list->n + n ? 2 * list->capacity : list->n + n + 1024;
        uint8_t *bytes = realloc(list->bytes, (size_t)(capacity * e->width));
        if (!bytes)
            return attn_train_no_memory();
        list->bytes = bytes;
        list->capacity = capacity;
    }
    for (int64_t i = 0; i < n; i++)
        put_number(list->bytes + (list->n + i) * e->width, e->width, (uint32_t)ids[i]);
    list->n += n;
    return ATTN_OK;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || ((unsigned char)c & 0x80);
}

/* Text goes in parts of about 1 MiB, so that memory for offsets stays small. A part ends behind a line feed between two
 * characters that are surely no white space: there the whole text is cut, too. Without one it is taken whole. */
static size_t part_end(const attn_text *text, size_t at)
{
    const size_t most = (size_t)1 << 20;
    if (text->size - at <= most)
        return text->size;
    for (size_t end = at + most; end + 1 < text->size; end++) {
        const char *feed = memchr(text->data + end, '\n', text->size - 1 - end);
        if (!feed)
            break;
        end = (size_t)(feed - text->data);
        if (!is_blank(feed[-1]) && !is_blank(feed[1]))
            return end + 1;
    }
    return text->size;
}

static attn_status encode_text(encoder *e, const attn_text *text, const char *name, int64_t index)
{
    attn_encode_options options;
    ATTN_ARGS_INIT(&options);
    options.flags = ATTN_ENCODE_NO_SPECIAL | ATTN_ENCODE_SPECIALS_AS_TEXT;
    if (e->separator >= 0)
        ATTN_TRAIN_TRY(add_ids(e, &e->separator, 1));
    for (size_t at = 0; at < text->size;) {
        size_t end = part_end(text, at);
        attn_status status = attn_tokenizer_encode(e->args->tokenizer, text->data + at, end - at, NULL,
                                                   0, &options, e->encoding);
        if (status != ATTN_OK)
            return attn_train_fail(status, "%s[%lld]: encoding from byte %zu: %s", name, (long long)index, at,
                                   attn_tokenizer_error());
        ATTN_TRAIN_TRY(
            add_ids(e, attn_encoding_ids(e->encoding), attn_encoding_length(e->encoding)));
        e->done += (int64_t)(end - at);
        at = end;
        if (e->args->progress && e->args->progress(e->args->progress_user, e->done, e->total))
            return attn_train_fail(ATTN_ERR_CANCELLED, "stopped after %lld bytes of text",
                                   (long long)e->done);
    }
    return ATTN_OK;
}

/* Bytes of text that ids stand for. */
static attn_status text_bytes(const encoder *e, int64_t first, int64_t n, int64_t *bytes)
{
    attn_train_data view = {.width = e->width};
    int32_t *ids = malloc((size_t)(n + 1) * sizeof *ids);
    size_t size = 0;
    if (!ids)
        return attn_train_no_memory();
    for (int64_t i = 0; i < n; i++)
        ids[i] = attn_token_at(&view, e->ids.bytes, first + i);
    attn_status status = attn_tokenizer_decode(e->args->tokenizer, ids, n, ATTN_DECODE_SKIP_SPECIAL,
                                               NULL, 0, &size);
    free(ids);
    *bytes = (int64_t)size;
    return status == ATTN_OK ? ATTN_OK : attn_train_fail(status, "%s", attn_tokenizer_error());
}

static attn_status write_file(const encoder *e, int64_t n_train, int64_t validation_bytes)
{
    uint8_t header[HEADER_BYTES] = {0};
    char *error = attn_train_error_buffer();
    attn_atomic_file *file;
    memcpy(header, magic, sizeof magic);
    put_number(header + 8, 8, (uint64_t)e->width);
    put_number(header + 16, 8, (uint64_t)e->vocab_size);
    put_number(header + 24, 8, (uint64_t)n_train);
    put_number(header + 32, 8, (uint64_t)(e->ids.n - n_train));
    put_number(header + 40, 8, (uint64_t)validation_bytes);
    const attn_train_data view = {.width = e->width};
    put_number(header + 48, 8, digest_of(&view, e->ids.bytes, e->ids.n));
    attn_status status = attn_atomic_file_create(e->args->path, &file, error, ATTN_TRAIN_ERROR_BYTES);
    if (status != ATTN_OK)
        return status;
    status = attn_atomic_file_write(file, header, sizeof header, error, ATTN_TRAIN_ERROR_BYTES);
    if (status == ATTN_OK)
        status = attn_atomic_file_write(file, e->ids.bytes, (size_t)(e->ids.n * e->width), error,
                                        ATTN_TRAIN_ERROR_BYTES);
    if (status != ATTN_OK) {
        attn_atomic_file_abort(file);
        return status;
    }
    return attn_atomic_file_commit(file, error, ATTN_TRAIN_ERROR_BYTES);
}

static attn_status encode_all(encoder *e)
{
    const attn_train_encode_args *a = e->args;
    int64_t n_train, bytes = 0;
    for (int64_t i = 0; i < a->n_texts; i++)
        e->total += (int64_t)a->texts[i].size;
    for (int64_t i = 0; i < a->n_validation; i++)
        e->total += (int64_t)a->validation[i].size;
    for (int64_t i = 0; i < a->n_texts; i++)
        ATTN_TRAIN_TRY(encode_text(e, &a->texts[i], "texts", i));
    n_train = e->ids.n;
    for (int64_t i = 0; i < a->n_validation; i++)
        ATTN_TRAIN_TRY(encode_text(e, &a->validation[i], "validation", i));
    if (a->n_validation == 0)
        n_train -= (int64_t)((double)n_train * a->validation_share);
    ATTN_TRAIN_REQUIRE(n_train >= 2, "the texts give %lld training ids; at least 2 are needed",
                       (long long)n_train);
    ATTN_TRAIN_TRY(text_bytes(e, n_train, e->ids.n - n_train, &bytes));
    return write_file(e, n_train, bytes);
}

static attn_status check_encode(const attn_train_encode_args *a)
{
    ATTN_TRAIN_REQUIRE(a->tokenizer, "tokenizer is NULL");
    ATTN_TRAIN_REQUIRE(a->path, "path is NULL");
    ATTN_TRAIN_REQUIRE(a->n_texts >= 1 && a->texts, "n_texts is %lld; there must be a text",
                       (long long)a->n_texts);
    ATTN_TRAIN_REQUIRE(a->n_validation >= 0 && (!a->n_validation || a->validation),
                       "n_validation is %lld, or validation is NULL", (long long)a->n_validation);
    ATTN_TRAIN_REQUIRE(a->validation_share >= 0 && a->validation_share <= 0.5,
                       "validation_share is %g; it must lie in 0 .. 0.5", a->validation_share);
    for (int64_t i = 0; i < a->n_texts; i++)
        ATTN_TRAIN_REQUIRE(a->texts[i].data || !a->texts[i].size, "texts[%lld].data is NULL", (long long)i);
    for (int64_t i = 0; i < a->n_validation; i++)
        ATTN_TRAIN_REQUIRE(a->validation[i].data || !a->validation[i].size,
                           "validation[%lld].data is NULL", (long long)i);
    return ATTN_OK;
}

attn_status attn_train_encode(const attn_train_encode_args *args)
{
    attn_train_encode_args a;
    attn_train_clear_error();
    ATTN_TRAIN_TRY(attn_train_args(&a, sizeof a, args, "attn_train_encode_args"));
    ATTN_TRAIN_TRY(check_encode(&a));
    encoder e = {.args = &a, .vocab_size = attn_tokenizer_size(a.tokenizer)};
    e.width = e.vocab_size <= 65536 ? 2 : 4;
    e.separator = attn_tokenizer_id(a.tokenizer, "<|endoftext|>", 13);
    attn_status status = attn_encoding_create(&e.encoding);
    status = status == ATTN_OK ? encode_all(&e) : attn_train_no_memory();
    attn_encoding_destroy(e.encoding);
    free(e.ids.bytes);
    return status;
}

/* ---- Reading ---- */

/* Fills data from its file's header. The sizes are checked before anything is multiplied. */
static attn_status read_header(attn_train_data *data)
{
    const uint8_t *h = data->file->data;
    const size_t size = data->file->size;
    const char *name = data->file->name;
    if (size < HEADER_BYTES || memcmp(h, magic, sizeof magic) != 0)
        return attn_train_fail(ATTN_ERR_FORMAT, "%.300s is not a file of ids", name);
    uint64_t width = get_number(h + 8, 8), vocab = get_number(h + 16, 8);
    uint64_t n_train = get_number(h + 24, 8), n_validation = get_number(h + 32, 8);
    uint64_t bytes = get_number(h + 40, 8), room;
    if ((width != 2 && width != 4) || vocab < 1 || vocab > INT32_MAX || bytes > INT64_MAX)
        return attn_train_fail(ATTN_ERR_FORMAT, "%.300s: ids of %llu bytes, vocabulary of %llu", name,
                               (unsigned long long)width, (unsigned long long)vocab);
    room = (size - HEADER_BYTES) / width;
    if (n_train > room || n_validation > room - n_train ||
        HEADER_BYTES + (n_train + n_validation) * width != size)
        return attn_train_fail(ATTN_ERR_FORMAT, "%.300s: %llu + %llu ids do not fill %zu bytes", name,
                               (unsigned long long)n_train, (unsigned long long)n_validation, size);
    data->width = (int64_t)width;
    data->vocab_size = (int64_t)vocab;
    data->n_train = (int64_t)n_train;
    data->n_validation = (int64_t)n_validation;
    data->validation_bytes = (int64_t)bytes;
    data->train = h + HEADER_BYTES;
    data->validation = data->train + n_train * width;
    uint64_t digest = get_number(h + 48, 8);
    if (digest && digest != digest_of(data, data->train, data->n_train + data->n_validation))
        return attn_train_fail(ATTN_ERR_FORMAT, "%.300s: its ids are not those that were written (their digest differs)", name);
    return ATTN_OK;
}

attn_status attn_train_data_open(const char *path, attn_train_data **data)
{
    attn_train_clear_error();
    ATTN_TRAIN_REQUIRE(path && data, "%s is NULL", path ? "data" : "path");
    *data = calloc(1, sizeof **data);
    if (!*data)
        return attn_train_no_memory();
    attn_status status = attn_mapped_file_open(path, &(*data)->file, attn_train_error_buffer(),
                                               ATTN_TRAIN_ERROR_BYTES);
    if (status == ATTN_OK)
        status = read_header(*data);
    if (status != ATTN_OK) {
        attn_train_data_close(*data);
        *data = NULL;
    }
    return status;
}

void attn_train_data_close(attn_train_data *data)
{
    if (data)
        attn_mapped_file_close(data->file);
    free(data);
}

attn_status attn_train_data_get_info(const attn_train_data *data, attn_train_data_info *info)
{
    attn_train_clear_error();
    ATTN_TRAIN_REQUIRE(data && info, "%s is NULL", data ? "info" : "data");
    attn_train_data_info ours = {.struct_size = sizeof ours,
                                 .vocab_size = data->vocab_size,
                                 .n_train = data->n_train,
                                 .n_validation = data->n_validation};
    ATTN_TRAIN_REQUIRE(info->struct_size >= sizeof(size_t) && info->struct_size <= 4096,
                       "info.struct_size is %zu", info->struct_size);
    if (data->n_validation)
        ours.validation_bytes_per_token = (double)data->validation_bytes / (double)data->n_validation;
    size_t size = info->struct_size < sizeof ours ? info->struct_size : sizeof ours;
    ours.struct_size = info->struct_size;
    memcpy(info, &ours, size);
    return ATTN_OK;
}
