/* lab_bridge.c - what "it" reads in the running sentence, on a real model where one is here. One text: an illustration. */
#include <math.h>
#include "attn/inspect.h"
#include "lab/lab_model.h"

enum { LAYER = 13, HEAD = 8, BRIDGE = 1, MOST_TOKENS = 16 };

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
    lab_say(l, "In \"The bridge was closed because it\" layer %d, head %d of %s gives \"bridge\" the weight %.3f. Of %lld "
            "heads %lld give it more than a half; on average a head gives it %.3f and the first token %.3f. The head that reads it most is "
            "layer %lld, head %lld, with %.3f. This is one sentence, chosen because it shows what was looked for: an illustration of what "
            "a weight is, no evidence that this head finds what pronouns refer to. For that there would have to be many sentences, "
            "heads chosen on some and tested on others; and what the reading does to the prediction is another question, which "
            "attn inspect answers by cutting it.", LAYER, HEAD, lab_model_name(l), weight, (long long)heads, (long long)above,
            l->result->cells[BRIDGE][2], l->result->cells[0][2], (long long)(most / m->n_heads), (long long)(most % m->n_heads),
            (double)m->at_rows[most * m->n_keys + BRIDGE]);
}

void lab_bridge(lab *l)
{
    int32_t ids[MOST_TOKENS];
    attn_inspect_args args;
    attn_inspection *found = NULL;
    lab_model m;
    if (!lab_model_open(l, LAB_REAL, &m)) {
        lab_model_skip(l, LAB_REAL);
        return;
    }
    const int64_t n = lab_model_tokens(&m, "The bridge was closed because it", ids, MOST_TOKENS);
    ATTN_ARGS_INIT(&args);
    args.tokens = ids, args.n_tokens = n;
    args.at = args.layer = args.head = -1;
    args.flags = ATTN_INSPECT_NO_MEASURES;
    if (n > 0 && lab_model_ok(l, attn_inspect(m.session, &args, &found))) {
        const attn_inspect_map *map = &found->maps[0];
        if (map->n_layers > LAYER && map->n_heads > HEAD && map->n_keys > BRIDGE)
            report(l, map);
        else
            snprintf(l->result->skipped, sizeof l->result->skipped, "this model has no layer %d, head %d", LAYER, HEAD);
        attn_inspection_destroy(found);
    }
    lab_model_close(&m);
}
