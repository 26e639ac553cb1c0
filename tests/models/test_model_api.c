/* attn/model.h on tiny checkpoints: padding, edits against the formula, hooks, rows, sessions, and what is refused. */
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
#include "attn/model.h"
#include "models/tiny_model.h"

#define VOCAB 11
static const char *const both[] = {"tiny-gpt2", "tiny-llama"};

static attn_session *session_of(const attn_model *model, int64_t batch)
{
    attn_session_options options;
    attn_session *session;
    ATTN_ARGS_INIT(&options);
    options.batch = batch;
    if (attn_session_create(model, &options, &session) != ATTN_OK)
        fail_msg("%s", attn_model_error(NULL));
    return session;
}

static attn_forward_args args_of(const int32_t *ids, int64_t n, float *logits)
{
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    args.tokens = ids;
    args.n_tokens = n;
    args.logits = logits;
    args.logits_rows = ATTN_LOGITS_ALL;
    return args;
}

static void run(attn_session *session, const attn_forward_args *args)
{
    if (attn_model_forward(session, args) != ATTN_OK)
        fail_msg("%s", attn_model_error(NULL));
}

/* Padding on either side, and between, changes nothing for real tokens; its own rows are 0. */
static void test_padding(void **state)
{
    (void)state;
    const int32_t ids[4] = {3, 7, 1, 9};
    const int32_t padded[3][6] = {{3, 7, 1, 9, 0, 0}, {5, 5, 3, 7, 1, 9}, {3, 10, 7, 1, 2, 9}};
    const uint8_t keep[3][6] = {{1, 1, 1, 1, 0, 0}, {0, 0, 1, 1, 1, 1}, {1, 0, 1, 1, 0, 1}};
    for (int m = 0; m < 2; m++) {
        float want[4 * VOCAB], got[18 * VOCAB], last[3 * VOCAB], weights[12], zero[VOCAB] = {0};
        attn_model *model = tiny_model(both[m]);
        attn_session *session = session_of(model, 1);
        attn_forward_args args = args_of(ids, 4, want);
        run(session, &args);
        attn_session_destroy(session);
        session = session_of(model, 3);
        args = args_of(padded[0], 6, got);
        args.keep = keep[0];
        attn_attention_row rows[2] = {{0, 2, 1, -1, 0, 0}, {0, 1, 0, 1, 0, 0}};
        args.rows = rows;
        args.n_rows = 2;
        args.row_weights = weights;
        args.row_stride = 6;
        run(session, &args);
        for (int b = 0; b < 3; b++) {
            assert_int_equal(attn_session_length(session, b), 4);
            for (int i = 0, real = 0; i < 6; i++)
                assert_memory_equal(got + (b * 6 + i) * VOCAB, keep[b][i] ? want + real++ * VOCAB : zero, sizeof zero);
        }
        assert_true(weights[1] == 0 && weights[4] == 0); /* padding has no weight */
        assert_true(fabsf(weights[0] + weights[2] + weights[3] + weights[5] - 1) < 1e-6f);
        for (int j = 0; j < 6; j++)
            assert_true(weights[6 + j] == 0); /* a padded query has no row */
        attn_session_truncate(session, -1, 0);
        args = args_of(padded[0], 6, last);
        args.keep = keep[0];
        args.logits_rows = ATTN_LOGITS_LAST;
        run(session, &args);
        for (int b = 0; b < 3; b++)
            assert_memory_equal(last + b * VOCAB, want + 3 * VOCAB, sizeof zero);
        attn_session_destroy(session);
        attn_model_destroy(model);
    }
}

/* Positions continue after a truncation as if what was cut had never been there. */
static void test_truncate(void **state)
{
    (void)state;
    const int32_t ids[5] = {3, 7, 1, 9, 2}, other[2] = {4, 6};
    for (int m = 0; m < 2; m++) {
        float want[5 * VOCAB], got[5 * VOCAB];
        attn_model *model = tiny_model(both[m]);
        attn_session *session = session_of(model, 1);
        attn_forward_args args = args_of(ids, 3, want);
        run(session, &args);
        args = args_of(ids + 3, 2, want + 3 * VOCAB);
        run(session, &args);
        attn_session_truncate(session, 0, 3);
        args = args_of(other, 2, got);
        run(session, &args);
        attn_session_truncate(session, 0, 3);
        args = args_of(ids + 3, 2, got + 3 * VOCAB);
        run(session, &args);
        assert_memory_equal(got + 3 * VOCAB, want + 3 * VOCAB, 2 * VOCAB * sizeof(float));
        assert_int_equal(attn_session_truncate(session, 0, 6), ATTN_ERR_INVALID_ARGUMENT);
        attn_session_destroy(session);
        attn_model_destroy(model);
    }
}

/* ---- edits and hooks ---- */

typedef struct hook_state {
    const attn_edit *edit;
    int calls;
} hook_state;

/* The written meaning of an edit, from the weights of the operator itself. */
static attn_status edit_by_hand(void *user, const attn_layer_view *view)
{
    hook_state *h = user;
    const attn_edit *e = h->edit;
    h->calls++;
    if (view->layer != e->layer)
        return ATTN_OK;
    const attn_sdpa_args *a = view->attention;
    const int64_t n_keys = a->key.shape[2], group = a->query.shape[1] / a->key.shape[1], dim = a->value.shape[3];
    const int64_t row = e->query - view->first_position;
    float weights[16];
    const attn_row wanted = {0, e->head, row};
    const attn_view out = attn_view_of(weights, ATTN_F32, 1, 1, 1, n_keys);
    assert_true(row >= 0 && row < a->query.shape[2] && n_keys <= 16);
    assert_int_equal(attn_sdpa_rows(view->ctx, a, &wanted, 1, &out), ATTN_OK);
    float *y = (float *)view->head_out.data + e->head * view->head_out.stride[1] + row * view->head_out.stride[2];
    for (int64_t d = 0; d < dim; d++) {
        double sum = 0, kept = 0;
        for (int64_t j = 0; j < n_keys; j++) {
            const float *v = (const float *)a->value.data + e->head / group * a->value.stride[1] +
                             j * a->value.stride[2];
            sum += j == e->key ? 0 : (double)weights[j] * (double)v[d];
            kept += j == e->key ? 0 : (double)weights[j];
        }
        if (e->kind == ATTN_EDIT_HEAD)
            y[d] = e->value ? e->value[d] : 0;
        else if (e->kind == ATTN_EDIT_KNOCKOUT)
            y[d] = (float)(sum / kept);
        else
            y[d] = (float)(sum + (e->kind == ATTN_EDIT_REPLACE ? (double)weights[e->key] * (double)e->value[d] : 0));
    }
    return ATTN_OK;
}

static void test_edits(void **state)
{
    (void)state;
    const int32_t ids[5] = {3, 7, 1, 9, 2};
    const float value[4] = {0.5f, -1.0f, 2.0f, 0.25f};
    for (int m = 0; m < 2; m++)
        for (int32_t kind = ATTN_EDIT_HEAD; kind <= ATTN_EDIT_REPLACE; kind++) {
            float plain[5 * VOCAB], edited[5 * VOCAB], by_hand[5 * VOCAB];
            attn_edit edit = {.layer = 1, .entry = 0, .head = 1, .query = 4, .key = 2, .kind = kind,
                              .value = kind == ATTN_EDIT_REPLACE ? value : NULL};
            hook_state hook = {&edit, 0};
            attn_model *model = tiny_model(both[m]);
            for (int chunked = 0; chunked < 2; chunked++) { /* the edit may fall into a later call */
                attn_session *session = session_of(model, 1);
                const int64_t first = chunked ? 3 : 0;
                attn_forward_args args = args_of(ids, 5, plain);
                run(session, &args);
                attn_session_truncate(session, 0, first);
                args = args_of(ids + first, 5 - first, edited + first * VOCAB);
                args.edits = &edit;
                args.n_edits = 1;
                run(session, &args);
                attn_session_truncate(session, 0, first);
                args.edits = NULL;
                args.n_edits = 0;
                args.hook = edit_by_hand;
                args.hook_user = &hook;
                hook.calls = 0;
                args.logits = by_hand + first * VOCAB;
                run(session, &args);
                assert_int_equal(hook.calls, 2);
                double moved = 0;
                for (int64_t i = first * VOCAB; i < 5 * VOCAB; i++) {
                    assert_true(fabsf(edited[i] - by_hand[i]) < 1e-4f);
                    if (i < 4 * VOCAB) /* earlier rows do not see it */
                        assert_true(fabsf(edited[i] - plain[i]) < 1e-4f);
                    else
                        moved = fmax(moved, fabs((double)(edited[i] - plain[i])));
                }
                assert_true(moved > 1e-3);
                attn_session_destroy(session);
            }
            attn_model_destroy(model);
        }
}

static void expect_error(attn_status status, attn_status want, const char *text)
{
    assert_int_equal(status, want);
    if (!strstr(attn_model_error(NULL), text))
        fail_msg("\"%s\" does not name %s", attn_model_error(NULL), text);
}

static attn_status refuse(void *user, const attn_layer_view *view)
{
    (void)user;
    return view->layer == 1 ? ATTN_ERR_CANCELLED : ATTN_OK;
}

static void test_hook_stops(void **state)
{
    (void)state;
    const int32_t ids[2] = {1, 2};
    float logits[2 * VOCAB];
    attn_model *model = tiny_llama(), *unused;
    attn_session *session = session_of(model, 1);
    attn_forward_args args = args_of(ids, 2, logits);
    args.hook = refuse;
    attn_model_load(NULL, NULL, &unused); /* an older error is not the hook's */
    expect_error(attn_model_forward(session, &args), ATTN_ERR_CANCELLED, "the hook ended the pass in layer 1");
    assert_int_equal(attn_session_length(session, 0), 0);
    attn_session_destroy(session);
    attn_model_destroy(model);
}

/* ---- vectors of texts ---- */

enum { TEXT_TOKENS = 5, MOST_DIM = 64 };

/* Number i of a text's vector, from all its hidden states, as attn/model.h says. */
static double pooled(const float *hidden, int64_t n, int64_t dim, int64_t i, int32_t pooling)
{
    double sum = 0, shares = 0, largest = -INFINITY;
    for (int64_t t = 0; t < n; t++) {
        const double w = pooling == ATTN_POOL_WEIGHTED ? (double)(t + 1) : 1, x = (double)hidden[t * dim + i];
        sum += w * x;
        shares += w;
        largest = x > largest ? x : largest;
    }
    switch (pooling) {
    case ATTN_POOL_FIRST:
        return (double)hidden[i];
    case ATTN_POOL_MAX:
        return largest;
    case ATTN_POOL_LAST:
        return (double)hidden[(n - 1) * dim + i];
    case ATTN_POOL_SQRT:
        return sum / sqrt((double)n);
    default:
        return sum / shares;
    }
}

/* Every pooling of a decoder's last hidden states: packed together as each text by itself; nothing stays in the session. */
static void test_embed_poolings(void **state)
{
    (void)state;
    static const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    static const int64_t lengths[] = {TEXT_TOKENS, 1, 3};
    for (int m = 0; m < 2; m++) {
        attn_model *model = tiny_model(both[m]);
        attn_model_info info;
        ATTN_ARGS_INIT(&info);
        assert_int_equal(attn_model_get_info(model, &info), ATTN_OK);
        assert_true(info.kind == ATTN_MODEL_DECODER && info.d_model <= MOST_DIM);
        attn_session *session = session_of(model, 1);
        for (int32_t pooling = ATTN_POOL_DEFAULT; pooling <= ATTN_POOL_SQRT; pooling++) {
            float vectors[3 * MOST_DIM], hidden[TEXT_TOKENS * MOST_DIM], alone[MOST_DIM];
            attn_embed_args embed;
            ATTN_ARGS_INIT(&embed);
            embed.tokens = ids, embed.lengths = lengths, embed.n_texts = 3, embed.embeddings = vectors;
            embed.pooling = pooling, embed.no_normalize = 1;
            assert_int_equal(attn_embed(session, &embed), ATTN_OK);
            assert_int_equal(attn_session_length(session, 0), 0);
            int64_t first = 0;
            for (int64_t i = 0; i < 3; first += lengths[i++]) {
                attn_forward_args args = args_of(ids + first, lengths[i], NULL);
                args.last_hidden = hidden;
                run(session, &args);
                assert_int_equal(attn_session_truncate(session, 0, 0), ATTN_OK);
                for (int64_t d = 0; d < info.d_model; d++) {
                    const double wanted = pooled(hidden, lengths[i], info.d_model, d, pooling);
                    assert_true(fabs((double)vectors[i * info.d_model + d] - wanted) < 1e-5 * (1 + fabs(wanted)));
                }
                embed.tokens = ids + first, embed.lengths = &lengths[i], embed.n_texts = 1, embed.embeddings = alone;
                assert_int_equal(attn_embed(session, &embed), ATTN_OK);
                assert_memory_equal(alone, vectors + i * info.d_model, (size_t)info.d_model * sizeof *alone);
            }
        }
        attn_session_destroy(session);
        attn_model_destroy(model);
    }
}

/* ---- what is refused ---- */

static void test_bad_calls(void **state)
{
    (void)state;
    int32_t ids[8] = {1, 2, 3};
    float logits[8 * VOCAB];
    attn_model *model = tiny_model("tiny-gpt2");
    attn_session *session = session_of(model, 1);
    attn_forward_args args = args_of(ids, 3, logits);
    ids[1] = VOCAB;
    expect_error(attn_model_forward(session, &args), ATTN_ERR_INVALID_ARGUMENT, "tokens[1]");
    ids[1] = -1;
    expect_error(attn_model_forward(session, &args), ATTN_ERR_INVALID_ARGUMENT, "tokens[1]");
    ids[1] = 2;
    args.n_tokens = 1 << 30; /* told before the array's end is passed */
    expect_error(attn_model_forward(session, &args), ATTN_ERR_INVALID_ARGUMENT, "context of 6");
    args.n_tokens = 7; /* the model has 6 positions */
    expect_error(attn_model_forward(session, &args), ATTN_ERR_INVALID_ARGUMENT, "context of 6");
    args.n_tokens = 3;
    args.pooled = logits;
    expect_error(attn_model_forward(session, &args), ATTN_ERR_UNSUPPORTED, "pooled");
    args.pooled = NULL;
    args.token_types = ids;
    expect_error(attn_model_forward(session, &args), ATTN_ERR_INVALID_ARGUMENT, "token_types");
    args.token_types = NULL;
    attn_attention_row row = {2, 0, 0, -1, 0, 0};
    float weights[3];
    args.rows = &row;
    args.n_rows = 1;
    args.row_weights = weights;
    args.row_stride = 3;
    expect_error(attn_model_forward(session, &args), ATTN_ERR_INVALID_ARGUMENT, "rows[0]");
    row.layer = 0;
    args.row_stride = 2;
    expect_error(attn_model_forward(session, &args), ATTN_ERR_INVALID_ARGUMENT, "row_stride");
    args.n_rows = 0;
    attn_edit edit = {.layer = 0, .head = 2};
    args.edits = &edit;
    args.n_edits = 1;
    expect_error(attn_model_forward(session, &args), ATTN_ERR_INVALID_ARGUMENT, "edits[0].head");
    expect_error(attn_model_tokenize(model, "x", 1, 0, ids, 8, &(int64_t){0}), ATTN_ERR_UNSUPPORTED, "tokenizer");
    expect_error(attn_model_weight_rows(model, ATTN_WEIGHT_Q, 0, 7, 2, logits), ATTN_ERR_INVALID_ARGUMENT, "rows 7");
    attn_embed_args embed;
    ATTN_ARGS_INIT(&embed);
    embed.tokens = ids;
    embed.lengths = &(int64_t){7};
    embed.n_texts = 1;
    embed.embeddings = logits;
    expect_error(attn_embed(session, &embed), ATTN_ERR_INVALID_ARGUMENT, "lengths[0] is 7");
    embed.pooling = ATTN_POOL_SQRT + 1;
    expect_error(attn_embed(session, &embed), ATTN_ERR_INVALID_ARGUMENT, "pooling is 7");
    expect_error(attn_model_forward_encoder(session, &args), ATTN_ERR_UNSUPPORTED, "encoder-decoder");
    attn_session_destroy(session);

    attn_session_options options;
    ATTN_ARGS_INIT(&options);
    options.capacity = 7;
    expect_error(attn_session_create(model, &options, &session), ATTN_ERR_INVALID_ARGUMENT, "options.capacity");
    assert_null(session);
    options.capacity = -1;
    expect_error(attn_session_create(model, &options, &session), ATTN_ERR_INVALID_ARGUMENT, "options.capacity");
    attn_model_destroy(model);
    attn_model_destroy(NULL);
    attn_session_destroy(NULL);
}

/* A copy of the tiny Llama with another config.json: what must be refused, and by which name. */
static void test_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        attn_status status;
        const char *names;
    } cases[] = {
        {"{\"model_type\": \"nonesuch\"}", ATTN_ERR_UNSUPPORTED, "nonesuch"},
        {"{}", ATTN_ERR_FORMAT, "model_type"},
        {"[]", ATTN_ERR_FORMAT, "not a JSON object"},
        {"{\"model_type\": \"llama\"", ATTN_ERR_FORMAT, "config.json"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": \"2\"}", ATTN_ERR_FORMAT, "num_hidden_layers is \"2\", not an integer"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 1000000000}", ATTN_ERR_FORMAT, "num_hidden_layers"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2}", ATTN_ERR_FORMAT, "hidden_size"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 8, \"num_attention_heads\": 4, "
         "\"num_key_value_heads\": 3}", ATTN_ERR_FORMAT, "3 key/value heads"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 3, \"hidden_size\": 8, \"num_attention_heads\": 4, "
         "\"num_key_value_heads\": 2, \"head_dim\": 4, \"intermediate_size\": 12, \"vocab_size\": 11}",
         ATTN_ERR_FORMAT, "model.layers.2.input_layernorm.weight"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 8, \"num_attention_heads\": 4, "
         "\"num_key_value_heads\": 2, \"head_dim\": 4, \"intermediate_size\": 13, \"vocab_size\": 11}",
         ATTN_ERR_FORMAT, "gate_proj"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 8, \"num_attention_heads\": 4, "
         "\"num_key_value_heads\": 2, \"head_dim\": 4, \"intermediate_size\": 12, \"vocab_size\": 11, "
         "\"rope_scaling\": {\"rope_type\": \"odd\"}}", ATTN_ERR_UNSUPPORTED, "rope_type \"odd\""},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 8, \"num_attention_heads\": 4, "
         "\"num_key_value_heads\": 2, \"head_dim\": 4, \"intermediate_size\": 12, \"vocab_size\": 11, "
         "\"hidden_act\": \"step\"}", ATTN_ERR_UNSUPPORTED, "activation \"step\""},
        {"{\"model_type\": \"qwen3\", \"num_hidden_layers\": 2, \"hidden_size\": 8, \"num_attention_heads\": 4}", ATTN_ERR_FORMAT,
         "expected [512, 8]"}, /* heads of 128 where nothing is said */
        {"{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 2, \"hidden_size\": 8,"
         "\"vocab_size\": 11}}", ATTN_ERR_FORMAT, "expected [2048, 8]"},
        {"{\"model_type\": \"llama\", \"quantization_config\": {\"quant_method\": \"fp8\"}}", ATTN_ERR_UNSUPPORTED, "quant_method \"fp8\""},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 8, \"num_attention_heads\": 4, \"rms_norm_eps\": -1}",
         ATTN_ERR_FORMAT, "epsilon of norms -1"},
        {"{\"model_type\": \"mistral\", \"num_hidden_layers\": 2, \"hidden_size\": 8, \"num_attention_heads\": 4, "
         "\"sliding_window\": 0}", ATTN_ERR_FORMAT, "sliding_window is 0"},
        {"{\"model_type\": \"bert\", \"num_hidden_layers\": 2, \"hidden_size\": 8, \"num_attention_heads\": 4, \"is_decoder\": true, "
         "\"add_cross_attention\": true}", ATTN_ERR_UNSUPPORTED, "add_cross_attention"},
    };
    char folder[] = "/tmp/attn-test-XXXXXX", path[64], link[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/config.json", folder);
    snprintf(link, sizeof link, "%s/model.safetensors", folder);
    assert_int_equal(symlink(ATTN_SOURCE_DIR "/tests/data/models/tiny-llama.safetensors", link), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_model *model = (attn_model *)1;
        FILE *file = fopen(path, "w");
        fputs(cases[i].config, file);
        fclose(file);
        attn_status status = attn_model_load(folder, NULL, &model);
        if (status != cases[i].status || !strstr(attn_model_error(NULL), cases[i].names))
            fail_msg("case %zu: status %d, \"%s\"", i, status, attn_model_error(NULL));
        assert_null(model);
    }
    unlink(path);
    unlink(link);
    rmdir(folder);
    attn_model *model;
    expect_error(attn_model_load("/nonexistent/model.gguf", NULL, &model), ATTN_ERR_IO, "/nonexistent/model.gguf");
    expect_error(attn_model_load(ATTN_SOURCE_DIR "/LICENSE", NULL, &model), ATTN_ERR_FORMAT, "LICENSE");
    expect_error(attn_model_load("", NULL, &model), ATTN_ERR_INVALID_ARGUMENT, "path");
}

static char *whole_file(const char *path, size_t *size)
{
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    char *bytes = malloc((size_t)s.st_size);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, (size_t)s.st_size, file), s.st_size);
    fclose(file);
    *size = (size_t)s.st_size;
    return bytes;
}

/* In the header of a safetensors file: each `from` becomes the shorter `to`, and blanks fill it up. */
static void rename_tensors(char *file, const char *from, const char *to)
{
    uint64_t header;
    memcpy(&header, file, 8);
    char *at = file + 8, *end = at + header;
    while ((at = memmem(at, (size_t)(end - at), from, strlen(from))) != NULL) {
        const size_t shorter = strlen(from) - strlen(to);
        memcpy(at, to, strlen(to));
        memmove(at + strlen(to), at + strlen(from), (size_t)(end - at) - strlen(from));
        memset(end - shorter, ' ', shorter);
    }
}

/* BERT's first checkpoints call the weights of norms gamma and beta, and have no prefix. */
static void test_old_names(void **state)
{
    (void)state;
    static const char *const files[] = {"bert", "bert_mlm", "distilbert"};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        char path[200], folder[] = "/tmp/attn-test-XXXXXX", to[64], config[64];
        size_t size;
        float got[2][4 * 64];
        const int32_t ids[4] = {3, 5, 7, 9};
        snprintf(path, sizeof path, ATTN_SOURCE_DIR "/tests/data/families/%s.safetensors", files[f]);
        assert_non_null(mkdtemp(folder));
        snprintf(to, sizeof to, "%s/model.safetensors", folder);
        snprintf(config, sizeof config, "%s/config.json", folder);
        char *bytes = whole_file(path, &size);
        rename_tensors(bytes, "LayerNorm.weight", "LayerNorm.gamma");
        rename_tensors(bytes, "LayerNorm.bias", "LayerNorm.beta");
        rename_tensors(bytes, "\"bert.", "\"");
        FILE *file = fopen(to, "wb");
        assert_int_equal(fwrite(bytes, 1, size, file), size);
        fclose(file);
        free(bytes);
        char from[200];
        snprintf(from, sizeof from, ATTN_SOURCE_DIR "/tests/data/families/%s.config.json", files[f]);
        assert_int_equal(symlink(from, config), 0);
        for (int which = 0; which < 2; which++) {
            attn_model *model;
            attn_model_info info;
            ATTN_ARGS_INIT(&info);
            if (attn_model_load(which ? folder : path, NULL, &model) != ATTN_OK)
                fail_msg("%s: %s", files[f], attn_model_error(NULL));
            attn_model_get_info(model, &info);
            assert_true(info.d_model <= 64);
            attn_session *session = session_of(model, 1);
            attn_forward_args args = args_of(ids, 4, NULL);
            args.last_hidden = got[which];
            run(session, &args);
            if (which)
                assert_memory_equal(got[0], got[1], (size_t)(4 * info.d_model) * sizeof(float));
            attn_session_destroy(session);
            attn_model_destroy(model);
        }
        unlink(to);
        unlink(config);
        rmdir(folder);
    }
}

static int cancel(void *user, int64_t done, int64_t total)
{
    int *calls = user;
    assert_true(done > 0 && done <= total);
    return ++*calls == 3;
}

/* A file's tensors without its configuration: the numbers that the model computes with. */
static void test_tensor_file(void **state)
{
    (void)state;
    attn_model *model = tiny_llama();
    attn_tensor_file *file;
    attn_tensor_info info;
    float ours[64], theirs[64];
    int64_t at = 0;
    const char *key = "x";
    assert_int_equal(attn_tensor_file_open(ATTN_SOURCE_DIR "/tests/data/models/tiny-llama.safetensors", &file), ATTN_OK);
    const int64_t count = attn_tensor_file_count(file);
    assert_int_equal(count, attn_model_tensor_count(model));
    while (attn_tensor_file_get(file, at, &info) == ATTN_OK && strcmp(info.name, "model.embed_tokens.weight"))
        at++;
    assert_true(at < count && info.n_dims == 2 && info.shape[1] <= 64);
    const int64_t columns = info.shape[1], rows = info.shape[0];
    assert_int_equal(attn_tensor_file_read(file, at, 3 * columns, columns, ours), ATTN_OK);
    assert_int_equal(attn_model_weight_rows(model, ATTN_WEIGHT_EMBEDDING, 0, 3, 1, theirs), ATTN_OK);
    assert_memory_equal(ours, theirs, (size_t)columns * sizeof *ours);
    expect_error(attn_tensor_file_read(file, at, rows * columns, 1, ours), ATTN_ERR_INVALID_ARGUMENT, "elements");
    expect_error(attn_tensor_file_read(file, -1, 0, 1, ours), ATTN_ERR_INVALID_ARGUMENT, "index is -1");
    expect_error(attn_tensor_file_get(file, count, &info), ATTN_ERR_INVALID_ARGUMENT, "index");
    assert_null(attn_tensor_file_metadata(file, 1000, &key));
    assert_null(key);
    attn_tensor_file_close(file);
    attn_model_destroy(model);
    expect_error(attn_tensor_file_open("/nowhere.safetensors", &file), ATTN_ERR_IO, "/nowhere");
    assert_null(file);
    attn_tensor_file_close(NULL);
}

static void test_load_options(void **state)
{
    (void)state;
    const char *path = ATTN_SOURCE_DIR "/tests/data/models/tiny-llama.safetensors";
    const int32_t ids[3] = {1, 5, 9};
    float want[3 * VOCAB], got[3 * VOCAB];
    attn_model *model = tiny_llama();
    attn_session *session = session_of(model, 1);
    attn_forward_args args = args_of(ids, 3, want);
    run(session, &args);
    attn_session_destroy(session);
    attn_model_info info;
    ATTN_ARGS_INIT(&info);
    assert_int_equal(attn_model_get_info(model, &info), ATTN_OK);
    assert_string_equal(info.family, "llama");
    assert_int_equal(info.head_dim, 4);
    assert_int_equal(attn_model_tensor_count(model), 21);
    attn_model_destroy(model);
    const double bounds[] = {0, 0, 0.1, 0.1}; /* rounded weights move the logits of this model by a few hundredths */
    for (int32_t weights = ATTN_WEIGHTS_F32; weights <= ATTN_WEIGHTS_I8; weights++) {
        attn_model_options options;
        ATTN_ARGS_INIT(&options);
        options.weights = weights;
        assert_int_equal(attn_model_load(path, &options, &model), ATTN_OK);
        session = session_of(model, 1);
        args = args_of(ids, 3, got);
        run(session, &args);
        for (int i = 0; i < 3 * VOCAB; i++)
            assert_true(fabs((double)(got[i] - want[i])) <= bounds[weights]);
        attn_session_destroy(session);
        attn_model_destroy(model);
    }
    int calls = 0;
    attn_model_options options;
    ATTN_ARGS_INIT(&options);
    options.flags = ATTN_LOAD_ACT_I8;
    assert_int_equal(attn_model_load(path, &options, &model), ATTN_OK);
    session = session_of(model, 1);
    args = args_of(ids, 3, got);
    run(session, &args);
    int other = 0;
    for (int i = 0; i < 3 * VOCAB; i++) {
        assert_true(fabs((double)(got[i] - want[i])) <= 0.1);
        other |= got[i] != want[i];
    }
    assert_true(other);
    attn_session_destroy(session);
    attn_model_destroy(model);
    options.weights = ATTN_WEIGHTS_BF16;
    assert_int_equal(attn_model_load(path, &options, &model), ATTN_ERR_INVALID_ARGUMENT);
    options.flags = ATTN_LOAD_ACT_BF16;
    assert_int_equal(attn_model_load(path, &options, &model), ATTN_OK);
    session = session_of(model, 1);
    args = args_of(ids, 3, got);
    run(session, &args);
    for (int i = 0; i < 3 * VOCAB; i++)
        assert_true(fabs((double)(got[i] - want[i])) <= 0.1);
    attn_session_destroy(session);
    attn_model_destroy(model);
    options.weights = ATTN_WEIGHTS_I8;
    assert_int_equal(attn_model_load(path, &options, &model), ATTN_ERR_INVALID_ARGUMENT);
    options.weights = ATTN_WEIGHTS_AS_STORED;
    options.flags = 0;
    options.progress = cancel;
    options.progress_user = &calls;
    assert_int_equal(attn_model_load(path, &options, &model), ATTN_ERR_CANCELLED);
    assert_int_equal(calls, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_padding),    cmocka_unit_test(test_truncate),  cmocka_unit_test(test_edits),
        cmocka_unit_test(test_hook_stops), cmocka_unit_test(test_bad_calls), cmocka_unit_test(test_bad_files), cmocka_unit_test(test_old_names),
        cmocka_unit_test(test_load_options), cmocka_unit_test(test_tensor_file), cmocka_unit_test(test_embed_poolings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
