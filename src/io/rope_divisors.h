/* rope_divisors.h - GGUF keeps Llama 3's RoPE scaling as one divisor for each frequency (tensor rope_freqs.weight): the rule that
 * gives them. */
#ifndef ATTN_IO_ROPE_DIVISORS_H
#define ATTN_IO_ROPE_DIVISORS_H

#include <stdbool.h>
#include <stdint.h>

/* The factors of Llama 3's rule as its models have them. */
#define ATTN_LLAMA3_LOW_FREQ  1.0
#define ATTN_LLAMA3_HIGH_FREQ 4.0

/* Looks for the factor and the original context length (a power of two) with which Llama 3's rule gives divisors[n] at this RoPE
 * base; false: there are none. */
bool attn_rope_llama3_rule(const float *divisors, int64_t n, double base, double *factor, int64_t *original_length);

#endif
