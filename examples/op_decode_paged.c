/* op_decode_paged.c - serves three sequences of different lengths from one paged bf16 cache: prompts of different lengths
 * in one call, then token after token, each in one call for all sequences.
 *
 * The cache is one array of pages, [pages, kv heads, 16 tokens, dim]; a table says which pages a sequence has. A page is
 * taken when a sequence grows into it and would be given back when the sequence ends: no memory is reserved for tokens that
 * may never come. At the end the last step is compared with plain attention over the same tokens. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "attn/attn.h"

enum { SEQUENCES = 3, HEADS = 8, KV_HEADS = 2, DIM = 32, PAGE = 16, PAGES = 24, TABLE = 8, PROMPT = 40, STEPS = 20 };
enum { MOST = PROMPT + STEPS }; /* tokens of the longest sequence */

static uint16_t key_pages[PAGES][KV_HEADS][PAGE][DIM], value_pages[PAGES][KV_HEADS][PAGE][DIM];
static int32_t table[SEQUENCES][TABLE];
static int n_taken;

/* Every key and value that was ever fed, for the comparison: [sequence][kv head][token][dim]. */
static float all_keys[SEQUENCES][KV_HEADS][MOST][DIM], all_values[SEQUENCES][KV_HEADS][MOST][DIM];

static float uniform(void) /* -1..1 in steps of 1/64: exact in bf16, so that the comparison is fair */
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)((int)(state >> 25) - 64) / 64;
}

/* Gives sequence s the pages it needs for `tokens` tokens. */
static void reserve(int s, int64_t tokens)
{
    for (int n = 0; n < TABLE && n * PAGE < tokens; n++)
        if (table[s][n] < 0)
            table[s][n] = n_taken++;
}

/* What a model's projections would give: new queries, keys and values of each sequence, [sequence, heads, n_new, dim]. */
static void make_tokens(float *query, float *key, float *value, int n_new, const int64_t *length, const int64_t *count)
{
    for (int n = 0; n < SEQUENCES * HEADS * n_new * DIM; n++)
        query[n] = uniform();
    for (int s = 0; s < SEQUENCES; s++)
        for (int g = 0; g < KV_HEADS; g++)
            for (int i = 0; i < (int)count[s]; i++)
                for (int d = 0; d < DIM; d++) {
                    int at = ((s * KV_HEADS + g) * n_new + i) * DIM + d;
                    key[at] = all_keys[s][g][length[s] + i][d] = uniform();
                    value[at] = all_values[s][g][length[s] + i][d] = uniform();
                }
}

/* One call for all sequences: appends count[s] tokens to each and attends. */
static attn_status step(attn_ctx *ctx, int n_new, const int64_t *length, const int64_t *count, float *query, float *key,
                        float *value, float *out)
{
    attn_decode_args a;
    ATTN_ARGS_INIT(&a);
    a.query = attn_cview_of(query, ATTN_F32, SEQUENCES, HEADS, n_new, DIM);
    a.new_key = attn_cview_of(key, ATTN_F32, SEQUENCES, KV_HEADS, n_new, DIM);
    a.new_value = attn_cview_of(value, ATTN_F32, SEQUENCES, KV_HEADS, n_new, DIM);
    a.cache_key = attn_view_of(key_pages, ATTN_BF16, PAGES, KV_HEADS, PAGE, DIM);
    a.cache_value = attn_view_of(value_pages, ATTN_BF16, PAGES, KV_HEADS, PAGE, DIM);
    a.layout.block_table = &table[0][0];
    a.layout.block_table_stride = TABLE;
    a.cache_len = length;
    a.new_len = count;
    a.out = attn_view_of(out, ATTN_F32, SEQUENCES, HEADS, n_new, DIM);
    a.mask.flags = ATTN_MASK_CAUSAL;
    for (int s = 0; s < SEQUENCES; s++)
        reserve(s, length[s] + count[s]);
    return attn_sdpa_decode(ctx, &a, NULL, 0);
}

/* The largest difference between the last step's outputs and attention over the plain arrays. */
static double compare(attn_ctx *ctx, const int64_t *length, const float *query, const float *out)
{
    static float plain[SEQUENCES][HEADS][1][DIM];
    double most = 0;
    attn_sdpa_args a;
    ATTN_ARGS_INIT(&a);
    a.query = attn_cview_of(query, ATTN_F32, SEQUENCES, HEADS, 1, DIM);
    a.key = attn_cview_of(all_keys, ATTN_F32, SEQUENCES, KV_HEADS, MOST, DIM);
    a.value = attn_cview_of(all_values, ATTN_F32, SEQUENCES, KV_HEADS, MOST, DIM);
    a.out = attn_view_of(plain, ATTN_F32, SEQUENCES, HEADS, 1, DIM);
    a.mask.kv_len = length;
    if (attn_sdpa_forward(ctx, &a, NULL, 0) != ATTN_OK)
        return INFINITY;
    for (int n = 0; n < SEQUENCES * HEADS * DIM; n++) {
        double difference = fabs((double)(&plain[0][0][0][0])[n] - (double)out[n]);
        if (!(difference <= most)) /* a NaN counts */
            most = difference;
    }
    return most;
}

int main(void)
{
    static float query[SEQUENCES * HEADS * PROMPT * DIM], out[SEQUENCES * HEADS * PROMPT * DIM];
    static float key[SEQUENCES * KV_HEADS * PROMPT * DIM], value[SEQUENCES * KV_HEADS * PROMPT * DIM];
    int64_t length[SEQUENCES] = {0}, prompt[SEQUENCES] = {PROMPT, 7, 23}, one[SEQUENCES] = {1, 1, 1};
    attn_ctx *ctx;
    if (attn_ctx_create(NULL, &ctx) != ATTN_OK) {
        printf("no context: %s\n", attn_ctx_error(NULL));
        return 1;
    }
    memset(table, 0xff, sizeof table); /* -1: no page yet */
    make_tokens(query, key, value, PROMPT, length, prompt);
    attn_status status = step(ctx, PROMPT, length, prompt, query, key, value, out);
    for (int s = 0; s < SEQUENCES; s++)
        length[s] += prompt[s];
    for (int n = 0; n < STEPS && status == ATTN_OK; n++) {
        make_tokens(query, key, value, 1, length, one);
        status = step(ctx, 1, length, one, query, key, value, out);
        for (int s = 0; s < SEQUENCES; s++)
            length[s] += 1; /* the caller counts: a token that is not accepted is simply not counted */
    }
    if (status != ATTN_OK) {
        printf("%s: %s\n", attn_status_string(status), attn_ctx_error(ctx));
        return 1;
    }
    double off = compare(ctx, length, query, out);
    printf("%d sequences of %d, %d and %d tokens in %d of %d pages; plain attention differs by %.1e\n", SEQUENCES, (int)length[0],
           (int)length[1], (int)length[2], n_taken, PAGES, off);
    attn_ctx_destroy(ctx);
    return off < 1e-5 ? 0 : 1; /* two orders of f32 sums over at most 60 keys and values below 1 */
}
