/* run_pass.c - the numbers of `attn run`: the pass over the prompt, the readings, and what cutting
 * one moves. */
#include "run_view.h"

#include <math.h>
#include <stdlib.h>

enum {
    CHUNK = 32,            /* tokens whose logits are held at once */
    MOST_CUT_TOKENS = 4096 /* tokens that all cuts together may run through the model */
};

/* ---- Next tokens ----------------------------------------------------------------------------- */

/* Insertion into a short sorted list. */
int run_find_top(const float *logits, int64_t n, double log_sum, run_token *top, int most)
{
    int found = 0;
    for (int64_t id = 0; id < n; id++) {
        int at = found;
        if (at == most && !(logits[id] > top[at - 1].logit))
            continue;
        if (at == most)
            at--;
        else
            found++;
        for (; at > 0 && logits[id] > top[at - 1].logit; at--)
            top[at] = top[at - 1];
        top[at].id = (int32_t)id;
        top[at].logit = logits[id];
        top[at].probability = exp(logits[id] - log_sum);
    }
    return found;
}

/* ---- The pass ------------------------------------------------------------------------------ */

/* Rows of every layer and head at token `query` of the call. */
static attn_attention_row *all_rows(const run_state *s, int64_t query)
{
    int64_t heads = s->m.info.n_heads, count = s->m.info.n_layers * heads;
    attn_attention_row *rows = calloc((size_t)count, sizeof *rows);
    for (int64_t r = 0; rows && r < count; r++) {
        rows[r].layer = r / heads;
        rows[r].head = r % heads;
        rows[r].query = query;
    }
    return rows;
}

/* Runs tokens first .. first + count - 1; all: logits has room for each of them. */
static attn_status pass_chunk(run_state *s, int64_t first, int64_t count, bool all, float *logits)
{
    attn_attention_row *rows = NULL;
    attn_forward_args args;
    attn_status status;
    ATTN_ARGS_INIT(&args);
    args.tokens = s->ids + first;
    args.n_tokens = count;
    args.logits = logits;
    args.logits_rows = all ? ATTN_LOGITS_ALL : ATTN_LOGITS_LAST;
    if (s->at >= first && s->at < first + count) {
        args.rows = rows = all_rows(s, s->at - first);
        args.n_rows = s->m.info.n_layers * s->m.info.n_heads;
        args.row_weights = s->rows;
        args.row_stride = s->n;
        if (!rows)
            return ATTN_ERR_OUT_OF_MEMORY;
    }
    status = attn_model_forward(s->m.session, &args);
    free(rows);
    return status;
}

/* In chunks, with the log-probability of every following token. */
static attn_status pass_with_logprobs(run_state *s)
{
    int64_t vocab = s->m.info.vocab_size;
    float *logits = malloc((size_t)(CHUNK * vocab) * sizeof *logits);
    attn_status status = logits && s->logprobs ? ATTN_OK : ATTN_ERR_OUT_OF_MEMORY;
    for (int64_t first = 0; status == ATTN_OK && first < s->n; first += CHUNK) {
        int64_t count = s->n - first < CHUNK ? s->n - first : CHUNK;
        status = pass_chunk(s, first, count, true, logits);
        for (int64_t i = 0; status == ATTN_OK && i < count; i++) {
            const float *row = logits + i * vocab;
            if (first + i + 1 < s->n)
                s->logprobs[first + i] = row[s->ids[first + i + 1]] - cli_log_sum_exp(row, vocab);
            else
                memcpy(s->logits, row, (size_t)vocab * sizeof *row);
        }
    }
    free(logits);
    return status;
}

int run_pass(run_state *s)
{
    size_t n_rows = (size_t)(s->m.info.n_layers * s->m.info.n_heads);
    double start = cli_seconds();
    attn_status status = ATTN_ERR_OUT_OF_MEMORY;
    s->logits = malloc((size_t)s->m.info.vocab_size * sizeof *s->logits);
    s->rows = calloc(n_rows * (size_t)s->n, sizeof *s->rows);
    if (s->options->json)
        s->logprobs = calloc((size_t)s->n, sizeof *s->logprobs);
    if (s->logits && s->rows)
        status =
            s->options->json ? pass_with_logprobs(s) : pass_chunk(s, 0, s->n, false, s->logits);
    if (status != ATTN_OK)
        return cli_model_failed("run", "forward pass", status);
    s->seconds = cli_seconds() - start;
    s->log_sum = cli_log_sum_exp(s->logits, s->m.info.vocab_size);
    s->n_top = run_find_top(s->logits, s->m.info.vocab_size, s->log_sum, s->top, RUN_TOP);
    return CLI_OK;
}

/* ---- Readings ------------------------------------------------------------------------------ */

static run_reading reading_of(const run_state *s, int64_t layer, int64_t head)
{
    run_reading r = {0};
    r.layer = layer;
    r.head = head;
    r.weights = s->rows + (layer * s->m.info.n_heads + head) * s->n;
    r.key = -1;
    r.own = r.weights[s->at];
    r.first = s->at > 0 ? r.weights[0] : 0.0;
    for (int64_t j = 1; j < s->at; j++) {
        r.elsewhere += r.weights[j];
        if (r.key < 0 || r.weights[j] > r.weight) {
            r.key = j;
            r.weight = r.weights[j];
        }
    }
    return r;
}

static int by_elsewhere(const void *a, const void *b)
{
    const run_reading *x = a, *y = b;
    if (x->elsewhere != y->elsewhere)
        return x->elsewhere > y->elsewhere ? -1 : 1;
    return x->layer != y->layer ? (x->layer < y->layer ? -1 : 1)
                                : (x->head > y->head) - (x->head < y->head);
}

static int by_layer(const void *a, const void *b)
{
    const run_reading *x = a, *y = b;
    return x->layer != y->layer ? (x->layer < y->layer ? -1 : 1)
                                : (x->head > y->head) - (x->head < y->head);
}

int run_choose(run_state *s)
{
    const run_options *o = s->options;
    int64_t layers = s->m.info.n_layers, heads = s->m.info.n_heads, show = o->show;
    s->readings = calloc((size_t)(layers * heads), sizeof *s->readings);
    if (!s->readings)
        return cli_model_failed("run", "", ATTN_ERR_OUT_OF_MEMORY);
    for (int64_t l = 0; l < layers; l++)
        for (int64_t h = 0; h < heads; h++)
            if ((o->look.layer < 0 || o->look.layer == l) && (o->look.head < 0 || o->look.head == h))
                s->readings[s->n_readings++] = reading_of(s, l, h);
    if (o->look.layer >= 0 || o->look.head >= 0)
        show = s->n_readings;
    qsort(s->readings, (size_t)s->n_readings, sizeof *s->readings, by_elsewhere);
    if (s->n_readings > show)
        s->n_readings = show;
    qsort(s->readings, (size_t)s->n_readings, sizeof *s->readings, by_layer);
    return CLI_OK;
}

/* ---- Cutting ------------------------------------------------------------------------------- */

/* What the logits with one reading cut say, against those without. */
static void compare(const run_state *s, const float *cut, run_reading *r)
{
    int64_t vocab = s->m.info.vocab_size;
    double cut_sum = cli_log_sum_exp(cut, vocab);
    r->measured = true;
    r->difference = s->n_top > 1 ? cut[s->top[0].id] - cut[s->top[1].id] : 0.0;
    r->kl = 0.0;
    for (int64_t i = 0; i < vocab; i++) {
        double log_p = s->logits[i] - s->log_sum;
        if (log_p > -700)
            r->kl += exp(log_p) * (log_p - (cut[i] - cut_sum));
    }
    r->kl = fmax(r->kl, 0.0); /* rounding may leave a tiny negative sum */
    r->moved_by = 0.0;
    for (int t = 0; t < s->n_top; t++) {
        double by = cut[s->top[t].id] - s->logits[s->top[t].id];
        if (fabs(by) > fabs(r->moved_by)) {
            r->moved_by = by;
            r->moved = s->top[t].id;
        }
    }
}

/* Repeats the pass from the chosen position on, with that one weight 0 and the rest renormalised.
 */
static attn_status cut_one(run_state *s, run_reading *r, float *logits)
{
    attn_edit edit = {0};
    attn_forward_args args;
    attn_status status = attn_session_truncate(s->m.session, 0, s->at);
    edit.layer = r->layer;
    edit.head = r->head;
    edit.query = s->at;
    edit.key = r->key;
    edit.kind = ATTN_EDIT_KNOCKOUT;
    ATTN_ARGS_INIT(&args);
    args.tokens = s->ids + s->at;
    args.n_tokens = s->n - s->at;
    args.logits = logits;
    args.edits = &edit;
    args.n_edits = 1;
    if (status == ATTN_OK)
        status = attn_model_forward(s->m.session, &args);
    if (status == ATTN_OK)
        compare(s, logits, r);
    return status;
}

int run_cut(run_state *s)
{
    int64_t tokens = s->n - s->at, most = MOST_CUT_TOKENS / tokens;
    float *logits = malloc((size_t)s->m.info.vocab_size * sizeof *logits);
    attn_status status = logits ? ATTN_OK : ATTN_ERR_OUT_OF_MEMORY;
    for (int64_t r = 0; status == ATTN_OK && r < s->n_readings && r < most; r++)
        if (s->readings[r].key >= 0)
            status = cut_one(s, &s->readings[r], logits);
    free(logits);
    return status == ATTN_OK ? CLI_OK : cli_model_failed("run", "cutting a reading", status);
}
