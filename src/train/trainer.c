/* trainer.c - accumulate, update, evaluate, translate. */
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/pages.h"
#include "layers/layers_context.h"
#include "train/adamw.h"
#include "train/mix.h"
#include "train/train_error.h"

/* ---- Making one ---- */

static float *numbers(int64_t n, bool zero)
{
    void *memory = attn_pages_allocate((size_t)(n + 16) * sizeof(float));
    if (memory && zero)
        memset(memory, 0, (size_t)n * sizeof(float));
    return memory;
}

attn_status attn_trainer_allocate(const attn_trainer_options *options, attn_trainer **trainer)
{
    attn_ctx_options ctx;
    attn_trainer *t = calloc(1, sizeof *t);
    *trainer = NULL;
    if (!t)
        return attn_train_no_memory();
    attn_status status = attn_net_create(&t->net, options);
    if (status == ATTN_OK) {
        const int64_t n = t->net.n_elements;
        t->weights = numbers(n, false);
        t->gradients = numbers(n, true);
        t->m = numbers(n, true);
        t->v = numbers(n, true);
        if (!t->weights || !t->gradients || !t->m || !t->v)
            status = attn_train_fail(ATTN_ERR_OUT_OF_MEMORY, "no memory for %lld parameters with gradient and moments (%.1f GB)",
                                     (long long)n, (double)n * 16 / 1e9);
    }
    if (status == ATTN_OK) {
        ATTN_ARGS_INIT(&ctx);
        ctx.n_threads = options->n_threads;
        status = attn_layers_create(&ctx, &t->layers);
        if (status != ATTN_OK) {
            attn_train_fail(status, "%s", attn_layers_error(NULL));
        } else {
            t->n_threads = attn_ctx_threads(attn_layers_ctx(t->layers));
            attn_layers_set_products(t->layers, options->dtype);
        }
    }
    if (status != ATTN_OK) {
        attn_trainer_destroy(t);
        return status;
    }
    *trainer = t;
    return ATTN_OK;
}

attn_status attn_trainer_create(const attn_trainer_options *options, attn_trainer **trainer)
{
    attn_trainer_options o;
    attn_train_clear_error();
    ATTN_TRAIN_REQUIRE(trainer, "trainer is NULL");
    *trainer = NULL;
    ATTN_TRAIN_TRY(attn_train_args(&o, sizeof o, options, "attn_trainer_options"));
    ATTN_TRAIN_TRY(attn_trainer_allocate(&o, trainer));
    attn_net_initialise(&(*trainer)->net, (*trainer)->weights);
    return ATTN_OK;
}

void attn_trainer_destroy(attn_trainer *t)
{
    if (!t)
        return;
    attn_net_destroy(&t->net);
    attn_layers_destroy(t->layers);
    free(t->memory.bytes);
    free(t->weights);
    free(t->gradients);
    free(t->m);
    free(t->v);
    free(t->user_data);
    free(t);
}

/* ---- Batches ---- */

static attn_status check_ids(const char *name, const int32_t *ids, int64_t batch, int64_t length, int32_t low,
                             int64_t vocab)
{
    for (int64_t i = 0; i < batch * length; i++)
        ATTN_TRAIN_REQUIRE(ids[i] >= low && ids[i] < vocab, "%s[%lld][%lld] is %d; the vocabulary has %lld", name,
                           (long long)(i / length), (long long)(i % length), ids[i], (long long)vocab);
    return ATTN_OK;
}

static attn_status check_source(const attn_trainer *t, const attn_train_batch *b)
{
    const attn_trainer_options *o = &t->net.options;
    if (o->arch != ATTN_TRAIN_ENCDEC) {
        ATTN_TRAIN_REQUIRE(!b->source && !b->source_lengths && b->source_length == 0, "source is given; only ENCDEC has one");
        return ATTN_OK;
    }
    ATTN_TRAIN_REQUIRE(b->source, "source is NULL");
    ATTN_TRAIN_REQUIRE(b->source_length >= 1 && b->source_length <= o->context,
                       "source_length is %lld; it must lie in 1 .. context %lld", (long long)b->source_length,
                       (long long)o->context);
    for (int64_t i = 0; b->source_lengths && i < b->batch; i++)
        ATTN_TRAIN_REQUIRE(b->source_lengths[i] >= 1 && b->source_lengths[i] <= b->source_length,
                           "source_lengths[%lld] is %lld; it must lie in 1 .. source_length %lld", (long long)i,
                           (long long)b->source_lengths[i], (long long)b->source_length);
    return check_ids("source", b->source, b->batch, b->source_length, 0, o->vocab_size);
}

static attn_status check_batch(const attn_trainer *t, const attn_train_batch *b)
{
    const attn_trainer_options *o = &t->net.options;
    bool any = false;
    ATTN_TRAIN_REQUIRE(b->batch >= 1 && b->batch <= 1 << 20, "batch is %lld", (long long)b->batch);
    ATTN_TRAIN_REQUIRE(b->length >= 1 && b->length <= o->context, "length is %lld; it must lie in 1 .. context %lld",
                       (long long)b->length, (long long)o->context);
    ATTN_TRAIN_REQUIRE(b->tokens && b->targets, "%s is NULL", b->tokens ? "targets" : "tokens");
    ATTN_TRAIN_TRY(check_ids("tokens", b->tokens, b->batch, b->length, 0, o->vocab_size));
    ATTN_TRAIN_TRY(check_ids("targets", b->targets, b->batch, b->length, -1, o->vocab_size));
    for (int64_t i = 0; i < b->batch * b->length && !any; i++)
        any = b->targets[i] >= 0;
    ATTN_TRAIN_REQUIRE(any, "targets are all -1: there is nothing to learn");
    return check_source(t, b);
}

static attn_net_pass pass_of(const attn_trainer *t)
{
    return (attn_net_pass){.layers = t->layers, .weights = t->weights, .scale = 1};
}

attn_status attn_trainer_accumulate(attn_trainer *t, const attn_train_batch *batch, double *loss)
{
    attn_train_batch b;
    attn_train_clear_error();
    ATTN_TRAIN_REQUIRE(t, "trainer is NULL");
    ATTN_TRAIN_TRY(attn_train_args(&b, sizeof b, batch, "attn_train_batch"));
    ATTN_TRAIN_TRY(check_batch(t, &b));
    attn_net_pass pass = pass_of(t);
    pass.gradients = t->gradients;
    pass.seed = attn_mix(attn_mix(t->net.options.seed, (uint64_t)t->step), (uint64_t)t->n_accumulated);
    ATTN_TRAIN_TRY(attn_net_run(&t->net, &t->memory, &pass, &b));
    t->n_accumulated++;
    t->loss_sum += pass.loss;
    if (pass.fault[0] && !t->fault[0])
        snprintf(t->fault, sizeof t->fault, "%s", pass.fault);
    if (loss)
        *loss = pass.loss;
    return ATTN_OK;
}

attn_status attn_trainer_evaluate(attn_trainer *t, const attn_train_batch *batch, double *loss, int64_t *n_targets)
{
    attn_train_batch b;
    attn_train_clear_error();
    ATTN_TRAIN_REQUIRE(t && loss, "%s is NULL", t ? "loss" : "trainer");
    ATTN_TRAIN_TRY(attn_train_args(&b, sizeof b, batch, "attn_train_batch"));
    ATTN_TRAIN_TRY(check_batch(t, &b));
    attn_net_pass pass = pass_of(t);
    ATTN_TRAIN_TRY(attn_net_run(&t->net, &t->memory, &pass, &b));
    *loss = pass.loss;
    if (n_targets)
        *n_targets = pass.n_targets;
    return ATTN_OK;
}

/* ---- The step ---- */

/* The first tensor with a number that is not finite, in the order of the forward pass (step 1) or of the backward pass (-1). */
static const char *unsound_tensor(const attn_trainer *t, const float *values, int step)
{
    const int64_t n = t->net.n_params;
    for (int64_t p = step > 0 ? 0 : n - 1; p >= 0 && p < n; p += step) {
        const attn_net_param *param = &t->net.params[p];
        for (int64_t i = 0; i < param->rows * param->columns; i++)
            if (!isfinite(values[param->offset + i]))
                return param->name;
    }
    return NULL;
}

static attn_status refuse_step(attn_trainer *t, double norm)
{
    const char *weight = unsound_tensor(t, t->weights, 1), *gradient = unsound_tensor(t, t->gradients, -1);
    const double loss = t->loss_sum / (double)t->n_accumulated;
    const long long step = (long long)t->step + 1;
    if (weight)
        return attn_train_fail(ATTN_ERR_FORMAT, "step %lld: loss %g; first not finite: the weights %s", step, loss, weight);
    if (t->fault[0])
        return attn_train_fail(ATTN_ERR_FORMAT, "step %lld: loss %g; first not finite: %s", step, loss, t->fault);
    if (gradient)
        return attn_train_fail(ATTN_ERR_FORMAT, "step %lld: gradient norm %g; first not finite: the gradient of %s", step,
                               norm, gradient);
    return attn_train_fail(ATTN_ERR_FORMAT, "step %lld: loss %g, gradient norm %g", step, loss, norm);
}

/* The gradient itself is 0 already, or becomes it here. */
static void start_anew(attn_trainer *t, bool clear)
{
    if (clear)
        memset(t->gradients, 0, (size_t)t->net.n_elements * sizeof *t->gradients);
    t->n_accumulated = 0;
    t->loss_sum = 0;
    t->fault[0] = '\0';
}

attn_status attn_trainer_update(attn_trainer *t, double learning_rate, attn_train_update *result)
{
    attn_train_clear_error();
    ATTN_TRAIN_REQUIRE(t, "trainer is NULL");
    ATTN_TRAIN_REQUIRE(t->n_accumulated > 0, "nothing was accumulated since the last update");
    ATTN_TRAIN_REQUIRE(learning_rate >= 0 && learning_rate <= 1e6, "learning_rate is %g", learning_rate);
    ATTN_TRAIN_REQUIRE(!result || (result->struct_size >= sizeof(size_t) && result->struct_size <= 4096),
                       "result.struct_size is %zu", result ? result->struct_size : 0);
    const attn_trainer_options *o = &t->net.options;
    const double norm =
        attn_gradient_norm(t->n_threads, t->gradients, t->net.n_elements) / (double)t->n_accumulated;
    if (!isfinite(norm) || !isfinite(t->loss_sum)) {
        attn_status status = refuse_step(t, norm);
        start_anew(t, true);
        return status;
    }
    attn_adamw a = {.n_threads = t->n_threads,
                    .learning_rate = learning_rate,
                    .beta1 = o->beta1,
                    .beta2 = o->beta2,
                    .epsilon = o->epsilon,
                    .weight_decay = o->weight_decay,
                    .gradient_scale = 1 / (double)t->n_accumulated,
                    .step = t->step + 1};
    if (o->clip > 0 && norm > o->clip)
        a.gradient_scale *= o->clip / norm;
    attn_adamw_step(&a, &t->net, t->weights, t->gradients, t->m, t->v);
    t->step++;
    if (result) {
        attn_train_update ours = {.struct_size = result->struct_size, .step = t->step, .gradient_norm = norm};
        ours.loss = t->loss_sum / (double)t->n_accumulated;
        memcpy(result, &ours, result->struct_size < sizeof ours ? result->struct_size : sizeof ours);
    }
    start_anew(t, false);
    return ATTN_OK;
}

attn_status attn_trainer_check(attn_trainer *t, const attn_train_batch *batch)
{
    attn_train_clear_error();
    ATTN_TRAIN_REQUIRE(t, "trainer is NULL");
    ATTN_TRAIN_REQUIRE(t->n_accumulated == 0, "a gradient was accumulated since the last update");
    attn_status status = attn_trainer_accumulate(t, batch, NULL);
    if (status != ATTN_OK)
        return status;
    const double norm = attn_gradient_norm(t->n_threads, t->gradients, t->net.n_elements);
    if (!isfinite(norm) || !isfinite(t->loss_sum))
        status = refuse_step(t, norm);
    start_anew(t, true);
    return status;
}

attn_status attn_trainer_set_clip(attn_trainer *t, double clip)
{
    attn_train_clear_error();
    ATTN_TRAIN_REQUIRE(t, "trainer is NULL");
    ATTN_TRAIN_REQUIRE(clip >= 0 && isfinite(clip), "clip is %g", clip);
    t->net.options.clip = clip;
    return ATTN_OK;
}

/* ---- Translating ---- */

/* The likeliest id behind each sequence's place `at`; lowest id on ties. */
static attn_status likeliest(attn_trainer *t, const float *hidden, int64_t batch, int64_t length, float *logits,
                             int32_t *ids)
{
    const int64_t d = t->net.options.d_model, vocab = t->net.options.vocab_size;
    attn_linear_args a;
    ATTN_ARGS_INIT(&a);
    a.rows = batch;
    a.n_in = d;
    a.n_out = vocab;
    a.x = hidden + (length - 1) * d;
    a.ldx = length * d;
    a.weight = t->weights + t->net.embedding.weight;
    a.y = logits;
    attn_status status = attn_linear_forward(t->layers, &a);
    if (status != ATTN_OK)
        return attn_train_fail(status, "%s", attn_layers_error(t->layers));
    for (int64_t b = 0; b < batch; b++) {
        const float *row = logits + b * vocab;
        ids[b] = 0;
        for (int64_t i = 1; i < vocab; i++)
            if (row[i] > row[ids[b]])
                ids[b] = (int32_t)i;
    }
    return ATTN_OK;
}

/* prefix: [batch, max_length] ids so far, the first bos; next: [batch]; logits: [batch, vocab]. */
static attn_status translate(attn_trainer *t, attn_train_batch *b, int64_t max_length, int32_t *prefix, int32_t *next,
                             float *logits, int32_t *out, int64_t *lengths)
{
    const attn_trainer_options *o = &t->net.options;
    attn_net_pass pass = pass_of(t);
    const void *found = NULL;
    int64_t open = b->batch;
    b->length = max_length;
    ATTN_TRAIN_TRY(attn_net_encode(&t->net, &t->memory, &pass, b, &found));
    for (int64_t i = 0; i < b->batch; i++)
        lengths[i] = -1;
    for (int64_t at = 0; at < max_length && open > 0; at++) {
        b->length = at + 1;
        b->tokens = prefix;
        ATTN_TRAIN_TRY(attn_net_decode(&t->net, &t->memory, &pass, b, &found));
        ATTN_TRAIN_TRY(likeliest(t, found, b->batch, at + 1, logits, next));
        for (int64_t i = b->batch - 1; i >= 0; i--) { /* rows of at + 1 ids become rows of at + 2, from the end */
            int32_t *row = prefix + i * (at + 2);
            memmove(row, prefix + i * (at + 1), (size_t)(at + 1) * sizeof *prefix);
            row[at + 1] = next[i];
            if (lengths[i] >= 0)
                continue;
            out[i * max_length + at] = next[i];
            if (next[i] == o->eos_id) {
                lengths[i] = at;
                open--;
            }
        }
    }
    for (int64_t i = 0; i < b->batch; i++)
        if (lengths[i] < 0)
            lengths[i] = max_length;
    return ATTN_OK;
}

attn_status attn_trainer_translate(attn_trainer *t, const attn_train_batch *source, int64_t max_length, int32_t *out,
                                   int64_t *lengths)
{
    attn_train_batch b;
    attn_train_clear_error();
    ATTN_TRAIN_REQUIRE(t && out && lengths, "%s is NULL", !t ? "trainer" : !out ? "out" : "lengths");
    ATTN_TRAIN_TRY(attn_train_args(&b, sizeof b, source, "attn_train_batch"));
    const attn_trainer_options *o = &t->net.options;
    if (o->arch != ATTN_TRAIN_ENCDEC)
        return attn_train_fail(ATTN_ERR_UNSUPPORTED, "only an encoder-decoder translates");
    ATTN_TRAIN_REQUIRE(o->bos_id >= 0, "bos_id is %d: the decoder has no first token", o->bos_id);
    ATTN_TRAIN_REQUIRE(b.batch >= 1 && b.batch <= 1 << 20, "batch is %lld", (long long)b.batch);
    ATTN_TRAIN_REQUIRE(max_length >= 1 && max_length <= o->context, "max_length is %lld; it must lie in 1 .. context %lld",
                       (long long)max_length, (long long)o->context);
    ATTN_TRAIN_TRY(check_source(t, &b));
    int32_t *prefix = malloc((size_t)(b.batch * (max_length + 1)) * sizeof *prefix);
    int32_t *next = malloc((size_t)b.batch * sizeof *next);
    float *logits = malloc((size_t)(b.batch * o->vocab_size) * sizeof *logits);
    for (int64_t i = 0; prefix && i < b.batch; i++)
        prefix[i] = o->bos_id;
    attn_status status = prefix && next && logits ? translate(t, &b, max_length, prefix, next, logits, out, lengths)
                                                  : attn_train_no_memory();
    free(prefix);
    free(next);
    free(logits);
    return status;
}

/* ---- Looking ---- */

const char *attn_trainer_user_data(const attn_trainer *t)
{
    return t && t->user_data ? t->user_data : "";
}

static attn_status describe(const attn_net *net, attn_layers *layers, int64_t step, int64_t batch, int64_t length,
                            attn_trainer_info *info)
{
    size_t bytes = 0;
    ATTN_TRAIN_REQUIRE(info && info->struct_size >= sizeof(size_t) && info->struct_size <= 4096, "info.struct_size is %zu",
                       info ? info->struct_size : 0);
    ATTN_TRAIN_REQUIRE(batch >= 1 && length >= 1 && length <= net->options.context,
                       "batch is %lld and length %lld (context %lld)", (long long)batch, (long long)length,
                       (long long)net->options.context);
    const int64_t source = net->encoder ? length : 0;
    ATTN_TRAIN_TRY(attn_net_memory_bytes(net, layers, batch, length, source, &bytes));
    attn_trainer_info ours = {.struct_size = info->struct_size,
                              .options = net->options,
                              .step = step,
                              .n_parameters = net->n_elements,
                              .n_tensors = net->n_params,
                              .state_bytes = net->n_elements * 16,
                              .activation_bytes = (int64_t)bytes,
                              .flops_per_token = attn_net_flops_per_token(net, length),
                              .scratch_bytes = attn_net_scratch_bytes(net, batch, length, source)};
    memcpy(info, &ours, info->struct_size < sizeof ours ? info->struct_size : sizeof ours);
    return ATTN_OK;
}

attn_status attn_trainer_get_info(const attn_trainer *t, int64_t batch, int64_t length, attn_trainer_info *info)
{
    attn_train_clear_error();
    ATTN_TRAIN_REQUIRE(t, "trainer is NULL");
    return describe(&t->net, t->layers, t->step, batch, length, info);
}

attn_status attn_train_plan(const attn_trainer_options *options, int64_t batch, int64_t length, attn_trainer_info *info)
{
    attn_trainer_options o;
    attn_net net;
    attn_layers *layers;
    attn_train_clear_error();
    ATTN_TRAIN_TRY(attn_train_args(&o, sizeof o, options, "attn_trainer_options"));
    ATTN_TRAIN_TRY(attn_net_create(&net, &o));
    attn_status status = attn_layers_create(NULL, &layers);
    if (status == ATTN_OK)
        status = describe(&net, layers, 0, batch, length, info);
    else
        attn_train_fail(status, "%s", attn_layers_error(NULL));
    attn_layers_destroy(layers);
    attn_net_destroy(&net);
    return status;
}

attn_status attn_trainer_get_tensor(attn_trainer *t, int64_t index, attn_train_tensor *tensor)
{
    attn_train_clear_error();
    ATTN_TRAIN_REQUIRE(t && tensor, "%s is NULL", t ? "tensor" : "trainer");
    ATTN_TRAIN_REQUIRE(index >= 0 && index < t->net.n_params, "index is %lld of %lld tensors", (long long)index,
                       (long long)t->net.n_params);
    const attn_net_param *p = &t->net.params[index];
    *tensor = (attn_train_tensor){.name = p->name,
                                  .rows = p->rows,
                                  .columns = p->columns,
                                  .values = t->weights + p->offset,
                                  .gradient = t->gradients + p->offset,
                                  .decays = p->decays};
    return ATTN_OK;
}
