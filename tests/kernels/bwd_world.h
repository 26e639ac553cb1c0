/* bwd_world.h - what a backward pass should give, by the plain reference in double from exact weights, and how far rounding may
 * move it: the bound that attn/attn.h states for attn_sdpa_backward. */
#ifndef TESTS_BWD_WORLD_H
#define TESTS_BWD_WORLD_H

#include <stdio.h>
#include <stdlib.h>
#include "kernels/ref/ref_backward.h"
#include "ops/sdpa/backward_paths.h"
#include "ops/sdpa/validate_backward.h"
#include "kernels/score_size.h"
#include "kernels/table.h"
#include "core/cpu.h"

enum { WANT_QUERY, WANT_KEY, WANT_VALUE, WANT_BIAS, WANT_RELATIVE, WANT_SINKS, N_WANTED };
static const char *const wanted_names[N_WANTED] = {"d_query", "d_key", "d_value", "d_bias", "d_relative", "d_sinks"};

/* Contiguous, in the gradients' own shapes. */
typedef struct bwd_wanted {
    double *want[N_WANTED], *bound[N_WANTED], *terms[N_WANTED]; /* terms: sum of the sizes that the element sums */
    int64_t count[N_WANTED], *n_terms[N_WANTED];
    attn_ref_row *rows;
    double out_units; /* how far forward's out may be off, in units of its dtype */
    double rounding;  /* of a weight and of the gradient of a score before products take them: bf16, or none */
} bwd_wanted;

static inline double unit_of(int32_t dtype)
{
    return dtype == ATTN_BF16 ? 0x1p-8 : dtype == ATTN_F16 ? 0x1p-11 : dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24;
}

/* One term of element n. */
static inline void wanted_add(bwd_wanted *w, int what, int64_t n, double term, double size, double bound)
{
    w->want[what][n] += term;
    w->terms[what][n] += size;
    w->bound[what][n] += bound;
    w->n_terms[what][n]++;
}

static inline void wanted_add_row(bwd_wanted *w, int what, int64_t row, double factor, double size, double bound, const attn_cview *v,
                                  int64_t b, int64_t h, int64_t n)
{
    for (int64_t d = 0; d < v->shape[3]; d++) {
        double x = attn_cview_at(v, b, h, n, d);
        wanted_add(w, what, row * v->shape[3] + d, factor * x, size * fabs(x), bound * fabs(x));
    }
}

/* <x, y> and <|x|, |y|> of two rows. */
static inline void dots(const attn_cview *x, int64_t h, int64_t n, const attn_cview *y, int64_t g, int64_t m, int64_t b, double *dot, double *size)
{
    *dot = *size = 0;
    for (int64_t d = 0; d < x->shape[3]; d++) {
        double term = attn_cview_at(x, b, h, n, d) * attn_cview_at(y, b, g, m, d);
        *dot += term;
        *size += fabs(term);
    }
}

/* Exact lse and D - d_lse of a row, and sum_j w f <|d_out|, |v_j|>. False: the row takes part in nothing. */
static inline bool exact_row_of(const attn_bwd_problem *g, const attn_entry *e, int64_t h, int64_t i, attn_ref_row *row, double *out_size)
{
    const attn_problem *p = &g->forward;
    int64_t lo, hi, b = e->batch, q = e->q_begin + i, kv = h / p->group, at = (b * p->n_heads + h) * p->seq_q + q;
    double score, dot, size;
    attn_ref_row_lse_parts(p, e, h, i, &row->lse, &row->rest);
    row->delta = *out_size = 0;
    attn_row_range(p, e, i, &lo, &hi);
    for (int64_t j = lo; j < hi; j++)
        if (attn_ref_score(p, e, h, i, j, &score)) {
            double w = exp(score - row->lse - row->rest) * attn_dropout_factor(p, e, h, i, j);
            dots(&g->a.d_out, h, q, &p->a.value, kv, e->k_begin + j, b, &dot, &size);
            row->delta += w * dot;
            *out_size += w * size;
        }
    if (g->a.d_lse)
        row->delta -= attn_load_element(g->a.d_lse, p->lse_dtype, at);
    return row->lse != -INFINITY;
}

/* A: largest size of the row's scores. Biases of equal, enormous size are left out: what they swallow is 0 in any precision. */
static inline double largest_size(const attn_problem *p, const attn_entry *e, int64_t h, int64_t i)
{
    int64_t lo, hi;
    double size = p->a.sinks ? fabs((double)p->a.sinks[h]) : 0;
    attn_row_range(p, e, i, &lo, &hi);
    for (int64_t j = lo; j < hi; j++) {
        double here = score_size(p, e, h, i, j);
        size = here > size && here < 1e30 ? here : size;
    }
    return p->a.softcap > 0 && p->a.softcap < 1 ? size / p->a.softcap : size;
}

static inline int64_t bias_index(const attn_bwd_problem *g, int64_t b, int64_t h, int64_t q, int64_t k)
{
    const int64_t *s = g->a.d_bias.shape;
    return (((s[0] > 1 ? b : 0) * s[1] + (s[1] > 1 ? h : 0)) * s[2] + (s[2] > 1 ? q : 0)) * s[3] + (s[3] > 1 ? k : 0);
}

static inline void wanted_row(const attn_bwd_problem *g, const attn_entry *e, int64_t h, int64_t i, bwd_wanted *w)
{
    const attn_problem *p = &g->forward;
    const attn_mask *m = &p->a.mask;
    int64_t lo, hi, b = e->batch, q = e->q_begin + i, kv = h / p->group, at = (b * p->n_heads + h) * p->seq_q + q;
    double u = p->a.query.dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24, out_size, dot, v_size, d_dot, tiny = u < 0x1p-30 ? 0x1p-1022 : 0x1p-126;
    attn_ref_row *row = &w->rows[at];
    if (!exact_row_of(g, e, h, i, row, &out_size))
        return;
    double d_lse = g->a.d_lse ? fabs(attn_load_element(g->a.d_lse, p->lse_dtype, at)) : 0;
    attn_row_range(p, e, i, &lo, &hi);
    double lse_size = fabs(row->lse) < 1e30 ? fabs(row->lse) : 0;
    double off = 2 * ((double)(p->head_dim + 8) * u * largest_size(p, e, h, i) + (double)(hi - lo + 16) * u + 4 * u * lse_size);
    double d_off = 4 * (double)(p->value_dim + 8) * u, stored = w->out_units * unit_of(p->a.out.dtype) * out_size;
    for (int64_t j = lo; j < hi; j++) {
        attn_ref_pair pair;
        int64_t k = e->k_begin + j;
        double score;
        if (!attn_ref_score(p, e, h, i, j, &score))
            continue;
        dots(&p->a.query, h, q, &p->a.key, kv, k, b, &dot, &v_size);
        dots(&g->a.d_out, h, q, &p->a.value, kv, k, b, &d_dot, &v_size);
        if (!attn_ref_backward_pair_of(g, w->rows, e, h, i, j, dot, d_dot, &pair))
            continue;
        double f = attn_dropout_factor(p, e, h, i, j), weight = exp(score - row->lse - row->rest), moved = f * v_size + out_size + d_lse;
        double size = weight * moved + tiny * (1 + moved), stated = weight * ((off + d_off) * moved + stored) + tiny * (1 + moved);
        double scale = fabs(p->scale), bound = stated + w->rounding * weight * moved;
        wanted_add_row(w, WANT_QUERY, at, pair.d_dot, scale * size, scale * bound, &p->a.key, b, kv, k);
        wanted_add_row(w, WANT_KEY, (b * p->n_kv_heads + kv) * p->seq_kv + k, pair.d_dot, scale * size, scale * bound, &p->a.query, b, h, q);
        wanted_add_row(w, WANT_VALUE, (b * p->n_kv_heads + kv) * p->seq_kv + k, pair.weight, weight * f,
                       (off + w->rounding) * weight * f + tiny * f, &g->a.d_out, b, h, q);
        if (g->a.d_bias.data)
            wanted_add(w, WANT_BIAS, bias_index(g, b, h, q, k), pair.d_score, size, stated);
        if (g->a.d_relative) {
            int64_t distance = j - i - e->bias_offset;
            distance = distance < -m->rel_left ? -m->rel_left : distance > m->rel_right ? m->rel_right : distance;
            wanted_add(w, WANT_RELATIVE, (m->relative_stride ? h * (m->rel_left + m->rel_right + 1) : 0) + distance + m->rel_left,
                       pair.d_score, size, stated);
        }
    }
    if (g->a.d_sinks) {
        double weight = exp((double)p->a.sinks[h] - row->lse - row->rest), moved = out_size + d_lse;
        wanted_add(w, WANT_SINKS, h, -weight * row->delta, weight * moved + tiny, weight * ((off + d_off) * moved + stored) + tiny);
    }
}

static inline int64_t elements(const attn_view *v)
{
    return v->data ? v->shape[0] * v->shape[1] * v->shape[2] * v->shape[3] : 0;
}

static inline bwd_wanted wanted_make(const attn_bwd_problem *g, const char *isa)
{
    const attn_problem *p = &g->forward;
    const attn_mask *m = &p->a.mask;
    bwd_wanted w = {.count = {elements(&g->a.d_query), elements(&g->a.d_key), elements(&g->a.d_value), elements(&g->a.d_bias),
                              g->a.d_relative ? (m->relative_stride ? p->n_heads : 1) * (m->rel_left + m->rel_right + 1) : 0,
                              g->a.d_sinks ? p->n_heads : 0}};
    const int32_t level = attn_isa_from_name(isa);
    w.out_units = attn_fwd_kernel_for(level, p)->pair == 2 ? 4 : 2;
    w.rounding = attn_backward_is_fast(g) && attn_bwd_kernels_for(level, g)->pair == 2 ? 0x1.03p-8 : 0;
    w.rows = calloc((size_t)(p->batch * p->n_heads * p->seq_q) + 1, sizeof *w.rows);
    for (int n = 0; n < N_WANTED; n++) {
        size_t count = (size_t)w.count[n] + 1;
        w.want[n] = calloc(count, sizeof(double)), w.bound[n] = calloc(count, sizeof(double));
        w.terms[n] = calloc(count, sizeof(double)), w.n_terms[n] = calloc(count, sizeof(int64_t));
    }
    for (int64_t s = 0; s < p->n_entries; s++) {
        attn_entry e = attn_problem_entry(p, s);
        for (int64_t n = 0; n < p->n_heads * e.q_count; n++)
            wanted_row(g, &e, n / e.q_count, n % e.q_count, &w);
    }
    return w;
}

static inline void wanted_free(bwd_wanted *w)
{
    for (int n = 0; n < N_WANTED; n++)
        free(w->want[n]), free(w->bound[n]), free(w->terms[n]), free(w->n_terms[n]);
    free(w->rows);
}

/* Element n of a gradient as it was computed. */
static inline double got_at(const attn_bwd_problem *g, int what, int64_t n, int32_t *dtype)
{
    const attn_mask *m = &g->forward.a.mask;
    const attn_view *views[4] = {&g->a.d_query, &g->a.d_key, &g->a.d_value, &g->a.d_bias};
    *dtype = ATTN_F32;
    if (what == WANT_SINKS)
        return (double)g->a.d_sinks[n];
    if (what == WANT_RELATIVE) {
        int64_t columns = m->rel_left + m->rel_right + 1;
        return (double)g->a.d_relative[n / columns * m->relative_stride + n % columns];
    }
    const int64_t *s = views[what]->shape;
    *dtype = views[what]->dtype;
    return attn_load_element(views[what]->data, *dtype, attn_offset(views[what]->stride, n / (s[1] * s[2] * s[3]), n / (s[2] * s[3]) % s[1],
                                                                    n / s[3] % s[2], n % s[3]));
}

/* Compares every gradient; prints the first that is off and returns true. The reference rounds doubles too: in f64 it gets the
 * same bound once more. */
static inline bool backward_differs(const attn_bwd_problem *g, uint64_t seed, const char *isa)
{
    bwd_wanted w = wanted_make(g, isa);
    bool wide = g->forward.a.query.dtype == ATTN_F64, differs = false;
    double u = wide ? 0x1p-53 : 0x1p-24;
    for (int what = 0; what < N_WANTED && !differs; what++)
        for (int64_t n = 0; n < w.count[what] && !differs; n++) {
            int32_t dtype;
            double want = w.want[what][n], got = got_at(g, what, n, &dtype);
            double bound = (wide ? 2 : 1) * (w.bound[what][n] + (double)w.n_terms[what][n] * u * w.terms[what][n]);
            bound += (fabs(want) + bound) * unit_of(dtype) + (dtype == ATTN_F16 ? 0x1p-25 : dtype == ATTN_F64 ? 0x1p-1022 : 0x1p-149);
            bool overflow = dtype == ATTN_F16 && fabs(want) + bound >= 65504 && isinf(got);
            bool good = isfinite(want) ? !isfinite(bound) || overflow || fabs(got - want) <= bound : !isfinite(got);
            if (!good)
                printf("seed %llu on %s: %s[%lld] is %.17g, reference %.17g, bound %.3g\n", (unsigned long long)seed, isa,
                       wanted_names[what], (long long)n, got, want, bound);
            differs = !good;
        }
    wanted_free(&w);
    return differs;
}

#endif
