/* tiny_model.h - the tiny checkpoints of tests/data/models, loaded or the test fails. */
#ifndef ATTN_TESTS_TINY_MODEL_H
#define ATTN_TESTS_TINY_MODEL_H

static inline attn_model *tiny_model(const char *name)
{
    attn_model *model;
    char path[600];
    snprintf(path, sizeof path, "%s/tests/data/models/%s.safetensors", ATTN_SOURCE_DIR, name);
    if (attn_model_load(path, NULL, &model) != ATTN_OK)
        fail_msg("%s", attn_model_error(NULL));
    return model;
}

static inline attn_model *tiny_llama(void)
{
    return tiny_model("tiny-llama");
}

#endif
