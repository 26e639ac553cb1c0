/* Every family against tiny checkpoints with random weights, computed by Hugging Face Transformers in f32 (attention in
 * eager mode): logits or hidden states, attention weights of a layer, padded batches, greedy tokens with and without the
 * cache. tests/data/families holds NAME.safetensors, NAME.config.json and NAME_RUN_ARRAY.npy. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "attn/model.h"

#define FOLDER ATTN_SOURCE_DIR "/tests/data/families/"
/* The absolute tolerance of each array stands in tolerances.txt: 2e-5, or 5 times what Transformers' own f32 result is off
 * from its f64 one. */
#define RTOL 1e-4

static const char *const all_names[] = {
    "bert",      "bert_decoder", "gemma3_both_ways", "llama_dynamic_long", "bert_mlm", "marian", "mbart",          "bert_untied",    "distilbert",  "gemma",      "gemma2",   "gemma3",         "gemma3_both_scaled",
    "gpt2",      "gpt2_inverse_unscaled", "gpt_neox",   "gpt_oss",     "llama3_rope", "llama_yarn_mscale", "mistral_window", "modernbert",
    "opt",       "opt_post",          "opt_projection", "qwen2",       "qwen2_windows", "qwen3",  "roberta",        "t5"};
#define N_NAMES (sizeof all_names / sizeof *all_names)

typedef struct array {
    void *data; /* NULL: no such file */
    int64_t size, shape[4];
} array;

/* A .npy file, C order, of 4- or 8-byte elements. */
static array load(const char *model, const char *name)
{
    array a = {NULL, 1, {1, 1, 1, 1}};
    char path[600], header[256] = "";
    unsigned char start[10];
    snprintf(path, sizeof path, FOLDER "%s_%s.npy", model, name);
    FILE *file = fopen(path, "rb");
    if (!file)
        return a;
    assert_int_equal(fread(start, 1, 10, file), 10);
    const size_t length = (size_t)start[8] + 256 * (size_t)start[9];
    assert_true(length < sizeof header && fread(header, 1, length, file) == length);
    const char *shape = strstr(header, "'shape': (");
    assert_non_null(shape);
    shape += strlen("'shape': (");
    for (int i = 0; i < 4 && *shape >= '0' && *shape <= '9'; i++) {
        char *end;
        a.shape[i] = strtoll(shape, &end, 10);
        a.size *= a.shape[i];
        shape = end + strspn(end, ", ");
    }
    const size_t bytes = (size_t)a.size * (strstr(header, "<i8") ? 8 : 4);
    a.data = malloc(bytes);
    assert_int_equal(fread(a.data, 1, bytes, file), bytes);
    fclose(file);
    return a;
}

static array need(const char *model, const char *name)
{
    array a = load(model, name);
    if (!a.data)
        fail_msg("%s_%s.npy is missing", model, name);
    return a;
}

static int32_t *as_ids(array *a)
{
    int32_t *ids = a->data ? malloc((size_t)a->size * sizeof *ids) : NULL;
    for (int64_t i = 0; ids && i < a->size; i++)
        ids[i] = (int32_t)((int64_t *)a->data)[i];
    free(a->data);
    a->data = NULL;
    return ids;
}

static uint8_t *as_keep(array *a)
{
    uint8_t *keep = a->data ? malloc((size_t)a->size) : NULL;
    for (int64_t i = 0; keep && i < a->size; i++)
        keep[i] = ((int64_t *)a->data)[i] != 0;
    free(a->data);
    a->data = NULL;
    return keep;
}

static double tolerance(const char *model, const char *name)
{
    char wanted[200], key[200];
    double value, found = -1;
    FILE *file = fopen(FOLDER "tolerances.txt", "r");
    snprintf(wanted, sizeof wanted, "%s_%s", model, name);
    assert_non_null(file);
    while (found < 0 && fscanf(file, "%199s %lf", key, &value) == 2)
        found = strcmp(key, wanted) ? -1 : value;
    fclose(file);
    if (found < 0)
        fail_msg("tolerances.txt has no %s", wanted);
    return found;
}

static void compare(const char *model, const char *name, const float *got)
{
    array want = load(model, name);
    const double absolute = want.data ? tolerance(model, name) : 0;
    for (int64_t i = 0; want.data && i < want.size; i++) {
        double w = (double)((float *)want.data)[i];
        if (!(fabs((double)got[i] - w) <= absolute + RTOL * fabs(w)))
            fail_msg("%s %s[%lld] is %.9g, not %.9g", model, name, (long long)i, (double)got[i], w);
    }
    free(want.data);
}

typedef struct run {
    attn_model *model;
    attn_session *session;
    attn_model_info info;
} run;

static run start_file(const char *name, const char *ending, int64_t batch)
{
    run r;
    char path[600];
    attn_session_options options;
    snprintf(path, sizeof path, FOLDER "%s.%s", name, ending);
    if (attn_model_load(path, NULL, &r.model) != ATTN_OK)
        fail_msg("%s: %s", name, attn_model_error(NULL));
    ATTN_ARGS_INIT(&options);
    options.batch = batch;
    assert_int_equal(attn_session_create(r.model, &options, &r.session), ATTN_OK);
    ATTN_ARGS_INIT(&r.info);
    assert_int_equal(attn_model_get_info(r.model, &r.info), ATTN_OK);
    return r;
}

static run start(const char *name, int64_t batch)
{
    return start_file(name, "safetensors", batch);
}

static void finish(run *r)
{
    attn_session_destroy(r->session);
    attn_model_destroy(r->model);
}

static void check(const char *name, attn_status status)
{
    if (status != ATTN_OK)
        fail_msg("%s: %s", name, attn_model_error(NULL));
}

/* The whole matrix of one layer, row by row. */
static float *all_rows(attn_forward_args *args, const run *r, int64_t layer, int32_t kind, int64_t batch, int64_t n_keys)
{
    const int64_t n = args->n_tokens, heads = r->info.n_heads;
    attn_attention_row *rows = calloc((size_t)(batch * heads * n), sizeof *rows);
    for (int64_t i = 0; i < batch * heads * n; i++)
        rows[i] = (attn_attention_row){layer, i / (heads * n), i / n % heads, i % n, kind, 0};
    args->rows = rows;
    args->n_rows = batch * heads * n;
    args->row_stride = n_keys;
    args->row_weights = malloc((size_t)(args->n_rows * n_keys) * sizeof(float));
    return args->row_weights;
}

static void run_encoder(const char *name, run *r, int32_t *ids, uint8_t *keep, array shape)
{
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    args.tokens = ids;
    args.n_tokens = shape.shape[1];
    args.keep = keep;
    check(name, attn_model_forward_encoder(r->session, &args));
}

static void check_forward(const char *const *names, size_t n_names, const char *ending)
{
    for (size_t m = 0; m < n_names; m++) {
        array in = need(names[m], "forward_in_input_ids"), mask = load(names[m], "forward_in_attention_mask");
        array types = load(names[m], "forward_in_token_type_ids");
        const array shape = in;
        const int64_t batch = in.shape[0];
        int32_t *ids = as_ids(&in), *type_ids = as_ids(&types);
        uint8_t *keep = as_keep(&mask);
        run r = start_file(names[m], ending, batch);
        attn_forward_args args;
        ATTN_ARGS_INIT(&args);
        const bool cross = r.info.kind == ATTN_MODEL_ENCODER_DECODER;
        int64_t n_keys = shape.shape[1];
        if (cross) {
            run_encoder(names[m], &r, ids, keep, shape);
            array target = need(names[m], "forward_in_decoder_input_ids");
            args.n_tokens = target.shape[1];
            free(ids);
            ids = as_ids(&target);
        } else {
            args.n_tokens = n_keys;
            args.keep = keep;
        }
        args.tokens = ids;
        args.token_types = type_ids;
        const int64_t tokens = batch * args.n_tokens;
        float *logits = malloc((size_t)(tokens * r.info.vocab_size) * sizeof *logits);
        float *hidden = malloc((size_t)((r.info.n_layers + 1) * tokens * r.info.d_model) * sizeof *hidden);
        float *weights = all_rows(&args, &r, 1, cross ? ATTN_ATTENTION_CROSS : ATTN_ATTENTION_SELF, batch, n_keys);
        args.logits = r.info.has_logits ? logits : NULL;
        args.logits_rows = ATTN_LOGITS_ALL;
        args.hidden_states = hidden;
        check(names[m], attn_model_forward(r.session, &args));
        compare(names[m], cross ? "forward_out_cross_attn_1" : "forward_out_attn_1", weights);
        compare(names[m], "forward_out_hidden_1", hidden + tokens * r.info.d_model);
        compare(names[m], "forward_out_last_hidden_state", hidden + r.info.n_layers * tokens * r.info.d_model);
        if (r.info.has_logits)
            compare(names[m], "forward_out_logits", logits);
        finish(&r);
        free(ids), free(type_ids), free(keep), free(logits), free(hidden), free(weights);
        free((void *)(uintptr_t)args.rows);
    }
}

static void test_forward(void **state)
{
    (void)state;
    check_forward(all_names, N_NAMES, "safetensors");
}

/* The same checkpoints as GGUF (write_gguf.py). */
static void test_gguf(void **state)
{
    (void)state;
    const char *const files[] = {"bert", "gpt2", "llama3_rope", "mistral_window", "qwen2", "qwen3"};
    check_forward(files, sizeof files / sizeof *files, "gguf");
}

/* bert.gguf says that the first token stands for a text. */
static void test_gguf_pooling(void **state)
{
    (void)state;
    const int32_t ids[] = {5, 6, 7, 8};
    const int64_t n = 4;
    float found[3][64];
    run r = start_file("bert", "gguf", 1);
    assert_true(r.info.d_model <= 64);
    for (int32_t pooling = ATTN_POOL_DEFAULT; pooling <= ATTN_POOL_FIRST; pooling++) {
        attn_embed_args args;
        ATTN_ARGS_INIT(&args);
        args.tokens = ids;
        args.lengths = &n;
        args.n_texts = 1;
        args.pooling = pooling;
        args.embeddings = found[pooling];
        check("bert", attn_embed(r.session, &args));
    }
    assert_memory_equal(found[ATTN_POOL_DEFAULT], found[ATTN_POOL_FIRST], (size_t)r.info.d_model * sizeof(float));
    assert_memory_not_equal(found[ATTN_POOL_DEFAULT], found[ATTN_POOL_MEAN], (size_t)r.info.d_model * sizeof(float));
    finish(&r);
}

/* Images, and rows in the place of tokens. */
static void test_images(void **state)
{
    (void)state;
    array pixels = need("vit", "forward_in_pixel_values");
    run r = start("vit", pixels.shape[0]);
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    args.pixels = pixels.data;
    args.n_tokens = r.info.context_length;
    assert_int_equal(args.n_tokens, 1 + 3 * 3);
    const int64_t rows = pixels.shape[0] * args.n_tokens;
    float *weights = all_rows(&args, &r, 1, ATTN_ATTENTION_SELF, pixels.shape[0], args.n_tokens);
    float *hidden = malloc((size_t)((r.info.n_layers + 1) * rows * r.info.d_model) * sizeof *hidden);
    float *logits = malloc((size_t)(pixels.shape[0] * r.info.vocab_size) * sizeof *logits);
    args.hidden_states = hidden;
    args.logits = logits;
    check("vit", attn_model_forward(r.session, &args));
    compare("vit", "forward_out_attn_1", weights);
    compare("vit", "forward_out_hidden_1", hidden + rows * r.info.d_model);
    compare("vit", "forward_out_logits", logits);
    args.n_tokens--;
    assert_int_equal(attn_model_forward(r.session, &args), ATTN_ERR_INVALID_ARGUMENT);
    args.n_tokens++;
    args.pixels = NULL;
    assert_int_equal(attn_model_forward(r.session, &args), ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_model_error(NULL), "pixels"));
    finish(&r);
    free(pixels.data), free(weights), free(hidden), free(logits), free((void *)(uintptr_t)args.rows);
}

static void test_rows_in(void **state)
{
    (void)state;
    const char *const transformers[] = {"torch_post_norm", "torch_pre_norm"};
    for (size_t m = 0; m < 2; m++) {
        array src = need(transformers[m], "forward_in_src"), tgt = need(transformers[m], "forward_in_tgt");
        array mask = need(transformers[m], "forward_in_keep");
        const array in = src, target = tgt;
        uint8_t *keep = as_keep(&mask);
        run r = start(transformers[m], in.shape[0]);
        float *memory = malloc((size_t)in.size * sizeof *memory), *output = malloc((size_t)target.size * sizeof *output);
        attn_forward_args args;
        ATTN_ARGS_INIT(&args);
        args.n_tokens = in.shape[1];
        assert_int_equal(attn_model_forward_encoder(r.session, &args), ATTN_ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(attn_model_error(NULL), "embeddings"));
        args.embeddings = src.data;
        args.keep = keep;
        args.last_hidden = memory;
        check(transformers[m], attn_model_forward_encoder(r.session, &args));
        compare(transformers[m], "forward_out_memory", memory);
        args.n_tokens = target.shape[1];
        args.embeddings = tgt.data;
        args.keep = NULL;
        args.last_hidden = output;
        check(transformers[m], attn_model_forward(r.session, &args));
        compare(transformers[m], "forward_out_output", output);
        finish(&r);
        free(src.data), free(tgt.data), free(keep), free(memory), free(output);
    }
}

static void test_padded(void **state)
{
    (void)state;
    const char *const encoders[] = {"bert", "distilbert"};
    for (size_t m = 0; m < 2; m++) {
        array in = need(encoders[m], "padded_in_input_ids"), mask = need(encoders[m], "padded_in_attention_mask");
        const int64_t batch = in.shape[0], n = in.shape[1];
        int32_t *ids = as_ids(&in);
        uint8_t *keep = as_keep(&mask);
        run r = start(encoders[m], batch);
        float *hidden = malloc((size_t)(batch * n * r.info.d_model) * sizeof *hidden);
        attn_forward_args args;
        ATTN_ARGS_INIT(&args);
        args.tokens = ids;
        args.n_tokens = n;
        args.keep = keep;
        args.last_hidden = hidden;
        check(encoders[m], attn_model_forward(r.session, &args));
        compare(encoders[m], "padded_out_last_hidden_state", hidden);
        /* the mean of a text has the same bits whatever stands beside it, and is that of its hidden states */
        int64_t *lengths = calloc((size_t)batch, sizeof *lengths), total = 0;
        float *together = malloc((size_t)(batch * r.info.d_model) * sizeof *together), *alone = malloc(
            (size_t)r.info.d_model * sizeof *alone);
        int32_t *packed = malloc((size_t)(batch * n) * sizeof *packed);
        for (int64_t i = 0; i < batch * n; i++)
            if (keep[i]) {
                packed[total++] = ids[i];
                lengths[i / n]++;
            }
        attn_embed_args embed;
        ATTN_ARGS_INIT(&embed);
        embed.tokens = packed;
        embed.lengths = lengths;
        embed.n_texts = batch;
        embed.embeddings = together;
        embed.pooling = ATTN_POOL_MEAN;
        check(encoders[m], attn_embed(r.session, &embed));
        for (int64_t b = 0, first = 0; b < batch; first += lengths[b++]) {
            double dot = 0, squares = 0;
            embed.tokens = packed + first;
            embed.lengths = lengths + b;
            embed.n_texts = 1;
            embed.embeddings = alone;
            check(encoders[m], attn_embed(r.session, &embed));
            assert_memory_equal(alone, together + b * r.info.d_model, (size_t)r.info.d_model * sizeof *alone);
            for (int64_t d = 0; d < r.info.d_model; d++) {
                double sum = 0;
                for (int64_t t = 0; t < n; t++)
                    sum += keep[b * n + t] ? (double)hidden[(b * n + t) * r.info.d_model + d] : 0;
                dot += sum * (double)alone[d];
                squares += sum * sum;
            }
            assert_true(dot / sqrt(squares) > 0.9999999);
        }
        finish(&r);
        free(ids), free(keep), free(hidden), free(lengths), free(together), free(alone), free(packed);
    }
}

/* The kept ids of each sequence, one sequence after the other, and how many each has. */
static int32_t *packed_prompts(const int32_t *ids, const uint8_t *keep, array shape, int64_t *lengths)
{
    int32_t *packed = calloc((size_t)(shape.shape[0] * shape.shape[1]), sizeof *packed);
    int64_t n = 0;
    for (int64_t b = 0; b < shape.shape[0]; b++) {
        lengths[b] = 0;
        for (int64_t i = b * shape.shape[1]; i < (b + 1) * shape.shape[1]; i++)
            if (!keep || keep[i])
                packed[n++] = ids[i], lengths[b]++;
    }
    return packed;
}

static void test_greedy(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_NAMES; m++) {
        array in = load(all_names[m], "greedy_in_input_ids"), mask = load(all_names[m], "greedy_in_attention_mask");
        if (!in.data)
            continue;
        array want = need(all_names[m], "greedy_out_tokens");
        const array shape = in;
        const int64_t batch = in.shape[0], new_tokens = want.shape[1];
        int32_t *ids = as_ids(&in), *expected = as_ids(&want);
        uint8_t *keep = as_keep(&mask);
        run r = start(all_names[m], batch);
        int64_t prompt[8], n_prompt = shape.shape[1];
        int32_t begin[8] = {0}, *got = calloc((size_t)(batch * new_tokens), sizeof *got);
        assert_true(batch <= 8);
        if (r.info.kind == ATTN_MODEL_ENCODER_DECODER) {
            run_encoder(all_names[m], &r, ids, keep, shape);
            n_prompt = 1;
        }
        for (int64_t b = 0; b < batch; b++)
            prompt[b] = n_prompt;
        attn_generate_args args;
        ATTN_ARGS_INIT(&args);
        args.prompts = r.info.kind == ATTN_MODEL_ENCODER_DECODER ? begin : ids;
        args.prompt_lengths = prompt;
        args.max_new = args.token_stride = new_tokens;
        args.flags = ATTN_GENERATE_IGNORE_EOS;
        args.tokens = got;
        check(all_names[m], attn_generate(r.session, &args));
        for (int64_t i = 0; i < batch * new_tokens; i++)
            if (got[i] != expected[i])
                fail_msg("%s: sequence %lld token %lld is %d, not %d", all_names[m], (long long)(i / new_tokens),
                         (long long)(i % new_tokens), got[i], expected[i]);
        if (r.info.kind == ATTN_MODEL_ENCODER_DECODER) { /* the same with the encoder run by attn_generate */
            memset(got, 0, (size_t)(batch * new_tokens) * sizeof *got);
            args.flags |= ATTN_GENERATE_ENCODE;
            args.prompts = packed_prompts(ids, keep, shape, prompt);
            check(all_names[m], attn_generate(r.session, &args));
            assert_memory_equal(got, expected, (size_t)(batch * new_tokens) * sizeof *got);
            free((int32_t *)args.prompts);
        }
        finish(&r);
        free(ids), free(expected), free(keep), free(got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward), cmocka_unit_test(test_gguf), cmocka_unit_test(test_gguf_pooling), cmocka_unit_test(test_images),
                                       cmocka_unit_test(test_rows_in), cmocka_unit_test(test_padded),
                                       cmocka_unit_test(test_greedy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
