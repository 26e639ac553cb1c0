/* embedder.c - texts to vectors: tokens, truncation, and the library's packed encoder pass. */
#include "embedder.h"

#include <math.h>
#include <stdlib.h>

static bool parse_pooling(const char *command, const char *value, int32_t *pooling)
{
    static const char *const names[] = {"mean", "first", "max", "last", "weighted", "sqrt"}; /* from ATTN_POOL_MEAN on */
    for (int32_t i = 0; i < (int32_t)(sizeof names / sizeof *names); i++)
        if (strcmp(value, names[i]) == 0) {
            *pooling = ATTN_POOL_MEAN + i;
            return true;
        }
    cli_error(command, "--pooling is '%s'; it must be mean, first, max, last, weighted or sqrt", value);
    return false;
}

int embedder_take_option(const char *command, embedder_options *o, int option, const char *value)
{
    int64_t number = 0;
    bool good = true;
    switch (option) {
    case EMBED_OPT_MODEL:
        o->model = value;
        break;
    case EMBED_OPT_THREADS:
        good = cli_parse_int(command, "--threads", value, 1, 1024, &number);
        o->n_threads = (int32_t)number;
        break;
    case EMBED_OPT_WEIGHTS:
        good = cli_parse_weights(command, value, &o->weights);
        break;
    case EMBED_OPT_ACT_I8:
        o->weights |= CLI_ACT_I8;
        break;
    case EMBED_OPT_ACT_BF16:
        o->weights |= CLI_ACT_BF16;
        break;
    case EMBED_OPT_TRUNCATE:
        good = cli_parse_int(command, "--truncate", value, 1, 1 << 30, &o->truncate);
        break;
    case EMBED_OPT_POOL:
        good = parse_pooling(command, value, &o->pooling);
        break;
    case EMBED_OPT_PROMPT:
        o->prompt = value;
        break;
    case EMBED_OPT_RAW:
        o->raw = true;
        break;
    case EMBED_OPT_REPLACE:
        o->replace_invalid = true;
        break;
    default:
        return 0;
    }
    return good ? 1 : -1;
}

/* How many special tokens stand before and behind a text: those of an empty text, of which the ones
 * before are also the first ones of a text that is not empty. */
static bool find_frame(const char *command, embedder *e)
{
    int32_t *empty = NULL, *word = NULL;
    int64_t n_empty = 0, n_word = 0;
    bool good = cli_tokenize(command, &e->m, "", 0, 0, &empty, &n_empty) &&
                cli_tokenize(command, &e->m, "a", 1, 0, &word, &n_word);
    e->prefix = 0;
    while (good && e->prefix < n_empty && e->prefix < n_word && empty[e->prefix] == word[e->prefix])
        e->prefix++;
    e->suffix = n_empty - e->prefix;
    free(empty);
    free(word);
    return good;
}

int embedder_open(const char *command, const embedder_options *o, embedder *e)
{
    int code;
    memset(e, 0, sizeof *e);
    code = cli_model_load(command, o->model, CLI_DEFAULT_EMBEDDER, o->n_threads, o->weights,
                          &e->m);
    if (code != CLI_OK)
        return code;
    e->truncate = o->truncate ? o->truncate : e->m.info.embed_tokens;
    e->truncate = e->truncate                    ? e->truncate
                  : e->m.info.context_length > 0 ? e->m.info.context_length
                                                 : 512;
    e->text_flags = o->replace_invalid ? ATTN_TEXT_REPLACE_INVALID : 0;
    e->pooling = o->pooling;
    e->raw = o->raw;
    e->prompt = o->prompt ? o->prompt : o->query ? e->m.info.query_prompt : e->m.info.embed_prompt;
    if (e->m.info.kind == ATTN_MODEL_ENCODER_DECODER) {
        cli_error(command, "%s is an encoder-decoder: it gives no text vectors", e->m.info.name);
        code = CLI_FAILED;
    } else if (o->truncate > e->m.info.context_length && e->m.info.context_length > 0) {
        cli_error(command, "--truncate is %lld; the model reads at most %lld tokens",
                  (long long)o->truncate, (long long)e->m.info.context_length);
        code = CLI_USAGE;
    } else if (!find_frame(command, e)) {
        code = CLI_FAILED;
    } else if (e->truncate <= e->prefix + e->suffix) {
        cli_error(command, "--truncate is %lld; the model's own tokens take %lld",
                  (long long)e->truncate, (long long)(e->prefix + e->suffix));
        code = CLI_USAGE;
    } else {
        if (e->m.info.context_length > 0 && e->truncate > e->m.info.context_length)
            e->truncate = e->m.info.context_length;
        code = cli_model_session(command, &e->m, NULL);
    }
    if (code != CLI_OK)
        cli_model_close(&e->m);
    return code;
}

void embedder_close(embedder *e)
{
    cli_model_close(&e->m);
}

/* The tokens of a text behind the prompt. */
static bool tokenize(const char *command, const char *name, const embedder *e, const embedder_text *text, int32_t **ids,
                     int64_t *n)
{
    const size_t before = strlen(e->prompt);
    if (before == 0)
        return cli_tokenize_named(command, name, &e->m, text->text, text->bytes, e->text_flags, ids, n);
    char *whole = malloc(before + text->bytes);
    if (!whole) {
        cli_error(command, "out of memory");
        return false;
    }
    memcpy(whole, e->prompt, before);
    memcpy(whole + before, text->text, text->bytes);
    const bool good = cli_tokenize_named(command, name, &e->m, whole, before + text->bytes, e->text_flags, ids, n);
    free(whole);
    return good;
}

/* Appends the tokens of one text, cut in front of its last special tokens, to *tokens. */
static int64_t append_tokens(const char *command, const char *name, const embedder *e, const embedder_text *text,
                             int32_t **tokens, int64_t used, int64_t *capacity)
{
    int32_t *ids;
    int64_t n;
    if (!tokenize(command, name, e, text, &ids, &n))
        return -1;
    if (n > e->truncate) {
        memmove(ids + e->truncate - e->suffix, ids + n - e->suffix,
                (size_t)e->suffix * sizeof *ids);
        n = e->truncate;
    }
    if (used + n > *capacity) {
        int64_t larger = 2 * (used + n);
        int32_t *moved = realloc(*tokens, (size_t)larger * sizeof *moved);
        if (!moved) {
            cli_error(command, "out of memory");
            free(ids);
            return -1;
        }
        *tokens = moved;
        *capacity = larger;
    }
    memcpy(*tokens + used, ids, (size_t)n * sizeof *ids);
    free(ids);
    return n;
}

int embedder_run(const char *command, embedder *e, const embedder_text *texts, int64_t n,
                 float *out, cli_progress *progress)
{
    int64_t capacity = 64 * n + 64, used = 0;
    int32_t *tokens = malloc((size_t)capacity * sizeof *tokens);
    int64_t *lengths = malloc((size_t)(n ? n : 1) * sizeof *lengths);
    bool good = tokens && lengths;
    attn_status status = ATTN_OK;
    attn_embed_args args;
    if (!good)
        cli_error(command, "out of memory");
    for (int64_t i = 0; good && i < n; i++) {
        char name[32] = "text";
        if (progress)
            snprintf(name, sizeof name, "text %lld", (long long)(progress->base + i + 1));
        lengths[i] = append_tokens(command, name, e, &texts[i], &tokens, used, &capacity);
        good = lengths[i] > 0;
        if (lengths[i] == 0)
            cli_error(command, "%s has no tokens: it is empty, and the model's tokenizer adds none", name);
        used += good ? lengths[i] : 0;
    }
    ATTN_ARGS_INIT(&args);
    args.tokens = tokens;
    args.lengths = lengths;
    args.n_texts = n;
    args.pooling = e->pooling;
    args.no_normalize = e->raw;
    args.embeddings = out;
    args.progress = progress ? cli_progress_step : NULL;
    args.progress_user = progress;
    if (good && n > 0)
        status = attn_embed(e->m.session, &args);
    free(tokens);
    free(lengths);
    if (status != ATTN_OK)
        return cli_model_failed(command, "embedding", status);
    return good ? CLI_OK : CLI_FAILED;
}

double embedder_cosine(const float *a, const float *b, int64_t n)
{
    double ab = 0.0, aa = 0.0, bb = 0.0;
    for (int64_t i = 0; i < n; i++) {
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0.0;
}
