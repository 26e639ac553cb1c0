/* model_train_characters.c - trains a character model on a text and prints what it writes, over public headers alone.
 * usage: example_model_train_characters TEXT FOLDER [STEPS] */
#include "attn/train.h"
#include <stdio.h>
#include <stdlib.h>

#define TRY(call, why) if ((call) != ATTN_OK) return fprintf(stderr, "%s\n", why), 1

enum { BATCH = 12, LENGTH = 64 };

int main(int argc, char **argv)
{
    static char bytes[1 << 24], path[2][4096];
    static const char *const names[] = {"tokenizer.json", "tokens.bin"};
    if (argc < 3) return fprintf(stderr, "usage: %s TEXT FOLDER [STEPS]\n", argv[0]), 2;
    for (int i = 0; i < 2; i++) snprintf(path[i], sizeof path[i], "%s/%s", argv[2], names[i]);
    FILE *file = fopen(argv[1], "rb");
    if (!file) return perror(argv[1]), 1;
    const attn_text text = {bytes, fread(bytes, 1, sizeof bytes, file)};
    fclose(file);

    attn_train_learn_args learn; /* the vocabulary: every character of the text */
    ATTN_ARGS_INIT(&learn), learn.texts = &text, learn.n_texts = 1, learn.flags = ATTN_LEARN_CHARS;
    TRY(attn_train_learn(&learn, path[0]), attn_train_error());
    attn_tokenizer *tokenizer;
    TRY(attn_tokenizer_load(path[0], &tokenizer), attn_tokenizer_error());

    attn_train_encode_args encode; /* the text as a file of ids */
    ATTN_ARGS_INIT(&encode);
    encode.tokenizer = tokenizer, encode.texts = &text, encode.n_texts = 1, encode.path = path[1];
    TRY(attn_train_encode(&encode), attn_train_error());
    attn_train_data *data;
    TRY(attn_train_data_open(path[1], &data), attn_train_error());

    attn_trainer_options options; /* nanoGPT's smallest model */
    ATTN_ARGS_INIT(&options);
    options.vocab_size = attn_tokenizer_size(tokenizer), options.context = LENGTH;
    options.n_layers = 4, options.n_heads = 4, options.d_model = 128;
    options.weight_decay = 0.1, options.clip = 1, options.seed = 1337;
    options.pad_id = options.mask_id = -1;
    attn_trainer *trainer;
    TRY(attn_trainer_create(&options, &trainer), attn_train_error());

    const attn_train_schedule schedule = {1e-3, 1e-4, 20, argc > 3 ? atol(argv[3]) : 2000, 0, 0};
    static int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
    attn_train_batch batch;
    ATTN_ARGS_INIT(&batch);
    batch.batch = BATCH, batch.length = LENGTH, batch.tokens = tokens, batch.targets = targets;
    for (int64_t step = 0; step < schedule.steps; step++) {
        double loss;
        TRY(attn_train_data_batch(data, 1337, step, BATCH, LENGTH, tokens, targets), attn_train_error());
        TRY(attn_trainer_accumulate(trainer, &batch, &loss), attn_train_error());
        TRY(attn_trainer_update(trainer, attn_train_learning_rate(&schedule, step), NULL), attn_train_error());
        if (step % 100 == 0 || step + 1 == schedule.steps) printf("step %ld loss %.4f\n", (long)step, loss);
    }
    TRY(attn_trainer_export(trainer, argv[2], ATTN_F32), attn_train_error());
    printf("now: attn generate --model %s \"The \"\n", argv[2]);
    attn_trainer_destroy(trainer), attn_train_data_close(data), attn_tokenizer_destroy(tokenizer);
    return 0;
}
