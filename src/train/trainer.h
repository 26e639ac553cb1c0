/* trainer.h - the object behind attn/train.h. */
#ifndef ATTN_TRAIN_TRAINER_H
#define ATTN_TRAIN_TRAINER_H

#include "train/train_net.h"

struct attn_trainer {
    attn_net net;
    attn_layers *layers;
    attn_net_memory memory;
    float *weights, *gradients, *m, *v; /* [n_elements] each */
    int32_t n_threads;
    int64_t step;          /* updates made */
    int64_t n_accumulated; /* calls since the last update */
    double loss_sum;
    char fault[160];       /* why this step cannot be made; "": it can */
    char *user_data;
};

/* A trainer with undefined weights and moments of zero. */
attn_status attn_trainer_allocate(const attn_trainer_options *options, attn_trainer **trainer);

#endif
