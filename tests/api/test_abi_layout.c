/* The ABI of all public headers: sizes, offsets and values against the committed baseline (api/abi_layout.txt). A frozen struct may
 * not change at all; a versioned one may only grow at its tail. After a deliberate change: test_abi_layout --print. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include "attn/attn.h"
#include "attn/layers.h"
#include "attn/train.h"
#include "attn/viz.h"

typedef struct fact {
    const char *name;
    long long value;
} fact;

#define SIZE(type) {"sizeof " #type, (long long)sizeof(type)}
#define AT(type, field) {#type "." #field, (long long)offsetof(type, field)}
#define VALUE(constant) {#constant, (long long)constant}

static const fact facts[] = {
    SIZE(attn_cview),
    AT(attn_cview, data),
    AT(attn_cview, dtype),
    AT(attn_cview, reserved),
    AT(attn_cview, shape),
    AT(attn_cview, stride),
    SIZE(attn_view),
    AT(attn_view, data),
    AT(attn_view, dtype),
    AT(attn_view, reserved),
    AT(attn_view, shape),
    AT(attn_view, stride),
    SIZE(attn_mask),
    AT(attn_mask, flags),
    AT(attn_mask, reserved),
    AT(attn_mask, left),
    AT(attn_mask, right),
    AT(attn_mask, query_offset),
    AT(attn_mask, query_offsets),
    AT(attn_mask, kv_len),
    AT(attn_mask, q_len),
    AT(attn_mask, cu_seqlens_q),
    AT(attn_mask, cu_seqlens_k),
    AT(attn_mask, n_segments),
    AT(attn_mask, allow),
    AT(attn_mask, bias),
    AT(attn_mask, alibi_slopes),
    AT(attn_mask, relative),
    AT(attn_mask, relative_stride),
    AT(attn_mask, rel_left),
    AT(attn_mask, rel_right),
    AT(attn_mask, bias_offset),
    AT(attn_mask, bias_offsets),
    SIZE(attn_kv_layout),
    AT(attn_kv_layout, block_table),
    AT(attn_kv_layout, block_table_stride),
    AT(attn_kv_layout, ring),
    AT(attn_kv_layout, seq_kv),
    SIZE(attn_allocator),
    AT(attn_allocator, user),
    AT(attn_allocator, allocate),
    AT(attn_allocator, release),
    SIZE(attn_ctx_options),
    AT(attn_ctx_options, struct_size),
    AT(attn_ctx_options, n_threads),
    AT(attn_ctx_options, max_isa),
    AT(attn_ctx_options, allocator),
    AT(attn_ctx_options, parallel_for),
    AT(attn_ctx_options, parallel_for_user),
    SIZE(attn_sdpa_args),
    AT(attn_sdpa_args, struct_size),
    AT(attn_sdpa_args, query),
    AT(attn_sdpa_args, key),
    AT(attn_sdpa_args, value),
    AT(attn_sdpa_args, out),
    AT(attn_sdpa_args, lse),
    AT(attn_sdpa_args, mask),
    AT(attn_sdpa_args, scale),
    AT(attn_sdpa_args, softcap),
    AT(attn_sdpa_args, flags),
    AT(attn_sdpa_args, sinks),
    AT(attn_sdpa_args, layout),
    AT(attn_sdpa_args, key_scale),
    AT(attn_sdpa_args, value_scale),
    AT(attn_sdpa_args, dropout_p),
    AT(attn_sdpa_args, dropout_seed),
    AT(attn_sdpa_args, keep),
    SIZE(attn_sdpa_plan),
    AT(attn_sdpa_plan, struct_size),
    AT(attn_sdpa_plan, isa),
    AT(attn_sdpa_plan, kernel),
    AT(attn_sdpa_plan, tile_rows),
    AT(attn_sdpa_plan, tile_keys),
    AT(attn_sdpa_plan, query_block),
    AT(attn_sdpa_plan, key_block),
    AT(attn_sdpa_plan, n_tasks),
    AT(attn_sdpa_plan, n_splits),
    AT(attn_sdpa_plan, n_threads),
    AT(attn_sdpa_plan, reserved),
    AT(attn_sdpa_plan, workspace_bytes),
    SIZE(attn_sdpa_backward_args),
    AT(attn_sdpa_backward_args, struct_size),
    AT(attn_sdpa_backward_args, forward),
    AT(attn_sdpa_backward_args, d_out),
    AT(attn_sdpa_backward_args, d_lse),
    AT(attn_sdpa_backward_args, d_query),
    AT(attn_sdpa_backward_args, d_key),
    AT(attn_sdpa_backward_args, d_value),
    AT(attn_sdpa_backward_args, d_bias),
    AT(attn_sdpa_backward_args, d_relative),
    AT(attn_sdpa_backward_args, d_sinks),
    AT(attn_sdpa_backward_args, flags),
    SIZE(attn_decode_args),
    AT(attn_decode_args, struct_size),
    AT(attn_decode_args, query),
    AT(attn_decode_args, new_key),
    AT(attn_decode_args, new_value),
    AT(attn_decode_args, cache_key),
    AT(attn_decode_args, cache_value),
    AT(attn_decode_args, cache_key_scale),
    AT(attn_decode_args, cache_value_scale),
    AT(attn_decode_args, layout),
    AT(attn_decode_args, cache_len),
    AT(attn_decode_args, new_len),
    AT(attn_decode_args, prefix_key),
    AT(attn_decode_args, prefix_value),
    AT(attn_decode_args, out),
    AT(attn_decode_args, lse),
    AT(attn_decode_args, mask),
    AT(attn_decode_args, scale),
    AT(attn_decode_args, softcap),
    AT(attn_decode_args, flags),
    AT(attn_decode_args, sinks),
    SIZE(attn_row),
    AT(attn_row, batch),
    AT(attn_row, head),
    AT(attn_row, query),
    SIZE(attn_row_stat),
    AT(attn_row_stat, entropy),
    AT(attn_row_stat, mean_distance),
    AT(attn_row_stat, max_weight),
    AT(attn_row_stat, max_key),
    AT(attn_row_stat, key_weight),
    SIZE(attn_rope_args),
    AT(attn_rope_args, struct_size),
    AT(attn_rope_args, x),
    AT(attn_rope_args, out),
    AT(attn_rope_args, rotary_dim),
    AT(attn_rope_args, flags),
    AT(attn_rope_args, base),
    AT(attn_rope_args, position_offset),
    AT(attn_rope_args, positions),
    AT(attn_rope_args, positions_stride),
    AT(attn_rope_args, scaling),
    AT(attn_rope_args, reserved),
    AT(attn_rope_args, factor),
    AT(attn_rope_args, low_freq_factor),
    AT(attn_rope_args, high_freq_factor),
    AT(attn_rope_args, beta_fast),
    AT(attn_rope_args, beta_slow),
    AT(attn_rope_args, attention_factor),
    AT(attn_rope_args, original_length),
    AT(attn_rope_args, cos_table),
    AT(attn_rope_args, sin_table),
    AT(attn_rope_args, table_rows),
    VALUE(ATTN_OK),
    VALUE(ATTN_ERR_INVALID_ARGUMENT),
    VALUE(ATTN_ERR_UNSUPPORTED),
    VALUE(ATTN_ERR_OUT_OF_MEMORY),
    VALUE(ATTN_ERR_WORKSPACE_TOO_SMALL),
    VALUE(ATTN_ERR_IO),
    VALUE(ATTN_ERR_FORMAT),
    VALUE(ATTN_ERR_CANCELLED),
    VALUE(ATTN_F32),
    VALUE(ATTN_F64),
    VALUE(ATTN_BF16),
    VALUE(ATTN_F16),
    VALUE(ATTN_I8),
    VALUE(ATTN_BOOL),
    VALUE(ATTN_MASK_CAUSAL),
    VALUE(ATTN_MASK_WINDOW),
    VALUE(ATTN_MASK_OFFSET),
    VALUE(ATTN_ISA_BEST),
    VALUE(ATTN_ISA_SCALAR),
    VALUE(ATTN_ISA_AVX2),
    VALUE(ATTN_ISA_AVX512),
    VALUE(ATTN_ISA_AVX512BF16),
    VALUE(ATTN_ISA_NEON),
    VALUE(ATTN_ISA_NEONDOT),
    VALUE(ATTN_ISA_NEONBF16),
    VALUE(ATTN_SCALE_GIVEN),
    VALUE(ATTN_GRAD_ACCUMULATE),
    VALUE(ATTN_ROPE_INTERLEAVED),
    VALUE(ATTN_ROPE_INVERSE),
    VALUE(ATTN_ROPE_YARN_EXACT),
    VALUE(ATTN_ROPE_PLAIN),
    VALUE(ATTN_ROPE_LINEAR),
    VALUE(ATTN_ROPE_NTK),
    VALUE(ATTN_ROPE_LLAMA3),
    VALUE(ATTN_ROPE_YARN),
#include "abi_tokenizer.inc"
#include "abi_model.inc"
#include "abi_layers.inc"
#include "abi_train.inc"
#include "abi_inspect.inc"
};
#define N_FACTS (sizeof facts / sizeof facts[0])

static void matches_the_baseline(void **state)
{
    (void)state;
    FILE *file = fopen(ATTN_SOURCE_DIR "/tests/api/abi_layout.txt", "r");
    assert_non_null(file);
    char line[256], want[256];
    size_t n = 0;
    while (fgets(line, sizeof line, file)) {
        assert_true(n < N_FACTS);
        snprintf(want, sizeof want, "%s = %lld\n", facts[n].name, facts[n].value);
        assert_string_equal(line, want);
        n++;
    }
    fclose(file);
    assert_int_equal(n, N_FACTS);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        for (size_t n = 0; n < N_FACTS; n++)
            printf("%s = %lld\n", facts[n].name, facts[n].value);
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches_the_baseline)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
