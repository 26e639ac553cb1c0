/* fuzz_gguf.c - any bytes as a GGUF file: refused, or every value and tensor can be read to its
 * last byte. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/dequant.h"
#include "io/gguf.h"
#include "io/gguf_config.h"
#include "io/gguf_names.h"
#include "io/gguf_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Keeps the compiler from dropping reads. */
static volatile uint8_t sink;

static void touch(const void *bytes, size_t size)
{
    const uint8_t *p = bytes;
    if (size) {
        sink = p[0];
        sink = p[size - 1];
    }
}

static void read_scalars(const attn_gguf *gguf, const char *key)
{
    uint64_t u;
    int64_t i;
    double d;
    bool b;
    attn_gguf_string text;
    attn_gguf_get_u64(gguf, key, &u, NULL, 0);
    attn_gguf_get_i64(gguf, key, &i, NULL, 0);
    attn_gguf_get_f64(gguf, key, &d, NULL, 0);
    attn_gguf_get_bool(gguf, key, &b, NULL, 0);
    if (attn_gguf_get_string(gguf, key, &text, NULL, 0) == ATTN_OK)
        touch(text.text, text.length);
}

static void read_arrays(const attn_gguf *gguf, const char *key)
{
    char error[64];
    int64_t *integers;
    double *reals;
    attn_gguf_string *texts;
    size_t count;
    if (attn_gguf_get_i64_array(gguf, key, &integers, &count, error, sizeof error) == ATTN_OK) {
        touch(integers, count * sizeof *integers);
        free(integers);
    }
    if (attn_gguf_get_f64_array(gguf, key, &reals, &count, error, sizeof error) == ATTN_OK) {
        touch(reals, count * sizeof *reals);
        free(reals);
    }
    if (attn_gguf_get_string_array(gguf, key, &texts, &count, error, sizeof error) == ATTN_OK) {
        for (size_t i = 0; i < count; i++)
            touch(texts[i].text, texts[i].length);
        free(texts);
    }
}

static void read_tensor(const attn_gguf *gguf, const attn_gguf_tensor *tensor)
{
    float out[256];
    char error[128];
    int64_t block = attn_ggml_type(tensor->type)->block_elements;
    touch(tensor->data, tensor->bytes);
    attn_dequant(tensor->type, tensor->data, tensor->bytes, tensor->elements - block, block, out,
                 error, sizeof error);
    if (attn_gguf_find_tensor(gguf, tensor->name) != tensor)
        abort();
}

/* What attn_convert makes of values and names. */
static void translate(const attn_gguf *gguf)
{
    json_t *json, *config;
    char error[256], name[ATTN_GGUF_HF_NAME];
    enum attn_gguf_layout layout;
    attn_gguf_string architecture;
    if (attn_gguf_config_json(gguf, "float32", &json, error, sizeof error) == ATTN_OK)
        json_decref(json);
    if (attn_gguf_tokenizer_json(gguf, &json, &config, error, sizeof error) == ATTN_OK) {
        json_decref(json);
        json_decref(config);
    }
    if (attn_gguf_get_string(gguf, "general.architecture", &architecture, NULL, 0) != ATTN_OK)
        return;
    for (size_t t = 0; t < attn_gguf_tensor_count(gguf); t++) {
        const char *tensor = attn_gguf_tensor_at(gguf, t)->name;
        if (attn_gguf_hf_name(architecture, tensor, name, &layout, error, sizeof error) ==
                ATTN_OK &&
            (!name[0] || strlen(name) + 1 >= sizeof name)) /* nothing was cut off */
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_mapped_file *file;
    attn_gguf *gguf;
    char error[256] = "";
    if (attn_mapped_file_copy(data, size, "fuzz", &file, error, sizeof error) != ATTN_OK)
        return 0;
    if (attn_gguf_parse(file, &gguf, error, sizeof error) != ATTN_OK) {
        if (!error[0] || gguf)
            abort(); /* an error says why */
        return 0;
    }
    for (size_t v = 0; v < attn_gguf_value_count(gguf); v++) {
        const char *key = attn_gguf_value_at(gguf, v)->key;
        if (attn_gguf_find(gguf, key) != attn_gguf_value_at(gguf, v))
            abort();
        read_scalars(gguf, key);
        read_arrays(gguf, key);
    }
    for (size_t t = 0; t < attn_gguf_tensor_count(gguf); t++)
        read_tensor(gguf, attn_gguf_tensor_at(gguf, t));
    translate(gguf);
    attn_gguf_close(gguf);
    return 0;
}
