/* export_model.h - a parameter as Transformers' files have it. */
#ifndef ATTN_TRAIN_EXPORT_MODEL_H
#define ATTN_TRAIN_EXPORT_MODEL_H

#include <stdbool.h>
#include "io/export.h"
#include "train/trainer.h"

typedef struct attn_exported {
    char name[96];
    int64_t shape[2];
    const float *values;
    bool transposed; /* the file keeps [in, out] */
} attn_exported;

/* Describes one parameter; false: it goes with another (GPT-2's key and value, with query). */
bool attn_export_describe(const attn_trainer *t, const attn_net_param *p, attn_exported *e, attn_export_tensor *tensor,
                          attn_st_dtype dtype);

#endif
