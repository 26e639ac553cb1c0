/* lab_model.c - finding, loading and running the models of lab_model.h. */
#include <stdlib.h>
#include <string.h>
#include "lab/lab_model.h"

#define REAL_NAME  "SmolLM2-135M-Instruct.Q4_1.gguf"
#define SMALL_NAME "models/austen"
#define COPYING_NAME "models/copying"

/* The path that the user named; NULL: none. */
static const char *given_path(const lab *l, int which)
{
    return which == LAB_REAL ? l->options->model : which == LAB_SMALL ? l->options->small_model : NULL;
}

/* Where it would be; false where that cannot be said. */
static bool path_of(const lab *l, int which, char *path, size_t capacity)
{
    const char *given = given_path(l, which);
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (given || which != LAB_REAL)
        n = snprintf(path, capacity, "%s", given ? given : which == LAB_SMALL ? SMALL_NAME : COPYING_NAME);
    else if (cache && cache[0])
        n = snprintf(path, capacity, "%s/attn/%s", cache, REAL_NAME);
    else if (home && home[0])
        n = snprintf(path, capacity, "%s/.cache/attn/%s", home, REAL_NAME);
    return n > 0 && (size_t)n < capacity;
}

static bool is_there(const char *path)
{
    char inside[4200];
    FILE *file = NULL;
    if ((size_t)snprintf(inside, sizeof inside, "%s/config.json", path) < sizeof inside)
        file = fopen(inside, "rb");
    file = file ? file : fopen(path, "rb");
    if (file)
        fclose(file);
    return file != NULL;
}

bool lab_model_ok(lab *l, attn_status status)
{
    if (status != ATTN_OK && !l->failed) {
        snprintf(l->result->error, sizeof l->result->error, "%s", attn_model_error(NULL));
        l->failed = true;
    }
    return status == ATTN_OK;
}

bool lab_model_open(lab *l, int which, lab_model *m)
{
    char path[4096];
    const bool given = given_path(l, which) != NULL;
    attn_model_options options;
    attn_session_options session;
    memset(m, 0, sizeof *m);
    m->l = l;
    if (!path_of(l, which, path, sizeof path) || (!given && !is_there(path)))
        return false;
    ATTN_ARGS_INIT(&options), ATTN_ARGS_INIT(&session), ATTN_ARGS_INIT(&m->info);
    options.n_threads = l->options->model_threads;
    if (lab_model_ok(l, attn_model_load(path, &options, &m->model)) &&
        lab_model_ok(l, attn_session_create(m->model, &session, &m->session)) &&
        lab_model_ok(l, attn_model_get_info(m->model, &m->info)))
        return true;
    lab_model_close(m);
    return false;
}

void lab_model_close(lab_model *m)
{
    attn_session_destroy(m->session);
    attn_model_destroy(m->model);
    m->session = NULL, m->model = NULL;
}

const char *lab_model_name(const lab *l)
{
    const char *given = given_path(l, LAB_REAL), *slash = given ? strrchr(given, '/') : NULL;
    return !given ? "SmolLM2-135M" : slash && slash[1] ? slash + 1 : given;
}

void lab_model_skip(lab *l, int which)
{
    if (!l->failed && which == LAB_REAL)
        snprintf(l->result->skipped, sizeof l->result->skipped, "the model %s is not in the cache folder; attn run fetches it",
                 REAL_NAME);
    else if (!l->failed)
        snprintf(l->result->skipped, sizeof l->result->skipped, "there is no model %s here, and none was named by --small",
                 SMALL_NAME);
}

int64_t lab_model_tokens(lab_model *m, const char *text, int32_t *ids, int64_t capacity)
{
    int64_t n = 0;
    if (!lab_model_ok(m->l, attn_model_tokenize(m->model, text, strlen(text), 0, ids, capacity, &n)))
        return -1;
    if (n <= capacity)
        return n;
    snprintf(m->l->result->error, sizeof m->l->result->error, "'%.80s' has more than %lld tokens", text, (long long)capacity);
    m->l->failed = true;
    return -1;
}

int32_t lab_model_token(lab_model *m, const char *word)
{
    int32_t ids[8];
    int64_t n = 0;
    return lab_model_ok(m->l, attn_model_tokenize(m->model, word, strlen(word), ATTN_TEXT_NO_SPECIAL, ids, 8, &n)) && n == 1
               ? ids[0] : -1;
}

bool lab_model_run(lab_model *m, const int32_t *ids, int64_t n, attn_forward_args *args)
{
    args->tokens = ids, args->n_tokens = n;
    return lab_model_ok(m->l, attn_session_truncate(m->session, -1, 0)) &&
           lab_model_ok(m->l, attn_model_forward(m->session, args));
}
