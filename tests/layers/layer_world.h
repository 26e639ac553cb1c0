/* layer_world.h - one description of a layer's call serves every check: gradients against finite differences in f64, f32
 * against f64, equal bits for any number of threads, allocations that fail.
 *
 * A case is a function that names its arrays in order (input, weight, constant, output) and calls the layer. The first run fills
 * them with random numbers; later runs find them again. The loss is the sum of output times a fixed random array. */
#ifndef ATTN_TESTS_LAYER_WORLD_H
#define ATTN_TESTS_LAYER_WORLD_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "attn/layers.h"

enum { TENSOR_CONSTANT, TENSOR_INPUT, TENSOR_WEIGHT, TENSOR_OUTPUT };

typedef struct tensor {
    int kind;
    int64_t n;
    double *value, *gradient, *d_out; /* f64 */
    float *value32, *gradient32, *d_out32;
} tensor;

#define MAX_TENSORS 64
#define GRADIENT_START 0.5 /* what gradients of weights hold before they are added to */

typedef struct world {
    attn_layers *layers;
    int32_t dtype;
    int backward;
    attn_status status;
    tensor tensors[MAX_TENSORS];
    int n, next;
    uint64_t rng;
    void *saved[8];
    int n_saved;
} world;

static double world_uniform(world *w)
{
    w->rng ^= w->rng << 13;
    w->rng ^= w->rng >> 7;
    w->rng ^= w->rng << 17;
    return (double)(w->rng >> 40) * 0x1p-23 - 1.0;
}

static tensor *next_tensor(world *w, int kind, int64_t n, double amplitude)
{
    tensor *t = &w->tensors[w->next];
    if (w->next++ == w->n) {
        w->n++;
        assert_true(w->n < MAX_TENSORS);
        t->kind = kind, t->n = n;
        t->value = calloc((size_t)n + 1, 8), t->value32 = calloc((size_t)n + 1, 4);
        t->gradient = calloc((size_t)n + 1, 8), t->gradient32 = calloc((size_t)n + 1, 4);
        t->d_out = calloc((size_t)n + 1, 8), t->d_out32 = calloc((size_t)n + 1, 4);
        for (int64_t i = 0; i < n; i++) { /* numbers that f32 holds, so that both types start from the same */
            t->value32[i] = (float)(world_uniform(w) * amplitude);
            t->value[i] = (double)t->value32[i];
            t->d_out32[i] = (float)world_uniform(w);
            t->d_out[i] = (double)t->d_out32[i];
        }
    }
    assert_true(t->n == n && t->kind == kind);
    return t;
}

static void *values(world *w, tensor *t)
{
    return w->dtype == ATTN_F64 ? (void *)t->value : (void *)t->value32;
}

static void *input(world *w, int64_t n, double amplitude) { return values(w, next_tensor(w, TENSOR_INPUT, n, amplitude)); }
static void *weight(world *w, int64_t n, double amplitude) { return values(w, next_tensor(w, TENSOR_WEIGHT, n, amplitude)); }
static void *output(world *w, int64_t n) { return values(w, next_tensor(w, TENSOR_OUTPUT, n, 0)); }

/* Gradient of the array named last. */
static void *gradient(world *w)
{
    tensor *t = &w->tensors[w->next - 1];
    return w->dtype == ATTN_F64 ? (void *)t->gradient : (void *)t->gradient32;
}

/* Gradient of the loss with respect to the output named last. */
static const void *d_output(world *w)
{
    tensor *t = &w->tensors[w->next - 1];
    return w->dtype == ATTN_F64 ? (void *)t->d_out : (void *)t->d_out32;
}

static void *saved_memory(world *w, size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 64) / 64 * 64);
    memset(memory, 0x7b, bytes);
    w->saved[w->n_saved++] = memory;
    return memory;
}

typedef void (*layer_case)(world *w);

/* Does a call of a layer: later calls are left out once one failed. */
#define WORLD_CALL(w, call)                                                                                            \
    do {                                                                                                               \
        if ((w)->status == ATTN_OK)                                                                                    \
            (w)->status = (call);                                                                                      \
    } while (0)

static attn_status run_case(world *w, layer_case run, int32_t dtype, int backward)
{
    w->dtype = dtype, w->backward = backward, w->next = 0, w->status = ATTN_OK;
    for (int i = 0; backward && i < w->n; i++)
        for (int64_t j = 0; j < w->tensors[i].n; j++) {
            const double start = w->tensors[i].kind == TENSOR_WEIGHT ? GRADIENT_START : 777;
            if (dtype == ATTN_F64)
                w->tensors[i].gradient[j] = start;
            else
                w->tensors[i].gradient32[j] = (float)start;
        }
    run(w);
    while (w->n_saved)
        free(w->saved[--w->n_saved]);
    return w->status;
}

static double loss_of(world *w, layer_case run)
{
    double sum = 0;
    if (run_case(w, run, ATTN_F64, 0) != ATTN_OK)
        fail_msg("forward: %s", attn_layers_error(w->layers));
    for (int i = 0; i < w->n; i++)
        for (int64_t j = 0; w->tensors[i].kind == TENSOR_OUTPUT && j < w->tensors[i].n; j++)
            sum += w->tensors[i].value[j] * w->tensors[i].d_out[j];
    return sum;
}

static world new_world(int32_t threads, const attn_allocator *allocator, attn_status *status)
{
    world w;
    attn_ctx_options options;
    memset(&w, 0, sizeof w);
    ATTN_ARGS_INIT(&options);
    options.n_threads = threads;
    options.allocator = allocator;
    w.rng = 88172645463325252u;
    *status = attn_layers_create(&options, &w.layers);
    return w;
}

static void free_world(world *w)
{
    for (int i = 0; i < w->n; i++) {
        tensor *t = &w->tensors[i];
        free(t->value), free(t->value32), free(t->gradient), free(t->gradient32), free(t->d_out), free(t->d_out32);
    }
    attn_layers_destroy(w->layers);
}

static double gradient_at(const tensor *t, int64_t j, int32_t dtype)
{
    const double start = t->kind == TENSOR_WEIGHT ? GRADIENT_START : 0;
    return (dtype == ATTN_F64 ? t->gradient[j] : (double)t->gradient32[j]) - start;
}

/* Central differences with step 1e-5: their own error is below 1e-8 of numbers near 1 (third derivative times 1e-10 / 6, and
 * rounding 1e-16 / 1e-5 per term of the loss); the largest gradient of the array scales it. */
static void check_differences(world *w, layer_case run, const char *name)
{
    const double h = 1e-5;
    if (run_case(w, run, ATTN_F64, 1) != ATTN_OK)
        fail_msg("%s backward: %s", name, attn_layers_error(w->layers));
    for (int i = 0; i < w->n; i++) {
        tensor *t = &w->tensors[i];
        if (t->kind != TENSOR_INPUT && t->kind != TENSOR_WEIGHT)
            continue;
        double largest = 1;
        for (int64_t j = 0; j < t->n; j++)
            largest = fmax(largest, fabs(gradient_at(t, j, ATTN_F64)));
        const int64_t step = t->n / 24 + 1;
        for (int64_t j = 0; j < t->n; j += step) {
            const double at = t->value[j];
            t->value[j] = at + h;
            const double above = loss_of(w, run);
            t->value[j] = at - h;
            const double below = loss_of(w, run);
            t->value[j] = at;
            const double want = (above - below) / (2 * h), got = gradient_at(t, j, ATTN_F64);
            if (!(fabs(want - got) <= 1e-7 * largest))
                fail_msg("%s: gradient %lld of array %d is %.10g, differences say %.10g", name, (long long)j, i, got, want);
        }
    }
}

/* f32 within 2e-5 of the array's largest number: sums here have at most 100 terms of size 1, each rounded at 6e-8. */
static void check_single(world *w, layer_case run, const char *name)
{
    if (run_case(w, run, ATTN_F64, 1) != ATTN_OK || run_case(w, run, ATTN_F32, 1) != ATTN_OK)
        fail_msg("%s: %s", name, attn_layers_error(w->layers));
    for (int i = 0; i < w->n; i++) {
        const tensor *t = &w->tensors[i];
        double largest = 1;
        for (int64_t j = 0; j < t->n; j++)
            largest = fmax(largest, fabs(t->kind == TENSOR_OUTPUT ? t->value[j] : gradient_at(t, j, ATTN_F64)));
        for (int64_t j = 0; j < t->n; j++) {
            const double want = t->kind == TENSOR_OUTPUT ? t->value[j] : gradient_at(t, j, ATTN_F64);
            const double got = t->kind == TENSOR_OUTPUT ? (double)t->value32[j] : gradient_at(t, j, ATTN_F32);
            if (t->kind != TENSOR_CONSTANT && !(fabs(want - got) <= 2e-5 * largest))
                fail_msg("%s: f32 number %lld of array %d is %.9g, f64 %.9g", name, (long long)j, i, got, want);
        }
    }
}

/* The same bits at 1, 2 and 3 threads, outputs and gradients. */
static void check_threads(layer_case run, const char *name)
{
    world first;
    memset(&first, 0, sizeof first);
    for (int32_t threads = 1; threads <= 3; threads++) {
        attn_status status;
        world w = new_world(threads, NULL, &status);
        assert_int_equal(status, ATTN_OK);
        run_case(&w, run, ATTN_F32, 0); /* names the arrays */
        if (run_case(&w, run, ATTN_F32, 1) != ATTN_OK)
            fail_msg("%s: %s", name, attn_layers_error(w.layers));
        for (int i = 0; threads > 1 && i < w.n; i++) {
            const size_t bytes = (size_t)w.tensors[i].n * 4;
            if (memcmp(w.tensors[i].value32, first.tensors[i].value32, bytes) ||
                memcmp(w.tensors[i].gradient32, first.tensors[i].gradient32, bytes))
                fail_msg("%s: array %d has other bits at %d threads", name, i, threads);
        }
        if (threads == 1)
            first = w;
        else
            free_world(&w);
    }
    free_world(&first);
}

typedef struct counting {
    int64_t left, live;
} counting;

static void *counting_allocate(void *user, size_t bytes, size_t alignment)
{
    counting *c = user;
    void *memory = NULL;
    if (c->left-- <= 0)
        return NULL;
    if (posix_memalign(&memory, alignment, bytes))
        return NULL;
    c->live++;
    return memory;
}

static void counting_release(void *user, void *memory)
{
    ((counting *)user)->live -= memory != NULL;
    free(memory);
}

/* Fails the n-th allocation for every n: an error each time, nothing lost, and success in the end. */
static void check_allocations(layer_case run, const char *name)
{
    for (int64_t n = 0;; n++) {
        counting c = {n, 0};
        const attn_allocator allocator = {&c, counting_allocate, counting_release};
        attn_status status;
        world w = new_world(1, &allocator, &status);
        if (status == ATTN_OK)
            status = run_case(&w, run, ATTN_F32, 1);
        free_world(&w);
        assert_int_equal(c.live, 0);
        if (status == ATTN_OK)
            break;
        if (status != ATTN_ERR_OUT_OF_MEMORY || n > 100)
            fail_msg("%s: status %d when allocation %lld fails", name, status, (long long)n);
    }
}

static void check_layer(layer_case run, const char *name)
{
    attn_status status;
    world w = new_world(1, NULL, &status);
    assert_int_equal(status, ATTN_OK);
    run_case(&w, run, ATTN_F64, 0);
    check_differences(&w, run, name);
    check_single(&w, run, name);
    free_world(&w);
    check_threads(run, name);
    check_allocations(run, name);
}

#endif
