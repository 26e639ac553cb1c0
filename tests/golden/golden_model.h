/* golden_model.h - where the tests find the real model: $ATTN_MODEL_PATH, else the user's cache, as the attn command
 * does. */
#ifndef ATTN_TESTS_GOLDEN_MODEL_H
#define ATTN_TESTS_GOLDEN_MODEL_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool golden_model_path(char *path, size_t size)
{
    const char *given = getenv("ATTN_MODEL_PATH"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (given && *given)
        snprintf(path, size, "%s", given);
    else if (cache && *cache)
        snprintf(path, size, "%s/attn/SmolLM2-135M-Instruct.Q4_1.gguf", cache);
    else
        snprintf(path, size, "%s/.cache/attn/SmolLM2-135M-Instruct.Q4_1.gguf", home ? home : "");
    return access(path, R_OK) == 0;
}

#endif
