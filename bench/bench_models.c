/* bench_models - a whole model, timed: one line of JSON.
 *
 *   bench_models embed MODEL TEXTS    sentences/s over the lines of a file, each line read up to 256 tokens
 *   bench_models decode MODEL         tokens/s: a prompt of --prefill ids (512) in one pass, logits of the last position only,
 *                                     then --new tokens (128) one at a time, each the likeliest
 *   options: --threads N, --weights stored|f32|bf16|int8, --act-int8, --act-bf16, --runs N (3; the best counts), --reference (the least cosine to
 *            f32: of the texts' vectors, or of the logits behind the prompt), --cpu-time (with one thread: processor time instead
 *            of the wall's)
 *
 * Beside the rates: seconds to load, the largest resident size, bytes of weights read for a token, and, for decode, the read
 * rate of this machine measured between the runs. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attn/model.h"
#include "bench_peak.h"

typedef struct settings {
    const char *model, *texts, *weights;
    uint32_t flags;
    int32_t threads;
    int64_t prefill, fresh;
    int runs;
    bool reference;
} settings;

static void check(attn_status status)
{
    if (status == ATTN_OK)
        return;
    fprintf(stderr, "%s\n", attn_model_error(NULL));
    exit(1);
}

static attn_model *load(const settings *how, const char *weights, uint32_t flags)
{
    static const char *const names[] = {"stored", "f32", "bf16", "int8"};
    attn_model_options options;
    attn_model *model;
    ATTN_ARGS_INIT(&options);
    options.n_threads = how->threads;
    options.flags = flags;
    for (int k = 0; k < 4; k++)
        if (!strcmp(weights, names[k]))
            options.weights = k;
    check(attn_model_load(how->model, &options, &model));
    return model;
}

static attn_session *session_of(const attn_model *model, int32_t threads)
{
    attn_session_options options;
    attn_session *session;
    ATTN_ARGS_INIT(&options);
    options.n_threads = threads;
    check(attn_session_create(model, &options, &session));
    return session;
}

/* ---- Embeddings ------------------------------------------------------------------------------ */

typedef struct passages {
    char *text;
    size_t size;
    int64_t n;
    char **line;
} passages;

static passages read_lines(const char *path)
{
    passages p = {NULL, 0, 0, NULL};
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(1);
    }
    fseek(file, 0, SEEK_END);
    p.size = (size_t)ftell(file);
    rewind(file);
    p.text = bench_memory(p.size + 1);
    if (fread(p.text, 1, p.size, file) != p.size)
        exit(1);
    fclose(file);
    p.line = bench_memory((p.size + 1) * sizeof *p.line);
    for (char *at = p.text, *end = p.text + p.size; at < end;) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        p.line[p.n++] = at;
        at = stop ? stop + 1 : end;
        *(stop ? stop : end) = 0;
    }
    return p;
}

/* Tokenizes and embeds every line: the whole way from text to vectors. */
static double embed_once(const attn_model *model, attn_session *session, const passages *p, float *vectors, int64_t *n_tokens)
{
    double start = bench_now();
    int64_t at = 0, *lengths = bench_memory((size_t)p->n * sizeof *lengths);
    int32_t *ids = bench_memory((size_t)p->n * 256 * sizeof *ids), *one = bench_memory(1 << 16);
    for (int64_t n = 0; n < p->n; n++) {
        int64_t count;
        check(attn_model_tokenize(model, p->line[n], strlen(p->line[n]), 0, one, 1 << 14, &count));
        lengths[n] = count > 256 ? 256 : count;
        memcpy(ids + at, one, (size_t)lengths[n] * sizeof *ids);
        if (count > 256)
            ids[at + 255] = one[count - 1]; /* [SEP] stays the last */
        at += lengths[n];
    }
    attn_embed_args args;
    ATTN_ARGS_INIT(&args);
    args.tokens = ids, args.lengths = lengths, args.n_texts = p->n, args.embeddings = vectors;
    check(attn_embed(session, &args));
    double took = bench_now() - start;
    *n_tokens = at;
    free(lengths), free(ids), free(one);
    return took;
}

static double cosine(const float *a, const float *b, int64_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++)
        ab += (double)a[i] * (double)b[i], aa += (double)a[i] * (double)a[i], bb += (double)b[i] * (double)b[i];
    return ab / sqrt(aa * bb);
}

static double least_cosine(const settings *how, const passages *p, int64_t width, const float *vectors)
{
    attn_model *model = load(how, "f32", 0);
    attn_session *session = session_of(model, how->threads);
    float *exact = bench_memory((size_t)(p->n * width) * 4);
    int64_t tokens;
    double least = 2;
    embed_once(model, session, p, exact, &tokens);
    for (int64_t n = 0; n < p->n; n++)
        least = fmin(least, cosine(exact + n * width, vectors + n * width, width));
    free(exact);
    attn_session_destroy(session);
    attn_model_destroy(model);
    return least;
}

static void run_embed(const settings *how)
{
    double start = bench_now(), best = 1e9;
    attn_model *model = load(how, how->weights, how->flags);
    double loaded = bench_now() - start, peak;
    attn_session *session = session_of(model, how->threads);
    attn_model_info info;
    ATTN_ARGS_INIT(&info);
    check(attn_model_get_info(model, &info));
    passages p = read_lines(how->texts);
    float *vectors = bench_memory((size_t)(p.n * info.d_model) * 4);
    int64_t tokens = 0;
    for (int n = 0; n < how->runs; n++)
        best = fmin(best, embed_once(model, session, &p, vectors, &tokens));
    peak = bench_memory_mb("VmHWM:");
    printf("{\"threads\": %d, \"weights\": \"%s\", \"texts\": %lld, \"tokens\": %lld, \"per_s\": %.2f, \"load_s\": %.4f, \"memory_mb\": %.1f",
           (int)how->threads, how->weights, (long long)p.n, (long long)tokens, (double)p.n / best, loaded, peak);
    attn_session_destroy(session);
    attn_model_destroy(model);
    if (how->reference)
        printf(", \"cosine\": %.7f", least_cosine(how, &p, info.d_model, vectors));
    printf("}\n");
    free(vectors), free(p.text), free(p.line);
}

/* ---- Decoders -------------------------------------------------------------------------------- */

static int32_t likeliest(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t k = 1; k < n; k++)
        best = logits[k] > logits[best] ? k : best;
    return (int32_t)best;
}

static double pass(attn_session *session, const int32_t *ids, int64_t n, float *logits)
{
    attn_forward_args args;
    ATTN_ARGS_INIT(&args);
    args.tokens = ids, args.n_tokens = n, args.logits = logits;
    double start = bench_now();
    check(attn_model_forward(session, &args));
    return bench_now() - start;
}

/* The cosine of the logits behind the prompt to those of f32 activations and the same weights. */
static double logit_cosine(const settings *how, const int32_t *ids, const float *logits, int64_t vocab)
{
    attn_model *model = load(how, how->weights, ATTN_LOAD_NO_TOKENIZER);
    attn_session *session = session_of(model, how->threads);
    float *exact = bench_memory((size_t)vocab * 4);
    pass(session, ids, how->prefill, exact);
    const double found = cosine(exact, logits, vocab);
    free(exact);
    attn_session_destroy(session);
    attn_model_destroy(model);
    return found;
}

static void run_decode(const settings *how)
{
    const size_t bytes = (size_t)256 << 20;
    double start = bench_now(), prefill = 1e9, decode = 1e9, read = 0;
    attn_model *model = load(how, how->weights, ATTN_LOAD_NO_TOKENIZER | how->flags);
    double loaded = bench_now() - start, peak;
    attn_model_info info;
    ATTN_ARGS_INIT(&info);
    check(attn_model_get_info(model, &info));
    attn_session *session = session_of(model, how->threads);
    int32_t *ids = bench_memory((size_t)how->prefill * sizeof *ids);
    float *logits = bench_memory((size_t)info.vocab_size * 4);
    for (int64_t k = 0; k < how->prefill; k++)
        ids[k] = (int32_t)((k * 7919 + 13) % (info.vocab_size - 1));
    for (int n = 0; n < how->runs; n++) {
        check(attn_session_truncate(session, -1, 0));
        prefill = fmin(prefill, pass(session, ids, how->prefill, logits));
    }
    peak = bench_memory_mb("VmHWM:"); /* before the memory that the reference and the read rate are measured with */
    const double right = how->reference ? logit_cosine(how, ids, logits, info.vocab_size) : 1;
    attn_ctx *ctx = bench_context(how->threads, 0);
    void *data = bench_read_memory(bytes);
    for (int n = 0; n < how->runs; n++) {
        int32_t token = ids[0];
        double took = 0;
        for (int pass_of_reads = 0; pass_of_reads < 3; pass_of_reads++)
            read = fmax(read, bench_read_rate(ctx, data, bytes));
        check(attn_session_truncate(session, -1, 0));
        for (int64_t k = 0; k < how->fresh; k++) {
            took += pass(session, &token, 1, logits);
            token = likeliest(logits, info.vocab_size);
        }
        decode = fmin(decode, took);
    }
    printf("{\"threads\": %d, \"weights\": \"%s\", \"stored\": \"%s\", \"prefill_per_s\": %.2f, \"decode_per_s\": %.2f, "
           "\"weight_bytes\": %lld, \"read_gb_s\": %.2f, \"load_s\": %.4f, \"memory_mb\": %.1f",
           (int)how->threads, how->weights, info.weights, (double)how->prefill / prefill, (double)how->fresh / decode,
           (long long)info.weight_bytes, read, loaded, peak);
    if (how->reference)
        printf(", \"cosine\": %.7f", right);
    printf("}\n");
    attn_ctx_destroy(ctx);
    attn_session_destroy(session);
    attn_model_destroy(model);
    free(data), free(ids), free(logits);
}

int main(int argc, char **argv)
{
    settings how = {.weights = "stored", .threads = 1, .prefill = 512, .fresh = 128, .runs = 3};
    bool embeds = argc > 3 && !strcmp(argv[1], "embed"), decodes = argc > 2 && !strcmp(argv[1], "decode");
    int n = embeds ? 4 : 3;
    for (; (embeds || decodes) && n < argc; n++) {
        const char *value = n + 1 < argc ? argv[n + 1] : "";
        if (!strcmp(argv[n], "--reference")) {
            how.reference = true;
            continue;
        }
        if (!strcmp(argv[n], "--act-int8") || !strcmp(argv[n], "--act-bf16")) {
            how.flags = strcmp(argv[n], "--act-int8") ? ATTN_LOAD_ACT_BF16 : ATTN_LOAD_ACT_I8;
            continue;
        }
        if (!strcmp(argv[n], "--cpu-time")) { /* with one thread: processor time, for machines with other work */
            bench_clock = CLOCK_PROCESS_CPUTIME_ID;
            continue;
        }
        n++;
        if (!strcmp(argv[n - 1], "--threads"))
            how.threads = atoi(value);
        else if (!strcmp(argv[n - 1], "--weights"))
            how.weights = value;
        else if (!strcmp(argv[n - 1], "--prefill"))
            how.prefill = atoll(value);
        else if (!strcmp(argv[n - 1], "--new"))
            how.fresh = atoll(value);
        else if (!strcmp(argv[n - 1], "--runs"))
            how.runs = atoi(value);
        else
            embeds = decodes = false;
    }
    if (!embeds && !decodes) {
        fprintf(stderr, "usage: bench_models embed MODEL TEXTS | decode MODEL  [--threads N] [--weights stored|f32|bf16|int8] [--act-int8|--act-bf16]"
                        " [--prefill N] [--new N] [--runs N] [--reference] [--cpu-time]\n");
        return 2;
    }
    how.model = argv[2];
    how.texts = embeds ? argv[3] : NULL;
    if (embeds)
        run_embed(&how);
    else
        run_decode(&how);
    return 0;
}
