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
    {"recall", "What came first, asked for at growing distance",
     "Attention learns dependencies over ranges at which a recurrent network, whose gradient passes every state in between, "
     "fails.", lab_recall},
    {"stall", "Learning a lookup with and without division by sqrt(d_k)",
     "Large scores saturate softmax, and a saturated softmax passes so little gradient that learning stalls.", lab_stall},
    {"heads", "One head and eight with as many parameters",
     "Several heads let several attention patterns operate at once over the same positions.", lab_heads},
    {"depth", "Norms behind and in front, by depth, with and without warm-up",
     "Residual connections make each part an update, and norms keep the range through many layers; where the norm stands is a "
     "property of the architecture.", lab_depth},
    {"mask", "Learning with the causal mask and without it",
     "The network could look at the token that it is to predict; the mask prevents that.", lab_mask},
    {"lookback", "A recurrent decoder that weighs all encoder states",
     "The decoder of an encoder-decoder already looked back at all the encoder's states, each weighted by relevance.", lab_lookback},
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
    {"evidence", "Does \"it\" read what it can refer to? Minimal pairs",
     "A good prediction after \"it\" takes what it refers to; what one sentence illustrates many have to show.", lab_evidence},
    {"occurrences", "One token in different contexts, layer by layer",
     "The same token begins from the same vector wherever it occurs; later its representation differs by context.",
     lab_occurrences},
    {"induction", "Heads that copy, and the loss without them",
     "No head has a job by design; what a head does is what a stated test shows, with its score.", lab_induction},
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

void lab_release(lab *l, int n_blocks)
{
    while (l->n_blocks > n_blocks)
        free(l->blocks[--l->n_blocks]);
}

/* SplitMix64 (Steele, Lea and Flood 2014). */
static uint64_t next(lab *l)
{
    uint64_t z = l->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

double lab_unit(lab *l)
{
    return ((double)(next(l) >> 11) + 1) / 9007199254740992.0;
}

double lab_gauss(lab *l) /* Box and Muller 1958 */
{
    const double radius = sqrt(-2 * log(lab_unit(l)));
    return radius * cos(6.283185307179586 * lab_unit(l));
}

uint64_t lab_below(lab *l, uint64_t n)
{
    return (uint64_t)(lab_unit(l) * (double)n) % n;
}

double *lab_normal(lab *l, int64_t n, double deviation)
{
    double *x = lab_new(l, (size_t)n * sizeof *x);
    for (int64_t i = 0; x && i < n; i++)
        x[i] = deviation * lab_gauss(l);
    return x;
}

float *lab_normal_f32(lab *l, int64_t n, double deviation)
{
    float *x = lab_new(l, (size_t)n * sizeof *x);
    for (int64_t i = 0; x && i < n; i++)
        x[i] = (float)(deviation * lab_gauss(l));
    return x;
}

double *lab_uniform(lab *l, int64_t n, double bound)
{
    double *x = lab_new(l, (size_t)n * sizeof *x);
    for (int64_t i = 0; x && i < n; i++)
        x[i] = bound * (2 * lab_unit(l) - 1);
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

void lab_measured(lab *l, const char *name, double value)
{
    lab_result *r = l->result;
    if (r->n_numbers < LAB_NUMBERS)
        r->numbers[r->n_numbers++] = (lab_number){name, value};
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

double lab_processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double lab_largest_difference(const double *a, const double *b, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(a[i] - b[i]));
    return largest;
}

bool lab_run(const lab_experiment *experiment, const lab_options *options, lab_result *result)
{
    lab l;
    attn_ctx_options one;
    const double start = lab_seconds();
    memset(&l, 0, sizeof l);
    memset(result, 0, sizeof *result);
    ATTN_ARGS_INIT(&one);
    one.n_threads = 1;
    l.options = options;
    l.quick = options->quick;
    l.state = LAB_SEED;
    l.result = result;
    if (attn_layers_create(&one, &l.layers) != ATTN_OK) {
        snprintf(result->error, sizeof result->error, "%s", attn_layers_error(NULL));
        return false;
    }
    l.ctx = attn_layers_ctx(l.layers);
    experiment->run(&l);
    lab_release(&l, 0);
    attn_layers_destroy(l.layers);
    result->seconds = lab_seconds() - start;
    return !l.failed;
}
