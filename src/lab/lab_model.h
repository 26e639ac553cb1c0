/* lab_model.h - the trained models that experiments look into: the real one in the cache folder, the small ones shipped. */
#ifndef ATTN_LAB_LAB_MODEL_H
#define ATTN_LAB_LAB_MODEL_H

#include "attn/model.h"
#include "lab/lab.h"

typedef struct lab_model {
    lab *l;
    attn_model *model;
    attn_session *session;
    attn_model_info info;
} lab_model;

enum { LAB_REAL, LAB_SMALL, LAB_COPYING };

/** Opens the real model (--model; SmolLM2-135M-Instruct in the cache folder), the small one (--small; models/austen) or the one
 * that was taught to copy (models/copying). false: it is not here (l->failed unset) or could not be loaded (set). `session` batch 1, two threads at most. */
bool lab_model_open(lab *l, int which, lab_model *m);
void lab_model_close(lab_model *m);

/** What the real model is called in texts: SmolLM2-135M, or the last part of the path that was named by --model. */
const char *lab_model_name(const lab *l);

/** Names the missing model in the result as the reason for skipping the experiment. */
void lab_model_skip(lab *l, int which);

/** Records the library's message; false unless OK. */
bool lab_model_ok(lab *l, attn_status status);

/** Token ids of a text into ids[capacity]; their number, or -1 (l->failed is set). */
int64_t lab_model_tokens(lab_model *m, const char *text, int32_t *ids, int64_t capacity);

/** The only token of a word, or -1 where it takes several. */
int32_t lab_model_token(lab_model *m, const char *word);

/** Starts the session anew and runs tokens; args may ask for more (tokens and n_tokens are set here). */
bool lab_model_run(lab_model *m, const int32_t *ids, int64_t n, attn_forward_args *args);

#endif
