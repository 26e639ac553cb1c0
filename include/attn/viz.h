/* viz.h - showing what attention reads: text that is safe to print, and heat for weights.
 *
 * Part of libattn_model. Nothing here prints: every function fills memory of the caller. Functions
 * are pure and may be called from any thread. Compiles as C99 and C++11.
 */
#ifndef ATTN_VIZ_H
#define ATTN_VIZ_H

#include "attn/inspect.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Terminal columns that UTF-8 text takes: 2 for East Asian wide characters and emoji, 0 for
 * combining marks, joiners and control characters, else 1 for each code point; 1 for each byte that
 * is not UTF-8. */
ATTN_API int64_t attn_text_columns(const char *text, size_t bytes);

/** A rendering of any bytes that is safe and visible in one line of a terminal.
 *
 * Line feed becomes U+23CE, tab U+21E5, other C0 controls their pictures (U+2400 ...); C1 controls
 * and bytes that are not UTF-8 become \xE6; characters that reorder or hide text (bidirectional
 * controls, zero-width ones that stand alone) become \u202E. A combining mark without a base gets a
 * dotted circle. Text with right-to-left letters is wrapped in an isolate (U+2068 ... U+2069), so
 * that it cannot reorder its neighbours. Text wider than max_columns ends in U+2026; max_columns <
 * 0 means no limit, 0 gives empty text.
 *
 * out: capacity bytes, NUL-terminated when capacity > 0, cut between characters when too small; may
 * be NULL when capacity is 0. columns: receives the columns taken by the whole rendering; may be
 * NULL. Returns the bytes that the whole rendering needs, without the NUL. */
ATTN_API size_t attn_text_visible(const char *text, size_t bytes, int64_t max_columns, char *out,
                                  size_t capacity, int64_t *columns);

/* ---- Inspections drawn ------------------------------------------------------------------------ *
 *
 * Each function makes one document in memory that it allocates: *text, ended by a zero byte that *bytes does not count,
 * to be freed by attn_viz_free; NULL on error. model gives names and token texts. title: UTF-8, shown as it is; NULL: none.
 * Return OK; INVALID_ARGUMENT; OUT_OF_MEMORY. */

/** One self-contained HTML page: no network, all tokens escaped. Weights are 16-bit numbers where there are at most
 * 200,000, else 8-bit ones on a scale of logarithms (1.5 % off at most; those read by `at` and those of the layer and head
 * asked for stay 16-bit). */
ATTN_API attn_status attn_inspect_html(const attn_model *model, const attn_inspection *inspection, const char *title,
                                       char **text, size_t *bytes);

/** The same data as JSON with plain numbers; docs/inspect.md names the fields. Where heads times keys are more than four
 * million, what `at` reads is given as the 512 largest weights of each head. */
ATTN_API attn_status attn_inspect_json(const attn_model *model, const attn_inspection *inspection, const char *title,
                                       char **text, size_t *bytes);

/** SVG: one head's matrix with token labels where there are at most 64 tokens; layer or head -1: all heads as thumbnails.
 * Of the decoder where the model is an encoder-decoder. */
ATTN_API attn_status attn_inspect_svg(const attn_model *model, const attn_inspection *inspection, int64_t layer,
                                      int64_t head, char **text, size_t *bytes);

/** The same as the bytes of a PNG file with numbers instead of token labels; *bytes counts them (no zero byte ends them). */
ATTN_API attn_status attn_inspect_png(const attn_model *model, const attn_inspection *inspection, int64_t layer,
                                      int64_t head, char **text, size_t *bytes);

/** Frees a text of the functions above. NULL is fine. */
ATTN_API void attn_viz_free(char *text);

#ifdef __cplusplus
}
#endif
#endif /* ATTN_VIZ_H */
