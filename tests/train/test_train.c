/* test_train.c - training: vocabularies, order, every architecture overfits one batch, whole-model gradients, resuming to the
 * same bits, export, and refusals. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "attn/train.h"
#include "train/train_net.h"
#include "train/trainer.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/attn-train-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"t.json", "u.json", "ids", "c", "d", "config.json", "model.safetensors",
                                        "tokenizer.json", "x.svg", "x.png"};
    char path[128];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

static const char *in_folder(const char *name)
{
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, 128, "%s/%s", folder, name);
    return path;
}

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != ATTN_OK)                                                                                         \
            fail_msg("%s: %s", #call, attn_train_error());                                                             \
    } while (0)

/* ---- Vocabulary and data ---- */

static const char sample[] = "the cat sat on the mat; the other cat didn't.\n\n\tNa\xC3\xAFve \xE2\x82\xAC 12 345 the end\n"
                             "the theatre, the weather, the other other mother\n";

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    assert_non_null(file);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static void learn(const char *name, int64_t vocab, uint32_t flags)
{
    const attn_text text = {sample, sizeof sample - 1};
    attn_train_learn_args a;
    ATTN_ARGS_INIT(&a);
    a.texts = &text;
    a.n_texts = 1;
    a.vocab_size = vocab;
    a.flags = flags;
    OK(attn_train_learn(&a, in_folder(name)));
}

static void check_round_trip(const char *name, bool fewer)
{
    attn_tokenizer *t;
    attn_encoding *e;
    char text[512];
    size_t n;
    assert_int_equal(attn_tokenizer_load(in_folder(name), &t), ATTN_OK);
    assert_int_equal(attn_encoding_create(&e), ATTN_OK);
    assert_int_equal(attn_tokenizer_encode(t, sample, sizeof sample - 1, NULL, 0, NULL, e), ATTN_OK);
    assert_int_equal(attn_tokenizer_decode(t, attn_encoding_ids(e), attn_encoding_length(e), 0, text, sizeof text, &n), ATTN_OK);
    assert_int_equal(n, sizeof sample - 1);
    assert_memory_equal(text, sample, n);
    assert_true(!fewer || attn_encoding_length(e) < (int64_t)sizeof sample * 3 / 4);
    assert_int_equal(attn_tokenizer_id(t, "<|endoftext|>", 13), 0);
    attn_encoding_destroy(e);
    attn_tokenizer_destroy(t);
}

static void vocabularies_round_trip_and_repeat(void **state)
{
    (void)state;
    learn("t.json", 280, 0);
    learn("u.json", 280, 0);
    char *a = read_file(in_folder("t.json")), *b = read_file(in_folder("u.json"));
    assert_string_equal(a, b);
    /* " t" and "he" come most often: the first merges, so "Ġthe" is among the ids */
    assert_non_null(strstr(a, "\\u0120the") ? strstr(a, "\\u0120the") : strstr(a, "\xC4\xA0the"));
    free(a);
    free(b);
    check_round_trip("t.json", true);
    learn("t.json", 0, ATTN_LEARN_CHARS);
    check_round_trip("t.json", false);
}

static void every_piece_comes_once_an_epoch(void **state)
{
    enum { N = 1000 };
    int seen[N] = {0};
    (void)state;
    for (int64_t i = 0; i < N; i++) {
        int64_t at = attn_train_order(7, i, N);
        assert_in_range(at, 0, N - 1);
        assert_int_equal(seen[at]++, 0);
    }
    int64_t moved = 0;
    for (int64_t i = 0; i < N; i++)
        moved += attn_train_order(7, N + i, N) != attn_train_order(7, i, N);
    assert_true(moved > N / 2); /* another order in the next epoch */
}

/* Pieces of 32 ids of which each says a few ids below 50 over and over. */
static void repeats_can_be_copied(const attn_train_data *data)
{
    int32_t tokens[64], targets[64], again[64], next[64];
    OK(attn_train_data_batch(data, 3, 5, 2, 32, tokens, targets));
    memcpy(again, tokens, sizeof again), memcpy(next, targets, sizeof next);
    OK(attn_train_repeat(again, next, 2, 32, 50, 0, 4, 9));
    assert_memory_equal(again, tokens, sizeof again);
    assert_memory_equal(next, targets, sizeof next);
    OK(attn_train_repeat(again, next, 2, 32, 50, 1, 4, 9));
    for (int b = 0; b < 64; b += 32) {
        int period = 0, unseen = 0;
        while (unseen < 32 && next[b + unseen] == -1)
            unseen++;
        period = unseen + 1;
        assert_in_range(period, 4, 16);
        for (int t = 0; t < 32; t++) {
            assert_in_range(again[b + t], 0, 49);
            assert_int_equal(again[b + t], again[b + t % period]);
            assert_int_equal(next[b + t], t < unseen ? -1 : again[b + (t + 1) % period]);
        }
    }
    OK(attn_train_repeat(tokens, targets, 1, 7, 50, 1, 4, 9)); /* too short to say anything twice */
    assert_int_equal(attn_train_repeat(tokens, targets, 2, 32, 50, 1.5, 4, 9), ATTN_ERR_INVALID_ARGUMENT);
}

static void ids_come_back_from_the_file(void **state)
{
    const attn_text text = {sample, sizeof sample - 1};
    attn_train_encode_args a;
    attn_train_data *data;
    attn_train_data_info info;
    int32_t tokens[16], targets[16];
    (void)state;
    learn("t.json", 280, 0);
    attn_tokenizer *t;
    assert_int_equal(attn_tokenizer_load(in_folder("t.json"), &t), ATTN_OK);
    ATTN_ARGS_INIT(&a);
    a.tokenizer = t;
    a.texts = &text;
    a.n_texts = 1;
    a.validation_share = 0.25;
    a.path = in_folder("ids");
    OK(attn_train_encode(&a));
    OK(attn_train_data_open(in_folder("ids"), &data));
    ATTN_ARGS_INIT(&info);
    OK(attn_train_data_get_info(data, &info));
    assert_true(info.n_validation * 3 <= info.n_train && info.n_validation > 8);
    OK(attn_train_data_batch(data, 3, 5, 2, 8, tokens, targets));
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < 7; i++)
            assert_int_equal(targets[8 * b + i], tokens[8 * b + i + 1]);
    repeats_can_be_copied(data);
    assert_int_equal(attn_train_data_batch(data, 3, 5, 2, 100000, tokens, targets), ATTN_ERR_INVALID_ARGUMENT);
    attn_train_data_close(data);
    FILE *file = fopen(in_folder("ids"), "r+b"); /* one id changed */
    assert_non_null(file);
    assert_int_equal(fseek(file, 64 + 2 * 5, SEEK_SET), 0);
    const int byte = fgetc(file);
    assert_int_equal(fseek(file, -1, SEEK_CUR), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(attn_train_data_open(in_folder("ids"), &data), ATTN_ERR_FORMAT);
    assert_non_null(strstr(attn_train_error(), "digest"));
    assert_int_equal(truncate(in_folder("ids"), 100), 0);
    assert_int_equal(attn_train_data_open(in_folder("ids"), &data), ATTN_ERR_FORMAT);
    attn_tokenizer_destroy(t);
}

/* ---- Models ---- */

enum { VOCAB = 24, LENGTH = 8, BATCH = 3 };

static attn_trainer_options small(int32_t arch, uint32_t flags)
{
    attn_trainer_options o;
    ATTN_ARGS_INIT(&o);
    o.arch = arch;
    o.flags = flags;
    o.n_threads = 1;
    o.vocab_size = VOCAB;
    o.context = LENGTH;
    o.n_layers = 2;
    o.n_heads = 4;
    o.n_kv_heads = arch == ATTN_TRAIN_LLAMA ? 2 : 0;
    o.d_model = 32;
    o.weight_decay = 0.1;
    o.clip = 1;
    o.seed = 5;
    o.eos_id = 1;
    o.mask_id = 2;
    o.pad_id = -1;
    return o;
}

typedef struct problem {
    int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH], source[BATCH * LENGTH];
    int64_t lengths[BATCH];
    attn_train_batch batch;
} problem;

static void make_problem(problem *p, int32_t arch)
{
    uint32_t x = 12345;
    for (int i = 0; i < BATCH * LENGTH; i++) {
        x = x * 1664525u + 1013904223u;
        p->targets[i] = 3 + (int32_t)(x >> 16) % (VOCAB - 3);
        x = x * 1664525u + 1013904223u;
        p->tokens[i] = 3 + (int32_t)(x >> 16) % (VOCAB - 3);
        p->source[i] = 3 + (int32_t)(x >> 20) % (VOCAB - 3);
    }
    p->targets[5] = -1;
    for (int b = 0; b < BATCH; b++)
        p->lengths[b] = LENGTH - b;
    ATTN_ARGS_INIT(&p->batch);
    p->batch.batch = BATCH;
    p->batch.length = LENGTH;
    p->batch.tokens = p->tokens;
    p->batch.targets = p->targets;
    if (arch == ATTN_TRAIN_ENCDEC) {
        p->batch.source = p->source;
        p->batch.source_length = LENGTH;
        p->batch.source_lengths = p->lengths;
    }
}

static double train_some(attn_trainer *t, const problem *p, int steps, double rate)
{
    double loss = NAN;
    for (int i = 0; i < steps; i++) {
        OK(attn_trainer_accumulate(t, &p->batch, &loss));
        OK(attn_trainer_update(t, rate, NULL));
    }
    return loss;
}

static void every_architecture_overfits(void **state)
{
    static const struct {
        int32_t arch, dtype;
        uint32_t flags;
    } kinds[] = {{ATTN_TRAIN_GPT2, ATTN_F32, 0},   {ATTN_TRAIN_LLAMA, ATTN_F32, ATTN_TRAIN_RECOMPUTE},
                 {ATTN_TRAIN_BERT, ATTN_F32, 0},   {ATTN_TRAIN_ENCDEC, ATTN_F32, 0},
                 {ATTN_TRAIN_ENCDEC, ATTN_F32, ATTN_TRAIN_PRE_NORM}, {ATTN_TRAIN_GPT2, ATTN_BF16, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        attn_trainer_options o = small(kinds[i].arch, kinds[i].flags);
        attn_trainer *t;
        problem p;
        o.dtype = kinds[i].dtype;
        make_problem(&p, o.arch);
        OK(attn_trainer_create(&o, &t));
        const double first = train_some(t, &p, 1, 3e-3), last = train_some(t, &p, 250, 3e-3);
        if (!(first > 2 && last < 0.05))
            fail_msg("arch %d flags %u dtype %d: loss %g, then %g", o.arch, o.flags, o.dtype, first, last);
        attn_trainer_destroy(t);
    }
}

/* bf16 products: the same weights on any number of threads. And d loss / d w is near that of f32 products: each factor moves by
 * 2^-9 of itself at most, a few times over on the way through two layers; by a tensor's norm, not by number. */
static void bf16_products_ignore_threads_and_stay_near(void **state)
{
    attn_trainer *t[3], *exact;
    problem p;
    (void)state;
    make_problem(&p, ATTN_TRAIN_GPT2);
    attn_trainer_options o = small(ATTN_TRAIN_GPT2, 0);
    OK(attn_trainer_create(&o, &exact));
    o.dtype = ATTN_BF16;
    for (int32_t k = 0; k < 3; k++) {
        o.n_threads = k + 1;
        OK(attn_trainer_create(&o, &t[k]));
        OK(attn_trainer_accumulate(t[k], &p.batch, NULL));
    }
    OK(attn_trainer_accumulate(exact, &p.batch, NULL));
    for (int64_t i = 0; i < exact->net.n_params; i++) {
        const attn_net_param *param = &exact->net.params[i];
        double difference = 0, size = 0;
        for (int64_t j = param->offset; j < param->offset + param->rows * param->columns; j++) {
            const double d = (double)t[0]->gradients[j] - (double)exact->gradients[j];
            difference += d * d;
            size += (double)exact->gradients[j] * (double)exact->gradients[j];
        }
        if (!(sqrt(difference) <= 32 * 0x1p-9 * sqrt(size) + 1e-7))
            fail_msg("gradient of %s: %g away, norm %g", param->name, sqrt(difference), sqrt(size));
    }
    for (int32_t k = 0; k < 3; k++)
        train_some(t[k], &p, 5, 3e-3);
    for (int32_t k = 1; k < 3; k++)
        assert_memory_equal(t[k]->weights, t[0]->weights, (size_t)t[0]->net.n_elements * sizeof(float));
    for (int32_t k = 0; k < 3; k++)
        attn_trainer_destroy(t[k]);
    attn_trainer_destroy(exact);
}

/* d loss / d w of each tensor along a direction of signs, against (L(w + h s) - L(w - h s)) / 2h in f64. */
static void gradients_agree_with_differences(void **state)
{
    (void)state;
    for (int32_t kind = 0; kind < 5; kind++) {
        const int32_t arch = kind < 4 ? kind : ATTN_TRAIN_ENCDEC;
        attn_trainer_options o = small(arch, kind == 4 ? ATTN_TRAIN_PRE_NORM : 0);
        attn_net net;
        attn_net_memory memory = {0};
        attn_layers *layers;
        problem p;
        make_problem(&p, arch);
        OK(attn_net_create(&net, &o));
        net.dtype = ATTN_F64;
        assert_int_equal(attn_layers_create(NULL, &layers), ATTN_OK);
        const size_t n = (size_t)net.n_elements;
        float *start = malloc(n * sizeof *start);
        double *w = malloc(n * sizeof *w), *g = calloc(n, sizeof *g);
        attn_net_initialise(&net, start);
        for (size_t i = 0; i < n; i++) /* larger than fresh ones, so that nothing is nearly linear */
            w[i] = (arch == ATTN_TRAIN_ENCDEC ? 1 : 3) * (double)start[i] + 0.01 * sin((double)i);
        attn_net_pass pass = {.layers = layers, .weights = w, .gradients = g, .scale = 1};
        OK(attn_net_run(&net, &memory, &pass, &p.batch));
        pass.gradients = NULL;
        for (int64_t t = 0; t < net.n_params; t++) {
            const attn_net_param *param = &net.params[t];
            const double h = 1e-6; /* small, so that hardly any ReLU changes sides */
            double along = 0, sides[2], size = 0;
            for (int side = 0; side < 2; side++) {
                for (int64_t i = 0; i < param->rows * param->columns; i++)
                    w[param->offset + i] += (side ? -2 : 1) * h * (i % 3 ? 1 : -1);
                OK(attn_net_run(&net, &memory, &pass, &p.batch));
                sides[side] = pass.loss;
            }
            for (int64_t i = 0; i < param->rows * param->columns; i++) {
                w[param->offset + i] += h * (i % 3 ? 1 : -1);
                along += g[param->offset + i] * (i % 3 ? 1 : -1);
                size += fabs(g[param->offset + i]);
            }
            const double measured = (sides[0] - sides[1]) / (2 * h);
            /* the difference's own error: h^2 times a third derivative, and rounding 1e-16 / h */
            if (!(fabs(measured - along) <= 1e-6 * size + 1e-8))
                fail_msg("arch %d %s: %g, differences give %g (size %g)", arch, param->name, along, measured, size);
        }
        free(start);
        free(w);
        free(g);
        free(memory.bytes);
        attn_layers_destroy(layers);
        attn_net_destroy(&net);
    }
}

static void same_weights(attn_trainer *a, attn_trainer *b)
{
    attn_train_tensor x, y;
    for (int64_t i = 0; attn_trainer_get_tensor(a, i, &x) == ATTN_OK; i++) {
        OK(attn_trainer_get_tensor(b, i, &y));
        assert_memory_equal(x.values, y.values, (size_t)(x.rows * x.columns) * sizeof(float));
    }
}

static void resuming_gives_the_same_bits(void **state)
{
    (void)state;
    for (int32_t arch = 0; arch < 4; arch++) {
        attn_trainer_options o = small(arch, 0);
        attn_trainer *whole, *first, *second;
        problem p;
        o.dropout = 0.1; /* its pattern must go on, too */
        make_problem(&p, arch);
        OK(attn_trainer_create(&o, &whole));
        train_some(whole, &p, 9, 1e-2);
        OK(attn_trainer_create(&o, &first));
        train_some(first, &p, 4, 1e-2);
        OK(attn_trainer_save(first, in_folder("c"), "{\"x\":1}"));
        attn_trainer_destroy(first);
        OK(attn_trainer_load(in_folder("c"), 3, &second)); /* another number of threads */
        assert_string_equal(attn_trainer_user_data(second), "{\"x\":1}");
        train_some(second, &p, 5, 1e-2);
        same_weights(whole, second);
        attn_trainer_destroy(whole);
        attn_trainer_destroy(second);
    }
}

/* What the trainer translates, attn_generate of the exported model generates. */
static void same_translations(attn_trainer *t, attn_session *session, const problem *p)
{
    enum { MOST = LENGTH - 1 }; /* with the start token, the context is full */
    int32_t want[BATCH * LENGTH], got[BATCH * LENGTH] = {0}, packed[BATCH * LENGTH];
    int64_t lengths[BATCH], made[BATCH], n = 0;
    attn_generate_args a;
    for (int b = 0; b < BATCH; b++)
        for (int64_t i = 0; i < p->lengths[b]; i++)
            packed[n++] = p->source[b * LENGTH + i];
    OK(attn_trainer_translate(t, &p->batch, MOST, want, lengths));
    ATTN_ARGS_INIT(&a);
    a.flags = ATTN_GENERATE_ENCODE;
    a.prompts = packed;
    a.prompt_lengths = p->lengths;
    a.max_new = a.token_stride = MOST;
    a.tokens = got;
    a.n_generated = made;
    if (attn_generate(session, &a) != ATTN_OK)
        fail_msg("%s", attn_model_error(NULL));
    for (int b = 0; b < BATCH; b++) {
        assert_int_equal(made[b], lengths[b]);
        assert_memory_equal(got + b * MOST, want + b * MOST, (size_t)made[b] * sizeof *got);
    }
}

static void exported_models_give_the_same_loss(void **state)
{
    (void)state;
    for (int32_t kind = 0; kind < 5; kind++) {
        const int32_t arch = kind < 4 ? kind : ATTN_TRAIN_ENCDEC;
        attn_trainer_options o = small(arch, kind == 4 ? ATTN_TRAIN_PRE_NORM : 0);
        attn_trainer *t;
        attn_model *model;
        attn_session *session;
        attn_session_options so;
        attn_forward_args f;
        problem p;
        double loss, sum = 0;
        int64_t n;
        float *logits = malloc(sizeof(float) * BATCH * LENGTH * VOCAB);
        make_problem(&p, arch);
        OK(attn_trainer_create(&o, &t));
        train_some(t, &p, 30, 3e-3);
        OK(attn_trainer_evaluate(t, &p.batch, &loss, &n));
        OK(attn_trainer_export(t, folder, ATTN_F32));
        if (attn_model_load(folder, NULL, &model) != ATTN_OK)
            fail_msg("arch %d: %s", arch, attn_model_error(NULL));
        ATTN_ARGS_INIT(&so);
        so.batch = BATCH;
        assert_int_equal(attn_session_create(model, &so, &session), ATTN_OK);
        ATTN_ARGS_INIT(&f);
        f.n_tokens = LENGTH;
        if (arch == ATTN_TRAIN_ENCDEC) {
            uint8_t keep[BATCH * LENGTH];
            for (int i = 0; i < BATCH * LENGTH; i++)
                keep[i] = i % LENGTH < p.lengths[i / LENGTH];
            f.tokens = p.source;
            f.keep = keep;
            assert_int_equal(attn_model_forward_encoder(session, &f), ATTN_OK);
            f.keep = NULL;
        }
        f.tokens = p.tokens;
        f.logits_rows = ATTN_LOGITS_ALL;
        f.logits = logits;
        if (attn_model_forward(session, &f) != ATTN_OK)
            fail_msg("arch %d: %s", arch, attn_model_error(NULL));
        for (int i = 0; i < BATCH * LENGTH; i++) {
            double total = 0;
            for (int v = 0; v < VOCAB; v++)
                total += exp((double)logits[i * VOCAB + v]);
            if (p.targets[i] >= 0)
                sum += log(total) - (double)logits[i * VOCAB + p.targets[i]];
        }
        if (!(fabs(sum / (double)n - loss) < 1e-5))
            fail_msg("arch %d: loss %.9g in training, %.9g by the exported model", arch, loss, sum / (double)n);
        if (arch == ATTN_TRAIN_ENCDEC)
            same_translations(t, session, &p);
        free(logits);
        attn_session_destroy(session);
        attn_model_destroy(model);
        attn_trainer_destroy(t);
    }
}

/* ---- Refusals ---- */

static void a_loss_that_is_not_finite_is_named(void **state)
{
    attn_trainer_options o = small(ATTN_TRAIN_GPT2, 0);
    attn_trainer *t;
    attn_train_tensor tensor;
    problem p;
    (void)state;
    make_problem(&p, o.arch);
    OK(attn_trainer_create(&o, &t));
    train_some(t, &p, 2, 1e-3);
    OK(attn_trainer_check(t, &p.batch));
    for (int64_t i = 0; attn_trainer_get_tensor(t, i, &tensor) == ATTN_OK; i++) {
        for (int64_t k = 0; k < tensor.rows * tensor.columns; k++)
            assert_true(tensor.gradient[k] == 0); /* it left nothing behind */
        if (strcmp(tensor.name, "layers.1.up.weight") == 0)
            tensor.values[3] = INFINITY;
    }
    assert_int_equal(attn_trainer_check(t, &p.batch), ATTN_ERR_FORMAT);
    assert_non_null(strstr(attn_train_error(), "step 3"));
    OK(attn_trainer_accumulate(t, &p.batch, NULL));
    assert_int_equal(attn_trainer_check(t, &p.batch), ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_trainer_update(t, 1e-3, NULL), ATTN_ERR_FORMAT);
    assert_non_null(strstr(attn_train_error(), "step 3"));
    assert_non_null(strstr(attn_train_error(), "layers.1.up.weight"));
    attn_trainer_destroy(t);
}

static void a_clip_may_be_set_anew(void **state)
{
    attn_trainer_options o = small(ATTN_TRAIN_GPT2, 0);
    attn_trainer_info info;
    attn_trainer *t;
    (void)state;
    OK(attn_trainer_create(&o, &t));
    OK(attn_trainer_set_clip(t, 0.25));
    ATTN_ARGS_INIT(&info);
    OK(attn_trainer_get_info(t, 1, 1, &info));
    assert_true(info.options.clip == 0.25);
    assert_int_equal(attn_trainer_set_clip(t, -1), ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_trainer_set_clip(t, NAN), ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_trainer_set_clip(NULL, 1), ATTN_ERR_INVALID_ARGUMENT);
    attn_trainer_destroy(t);
}

static void the_rate_of_products_is_measured(void **state)
{
    (void)state;
    assert_true(attn_train_product_rate(ATTN_F32, 1) > 0);
    assert_true(attn_train_product_rate(ATTN_BF16, 1) > 0);
}

/* Every gradient below is then not finite either, down to the embedding's: the one that began it is named. */
static void a_gradient_that_is_not_finite_is_named(void **state)
{
    attn_trainer_options o = small(ATTN_TRAIN_GPT2, 0);
    attn_trainer *t;
    attn_train_tensor tensor;
    problem p;
    double loss;
    (void)state;
    make_problem(&p, o.arch);
    OK(attn_trainer_create(&o, &t));
    for (int64_t i = 0; attn_trainer_get_tensor(t, i, &tensor) == ATTN_OK; i++)
        for (int64_t k = 0; k < tensor.rows * tensor.columns; k++)
            tensor.values[k] *= strcmp(tensor.name, "final_norm.weight") == 0     ? 1e30f
                                : strcmp(tensor.name, "layers.1.down.weight") == 0 ? 1e15f
                                : strcmp(tensor.name, "layers.1.up.weight") == 0   ? 0
                                                                                   : 1;
    assert_int_equal(attn_trainer_check(t, &p.batch), ATTN_ERR_FORMAT);
    OK(attn_trainer_accumulate(t, &p.batch, &loss));
    assert_true(isfinite(loss));
    assert_int_equal(attn_trainer_update(t, 1e-3, NULL), ATTN_ERR_FORMAT);
    assert_non_null(strstr(attn_train_error(), "the gradient of layers.1.up."));
    attn_trainer_destroy(t);
}

static void refuse(attn_trainer_options o, const char *field)
{
    attn_trainer *t = (attn_trainer *)(uintptr_t)1;
    assert_int_equal(attn_trainer_create(&o, &t), ATTN_ERR_INVALID_ARGUMENT);
    assert_null(t);
    if (!strstr(attn_train_error(), field))
        fail_msg("\"%s\" does not name %s", attn_train_error(), field);
}

static void bad_options_are_named(void **state)
{
    attn_trainer_options o = small(ATTN_TRAIN_GPT2, 0);
    attn_trainer *t;
    problem p;
    (void)state;
    o.n_heads = 5, refuse(o, "d_model");
    o = small(ATTN_TRAIN_GPT2, 0), o.n_kv_heads = 2, refuse(o, "n_kv_heads");
    o = small(ATTN_TRAIN_GPT2, 0), o.vocab_size = 1, refuse(o, "vocab_size");
    o = small(ATTN_TRAIN_GPT2, 0), o.dropout = NAN, refuse(o, "dropout");
    o = small(ATTN_TRAIN_GPT2, 0), o.flags = 64, refuse(o, "flags");
    o = small(ATTN_TRAIN_GPT2, ATTN_TRAIN_PRE_NORM), refuse(o, "flags");
    o = small(ATTN_TRAIN_GPT2, 0), o.dtype = ATTN_F64, refuse(o, "dtype");
    o = small(ATTN_TRAIN_GPT2, 0);
    OK(attn_trainer_create(&o, &t));
    make_problem(&p, o.arch);
    p.tokens[4] = VOCAB;
    assert_int_equal(attn_trainer_accumulate(t, &p.batch, NULL), ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_train_error(), "tokens[0][4]"));
    assert_int_equal(attn_trainer_update(t, 1e-3, NULL), ATTN_ERR_INVALID_ARGUMENT);
    attn_trainer_destroy(t);
    assert_int_equal(attn_trainer_load(in_folder("nothing"), 1, &t), ATTN_ERR_IO);
}

static void adamw_alone_is_the_formula(void **state)
{
    double w[2] = {1, -2}, m[2] = {0}, v[2] = {0};
    const double g[2] = {0.5, -0.25};
    float w32 = 1, m32 = 0, v32 = 0, g32 = 0.5f;
    attn_train_adamw_args a;
    (void)state;
    ATTN_ARGS_INIT(&a);
    a.dtype = ATTN_F64;
    a.n = 2;
    a.weights = w, a.gradient = g, a.m = m, a.v = v;
    a.learning_rate = 0.1, a.beta1 = 0.9, a.beta2 = 0.99, a.epsilon = 1e-8, a.weight_decay = 0.5;
    a.step = 1;
    OK(attn_train_adamw(&a)); /* the first step moves by the rate, whatever the gradient's size; decay is apart from it */
    assert_true(fabs(w[0] - (1 - 0.1 - 0.05)) < 1e-7 && fabs(w[1] - (-2 + 0.1 + 0.1)) < 1e-7);
    a.dtype = ATTN_F32;
    a.n = 1;
    a.weights = &w32, a.gradient = &g32, a.m = &m32, a.v = &v32;
    OK(attn_train_adamw(&a));
    assert_true(fabs((double)w32 - 0.85) < 1e-6);
    a.step = 0;
    assert_int_equal(attn_train_adamw(&a), ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_train_error(), "step is 0"));
    a.step = 1, a.gradient = NULL;
    assert_int_equal(attn_train_adamw(&a), ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_train_error(), "gradient"));
}

static void curves_are_drawn(void **state)
{
    attn_train_point points[50];
    (void)state;
    for (int i = 0; i < 50; i++)
        points[i] = (attn_train_point){10 * i, 5 - 0.05 * i, i % 5 ? NAN : 5.2 - 0.05 * i};
    assert_int_equal(attn_train_draw_curve(points, 50, "a < b", in_folder("x.svg"), in_folder("x.png")), ATTN_OK);
    char *svg = read_file(in_folder("x.svg"));
    assert_non_null(strstr(svg, "a &#60; b"));
    assert_non_null(strstr(svg, "<polyline"));
    free(svg);
    const attn_train_curve both[2] = {{points, 50, "left"}, {points, 20, "right"}};
    assert_int_equal(attn_train_draw_curves(both, 2, in_folder("x.svg")), ATTN_OK);
    svg = read_file(in_folder("x.svg"));
    assert_non_null(strstr(svg, "left"));
    assert_non_null(strstr(svg, "right"));
    assert_non_null(strstr(svg, "width=\"1280\""));
    assert_non_null(strstr(svg, "(log scale)"));
    assert_null(strstr(svg, "nan"));
    free(svg);
    points[7].loss = 0; /* lies on the axis, four decades below the largest */
    assert_int_equal(attn_train_draw_curves(both, 2, in_folder("x.svg")), ATTN_OK);
    svg = read_file(in_folder("x.svg"));
    assert_non_null(strstr(svg, ">0.0005</text>"));
    assert_null(strstr(svg, "inf"));
    free(svg);
    assert_int_equal(attn_train_draw_curves(both, 9, in_folder("x.svg")), ATTN_ERR_INVALID_ARGUMENT);
    points[3].step = 0;
    assert_int_equal(attn_train_draw_curve(points, 50, "", in_folder("x.svg"), NULL), ATTN_ERR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(vocabularies_round_trip_and_repeat),
                                       cmocka_unit_test(every_piece_comes_once_an_epoch),
                                       cmocka_unit_test(ids_come_back_from_the_file),
                                       cmocka_unit_test(every_architecture_overfits),
                                       cmocka_unit_test(bf16_products_ignore_threads_and_stay_near),
                                       cmocka_unit_test(gradients_agree_with_differences),
                                       cmocka_unit_test(resuming_gives_the_same_bits),
                                       cmocka_unit_test(exported_models_give_the_same_loss),
                                       cmocka_unit_test(a_loss_that_is_not_finite_is_named),
                                       cmocka_unit_test(a_gradient_that_is_not_finite_is_named),
                                       cmocka_unit_test(a_clip_may_be_set_anew),
                                       cmocka_unit_test(the_rate_of_products_is_measured),
                                       cmocka_unit_test(bad_options_are_named),
                                       cmocka_unit_test(adamw_alone_is_the_formula),
                                       cmocka_unit_test(curves_are_drawn)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
