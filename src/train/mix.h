/* mix.h - numbers that look random and depend on nothing but a key and an index, so that any of them can be had again. */
#ifndef ATTN_TRAIN_MIX_H
#define ATTN_TRAIN_MIX_H

#include <stdint.h>

/* 64 bits from (key, index): two rounds of SplitMix64's finaliser (Steele et al. 2014). */
static inline uint64_t attn_mix(uint64_t key, uint64_t index)
{
    uint64_t z = key + 0x9E3779B97F4A7C15u * (index + 1);
    for (int round = 0; round < 2; round++) {
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        z ^= z >> 31;
        z += key;
    }
    return z;
}

/* A number in [0, 1) with 53 bits. */
static inline double attn_mix_unit(uint64_t key, uint64_t index)
{
    return (double)(attn_mix(key, index) >> 11) * 0x1p-53;
}

#endif
