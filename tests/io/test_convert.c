/* test_convert.c - checkpoints and GGUF files to folders of Hugging Face's layout. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "io/atomic_file.h"
#include "io/convert.h"
#include "io/gguf_builder.h"
#include "io/gguf_names.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"

static char folder[32], in[64], out[64], error[512];

static void path_in(char *path, size_t size, const char *directory, const char *name)
{
    snprintf(path, size, "%s/%s", directory, name);
}

static int make_folders(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/attn-test-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    path_in(in, sizeof in, folder, "in");
    path_in(out, sizeof out, folder, "out");
    return mkdir(in, 0777);
}

static void remove_tree(const char *path)
{
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        char inner[512];
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(inner);
    }
    if (directory)
        closedir(directory);
    rmdir(path);
}

static int remove_folders(void **state)
{
    (void)state;
    remove_tree(in);
    remove_tree(out);
    return rmdir(folder);
}

static void save(const char *name, const void *bytes, size_t size)
{
    char path[128];
    path_in(path, sizeof path, in, name);
    assert_int_equal(attn_atomic_file_save(path, bytes, size, NULL, 0), ATTN_OK);
}

static json_t *read_json(const char *name)
{
    char path[128];
    attn_mapped_file *file;
    path_in(path, sizeof path, out, name);
    if (attn_mapped_file_open(path, &file, error, sizeof error) != ATTN_OK)
        fail_msg("%s", error);
    json_t *json = attn_json_parse((const char *)file->data, file->size, error, sizeof error);
    attn_mapped_file_close(file);
    assert_non_null(json);
    return json;
}

static attn_status convert(const char *name, attn_st_dtype dtype, attn_convert_report *report)
{
    char path[128];
    attn_convert_options options = {.dtype = dtype};
    if (name)
        path_in(path, sizeof path, in, name);
    return attn_convert(name ? path : in, out, &options, report, error, sizeof error);
}

static attn_safetensors *open_result(void)
{
    attn_safetensors *st;
    if (attn_safetensors_open(out, &st, error, sizeof error) != ATTN_OK)
        fail_msg("%s", error);
    return st;
}

/* ---- Checkpoints ---------------------------------------------------------------------------- */

static void save_checkpoint(const char *name)
{
    attn_st_writer *w;
    int64_t shape[2] = {2, 3}, one[1] = {2};
    float numbers[6] = {1, -2, 3.14159274f, 1e30f, 65504, (float)NAN};
    size_t f, h, n;
    char path[128];
    path_in(path, sizeof path, in, name);
    assert_int_equal(attn_st_writer_create(&w, NULL, 0), ATTN_OK);
    assert_int_equal(attn_st_writer_add(w, "f", ATTN_ST_F32, 2, shape, &f, NULL, 0), ATTN_OK);
    assert_int_equal(attn_st_writer_add(w, "h", ATTN_ST_F16, 2, shape, &h, NULL, 0), ATTN_OK);
    assert_int_equal(attn_st_writer_add(w, "n", ATTN_ST_I16, 1, one, &n, NULL, 0), ATTN_OK);
    assert_int_equal(attn_st_writer_begin(w, path, NULL, 0), ATTN_OK);
    assert_int_equal(attn_st_writer_put_f32(w, f, numbers, 6, NULL, 0), ATTN_OK);
    assert_int_equal(attn_st_writer_put_f32(w, h, numbers, 6, NULL, 0), ATTN_OK);
    assert_int_equal(attn_st_writer_put_bytes(w, n, "\1\0\2\0", 4, NULL, 0), ATTN_OK);
    assert_int_equal(attn_st_writer_finish(w, NULL, 0), ATTN_OK);
    attn_st_writer_destroy(w);
}

static void test_checkpoint(void **state)
{
    (void)state;
    attn_convert_report report;
    float got[6];
    save_checkpoint("model.safetensors");
    save("config.json", "{\"a\":[1],\"torch_dtype\":\"float32\"}", 33);
    save("tokenizer.json", "{}", 2);
    if (convert(NULL, ATTN_ST_F16, &report) != ATTN_OK)
        fail_msg("%s", error);
    assert_int_equal(report.tensors, 3);
    assert_int_equal(report.elements, 14);
    assert_int_equal(report.overflows, 1); /* 1e30 of "f"; "h" keeps its bits */
    assert_true(report.has_config && report.has_tokenizer && !report.note[0]);
    attn_safetensors *st = open_result();
    const attn_st_tensor *f = attn_safetensors_find(st, "f");
    assert_int_equal(f->dtype, ATTN_ST_F16);
    assert_int_equal(attn_st_read_f32(f, 0, 6, got, NULL, 0), ATTN_OK);
    assert_true(got[0] == 1 && got[1] == -2 && got[2] == 3.140625f && isinf(got[3]) &&
                got[4] == 65504 && isnan(got[5]));
    assert_int_equal(attn_safetensors_find(st, "h")->dtype, ATTN_ST_F16);
    assert_int_equal(attn_safetensors_find(st, "n")->dtype, ATTN_ST_I16);
    assert_memory_equal(attn_safetensors_find(st, "n")->data, "\1\0\2\0", 4);
    attn_safetensors_close(st);
    json_t *config = read_json("config.json");
    assert_string_equal(json_string_value(json_object_get(config, "torch_dtype")), "float16");
    assert_int_equal(json_array_size(json_object_get(config, "a")), 1);
    json_decref(config);
    json_decref(read_json("tokenizer.json"));
}

static void test_shards(void **state)
{
    (void)state;
    attn_convert_report report;
    save_checkpoint("one.safetensors");
    const char *index = "{\"weight_map\":{\"f\":\"one.safetensors\"}}";
    save("model.safetensors.index.json", index, strlen(index));
    assert_int_equal(convert("model.safetensors.index.json", ATTN_ST_BF16, &report), ATTN_OK);
    assert_int_equal(report.tensors, 1);
    assert_int_equal(report.overflows, 0);
    assert_false(report.has_config);
    assert_non_null(strstr(report.note, "config.json"));
    attn_safetensors *st = open_result();
    assert_int_equal(attn_safetensors_find(st, "f")->dtype, ATTN_ST_BF16);
    attn_safetensors_close(st);
}

static void test_errors(void **state)
{
    (void)state;
    char path[128];
    attn_convert_options options = {.dtype = ATTN_ST_F64};
    save_checkpoint("model.safetensors");
    path_in(path, sizeof path, in, "model.safetensors");
    assert_int_equal(attn_convert(path, out, &options, NULL, error, sizeof error),
                     ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "F64"));
    options.dtype = ATTN_ST_F32;
    assert_int_equal(attn_convert(path, in, &options, NULL, error, sizeof error),
                     ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "own folder"));
    assert_int_equal(attn_convert(in, in, &options, NULL, error, sizeof error),
                     ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_convert(path, path, &options, NULL, error, sizeof error), ATTN_ERR_IO);
    assert_int_equal(attn_convert("/no/such/model", out, &options, NULL, error, sizeof error),
                     ATTN_ERR_IO);
    assert_int_equal(access(out, F_OK), -1); /* nothing was made so far */
    save("config.json", "{\"quantization_config\":{}}", 26);
    assert_int_equal(convert(NULL, ATTN_ST_F32, NULL), ATTN_ERR_UNSUPPORTED);
    assert_non_null(strstr(error, "quantization_config"));
    save("config.json", "[]", 2);
    assert_int_equal(convert(NULL, ATTN_ST_F32, NULL), ATTN_ERR_FORMAT);
    assert_non_null(strstr(error, "config.json"));
}

/* ---- GGUF ----------------------------------------------------------------------------------- */

enum { WIDTH = 32, HEADS = 2, ROWS = 16 }; /* 2 heads of 8 */

/* F32 data of n elements: element i is i. */
static void put_counting(builder *b, int n)
{
    for (int i = 0; i < n; i++) {
        float x = (float)i;
        put_bytes(b, &x, 4);
    }
}

static void put_number(builder *b, const char *key, uint32_t value)
{
    put_key(b, key, ATTN_GGUF_U32);
    put_u32(b, value);
}

static void put_real(builder *b, const char *key, float value)
{
    put_key(b, key, ATTN_GGUF_F32);
    put_bytes(b, &value, 4);
}

static void save_llama(uint64_t extra_heads, const char *third)
{
    static const uint64_t embedding[] = {WIDTH, 4}, query[] = {WIDTH, ROWS}, bias[] = {ROWS};
    builder b = {.size = 0};
    put_header(&b, 3, 3, 9);
    put_key(&b, "general.architecture", ATTN_GGUF_STRING);
    put_string(&b, "llama");
    put_number(&b, "llama.context_length", 77);
    put_number(&b, "llama.embedding_length", WIDTH);
    put_number(&b, "llama.block_count", 1);
    put_number(&b, "llama.feed_forward_length", 64);
    put_number(&b, "llama.attention.head_count", (uint32_t)(HEADS + extra_heads));
    put_real(&b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    put_real(&b, "llama.rope.freq_base", 100000.0f);
    put_number(&b, "tokenizer.ggml.eos_token_id", 3);
    put_tensor(&b, "token_embd.weight", 2, embedding, ATTN_GGML_Q8_0, 0); /* 4 blocks of 34 bytes */
    put_tensor(&b, "blk.0.attn_q.weight", 2, query, ATTN_GGML_F32, 160);
    put_tensor(&b, third, 1, bias, ATTN_GGML_F32, 160 + 4 * WIDTH * ROWS);
    put_padding(&b, 32);
    for (int block = 0; block < 4; block++) {
        put_bytes(&b, "\0\x3c", 2); /* scale 1 */
        for (int i = 0; i < WIDTH; i++)
            put_u8(&b, (uint8_t)(i + block));
    }
    put_zeros(&b, 160 - 4 * 34);
    put_counting(&b, WIDTH * ROWS);
    put_counting(&b, ROWS);
    save("m.gguf", b.data, b.size);
}

static void check_llama_config(void)
{
    json_t *config = read_json("config.json");
    int64_t n, n_kv, dim, vocabulary, eos;
    double eps, base;
    const char *type;
    int tied, bias;
    assert_int_equal(json_unpack(config, "{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:b, s:b}",
                                 "num_attention_heads", &n, "num_key_value_heads", &n_kv, "head_dim", &dim, "vocab_size", &vocabulary,
                                 "eos_token_id", &eos, "rms_norm_eps", &eps, "rope_theta", &base,
                                 "model_type", &type, "tie_word_embeddings", &tied,
                                 "attention_bias", &bias),
                     0);
    assert_int_equal(n, HEADS);
    assert_int_equal(n_kv, HEADS); /* which the file does not say: some families have others where config.json does not */
    assert_int_equal(dim, WIDTH / HEADS);
    assert_int_equal(vocabulary, 4);
    assert_int_equal(eos, 3);
    assert_true(eps == 1e-5 && base == 100000); /* the decimal, not the f32 beside it */
    assert_true(tied && bias);
    assert_string_equal(type, "llama");
    json_decref(config);
}

static void test_llama(void **state)
{
    (void)state;
    attn_convert_report report;
    float got[WIDTH * ROWS];
    save_llama(0, "blk.0.attn_q.bias");
    if (convert("m.gguf", ATTN_ST_F32, &report) != ATTN_OK)
        fail_msg("%s", error);
    assert_true(report.has_config && !report.has_tokenizer);
    assert_non_null(strstr(report.note, "tokenizer.ggml.model"));
    check_llama_config();
    attn_safetensors *st = open_result();
    const attn_st_tensor *embedding = attn_safetensors_find(st, "model.embed_tokens.weight");
    assert_int_equal(embedding->shape[0], 4);
    assert_int_equal(embedding->shape[1], WIDTH);
    assert_int_equal(attn_st_read_f32(embedding, 3 * WIDTH, WIDTH, got, NULL, 0), ATTN_OK);
    for (int i = 0; i < WIDTH; i++)
        assert_true(got[i] == (float)(i + 3));
    /* row (head, half, i) comes from row (head, i, half) */
    const attn_st_tensor *query =
        attn_safetensors_find(st, "model.layers.0.self_attn.q_proj.weight");
    const attn_st_tensor *bias = attn_safetensors_find(st, "model.layers.0.self_attn.q_proj.bias");
    float got_bias[ROWS];
    assert_int_equal(attn_st_read_f32(query, 0, WIDTH * ROWS, got, NULL, 0), ATTN_OK);
    assert_int_equal(attn_st_read_f32(bias, 0, ROWS, got_bias, NULL, 0), ATTN_OK);
    for (int head = 0; head < HEADS; head++)
        for (int half = 0; half < 2; half++)
            for (int i = 0; i < 4; i++) {
                int row = 8 * head + 4 * half + i, from = 8 * head + 2 * i + half;
                assert_true(got_bias[row] == (float)from);
                for (int c = 0; c < WIDTH; c++)
                    assert_true(got[row * WIDTH + c] == (float)(from * WIDTH + c));
            }
    attn_safetensors_close(st);
}

static void expect_llama_error(uint64_t extra_heads, const char *third, attn_status want,
                               const char *word)
{
    save_llama(extra_heads, third);
    attn_status status = convert("m.gguf", ATTN_ST_F32, NULL);
    if (status != want || !strstr(error, word))
        fail_msg("status %d, '%s' does not say '%s'", (int)status, error, word);
}

static void test_llama_errors(void **state)
{
    (void)state;
    expect_llama_error(1, "blk.0.attn_q.bias", ATTN_ERR_FORMAT, "16 rows are not 3 heads");
    expect_llama_error(0, "blk.0.strange.weight", ATTN_ERR_UNSUPPORTED, "'blk.0.strange.weight'");
    expect_llama_error(0, "blk.00.attn_q.weight", ATTN_ERR_UNSUPPORTED, "'blk.00.attn_q.weight'");
    expect_llama_error(0, "blk..attn_q.weight", ATTN_ERR_UNSUPPORTED, "'blk..attn_q.weight'");
    expect_llama_error(0, "output_norm", ATTN_ERR_UNSUPPORTED, "'output_norm'");
    expect_llama_error(0, "rope_freqs.weight", ATTN_ERR_UNSUPPORTED, "'rope_freqs.weight'");
}

/* GPT-2: matrices turn, also when they are stored in blocks. */
static void test_gpt2(void **state)
{
    static const uint64_t embedding[] = {WIDTH, 4}, wide[] = {64, 3}, bias[] = {3};
    (void)state;
    builder b = {.size = 0};
    float got[64 * 3];
    put_header(&b, 3, 3, 7);
    put_key(&b, "general.architecture", ATTN_GGUF_STRING);
    put_string(&b, "gpt2");
    put_number(&b, "gpt2.context_length", 77);
    put_number(&b, "gpt2.embedding_length", WIDTH);
    put_number(&b, "gpt2.block_count", 1);
    put_number(&b, "gpt2.feed_forward_length", 64);
    put_number(&b, "gpt2.attention.head_count", HEADS);
    put_real(&b, "gpt2.attention.layer_norm_epsilon", 1e-5f);
    put_tensor(&b, "token_embd.weight", 2, embedding, ATTN_GGML_F32, 0);
    put_tensor(&b, "blk.0.ffn_down.weight", 2, wide, ATTN_GGML_Q8_0,
               512); /* 6 blocks of 34 bytes */
    put_tensor(&b, "blk.0.ffn_down.bias", 1, bias, ATTN_GGML_F32, 736);
    put_padding(&b, 32);
    put_counting(&b, 4 * WIDTH);
    for (int block = 0; block < 6; block++) {
        put_bytes(&b, "\0\x3c", 2);
        for (int i = 0; i < 32; i++)
            put_u8(&b, (uint8_t)(block * 8 + i));
    }
    put_zeros(&b, 736 - 512 - 6 * 34);
    put_counting(&b, 3);
    save("m.gguf", b.data, b.size);
    if (convert("m.gguf", ATTN_ST_F32, NULL) != ATTN_OK)
        fail_msg("%s", error);
    attn_safetensors *st = open_result();
    const attn_st_tensor *turned = attn_safetensors_find(st, "transformer.h.0.mlp.c_proj.weight");
    assert_int_equal(turned->shape[0], 64);
    assert_int_equal(turned->shape[1], 3);
    assert_int_equal(attn_st_read_f32(turned, 0, 64 * 3, got, NULL, 0), ATTN_OK);
    for (int r = 0; r < 64; r++)
        for (int c = 0; c < 3; c++)
            assert_true(got[3 * r + c] == (float)((2 * c + r / 32) * 8 + r % 32));
    assert_int_equal(attn_safetensors_find(st, "transformer.h.0.mlp.c_proj.bias")->n_dims, 1);
    assert_non_null(attn_safetensors_find(st, "transformer.wte.weight"));
    attn_safetensors_close(st);
}

static void test_names(void **state)
{
    static const struct {
        const char *architecture, *gguf, *hf;
        enum attn_gguf_layout layout;
    } names[] = {
        {"llama", "output.weight", "lm_head.weight", ATTN_GGUF_SAME},
        {"llama", "blk.31.attn_k.weight", "model.layers.31.self_attn.k_proj.weight",
         ATTN_GGUF_ROPE_KEY},
        {"qwen2", "blk.3.attn_k.bias", "model.layers.3.self_attn.k_proj.bias", ATTN_GGUF_SAME},
        {"qwen3", "blk.0.attn_q_norm.weight", "model.layers.0.self_attn.q_norm.weight",
         ATTN_GGUF_SAME},
        {"gpt2", "blk.7.attn_qkv.weight", "transformer.h.7.attn.c_attn.weight",
         ATTN_GGUF_TRANSPOSED},
        {"gpt2", "blk.7.attn_qkv.bias", "transformer.h.7.attn.c_attn.bias", ATTN_GGUF_SAME},
        {"bert", "blk.5.layer_output_norm.bias", "encoder.layer.5.output.LayerNorm.bias",
         ATTN_GGUF_SAME},
        {"bert", "token_embd_norm.weight", "embeddings.LayerNorm.weight", ATTN_GGUF_SAME},
    };
    (void)state;
    char name[ATTN_GGUF_HF_NAME];
    enum attn_gguf_layout layout;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        attn_gguf_string architecture = {names[i].architecture, strlen(names[i].architecture)};
        assert_int_equal(
            attn_gguf_hf_name(architecture, names[i].gguf, name, &layout, error, sizeof error),
            ATTN_OK);
        assert_string_equal(name, names[i].hf);
        assert_int_equal(layout, names[i].layout);
    }
    assert_int_equal(attn_gguf_hf_name((attn_gguf_string){"mamba", 5}, "output.weight", name,
                                       &layout, error, sizeof error),
                     ATTN_ERR_UNSUPPORTED);
    assert_non_null(strstr(error, "'mamba'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_checkpoint, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(test_shards, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(test_errors, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(test_llama, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(test_llama_errors, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(test_gpt2, make_folders, remove_folders),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
