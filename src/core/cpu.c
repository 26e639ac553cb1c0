#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity; also when compiled by plain cc */
#endif
#include "core/cpu.h"
#include "core/compiler.h"
#include "attn/attn.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if ATTN_ARCH_X86_64
#include <cpuid.h>

static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Bit n of the result: level n is there. CPUID leaves 1 and 7, and XCR0 for what the system saves. */
static uint32_t detect_levels(void)
{
    uint32_t levels = 1u << ATTN_ISA_SCALAR, a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return levels;
    bool fma = c >> 12 & 1, osxsave = c >> 27 & 1, f16c = c >> 29 & 1;
    if (!osxsave)
        return levels;
    uint64_t xcr0 = read_xcr0();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return levels;
    bool avx2 = b >> 5 & 1;
    bool avx512 = (b >> 16 & 1) && (b >> 17 & 1) && (b >> 30 & 1) && (b >> 31 & 1) && (c >> 11 & 1);
    if (!(avx2 && fma && f16c && (xcr0 & 0x6) == 0x6))
        return levels;
    levels |= 1u << ATTN_ISA_AVX2;
    if (!(avx512 && (xcr0 & 0xe6) == 0xe6))
        return levels;
    levels |= 1u << ATTN_ISA_AVX512;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1))
        levels |= 1u << ATTN_ISA_AVX512BF16;
    return levels;
}
#elif ATTN_ARCH_AARCH64
#if defined(__APPLE__)
#include <sys/sysctl.h>

static bool has_feature(const char *name)
{
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, NULL, 0) == 0 && value != 0;
}
static bool has_dot_products(void)
{
    return has_feature("hw.optional.arm.FEAT_DotProd");
}
static bool has_bf16(void)
{
    return has_feature("hw.optional.arm.FEAT_BF16");
}
#elif defined(__linux__)
#include <sys/auxv.h>

/* HWCAP_ASIMDDP and HWCAP2_BF16 of the kernel's asm/hwcap.h; older C libraries do not name them. */
static bool has_dot_products(void)
{
    return getauxval(AT_HWCAP) >> 20 & 1;
}
static bool has_bf16(void)
{
    return getauxval(AT_HWCAP2) >> 14 & 1;
}
#else
static bool has_dot_products(void)
{
    return false;
}
static bool has_bf16(void)
{
    return false;
}
#endif

static uint32_t detect_levels(void)
{
    uint32_t levels = 1u << ATTN_ISA_SCALAR | 1u << ATTN_ISA_NEON; /* Advanced SIMD is part of the base architecture */
    if (!has_dot_products())
        return levels;
    levels |= 1u << ATTN_ISA_NEONDOT;
    if (has_bf16())
        levels |= 1u << ATTN_ISA_NEONBF16;
    return levels;
}
#else
static uint32_t detect_levels(void)
{
    return 1u << ATTN_ISA_SCALAR;
}
#endif

bool attn_cpu_has_isa(int32_t isa)
{
    return isa > 0 && isa < 32 && (detect_levels() >> isa & 1);
}

int32_t attn_cpu_best_isa(void)
{
    uint32_t levels = detect_levels();
    int32_t best = ATTN_ISA_SCALAR;
    for (int32_t isa = 1; isa < 32; isa++)
        if (levels >> isa & 1)
            best = isa;
    return best;
}

static const char *const isa_names[] = {"best", "scalar", "avx2", "avx512", "avx512bf16", "neon", "neondot", "neonbf16"};
#define N_ISA_NAMES ((int32_t)(sizeof isa_names / sizeof isa_names[0]))

const char *attn_isa_name(int32_t isa)
{
    return isa >= 0 && isa < N_ISA_NAMES ? isa_names[isa] : NULL;
}

int32_t attn_isa_from_name(const char *name)
{
    for (int32_t isa = 1; isa < N_ISA_NAMES; isa++)
        if (!strcmp(name, isa_names[isa]))
            return isa;
    return -1;
}

/* Whole processors granted by one cgroup v2 cpu.max or a v1 quota and period; 0: no limit there. */
static int32_t quota_of(double quota, double period)
{
    if (quota <= 0 || period <= 0)
        return 0;
    double n = quota / period;
    return n < 1 ? 1 : (int32_t)(n + 0.5);
}

static int32_t cgroup_quota(void)
{
    char text[128];
    double quota, period = 0;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (file) {
        bool read = fgets(text, sizeof text, file) != NULL;
        fclose(file);
        if (read && sscanf(text, "%lf %lf", &quota, &period) == 2)
            return quota_of(quota, period);
        return 0;
    }
    file = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "r");
    if (!file)
        return 0;
    bool read = fscanf(file, "%lf", &quota) == 1;
    fclose(file);
    file = read ? fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "r") : NULL;
    if (!file)
        return 0;
    read = fscanf(file, "%lf", &period) == 1;
    fclose(file);
    return read ? quota_of(quota, period) : 0;
}

int32_t attn_cpu_count(void)
{
    int32_t count = 1;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        count = CPU_COUNT(&set);
    int32_t quota = cgroup_quota();
    if (quota > 0 && quota < count)
        count = quota;
    return count < 1 ? 1 : count;
}
