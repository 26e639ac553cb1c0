/* inspect_view.h - what the parts of `attn inspect` share. */
#ifndef ATTN_CLI_INSPECT_VIEW_H
#define ATTN_CLI_INSPECT_VIEW_H

#include "attn/viz.h"
#include "look.h"

typedef struct inspect_options {
    look_options look;
    const char *page, *pair, *target, *answer, *other, *svg, *png, *json_path;
    bool json, head_tests, no_measures, heads;
    int64_t exact, sample, window, seed;
} inspect_options;

typedef struct inspect_state {
    inspect_options o;
    cli_model m;
    char *text;
    size_t text_bytes;
    int32_t *ids, *pair, *target;
    int64_t n, n_pair, n_target;
    attn_inspection *in;
} inspect_state;

/** For a person: what the position reads, the readings that were cut, whole heads replaced, and the caution. */
void inspect_show(const cli_term *term, const inspect_state *s);

/** Every head's scores, the best induction heads first, and the loss with and without those. */
void inspect_show_tests(const attn_head_tests_result *r);

#endif /* ATTN_CLI_INSPECT_VIEW_H */
