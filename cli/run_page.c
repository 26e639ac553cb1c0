/* run_page.c - the HTML page of `attn run --page`: what `attn inspect` writes, with fewer readings cut. */
#include "run_view.h"

#include "attn/viz.h"

#include <stdlib.h>

int run_page(run_state *s)
{
    attn_inspect_args args;
    attn_inspection *inspection;
    char *text = NULL;
    size_t bytes = 0;
    ATTN_ARGS_INIT(&args);
    args.tokens = s->ids;
    args.n_tokens = s->n;
    args.at = s->at;
    args.layer = s->options->look.layer;
    args.head = s->options->look.layer >= 0 ? s->options->look.head : -1; /* a head is one of a layer */
    args.n_exact = 8;
    args.n_sample = -1;
    args.flags = s->options->cut ? 0u : ATTN_INSPECT_NO_MEASURES;
    attn_status status = attn_inspect(s->m.session, &args, &inspection);
    if (status != ATTN_OK)
        return cli_model_failed("run", "the page", status);
    status = attn_inspect_html(s->m.model, inspection, s->text, &text, &bytes);
    attn_inspection_destroy(inspection);
    if (status != ATTN_OK)
        return cli_model_failed("run", "the page", status);
    const int code = cli_write_all("run", s->options->page, text, bytes);
    attn_viz_free(text);
    if (code != CLI_OK)
        return code;
    printf("\nAs a page, every head, with what the weights can be held against: %s\n", s->options->page);
    return CLI_OK;
}
