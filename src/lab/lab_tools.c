/* lab_tools.c - the list of experiments, and what they share. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "lab/lab.h"

const lab_experiment lab_experiments[] = {
    {"scaling", "Scores with and without division by sqrt(d_k)",
     "Unscaled dot products grow with d_k until softmax gives everything to one key and passes no gradient; divided by "
     "sqrt(d_k) they stay where they are.", lab_scaling},
    {"path", "Gradient of output n with respect to input 1",
     "In a recurrent network a dependency passes through every state in between and fades; in self-attention any two "
     "positions are one step apart.", lab_path},
    {"at-once", "All positions in one pass, and one at a time",
     "Each output is a sum of its own, so that all of them can be computed at once with the result of computing them in turn.",
     lab_at_once},
    {"order", "The input permuted",
     "Attention compares contents: without position information it does not know the order of its input.", lab_order},
    {"change", "One query, one key or one value changed",
     "A query serves its own position; a key or a value serves every position that can see it.", lab_change},
    {"counts", "Parameters, comparisons, and who exchanges what",
     "W_Q, W_K and W_V are all that an attention head learns, shared by all positions; it compares every permitted pair; the "
     "feed-forward part works on each position alone.", lab_counts},
    {"cost", "Time and memory against length",
     "Comparing every pair costs a square of the length.", lab_cost},
    {"serial", "Time of a training token: recurrent and attention",
     "A recurrent network has to compute one position after another; attention has no such chain.", lab_serial},
    {"bridge", "What \"it\" reads in the running sentence",
     "Predicting what follows \"The bridge was closed because it\" takes what stands at \"bridge\"; attention can fetch it.",
     lab_bridge},
    {NULL, NULL, NULL, NULL}};

void *lab_new(lab *l, size_t bytes)
{
    void *block = NULL;
    if (l->n_blocks < LAB_BLOCKS && bytes < SIZE_MAX / 2)
        block = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!block) {
        l->failed = true;
        snprintf(l->result->error, sizeof l->result->error, "no memory for %zu bytes", bytes);
        return NULL;
    }
    memset(block, 0, bytes);
    return l->blocks[l->n_blocks++] = block;
}

/* SplitMix64 (Steele, Lea and Flood 2014). */
static uint64_t next(lab *l)
{
    uint64_t z = l->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static double next_unit(lab *l) /* of (0, 1] */
{
    return ((double)(next(l) >> 11) + 1) / 9007199254740992.0;
}

static double next_normal(lab *l) /* Box and Muller 1958 */
{
    const double radius = sqrt(-2 * log(next_unit(l)));
    return radius * cos(6.283185307179586 * next_unit(l));
}

uint64_t lab_below(lab *l, uint64_t n)
{
    return (uint64_t)(next_unit(l) * (double)n) % n;
}

double *lab_normal(lab *l, int64_t n, double deviation)
{
    double *x = lab_new(l, (size_t)n * sizeof *x);
    for (int64_t i = 0; x && i < n; i++)
        x[i] = deviation * next_normal(l);
    return x;
}

float *lab_normal_f32(lab *l, int64_t n, double deviation)
{
    float *x = lab_new(l, (size_t)n * sizeof *x);
    for (int64_t i = 0; x && i < n; i++)
        x[i] = (float)(deviation * next_normal(l));
    return x;
}

double *lab_uniform(lab *l, int64_t n, double bound)
{
    double *x = lab_new(l, (size_t)n * sizeof *x);
    for (int64_t i = 0; x && i < n; i++)
        x[i] = bound * (2 * next_unit(l) - 1);
    return x;
}

bool lab_ok(lab *l, attn_status status)
{
    if (status == ATTN_OK)
        return !l->failed;
    const char *why = attn_layers_error(l->layers);
    if (!l->failed)
        snprintf(l->result->error, sizeof l->result->error, "%s: %s", attn_status_string(status),
                 why && why[0] ? why : attn_ctx_error(l->ctx));
    l->failed = true;
    return false;
}

void lab_columns(lab *l, int n, const char *const *names)
{
    l->result->n_columns = n;
    for (int c = 0; c < n; c++)
        l->result->columns[c] = names[c];
}

void lab_row(lab *l, const double *cells)
{
    lab_result *r = l->result;
    if (r->n_rows < LAB_ROWS)
        memcpy(r->cells[r->n_rows++], cells, (size_t)r->n_columns * sizeof *cells);
}

void lab_expect(lab *l, bool holds, const char *format, ...)
{
    lab_result *r = l->result;
    va_list list;
    if (r->n_checks == LAB_CHECKS)
        return;
    va_start(list, format);
    vsnprintf(r->checks[r->n_checks].text, sizeof r->checks[0].text, format, list);
    va_end(list);
    r->checks[r->n_checks++].holds = holds;
}

void lab_say(lab *l, const char *format, ...)
{
    lab_result *r = l->result;
    const size_t n = strlen(r->finding);
    va_list list;
    va_start(list, format);
    vsnprintf(r->finding + n, sizeof r->finding - n, format, list);
    va_end(list);
}

double lab_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double lab_largest_difference(const double *a, const double *b, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(a[i] - b[i]));
    return largest;
}

bool lab_run(const lab_experiment *experiment, bool quick, int32_t n_threads, lab_result *result)
{
    lab l;
    attn_ctx_options options;
    memset(&l, 0, sizeof l);
    memset(result, 0, sizeof *result);
    ATTN_ARGS_INIT(&options);
    options.n_threads = n_threads;
    l.quick = quick;
    l.state = 20170612;
    l.result = result;
    if (attn_layers_create(&options, &l.layers) != ATTN_OK) {
        snprintf(result->error, sizeof result->error, "%s", attn_layers_error(NULL));
        return false;
    }
    l.ctx = attn_layers_ctx(l.layers);
    experiment->run(&l);
    for (int i = 0; i < l.n_blocks; i++)
        free(l.blocks[i]);
    attn_layers_destroy(l.layers);
    return !l.failed;
}
