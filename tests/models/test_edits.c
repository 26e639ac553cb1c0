/* Edits of attention in every family, by brute force: the row is put together again from its weights and values by plain
 * loops in a hook (the written meaning of each edit), and the two passes must agree. Tiny checkpoints of
 * tests/data/families: windows, sinks, soft caps, relative positions, grouped heads, an encoder, cross attention. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "attn/model.h"

#define N 9       /* tokens */
#define VOCAB 160 /* of all these checkpoints */
#define WIDTH 64  /* d_model of all these checkpoints */
#define LAYERS 8
#define DIM 32   /* at most */

static const char *const names[] = {"bert",           "gemma2", "gpt2",  "gpt_neox", "gpt_oss", "llama3_rope",
                                    "mistral_window", "opt",    "qwen2", "qwen3",    "t5"};
static const int32_t ids[N] = {5, 17, 80, 17, 3, 99, 150, 42, 80};

typedef struct world {
    attn_model *model;
    attn_session *session;
    attn_model_info info;
    const attn_edit *edits;
    int n_edits, calls;
    double largest_weight; /* of the edited readings: an edit of nothing proves nothing */
} world;

static world open_world(const char *name)
{
    world w = {0};
    char path[600];
    snprintf(path, sizeof path, "%s/tests/data/families/%s.safetensors", ATTN_SOURCE_DIR, name);
    if (attn_model_load(path, NULL, &w.model) != ATTN_OK ||
        attn_session_create(w.model, NULL, &w.session) != ATTN_OK)
        fail_msg("%s: %s", name, attn_model_error(NULL));
    ATTN_ARGS_INIT(&w.info);
    attn_model_get_info(w.model, &w.info);
    return w;
}

static void close_world(world *w)
{
    attn_session_destroy(w->session);
    attn_model_destroy(w->model);
}

/* One pass over the tokens from the start: the numbers that the model gives (logits, or hidden states). */
static void pass(world *w, attn_forward_args *args, float *out)
{
    attn_status status = ATTN_OK;
    if (w->info.kind == ATTN_MODEL_ENCODER_DECODER) {
        attn_forward_args encoder;
        ATTN_ARGS_INIT(&encoder);
        encoder.tokens = ids;
        encoder.n_tokens = N;
        status = attn_model_forward_encoder(w->session, &encoder);
    } else if (w->info.kind == ATTN_MODEL_DECODER) {
        status = attn_session_truncate(w->session, -1, 0);
    }
    args->tokens = ids;
    args->n_tokens = N;
    args->logits_rows = ATTN_LOGITS_ALL;
    if (w->info.has_logits)
        args->logits = out;
    else
        args->last_hidden = out;
    if (status != ATTN_OK || attn_model_forward(w->session, args) != ATTN_OK)
        fail_msg("%s", attn_model_error(NULL));
}

/* The edited row from weights and values in f64: knocked-out keys leave, the rest (the sink's share too) is divided by
 * what is left; removed ones only leave; replaced ones bring another value. */
static attn_status by_hand(void *user, const attn_layer_view *view)
{
    world *w = user;
    const attn_edit *first = &w->edits[0];
    const attn_sdpa_args *a = view->attention;
    const int64_t n_keys = a->key.shape[2], group = a->query.shape[1] / a->key.shape[1];
    const int64_t row = first->query - view->first_position;
    float weights[N];
    double out[DIM] = {0}, all = 0, gone = 0;
    if (view->layer != first->layer || view->kind != first->attention)
        return ATTN_OK;
    w->calls++;
    const attn_row wanted = {0, first->head, row};
    const attn_view rows = attn_view_of(weights, ATTN_F32, 1, 1, 1, n_keys);
    assert_int_equal(attn_sdpa_rows(view->ctx, a, &wanted, 1, &rows), ATTN_OK);
    assert_true(n_keys <= N && a->value.shape[3] <= DIM);
    for (int64_t j = 0; j < n_keys; j++) {
        const float *v = (const float *)a->value.data + first->head / group * a->value.stride[1] +
                         j * a->value.stride[2];
        const attn_edit *edit = NULL;
        for (int e = 0; e < w->n_edits; e++)
            edit = w->edits[e].key == j ? &w->edits[e] : edit;
        if (edit)
            w->largest_weight = fmax(w->largest_weight, (double)weights[j]);
        all += (double)weights[j];
        gone += edit && edit->kind == ATTN_EDIT_KNOCKOUT ? (double)weights[j] : 0;
        for (int64_t d = 0; d < a->value.shape[3]; d++)
            out[d] += !edit                              ? (double)weights[j] * (double)v[d]
                      : edit->kind == ATTN_EDIT_REPLACE ? (double)weights[j] * (double)edit->value[d]
                                                         : 0;
    }
    const double left = (a->sinks ? 1 : all) - gone;
    float *y = (float *)view->head_out.data + first->head * view->head_out.stride[1] + row * view->head_out.stride[2];
    for (int64_t d = 0; d < a->value.shape[3]; d++)
        y[d] = first->kind == ATTN_EDIT_HEAD ? (first->value ? first->value[d] : 0) : (float)(out[d] / left);
    return ATTN_OK;
}

/* The pass with edits and the pass by hand agree, and differ from the plain one in the row that was meant. */
static void check(world *w, const char *name, const attn_edit *edits, int n_edits)
{
    static float plain[N * VOCAB], edited[N * VOCAB], hand[N * VOCAB];
    const int64_t width = w->info.has_logits ? VOCAB : WIDTH;
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    pass(w, &args, plain);
    args.edits = edits;
    args.n_edits = n_edits;
    pass(w, &args, edited);
    ATTN_ARGS_INIT(&args);
    args.hook = by_hand;
    args.hook_user = w;
    w->edits = edits;
    w->n_edits = n_edits;
    w->calls = 0;
    w->largest_weight = 0;
    pass(w, &args, hand);
    assert_int_equal(w->calls, 1);
    double off = 0, moved = 0;
    for (int64_t i = 0; i < N * width; i++) {
        off = fmax(off, fabs((double)(edited[i] - hand[i])));
        moved = fmax(moved, fabs((double)(edited[i] - plain[i])));
    }
    /* two f32 orders of the same sums, carried through at most two more layers */
    if (!(off <= 2e-5))
        fail_msg("%s kind %d: off by %g", name, edits->kind, off);
    if (!(moved > 1e-4) && (edits->kind == ATTN_EDIT_HEAD || w->largest_weight > 0.02))
        fail_msg("%s kind %d: moved nothing (weight %g)", name, edits->kind, w->largest_weight);
}

static void test_every_family(void **state)
{
    (void)state;
    float value[DIM];
    for (int d = 0; d < DIM; d++)
        value[d] = 0.3f * (float)(d % 5) - 0.5f;
    for (size_t f = 0; f < sizeof names / sizeof *names; f++) {
        world w = open_world(names[f]);
        const int32_t kinds = w.info.kind == ATTN_MODEL_ENCODER_DECODER ? 2 : 1;
        assert_true(w.info.head_dim <= DIM && w.info.d_model == WIDTH && w.info.n_layers <= LAYERS);
        for (int32_t attention = 0; attention < kinds; attention++)
            for (int32_t kind = ATTN_EDIT_HEAD; kind <= ATTN_EDIT_REPLACE; kind++) {
                attn_edit edits[3];
                for (int e = 0; e < 3; e++)
                    edits[e] = (attn_edit){.layer = 1, .entry = 0, .head = 3, .query = 7, .key = 7 - 2 * e,
                                           .kind = kind, .attention = attention,
                                           .value = kind == ATTN_EDIT_REPLACE ? value : NULL};
                check(&w, names[f], edits, 1);
                if (kind != ATTN_EDIT_HEAD) /* several readings of one row: the weights that are left count */
                    check(&w, names[f], edits, 3);
                edits[0].value = value;
                if (kind == ATTN_EDIT_HEAD)
                    check(&w, names[f], edits, 1);
            }
        close_world(&w);
    }
}

/* A row of which nearly everything is cut is computed anew: all keys but one out leaves that one's value. */
static void test_knockout_of_nearly_all(void **state)
{
    (void)state;
    world w = open_world("llama3_rope");
    attn_edit edits[7];
    for (int64_t e = 0; e < 7; e++)
        edits[e] = (attn_edit){.layer = 0, .head = 1, .query = 7, .key = e + 1, .kind = ATTN_EDIT_KNOCKOUT};
    check(&w, "llama3_rope", edits, 7);
    close_world(&w);
}

/* ---- what a pass shows of the stream ---- */

typedef struct streams {
    float residual[LAYERS][N][WIDTH];
} streams;

static attn_status keep_residual(void *user, const attn_layer_view *view)
{
    streams *s = user;
    if (view->kind == ATTN_ATTENTION_SELF)
        for (int64_t i = 0; i < N; i++)
            memcpy(s->residual[view->layer][i], (const float *)view->residual.data + i * view->residual.stride[2],
                   sizeof s->residual[0][0]);
    return ATTN_OK;
}

/* A hook's residual is hidden_states of its layer; final_residual is what the final norm turns into the last one. */
static void test_streams(void **state)
{
    (void)state;
    static streams seen;
    static float hidden[(LAYERS + 1) * N * WIDTH], final[N * WIDTH], out[N * VOCAB], gain[WIDTH];
    for (size_t f = 0; f < sizeof names / sizeof *names; f++) {
        world w = open_world(names[f]);
        attn_forward_args args;
        ATTN_ARGS_INIT(&args);
        args.hook = keep_residual;
        args.hook_user = &seen;
        args.hidden_states = hidden;
        args.final_residual = final;
        pass(&w, &args, out);
        for (int64_t l = 0; l < w.info.n_layers; l++)
            assert_memory_equal(seen.residual[l], hidden + l * N * WIDTH, N * WIDTH * sizeof(float));
        const float *last = hidden + w.info.n_layers * N * WIDTH;
        if (attn_model_weight_rows(w.model, ATTN_WEIGHT_FINAL_NORM, 0, 0, 1, gain) != ATTN_OK) {
            assert_memory_equal(final, last, N * WIDTH * sizeof(float)); /* no final norm */
        } else if (!strcmp(names[f], "llama3_rope") || !strcmp(names[f], "qwen3")) {
            for (int64_t i = 0; i < N; i++) { /* RMS norm with the eps of these files */
                double square = 0;
                for (int64_t d = 0; d < WIDTH; d++)
                    square += (double)final[i * WIDTH + d] * (double)final[i * WIDTH + d];
                for (int64_t d = 0; d < WIDTH; d++) {
                    const double want = (double)final[i * WIDTH + d] / sqrt(square / WIDTH + 1e-6) * (double)gain[d];
                    assert_true(fabs((double)last[i * WIDTH + d] - want) <= 1e-4 * (1 + fabs(want)));
                }
            }
        }
        close_world(&w);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static float out[N * VOCAB];
    world w = open_world("gpt2");
    attn_edit edit = {.layer = 0, .attention = ATTN_ATTENTION_CROSS};
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    args.tokens = ids;
    args.n_tokens = N;
    args.logits = out;
    args.edits = &edit;
    args.n_edits = 1;
    assert_int_equal(attn_model_forward(w.session, &args), ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_model_error(NULL), "edits[0].attention is 1"));
    edit.attention = 2;
    assert_int_equal(attn_model_forward(w.session, &args), ATTN_ERR_INVALID_ARGUMENT);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_family),
                                       cmocka_unit_test(test_knockout_of_nearly_all),
                                       cmocka_unit_test(test_streams), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests_name("edits", tests, NULL, NULL);
}
