/* lab.h - experiments that hold the claims of the two lessons against measurement. Part of the `attn` command; sees public
 * headers only. Each experiment fills one lab_result: a table whose first column is the figure's x axis, checks with their
 * outcome, and a paragraph on what was found. */
#ifndef ATTN_LAB_LAB_H
#define ATTN_LAB_LAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "attn/layers.h"

enum { LAB_COLUMNS = 10, LAB_ROWS = 40, LAB_CHECKS = 12, LAB_NUMBERS = 24, LAB_BLOCKS = 4096 };

typedef struct lab_check { /* something that a lesson says, and whether it was seen here */
    char text[200];
    bool holds;
} lab_check;

typedef struct lab_number { /* a measurement that is no cell of the table */
    const char *name; /* static text */
    double value;
} lab_number;

typedef struct lab_options {
    bool quick;
    int32_t model_threads;          /* of trained models; 0: the library's choice. The rest runs on one thread, so that numbers
                                       of training are the same everywhere */
    const char *model, *small_model; /* paths; NULL: the default places */
} lab_options;

typedef struct lab_result {
    const char *columns[LAB_COLUMNS]; /* static texts */
    double cells[LAB_ROWS][LAB_COLUMNS];
    lab_number numbers[LAB_NUMBERS];
    int n_columns, n_rows, n_checks, n_numbers;
    unsigned drawn;                   /* bit c: column c is a line of the figure */
    bool log_x, log_y;
    const char *y_label;
    lab_check checks[LAB_CHECKS];
    char finding[4000];
    double seconds;
    char skipped[200];                /* what it needs and is not here; "": it was done */
    char error[300];                  /* why it could not be done; "" */
} lab_result;

/* What an experiment works with: random numbers from a fixed seed, memory that lab_end frees, contexts. */
typedef struct lab {
    bool quick;                 /* options->quick */
    const lab_options *options;
    uint64_t state;
    attn_layers *layers; /* of n_threads threads */
    attn_ctx *ctx;       /* the operator's, inside layers */
    lab_result *result;
    void *blocks[LAB_BLOCKS];
    int n_blocks;
    bool failed;
} lab;

typedef struct lab_experiment {
    const char *name, *title;
    const char *claim; /* what the lessons say, in our words */
    void (*run)(lab *l);
} lab_experiment;

extern const lab_experiment lab_experiments[]; /* ends with a NULL name */

/** Runs one experiment; false: result->error says why. The same seed gives the same numbers, times apart. */
bool lab_run(const lab_experiment *experiment, const lab_options *options, lab_result *result);

enum { LAB_SEED = 20170612 };

/** The figure of a result as one SVG document. */
void lab_draw(FILE *to, const char *title, const lab_result *result);

/* ---- for experiments (lab_tools.c) ---- */

void *lab_new(lab *l, size_t bytes);                                 /* zeroed, 64-byte aligned; NULL sets l->failed */
void lab_release(lab *l, int n_blocks);                               /* frees all but the first n_blocks of lab_new */
double *lab_normal(lab *l, int64_t n, double deviation);             /* n numbers of N(0, deviation^2) */
float *lab_normal_f32(lab *l, int64_t n, double deviation);
double *lab_uniform(lab *l, int64_t n, double bound);                /* of -bound .. bound */
double lab_unit(lab *l);                                              /* of (0, 1] */
double lab_gauss(lab *l);                                             /* N(0, 1) */
uint64_t lab_below(lab *l, uint64_t n);                              /* 0 .. n - 1 */
bool lab_ok(lab *l, attn_status status);                             /* records the library's message */
void lab_row(lab *l, const double *cells);
void lab_expect(lab *l, bool holds, const char *format, ...) __attribute__((format(printf, 3, 4)));
void lab_measured(lab *l, const char *name, double value);
void lab_say(lab *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
double lab_seconds(void);
double lab_processor_seconds(void); /* of this process: what others do on the machine is not in it */
double lab_largest_difference(const double *a, const double *b, int64_t n);
void lab_columns(lab *l, int n, const char *const *names);

/* ---- the experiments ---- */
void lab_scaling(lab *l);
void lab_path(lab *l);
void lab_recall(lab *l);
void lab_stall(lab *l);
void lab_heads(lab *l);
void lab_depth(lab *l);
void lab_at_once(lab *l);
void lab_order(lab *l);
void lab_change(lab *l);
void lab_counts(lab *l);
void lab_cost(lab *l);
void lab_serial(lab *l);
void lab_bridge(lab *l);
void lab_evidence(lab *l);
void lab_occurrences(lab *l);
void lab_induction(lab *l);
void lab_mask(lab *l);
void lab_lookback(lab *l);

#endif
