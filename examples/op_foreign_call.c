/* op_foreign_call.c - the library as a foreign function interface sees it (Rust, Go, Java, ...): no header, only the names
 * of the functions, pointers, integers and byte offsets.
 *
 * The structs of attn/attn.h are plain C structs with fields of fixed width, so their offsets follow from the header: each
 * field stands at the next multiple of its own size (64-bit pointers). They are part of the ABI: fields are only ever
 * appended to the outermost struct. Attention over four keys is computed and compared with the formula. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int32_t attn_ctx_create(const void *options, void **ctx);
extern void attn_ctx_destroy(void *ctx);
extern const char *attn_ctx_error(const void *ctx);
extern int32_t attn_sdpa_forward(void *ctx, const void *args, void *workspace, size_t workspace_bytes);

enum { /* attn_cview, attn_view: 80 bytes */
    VIEW_DATA = 0,
    VIEW_DTYPE = 8, /* int32; 0 is f32 */
    VIEW_SHAPE = 16,
    VIEW_STRIDE = 48
};
enum { /* attn_sdpa_args: 952 bytes */
    ARGS_STRUCT_SIZE = 0,
    ARGS_QUERY = 8,
    ARGS_KEY = 88,
    ARGS_VALUE = 168,
    ARGS_OUT = 248,
    ARGS_LSE = 328,
    ARGS_MASK = 336, /* attn_mask: 296 bytes */
    ARGS_SCALE = 632,
    ARGS_BYTES = 952
};

static void put_pointer(void *at, int offset, const void *value)
{
    memcpy((char *)at + offset, &value, sizeof value);
}
static void put_int64(void *at, int offset, int64_t value)
{
    memcpy((char *)at + offset, &value, sizeof value);
}
static void put_int32(void *at, int offset, int32_t value)
{
    memcpy((char *)at + offset, &value, sizeof value);
}
static void put_double(void *at, int offset, double value)
{
    memcpy((char *)at + offset, &value, sizeof value);
}

/* A contiguous f32 array [1, 1, rows, columns]. */
static void put_view(void *args, int offset, const void *data, int64_t rows, int64_t columns)
{
    const int64_t shape[4] = {1, 1, rows, columns}, stride[4] = {rows * columns, rows * columns, columns, 1};
    put_pointer(args, offset + VIEW_DATA, data);
    put_int32(args, offset + VIEW_DTYPE, 0);
    for (int n = 0; n < 4; n++) {
        put_int64(args, offset + VIEW_SHAPE + 8 * n, shape[n]);
        put_int64(args, offset + VIEW_STRIDE + 8 * n, stride[n]);
    }
}

int main(void)
{
    const float query[2] = {1, -2}, key[8] = {1, 0, 0, 1, 1, 1, -1, 2}, value[8] = {1, 10, 2, 20, 3, 30, 4, 40};
    const double scale = 0.5;
    float out[2] = {0}, lse = 0;
    void *ctx = NULL, *args = calloc(1, ARGS_BYTES);
    if (!args)
        return 1;
    if (sizeof(void *) != 8 || attn_ctx_create(NULL, &ctx) != 0) {
        free(args);
        return 1;
    }
    put_int64(args, ARGS_STRUCT_SIZE, ARGS_BYTES);
    put_view(args, ARGS_QUERY, query, 1, 2);
    put_view(args, ARGS_KEY, key, 4, 2);
    put_view(args, ARGS_VALUE, value, 4, 2);
    put_view(args, ARGS_OUT, out, 1, 2);
    put_pointer(args, ARGS_LSE, &lse);
    put_double(args, ARGS_SCALE, scale);
    int32_t status = attn_sdpa_forward(ctx, args, NULL, 0);
    if (status != 0)
        printf("status %d: %s\n", (int)status, attn_ctx_error(ctx));

    double sum = 0, first = 0, second = 0; /* the formula: out = sum_j exp(s_j) v_j / sum_j exp(s_j) */
    for (int j = 0; j < 4; j++) {
        double weight = exp(scale * (double)(query[0] * key[2 * j] + query[1] * key[2 * j + 1]));
        sum += weight;
        first += weight * (double)value[2 * j];
        second += weight * (double)value[2 * j + 1];
    }
    double off = fabs((double)out[0] - first / sum) + fabs((double)out[1] - second / sum) + fabs((double)lse - log(sum));
    printf("out (%.6f, %.6f), lse %.6f; the formula differs by %.1e\n", (double)out[0], (double)out[1], (double)lse, off);

    put_int64(args, ARGS_KEY + VIEW_SHAPE + 24, 3); /* a mistake: head_dim of the keys */
    int32_t refused = attn_sdpa_forward(ctx, args, NULL, 0);
    printf("a wrong argument: status %d, \"%s\"\n", (int)refused, attn_ctx_error(ctx));
    attn_ctx_destroy(ctx);
    free(args);
    return status == 0 && off < 1e-4 && refused == -1 ? 0 : 1; /* values up to 40: a few f32 roundings of 40 * 2^-24 */
}
