/* head_tests.c - what every head reads in repeated random tokens, and what the loss there costs without the best
 * induction heads. In r r nothing can be predicted but by looking back: the second r by copying (Elhage et al. 2021; Olsson
 * et al. 2022). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "attn/inspect.h"
#include "inspect/inspect_run.h"

#define N_RANDOM    50
#define N_SEQUENCES 4
#define N_CUT       5
#define LOCAL       8

typedef struct tests {
    attn_session *s;
    const attn_model *model;
    attn_head_tests_args a;
    attn_head_tests_result *out;
    int64_t n, begin;      /* tokens of a sequence; 1: a beginning token stands in front */
    int32_t *tokens;       /* [n_sequences][n] */
    float *rows;           /* [n][n] of one head */
    float *logits;         /* [n][vocab_size] */
    double *sums;          /* [n_layers][n_heads * head_dim] of outputs, for the means */
    uint64_t random;
    const int32_t *cut;    /* heads replaced by their means; NULL: none */
    bool score;
} tests;

/* ---- what is read ---- */

/* Adds one sequence's means to a head's score. w: [n, n]; r starts at `begin`, its copy at begin + length. */
static void add_score(const tests *t, const float *w, attn_head_score *score)
{
    const int64_t n = t->n, length = t->a.n_random, second = t->begin + length;
    const float each = 1 / (float)t->a.n_sequences;
    double previous = 0, duplicate = 0, induction = 0, sink = 0, distance = 0, local = 0;
    for (int64_t i = 1; i < n; i++) {
        previous += (double)w[i * n + i - 1];
        sink += (double)w[i * n];
        for (int64_t j = 0; j <= i; j++) {
            distance += (double)w[i * n + j] * (double)(i - j);
            local += i - j < LOCAL ? (double)w[i * n + j] : 0;
        }
    }
    for (int64_t i = second; i < n; i++) {
        duplicate += (double)w[i * n + i - length];
        induction += (double)w[i * n + i - length + 1];
    }
    score->previous += each * (float)(previous / (double)(n - 1));
    score->sink += each * (float)(sink / (double)(n - 1));
    score->distance += each * (float)(distance / (double)(n - 1));
    score->local += each * (float)(local / (double)(n - 1));
    score->duplicate += each * (float)(duplicate / (double)length);
    score->induction += each * (float)(induction / (double)length);
}

static attn_status score_layer(tests *t, const attn_layer_view *view)
{
    const int64_t n = t->n, heads = t->out->n_heads, dim = t->model->d.head_dim;
    attn_row *rows = malloc((size_t)n * sizeof *rows);
    attn_status status = rows ? ATTN_OK : attn_inspect_no_memory();
    const attn_view weights = attn_view_of(t->rows, ATTN_F32, 1, 1, n, n);
    for (int64_t h = 0; status == ATTN_OK && h < heads; h++) {
        for (int64_t i = 0; i < n; i++)
            rows[i] = (attn_row){0, h, i};
        status = attn_sdpa_rows(view->ctx, view->attention, rows, n, &weights);
        if (status != ATTN_OK)
            attn_model_fail(status, "rows of attention: %s", attn_ctx_error(view->ctx));
        else
            add_score(t, t->rows, &t->out->scores[view->layer * heads + h]);
        for (int64_t i = 0; i < n; i++)
            for (int64_t d = 0; d < dim; d++)
                t->sums[(view->layer * heads + h) * dim + d] += (double)(
                    (const float *)view->head_out.data)[h * view->head_out.stride[1] + i * view->head_out.stride[2] + d];
    }
    free(rows);
    return status;
}

/* Mean ablation: the head's mean output over all positions of all sequences. */
static void replace_by_mean(const tests *t, const attn_layer_view *view, int64_t head)
{
    const int64_t dim = t->model->d.head_dim;
    const double *sum = t->sums + (view->layer * t->out->n_heads + head) * dim;
    const double count = (double)(t->n * t->a.n_sequences);
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t d = 0; d < dim; d++)
            ((float *)view->head_out.data)[head * view->head_out.stride[1] + i * view->head_out.stride[2] + d] =
                (float)(sum[d] / count);
}

static attn_status hook(void *user, const attn_layer_view *view)
{
    tests *t = user;
    if (t->score)
        ATTN_TRY(score_layer(t, view));
    for (int64_t i = 0; t->cut && i < t->out->n_cut; i++)
        if (t->cut[i] / t->out->n_heads == view->layer)
            replace_by_mean(t, view, t->cut[i] % t->out->n_heads);
    return ATTN_OK;
}

/* ---- loss ---- */

/* Adds -ln P of the tokens of both halves, each but the first of the first half, whose context says nothing yet. */
static void add_losses(const tests *t, const int32_t *tokens, double *first, double *second)
{
    const int64_t vocab = t->model->d.vocab_size, middle = t->begin + t->a.n_random;
    const double count = (double)(t->a.n_sequences * (t->a.n_random - 1));
    for (int64_t i = t->begin; i + 1 < t->n; i++) {
        const float *row = t->logits + i * vocab;
        const double loss = attn_inspect_log_sum(row, vocab) - (double)row[tokens[i + 1]];
        if (i + 1 < middle)
            *first += loss / count;
        else if (i >= middle) /* the first token of the copy cannot be known: where r ends is random */
            *second += loss / count;
    }
}

static attn_status pass(tests *t, const int32_t *cut, bool score, double *first, double *second)
{
    *first = *second = 0;
    t->cut = cut;
    t->score = score;
    for (int64_t q = 0; q < t->a.n_sequences; q++) {
        attn_forward_args args;
        ATTN_ARGS_INIT(&args);
        args.tokens = t->tokens + q * t->n;
        args.n_tokens = t->n;
        args.logits = t->logits;
        args.logits_rows = ATTN_LOGITS_ALL;
        args.hook = hook;
        args.hook_user = t;
        ATTN_TRY(attn_session_truncate(t->s, -1, 0));
        ATTN_TRY(attn_model_forward(t->s, &args));
        add_losses(t, args.tokens, first, second);
        if (t->a.progress && t->a.progress(t->a.progress_user, q + 1, t->a.n_sequences))
            return attn_model_fail(ATTN_ERR_CANCELLED, "the progress callback asked to stop");
    }
    return ATTN_OK;
}

/* ---- heads to cut ---- */

static bool listed(const int32_t *list, int64_t n, int32_t head)
{
    bool found = false;
    for (int64_t i = 0; i < n; i++)
        found |= list[i] == head;
    return found;
}

static void choose_cut(tests *t)
{
    attn_head_tests_result *out = t->out;
    const int32_t heads = (int32_t)(out->n_layers * out->n_heads);
    for (int64_t i = 0; i < out->n_cut; i++) {
        int32_t best = -1;
        for (int32_t h = 0; h < heads; h++)
            if (!listed(out->cut, i, h) && (best < 0 || out->scores[h].induction > out->scores[best].induction))
                best = h;
        out->cut[i] = best;
    }
    for (int64_t i = 0; i < out->n_cut; i++) { /* random ones of the same layer; of any where all of it are taken */
        const int32_t layer = out->cut[i] / (int32_t)out->n_heads * (int32_t)out->n_heads;
        for (int64_t attempt = 0;; attempt++) {
            const uint64_t r = attn_inspect_random(&t->random);
            const int32_t head = attempt < 100 ? layer + (int32_t)(r % (uint64_t)out->n_heads)
                                               : (int32_t)(r % (uint64_t)heads);
            out->control[i] = head;
            if (!listed(out->cut, out->n_cut, head) && !listed(out->control, i, head))
                break;
        }
    }
}

/* ---- the whole ---- */

static attn_status start(tests *t, attn_session *session, const attn_head_tests_args *args)
{
    memset(t, 0, sizeof *t);
    ATTN_MODEL_REQUIRE(session, "session is NULL");
    ATTN_TRY(attn_model_args(&t->a, sizeof t->a, args, "args"));
    t->s = session;
    t->model = session->model;
    t->random = t->a.seed;
    const attn_description *d = &t->model->d;
    if (d->kind != ATTN_MODEL_DECODER || !d->has_logits)
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "head tests are for decoders with next-token logits, not for %s",
                               d->family);
    ATTN_MODEL_REQUIRE(session->batch == 1, "the session's batch is %lld, must be 1", (long long)session->batch);
    t->a.n_sequences = t->a.n_sequences ? t->a.n_sequences : N_SEQUENCES;
    const int64_t heads = d->n_layers * d->n_heads, few = heads < 4 * N_CUT ? (heads + 3) / 4 : N_CUT;
    t->a.n_cut = t->a.n_cut ? t->a.n_cut : few; /* of all heads a random choice would be much the same */
    t->a.n_cut = t->a.n_cut > heads / 2 ? heads / 2 : t->a.n_cut;
    t->begin = d->bos_id >= 0 && d->bos_id < d->vocab_size;
    const int64_t fit = (session->max_capacity - t->begin) / 2;
    t->a.n_random = t->a.n_random ? t->a.n_random : fit < N_RANDOM ? fit : N_RANDOM;
    t->n = t->begin + 2 * t->a.n_random;
    ATTN_MODEL_REQUIRE(t->a.n_random >= 2 && t->a.n_random <= 1 << 14 && t->n <= session->max_capacity,
                       "n_random is %lld: two of it must fit the context of %lld", (long long)t->a.n_random,
                       (long long)session->max_capacity);
    ATTN_MODEL_REQUIRE(t->a.n_sequences > 0 && t->a.n_sequences <= 1 << 20 && t->a.n_cut >= 0,
                       "n_sequences is %lld, n_cut %lld", (long long)t->a.n_sequences, (long long)t->a.n_cut);
    t->tokens = malloc((size_t)(t->a.n_sequences * t->n) * sizeof *t->tokens);
    t->rows = malloc((size_t)(t->n * t->n) * sizeof *t->rows);
    t->logits = malloc((size_t)(t->n * d->vocab_size) * sizeof *t->logits);
    t->sums = calloc((size_t)(heads * d->head_dim), sizeof *t->sums);
    attn_head_tests_result *out = t->out = calloc(1, sizeof *out);
    if (!out || !t->tokens || !t->rows || !t->logits || !t->sums)
        return attn_inspect_no_memory();
    out->struct_size = sizeof *out;
    out->n_layers = d->n_layers;
    out->n_heads = d->n_heads;
    out->n_random = t->a.n_random;
    out->n_sequences = t->a.n_sequences;
    out->n_cut = t->a.n_cut;
    out->seed = t->a.seed;
    out->scores = calloc((size_t)heads, sizeof *out->scores);
    out->cut = calloc((size_t)(out->n_cut + 1), sizeof *out->cut);
    out->control = calloc((size_t)(out->n_cut + 1), sizeof *out->control);
    return out->scores && out->cut && out->control ? ATTN_OK : attn_inspect_no_memory();
}

static void draw_tokens(tests *t)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(t->model);
    for (int64_t q = 0; q < t->a.n_sequences; q++) {
        int32_t *tokens = t->tokens + q * t->n;
        if (t->begin)
            tokens[0] = t->model->d.bos_id;
        for (int64_t i = 0; i < t->a.n_random; i++) {
            int32_t id;
            do
                id = (int32_t)(attn_inspect_random(&t->random) % (uint64_t)t->model->d.vocab_size);
            while (tokenizer && attn_tokenizer_is_special(tokenizer, id) && t->model->d.vocab_size > 64);
            tokens[t->begin + i] = tokens[t->begin + t->a.n_random + i] = id;
        }
    }
}

static attn_status run(tests *t)
{
    attn_head_tests_result *out = t->out;
    double first;
    draw_tokens(t);
    ATTN_TRY(pass(t, NULL, true, &out->loss_first, &out->loss_second));
    choose_cut(t);
    ATTN_TRY(pass(t, out->cut, false, &first, &out->loss_cut));
    return pass(t, out->control, false, &first, &out->loss_control);
}

attn_status attn_head_tests(attn_session *session, const attn_head_tests_args *args, attn_head_tests_result **result)
{
    tests t;
    ATTN_MODEL_REQUIRE(result, "result is NULL");
    *result = NULL;
    attn_status status = start(&t, session, args);
    if (status == ATTN_OK)
        status = run(&t);
    free(t.tokens);
    free(t.rows);
    free(t.logits);
    free(t.sums);
    if (status != ATTN_OK)
        attn_head_tests_destroy(t.out);
    else
        *result = t.out;
    return status;
}

void attn_head_tests_destroy(attn_head_tests_result *result)
{
    if (!result)
        return;
    free(result->scores);
    free(result->cut);
    free(result->control);
    free(result);
}
