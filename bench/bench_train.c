/* bench_train - training steps on random ids, timed: one line of JSON.
 *
 *   bench_train nano|baby|124m [--threads N] [--dtype f32|bf16] [--seconds 6] [--length T] [--batch B] [--cpu-time]
 *
 * A step is forward, backward, clipping and AdamW of nanoGPT's shapes: nano (4 layers, width 128, 64 x 12 tokens, 65 ids), baby
 * (6 layers, width 384, 256 x 12, 65 ids), 124m (12 layers, width 768, 64 x 4, 50,257 ids); --length and --batch take others. The median of the
 * steps counts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attn/train.h"
#include "bench_clock.h"

typedef struct config {
    const char *name;
    int64_t layers, heads, width, length, batch, vocab, context;
} config;

static const config configs[] = {
    {"nano", 4, 4, 128, 64, 12, 65, 64},
    {"baby", 6, 6, 384, 256, 12, 65, 256},
    {"124m", 12, 12, 768, 64, 4, 50257, 1024},
};

static void check(attn_status status)
{
    if (status == ATTN_OK)
        return;
    fprintf(stderr, "%s\n", attn_train_error());
    exit(1);
}

static int32_t draw(int64_t below)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (int32_t)(state % (uint64_t)below);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run(const config *c, int32_t threads, int32_t dtype, double seconds)
{
    enum { MOST = 1000 };
    static double taken[MOST];
    attn_trainer_options options;
    attn_trainer *trainer;
    attn_train_batch batch;
    attn_trainer_info info;
    ATTN_ARGS_INIT(&options), ATTN_ARGS_INIT(&batch), ATTN_ARGS_INIT(&info);
    options.dtype = dtype, options.n_threads = threads, options.vocab_size = c->vocab, options.context = c->context;
    options.n_layers = c->layers, options.n_heads = c->heads, options.d_model = c->width;
    options.weight_decay = 0.1, options.clip = 1, options.seed = 1;
    options.pad_id = options.bos_id = options.eos_id = options.mask_id = -1;
    check(attn_trainer_create(&options, &trainer));
    check(attn_trainer_get_info(trainer, c->batch, c->length, &info));
    int32_t *ids = bench_memory((size_t)(c->batch * (c->length + 1)) * sizeof *ids);
    for (int64_t n = 0; n < c->batch * (c->length + 1); n++)
        ids[n] = draw(c->vocab);
    int32_t *tokens = bench_memory((size_t)(c->batch * c->length) * sizeof *ids), *targets = bench_memory((size_t)(c->batch * c->length) * sizeof *ids);
    for (int64_t n = 0; n < c->batch * c->length; n++) {
        tokens[n] = ids[n / c->length * (c->length + 1) + n % c->length];
        targets[n] = ids[n / c->length * (c->length + 1) + n % c->length + 1];
    }
    batch.batch = c->batch, batch.length = c->length, batch.tokens = tokens, batch.targets = targets;
    double first = 0, last = 0, from = bench_now();
    int n = -2; /* two steps to warm up */
    for (; n < MOST && (n < 5 || bench_now() - from < seconds); n++) {
        double start = bench_now();
        check(attn_trainer_accumulate(trainer, &batch, &last));
        check(attn_trainer_update(trainer, 1e-3, NULL));
        if (n >= 0)
            taken[n] = bench_now() - start;
        first = n == -2 ? last : first;
    }
    qsort(taken, (size_t)n, sizeof *taken, ascending);
    double rate = (double)(c->batch * c->length) / taken[n / 2];
    printf("{\"config\": \"%s\", \"dtype\": \"%s\", \"threads\": %d, \"per_s\": %.1f, \"best_per_s\": %.1f, \"step_ms\": %.3f, \"steps\": %d, "
           "\"gflops\": %.2f, \"memory_mb\": %.1f, \"parameters\": %lld, \"first_loss\": %.4f, \"last_loss\": %.4f}\n",
           c->name, dtype == ATTN_BF16 ? "bf16" : "f32", (int)threads, rate, (double)(c->batch * c->length) / taken[0], taken[n / 2] * 1e3, n,
           rate * info.flops_per_token * 1e-9, bench_memory_mb("VmHWM:"), (long long)info.n_parameters, first, last);
    free(ids), free(tokens), free(targets);
    attn_trainer_destroy(trainer);
}

int main(int argc, char **argv)
{
    int32_t threads = 1, dtype = ATTN_F32;
    int64_t length = 0, batch = 0;
    double seconds = 6;
    if (argc > 2 && !strcmp(argv[argc - 1], "--cpu-time")) /* with one thread: processor time, for machines with other work */
        bench_clock = CLOCK_PROCESS_CPUTIME_ID;
    for (int n = 2; n + 1 < argc; n += 2) {
        if (!strcmp(argv[n], "--threads"))
            threads = atoi(argv[n + 1]);
        else if (!strcmp(argv[n], "--dtype"))
            dtype = !strcmp(argv[n + 1], "bf16") ? ATTN_BF16 : ATTN_F32;
        else if (!strcmp(argv[n], "--seconds"))
            seconds = atof(argv[n + 1]);
        else if (!strcmp(argv[n], "--length"))
            length = atoll(argv[n + 1]);
        else if (!strcmp(argv[n], "--batch"))
            batch = atoll(argv[n + 1]);
    }
    for (size_t n = 0; argc > 1 && n < sizeof configs / sizeof *configs; n++)
        if (!strcmp(argv[1], configs[n].name)) {
            config c = configs[n];
            c.length = length > 0 ? length : c.length;
            c.batch = batch > 0 ? batch : c.batch;
            c.context = c.length > c.context ? c.length : c.context;
            run(&c, threads, dtype, seconds);
            return 0;
        }
    fprintf(stderr, "usage: bench_train nano|baby|124m [--threads N] [--dtype f32|bf16] [--seconds 6] [--length T] [--batch B] [--cpu-time]\n");
    return 2;
}
