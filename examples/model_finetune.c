/* model_finetune.c - goes on training a Llama or GPT-2 (say SmolLM2 as GGUF) on a text, over public headers alone; leaves a folder
 * that attn and Transformers load. usage: example_model_finetune MODEL TEXT FOLDER [STEPS] */
#include "attn/train.h"
#include <stdio.h>
#include <stdlib.h>

#define TRY(call, why) if ((call) != ATTN_OK) return fprintf(stderr, "%s\n", why), 1

enum { BATCH = 2, LENGTH = 64 };

int main(int argc, char **argv)
{
    static char bytes[1 << 24], path[2][4096];
    static const char *const names[] = {"tokenizer.json", "tokens.bin"};
    if (argc < 4) return fprintf(stderr, "usage: %s MODEL TEXT FOLDER [STEPS]\n", argv[0]), 2;
    for (int i = 0; i < 2; i++) snprintf(path[i], sizeof path[i], "%s/%s", argv[3], names[i]);
    FILE *file = fopen(argv[2], "rb");
    if (!file) return perror(argv[2]), 1;
    const attn_text text = {bytes, fread(bytes, 1, sizeof bytes, file)};
    fclose(file);

    /* the model with f32 weights, its configuration and its vocabulary: where training begins */
    TRY(attn_model_convert(argv[1], argv[3], ATTN_F32, NULL, NULL, NULL), attn_model_error(NULL));
    attn_tokenizer *tokenizer;
    TRY(attn_tokenizer_load(path[0], &tokenizer), attn_tokenizer_error());
    attn_train_encode_args encode; /* the text as a file of ids, the last tenth held out */
    ATTN_ARGS_INIT(&encode);
    encode.tokenizer = tokenizer, encode.texts = &text, encode.n_texts = 1, encode.path = path[1];
    encode.validation_share = 0.1;
    TRY(attn_train_encode(&encode), attn_train_error());
    attn_train_data *data;
    TRY(attn_train_data_open(path[1], &data), attn_train_error());

    attn_trainer_options options;
    ATTN_ARGS_INIT(&options);
    options.weight_decay = 0.1, options.clip = 1, options.seed = 1;
    attn_trainer *trainer;
    TRY(attn_trainer_import(argv[3], &options, &trainer), attn_train_error());

    static int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
    attn_train_batch batch;
    ATTN_ARGS_INIT(&batch);
    batch.batch = BATCH, batch.length = LENGTH, batch.tokens = tokens, batch.targets = targets;
    double held_out;
    for (int64_t step = 0, steps = argc > 4 ? atol(argv[4]) : 100; step <= steps; step++) {
        if (step % 10 == 0 || step == steps) {
            TRY(attn_train_data_validation(data, 0, BATCH, LENGTH, tokens, targets, NULL), attn_train_error());
            TRY(attn_trainer_evaluate(trainer, &batch, &held_out, NULL), attn_train_error());
            printf("after %ld steps: held-out loss %.4f\n", (long)step, held_out);
        }
        if (step == steps) break;
        TRY(attn_train_data_batch(data, 1, step, BATCH, LENGTH, tokens, targets), attn_train_error());
        TRY(attn_trainer_accumulate(trainer, &batch, NULL), attn_train_error());
        TRY(attn_trainer_update(trainer, 3e-5, NULL), attn_train_error());
    }
    TRY(attn_trainer_export(trainer, argv[3], ATTN_F32), attn_train_error());
    printf("now: attn generate --model %s \"The \"\n", argv[3]);
    attn_trainer_destroy(trainer), attn_train_data_close(data), attn_tokenizer_destroy(tokenizer);
    return 0;
}
