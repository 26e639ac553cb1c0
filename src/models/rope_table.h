/* rope_table.h - tables of cosines and sines for a rotation that attn_rope does not compute itself. */
#ifndef ATTN_MODELS_ROPE_TABLE_H
#define ATTN_MODELS_ROPE_TABLE_H

#include "models/model_internal.h"

/* True where the family's rotation needs a table: YaRN whose correction range is not rounded to whole dimensions
 * (gpt-oss). */
bool attn_rope_needs_table(const attn_description *d);

/* Makes the session's table hold positions 0 .. rows - 1. */
attn_status attn_rope_reserve(attn_session *session, int64_t rows);

#endif
