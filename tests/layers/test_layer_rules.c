/* What attn/layers.h promises beside gradients: all positions at once equal one at a time, equal bits of a row in any company,
 * the loss in chunks, and errors that name the field. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "attn/layers.h"

static attn_layers *layers;
static uint64_t rng_state = 88172645463325252u;

static double uniform(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (double)(rng_state >> 40) * 0x1p-23 - 1.0;
}

static double *random_f64(int64_t n)
{
    double *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = uniform();
    return x;
}

static float *random_f32(int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)uniform();
    return x;
}

static int setup(void **state)
{
    (void)state;
    return attn_layers_create(NULL, &layers) != ATTN_OK;
}

static int teardown(void **state)
{
    (void)state;
    attn_layers_destroy(layers);
    return 0;
}

/* Causal attention with rotary positions: the last row of each prefix, asked alone, in f64 to 1e-12 (sums in another order). */
static void test_one_at_a_time(void **state)
{
    (void)state;
    enum { T = 11, D = 12 };
    double *x = random_f64(T * D), *w = random_f64(4 * D * D), all[T * D], one[D];
    attn_rope_args rope;
    attn_mha_args a;
    ATTN_ARGS_INIT(&rope);
    ATTN_ARGS_INIT(&a);
    a.dtype = ATTN_F64, a.batch = 1, a.seq_q = T, a.d_query = D, a.n_heads = 2, a.head_dim = 6;
    a.weights.w_query = w, a.weights.w_key = w + D * D, a.weights.w_value = w + 2 * D * D, a.weights.w_out = w + 3 * D * D;
    a.mask.flags = ATTN_MASK_CAUSAL;
    a.rope = &rope;
    a.query = x, a.out = all;
    assert_int_equal(attn_mha_forward(layers, &a), ATTN_OK);
    for (int64_t t = 0; t < T; t++) {
        a.query = x + t * D, a.seq_q = 1, a.key = x, a.seq_kv = t + 1, a.out = one;
        a.mask.flags = ATTN_MASK_CAUSAL | ATTN_MASK_OFFSET, a.mask.query_offset = t;
        assert_int_equal(attn_mha_forward(layers, &a), ATTN_OK);
        for (int i = 0; i < D; i++)
            if (!(fabs(one[i] - all[t * D + i]) <= 1e-12))
                fail_msg("row %d, feature %d: %.17g alone, %.17g together", (int)t, i, one[i], all[t * D + i]);
    }
    free(x), free(w);
}

/* A network over its sequence in pieces: the same bits. */
static void test_rnn_in_pieces(void **state)
{
    (void)state;
    enum { B = 2, T = 9, D = 5, H = 7 };
    float *x = random_f32(B * T * D), *w = random_f32(4 * H * (D + H));
    float all[B * T * H], part[B * H], x_t[B * D], hidden[B * H], cell[B * H];
    attn_rnn_args a;
    ATTN_ARGS_INIT(&a);
    a.kind = ATTN_RNN_LSTM, a.batch = B, a.seq = T, a.d_in = D, a.d_hidden = H;
    a.weights.w_input = w, a.weights.w_hidden = w + 4 * H * D;
    a.x = x, a.out = all;
    assert_int_equal(attn_rnn_forward(layers, &a), ATTN_OK);
    memset(hidden, 0, sizeof hidden), memset(cell, 0, sizeof cell);
    a.seq = 1, a.x = x_t, a.out = part;
    for (int t = 0; t < T; t++) {
        float next_hidden[B * H], next_cell[B * H];
        for (int b = 0; b < B; b++)
            memcpy(x_t + b * D, x + (b * T + t) * D, D * sizeof *x);
        a.hidden0 = hidden, a.cell0 = cell, a.hidden_last = next_hidden, a.cell_last = next_cell;
        assert_int_equal(attn_rnn_forward(layers, &a), ATTN_OK);
        for (int b = 0; b < B; b++)
            assert_memory_equal(part + b * H, all + (b * T + t) * H, H * sizeof *part);
        memcpy(hidden, next_hidden, sizeof hidden), memcpy(cell, next_cell, sizeof cell);
    }
    free(x), free(w);
}

/* Rows of a feed-forward layer alone and together: the same bits. */
static void test_rows_alone(void **state)
{
    (void)state;
    enum { ROWS = 37, D = 19, F = 45 };
    float *x = random_f32(ROWS * D), *w = random_f32(3 * D * F), all[ROWS * D], one[D];
    attn_ffn_args a;
    ATTN_ARGS_INIT(&a);
    a.act = ATTN_ACT_SILU, a.rows = ROWS, a.d_model = D, a.d_ff = F;
    a.weights.w_gate = w, a.weights.w_up = w + D * F, a.weights.w_down = w + 2 * D * F;
    a.x = x, a.y = all;
    assert_int_equal(attn_ffn_forward(layers, &a), ATTN_OK);
    a.rows = 1, a.y = one;
    for (int r = 0; r < ROWS; r++) {
        a.x = x + r * D;
        assert_int_equal(attn_ffn_forward(layers, &a), ATTN_OK);
        assert_memory_equal(one, all + r * D, sizeof one);
    }
    free(x), free(w);
}

/* 300 rows of 40,000 words need two chunks: losses and d_x have the bits of three calls of one chunk each, and the weight's
 * gradient their sum, to 300 roundings of its largest number. */
static void test_loss_in_chunks(void **state)
{
    (void)state;
    enum { ROWS = 300, D = 3, V = 40000 };
    float *x = random_f32(ROWS * D), *w = random_f32(V * D), *d_x = malloc(ROWS * D * 4), *d_part = malloc(ROWS * D * 4);
    float *d_w = calloc(V * D, 4), *d_w_part = calloc(V * D, 4);
    int32_t targets[ROWS];
    double row_loss[ROWS], part_loss[ROWS], largest = 0;
    for (int r = 0; r < ROWS; r++)
        targets[r] = r % 10 == 3 ? -100 : (int32_t)((uniform() + 1) * 19999);
    attn_cross_entropy_args a;
    attn_cross_entropy_gradients g;
    ATTN_ARGS_INIT(&a);
    ATTN_ARGS_INIT(&g);
    a.rows = ROWS, a.d_model = D, a.vocab = V, a.x = x, a.weight = w, a.targets = targets, a.ignore_index = -100;
    a.gradient_scale = 0.01, a.row_loss = row_loss;
    g.d_x = d_x, g.weight = d_w;
    assert_int_equal(attn_cross_entropy(layers, &a, &g), ATTN_OK);
    a.rows = 100, g.weight = d_w_part;
    for (int p = 0; p < 3; p++) {
        a.x = x + p * 100 * D, a.targets = targets + p * 100, a.row_loss = part_loss + p * 100;
        g.d_x = d_part + p * 100 * D;
        assert_int_equal(attn_cross_entropy(layers, &a, &g), ATTN_OK);
    }
    assert_memory_equal(row_loss, part_loss, sizeof row_loss);
    assert_memory_equal(d_x, d_part, ROWS * D * 4);
    for (int i = 0; i < V * D; i++)
        largest = fmax(largest, fabs((double)d_w[i]));
    for (int i = 0; i < V * D; i++)
        assert_true(fabs((double)(d_w[i] - d_w_part[i])) <= 300 * 0x1p-24 * largest);
    for (int r = 0; r < ROWS; r += 50) { /* and the formula itself, in f64 */
        double sum = 0, at_target = 0;
        for (int v = 0; v < V; v++) {
            double s = 0;
            for (int i = 0; i < D; i++)
                s += (double)x[r * D + i] * (double)w[v * D + i];
            sum += exp(s);
            at_target = v == targets[r] ? s : at_target;
        }
        assert_true(fabs(row_loss[r] - (targets[r] < 0 ? 0 : log(sum) - at_target)) <= 1e-5);
    }
    free(x), free(w), free(d_x), free(d_part), free(d_w), free(d_w_part);
}

/* ---- errors ---- */

#define EXPECT_ERROR(call, wanted, text)                                                                               \
    do {                                                                                                               \
        const attn_status got_ = (call);                                                                               \
        if (got_ != (wanted) || !strstr(attn_layers_error(layers), (text)))                                            \
            fail_msg("status %d, \"%s\"; wanted %d and \"%s\"", got_, attn_layers_error(layers), (wanted), (text));    \
    } while (0)

static void test_errors_rows(void **state)
{
    (void)state;
    float x[8] = {0}, y[8] = {0};
    attn_linear_args l;
    ATTN_ARGS_INIT(&l);
    l.rows = 2, l.n_in = 2, l.n_out = 2, l.x = x, l.y = y, l.weight = x;
    assert_int_equal(attn_linear_forward(NULL, &l), ATTN_ERR_INVALID_ARGUMENT);
    EXPECT_ERROR(attn_linear_forward(layers, NULL), ATTN_ERR_INVALID_ARGUMENT, "args is NULL");
    l.dtype = 9;
    EXPECT_ERROR(attn_linear_forward(layers, &l), ATTN_ERR_INVALID_ARGUMENT, "dtype is 9");
    l.dtype = ATTN_BF16;
    EXPECT_ERROR(attn_linear_forward(layers, &l), ATTN_ERR_UNSUPPORTED, "dtype is 2");
    l.dtype = ATTN_F32, l.rows = -1;
    EXPECT_ERROR(attn_linear_forward(layers, &l), ATTN_ERR_INVALID_ARGUMENT, "args.rows is -1");
    l.rows = 2, l.n_in = 0;
    EXPECT_ERROR(attn_linear_forward(layers, &l), ATTN_ERR_INVALID_ARGUMENT, "args.n_in is 0");
    l.n_in = 2, l.ldx = 1;
    EXPECT_ERROR(attn_linear_forward(layers, &l), ATTN_ERR_INVALID_ARGUMENT, "args.ldx is 1");
    l.ldx = 0, l.weight = NULL;
    EXPECT_ERROR(attn_linear_forward(layers, &l), ATTN_ERR_INVALID_ARGUMENT, "args.weight is NULL");
    l.weight = x;
    assert_int_equal(attn_linear_forward(layers, &l), ATTN_OK);
    assert_string_equal(attn_layers_error(layers), "");
    attn_norm_args n;
    ATTN_ARGS_INIT(&n);
    n.rows = 1, n.n = 4, n.x = x, n.y = y, n.kind = 7;
    EXPECT_ERROR(attn_norm_forward(layers, &n), ATTN_ERR_INVALID_ARGUMENT, "args.kind is 7");
    n.kind = 0, n.eps = -1;
    EXPECT_ERROR(attn_norm_forward(layers, &n), ATTN_ERR_INVALID_ARGUMENT, "args.eps is -1");
    attn_activation_args act;
    ATTN_ARGS_INIT(&act);
    act.n = 8, act.x = x, act.y = y, act.act = 99;
    EXPECT_ERROR(attn_activation_forward(layers, &act), ATTN_ERR_INVALID_ARGUMENT, "args.act is 99");
    attn_residual_args r;
    ATTN_ARGS_INIT(&r);
    r.n = 8, r.x = x, r.y = y, r.dropout_p = 1.5;
    EXPECT_ERROR(attn_residual_forward(layers, &r), ATTN_ERR_INVALID_ARGUMENT, "args.dropout_p is 1.5");
    r.dropout_p = NAN;
    EXPECT_ERROR(attn_residual_forward(layers, &r), ATTN_ERR_INVALID_ARGUMENT, "args.dropout_p is");
}

static void test_errors_tokens(void **state)
{
    (void)state;
    float x[16] = {0}, y[16] = {0};
    int32_t ids[2] = {0, 4};
    attn_embedding_args e;
    ATTN_ARGS_INIT(&e);
    e.rows = 2, e.d_model = 4, e.vocab = 4, e.ids = ids, e.table = x, e.y = y;
    EXPECT_ERROR(attn_embedding_forward(layers, &e), ATTN_ERR_INVALID_ARGUMENT, "args.ids[1] is 4");
    ids[1] = 1, e.position_table = x, e.n_positions = 1;
    EXPECT_ERROR(attn_embedding_forward(layers, &e), ATTN_ERR_INVALID_ARGUMENT, "position 1");
    attn_cross_entropy_args c;
    ATTN_ARGS_INIT(&c);
    ids[1] = 9;
    c.rows = 2, c.d_model = c.vocab = 4, c.x = x, c.targets = ids, c.ignore_index = -100;
    EXPECT_ERROR(attn_cross_entropy(layers, &c, NULL), ATTN_ERR_INVALID_ARGUMENT, "args.targets[1] is 9");
    c.d_model = 3;
    EXPECT_ERROR(attn_cross_entropy(layers, &c, NULL), ATTN_ERR_INVALID_ARGUMENT, "args.d_model is 3");
}

static void test_errors_attention(void **state)
{
    (void)state;
    float x[64] = {0}, y[64] = {0};
    attn_mha_args a;
    ATTN_ARGS_INIT(&a);
    a.batch = 1, a.seq_q = 4, a.d_query = 8, a.n_heads = 2, a.head_dim = 4, a.query = x, a.out = y;
    a.n_kv_heads = 3;
    EXPECT_ERROR(attn_mha_forward(layers, &a), ATTN_ERR_INVALID_ARGUMENT, "n_kv_heads 3");
    a.n_kv_heads = 0, a.head_dim = 3;
    EXPECT_ERROR(attn_mha_forward(layers, &a), ATTN_ERR_INVALID_ARGUMENT, "args.weights.w_query is NULL");
    a.head_dim = 4, a.value = x;
    EXPECT_ERROR(attn_mha_forward(layers, &a), ATTN_ERR_INVALID_ARGUMENT, "args.value is given without args.key");
    a.value = NULL, a.weights.bias_k = x;
    EXPECT_ERROR(attn_mha_forward(layers, &a), ATTN_ERR_INVALID_ARGUMENT, "bias_k");
    a.weights.bias_k = NULL, a.flags = 1u << 20;
    EXPECT_ERROR(attn_mha_forward(layers, &a), ATTN_ERR_UNSUPPORTED, "args.flags is 0x100000");
    a.flags = 0, a.mask.flags = ATTN_MASK_WINDOW, a.mask.left = -7;
    EXPECT_ERROR(attn_mha_forward(layers, &a), ATTN_ERR_INVALID_ARGUMENT, "left");
    a.mask.flags = 0;
    attn_mha_gradients g;
    ATTN_ARGS_INIT(&g);
    g.d_out = x;
    EXPECT_ERROR(attn_mha_backward(layers, &a, &g), ATTN_ERR_INVALID_ARGUMENT, "args.saved is NULL");
    attn_block_args b;
    ATTN_ARGS_INIT(&b);
    b.batch = 1, b.seq = 2, b.d_model = 9, b.n_heads = 2, b.d_ff = 4, b.x = x, b.y = y;
    EXPECT_ERROR(attn_block_forward(layers, &b), ATTN_ERR_INVALID_ARGUMENT, "args.d_model is 9");
    b.d_model = 8, b.place = 3;
    EXPECT_ERROR(attn_block_forward(layers, &b), ATTN_ERR_INVALID_ARGUMENT, "args.place is 3");
    attn_rnn_args r;
    ATTN_ARGS_INIT(&r);
    r.kind = 5;
    EXPECT_ERROR(attn_rnn_forward(layers, &r), ATTN_ERR_INVALID_ARGUMENT, "args.kind is 5");
    r.kind = 0, r.batch = 2, r.d_in = r.d_hidden = 4, y[7] = 1, r.hidden_last = y; /* no step: no weights are needed */
    assert_int_equal(attn_rnn_forward(layers, &r), ATTN_OK);
    assert_true(y[7] == 0);
    attn_decoder_rnn_args d;
    ATTN_ARGS_INIT(&d);
    d.batch = d.seq = d.seq_states = d.d_in = d.d_hidden = d.d_state = d.d_align = 1;
    d.weights.v_align = x;
    EXPECT_ERROR(attn_decoder_rnn_forward(layers, &d), ATTN_ERR_INVALID_ARGUMENT, "args.weights.v_align");
}

/* Appended keys are merged in where a mask counts from lengths; a query that sees none of the given keys still has its share of the
 * sink's gradient. */
static double loss_with_sink(const double *x, const float *sinks, float *d_sinks)
{
    static _Alignas(64) uint8_t saved[1 << 14];
    const int64_t kv_len[2] = {2, 0};
    double out[12], loss = 0;
    attn_mha_args a;
    attn_mha_gradients g;
    size_t bytes;
    ATTN_ARGS_INIT(&a);
    ATTN_ARGS_INIT(&g);
    a.dtype = ATTN_F64, a.batch = 2, a.seq_q = 3, a.d_query = a.head_dim = 2, a.n_heads = 1, a.query = x, a.out = out;
    a.weights.bias_k = x + 12, a.weights.bias_v = x + 14, a.weights.sinks = sinks, a.mask.kv_len = kv_len;
    assert_int_equal(attn_mha_saved_bytes(layers, &a, &bytes), ATTN_OK);
    assert_true(bytes <= sizeof saved);
    a.saved = saved, g.d_out = x, g.weights.sinks = d_sinks;
    assert_int_equal(attn_mha_forward(layers, &a), ATTN_OK);
    if (d_sinks)
        assert_int_equal(attn_mha_backward(layers, &a, &g), ATTN_OK);
    for (int i = 0; i < 12; i++)
        loss += out[i] * x[i];
    return loss;
}

static void test_sink_beside_appended_keys(void **state)
{
    double x[16];
    float d_sinks = 0.5f, up = 0.25f + 0x1p-10f, down = 0.25f - 0x1p-10f, sinks = 0.25f;
    (void)state;
    for (int i = 0; i < 16; i++)
        x[i] = sin(3 * i + 1);
    loss_with_sink(x, &sinks, &d_sinks);
    d_sinks = 0.5f; /* again, in scratch memory that was used */
    loss_with_sink(x, &sinks, &d_sinks);
    const double slope = (loss_with_sink(x, &up, NULL) - loss_with_sink(x, &down, NULL)) * 0x1p9;
    assert_true(fabs(slope) > 0.01 && fabs(d_sinks - 0.5 - slope) < 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sink_beside_appended_keys),
                                       cmocka_unit_test(test_one_at_a_time), cmocka_unit_test(test_rnn_in_pieces),
                                       cmocka_unit_test(test_rows_alone),    cmocka_unit_test(test_loss_in_chunks),
                                       cmocka_unit_test(test_errors_rows),   cmocka_unit_test(test_errors_tokens),
                                       cmocka_unit_test(test_errors_attention)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
