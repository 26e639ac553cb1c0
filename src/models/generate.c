/* generate.c - attn_generate: prompts in, then one token a step for every sequence that goes on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/context.h"
#include "models/model_internal.h"

typedef struct sequence {
    int32_t *history; /* prompt and new tokens: what the repetition penalty counts */
    int64_t n_history, capacity, n_new;
    attn_decode_stream *stream;
    char *text;       /* what was generated, where stop texts are looked for */
    size_t n_text, text_capacity;
    size_t shown;     /* bytes that the callback has seen */
    bool done;
    int32_t reason, next;
} sequence;

typedef struct generation {
    attn_session *s;
    attn_generate_args a;
    sequence *seq;
    float *logits;        /* [batch, vocab] */
    int32_t *tokens;      /* [batch] or the padded prompts */
    uint8_t *keep;
    size_t longest_stop;
} generation;

static attn_status check_args(const attn_session *s, const attn_generate_args *a)
{
    const attn_description *d = &s->model->d;
    const bool encode = (a->flags & ATTN_GENERATE_ENCODE) != 0;
    int64_t first = 0;
    if (!d->has_logits || d->kind == ATTN_MODEL_ENCODER)
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "a %s model cannot generate", d->family);
    ATTN_MODEL_REQUIRE(a->prompts && a->prompt_lengths, "prompts or prompt_lengths is NULL");
    ATTN_MODEL_REQUIRE(a->max_new >= 0, "max_new is %lld", (long long)a->max_new);
    ATTN_MODEL_REQUIRE(!a->tokens || (a->max_new > 0 && a->token_stride >= a->max_new),
                       "token_stride is %lld, max_new %lld", (long long)a->token_stride, (long long)a->max_new);
    ATTN_MODEL_REQUIRE(a->n_stop_tokens >= 0 && (a->stop_tokens || !a->n_stop_tokens), "stop_tokens is NULL");
    ATTN_MODEL_REQUIRE(a->n_stop_texts >= 0 && (a->stop_texts || !a->n_stop_texts), "stop_texts is NULL");
    ATTN_MODEL_REQUIRE(!(a->flags & ~(uint32_t)(ATTN_GENERATE_IGNORE_EOS | ATTN_GENERATE_ENCODE)), "flags is 0x%x", a->flags);
    ATTN_MODEL_REQUIRE(!encode || d->kind == ATTN_MODEL_ENCODER_DECODER,
                       "flags holds ATTN_GENERATE_ENCODE; a %s model has no encoder beside its decoder", d->family);
    if (encode && (d->decoder_start_id < 0 || d->decoder_start_id >= d->vocab_size))
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "config.json: decoder_start_token_id is %d: the decoder has no first token",
                               d->decoder_start_id);
    for (int64_t i = 0; i < a->n_stop_texts; i++)
        ATTN_MODEL_REQUIRE(a->stop_texts[i] && *a->stop_texts[i], "stop_texts[%lld] is empty", (long long)i);
    if (a->n_stop_texts && !s->model->tokenizer)
        return attn_model_fail(ATTN_ERR_UNSUPPORTED, "stop_texts: the model has no tokenizer");
    for (int64_t b = 0; b < s->batch; b++) {
        const int64_t n = a->prompt_lengths[b];
        ATTN_MODEL_REQUIRE(n >= 1 && n <= INT32_MAX, "prompt_lengths[%lld] is %lld", (long long)b, (long long)n);
        ATTN_MODEL_REQUIRE(encode || s->lengths[b] + n <= s->max_capacity,
                           "prompt_lengths[%lld]: %lld tokens and %lld cached ones do not fit the context of %lld",
                           (long long)b, (long long)n, (long long)s->lengths[b], (long long)s->max_capacity);
        for (int64_t i = 0; i < n; i++)
            ATTN_MODEL_REQUIRE(a->prompts[first + i] >= 0 && a->prompts[first + i] < d->vocab_size,
                               "prompts[%lld] is %d, the vocabulary has %lld", (long long)(first + i),
                               a->prompts[first + i], (long long)d->vocab_size);
        first += n;
    }
    return ATTN_OK;
}

static attn_status no_memory(void)
{
    return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "out of memory");
}

static attn_status remember(sequence *q, int32_t token)
{
    if (q->n_history == q->capacity) {
        q->capacity = 2 * q->capacity + 64;
        int32_t *grown = realloc(q->history, (size_t)q->capacity * sizeof *grown);
        if (!grown)
            return no_memory();
        q->history = grown;
    }
    q->history[q->n_history++] = token;
    return ATTN_OK;
}

/* Gives the prompts to the encoder; the decoder then begins with its start token. */
static attn_status run_encoder(generation *g, const attn_forward_args *prompts)
{
    const int32_t first = g->s->model->d.decoder_start_id;
    ATTN_MODEL_REQUIRE(first >= 0, "the %s model's files name no decoder_start_token_id", g->s->model->d.family);
    ATTN_TRY(attn_model_forward_encoder(g->s, prompts));
    for (int64_t b = 0; b < g->s->batch; b++) {
        g->tokens[b] = first;
        g->seq[b].n_history = 0; /* what a decoder repeats is its own text */
        ATTN_TRY(remember(&g->seq[b], first));
    }
    return ATTN_OK;
}

static attn_status start(generation *g)
{
    const attn_session *s = g->s;
    int64_t longest = 1, first = 0;
    g->seq = calloc((size_t)s->batch, sizeof *g->seq);
    for (int64_t b = 0; b < s->batch; b++)
        longest = g->a.prompt_lengths[b] > longest ? g->a.prompt_lengths[b] : longest;
    g->logits = malloc((size_t)(s->batch * s->model->d.vocab_size) * sizeof *g->logits);
    g->tokens = calloc((size_t)(s->batch * longest), sizeof *g->tokens);
    g->keep = calloc((size_t)(s->batch * longest), 1);
    if (!g->seq || !g->logits || !g->tokens || !g->keep)
        return no_memory();
    for (int64_t i = 0; i < g->a.n_stop_texts; i++) {
        const size_t n = strlen(g->a.stop_texts[i]);
        g->longest_stop = n > g->longest_stop ? n : g->longest_stop;
    }
    for (int64_t b = 0; b < s->batch; b++) {
        for (int64_t i = 0; i < g->a.prompt_lengths[b]; i++) {
            g->tokens[b * longest + i] = g->a.prompts[first + i];
            g->keep[b * longest + i] = 1;
            ATTN_TRY(remember(&g->seq[b], g->a.prompts[first + i]));
        }
        first += g->a.prompt_lengths[b];
        if (s->model->tokenizer && attn_decode_stream_create(s->model->tokenizer, 0, &g->seq[b].stream) != ATTN_OK)
            return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "%s", attn_tokenizer_error());
    }
    attn_forward_args f;
    ATTN_ARGS_INIT(&f);
    f.tokens = g->tokens;
    f.n_tokens = longest;
    f.keep = g->keep;
    if (g->a.flags & ATTN_GENERATE_ENCODE) {
        ATTN_TRY(run_encoder(g, &f));
        f.n_tokens = 1;
        f.keep = NULL;
    }
    f.logits = g->logits;
    return attn_model_forward(g->s, &f);
}

static bool is_stop_token(const generation *g, int32_t token)
{
    const attn_description *d = &g->s->model->d;
    for (int32_t i = 0; i < d->n_stop_ids; i++)
        if (!(g->a.flags & ATTN_GENERATE_IGNORE_EOS) && d->stop_ids[i] == token)
            return true;
    for (int64_t i = 0; i < g->a.n_stop_tokens; i++)
        if (g->a.stop_tokens[i] == token)
            return true;
    return false;
}

static attn_status append_text(sequence *q, const char *text, size_t n)
{
    if (q->n_text + n > q->text_capacity) {
        q->text_capacity = 2 * (q->n_text + n) + 64;
        char *grown = realloc(q->text, q->text_capacity);
        if (!grown)
            return no_memory();
        q->text = grown;
    }
    memcpy(q->text + q->n_text, text, n);
    q->n_text += n;
    return ATTN_OK;
}

/* Where the first stop text begins in what is new; n_text where there is none. */
static size_t find_stop(const generation *g, const sequence *q, size_t from)
{
    for (size_t at = from; at < q->n_text; at++)
        for (int64_t i = 0; i < g->a.n_stop_texts; i++) {
            const size_t n = strlen(g->a.stop_texts[i]);
            if (at + n <= q->n_text && !memcmp(q->text + at, g->a.stop_texts[i], n))
                return at;
        }
    return q->n_text;
}

/* How much of the text can be shown: all but an end that might become a stop text. */
static size_t showable(const generation *g, const sequence *q)
{
    for (size_t at = q->shown; at < q->n_text; at++)
        for (int64_t i = 0; i < g->a.n_stop_texts; i++) {
            const size_t rest = q->n_text - at;
            if (rest < strlen(g->a.stop_texts[i]) && !memcmp(q->text + at, g->a.stop_texts[i], rest))
                return at;
        }
    return q->n_text;
}

static double log_probability(const float *logits, int64_t n, int32_t token)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        largest = (double)logits[i] > largest ? (double)logits[i] : largest;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - largest);
    return (double)logits[token] - largest - log(sum);
}

/* token -1: text alone */
static int call_back(const generation *g, int64_t b, int32_t token, size_t end)
{
    sequence *q = &g->seq[b];
    attn_generated out;
    if (!g->a.callback)
        return 0;
    memset(&out, 0, sizeof out);
    out.entry = b;
    out.step = token < 0 ? q->n_new : q->n_new - 1;
    out.token = token;
    out.logits = token < 0 ? NULL : g->logits + b * g->s->model->d.vocab_size;
    out.logprob = token < 0 ? 0 : log_probability(out.logits, g->s->model->d.vocab_size, token);
    out.text = q->stream ? q->text + q->shown : NULL;
    out.n_bytes = q->stream ? end - q->shown : 0;
    q->shown = end;
    return g->a.callback(g->a.callback_user, &out);
}

static void stop(sequence *q, int32_t reason)
{
    q->done = true;
    q->reason = reason;
}

/* The end of the text: what the decoder held back, for more bytes of a character or more tokens, joins it. */
static attn_status end_text(sequence *q)
{
    const char *text;
    size_t n;
    if (!q->stream)
        return ATTN_OK;
    if (attn_decode_stream_finish(q->stream, &text, &n) != ATTN_OK)
        return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "%s", attn_tokenizer_error());
    return append_text(q, text, n);
}

/* An end token is not part of the output; text that waited for what follows is. */
static attn_status end_at_stop_token(generation *g, int64_t b)
{
    sequence *q = &g->seq[b];
    const size_t before = q->n_text, back = g->longest_stop ? g->longest_stop - 1 : 0;
    ATTN_TRY(end_text(q));
    const size_t end = g->longest_stop ? find_stop(g, q, before > back ? before - back : 0) : q->n_text;
    if (q->shown < end)
        call_back(g, b, -1, end);
    stop(q, end < q->n_text ? ATTN_STOP_TEXT : ATTN_STOP_EOS);
    return ATTN_OK;
}

/* Takes the token chosen for a sequence: text, stop rules, callback. */
static attn_status accept(generation *g, int64_t b, int32_t token)
{
    sequence *q = &g->seq[b];
    if (is_stop_token(g, token))
        return end_at_stop_token(g, b);
    const size_t before = q->n_text;
    if (q->stream) {
        const char *text;
        size_t n;
        if (attn_decode_stream_push(q->stream, token, &text, &n) != ATTN_OK)
            return attn_model_fail(ATTN_ERR_OUT_OF_MEMORY, "%s", attn_tokenizer_error());
        ATTN_TRY(append_text(q, text, n));
    }
    if (g->a.tokens)
        g->a.tokens[b * g->a.token_stride + q->n_new] = token;
    q->n_new++;
    q->next = token;
    ATTN_TRY(remember(q, token));
    const bool length = g->a.max_new && q->n_new >= g->a.max_new;
    const bool context = g->s->lengths[b] + 1 >= g->s->max_capacity; /* this token will take the last place */
    if (length || context)
        ATTN_TRY(end_text(q));
    const size_t back = g->longest_stop ? g->longest_stop - 1 : 0;
    const size_t found = g->longest_stop ? find_stop(g, q, before > back ? before - back : 0) : q->n_text;
    const bool text_stop = found < q->n_text;
    const size_t end = text_stop ? (found > q->shown ? found : q->shown) : length || context ? q->n_text : showable(g, q);
    const int answer = call_back(g, b, token, end);
    if (text_stop)
        stop(q, ATTN_STOP_TEXT);
    else if (answer)
        stop(q, ATTN_STOP_CALLBACK);
    else if (length || context)
        stop(q, length ? ATTN_STOP_LENGTH : ATTN_STOP_CONTEXT);
    return ATTN_OK;
}

/* The token that comes next: what the model's files force behind the decoder's start, else drawn from its logits without
 * those that never come. */
static attn_status next_token(const generation *g, int64_t b, int32_t *token)
{
    const attn_description *d = &g->s->model->d;
    const sequence *q = &g->seq[b];
    float *logits = g->logits + b * d->vocab_size;
    attn_sampling sampling = g->a.sampling;
    if (!sampling.struct_size)
        ATTN_ARGS_INIT(&sampling);
    if (g->a.seeds)
        sampling.seed = g->a.seeds[b];
    const bool first = (g->a.flags & ATTN_GENERATE_ENCODE) && q->n_new == 0;
    if (first && d->forced_bos_id >= 0 && d->forced_bos_id < d->vocab_size) {
        *token = d->forced_bos_id;
        return ATTN_OK;
    }
    for (int32_t i = 0; i < d->n_never_ids; i++)
        if (d->never_ids[i] < d->vocab_size)
            logits[d->never_ids[i]] = -INFINITY;
    return attn_sampling_draw(&sampling, logits, d->vocab_size, q->history, q->n_history, (uint64_t)q->n_new, token);
}

/* Chooses a token for every sequence that goes on. */
static attn_status choose(generation *g, bool *any)
{
    *any = false;
    for (int64_t b = 0; b < g->s->batch; b++) {
        sequence *q = &g->seq[b];
        int32_t token;
        if (q->done)
            continue;
        if (g->s->lengths[b] >= g->s->max_capacity) { /* a token more would not fit */
            stop(q, ATTN_STOP_CONTEXT);
            continue;
        }
        ATTN_TRY(next_token(g, b, &token));
        ATTN_TRY(accept(g, b, token));
        *any |= !q->done;
    }
    return ATTN_OK;
}

static attn_status step(generation *g)
{
    for (int64_t b = 0; b < g->s->batch; b++) {
        g->tokens[b] = g->seq[b].next;
        g->keep[b] = !g->seq[b].done;
    }
    attn_forward_args f;
    ATTN_ARGS_INIT(&f);
    f.tokens = g->tokens;
    f.n_tokens = 1;
    f.keep = g->keep;
    f.logits = g->logits;
    return attn_model_forward(g->s, &f);
}

static void finish(generation *g)
{
    for (int64_t b = 0; g->seq && b < g->s->batch; b++) {
        if (g->a.n_generated)
            g->a.n_generated[b] = g->seq[b].n_new;
        if (g->a.stop_reasons)
            g->a.stop_reasons[b] = g->seq[b].reason;
        attn_decode_stream_destroy(g->seq[b].stream);
        free(g->seq[b].history);
        free(g->seq[b].text);
    }
    free(g->seq);
    free(g->logits);
    free(g->tokens);
    free(g->keep);
}

attn_status attn_generate(attn_session *session, const attn_generate_args *args)
{
    generation g;
    bool any = true;
    memset(&g, 0, sizeof g);
    ATTN_MODEL_REQUIRE(session, "session is NULL");
    ATTN_TRY(attn_model_args(&g.a, sizeof g.a, args, "args"));
    ATTN_TRY(check_args(session, &g.a));
    g.s = session;
    attn_status status = start(&g);
    if (status == ATTN_OK)
        status = choose(&g, &any);
    while (status == ATTN_OK && any) {
        status = step(&g);
        if (status == ATTN_OK)
            status = choose(&g, &any);
    }
    finish(&g);
    return status;
}
