/* family.h - how a family is told to the loader: a function that fills the description from the file's
 * configuration, and a list of where each weight is found. A new family is one such file and a line in family.c. */
#ifndef ATTN_MODELS_FAMILY_H
#define ATTN_MODELS_FAMILY_H

#include "core/compiler.h"
#include "models/description.h"
#include "models/model_source.h"

enum attn_slot { /* where a tensor goes; linear layers and norms bring their bias along where the file has one */
    ATTN_SLOT_EMBEDDING,
    ATTN_SLOT_POSITIONS,
    ATTN_SLOT_TYPES,
    ATTN_SLOT_EMBEDDING_NORM,
    ATTN_SLOT_PROJECT_IN,
    ATTN_SLOT_PROJECT_OUT,
    ATTN_SLOT_PATCHES,
    ATTN_SLOT_CLASS_TOKEN,
    ATTN_SLOT_FINAL_NORM,
    ATTN_SLOT_HEAD,
    ATTN_SLOT_HEAD_BIAS,
    ATTN_SLOT_TRANSFORM,
    ATTN_SLOT_TRANSFORM_NORM,
    ATTN_SLOT_POOLER,
    ATTN_SLOT_RELATIVE,
    /* of each layer: the name holds one %d */
    ATTN_SLOT_NORM1,
    ATTN_SLOT_POST1,
    ATTN_SLOT_NORM2,
    ATTN_SLOT_POST2,
    ATTN_SLOT_NORM_CROSS,
    ATTN_SLOT_Q,
    ATTN_SLOT_K,
    ATTN_SLOT_V,
    ATTN_SLOT_O,
    ATTN_SLOT_QKV,   /* rows of q, then k, then v */
    ATTN_SLOT_QKV_HEADS, /* for each head its q, k and v rows (GPT-NeoX) */
    ATTN_SLOT_Q_NORM,
    ATTN_SLOT_K_NORM,
    ATTN_SLOT_SINKS,
    ATTN_SLOT_CROSS_Q,
    ATTN_SLOT_CROSS_K,
    ATTN_SLOT_CROSS_V,
    ATTN_SLOT_CROSS_O,
    ATTN_SLOT_CROSS_QKV,
    ATTN_SLOT_GATE,
    ATTN_SLOT_UP,
    ATTN_SLOT_GATE_UP, /* rows of gate, then up */
    ATTN_SLOT_DOWN,
    ATTN_SLOT_ROUTER,
    ATTN_SLOT_EXPERT_GATE_UP, /* [experts, d_model, 2 d_ff], gate and up alternating (gpt-oss) */
    ATTN_SLOT_EXPERT_DOWN     /* [experts, d_ff, d_model] */
};

enum { /* attn_weight_name.flags */
    ATTN_NAME_OPTIONAL = 1,
    ATTN_NAME_TRANSPOSED = 2, /* stored [in, out] (GPT-2's Conv1D) */
    ATTN_NAME_BARE = 4,       /* the name is complete: no ".weight" is added */
    ATTN_NAME_ENCODER = 8,    /* of the encoder in an encoder-decoder */
    ATTN_NAME_UNDERSCORE = 16 /* "_weight" and "_bias" are added instead of ".weight" and ".bias" (PyTorch's in_proj) */
};

typedef struct attn_weight_name {
    enum attn_slot slot;
    const char *name; /* without ".weight"; %d is the layer */
    uint32_t flags;
} attn_weight_name;

typedef struct attn_family {
    const char *const *model_types;        /* config.json's model_type, NULL at the end */
    const char *const *gguf_architectures; /* general.architecture, NULL at the end */
    /* Fills d, which is zeroed but for ids (-1). Errors name the field. */
    attn_status (*describe)(const attn_model_source *source, attn_description *d, char *error, size_t error_size);
    const attn_weight_name *names;         /* safetensors; the last has name NULL */
    const attn_weight_name *gguf_names;
    const char *const *prefixes;           /* tried in front of the safetensors names, NULL at the end */
} attn_family;

/* The family of an opened source, and the name that the file gives it (printable). UNSUPPORTED names what is not
 * served. */
attn_status attn_family_of(const attn_model_source *source, const attn_family **family, char *name, size_t name_size,
                           char *error, size_t error_size);

/* Fills in what only the tensors say: a vocabulary size that the configuration leaves out, rows of tables, whether the
 * head is tied; and checks sizes against each other. */
attn_status attn_family_complete(const attn_model_source *source, const attn_family *family, attn_description *d,
                                 char *error, size_t error_size);

/* Loads all weights. Errors name the tensor. */
typedef struct attn_load_options {
    int32_t weights; /* ATTN_WEIGHTS_* */
    int32_t act_i8, act_bf16; /* for activations of 8 bits, of bf16 */
    int32_t n_threads;
    attn_progress progress;
    void *progress_user;
} attn_load_options;
/* The tensor of a slot, with the prefix under which the file has it. */
bool attn_family_find(const attn_model_source *source, const attn_family *family, enum attn_slot slot,
                      attn_source_tensor *tensor);
const char *attn_family_prefix(const attn_model_source *source, const attn_family *family);
attn_status attn_weights_load(const attn_model_source *source, const attn_family *family,
                              const attn_description *d, const attn_load_options *options, attn_weights *weights,
                              char *error, size_t error_size);
void attn_weights_destroy(attn_weights *weights);

/* ---- reading configurations ---- */

typedef struct attn_config { /* a config.json, or the architecture's keys of a GGUF file */
    const attn_model_source *source;
    const json_t *json;
    const char *gguf_prefix;
    char *error;
    size_t error_size;
    attn_status status; /* the first failure; later reads then do nothing */
} attn_config;

attn_config attn_config_open(const attn_model_source *source, char *error, size_t error_size);
/* Each looks for the names in turn ("a|b"; GGUF names have no prefix) and returns the default where none is there. */
int64_t attn_config_int(attn_config *c, const char *names, int64_t low, int64_t high, int64_t fallback);
double attn_config_number(attn_config *c, const char *names, double fallback);
bool attn_config_bool(attn_config *c, const char *names, bool fallback);
const char *attn_config_text(attn_config *c, const char *names, const char *fallback);
/* The same, but missing is an error. */
int64_t attn_config_need(attn_config *c, const char *names, int64_t low, int64_t high);
bool attn_config_has(attn_config *c, const char *names);
void attn_config_fail(attn_config *c, attn_status status, const char *format, ...) ATTN_PRINTF(3, 4);

/* Where the file says null, that is "none" (0), and not the default of its family. */
double attn_config_number_or_null(attn_config *c, const char *name, double fallback);
/* sliding_window, read like that. */
int64_t attn_config_window(attn_config *c, int64_t fallback);

/* Sizes that every decoder's configuration has: layers, widths, heads, vocabulary, context; sets kind and logits. Heads and
 * head_dim that d has already are the family's defaults. */
void attn_config_decoder_sizes(attn_config *c, attn_description *d);
/* RoPE with its scaling: rope_parameters (one set, or one for each layer type) or rope_theta and rope_scaling; GGUF
 * rope.*. partial: the share of each head that rotates where the file says nothing; 0: the family always rotates all. Bases that d
 * has already are the family's defaults; a base of local_rope says that windowed layers have their own. */
void attn_config_rope(attn_config *c, attn_description *d, double partial);
/* hidden_act and its kin. */
int32_t attn_config_act(attn_config *c, const char *names, const char *fallback);
/* layer_types, or a window on every n-th layer. */
void attn_config_layer_types(attn_config *c, attn_description *d);
/* Where layer_types has not said it: windows from layer `first` on, but not where (layer + phase) is a multiple of every
 * (0: no such layer). */
void attn_config_windowed(attn_config *c, attn_description *d, int64_t first, int64_t every, int64_t phase);
/* UNSUPPORTED where this switch is on. */
void attn_config_refuse(attn_config *c, const char *name);
/* bos, eos, pad ids. */
void attn_config_ids(attn_config *c, attn_description *d);

extern const attn_family attn_family_llama;
extern const attn_family attn_family_gpt2;
extern const attn_family attn_family_bart;
extern const attn_family attn_family_bert;
extern const attn_family attn_family_distilbert;
extern const attn_family attn_family_gemma;
extern const attn_family attn_family_gpt_neox;
extern const attn_family attn_family_gpt_oss;
extern const attn_family attn_family_modernbert;
extern const attn_family attn_family_opt;
extern const attn_family attn_family_t5;
extern const attn_family attn_family_torch;
extern const attn_family attn_family_vit;
extern const attn_family attn_family_vaswani;

#endif
