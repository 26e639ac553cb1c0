/* piece_count.c - splitting texts into pieces and counting them. */
#include "train/piece_count.h"

#include <stdlib.h>
#include <string.h>
#include "text/bytelevel.h"
#include "text/fast_split.h"
#include "text/regex.h"
#include "train/train_error.h"

static uint32_t hash_of(const char *bytes, size_t n)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)bytes[i]) * 16777619u;
    return h ^ h >> 15;
}

static void put_slot(attn_pieces *p, uint32_t hash, uint32_t value)
{
    size_t at = hash & (p->n_slots - 1);
    while (p->slots[at])
        at = (at + 1) & (p->n_slots - 1);
    p->slots[at] = value;
}

/* Keeps the table at most half full. */
static attn_status grow_slots(attn_pieces *p)
{
    if (2 * (p->n + 1) <= p->n_slots)
        return ATTN_OK;
    size_t n_slots = p->n_slots ? 2 * p->n_slots : 1024;
    uint32_t *slots = calloc(n_slots, sizeof *slots);
    if (!slots)
        return attn_train_no_memory();
    free(p->slots);
    p->slots = slots;
    p->n_slots = n_slots;
    for (size_t i = 0; i < p->n; i++)
        put_slot(p, p->data[i].hash, (uint32_t)i + 1);
    return ATTN_OK;
}

static attn_status count_piece(attn_pieces *p, const char *bytes, size_t n)
{
    uint32_t hash = hash_of(bytes, n);
    ATTN_TRAIN_TRY(grow_slots(p));
    for (size_t at = hash & (p->n_slots - 1); p->slots[at]; at = (at + 1) & (p->n_slots - 1)) {
        attn_piece *piece = &p->data[p->slots[at] - 1];
        if (piece->hash == hash && piece->size == n && memcmp(piece->bytes, bytes, n) == 0) {
            piece->count++;
            return ATTN_OK;
        }
    }
    if (p->n == p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : 1024;
        attn_piece *data =
            capacity < UINT32_MAX ? realloc(p->data, capacity * sizeof *data) : NULL;
        if (!data)
            return attn_train_no_memory();
        p->data = data;
        p->capacity = capacity;
    }
    p->data[p->n] = (attn_piece){bytes, (uint32_t)n, hash, 1};
    put_slot(p, hash, (uint32_t)++p->n);
    return ATTN_OK;
}

attn_status attn_train_check_utf8(const attn_text *text, int64_t index)
{
    if (!text->data && text->size)
        return attn_train_fail(ATTN_ERR_INVALID_ARGUMENT, "texts[%lld].data is NULL",
                               (long long)index);
    if (text->size > INT32_MAX)
        return attn_train_fail(ATTN_ERR_INVALID_ARGUMENT,
                               "texts[%lld] has %zu bytes; at most 2^31 - 1 are served",
                               (long long)index, text->size);
    size_t valid = attn_utf8_valid_prefix(text->data, text->size);
    if (valid < text->size)
        return attn_train_fail(ATTN_ERR_FORMAT, "texts[%lld]: byte %zu is not UTF-8",
                               (long long)index, valid);
    return ATTN_OK;
}

/* The pattern matches at every place, so pieces follow one another without gaps. */
static attn_status split(attn_pieces *p, const attn_regex *regex, attn_regex_scratch *scratch,
                         const attn_text *text)
{
    size_t at = 0;
    while (at < text->size) {
        size_t start = at, end = 0;
        size_t n = attn_fast_split(ATTN_FAST_GPT2, text->data, text->size, at);
        if (n == 0) {
            attn_status status = attn_regex_find(regex, scratch, text->data, text->size, at, true,
                                                 &start, &end);
            if (status != ATTN_OK)
                return attn_train_fail(status, "splitting at byte %zu: %s", at,
                                       attn_text_error_buffer());
            n = start == at && end > at ? end - at : attn_utf8_size(text->data[at]);
        }
        ATTN_TRAIN_TRY(count_piece(p, text->data + at, n));
        at += n;
    }
    return ATTN_OK;
}

attn_status attn_pieces_add_text(attn_pieces *pieces, const attn_text *text, int64_t index)
{
    attn_regex *regex = NULL;
    attn_regex_scratch *scratch = NULL;
    ATTN_TRAIN_TRY(attn_train_check_utf8(text, index));
    attn_status status = attn_regex_create(attn_bytelevel_pattern, strlen(attn_bytelevel_pattern),
                                           "pattern", &regex);
    if (status == ATTN_OK)
        status = attn_regex_scratch_create(&scratch);
    if (status != ATTN_OK)
        attn_train_fail(status, "%s", attn_text_error_buffer());
    else
        status = split(pieces, regex, scratch, text);
    attn_regex_scratch_destroy(scratch);
    attn_regex_destroy(regex);
    return status;
}

void attn_pieces_free(attn_pieces *pieces)
{
    free(pieces->data);
    free(pieces->slots);
    memset(pieces, 0, sizeof *pieces);
}
