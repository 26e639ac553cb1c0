/* attn_sdpa_decode as a call: statuses, what an error leaves alone, memory, guard pages, quantisation, and a decode step
 * that equals its row of a full causal pass. */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include "core/view.h"
#include "properties/random_problem.h"

enum { B = 2, H = 4, G = 2, D = 8, DV = 6, CAPACITY = 12, NEW = 3 };

static attn_ctx *ctx;
static int make_ctx(void **state)
{
    (void)state;
    return attn_ctx_create(NULL, &ctx) != ATTN_OK;
}
static int drop_ctx(void **state)
{
    (void)state;
    attn_ctx_destroy(ctx);
    return 0;
}

/* The offsets that examples/op_foreign_call.c writes to. */
#define AT(type, field, offset) _Static_assert(sizeof(void *) != 8 || offsetof(type, field) == (offset), #field " moved")
AT(attn_cview, dtype, 8);
AT(attn_cview, shape, 16);
AT(attn_cview, stride, 48);
AT(attn_sdpa_args, query, 8);
AT(attn_sdpa_args, key, 88);
AT(attn_sdpa_args, value, 168);
AT(attn_sdpa_args, out, 248);
AT(attn_sdpa_args, lse, 328);
AT(attn_sdpa_args, mask, 336);
AT(attn_sdpa_args, scale, 632);
_Static_assert(sizeof(void *) != 8 || (sizeof(attn_cview) == 80 && sizeof(attn_mask) == 296), "a nested struct has grown");
_Static_assert(sizeof(void *) != 8 || sizeof(attn_sdpa_args) >= 952, "attn_sdpa_args has shrunk");

/* ---- Statuses ----------------------------------------------------------------------------------- */

static float query[B * H * NEW * D], fresh_key[B * G * NEW * D], fresh_value[B * G * NEW * DV];
static float cache_key[B * G * CAPACITY * D], cache_value[B * G * CAPACITY * DV], out[B * H * NEW * DV], lse[B * H * NEW];
static int8_t key8[B * G * CAPACITY * D], value8[B * G * CAPACITY * DV];
static float scale_k[B * G * CAPACITY], scale_v[B * G * CAPACITY], prefix_k[G * 5 * D], prefix_v[G * 5 * DV];
static int64_t cache_len[B], new_len[B];
static int32_t table[B * 4];
static uint8_t allow[B * H * NEW * 20];

static void fill(float *x, size_t n, rng *r)
{
    for (size_t k = 0; k < n; k++)
        x[k] = (float)rng_normal(r);
}

static attn_decode_args good_args(void)
{
    attn_decode_args a;
    rng r = {7};
    fill(query, B * H * NEW * D, &r);
    fill(fresh_key, B * G * NEW * D, &r);
    fill(fresh_value, B * G * NEW * DV, &r);
    fill(prefix_k, G * 5 * D, &r);
    fill(prefix_v, G * 5 * DV, &r);
    memset(cache_key, 0, sizeof cache_key);
    memset(cache_value, 0, sizeof cache_value);
    memset(allow, 1, sizeof allow);
    cache_len[0] = 5, cache_len[1] = 9;
    new_len[0] = 3, new_len[1] = 2;
    for (int32_t n = 0; n < B * 4; n++)
        table[n] = n;
    ATTN_ARGS_INIT(&a);
    a.query = attn_cview_of(query, ATTN_F32, B, H, NEW, D);
    a.new_key = attn_cview_of(fresh_key, ATTN_F32, B, G, NEW, D);
    a.new_value = attn_cview_of(fresh_value, ATTN_F32, B, G, NEW, DV);
    a.cache_key = attn_view_of(cache_key, ATTN_F32, B, G, CAPACITY, D);
    a.cache_value = attn_view_of(cache_value, ATTN_F32, B, G, CAPACITY, DV);
    a.out = attn_view_of(out, ATTN_F32, B, H, NEW, DV);
    a.lse = lse;
    a.cache_len = cache_len;
    a.new_len = new_len;
    a.mask.flags = ATTN_MASK_CAUSAL;
    return a;
}

static void make_paged(attn_decode_args *a)
{
    a->cache_key = attn_view_of(cache_key, ATTN_F32, 8, G, 3, D);
    a->cache_value = attn_view_of(cache_value, ATTN_F32, 8, G, 3, DV);
    a->layout.block_table = table;
    a->layout.block_table_stride = 4;
}
static void make_i8(attn_decode_args *a)
{
    a->cache_key = attn_view_of(key8, ATTN_I8, B, G, CAPACITY, D);
    a->cache_value = attn_view_of(value8, ATTN_I8, B, G, CAPACITY, DV);
    a->cache_key_scale = attn_view_of(scale_k, ATTN_F32, B, G, CAPACITY, 1);
    a->cache_value_scale = attn_view_of(scale_v, ATTN_F32, B, G, CAPACITY, 1);
}
static void make_prefixed(attn_decode_args *a)
{
    a->prefix_key = attn_cview_of(prefix_k, ATTN_F32, 1, G, 5, D);
    a->prefix_value = attn_cview_of(prefix_v, ATTN_F32, 1, G, 5, DV);
}

/* The call is refused with a text that has `word`, by the query too, and neither cache nor outputs have changed. */
static void refused_by(const attn_decode_args *a, attn_status want, const char *word, bool query_too)
{
    unsigned char before[4][sizeof cache_key];
    void *arrays[4] = {cache_key, cache_value, out, lse};
    size_t sizes[4] = {sizeof cache_key, sizeof cache_value, sizeof out, sizeof lse}, bytes;
    for (int n = 0; n < 4; n++)
        memcpy(before[n], arrays[n], sizes[n]);
    attn_status got = attn_sdpa_decode(ctx, a, NULL, 0);
    if (got != want || !strstr(attn_ctx_error(ctx), word))
        fail_msg("status %d, text \"%s\"; expected %d and %s", got, attn_ctx_error(ctx), want, word);
    for (int n = 0; n < 4; n++)
        assert_memory_equal(before[n], arrays[n], sizes[n]);
    if (query_too) {
        assert_int_equal(attn_sdpa_decode_workspace(ctx, a, &bytes), want);
        assert_non_null(strstr(attn_ctx_error(ctx), word));
    }
}
static void refused(const attn_decode_args *a, const char *word)
{
    refused_by(a, ATTN_ERR_INVALID_ARGUMENT, word, true);
}

static void wrong_fields_are_named(void **state)
{
    (void)state;
    attn_decode_args a = good_args();
    static const int64_t offsets[B] = {0, 0};
    assert_int_equal(attn_sdpa_decode(NULL, &a, NULL, 0), ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_sdpa_decode_workspace(NULL, &a, NULL), ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_sdpa_decode(ctx, NULL, NULL, 0), ATTN_ERR_INVALID_ARGUMENT);
    assert_int_equal(attn_sdpa_decode_workspace(ctx, &a, NULL), ATTN_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(attn_ctx_error(ctx), "bytes"));
    /* clang-format off */
    a.struct_size = 1; refused(&a, "struct_size");
    a = good_args(); a.query.shape[3] = -1; refused(&a, "query.shape[3]");
    a = good_args(); a.query.dtype = 17; refused(&a, "query.dtype");
    a = good_args(); a.query.data = NULL; refused_by(&a, ATTN_ERR_INVALID_ARGUMENT, "query.data", false);
    a = good_args(); a.cache_key.shape[3] = D - 1; refused(&a, "new_key.shape[3]");
    a = good_args(); a.new_key.data = NULL; refused(&a, "new_key.data");
    a = good_args(); a.new_key.shape[2] = 2; refused(&a, "new_key.shape[2]");
    a = good_args(); a.new_value.shape[1] = 1; refused(&a, "new_value.shape[1]");
    a = good_args(); a.new_key.data = a.new_value.data = NULL; a.cache_key.shape[3] = D - 1; refused(&a, "cache_key.shape[3]");
    a = good_args(); a.cache_value.shape[2] = 4; refused(&a, "cache_value.shape[2]");
    a = good_args(); a.cache_key.shape[0] = 1; refused(&a, "cache_key.shape[0]");
    a = good_args(); a.cache_key.stride[2] = 0; refused(&a, "cache_key.stride");
    a = good_args(); a.cache_len = NULL; refused(&a, "cache_len");
    a = good_args(); cache_len[1] = -1; refused(&a, "cache_len[1] is -1");
    a = good_args(); cache_len[1] = 11; refused(&a, "cache_len[1] is 11");
    a = good_args(); new_len[0] = 4; refused(&a, "new_len[0] is 4");
    a = good_args(); new_len[1] = -1; refused(&a, "new_len[1] is -1");
    a = good_args(); a.mask.flags |= ATTN_MASK_OFFSET; refused(&a, "mask.query_offset");
    a = good_args(); a.mask.query_offsets = offsets; refused(&a, "mask.query_offset");
    a = good_args(); a.mask.bias_offset = 2; refused(&a, "mask.bias_offset is 2");
    a = good_args(); a.mask.kv_len = offsets; refused(&a, "mask.kv_len");
    a = good_args(); a.mask.q_len = offsets; refused(&a, "q_len");
    a = good_args(); a.mask.cu_seqlens_q = offsets; refused(&a, "mask.cu_seqlens_q");
    a = good_args(); a.mask.n_segments = 1; refused(&a, "n_segments");
    a = good_args(); a.mask.flags |= ATTN_MASK_WINDOW; a.mask.left = -2; refused(&a, "mask.left is -2");
    a = good_args(); a.mask.allow = attn_cview_of(allow, ATTN_BOOL, B, H, NEW, 10); refused(&a, "mask.allow.shape[3] is 10");
    a = good_args(); a.mask.allow = attn_cview_of(allow, ATTN_F32, B, 1, NEW, 11); refused(&a, "mask.allow.dtype");
    a = good_args(); a.mask.bias = attn_cview_of(query, ATTN_F32, 1, 1, NEW, 7); refused(&a, "mask.bias.shape[3] is 7");
    a = good_args(); a.scale = -1; refused(&a, "scale");
    a = good_args(); a.softcap = -1; refused(&a, "softcap");
    a = good_args(); a.layout.ring = 2; refused(&a, "layout.ring is 2");
    a = good_args(); a.out.shape[3] = D; refused(&a, "out.shape[3]");
    a = good_args(); a.out.data = cache_value; refused_by(&a, ATTN_ERR_INVALID_ARGUMENT, "out overlaps", false);
    a = good_args(); a.out.data = fresh_value; refused_by(&a, ATTN_ERR_INVALID_ARGUMENT, "out overlaps", false); /* and whatever lies behind it */
    a = good_args(); a.new_key.data = cache_key; refused_by(&a, ATTN_ERR_INVALID_ARGUMENT, "cache_key overlaps new_key", false);
    a = good_args(); a.cache_value.data = cache_key; a.cache_value.shape[3] = 2; a.new_value.shape[3] = 2; a.out.shape[3] = 2;
    refused_by(&a, ATTN_ERR_INVALID_ARGUMENT, "cache_value overlaps cache_key", false);
    a = good_args(); make_prefixed(&a); a.prefix_value.data = NULL; refused(&a, "prefix_value.data");
    a = good_args(); make_prefixed(&a); a.prefix_key.shape[3] = 7; refused(&a, "prefix_key.shape[3] is 7");
    a = good_args(); make_prefixed(&a); a.prefix_value.shape[2] = 4; refused(&a, "prefix_value.shape[2] is 4");
    a = good_args(); make_prefixed(&a); a.mask.allow = attn_cview_of(allow, ATTN_BOOL, B, H, NEW, 11); refused(&a, "mask.allow.shape[3] is 11");
    a = good_args(); make_i8(&a); a.cache_key_scale.shape[2] = 3; refused(&a, "cache_key_scale.shape[2] is 3");
    a = good_args(); make_i8(&a); a.cache_value_scale.shape[3] = 2; refused(&a, "cache_value_scale.shape[3] is 2");
    a = good_args(); make_i8(&a); a.cache_value_scale.dtype = ATTN_F16; refused(&a, "cache_value_scale.dtype is f16");
    a = good_args(); make_paged(&a); a.layout.ring = 1; refused(&a, "exclude each other");
    a = good_args(); make_paged(&a); a.layout.block_table_stride = 3; refused(&a, "layout.block_table_stride is 3");
    a = good_args(); make_paged(&a); table[5] = 8; refused(&a, "layout.block_table[1, 1] is 8");
    a = good_args(); make_paged(&a); table[7] = -1; refused(&a, "layout.block_table[1, 3] is -1");
    a = good_args(); make_paged(&a); table[7] = 2; refused(&a, "a block that this call writes");
    a = good_args(); make_paged(&a); table[0] = 2; refused(&a, "a block that this call writes");
    /* clang-format on */
}

static void unsupported_is_said(void **state)
{
    (void)state;
    attn_decode_args a = good_args();
    /* clang-format off */
    a.mask.flags |= 0x80; refused_by(&a, ATTN_ERR_UNSUPPORTED, "mask.flags", true);
    a = good_args(); a.flags = 0x80; refused_by(&a, ATTN_ERR_UNSUPPORTED, "flags", true);
    a = good_args(); a.new_key.dtype = ATTN_I8; refused_by(&a, ATTN_ERR_UNSUPPORTED, "new_key.dtype is i8", true);
    a = good_args(); a.cache_value.dtype = ATTN_F16; refused_by(&a, ATTN_ERR_UNSUPPORTED, "cache_value.dtype is f16", true);
    a = good_args(); make_prefixed(&a); a.prefix_key.dtype = ATTN_F16; refused_by(&a, ATTN_ERR_UNSUPPORTED, "prefix_key.dtype is f16", true);
    a = good_args(); make_prefixed(&a); make_i8(&a); refused_by(&a, ATTN_ERR_UNSUPPORTED, "prefix_key.dtype", true);
    a = good_args(); a.mask.bias = attn_cview_of(query, ATTN_F16, 1, 1, NEW, 11); refused_by(&a, ATTN_ERR_UNSUPPORTED, "mask.bias.dtype", true);
    /* clang-format on */
}

static void a_ring_refuses_what_it_would_lose(void **state)
{
    (void)state;
    attn_decode_args a = good_args();
    a.layout.ring = 1;
    a.mask.flags |= ATTN_MASK_WINDOW;
    cache_len[0] = cache_len[1] = 100;
    new_len[0] = new_len[1] = 3;
    a.mask.left = 9; /* 3 new tokens leave the slots of tokens 91 .. 102: token 100 reaches back to 91 */
    assert_int_equal(attn_sdpa_decode(ctx, &a, NULL, 0), ATTN_OK);
    a.mask.left = 10;
    refused(&a, "keeps tokens from 91 on");
    a.mask.left = -1;
    refused(&a, "cache_key.shape[2] is 12");
    cache_len[0] = cache_len[1] = 9; /* nothing is overwritten yet: no window is needed */
    assert_int_equal(attn_sdpa_decode(ctx, &a, NULL, 0), ATTN_OK);
    cache_len[1] = 10;
    refused(&a, "cache_len[1] 10");
    a.mask.left = 0;
    a.cache_key.shape[2] = a.cache_value.shape[2] = 2; /* three tokens into two slots */
    refused(&a, "cache_key.shape[2] is 2");
}

/* ---- Memory ------------------------------------------------------------------------------------- */

typedef struct counted {
    int64_t made, live, fail_at; /* allocation number fail_at returns NULL; -1: none */
} counted;
static void *counted_allocate(void *user, size_t bytes, size_t alignment)
{
    counted *c = user;
    void *p = NULL;
    if (c->made++ == c->fail_at || posix_memalign(&p, alignment < 8 ? 8 : alignment, bytes))
        return NULL;
    c->live++;
    return p;
}
static void counted_release(void *user, void *p)
{
    ((counted *)user)->live--;
    free(p);
}

static void memory_runs_out_cleanly(void **state)
{
    (void)state;
    float expected[sizeof out / sizeof *out];
    attn_decode_args a = good_args();
    make_prefixed(&a);
    assert_int_equal(attn_sdpa_decode(ctx, &a, NULL, 0), ATTN_OK);
    memcpy(expected, out, sizeof out);
    bool done = false;
    for (int64_t n = 0; !done; n++) {
        counted c = {0, 0, n};
        attn_allocator allocator = {&c, counted_allocate, counted_release};
        attn_ctx_options options;
        attn_ctx *own;
        ATTN_ARGS_INIT(&options);
        options.allocator = &allocator;
        a = good_args();
        make_prefixed(&a);
        memset(out, 0x55, sizeof out);
        attn_status status = attn_ctx_create(&options, &own);
        if (status == ATTN_OK) {
            status = attn_sdpa_decode(own, &a, NULL, 0);
            if (status == ATTN_ERR_OUT_OF_MEMORY) {
                assert_int_equal(((unsigned char *)out)[3], 0x55);
                assert_true(cache_key[5 * D] == 0); /* nothing was appended */
                c.fail_at = -1;
                assert_int_equal(attn_sdpa_decode(own, &a, NULL, 0), ATTN_OK);
            } else {
                assert_int_equal(status, ATTN_OK);
                done = c.made <= n;
            }
            assert_memory_equal(out, expected, sizeof out);
        } else {
            assert_int_equal(status, ATTN_ERR_OUT_OF_MEMORY);
        }
        attn_ctx_destroy(own);
        assert_int_equal(c.live, 0);
    }
}

static void a_given_workspace_is_enough(void **state)
{
    (void)state;
    counted c = {0, 0, -1};
    attn_allocator allocator = {&c, counted_allocate, counted_release};
    attn_ctx_options options;
    attn_ctx *own;
    ATTN_ARGS_INIT(&options);
    options.allocator = &allocator;
    options.n_threads = 1;
    assert_int_equal(attn_ctx_create(&options, &own), ATTN_OK);
    for (int kind = 0; kind < 8; kind++) {
        attn_decode_args a = good_args();
        size_t bytes = 0;
        if (kind & 1)
            make_prefixed(&a);
        if (kind & 2)
            make_paged(&a);
        if (kind == 4)
            make_i8(&a);
        assert_int_equal(attn_sdpa_decode_workspace(own, &a, &bytes), ATTN_OK);
        unsigned char *memory = NULL;
        assert_int_equal(posix_memalign((void **)&memory, 64, bytes + 64), 0);
        memset(memory, 0xa5, bytes + 64);
        assert_int_equal(attn_sdpa_decode(own, &a, memory, bytes ? bytes - 1 : 0), ATTN_ERR_WORKSPACE_TOO_SMALL);
        assert_non_null(strstr(attn_ctx_error(own), "workspace_bytes"));
        assert_int_equal(attn_sdpa_decode(own, &a, memory, 8), ATTN_ERR_WORKSPACE_TOO_SMALL);
        char needed[32];
        snprintf(needed, sizeof needed, "%zu are needed", bytes);
        assert_non_null(strstr(attn_ctx_error(own), needed));
        assert_true(kind == 4 || cache_key[kind & 2 ? 2 * G * 3 * D : 5 * D] == 0);
        assert_int_equal(attn_sdpa_decode(own, &a, memory + 4, bytes), ATTN_ERR_INVALID_ARGUMENT);
        assert_int_equal(attn_sdpa_decode(own, &a, NULL, 8), ATTN_ERR_INVALID_ARGUMENT);
        int64_t made = c.made;
        assert_int_equal(attn_sdpa_decode(own, &a, memory, bytes), ATTN_OK);
        assert_int_equal(c.made, made);
        for (int n = 0; n < 64; n++)
            assert_int_equal(memory[bytes + (size_t)n], 0xa5);
        free(memory);
    }
    attn_ctx_destroy(own);
}

/* n bytes that end right before a page that cannot be touched. */
static void *guarded(size_t n, void **base, size_t *length)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (n + page - 1) / page * page;
    char *p = mmap(NULL, body + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    assert_int_equal(mprotect(p + body, page, PROT_NONE), 0);
    *base = p;
    *length = body + page;
    return p + body - n;
}

static void no_byte_beyond_the_arrays(void **state)
{
    (void)state;
    static const int32_t types[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_I8}, fresh_types[] = {ATTN_F32, ATTN_F64, ATTN_BF16};
    for (int kind = 0; kind < 12; kind++)
        for (int64_t d = 1; d <= 35; d += d < 9 ? 1 : 13)
            for (int64_t n_new = 1; n_new <= 5; n_new += 2) {
                int32_t type = types[kind % 4], fresh = fresh_types[kind / 4];
                size_t width = attn_dtype_size(type), fresh_width = attn_dtype_size(fresh);
                int64_t capacity = 7;
                size_t sizes[] = {(size_t)(4 * n_new * d) * 4, (size_t)(2 * n_new * d) * fresh_width, (size_t)(2 * n_new * d) * fresh_width,
                                  (size_t)(2 * capacity * d) * width, (size_t)(2 * capacity * d) * width, (size_t)(4 * n_new * d) * 4,
                                  (size_t)(4 * n_new) * 4, (size_t)(2 * capacity) * 4, (size_t)(2 * capacity) * 4, 8};
                void *base[10], *p[10];
                size_t length[10];
                for (int n = 0; n < 10; n++)
                    p[n] = guarded(sizes[n], &base[n], &length[n]);
                attn_decode_args a;
                ATTN_ARGS_INIT(&a);
                a.query = attn_cview_of(p[0], ATTN_F32, 1, 4, n_new, d);
                a.new_key = attn_cview_of(p[1], fresh, 1, 2, n_new, d);
                a.new_value = attn_cview_of(p[2], fresh, 1, 2, n_new, d);
                a.cache_key = attn_view_of(p[3], type, 1, 2, capacity, d);
                a.cache_value = attn_view_of(p[4], type, 1, 2, capacity, d);
                a.out = attn_view_of(p[5], ATTN_F32, 1, 4, n_new, d);
                a.lse = p[6];
                a.cache_key_scale = attn_view_of(p[7], ATTN_F32, 1, 2, capacity, 1);
                a.cache_value_scale = attn_view_of(p[8], ATTN_F32, 1, 2, capacity, 1);
                a.cache_len = p[9];
                *(int64_t *)p[9] = capacity - n_new;
                a.mask.flags = ATTN_MASK_CAUSAL;
                assert_int_equal(attn_sdpa_decode(ctx, &a, NULL, 0), ATTN_OK);
                for (int n = 0; n < 10; n++)
                    munmap(base[n], length[n]);
            }
}

/* ---- Meaning ------------------------------------------------------------------------------------- */

static void i8_rows_hold_absmax_over_127(void **state)
{
    (void)state;
    attn_decode_args a = good_args();
    make_i8(&a);
    new_len[1] = 3;
    fresh_key[0] = 0x1p-149f; /* a row of one denormal: the scale rounds to 0 */
    for (int d = 1; d < D; d++)
        fresh_key[d] = 0;
    fresh_value[DV + 2] = INFINITY;
    memset(scale_k, 0, sizeof scale_k);
    assert_int_equal(attn_sdpa_decode(ctx, &a, NULL, 0), ATTN_OK);
    for (int b = 0; b < B; b++)
        for (int g = 0; g < G; g++)
            for (int i = 0; i < 3; i++) {
                const float *x = fresh_key + ((b * G + g) * NEW + i) * D;
                int64_t slot = (b * G + g) * CAPACITY + cache_len[b] + i;
                float most = 0;
                for (int d = 0; d < D; d++)
                    most = fabsf(x[d]) > most ? fabsf(x[d]) : most;
                float scale = (float)((double)most / 127);
                assert_true(scale_k[slot] == scale);
                for (int d = 0; d < D; d++)
                    assert_int_equal(key8[slot * D + d], scale == 0 ? 0 : lrint((double)(x[d] / scale)));
            }
    assert_true(scale_k[5] == 0 && isnan(scale_v[6])); /* infinity is seen as NaN by every query that admits the token */
    assert_true(!isnan(out[0]) && isnan(out[DV]) && isnan(out[2 * DV]));
}

/* Token by token through caches of several types = the rows of one causal pass over the same values. Both are held to the
 * reference elsewhere; here they differ by rounding only: 2 * (D + T + 30) * 2^-23 * max|v| bounds it (scores below 8). */
static void steps_equal_rows_of_the_full_pass(void **state)
{
    (void)state;
    enum { T = 70, HEADS = 6, KV = 2, WIDTH = 24 };
    static float q[HEADS * T * WIDTH], k[KV * T * WIDTH], v[KV * T * WIDTH], full[HEADS * T * WIDTH], step[HEADS * WIDTH];
    static float store_k[KV * T * WIDTH], store_v[KV * T * WIDTH];
    rng r = {99};
    float most = 0;
    fill(q, HEADS * T * WIDTH, &r);
    fill(k, KV * T * WIDTH, &r);
    fill(v, KV * T * WIDTH, &r);
    for (int n = 0; n < KV * T * WIDTH; n++)
        most = fabsf(v[n]) > most ? fabsf(v[n]) : most;
    attn_sdpa_args f;
    ATTN_ARGS_INIT(&f);
    f.query = attn_cview_of(q, ATTN_F32, 1, HEADS, T, WIDTH);
    f.key = attn_cview_of(k, ATTN_F32, 1, KV, T, WIDTH);
    f.value = attn_cview_of(v, ATTN_F32, 1, KV, T, WIDTH);
    f.out = attn_view_of(full, ATTN_F32, 1, HEADS, T, WIDTH);
    f.mask.flags = ATTN_MASK_CAUSAL;
    assert_int_equal(attn_sdpa_forward(ctx, &f, NULL, 0), ATTN_OK);
    for (int64_t t = 0; t < T; t++) {
        attn_decode_args a;
        ATTN_ARGS_INIT(&a);
        a.query = f.query;
        a.query.data = q + t * WIDTH;
        a.new_key = f.key;
        a.new_key.data = k + t * WIDTH;
        a.new_value = f.value;
        a.new_value.data = v + t * WIDTH;
        a.query.shape[2] = a.new_key.shape[2] = a.new_value.shape[2] = 1;
        a.cache_key = attn_view_of(store_k, ATTN_F32, 1, KV, T, WIDTH);
        a.cache_value = attn_view_of(store_v, ATTN_F32, 1, KV, T, WIDTH);
        a.out = attn_view_of(step, ATTN_F32, 1, HEADS, 1, WIDTH);
        a.cache_len = &t;
        a.mask.flags = ATTN_MASK_CAUSAL;
        assert_int_equal(attn_sdpa_decode(ctx, &a, NULL, 0), ATTN_OK);
        for (int h = 0; h < HEADS; h++)
            for (int d = 0; d < WIDTH; d++) {
                double off = fabs((double)step[h * WIDTH + d] - (double)full[(h * T + t) * WIDTH + d]);
                if (!(off <= 2 * (WIDTH + T + 30) * 0x1p-23 * (double)most))
                    fail_msg("step %d, head %d, dim %d: off by %g", (int)t, h, d, off);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_fields_are_named),         cmocka_unit_test(unsupported_is_said),
        cmocka_unit_test(a_ring_refuses_what_it_would_lose), cmocka_unit_test(memory_runs_out_cleanly),
        cmocka_unit_test(a_given_workspace_is_enough),    cmocka_unit_test(no_byte_beyond_the_arrays),
        cmocka_unit_test(i8_rows_hold_absmax_over_127),   cmocka_unit_test(steps_equal_rows_of_the_full_pass),
    };
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
