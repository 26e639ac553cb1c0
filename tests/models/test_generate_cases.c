/* Every case of tests/data/cases/generate: distributions after the sampling rules, the end of the context, seeds. */
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "attn/model.h"
#include "models/tiny_model.h"

#define TOKENS 1000
#define FOLDER ATTN_SOURCE_DIR "/tests/data/cases/generate"

static int64_t read_logits(const json_t *list, float *out)
{
    const int64_t n = (int64_t)json_array_size(list);
    assert_true(n > 0 && n <= 4096);
    for (int64_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(list, (size_t)i);
        const char *text = json_string_value(x);
        out[i] = !text ? (float)json_number_value(x) : !strcmp(text, "nan") ? NAN : *text == '-' ? -INFINITY : INFINITY;
    }
    return n;
}

static int64_t read_sampling(const json_t *params, attn_sampling *s, int32_t *history)
{
    const json_t *x, *hist = json_object_get(params, "hist");
    ATTN_ARGS_INIT(s);
    s->temperature = (x = json_object_get(params, "temp")) ? json_number_value(x) : 1;
    s->top_k = (x = json_object_get(params, "k")) ? json_integer_value(x) : 0;
    if ((x = json_object_get(params, "p"))) {
        s->top_p = json_number_value(x);
        s->flags |= ATTN_SAMPLING_TOP_P_GIVEN;
    }
    if ((x = json_object_get(params, "min_p")))
        s->min_p = json_number_value(x);
    if ((x = json_object_get(params, "pen"))) {
        s->repetition_penalty = json_number_value(x);
        s->flags |= ATTN_SAMPLING_PENALTY_GIVEN;
    }
    for (size_t i = 0; i < json_array_size(hist); i++)
        history[i] = (int32_t)json_integer_value(json_array_get(hist, i));
    return (int64_t)json_array_size(hist);
}

static void run_distribution(const char *name, const json_t *c)
{
    static float logits[4096];
    static double probs[4096];
    int32_t history[256];
    attn_sampling s;
    const int64_t n = read_logits(json_object_get(c, "logits"), logits);
    const int64_t n_history = read_sampling(json_object_get(c, "params"), &s, history);
    const json_t *expect = json_object_get(c, "expect");
    const char *error = json_string_value(json_object_get(expect, "error"));
    const attn_status status = attn_sampling_distribution(&s, logits, n, history, n_history, probs);
    if (error) {
        assert_int_equal(status, ATTN_ERR_INVALID_ARGUMENT);
        if (!strcmp(error, "bad_logits") != !strncmp(attn_model_error(NULL), "logits", 6))
            fail_msg("%s: \"%s\" is not %s", name, attn_model_error(NULL), error);
        return;
    }
    if (status != ATTN_OK)
        fail_msg("%s: %s", name, attn_model_error(NULL));
    const double tolerance = json_number_value(json_object_get(json_object_get(c, "tol"), "abs"));
    for (int64_t i = 0; i < n; i++) {
        double want = json_number_value(json_array_get(json_object_get(expect, "probs"), (size_t)i));
        if (!(fabs(probs[i] - want) <= tolerance))
            fail_msg("%s: probs[%lld] is %.9g, not %.9g", name, (long long)i, probs[i], want);
    }
}

static void run_limit(const char *name, const json_t *c)
{
    const int64_t n_ctx = json_integer_value(json_object_get(c, "n_ctx"));
    const int64_t prompt = json_integer_value(json_object_get(c, "prompt_len"));
    const int64_t max_new = json_integer_value(json_object_get(c, "max_new"));
    const json_t *expect = json_object_get(c, "expect");
    attn_model *model = tiny_llama();
    attn_session_options options;
    attn_session *session;
    ATTN_ARGS_INIT(&options);
    options.capacity = n_ctx;
    assert_int_equal(attn_session_create(model, &options, &session), ATTN_OK);
    int32_t ids[256] = {0}, reason;
    int64_t generated;
    assert_true(prompt <= 256);
    attn_generate_args args;
    ATTN_ARGS_INIT(&args);
    args.prompts = ids;
    args.prompt_lengths = &prompt;
    args.max_new = max_new;
    args.n_generated = &generated;
    args.stop_reasons = &reason;
    const attn_status status = attn_generate(session, &args);
    const json_t *new_tokens = json_object_get(expect, "new_tokens");
    if (json_object_get(expect, "error")) {
        assert_int_equal(status, ATTN_ERR_INVALID_ARGUMENT);
    } else {
        static const char *const reasons[] = {"length", "eos", "context", "callback", "text"};
        if (status != ATTN_OK)
            fail_msg("%s: %s", name, attn_model_error(NULL));
        assert_int_equal(generated, json_integer_value(new_tokens));
        assert_string_equal(reasons[reason], json_string_value(json_object_get(expect, "stop")));
    }
    attn_session_destroy(session);
    attn_model_destroy(model);
}

/* The token of each step depends on seed and step alone: drawn in any order and beside any other draw. */
static void run_seed(const char *name, const json_t *c)
{
    static float logits[4096];
    const json_t *steps = json_object_get(c, "logits_steps");
    const size_t n_steps = json_array_size(steps);
    int32_t history[256], alone[256], other;
    attn_sampling s, beside;
    assert_true(n_steps > 0 && n_steps <= 256);
    const int64_t n_history = read_sampling(json_object_get(c, "params"), &s, history);
    s.seed = (uint64_t)json_integer_value(json_object_get(c, "seed"));
    beside = s;
    beside.seed = s.seed + 7;
    for (size_t i = 0; i < n_steps; i++) {
        int64_t n = read_logits(json_array_get(steps, i), logits);
        assert_int_equal(attn_sampling_draw(&s, logits, n, history, n_history, i, &alone[i]), ATTN_OK);
    }
    int different = 0;
    for (size_t i = n_steps; i-- > 0;) {
        int64_t n = read_logits(json_array_get(steps, i), logits);
        int32_t again;
        attn_sampling_draw(&beside, logits, n, history, n_history, i, &other);
        attn_sampling_draw(&s, logits, n, history, n_history, i, &again);
        if (again != alone[i])
            fail_msg("%s: step %zu gives %d, then %d", name, i, alone[i], again);
        different += other != again;
    }
    if (n_steps >= 8 && s.temperature > 0)
        assert_true(different > 0); /* another seed is another stream */
}

static void test_cases(void **state)
{
    (void)state;
    DIR *folder = opendir(FOLDER);
    struct dirent *entry;
    int n = 0;
    assert_non_null(folder);
    while ((entry = readdir(folder))) {
        char path[600];
        json_error_t error;
        if (!strstr(entry->d_name, ".json"))
            continue;
        snprintf(path, sizeof path, "%s/%s", FOLDER, entry->d_name);
        json_t *c = json_load_file(path, 0, &error);
        if (!c)
            fail_msg("%s: %s", path, error.text);
        const char *op = json_string_value(json_object_get(c, "op"));
        if (!strcmp(op, "distribution"))
            run_distribution(entry->d_name, c);
        else if (!strcmp(op, "generate_limit"))
            run_limit(entry->d_name, c);
        else if (!strcmp(op, "seed"))
            run_seed(entry->d_name, c);
        else
            fail_msg("%s: op %s is not known", entry->d_name, op);
        json_decref(c);
        n++;
    }
    closedir(folder);
    assert_true(n >= 11);
}

/* Draws follow the distribution: the share of each of 4 tokens over 20,000 steps, within 4 standard deviations. */
static void test_draws_follow_probabilities(void **state)
{
    (void)state;
    const float logits[4] = {1.0f, 0.0f, -1.0f, 2.0f};
    double probs[4];
    int counts[4] = {0};
    attn_sampling s;
    ATTN_ARGS_INIT(&s);
    s.temperature = 1;
    s.seed = 11;
    assert_int_equal(attn_sampling_distribution(&s, logits, 4, NULL, 0, probs), ATTN_OK);
    for (uint64_t i = 0; i < 20000; i++) {
        int32_t token;
        assert_int_equal(attn_sampling_draw(&s, logits, 4, NULL, 0, i, &token), ATTN_OK);
        counts[token]++;
    }
    for (int i = 0; i < 4; i++)
        assert_true(fabs(counts[i] / 20000.0 - probs[i]) < 4 * sqrt(probs[i] * (1 - probs[i]) / 20000));
}

/* A batch gives each sequence what it gives alone, whatever the seeds and lengths. */
static void test_batch_as_alone(void **state)
{
    (void)state;
    attn_model *model = tiny_llama();
    const int32_t prompts[] = {1, 5, 9, 2, 7, 3};
    const int64_t lengths[3] = {2, 1, 3};
    const uint64_t seeds[3] = {1, 2, 3};
    int32_t together[3][12], alone[12];
    int64_t n_together[3], n_alone;
    attn_session_options options;
    attn_session *session;
    attn_generate_args args;
    ATTN_ARGS_INIT(&args);
    args.max_new = args.token_stride = 12;
    ATTN_ARGS_INIT(&args.sampling);
    args.sampling.temperature = 1.3;
    args.sampling.repetition_penalty = 1.1;
    ATTN_ARGS_INIT(&options);
    options.batch = 3;
    assert_int_equal(attn_session_create(model, &options, &session), ATTN_OK);
    args.prompts = prompts;
    args.prompt_lengths = lengths;
    args.seeds = seeds;
    args.tokens = together[0];
    args.n_generated = n_together;
    assert_int_equal(attn_generate(session, &args), ATTN_OK);
    attn_session_destroy(session);
    for (int b = 0, first = 0; b < 3; first += (int)lengths[b++]) {
        assert_int_equal(attn_session_create(model, NULL, &session), ATTN_OK);
        args.prompts = prompts + first;
        args.prompt_lengths = &lengths[b];
        args.seeds = &seeds[b];
        args.tokens = alone;
        args.n_generated = &n_alone;
        assert_int_equal(attn_generate(session, &args), ATTN_OK);
        assert_int_equal(n_alone, n_together[b]);
        assert_memory_equal(alone, together[b], (size_t)n_alone * sizeof *alone);
        attn_session_destroy(session);
    }
    attn_model_destroy(model);
}

typedef struct sorted_token {
    double logit, prob;
    int32_t id;
} sorted_token;

static int likeliest_first(const void *a, const void *b)
{
    const sorted_token *x = a, *y = b;
    return x->logit != y->logit ? (x->logit > y->logit ? -1 : 1) : x->id - y->id;
}

/* The first `kept` of a sorted vocabulary, summing to 1. */
static void scale_to_one(sorted_token *t, int64_t kept)
{
    double sum = 0;
    for (int64_t i = 0; i < kept; i++)
        sum += t[i].prob;
    for (int64_t i = 0; i < kept; i++)
        t[i].prob /= sum;
}

/* The rules as they are written, on a vocabulary that is sorted as a whole. */
static int64_t cut_sorted(const attn_sampling *s, sorted_token *t, int64_t n)
{
    qsort(t, (size_t)n, sizeof *t, likeliest_first);
    for (int64_t i = 0; i < n; i++)
        t[i].prob = exp((t[i].logit - t[0].logit) / s->temperature);
    n = s->top_k > 0 && s->top_k < n ? s->top_k : n;
    scale_to_one(t, n);
    if (s->top_p > 0) {
        double mass = 0;
        int64_t kept = 0;
        while (kept < n && (kept == 0 || mass < s->top_p))
            mass += t[kept++].prob;
        scale_to_one(t, n = kept);
    }
    int64_t kept = 1;
    while (kept < n && t[kept].prob >= s->min_p * t[0].prob)
        kept++;
    scale_to_one(t, kept);
    return kept;
}

static void check_against_sorted(const attn_sampling *s, const float *logits, int64_t n)
{
    static sorted_token t[TOKENS];
    static double probs[TOKENS];
    int32_t token;
    for (int64_t i = 0; i < n; i++)
        t[i] = (sorted_token){(double)logits[i], 0, (int32_t)i};
    const int64_t kept = cut_sorted(s, t, n);
    assert_int_equal(attn_sampling_distribution(s, logits, n, NULL, 0, probs), ATTN_OK);
    for (int64_t i = 0; i < n; i++) {
        const double wanted = i < kept ? t[i].prob : 0;
        assert_true(fabs(probs[t[i].id] - wanted) <= 1e-12 * wanted);
    }
    attn_sampling greedy = *s;
    greedy.temperature = 0;
    assert_int_equal(attn_sampling_draw(&greedy, logits, n, NULL, 0, 0, &token), ATTN_OK);
    assert_int_equal(token, t[0].id);
    greedy.repetition_penalty = 1.5; /* of nothing: the same token by the general way */
    assert_int_equal(attn_sampling_draw(&greedy, logits, n, NULL, 0, 0, &token), ATTN_OK);
    assert_int_equal(token, t[0].id);
}

/* Only what matters of the vocabulary is ranked: as if all of it were sorted, with ties, in any order of logits. */
static void test_ranking_is_sorting(void **state)
{
    static float logits[TOKENS];
    static const int64_t sizes[] = {1, 2, 3, 10, 255, TOKENS};
    uint64_t random = 7;
    (void)state;
    for (int turn = 0; turn < 240; turn++) {
        const int64_t n = sizes[turn % 6];
        attn_sampling s;
        ATTN_ARGS_INIT(&s);
        for (int64_t i = 0; i < n; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            const int step = (int)(random >> 58); /* 64 values: ties everywhere */
            logits[i] = turn % 4 == 0 ? (float)i / 64 : turn % 4 == 1 ? -(float)i / 64 : (float)step / 8;
        }
        s.temperature = turn % 2 ? 0.7 : 1.3;
        s.top_k = turn % 3 == 0 ? 1 + turn % 17 : 0;
        s.top_p = turn % 5 == 0 ? 0.83 : 0;
        s.min_p = turn % 7 == 0 ? 0.11 : 0;
        check_against_sorted(&s, logits, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_draws_follow_probabilities),
        cmocka_unit_test(test_ranking_is_sorting),
        cmocka_unit_test(test_batch_as_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
