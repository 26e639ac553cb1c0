/* random_problem.h - random attention problems for property tests: every mask rule, seeded and printable. Owns its arrays. */
#ifndef TESTS_RANDOM_PROBLEM_H
#define TESTS_RANDOM_PROBLEM_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "attn/attn.h"

typedef struct rng {
    uint64_t state;
} rng;

static inline uint64_t rng_next(rng *r)
{ /* SplitMix64 (Steele, Lea, Flood 2014) */
    uint64_t z = r->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}
static inline double rng_unit(rng *r)
{
    return (double)(rng_next(r) >> 11) * 0x1p-53;
}
static inline int64_t rng_range(rng *r, int64_t low, int64_t high) /* low..high, both included */
{
    return low + (int64_t)(rng_next(r) % (uint64_t)(high - low + 1));
}
static inline bool rng_chance(rng *r, double p)
{
    return rng_unit(r) < p;
}
static inline double rng_normal(rng *r)
{
    double u = rng_unit(r) + 1e-12, v = rng_unit(r);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

typedef struct random_problem {
    attn_sdpa_args args;
    void *owned[512];
    int n_owned;
} random_problem;

static inline void *problem_memory(random_problem *p, size_t bytes)
{
    void *memory = calloc(1, bytes ? bytes : 1);
    p->owned[p->n_owned++] = memory;
    return memory;
}
static inline void random_problem_free(random_problem *p)
{
    while (p->n_owned)
        free(p->owned[--p->n_owned]);
}

static inline attn_cview problem_floats(random_problem *p, rng *r, int64_t a, int64_t b, int64_t c, int64_t d, double amp)
{
    int64_t n = a * b * c * d;
    float *x = problem_memory(p, (size_t)n * sizeof *x);
    for (int64_t k = 0; k < n; k++)
        x[k] = (float)(amp * rng_normal(r));
    return attn_cview_of(x, ATTN_F32, a, b, c, d);
}

/* f32 query, key, value, out and lse of up to max_seq rows, with a random mix of rules. */
static inline void random_problem_make(random_problem *p, rng *r, int64_t max_seq)
{
    memset(p, 0, sizeof *p);
    attn_sdpa_args *a = &p->args;
    ATTN_ARGS_INIT(a);
    bool packed = rng_chance(r, 0.25);
    int64_t batch = packed ? 1 : rng_range(r, 1, 3), kv = rng_range(r, 1, 3), heads = kv * rng_range(r, 1, 3);
    int64_t nq = rng_range(r, 1, max_seq), nk = rng_chance(r, 0.5) ? nq : rng_range(r, 1, max_seq);
    int64_t d = rng_range(r, 1, 20), dv = rng_range(r, 1, 20);
    a->query = problem_floats(p, r, batch, heads, nq, d, 1);
    a->key = problem_floats(p, r, batch, kv, nk, d, 1);
    a->value = problem_floats(p, r, batch, kv, nk, dv, 1);
    a->out = attn_view_of(problem_memory(p, (size_t)(batch * heads * nq * dv) * 4), ATTN_F32, batch, heads, nq, dv);
    a->lse = problem_memory(p, (size_t)(batch * heads * nq) * 4);
    attn_mask *m = &a->mask;
    if (rng_chance(r, 0.5))
        m->flags |= ATTN_MASK_CAUSAL;
    if (rng_chance(r, 0.3)) {
        m->flags |= ATTN_MASK_WINDOW;
        m->left = rng_range(r, -1, 6);
        m->right = rng_range(r, -1, 6);
    }
    int64_t entries = packed ? rng_range(r, 1, 4) : batch;
    if (packed) {
        int64_t *cq = problem_memory(p, (size_t)(entries + 1) * 8), *ck = problem_memory(p, (size_t)(entries + 1) * 8);
        for (int64_t s = 1; s <= entries; s++) {
            cq[s] = rng_range(r, cq[s - 1], nq);
            ck[s] = rng_range(r, ck[s - 1], nk);
        }
        m->cu_seqlens_q = cq;
        m->cu_seqlens_k = ck;
        m->n_segments = entries;
    }
    if (m->flags) {
        int64_t *offsets = problem_memory(p, (size_t)entries * 8);
        m->flags |= ATTN_MASK_OFFSET;
        for (int64_t s = 0; s < entries; s++)
            offsets[s] = rng_range(r, -3, max_seq / 2);
        m->query_offsets = offsets;
    }
    if (!packed && rng_chance(r, 0.4)) {
        int64_t *kl = problem_memory(p, (size_t)entries * 8), *ql = problem_memory(p, (size_t)entries * 8);
        for (int64_t s = 0; s < entries; s++) {
            kl[s] = rng_range(r, 0, nk);
            ql[s] = rng_range(r, 0, nq);
        }
        m->kv_len = kl;
        m->q_len = ql;
    }
    if (rng_chance(r, 0.3)) {
        m->bias = problem_floats(p, r, rng_chance(r, 0.5) ? batch : 1, rng_chance(r, 0.5) ? heads : 1,
                                 rng_chance(r, 0.7) ? nq : 1, rng_chance(r, 0.7) ? nk : 1, 2);
        float *x = (float *)(uintptr_t)m->bias.data;
        for (int64_t k = 0; k < m->bias.shape[0] * m->bias.shape[1] * m->bias.shape[2] * m->bias.shape[3]; k++)
            if (rng_chance(r, 0.2))
                x[k] = -INFINITY;
    }
    if (rng_chance(r, 0.3)) {
        int64_t bm = rng_chance(r, 0.5) ? batch : 1, hm = rng_chance(r, 0.5) ? heads : 1;
        uint8_t *x = problem_memory(p, (size_t)(bm * hm * nq * nk));
        for (int64_t k = 0; k < bm * hm * nq * nk; k++)
            x[k] = rng_chance(r, 0.7);
        m->allow = attn_cview_of(x, ATTN_BOOL, bm, hm, nq, nk);
    }
    if (rng_chance(r, 0.3)) {
        float *slopes = problem_memory(p, (size_t)heads * 4);
        for (int64_t h = 0; h < heads; h++)
            slopes[h] = (float)rng_unit(r);
        m->alibi_slopes = slopes;
        m->bias_offset = rng_range(r, -2, 5);
    }
    if (rng_chance(r, 0.3)) {
        m->rel_left = rng_range(r, 0, 5);
        m->rel_right = rng_range(r, 0, 5);
        m->relative_stride = rng_chance(r, 0.7) ? m->rel_left + m->rel_right + 1 : 0;
        m->relative = problem_floats(p, r, 1, 1, heads, m->rel_left + m->rel_right + 1, 1).data;
    }
    if (rng_chance(r, 0.3))
        a->softcap = 1 + 3 * rng_unit(r);
    if (rng_chance(r, 0.3))
        a->sinks = problem_floats(p, r, 1, 1, 1, heads, 2).data;
    if (rng_chance(r, 0.2)) {
        a->flags |= ATTN_SCALE_GIVEN;
        a->scale = rng_normal(r) * 0.5;
    }
}

#endif
