/* lab_evidence.h - what the two files of the evidence experiment share. */
#ifndef ATTN_LAB_LAB_EVIDENCE_H
#define ATTN_LAB_LAB_EVIDENCE_H

#include "lab/lab_model.h"

enum { EV_NOUNS = 8, EV_CLUSTERS = 16, EV_FRAMES = 4, EV_EXPLETIVES = 3, EV_SELECTED = 6, EV_CUT = 3, EV_TOKENS = 24, EV_TEXT = 200 };

typedef struct ev_sentence {
    int32_t ids[EV_TOKENS];
    int64_t n;
    int32_t at[2];        /* positions of the nouns */
    int antecedent, kind; /* which noun is singular; 0: it is an animal, 1: a machine */
} ev_sentence;

typedef struct ev_cuts { /* [3]: mean, and its 95 % interval */
    double outcome[3], joint[3], other[3], apart[3];
    double kl[EV_CUT][2], mean_kl[2], mean_weight[2]; /* [..][0] of real cuts, [..][1] of matched ones */
} ev_cuts;

typedef struct ev_work {
    lab_model m;
    int64_t heads, n_pairs, selected[EV_SELECTED];
    int n_frames, n_orders;
    float *weights; /* [heads, EV_TOKENS] */
    ev_cuts cuts;
} ev_work;

/** The sentence of a pair: version 0 has the first noun singular, 1 the second; order 0 has the animal first. */
bool ev_make(lab_model *m, int64_t half, int64_t cluster, int frame, int order, int version, ev_sentence *s);

/** Cuts what the selected heads read, on the testing half; fills w->cuts. */
bool ev_cut(ev_work *w);

/* ---- lab_statistics.c: of n numbers x[i * stride] ---- */

double lab_mean(const double *x, int64_t n, int64_t stride);
/** Percentile bootstrap of the mean, 95 %, 2,000 draws (Efron 1979). */
void lab_bootstrap(lab *l, const double *x, int64_t n, int64_t stride, double *low, double *high);
/** Two-sided p of the mean under all 2^n flips of signs, n <= 20 (Fisher 1935). */
double lab_sign_flip_p(const double *x, int64_t n, int64_t stride);

#endif
