/* lab_bridge.c - what "it" reads in the running sentence, on a real model where one is here. One text: an illustration. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "attn/inspect.h"
#include "lab/lab.h"

#define MODEL "SmolLM2-135M-Instruct.Q4_1.gguf"
enum { LAYER = 13, HEAD = 8, BRIDGE = 1, MOST_TOKENS = 16 };

/* The model in the cache folder, as docs/cli.md says; false where it is not there. */
static bool model_path(char *path, size_t capacity)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (cache && cache[0])
        n = snprintf(path, capacity, "%s/attn/%s", cache, MODEL);
    else if (home && home[0])
        n = snprintf(path, capacity, "%s/.cache/attn/%s", home, MODEL);
    FILE *file = n > 0 && (size_t)n < capacity ? fopen(path, "rb") : NULL;
    if (file)
        fclose(file);
    return file != NULL;
}

static bool model_ok(lab *l, const attn_model *model, attn_status status)
{
    if (status != ATTN_OK && !l->failed) {
        snprintf(l->result->error, sizeof l->result->error, "%s", attn_model_error(model));
        l->failed = true;
    }
    return status == ATTN_OK;
}

static void report(lab *l, const attn_inspect_map *m)
{
    static const char *const names[] = {"position", "layer 13, head 8", "mean of all heads", "largest of all heads"};
    const int64_t heads = m->n_layers * m->n_heads, chosen = LAYER * m->n_heads + HEAD;
    int64_t most = 0, above = 0;
    double sum = 0;
    lab_columns(l, 4, names);
    for (int64_t j = 0; j < m->n_keys; j++) {
        double row[4] = {(double)j + 1, (double)m->at_rows[chosen * m->n_keys + j], 0, 0};
        for (int64_t h = 0; h < heads; h++) {
            row[2] += (double)m->at_rows[h * m->n_keys + j] / (double)heads;
            row[3] = fmax(row[3], (double)m->at_rows[h * m->n_keys + j]);
        }
        sum += row[1];
        lab_row(l, row);
    }
    for (int64_t h = 0; h < heads; h++) {
        const float *row = m->at_rows + h * m->n_keys;
        most = row[BRIDGE] > m->at_rows[most * m->n_keys + BRIDGE] ? h : most;
        above += row[BRIDGE] > 0.5f;
    }
    const double weight = (double)m->at_rows[chosen * m->n_keys + BRIDGE];
    l->result->drawn = 0xE;
    l->result->y_label = "weight of what \"it\" reads";
    lab_expect(l, fabs(weight - 0.77) < 0.005, "layer 13, head 8 reads \"bridge\" from \"it\" with weight 0.77");
    lab_expect(l, fabs(sum - 1) < 1e-5, "its weights sum to one");
    lab_expect(l, most == chosen, "no other head reads \"bridge\" more");
    lab_expect(l, l->result->cells[BRIDGE][2] > 0.5, "heads in general do");
    lab_say(l, "In \"The bridge was closed because it\" layer %d, head %d of SmolLM2-135M gives \"bridge\" the weight %.3f. Of %lld "
            "heads %lld give it more than a half; on average a head gives it %.3f and the first token %.3f. The head that reads it most is "
            "layer %lld, head %lld, with %.3f. This is one sentence, chosen because it shows what was looked for: an illustration of what "
            "a weight is, no evidence that this head finds what pronouns refer to. For that there would have to be many sentences, "
            "heads chosen on some and tested on others; and what the reading does to the prediction is another question, which "
            "attn inspect answers by cutting it.", LAYER, HEAD, weight, (long long)heads, (long long)above,
            l->result->cells[BRIDGE][2], l->result->cells[0][2], (long long)(most / m->n_heads), (long long)(most % m->n_heads),
            (double)m->at_rows[most * m->n_keys + BRIDGE]);
}

static void look(lab *l, const attn_model *model, attn_session *session)
{
    static const char text[] = "The bridge was closed because it";
    int32_t ids[MOST_TOKENS];
    int64_t n = 0;
    attn_inspect_args args;
    attn_inspection *found = NULL;
    if (!model_ok(l, model, attn_model_tokenize(model, text, sizeof text - 1, 0, ids, MOST_TOKENS, &n)))
        return;
    ATTN_ARGS_INIT(&args);
    args.tokens = ids, args.n_tokens = n < MOST_TOKENS ? n : MOST_TOKENS;
    args.at = args.layer = args.head = -1;
    args.flags = ATTN_INSPECT_NO_MEASURES;
    if (!model_ok(l, model, attn_inspect(session, &args, &found)))
        return;
    const attn_inspect_map *m = &found->maps[0];
    if (m->n_layers > LAYER && m->n_heads > HEAD && m->n_keys > BRIDGE)
        report(l, m);
    else
        snprintf(l->result->skipped, sizeof l->result->skipped, "the model named %s has no layer 13, head 8", MODEL);
    attn_inspection_destroy(found);
}

void lab_bridge(lab *l)
{
    char path[4096];
    attn_model_options options;
    attn_model *model = NULL;
    attn_session *session = NULL;
    if (!model_path(path, sizeof path)) {
        snprintf(l->result->skipped, sizeof l->result->skipped, "the model %s is not in the cache folder; attn run fetches it",
                 MODEL);
        return;
    }
    ATTN_ARGS_INIT(&options);
    if (model_ok(l, NULL, attn_model_load(path, &options, &model)) &&
        model_ok(l, model, attn_session_create(model, NULL, &session)))
        look(l, model, session);
    attn_session_destroy(session);
    attn_model_destroy(model);
}
