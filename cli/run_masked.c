/* run_masked.c - `attn run` on a masked language model: what it would put in the place of each mask. */
#include "run_view.h"

#include <stdlib.h>

enum { GUESSES = 5, LABEL_BYTES = 96 };

static json_t *guesses_json(const run_state *s, int64_t place, const run_token *best, int n)
{
    json_t *ids = json_array(), *tokens = json_array(), *probabilities = json_array();
    for (int i = 0; i < n; i++) {
        const char *spelling = attn_model_token(s->m.model, best[i].id);
        json_array_append_new(ids, json_integer(best[i].id));
        json_array_append_new(tokens, spelling ? json_string(spelling) : json_null());
        json_array_append_new(probabilities, json_real(best[i].probability));
    }
    return json_pack("{s:I, s:o, s:o, s:o}", "position", (json_int_t)place, "ids", ids, "tokens", tokens, "probabilities",
                     probabilities);
}

static void show_guesses(const cli_term *term, const run_state *s, int64_t place, const run_token *best, int n)
{
    putchar('\n');
    cli_title(term, "In the place of token %lld", (long long)place + 1);
    for (int i = 0; i < n; i++) {
        char text[LABEL_BYTES];
        run_label(s, best[i].id, 20, text, sizeof text);
        fputs("  ", stdout);
        cli_pad(text, 22);
        printf("%5.1f %%  ", 100 * best[i].probability);
        cli_bar(term, best[i].probability, 30);
        putchar('\n');
    }
}

int run_masked(run_state *s)
{
    const int32_t mask = attn_model_special(s->m.model, ATTN_TOKEN_MASK);
    const int64_t vocab = s->m.info.vocab_size;
    const cli_term term = cli_term_of(stdout);
    json_t *places = json_array();
    int64_t n_masks = 0;
    attn_forward_args a;
    float *logits = malloc((size_t)(s->n * vocab) * sizeof *logits);
    ATTN_ARGS_INIT(&a);
    a.tokens = s->ids;
    a.n_tokens = s->n;
    a.logits = logits;
    a.logits_rows = ATTN_LOGITS_ALL;
    const attn_status status = logits && places ? attn_model_forward(s->m.session, &a) : ATTN_ERR_OUT_OF_MEMORY;
    int code = status == ATTN_OK ? CLI_OK : cli_model_failed("run", "forward pass", status);
    for (int64_t i = 0; code == CLI_OK && i < s->n; i++)
        n_masks += s->ids[i] == mask;
    if (code == CLI_OK && n_masks == 0) {
        const char *spelling = attn_model_token(s->m.model, mask);
        cli_error("run", "%s is a masked language model, and the text has no %s to fill", s->m.info.name,
                  spelling ? spelling : "mask");
        code = CLI_USAGE;
    }
    if (code == CLI_OK && !s->options->json) {
        run_show_model(&term, s);
        run_show_tokens(&term, s);
    }
    for (int64_t i = 0; code == CLI_OK && i < s->n; i++) {
        run_token best[GUESSES];
        if (s->ids[i] != mask)
            continue;
        const float *here = logits + i * vocab;
        const int n = run_find_top(here, vocab, cli_log_sum_exp(here, vocab), best, GUESSES);
        if (s->options->json)
            json_array_append_new(places, guesses_json(s, i, best, n));
        else
            show_guesses(&term, s, i, best, n);
    }
    if (code == CLI_OK && s->options->json)
        code = cli_print_json(json_pack("{s:s, s:s, s:O}", "model", s->m.info.name, "text", s->text, "masks", places), 9);
    json_decref(places);
    free(logits);
    return code;
}
