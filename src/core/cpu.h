/* cpu.h - what this processor and system can run, as few named levels. */
#ifndef ATTN_CORE_CPU_H
#define ATTN_CORE_CPU_H

#include <stdbool.h>
#include <stdint.h>

/* True when CPU and operating system offer the level (an ATTN_ISA_* value of attn/attn.h). */
bool attn_cpu_has_isa(int32_t isa);
/* The best level here. */
int32_t attn_cpu_best_isa(void);
/* "avx2", ... ; NULL for an unknown level. */
const char *attn_isa_name(int32_t isa);
/* The level called `name`, or -1. */
int32_t attn_isa_from_name(const char *name);
/* Processors that this process may use: affinity mask and container quota, at least 1. */
int32_t attn_cpu_count(void);

#endif
