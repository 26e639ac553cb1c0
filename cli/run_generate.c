/* run_generate.c - the continuation of `attn run`, token by token. */
#include "run_view.h"

#include <math.h>
#include <stdlib.h>

typedef struct stream {
    run_generated *out;
    const cli_term *term; /* NULL: quiet */
    int32_t end_token;
    int64_t vocab_size;
} stream;

void run_generated_free(run_generated *g)
{
    free(g->ids);
    free(g->margins);
    free(g->logprobs);
    free(g->text);
    memset(g, 0, sizeof *g);
}

/* Logit of the chosen token less the best other one. */
static double margin(const float *logits, int64_t n, int32_t chosen)
{
    double other = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        if (i != chosen)
            other = fmax(other, logits[i]);
    return logits[chosen] - other;
}

static bool keep_text(run_generated *g, const char *text, size_t bytes)
{
    char *longer = realloc(g->text, g->text_bytes + bytes + 1);
    if (!longer)
        return false;
    memcpy(longer + g->text_bytes, text, bytes);
    g->text = longer;
    g->text_bytes += bytes;
    g->text[g->text_bytes] = '\0';
    return true;
}

static int on_token(void *user, const attn_generated *t)
{
    stream *s = user;
    run_generated *g = s->out;
    if (t->token >= 0 && g->n == g->capacity) {
        g->failed = true;
        return 1;
    }
    if (t->token >= 0) {
        g->ids[g->n] = t->token;
        g->logprobs[g->n] = t->logprob;
        g->margins[g->n] = margin(t->logits, s->vocab_size, t->token);
        g->n++;
    }
    if (t->token >= 0 && t->token == s->end_token) {
        g->stop = ATTN_STOP_EOS;
        return 1;
    }
    if (t->text && t->n_bytes > 0) {
        g->failed = !keep_text(g, t->text, t->n_bytes);
        if (s->term) {
            cli_print_safe(t->text, t->n_bytes);
            fflush(stdout);
        }
    }
    return g->failed;
}

int run_generate(run_state *s, const cli_term *term, run_generated *out)
{
    stream state = {out, term, attn_model_special(s->m.model, ATTN_TOKEN_EOS),
                    s->m.info.vocab_size};
    int64_t one = 1,
            room = s->m.info.context_length > 0 ? s->m.info.context_length - s->n + 1 : INT64_MAX;
    attn_generate_args args;
    attn_status status;
    double start = cli_seconds();
    memset(out, 0, sizeof *out);
    out->stop = ATTN_STOP_LENGTH;
    out->capacity = s->options->n_new < room ? s->options->n_new : room;
    if (out->capacity <= 0)
        return CLI_OK;
    out->ids = calloc((size_t)out->capacity, sizeof *out->ids);
    out->margins = calloc((size_t)out->capacity, sizeof *out->margins);
    out->logprobs = calloc((size_t)out->capacity, sizeof *out->logprobs);
    if (!out->ids || !out->margins || !out->logprobs)
        return cli_model_failed("run", "", ATTN_ERR_OUT_OF_MEMORY);
    ATTN_ARGS_INIT(&args);
    args.prompts = s->ids + s->n - 1; /* the last token is run again: its logits start the text */
    args.prompt_lengths = &one;
    args.max_new = out->capacity;
    args.sampling = s->options->sampling;
    args.flags = ATTN_GENERATE_IGNORE_EOS; /* the callback ends at it, and keeps it */
    args.callback = on_token;
    args.callback_user = &state;
    status = attn_session_truncate(s->m.session, 0, s->n - 1);
    if (status == ATTN_OK)
        status = attn_generate(s->m.session, &args);
    out->seconds = cli_seconds() - start;
    if (status == ATTN_OK && !out->failed)
        return CLI_OK;
    return cli_model_failed("run", "generation", out->failed ? ATTN_ERR_OUT_OF_MEMORY : status);
}
