/* SmolLM2-135M-Instruct against another implementation's values (tests/data/golden/smollm2), computed in f32 from the
 * same weights: logits, log-probabilities, attention rows, greedy tokens; and our own rules on a real model: one pass
 * equals token by token, a batch equals one alone, threads do not show. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "attn/model.h"
#include "golden/golden_model.h"

static attn_model *model;
static attn_model_info info;

static const char *const names[] = {"bridge", "capital", "code", "names", "repeat", "utf8"};
#define N_NAMES (sizeof names / sizeof *names)

static json_t *golden(const char *name)
{
    char path[512];
    json_error_t error;
    snprintf(path, sizeof path, "%s/tests/data/golden/smollm2/%s.json", ATTN_SOURCE_DIR, name);
    json_t *json = json_load_file(path, 0, &error);
    if (!json)
        fail_msg("%s: %s", path, error.text);
    return json;
}

static int64_t int_array(const json_t *json, const char *key, int32_t *out, int64_t capacity)
{
    const json_t *array = json_object_get(json, key);
    int64_t n = (int64_t)json_array_size(array);
    assert_true(n <= capacity);
    for (int64_t i = 0; i < n; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(array, (size_t)i));
    return n;
}

static double number(const json_t *json, const char *key, size_t i)
{
    return json_number_value(json_array_get(json_object_get(json, key), i));
}

static attn_session *session_of(int64_t batch, int32_t threads)
{
    attn_session_options options;
    attn_session *session;
    ATTN_ARGS_INIT(&options);
    options.batch = batch;
    options.n_threads = threads;
    if (attn_session_create(model, &options, &session) != ATTN_OK)
        fail_msg("%s", attn_model_error(NULL));
    return session;
}

static void forward(attn_session *session, attn_forward_args *args)
{
    if (attn_model_forward(session, args) != ATTN_OK)
        fail_msg("%s", attn_model_error(NULL));
}

static void test_logits(void **state)
{
    (void)state;
    if (!model)
        skip();
    for (size_t f = 0; f < N_NAMES; f++) {
        int32_t ids[512], top[64];
        json_t *json = golden(names[f]);
        const int64_t n = int_array(json, "ids", ids, 512), n_top = int_array(json, "top_ids", top, 64);
        float *logits = malloc((size_t)(n * info.vocab_size) * sizeof *logits);
        attn_session *session = session_of(1, 1);
        attn_forward_args args;
        ATTN_ARGS_INIT(&args);
        args.tokens = ids;
        args.n_tokens = n;
        args.logits = logits;
        args.logits_rows = ATTN_LOGITS_ALL;
        forward(session, &args);
        const float *last = logits + (n - 1) * info.vocab_size;
        double worst = 0;
        for (int64_t i = 0; i < n_top; i++) {
            double off = fabs((double)last[top[i]] - number(json, "top_logits", (size_t)i));
            worst = off > worst ? off : worst;
        }
        if (!(worst <= 2e-3))
            fail_msg("%s: a top logit is off by %g", names[f], worst);
        for (int64_t t = 0; t + 1 < n; t++) {
            const float *row = logits + t * info.vocab_size;
            double largest = -INFINITY, sum = 0;
            for (int64_t i = 0; i < info.vocab_size; i++)
                largest = (double)row[i] > largest ? (double)row[i] : largest;
            for (int64_t i = 0; i < info.vocab_size; i++)
                sum += exp((double)row[i] - largest);
            double logprob = (double)row[ids[t + 1]] - largest - log(sum);
            double off = fabs(logprob - number(json, "logprob_of_next", (size_t)t));
            if (!(off <= 2e-3))
                fail_msg("%s: log-probability %lld is off by %g", names[f], (long long)t, off);
        }
        int32_t own[512];
        int64_t n_own;
        const char *text = json_string_value(json_object_get(json, "text"));
        if (attn_model_tokenize(model, text, strlen(text), 0, own, 512, &n_own) != ATTN_OK)
            fail_msg("%s", attn_model_error(NULL));
        assert_int_equal(n_own, n);
        assert_memory_equal(own, ids, (size_t)n * sizeof *ids);
        print_message("%-8s %lld tokens: top logits within %.2g\n", names[f], (long long)n, worst);
        attn_session_destroy(session);
        free(logits);
        json_decref(json);
    }
}

static void test_attention_rows(void **state)
{
    (void)state;
    if (!model)
        skip();
    for (size_t f = 0; f < N_NAMES; f++) {
        int32_t ids[512];
        json_t *json = golden(names[f]);
        const int64_t n = int_array(json, "ids", ids, 512), n_rows = info.n_layers * info.n_heads;
        attn_attention_row *rows = calloc((size_t)n_rows, sizeof *rows);
        float *weights = malloc((size_t)(n_rows * n) * sizeof *weights);
        for (int64_t r = 0; r < n_rows; r++) {
            rows[r].layer = r / info.n_heads;
            rows[r].head = r % info.n_heads;
            rows[r].query = -1;
        }
        attn_session *session = session_of(1, 1);
        attn_forward_args args;
        ATTN_ARGS_INIT(&args);
        args.tokens = ids;
        args.n_tokens = n;
        args.rows = rows;
        args.n_rows = n_rows;
        args.row_weights = weights;
        args.row_stride = n;
        forward(session, &args);
        const json_t *layers = json_object_get(json, "last_row_attention");
        for (int64_t r = 0; r < n_rows; r++) {
            const json_t *row = json_array_get(json_array_get(layers, (size_t)rows[r].layer), (size_t)rows[r].head);
            assert_int_equal(json_array_size(row), n);
            for (int64_t j = 0; j < n; j++) {
                double want = json_number_value(json_array_get(row, (size_t)j));
                if (!(fabs((double)weights[r * n + j] - want) <= 1e-4))
                    fail_msg("%s: layer %lld head %lld key %lld is %g, not %g", names[f], (long long)rows[r].layer,
                             (long long)rows[r].head, (long long)j, (double)weights[r * n + j], want);
            }
        }
        attn_session_destroy(session);
        free(rows);
        free(weights);
        json_decref(json);
    }
}

/* Greedy tokens, as long as the margin says that another f32 implementation must agree. */
static void test_greedy(void **state)
{
    (void)state;
    if (!model)
        skip();
    float *logits = malloc((size_t)info.vocab_size * sizeof *logits);
    for (size_t f = 0; f < N_NAMES; f++) {
        int32_t ids[512], greedy[64];
        json_t *json = golden(names[f]);
        int64_t n = int_array(json, "ids", ids, 512);
        const int64_t n_greedy = int_array(json, "greedy_ids", greedy, 64);
        attn_session *session = session_of(1, 1);
        attn_forward_args args;
        ATTN_ARGS_INIT(&args);
        args.tokens = ids;
        args.n_tokens = n;
        args.logits = logits;
        int64_t compared = 0;
        for (; compared < n_greedy; compared++) {
            int32_t best = 0;
            forward(session, &args);
            for (int32_t i = 1; i < info.vocab_size; i++)
                best = logits[i] > logits[best] ? i : best;
            if (number(json, "greedy_margins", (size_t)compared) < 0.01)
                break;
            if (best != greedy[compared])
                fail_msg("%s: token %lld is %d, not %d", names[f], (long long)compared, best, greedy[compared]);
            ids[0] = best;
            args.n_tokens = 1;
        }
        print_message("%-8s %lld of %lld greedy tokens compared\n", names[f], (long long)compared,
                      (long long)n_greedy);
        assert_true(compared > 0);
        attn_session_destroy(session);
        json_decref(json);
    }
    free(logits);
}

/* The same bits for another number of threads and beside another sequence; chunks agree with one pass to rounding: the
 * sums of attention have another order, and 30 layers carry that to at most 2e-3 in a logit, as between
 * implementations. */
static void test_same_bits(void **state)
{
    (void)state;
    if (!model)
        skip();
    int32_t ids[512], both[1024];
    json_t *json = golden("names");
    const int64_t n = int_array(json, "ids", ids, 512), vocab = info.vocab_size;
    float *want = malloc((size_t)(n * vocab) * sizeof *want), *got = malloc((size_t)(2 * n * vocab) * sizeof *got);
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    args.logits_rows = ATTN_LOGITS_ALL;
    attn_session *session = session_of(1, 1);
    args.tokens = ids;
    args.n_tokens = n;
    args.logits = want;
    forward(session, &args);
    attn_session_destroy(session);

    session = session_of(1, 2);
    args.logits = got;
    forward(session, &args);
    attn_session_destroy(session);
    assert_memory_equal(got, want, (size_t)(n * vocab) * sizeof *want);

    session = session_of(1, 2);
    args.logits = got;
    for (int64_t t = 0, step = 1; t < n; t += step, step = 1 + (t * 7) % 5) {
        step = step > n - t ? n - t : step;
        args.tokens = ids + t;
        args.n_tokens = step;
        args.logits = got + t * vocab;
        forward(session, &args);
    }
    assert_int_equal(attn_session_length(session, 0), n);
    attn_session_destroy(session);
    for (int64_t i = 0; i < n * vocab; i++)
        assert_true(fabsf(got[i] - want[i]) <= 2e-3f);

    session = session_of(2, 2);
    for (int64_t t = 0; t < n; t++) {
        both[t] = 100 + (int32_t)t;
        both[n + t] = ids[t];
    }
    args.tokens = both;
    args.n_tokens = n;
    args.logits = got;
    forward(session, &args);
    attn_session_destroy(session);
    assert_memory_equal(got + n * vocab, want, (size_t)(n * vocab) * sizeof *want);
    free(want);
    free(got);
    json_decref(json);
}

int main(void)
{
    char path[512];
    if (!golden_model_path(path, sizeof path)) {
        printf("SKIPPED, ALL OF IT: no model at %s; ./dev run fetches it, or set ATTN_MODEL_PATH\n", path);
    } else if (attn_model_load(path, NULL, &model) != ATTN_OK) {
        printf("%s\n", attn_model_error(NULL));
        return 1;
    }
    ATTN_ARGS_INIT(&info);
    if (model)
        attn_model_get_info(model, &info);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_logits), cmocka_unit_test(test_attention_rows),
                                       cmocka_unit_test(test_greedy), cmocka_unit_test(test_same_bits)};
    int failed = cmocka_run_group_tests_name("smollm2", tests, NULL, NULL);
    attn_model_destroy(model);
    return failed;
}
