/* run_translate.c - `attn run` on an encoder-decoder: what it answers, and which source tokens each written token reads. */
#include "run_view.h"

#include <stdlib.h>

enum { LABEL_BYTES = 96, LABEL_COLUMNS = 10, LEFT = 14 };

typedef struct translation {
    int32_t *ids;     /* [n + 1]: the decoder's start token, then what it wrote */
    double *logprobs; /* [n] */
    char *text;
    size_t text_bytes;
    int64_t n, capacity;
    int32_t stop;
    float *rows;  /* [heads looked at][n][source tokens] */
    float *means; /* [n][source tokens]: over the heads looked at */
    int64_t layer, first_head, n_heads;
} translation;

static int on_token(void *user, const attn_generated *g)
{
    translation *t = user;
    char *longer = realloc(t->text, t->text_bytes + g->n_bytes + 1);
    if (!longer)
        return 1;
    if (g->n_bytes)
        memcpy(longer + t->text_bytes, g->text, g->n_bytes);
    t->text = longer;
    t->text_bytes += g->n_bytes;
    if (g->token >= 0) {
        t->ids[t->n + 1] = g->token;
        t->logprobs[t->n++] = g->logprob;
    }
    return 0;
}

static attn_status write_answer(run_state *s, translation *t)
{
    attn_generate_args a;
    t->capacity = s->options->n_new < s->m.info.context_length ? s->options->n_new : s->m.info.context_length;
    t->ids = calloc((size_t)t->capacity + 1, sizeof *t->ids);
    t->logprobs = calloc((size_t)t->capacity + 1, sizeof *t->logprobs);
    if (!t->ids || !t->logprobs)
        return ATTN_ERR_OUT_OF_MEMORY;
    t->ids[0] = attn_model_special(s->m.model, ATTN_TOKEN_DECODER_START);
    if (t->capacity == 0)
        return ATTN_OK;
    ATTN_ARGS_INIT(&a);
    a.prompts = s->ids;
    a.prompt_lengths = &s->n;
    a.max_new = t->capacity;
    a.sampling = s->options->sampling;
    a.flags = ATTN_GENERATE_ENCODE;
    a.callback = on_token;
    a.callback_user = t;
    a.stop_reasons = &t->stop;
    return attn_generate(s->m.session, &a);
}

/* The weights with which each written token was chosen: those of the position in front of it. */
static attn_status look(run_state *s, translation *t)
{
    const int64_t n_rows = t->n_heads * t->n;
    attn_attention_row *rows = calloc((size_t)n_rows + 1, sizeof *rows);
    attn_forward_args a;
    attn_status status = ATTN_ERR_OUT_OF_MEMORY;
    t->rows = calloc((size_t)(n_rows * s->n) + 1, sizeof *t->rows);
    t->means = calloc((size_t)(t->n * s->n) + 1, sizeof *t->means);
    if (rows && t->rows && t->means)
        status = ATTN_OK;
    for (int64_t r = 0; status == ATTN_OK && r < n_rows; r++)
        rows[r] = (attn_attention_row){.layer = t->layer, .head = t->first_head + r / t->n, .query = r % t->n,
                                       .kind = ATTN_ATTENTION_CROSS};
    ATTN_ARGS_INIT(&a);
    a.tokens = s->ids;
    a.n_tokens = s->n;
    if (status == ATTN_OK)
        status = attn_model_forward_encoder(s->m.session, &a);
    a.tokens = t->ids;
    a.n_tokens = t->n;
    a.rows = rows;
    a.n_rows = n_rows;
    a.row_weights = t->rows;
    a.row_stride = s->n;
    if (status == ATTN_OK && t->n > 0)
        status = attn_model_forward(s->m.session, &a);
    for (int64_t r = 0; status == ATTN_OK && r < n_rows; r++)
        for (int64_t j = 0; j < s->n; j++)
            t->means[r % t->n * s->n + j] += t->rows[r * s->n + j] / (float)t->n_heads;
    free(rows);
    return status;
}

/* ---- For people ---- */

static void show_answer(const cli_term *term, const run_state *s, const translation *t)
{
    putchar('\n');
    cli_title(term, "The answer, %s%s", s->options->sampling.temperature > 0 ? "sampled" : "always the likeliest token",
              t->stop == ATTN_STOP_EOS ? "" : "; cut off by -n or the context");
    fputs("  ", stdout);
    cli_print_safe(t->text ? t->text : "", t->text_bytes);
    putchar('\n');
}

static void show_readings(const cli_term *term, const run_state *s, const translation *t)
{
    char text[LABEL_BYTES];
    int64_t shown = 0;
    int width = LEFT + 6;
    for (; shown < s->n && width + run_label_columns(s, s->ids[shown], LABEL_COLUMNS) <= term->width; shown++)
        width += run_label_columns(s, s->ids[shown], LABEL_COLUMNS);
    putchar('\n');
    if (t->n_heads == 1)
        cli_title(term, "What each written token reads in the source: layer %lld, head %lld", (long long)t->layer,
                  (long long)t->first_head);
    else
        cli_title(term, "What each written token reads in the source: layer %lld, mean of its %lld heads", (long long)t->layer,
                  (long long)t->n_heads);
    printf("%s  %-*s", cli_dim(term), LEFT - 2, "writes");
    for (int64_t j = 0; j < shown; j++) {
        run_label(s, s->ids[j], LABEL_COLUMNS, text, sizeof text);
        cli_pad(text, 1 - run_label_columns(s, s->ids[j], LABEL_COLUMNS));
        putchar(' ');
    }
    printf("%s\n", cli_reset(term));
    for (int64_t i = 0; i < t->n; i++) {
        fputs("  ", stdout);
        run_label(s, t->ids[i + 1], LABEL_COLUMNS, text, sizeof text);
        cli_pad(text, LEFT - 2);
        for (int64_t j = 0; j < shown; j++)
            run_print_cell(term, (double)t->means[i * s->n + j], run_label_columns(s, s->ids[j], LABEL_COLUMNS), false);
        putchar('\n');
    }
    if (shown < s->n)
        printf("  (%lld of %lld source tokens fit this terminal; --json has all)\n", (long long)shown, (long long)s->n);
    puts("\n  A weight is how much of a token's value one head, in one layer, adds in here. It is no cause, no\n"
         "  explanation. --layer and --head show others; attn inspect --target shows all of them on a page.");
}

/* ---- For programs ---- */

static json_t *to_json(const run_state *s, const translation *t)
{
    json_t *ids = json_array(), *written = json_array(), *logprobs = json_array(), *weights = json_array();
    for (int64_t i = 0; i < s->n; i++)
        json_array_append_new(ids, json_integer(s->ids[i]));
    for (int64_t i = 0; i < t->n; i++) {
        json_t *row = json_array();
        for (int64_t j = 0; j < s->n; j++)
            json_array_append_new(row, json_real((double)t->means[i * s->n + j]));
        json_array_append_new(weights, row);
        json_array_append_new(written, json_integer(t->ids[i + 1]));
        json_array_append_new(logprobs, json_real(t->logprobs[i]));
    }
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:I, s:I, s:o}", "model", s->m.info.name, "text",
                     cli_text_json(s->text, s->text_bytes), "ids", ids, "generated_ids", written, "generated_text",
                     cli_text_json(t->text ? t->text : "", t->text_bytes), "logprobs", logprobs, "stop",
                     cli_stop_name(t->stop), "layer", (json_int_t)t->layer, "head",
                     (json_int_t)(t->n_heads == 1 ? t->first_head : -1), "cross_attention", weights);
}

int run_translate(run_state *s)
{
    const run_options *o = s->options;
    translation t = {.layer = o->look.layer >= 0 ? o->look.layer : s->m.info.n_layers - 1};
    t.first_head = o->look.head >= 0 ? o->look.head : 0;
    t.n_heads = o->look.head >= 0 ? 1 : s->m.info.n_heads;
    attn_status status = write_answer(s, &t);
    if (status == ATTN_OK)
        status = look(s, &t);
    int code = CLI_OK;
    if (status != ATTN_OK) {
        code = cli_model_failed("run", "translating", status);
    } else if (o->json) {
        code = cli_print_json(to_json(s, &t), 9);
    } else {
        const cli_term term = cli_term_of(stdout);
        run_show_model(&term, s);
        run_show_tokens(&term, s);
        show_answer(&term, s, &t);
        show_readings(&term, s, &t);
    }
    free(t.ids);
    free(t.logprobs);
    free(t.text);
    free(t.rows);
    free(t.means);
    return code;
}
