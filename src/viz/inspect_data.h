/* inspect_data.h - an inspection as JSON. */
#ifndef ATTN_VIZ_INSPECT_DATA_H
#define ATTN_VIZ_INSPECT_DATA_H

#include "attn/viz.h"
#include "viz/page_assets.h"
#include "viz/text_out.h"

/* packed: arrays in base64, weights as 16-bit numbers, for the page; else plain numbers. */
void attn_inspect_data(attn_text_out *out, const attn_model *model, const attn_inspection *in, const char *title,
                       bool packed);

#endif
