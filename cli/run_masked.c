/* run_masked.c - `attn run` on a masked language model: what it would put in the place of each mask. */
#include "run_view.h"

#include <math.h>
#include <stdlib.h>

enum { GUESSES = 5, LABEL_BYTES = 96 };

/* The GUESSES largest of n logits, descending, equal ones by id. */
static int best_of(const float *logits, int64_t n, int64_t best[GUESSES])
{
    int found = 0;
    for (int64_t id = 0; id < n; id++) {
        int at = found < GUESSES ? found++ : GUESSES;
        for (; at > 0 && logits[id] > logits[best[at - 1]]; at--)
            if (at < GUESSES)
                best[at] = best[at - 1];
        if (at < GUESSES)
            best[at] = id;
    }
    return found;
}

static json_t *guesses_json(const run_state *s, int64_t place, const float *logits)
{
    int64_t best[GUESSES];
    const int n = best_of(logits, s->m.info.vocab_size, best);
    const double sum = cli_log_sum_exp(logits, s->m.info.vocab_size);
    json_t *ids = json_array(), *tokens = json_array(), *probabilities = json_array();
    for (int i = 0; i < n; i++) {
        const char *spelling = attn_model_token(s->m.model, (int32_t)best[i]);
        json_array_append_new(ids, json_integer(best[i]));
        json_array_append_new(tokens, spelling ? json_string(spelling) : json_null());
        json_array_append_new(probabilities, json_real(exp((double)logits[best[i]] - sum)));
    }
    return json_pack("{s:I, s:o, s:o, s:o}", "position", (json_int_t)place, "ids", ids, "tokens", tokens, "probabilities",
                     probabilities);
}

static void show_guesses(const cli_term *term, const run_state *s, int64_t place, const float *logits)
{
    int64_t best[GUESSES];
    const int n = best_of(logits, s->m.info.vocab_size, best);
    const double sum = cli_log_sum_exp(logits, s->m.info.vocab_size);
    putchar('\n');
    cli_title(term, "In the place of token %lld", (long long)place + 1);
    for (int i = 0; i < n; i++) {
        char text[LABEL_BYTES];
        const double probability = exp((double)logits[best[i]] - sum);
        run_label(s, (int32_t)best[i], 20, text, sizeof text);
        fputs("  ", stdout);
        cli_pad(text, 22);
        printf("%5.1f %%  ", 100 * probability);
        cli_bar(term, probability, 30);
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
    for (int64_t i = 0; code == CLI_OK && i < s->n; i++)
        if (s->ids[i] == mask && s->options->json)
            json_array_append_new(places, guesses_json(s, i, logits + i * vocab));
        else if (s->ids[i] == mask)
            show_guesses(&term, s, i, logits + i * vocab);
    if (code == CLI_OK && s->options->json)
        code = cli_print_json(json_pack("{s:s, s:s, s:O}", "model", s->m.info.name, "text", s->text, "masks", places), 9);
    json_decref(places);
    free(logits);
    return code;
}
