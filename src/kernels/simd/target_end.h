/* target_end.h - ends what target_begin.h began. */
#ifdef ATTN_TARGET
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
