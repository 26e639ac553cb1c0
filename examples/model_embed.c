/* model_embed.c - the vector of a sentence: model_embed MODEL SENTENCE. MODEL: what ./dev model all-MiniLM-L6-v2 prints. */
#include <attn/model.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    attn_model *model;
    attn_session *session;
    attn_model_info info;
    attn_embed_args args;
    int32_t ids[512];
    int64_t n;
    float vector[4096];
    if (argc != 3)
        return 2;
    ATTN_ARGS_INIT(&info);
    ATTN_ARGS_INIT(&args); /* zero: the model's own pooling, a vector of length 1 */
    args.tokens = ids, args.lengths = &n, args.n_texts = 1, args.embeddings = vector;
    if (attn_model_load(argv[1], NULL, &model) || attn_session_create(model, NULL, &session) ||
        attn_model_get_info(model, &info) || info.d_model > 4096 ||
        attn_model_tokenize(model, argv[2], strlen(argv[2]), 0, ids, 512, &n) || n > 512 || attn_embed(session, &args))
        return fprintf(stderr, "%s\n", attn_model_error(NULL)), 1;
    for (int64_t i = 0; i < info.d_model; i++)
        printf("%.9g\n", vector[i]);
    attn_session_destroy(session);
    attn_model_destroy(model);
    return 0;
}
