/* op_forward.c - attention in one call: four queries over six keys, two heads, causal, keys and values shared by the heads.
 *
 *     cc op_forward.c -lattn -lm */
#include <math.h>
#include <stdio.h>
#include "attn/attn.h"

enum { HEADS = 2, QUERIES = 4, KEYS = 6, DIM = 3 };

int main(void)
{
    float query[HEADS][QUERIES][DIM], key[KEYS][DIM], value[KEYS][DIM], out[HEADS][QUERIES][DIM], lse[HEADS][QUERIES];
    for (int n = 0; n < HEADS * QUERIES * DIM; n++)
        (&query[0][0][0])[n] = sinf((float)n);
    for (int n = 0; n < KEYS * DIM; n++) {
        (&key[0][0])[n] = cosf((float)n);
        (&value[0][0])[n] = (float)n;
    }

    attn_ctx *ctx; /* threads, memory, kernels: made once, used for many calls */
    if (attn_ctx_create(NULL, &ctx) != ATTN_OK) {
        printf("no context: %s\n", attn_ctx_error(NULL));
        return 1;
    }
    attn_sdpa_args a;
    ATTN_ARGS_INIT(&a); /* all zero: no mask, scale 1/sqrt(DIM) */
    a.query = attn_cview_of(query, ATTN_F32, 1, HEADS, QUERIES, DIM);
    a.key = attn_cview_of(key, ATTN_F32, 1, 1, KEYS, DIM);
    a.value = attn_cview_of(value, ATTN_F32, 1, 1, KEYS, DIM);
    a.out = attn_view_of(out, ATTN_F32, 1, HEADS, QUERIES, DIM);
    a.lse = lse;
    a.mask.flags = ATTN_MASK_CAUSAL | ATTN_MASK_OFFSET;
    a.mask.query_offset = KEYS - QUERIES; /* the queries are the last of the six positions: query 0 sees keys 0..2 */
    attn_status status = attn_sdpa_forward(ctx, &a, NULL, 0);
    if (status != ATTN_OK)
        printf("%s: %s\n", attn_status_string(status), attn_ctx_error(ctx));
    attn_ctx_destroy(ctx);

    double most = 0; /* the same by the formula, for the check */
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < QUERIES; i++) {
            double sum = 0, mean[DIM] = {0};
            for (int j = 0; j <= i + KEYS - QUERIES; j++) {
                double score = 0;
                for (int d = 0; d < DIM; d++)
                    score += (double)query[h][i][d] * (double)key[j][d] / sqrt(DIM);
                sum += exp(score);
                for (int d = 0; d < DIM; d++)
                    mean[d] += exp(score) * (double)value[j][d];
            }
            printf("head %d query %d: out %.4f %.4f %.4f  lse %.4f\n", h, i, (double)out[h][i][0], (double)out[h][i][1],
                   (double)out[h][i][2], (double)lse[h][i]);
            double off = fabs((double)lse[h][i] - log(sum));
            for (int d = 0; d < DIM; d++)
                off += fabs((double)out[h][i][d] - mean[d] / sum);
            if (!(off <= most)) /* a NaN counts */
                most = off;
        }
    return status == ATTN_OK && most < 1e-5 ? 0 : 1; /* sums of values up to 17 in f32, a few roundings of 17 * 2^-24 each */
}
