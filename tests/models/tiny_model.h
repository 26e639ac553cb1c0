/* tiny_model.h - the tiny checkpoints of tests/data/models, loaded or the test fails. */
#ifndef ATTN_TESTS_TINY_MODEL_H
#define ATTN_TESTS_TINY_MODEL_H

static attn_model *tiny_llama(void)
{
    attn_model *model;
    if (attn_model_load(ATTN_SOURCE_DIR "/tests/data/models/tiny-llama.safetensors", NULL, &model) != ATTN_OK)
        fail_msg("%s", attn_model_error(NULL));
    return model;
}

#endif
