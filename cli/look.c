/* look.c - the options that `attn run` and `attn inspect` share. */
#include "look.h"

#include <stdlib.h>

void look_start(look_options *o)
{
    memset(o, 0, sizeof *o);
    o->layer = o->head = -1;
}

int look_take(const char *command, look_options *o, int option, const char *value)
{
    int64_t threads = 0;
    bool good = true;
    switch (option) {
    case LOOK_MODEL:
        o->model = value;
        break;
    case LOOK_AT:
        o->at = value;
        break;
    case LOOK_THREADS:
        good = cli_parse_int(command, "--threads", value, 1, 1024, &threads);
        o->n_threads = (int32_t)threads;
        break;
    case LOOK_LAYER:
        good = cli_parse_int(command, "--layer", value, 0, 100000, &o->layer);
        break;
    case LOOK_HEAD:
        good = cli_parse_int(command, "--head", value, 0, 100000, &o->head);
        break;
    default:
        return 0;
    }
    return good ? 1 : -1;
}

int look_check(const char *command, const look_options *o, const attn_model_info *info)
{
    const bool layer = o->layer >= info->n_layers;
    const int64_t value = layer ? o->layer : o->head, has = layer ? info->n_layers : info->n_heads;
    if (value < has)
        return CLI_OK;
    cli_error(command, "%s is %lld; %s has %lld%s, counted from 0", layer ? "--layer" : "--head", (long long)value,
              info->name, (long long)has, layer ? " layers" : " heads in each layer");
    return CLI_USAGE;
}

/* Does a token spell `word`, with or without its leading space, or as the vocabulary writes it? */
static bool token_is(const cli_model *m, int32_t id, const char *word)
{
    size_t bytes;
    char *text = cli_token_text(m, id, &bytes);
    const char *spelling = attn_model_token(m->model, id);
    bool same = text && (strcmp(text, word) == 0 || (text[0] == ' ' && strcmp(text + 1, word) == 0));
    same = same || (spelling && strcmp(spelling, word) == 0);
    free(text);
    return same;
}

int look_position(const char *command, const look_options *o, const cli_model *m, const int32_t *ids, int64_t n,
                  int64_t *at)
{
    char *end;
    *at = n - 1;
    if (!o->at)
        return CLI_OK;
    const long long number = strtoll(o->at, &end, 10);
    if (*o->at && !*end) {
        if (number > 0 && number <= n) {
            *at = number - 1;
        } else if (number < 0 && -number <= n) {
            *at = n + number;
        } else {
            cli_error(command, "--at is %s; the text has positions 1 to %lld (-1 is the last)", o->at, (long long)n);
            return CLI_USAGE;
        }
        return CLI_OK;
    }
    for (int64_t i = n - 1; i >= 0; i--)
        if (token_is(m, ids[i], o->at)) {
            *at = i;
            return CLI_OK;
        }
    cli_error(command, "--at is '%s', which is none of the %lld tokens of the text", o->at, (long long)n);
    cli_hint("a word may be cut into several tokens; a number counts positions from 1");
    return CLI_USAGE;
}
