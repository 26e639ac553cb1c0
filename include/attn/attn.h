/* attn.h - exact, linear-memory scaled dot-product attention on CPUs.
 *
 * One stateless call per job: forward, backward, decode over a cache, and what attention read (weights of chosen
 * rows, top-k keys, key mass, row statistics), without ever storing a [seq_q, seq_kv] matrix. This header is the
 * manual: read it from top to bottom.
 *
 *     version, status -> data -> masks -> context -> forward -> backward -> decode -> looking in -> merge -> RoPE
 *
 * Rules for all functions
 *  - All zeros is the documented default: a zeroed options struct asks for plain attention, scale 1/sqrt(head_dim).
 *  - Errors are values. No function aborts or prints. On any error outputs are untouched.
 *  - attn_ctx_error(ctx) says which field and which value was wrong, until the next call on that context.
 *  - Sizes of arrays of numbers are int64_t, in elements; memory sizes are size_t, in bytes.
 *  - Memory is borrowed for the duration of the call only; the caller owns every array.
 *  - Same bits: for one ISA level the result does not depend on the number of threads, on what else is in the
 *    batch, or on whether keys and values are contiguous or paged. A long prompt may be cut into calls of more than
 *    16 rows (queries times heads of a group) each, to the same bits too; calls of fewer rows, decoding among them,
 *    take a way of their own and agree with it to rounding.
 *  - Threads: one call at a time per context; several contexts may be used at once.
 *  - NaN or infinity in a key or value that is excluded for a row never reaches that row; in an admitted position
 *    it does. No byte outside the described arrays is read or written.
 *  - Compiles as C99 and C++11; needs only the three standard headers below.
 */
#ifndef ATTN_ATTN_H
#define ATTN_ATTN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef ATTN_API
#if defined(__GNUC__)
#define ATTN_API __attribute__((visibility("default")))
#else
#define ATTN_API
#endif
#endif

/* ---- Version and status ---------------------------------------------------------------------- */

#define ATTN_VERSION_MAJOR 0
#define ATTN_VERSION_MINOR 1
#define ATTN_VERSION_PATCH 0

/** Version of the library in use, as text ("0.1.0"). Static, never NULL. */
ATTN_API const char *attn_version(void);

typedef enum attn_status {
    ATTN_OK = 0,
    ATTN_ERR_INVALID_ARGUMENT = -1,    /* an argument breaks a rule written in this header        */
    ATTN_ERR_UNSUPPORTED = -2,         /* a valid request that no kernel here serves              */
    ATTN_ERR_OUT_OF_MEMORY = -3,       /* the allocator returned NULL                             */
    ATTN_ERR_WORKSPACE_TOO_SMALL = -4, /* the workspace given is smaller than its query said      */
    ATTN_ERR_IO = -5,                  /* libattn_model: a file cannot be opened, read or written */
    ATTN_ERR_FORMAT = -6,              /* libattn_model: bytes that break their format            */
    ATTN_ERR_CANCELLED = -7            /* libattn_model: a callback asked to stop                 */
} attn_status;                         /* values are ABI: append, never renumber                  */

/** What a status means, in English. Static text, never NULL; an unknown value: "unknown status". */
ATTN_API const char *attn_status_string(attn_status status);

/* ---- Data ------------------------------------------------------------------------------------ */

enum { /* attn_cview.dtype; values are ABI */
    ATTN_F32 = 0,
    ATTN_F64 = 1,
    ATTN_BF16 = 2,
    ATTN_F16 = 3,
    ATTN_I8 = 4,  /* keys and values of a cache, with one f32 scale per token and kv head */
    ATTN_BOOL = 5 /* one byte, nonzero is true                                            */
};

/* A read-only 4-D array: [batch, heads, seq, dim] unless said otherwise. Strides count elements, not
 * bytes. Any stride is valid, negative and the last one too (last stride 1 is the fast path); 0
 * repeats the data (inputs only). data NULL means "not given" where a field is optional. */
typedef struct attn_cview {
    const void *data;
    int32_t dtype;    /* ATTN_F32, ... */
    int32_t reserved; /* 0 */
    int64_t shape[4], stride[4];
} attn_cview;

/* The same, writable. Elements of an output must not overlap each other. */
typedef struct attn_view {
    void *data;
    int32_t dtype;
    int32_t reserved;
    int64_t shape[4], stride[4];
} attn_view;

/** A contiguous array of shape [a, b, c, d]. */
static inline attn_cview attn_cview_of(const void *data, int32_t dtype, int64_t a, int64_t b,
                                       int64_t c, int64_t d)
{
    attn_cview v;
    memset(&v, 0, sizeof v);
    v.data = data;
    v.dtype = dtype;
    v.shape[0] = a;
    v.shape[1] = b;
    v.shape[2] = c;
    v.shape[3] = d;
    v.stride[0] = b * c * d;
    v.stride[1] = c * d;
    v.stride[2] = d;
    v.stride[3] = 1;
    return v;
}

/** The same, writable. */
static inline attn_view attn_view_of(void *data, int32_t dtype, int64_t a, int64_t b, int64_t c,
                                     int64_t d)
{
    attn_view v;
    memset(&v, 0, sizeof v);
    v.data = data;
    v.dtype = dtype;
    v.shape[0] = a;
    v.shape[1] = b;
    v.shape[2] = c;
    v.shape[3] = d;
    v.stride[0] = b * c * d;
    v.stride[1] = c * d;
    v.stride[2] = d;
    v.stride[3] = 1;
    return v;
}

/* Versioned structs: the outermost struct of a call starts with struct_size. Smaller than today's:
 * missing fields read as zero. Larger: the bytes beyond must be zero, else UNSUPPORTED. Nested structs
 * are frozen. */
#define ATTN_ARGS_INIT(p) (memset((p), 0, sizeof *(p)), (void)((p)->struct_size = sizeof *(p)))

/* ---- Which pairs count, and what is added to their scores ------------------------------------- *
 *
 * For query i and key j of head h in batch entry b (or in packed segment b; i and j then restart at 0):
 *
 *     s = scale * <q_i, k_j>
 *     s = softcap * tanh(s / softcap)                               if softcap > 0
 *     s = s - alibi_slopes[h] * |r_i - j|                           r_i = i + bias_offset
 *     s = s + relative[h, clamp(j - r_i, -rel_left, rel_right) + rel_left]
 *     s = s + bias[b, h, i, j]
 *     w_ij = exp(s_ij - lse_i)      lse_i = ln( sum_j exp(s_ij) + exp(sinks[h]) )
 *     out_i = sum_j w_ij v_j
 *
 * A pair counts when every rule given admits it. Query i stands at p_i = i + query_offset on the key axis:
 *
 *     ATTN_MASK_CAUSAL   j <= p_i
 *     ATTN_MASK_WINDOW   p_i - left <= j <= p_i + right, both inclusive; -1 leaves that side open.
 *                        "A sliding window of W keys" is left = W - 1, right = 0.
 *     kv_len, q_len      j < kv_len[b]; i < q_len[b] (rows beyond: out 0, lse -inf, gradient 0)
 *     cu_seqlens_*       packed sequences: a query sees keys of its own segment only; batch must be 1
 *     allow              boolean mask, nonzero admits
 *     bias               -inf excludes; any finite value, however large, is only a number to add
 *
 * CAUSAL or WINDOW with seq_q != seq_kv needs ATTN_MASK_OFFSET: libraries disagree on the alignment, so
 * this one never guesses. Top-left is 0; bottom-right is len_k - len_q. At equal lengths the offset
 * defaults to 0. With cu_seqlens the rule holds for each segment's own lengths; kv_len and q_len do not
 * enter it.
 *
 * A row that sees no key: out 0, lse -inf, gradients 0; with a sink, out 0 and lse = the sink. Never NaN.
 */
enum {
    ATTN_MASK_CAUSAL = 1,
    ATTN_MASK_WINDOW = 2, /* left and right are read */
    ATTN_MASK_OFFSET = 4  /* query_offset, or query_offsets where not NULL, is read */
};

typedef struct attn_mask {        /* all zero: every query sees every key; frozen */
    uint32_t flags;               /* ATTN_MASK_*; unknown bits are UNSUPPORTED */
    uint32_t reserved;            /* 0 */
    int64_t left, right;          /* >= -1 */
    int64_t query_offset;         /* for every batch entry or segment; may be negative */
    const int64_t *query_offsets; /* [batch or n_segments]; replaces query_offset */
    const int64_t *kv_len;        /* [batch or n_segments], 0..keys there; NULL: all keys */
    const int64_t *q_len;         /* [batch or n_segments], 0..queries there; NULL: all queries */
    const int64_t *cu_seqlens_q;  /* [n_segments + 1], ascending from 0, last <= seq_q; the rest is
                                     padding (out 0, lse -inf) */
    const int64_t *cu_seqlens_k;  /* [n_segments + 1], likewise for keys; both or neither */
    int64_t n_segments;
    attn_cview allow;             /* ATTN_BOOL [batch, n_heads, seq_q, seq_kv]; extent 1 or stride 0
                                     broadcasts; indexed on the packed axes when packed */
    attn_cview bias;              /* f32 or the query's dtype, same shape rule */
    const float *alibi_slopes;    /* [n_heads] */
    const float *relative;        /* [n_heads, rel_left + rel_right + 1] */
    int64_t relative_stride;      /* elements between heads; 0: one table for all heads */
    int64_t rel_left, rel_right;  /* >= 0 */
    int64_t bias_offset;          /* r_i = i + bias_offset; independent of query_offset */
    const int64_t *bias_offsets;  /* [batch or n_segments]; replaces bias_offset */
} attn_mask;

/* How keys and values are stored when they are not one plain [batch, n_kv_heads, seq_kv, dim] array.
 * Paged: key and value have shape [n_blocks, n_kv_heads, block_size, dim]; key j of batch entry b is row
 * j % block_size of block block_table[b * block_table_stride + j / block_size]. Ring: shape [batch,
 * n_kv_heads, capacity, dim]; key j lies in slot j % capacity, only the last `capacity` keys before
 * kv_len[b] exist, and the window must exclude older ones. Paged and ring exclude each other, and
 * neither goes with cu_seqlens. */
typedef struct attn_kv_layout {   /* all zero: plain; frozen */
    const int32_t *block_table;   /* NULL: not paged; 0..n_blocks-1 wherever a key is admitted */
    int64_t block_table_stride;   /* entries per batch entry */
    int64_t ring;                 /* 1: ring buffer of key.shape[2] slots */
    int64_t seq_kv;               /* number of logical keys (the seq_kv of masks); read when paged or ring */
} attn_kv_layout;

/* ---- Context --------------------------------------------------------------------------------- */

typedef struct attn_ctx attn_ctx;

enum { /* attn_ctx_options.max_isa; values are ABI. The variable
          ATTN_ISA=scalar|avx2|avx512|avx512bf16|neon|neondot|neonbf16 lowers the level further; an
          unknown name there makes attn_ctx_create fail. */
    ATTN_ISA_BEST = 0,
    ATTN_ISA_SCALAR = 1,
    ATTN_ISA_AVX2 = 2,       /* AVX2, FMA, F16C */
    ATTN_ISA_AVX512 = 3,     /* F, BW, DQ, VL, VNNI */
    ATTN_ISA_AVX512BF16 = 4, /* the same and BF16: products of bf16 arrays in bf16 (attn_sdpa_forward, _backward) */
    ATTN_ISA_NEON = 5,       /* Advanced SIMD */
    ATTN_ISA_NEONDOT = 6,    /* the same and DotProd: 8-bit activations of linear layers */
    ATTN_ISA_NEONBF16 = 7    /* the same and BF16, as at ATTN_ISA_AVX512BF16 */
};

/* Memory for contexts and arenas. allocate returns `alignment`-aligned bytes (a power of two) or NULL. */
typedef struct attn_allocator {
    void *user;
    void *(*allocate)(void *user, size_t bytes, size_t alignment);
    void (*release)(void *user, void *pointer);
} attn_allocator;

/* Runs body(arg, 0) ... body(arg, n - 1), each exactly once, in any order, on any threads, and returns
 * when all have returned. It is called with n <= n_threads. */
typedef void (*attn_parallel_for)(void *user, int64_t n, void (*body)(void *arg, int64_t index),
                                  void *arg);

typedef struct attn_ctx_options {
    size_t struct_size;
    int32_t n_threads;               /* 0: ATTN_NUM_THREADS from the environment, else as many as the
                                        process may use (affinity mask, container quota); at most 1024 */
    int32_t max_isa;                 /* 0: the best this CPU and system offer */
    const attn_allocator *allocator; /* NULL: aligned memory from the system; copied */
    attn_parallel_for parallel_for;  /* NULL: the library's own pool, which sleeps between calls */
    void *parallel_for_user;
} attn_ctx_options;

/** Creates a context: the threads, the memory and the kernels that calls use.
 *
 * options may be NULL (all defaults). On error *ctx is NULL and attn_ctx_error(NULL) says why.
 * Returns OK; INVALID_ARGUMENT; UNSUPPORTED (this machine lacks the level that max_isa or ATTN_ISA
 * names); OUT_OF_MEMORY. */
ATTN_API attn_status attn_ctx_create(const attn_ctx_options *options, attn_ctx **ctx);

/** Ends the context's threads and frees its memory. NULL is fine. No call may be running on it. */
ATTN_API void attn_ctx_destroy(attn_ctx *ctx);

/** The last error on this context, naming field and value; "" when there was none. Owned by the context.
 * ctx NULL: why the last attn_ctx_create of this thread failed. */
ATTN_API const char *attn_ctx_error(const attn_ctx *ctx);

/** Name of the ISA level in use ("avx2", ...). Static. ctx NULL: the best level here. */
ATTN_API const char *attn_ctx_isa(const attn_ctx *ctx);

/** Number of threads that a large call uses, the caller's included. */
ATTN_API int32_t attn_ctx_threads(const attn_ctx *ctx);

/* ---- Forward --------------------------------------------------------------------------------- */

enum { /* attn_sdpa_args.flags */
    ATTN_SCALE_GIVEN = 1 /* take scale as it is: 0 and negative values too */
};

typedef struct attn_sdpa_args {
    size_t struct_size;     /* set by ATTN_ARGS_INIT */
    attn_cview query;       /* [batch, n_heads,    seq_q,  head_dim]  f32, f64, bf16, f16 */
    attn_cview key;         /* [batch, n_kv_heads, seq_kv, head_dim]  query's dtype; with f32, bf16 or
                               f16 queries also any of f32, bf16, f16, i8 */
    attn_cview value;       /* [batch, n_kv_heads, seq_kv, value_dim] key's dtype */
    attn_view out;          /* [batch, n_heads,    seq_q,  value_dim] query's dtype; or f32 unless
                               the query is f64 */
    void *lse;              /* [batch, n_heads, seq_q] contiguous, natural log; f64 when query is, else
                               f32; NULL: not wanted */
    attn_mask mask;         /* all zero: every query sees every key */
    double scale;           /* 0: 1/sqrt(head_dim); with ATTN_SCALE_GIVEN any finite number */
    double softcap;         /* 0: off; else > 0 */
    uint64_t flags;         /* ATTN_SCALE_GIVEN */
    const float *sinks;     /* [n_heads]: one more logit in each row's denominator, without a value;
                               NULL: none */
    attn_kv_layout layout;  /* all zero: key and value are plain arrays */
    attn_cview key_scale;   /* i8 keys: f32 [as key.shape[0..2], 1] */
    attn_cview value_scale; /* i8 values: likewise */
    double dropout_p;       /* 0: off; 0..1: kept weights are multiplied by 1/(1-p); lse ignores it */
    uint64_t dropout_seed;  /* Philox key; the counter is (batch entry or segment, head, i, j) */
    attn_cview keep;        /* instead of the generator, at dropout_p 0 too: ATTN_BOOL [batch, n_heads,
                               seq_q, seq_kv], nonzero keeps; broadcasts like allow */
} attn_sdpa_args;

/** out = softmax(scale * query key^T + mask) value, one row per query, never storing the scores.
 *
 * Online softmax over key blocks (Milakov and Gimelshein 2018; Rabe and Staats 2021; Dao et al. 2022,
 * section 3.1). n_heads must be a multiple of n_kv_heads; query head h reads kv head
 * h / (n_heads / n_kv_heads). head_dim and value_dim are free and separate; head_dim 0 needs
 * ATTN_SCALE_GIVEN. out may not overlap any input. Extents of 0 are valid: seq_kv 0 writes out 0 and
 * lse -inf (or the sink). f16 and bf16 sums are kept in f32 and the result is rounded once.
 *
 * Error against exact arithmetic, u = 2^-24 (2^-53 for f64), A the largest size of a row's scores (scale * sum_d
 * |q_d k_d| and what is added to it), w the exact weights:
 *     |out - exact| <= (2 (head_dim + 8) u A + (2 keys + 24) u) * sum_j w_j |v_j|, then one rounding to out's dtype
 *     |lse - exact| <= (head_dim + 8) u A + (keys + 16) u + 2 u |lse|
 * Where f32 is used, a weight below 2^-126 of its row's largest may be 0.
 * At ATTN_ISA_AVX512BF16 and _NEONBF16, where query, key, value and out are all bf16, rows are more than 16 (queries times
 * heads of a group) and nothing is dropped, products are in bf16: each weight is rounded to bf16, the sum that divides is of
 * the rounded weights, lse is of the exact ones. That adds at most 2^-6.99 * sum_j w_j |v_j| to out; numbers below 2^-126 count as 0.
 * At _NEONBF16 a sum of n products has (n + 1) u of their sizes, not n u: the bounds above have room for that.
 *
 * workspace: attn_sdpa_workspace() bytes, 64-byte aligned: then the call allocates nothing. Or NULL, 0 to
 * use the context's arena (grown when needed, kept until destroy). Memory is linear in seq_q and seq_kv.
 *
 * Returns OK; INVALID_ARGUMENT; UNSUPPORTED for a dtype mix without a kernel; WORKSPACE_TOO_SMALL;
 * OUT_OF_MEMORY. */
ATTN_API attn_status attn_sdpa_forward(attn_ctx *ctx, const attn_sdpa_args *args, void *workspace,
                                       size_t workspace_bytes);

/** Bytes of workspace that attn_sdpa_forward needs for these arguments on this context, after checking
 * them. Data pointers of query, key, value and out are not read. Errors as attn_sdpa_forward. */
ATTN_API attn_status attn_sdpa_workspace(attn_ctx *ctx, const attn_sdpa_args *args, size_t *bytes);

/* What attn_sdpa_forward will do with given arguments. Texts are static. */
typedef struct attn_sdpa_plan {
    size_t struct_size;
    const char *isa;                /* "avx2", ... */
    const char *kernel;             /* name of the dataflow */
    int64_t tile_rows, tile_keys;   /* register tile */
    int64_t query_block, key_block; /* rows and keys of one step of a task */
    int64_t n_tasks;                /* units handed to threads */
    int64_t n_splits;               /* parts that each row's keys are cut into (decode); 1: not cut */
    int32_t n_threads;              /* threads that this call would use, the caller's included */
    int32_t reserved;
    size_t workspace_bytes;
} attn_sdpa_plan;

/** Fills plan (whose struct_size is set) for these arguments. Errors as attn_sdpa_workspace. */
ATTN_API attn_status attn_sdpa_describe(attn_ctx *ctx, const attn_sdpa_args *args, attn_sdpa_plan *plan);

/* ---- Backward -------------------------------------------------------------------------------- */

enum { /* attn_sdpa_backward_args.flags */
    ATTN_GRAD_ACCUMULATE = 1 /* add to the gradient arrays instead of overwriting them */
};

typedef struct attn_sdpa_backward_args {
    size_t struct_size;
    const attn_sdpa_args *forward; /* the forward call's arguments; out and lse hold its results. key
                                      and value must be plain arrays of the query's dtype */
    attn_cview d_out;              /* [batch, n_heads, seq_q, value_dim], out's dtype or f32 */
    const void *d_lse;             /* gradient of lse, its dtype and shape; NULL: 0 */
    attn_view d_query;             /* query's shape; its dtype or f32; data NULL: not wanted. The same
                                      holds for the next two */
    attn_view d_key;
    attn_view d_value;
    attn_view d_bias;              /* gradient of mask.bias, f32 (f64 with f64 queries); extent 1 in
                                      any axis sums over it; data NULL: not wanted */
    float *d_relative;             /* gradient of mask.relative, same layout; NULL: not wanted */
    float *d_sinks;                /* [n_heads]; NULL: not wanted */
    uint64_t flags;                /* ATTN_GRAD_ACCUMULATE */
} attn_sdpa_backward_args;

/** Gradients of attn_sdpa_forward for a loss with d(loss)/d(out) = d_out and d(loss)/d(lse) = d_lse.
 *
 * Scores are recomputed from lse (Dao et al. 2022, algorithm 4; D_i = <d_out_i, out_i>); memory is linear.
 * Gradients of keys and values are summed over the query heads that share them. Sums are f32 or better,
 * in a fixed order; small problems are computed in double in every dtype. Dropout repeats the forward pattern.
 * Excluded pairs have gradient 0, and so have rows without keys. Gradient arrays may not overlap inputs or
 * each other. Workspace as for forward.
 *
 * Error against exact arithmetic, u, A and w as for forward (f32 inside for f32, bf16 and f16 arrays; A / softcap
 * for A where softcap < 1), r the rounding of out's dtype (f32 2^-24, bf16 2^-8, f16 2^-11, f64 2^-53; twice that
 * where forward's products were in bf16), f the dropout factor (0 or 1/(1-p)), O_i = sum_j w_ij f_ij |v_j|,
 * M_ij = <|d_out_i|, f_ij |v_j| + O_i> + |d_lse_i|:
 *     e_i  = 2 ((head_dim + 8) u A + (keys + 16) u + 4 u |lse_i|)                 a weight, relative
 *     E_ij = w_ij ((e_i + 4 (value_dim + 8) u) M_ij + 2 r <|d_out_i|, O_i>)       the gradient of a score
 *     d_query, d_key:              sum of |scale| E_ij |k_j|, or |q_i|, over the pairs that the element sums
 *     d_bias, d_relative, d_sinks: sum of E_ij (sinks: w and M of the sink, whose value is 0)
 *     d_value:                     sum of e_i w_ij f_ij |d_out_i|
 * and n u of the summed sizes for a sum of n terms (w M for E, the old value too when accumulating), then one
 * rounding to the gradient's dtype. Where f32 is used, a weight below 2^-126 may be 0.
 * At ATTN_ISA_AVX512BF16 and _NEONBF16, where query, key, value, out and d_out are all bf16 and nothing is dropped, larger
 * problems multiply in bf16: each weight, and each scaled gradient of a score, is rounded to bf16 once. That adds at most
 * 2^-7.98 w_ij M_ij to E_ij in d_query and d_key (not in the gradients of tables) and 2^-7.98 to e_i in d_value; numbers below 2^-126
 * count as 0. At _NEONBF16 a sum of n terms has (n + 1) u.
 * Returns as attn_sdpa_forward; INVALID_ARGUMENT too when forward->lse is NULL and query has rows. */
ATTN_API attn_status attn_sdpa_backward(attn_ctx *ctx, const attn_sdpa_backward_args *args,
                                        void *workspace, size_t workspace_bytes);

/** Bytes of workspace that attn_sdpa_backward needs. */
ATTN_API attn_status attn_sdpa_backward_workspace(attn_ctx *ctx, const attn_sdpa_backward_args *args,
                                                  size_t *bytes);

/* ---- Decode and chunked prefill over a cache -------------------------------------------------- */

typedef struct attn_decode_args {
    size_t struct_size;
    attn_cview query;            /* [batch, n_heads, n_new, head_dim] */
    attn_cview new_key;          /* [batch, n_kv_heads, n_new, head_dim] f32, f64, bf16 or f16: appended,
                                    converted to the cache's dtype (nearest even; i8: absmax/127 per
                                    token and kv head) */
    attn_cview new_value;        /* [batch, n_kv_heads, n_new, value_dim]. Both data NULL: the caller has
                                    appended them already */
    attn_view cache_key;         /* the caller's cache: [batch, n_kv_heads, capacity, head_dim], or paged,
                                    or a ring; f32, f64 (with f64 queries), bf16, f16, i8 */
    attn_view cache_value;
    attn_view cache_key_scale;   /* i8 caches: as attn_sdpa_args.key_scale */
    attn_view cache_value_scale;
    attn_kv_layout layout;       /* seq_kv is not read here */
    const int64_t *cache_len;    /* [batch]: tokens in the cache before this call */
    const int64_t *new_len;      /* [batch]: how many of n_new are real, 0..n_new; NULL: n_new for all */
    attn_cview prefix_key;       /* a prefix that every sequence shares, stored once: [1, n_kv_heads,
                                    prefix_len, head_dim], the cache's dtype (not i8); data NULL: none.
                                    Slot 0 of the cache is then position prefix_len */
    attn_cview prefix_value;
    attn_view out;               /* [batch, n_heads, n_new, value_dim]; rows beyond new_len are 0 */
    void *lse;                   /* as in forward; NULL: not wanted */
    attn_mask mask;              /* CAUSAL, WINDOW, allow, bias, alibi, relative; the key axis of allow and
                                    bias counts from position 0 and must reach the longest sequence.
                                    kv_len, q_len, cu_seqlens and all offsets must be unset: new token i
                                    of entry b stands at prefix_len + cache_len[b] + i */
    double scale, softcap;
    uint64_t flags;              /* ATTN_SCALE_GIVEN */
    const float *sinks;
} attn_decode_args;

/** Appends new keys and values to the cache and attends with the new queries to everything, in one call.
 *
 * Any number of new tokens (1 is decoding, thousands are chunked prefill); sequences of different lengths
 * together. cache_len is not changed: the caller adds new_len when it accepts the tokens. Without
 * ATTN_MASK_CAUSAL new tokens see each other (a tree of draft tokens: mask.allow). Long caches are split
 * over threads by each sequence's own length only, and merged in a fixed order (Dao et al. 2023,
 * Flash-Decoding). A shared prefix is read once for all sequences and merged by lse (Juravsky et al. 2024,
 * Hydragen). Cache arrays of different batch entries may not overlap (paged: blocks being written may not
 * be shared).
 * Returns as attn_sdpa_forward; INVALID_ARGUMENT when cache_len + new_len exceeds the capacity
 * (block_table_stride * block_size when paged), or a ring's window reaches a slot that is overwritten. */
ATTN_API attn_status attn_sdpa_decode(attn_ctx *ctx, const attn_decode_args *args, void *workspace,
                                      size_t workspace_bytes);

/** Bytes of workspace that attn_sdpa_decode needs. */
ATTN_API attn_status attn_sdpa_decode_workspace(attn_ctx *ctx, const attn_decode_args *args, size_t *bytes);

/* ---- Looking in, without N x N ----------------------------------------------------------------- *
 *
 * These take the forward call's arguments. value and out may be absent (data NULL). Where lse is given it
 * is read, so that one further pass over the keys is enough; where it is NULL, or so large (above 1024; f64 2^20)
 * that its rounding would show in the weights, it is computed first.
 * Weights are those before dropout; excluded pairs have weight 0. A sink takes its share and has no
 * column. With cu_seqlens, queries and keys are counted on the packed axes. They use the context's arena.
 * Errors as attn_sdpa_forward; a row out of range is INVALID_ARGUMENT. */

typedef struct attn_row { /* one row to look at */
    int64_t batch, head, query;
} attn_row;

/** Attention weights of chosen rows: weights[0, 0, r, j] for r < n_rows, j < seq_kv; f32 or f64. */
ATTN_API attn_status attn_sdpa_rows(attn_ctx *ctx, const attn_sdpa_args *args, const attn_row *rows,
                                    int64_t n_rows, const attn_view *weights);

/** The k most-weighted keys of chosen rows, descending; equal weights by ascending index, NaN last. Rows
 * with fewer than k admitted keys end with index -1, weight 0. rows NULL: every row in the order batch,
 * head, query; n_rows must then be batch * n_heads * seq_q.
 * indices and weights: [n_rows, k] contiguous. */
ATTN_API attn_status attn_sdpa_topk(attn_ctx *ctx, const attn_sdpa_args *args, const attn_row *rows,
                                    int64_t n_rows, int64_t k, int64_t *indices, float *weights);

/** How much weight each key receives: mass[b, h, j, 0] = sum over queries of w_ij; f32 or f64,
 * [batch, n_heads, seq_kv, 1]. */
ATTN_API attn_status attn_sdpa_key_mass(attn_ctx *ctx, const attn_sdpa_args *args, const attn_view *mass);

typedef struct attn_row_stat { /* statistics of one row of weights */
    double entropy;            /* -sum_j w ln w over keys, in nats (a sink's share is left out) */
    double mean_distance;      /* sum_j w |p_i - j| / sum_j w; p_i as in the mask. 0 for an empty row */
    double max_weight;         /* the largest weight ... */
    int64_t max_key;           /* ... and the lowest key that has it; -1: no key */
    double key_weight;         /* sum_j w: 1 without a sink */
} attn_row_stat;

/** Statistics of chosen rows: stats[n_rows]. rows NULL: every row, as in attn_sdpa_topk. */
ATTN_API attn_status attn_sdpa_row_stats(attn_ctx *ctx, const attn_sdpa_args *args, const attn_row *rows,
                                         int64_t n_rows, attn_row_stat *stats);

/* ---- Merge ------------------------------------------------------------------------------------- */

/** Combines partial results over disjoint key sets:
 * lse = ln sum_p exp(lse_p), out = sum_p exp(lse_p - lse) out_p.
 *
 * outs: [n_parts] arrays of one shape and dtype; lses: [n_parts] pointers to contiguous [batch, heads, seq]
 * arrays (f64 when outs are, else f32). A part with lse -inf is neutral, whatever its out holds; all of
 * them -inf: 0 and -inf. out may be one of outs, lse one of lses (NULL: not wanted). Parts are combined in
 * the order given. Returns OK, INVALID_ARGUMENT. */
ATTN_API attn_status attn_sdpa_merge(attn_ctx *ctx, const attn_cview *outs, const void *const *lses,
                                     int64_t n_parts, const attn_view *out, void *lse);

/* ---- Rotary position embedding ------------------------------------------------------------------ */

enum { /* attn_rope_args.flags */
    ATTN_ROPE_INTERLEAVED = 1, /* pairs (2i, 2i+1); else halves (i, i + rotary_dim/2) */
    ATTN_ROPE_INVERSE = 2,     /* rotate back: the gradient of the rotation */
    ATTN_ROPE_YARN_EXACT = 4   /* YARN: correction range not rounded to whole dimensions (gpt-oss) */
};

enum { /* attn_rope_args.scaling */
    ATTN_ROPE_PLAIN = 0,
    ATTN_ROPE_LINEAR = 1, /* position / factor (Chen et al. 2023) */
    ATTN_ROPE_NTK = 2,    /* base * factor^(dim/(dim-2)) */
    ATTN_ROPE_LLAMA3 = 3, /* low_freq_factor, high_freq_factor, original_length (Llama 3.1) */
    ATTN_ROPE_YARN = 4    /* beta_fast, beta_slow, original_length, attention_factor (Peng et al. 2023) */
};

typedef struct attn_rope_args {
    size_t struct_size;
    attn_cview x;             /* [batch, heads, seq, head_dim] f32, f64, bf16, f16 */
    attn_view out;            /* x's shape and dtype; may be x itself (same data and strides) */
    int64_t rotary_dim;       /* even; the first rotary_dim of head_dim turn, the rest is copied;
                                 0: head_dim */
    uint64_t flags;           /* ATTN_ROPE_INTERLEAVED, ATTN_ROPE_INVERSE */
    double base;              /* theta; 0: 10000 */
    int64_t position_offset;  /* position of sequence index 0 */
    const int64_t *positions; /* positions[b * positions_stride + s] replaces offset + s; NULL: unused */
    int64_t positions_stride; /* 0: one row for all batch entries */
    int32_t scaling;          /* ATTN_ROPE_PLAIN, ... */
    int32_t reserved;
    double factor;            /* LINEAR, NTK, LLAMA3, YARN: >= 1 */
    double low_freq_factor, high_freq_factor; /* LLAMA3; 0: 1 and 4 */
    double beta_fast, beta_slow;              /* YARN; 0: 32 and 1 */
    double attention_factor;                  /* YARN: multiplies cos and sin; 0: 0.1 ln(factor) + 1 */
    int64_t original_length;                  /* LLAMA3, YARN: positions the model was trained on */
    const float *cos_table, *sin_table;       /* [table_rows, rotary_dim/2], row = position: replace base
                                                 and scaling; both or neither */
    int64_t table_rows;
} attn_rope_args;

/** Rotates pairs of each head's vector by position * frequency (Su et al. 2021, section 3.2.2): (a, b)
 * becomes (a cos - b sin, a sin + b cos). Angles are computed in f64. Returns OK; INVALID_ARGUMENT;
 * UNSUPPORTED for a dtype without a kernel. */
ATTN_API attn_status attn_rope(attn_ctx *ctx, const attn_rope_args *args);

#ifdef __cplusplus
}
#endif
#endif /* ATTN_ATTN_H */
