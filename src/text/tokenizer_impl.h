/* tokenizer_impl.h - what a tokenizer is made of. Text goes through it so:
 *
 *     check UTF-8 -> cut out added tokens -> normalise -> cut out normalised added tokens -> split into pieces
 *     -> model (pieces to tokens) -> truncate -> post-process (special tokens, type ids, trimmed offsets)
 */
#ifndef ATTN_TEXT_TOKENIZER_IMPL_H
#define ATTN_TEXT_TOKENIZER_IMPL_H

#include <pthread.h>

#include "attn/tokenizer.h"
#include "text/bpe.h"
#include "text/fast_split.h"
#include "text/regex.h"
#include "text/worktext.h"

/* ---- Steps: normalisers, pre-tokenizers and decoders ---- */

enum attn_step_kind {
    /* normalisers */
    ATTN_STEP_BERT,
    ATTN_STEP_LOWERCASE,
    ATTN_STEP_NFC,
    ATTN_STEP_NFD,
    ATTN_STEP_NFKC,
    ATTN_STEP_NFKD,
    ATTN_STEP_STRIP,
    ATTN_STEP_STRIP_ACCENTS,
    ATTN_STEP_NMT,
    ATTN_STEP_PREPEND,
    ATTN_STEP_REPLACE, /* a decoder, too */
    ATTN_STEP_PRECOMPILED,
    /* pre-tokenizers */
    ATTN_STEP_SPLIT,
    ATTN_STEP_BYTE_LEVEL, /* a normaliser and a decoder, too */
    ATTN_STEP_BERT_SPLIT,
    ATTN_STEP_METASPACE, /* a decoder, too */
    ATTN_STEP_WHITESPACE,
    ATTN_STEP_WHITESPACE_SPLIT,
    ATTN_STEP_PUNCTUATION,
    ATTN_STEP_DIGITS,
    ATTN_STEP_CHAR_DELIMITER,
    /* decoders */
    ATTN_STEP_WORDPIECE,
    ATTN_STEP_BYTE_FALLBACK,
    ATTN_STEP_FUSE,
    ATTN_STEP_STRIP_TOKEN,
    ATTN_STEP_BPE_SUFFIX
};

/* What becomes of the matches of a split. */
enum attn_behavior {
    ATTN_BEHAVIOR_REMOVED,
    ATTN_BEHAVIOR_ISOLATED,
    ATTN_BEHAVIOR_MERGED_WITH_PREVIOUS,
    ATTN_BEHAVIOR_MERGED_WITH_NEXT,
    ATTN_BEHAVIOR_CONTIGUOUS
};

enum attn_prepend { /* METASPACE: which pieces get a replacement character in front */
    ATTN_PREPEND_ALWAYS,
    ATTN_PREPEND_FIRST,
    ATTN_PREPEND_NEVER
};

/* One step; which fields count depends on the kind. */
typedef struct attn_step {
    enum attn_step_kind kind;
    enum attn_behavior behavior;
    enum attn_prepend prepend;
    bool invert;        /* SPLIT */
    bool individual;    /* DIGITS */
    bool split;         /* METASPACE */
    bool behind_map;    /* METASPACE: a precompiled map comes before it */
    bool prefix_space;  /* BYTE_LEVEL */
    bool use_regex;     /* BYTE_LEVEL */
    bool left, right;   /* STRIP */
    bool clean_text, chinese, strip_accents, lowercase; /* BERT */
    bool cleanup;       /* WORDPIECE */
    uint32_t point;     /* METASPACE, CHAR_DELIMITER, STRIP_TOKEN: the character */
    int64_t start, stop; /* STRIP_TOKEN: how many at most */
    attn_regex *regex;  /* SPLIT, REPLACE, BYTE_LEVEL; NULL: the pattern is the text below */
    enum attn_fast_split fast; /* SPLIT, BYTE_LEVEL: the pattern is one of those */
    attn_strbuf pattern; /* SPLIT, REPLACE without regex */
    attn_strbuf content; /* REPLACE, PREPEND; WORDPIECE: the prefix; BPE_SUFFIX: the suffix; PRECOMPILED: its map */
} attn_step;

typedef struct attn_steps {
    attn_step *data;
    size_t len, cap;
} attn_steps;

/* ---- Added tokens ---- */

typedef struct attn_added_token {
    int32_t entry;
    bool single_word, lstrip, rstrip, normalized, special;
} attn_added_token;

/* Finds the longest of a set of strings at a place: a trie over bytes. */
typedef struct attn_trie {
    attn_pairmap edges;   /* node << 8 | byte -> node */
    int32_t *values;      /* [n_nodes], -1: none ends here */
    size_t n_nodes, values_cap;
    bool first[256];      /* bytes that any string starts with */
} attn_trie;

attn_status attn_trie_add(attn_trie *trie, const char *text, size_t len, int32_t value);
/* The value of the longest string that text starts with (its length in *matched), -1 when there is none. */
int32_t attn_trie_longest(const attn_trie *trie, const char *text, size_t len, size_t *matched);
void attn_trie_free(attn_trie *trie);

typedef struct attn_added {
    attn_added_token *tokens;
    size_t len, cap;
    attn_trie raw;        /* found in the text as it is */
    attn_trie normalized; /* found in the normalised text */
} attn_added;

/* ---- Models ---- */

enum attn_model_kind {
    ATTN_MODEL_BPE,
    ATTN_MODEL_WORDPIECE,
    ATTN_MODEL_UNIGRAM,
    ATTN_MODEL_WORDLEVEL
};

typedef struct attn_wordpiece {
    attn_strmap continuing; /* what follows the prefix -> entry */
    int32_t unk_entry;      /* or ATTN_UNK_MISSING */
    size_t max_chars;       /* longer words are unknown */
} attn_wordpiece;

typedef struct attn_unigram {
    attn_trie trie;
    double *scores;         /* [n_entries] */
    double unk_score;
    int32_t unk_entry;      /* or ATTN_UNK_NONE */
    bool byte_fallback, fuse_unk;
} attn_unigram;

/* ---- Post-processing ---- */

enum attn_post_kind {
    ATTN_POST_TRIM,    /* trim blanks off the offsets (byte-level) */
    ATTN_POST_TEMPLATE /* put special tokens around the texts */
};

typedef struct attn_template_item {
    int32_t sequence; /* 0, 1: this text; -1: a special token */
    int32_t type_id;
    int32_t special;  /* index into specials */
} attn_template_item;

/* A special token of a template: some ids, each with its spelling. */
typedef struct attn_special_token {
    int32_t id;
    size_t at, len; /* in text */
} attn_special_token;

typedef struct attn_template_special {
    attn_special_token *tokens;
    size_t len, cap;
    attn_strbuf name, text;
} attn_template_special;

typedef struct attn_post {
    enum attn_post_kind kind;
    bool prefix_space;    /* TRIM: one leading blank at the beginning was not in the text */
    attn_template_item *items[2]; /* TEMPLATE: for one text, for a pair */
    size_t n_items[2], items_cap[2];
    attn_template_special *specials;
    size_t n_specials, specials_cap;
} attn_post;

/* ---- The whole ---- */

struct attn_tokenizer {
    attn_vocab vocab;
    attn_steps normalizers, splitters, decoders;
    bool has_decoder;     /* else tokens are joined by blanks */
    attn_added added;
    enum attn_model_kind model;
    attn_bpe bpe;
    attn_wordpiece wordpiece;
    attn_unigram unigram;
    int32_t unk_entry;    /* WORDLEVEL */
    attn_post *posts;
    size_t n_posts;
    int32_t special_ids[7]; /* ATTN_SPECIAL_*, -1: none */
    int64_t max_length;
    pthread_mutex_t lock;   /* guards pool */
    struct attn_scratch *pool; /* memory of encode calls that are not running */
};

/* ---- Memory of one encode call, kept between calls ---- */

/* A piece of the work text, or an added token in it. */
typedef struct attn_split {
    uint32_t start, end;
    int32_t added; /* index into added.tokens; -1: a piece for the model */
} attn_split;

typedef struct attn_splits {
    attn_split *data;
    size_t len, cap;
} attn_splits;

/* A token of the result: where in the original text, and its text where that is not the vocabulary's spelling. */
typedef struct attn_piece {
    int32_t entry;
    uint32_t start, end; /* bytes of the original */
    int64_t text;        /* offset into extra; -1: the vocabulary's spelling */
    uint32_t text_len;
} attn_piece;

typedef struct attn_pieces {
    attn_piece *data;
    size_t len, cap;
} attn_pieces;

enum { ATTN_CACHE_BITS = 15, ATTN_CACHE_KEY = 32, ATTN_CACHE_TOKENS = 6, ATTN_CACHE_RAW = 128 };

/* What the model made of a short piece; one cache line. */
typedef struct attn_cache_slot {
    uint8_t len, n;                    /* n 0: empty */
    /* n has ATTN_CACHE_RAW when the key is plain bytes of byte-level text, which mean something else when spelled out */
    uint8_t lens[ATTN_CACHE_TOKENS];   /* bytes of each token */
    char key[ATTN_CACHE_KEY];          /* [len] */
    int32_t entries[ATTN_CACHE_TOKENS];
} attn_cache_slot;

typedef struct attn_scratch {
    struct attn_scratch *next;
    attn_regex_scratch *regex;
    attn_worktext text;
    bool raw; /* byte-level pieces of the present segment are plain bytes */
    attn_splits splits, more_splits;
    attn_splits segments;
    attn_symbols symbols;
    attn_bpe_scratch bpe;
    struct attn_lattice_node *lattice; /* unigram: one per byte border */
    size_t lattice_cap;
    attn_cache_slot *cache; /* [1 << ATTN_CACHE_BITS] */
    attn_strbuf replaced[2]; /* texts after replacement of ill-formed bytes */
    attn_pieces pieces[2];
    attn_strbuf extra;
} attn_scratch;

/* Where the text of a token stands: the spelling of an entry, or bytes of attn_encoding.spelled (entry -1). */
typedef struct attn_text_place {
    int32_t entry;
    uint32_t len;
    size_t at;
} attn_text_place;

struct attn_encoding {
    const attn_tokenizer *tokenizer;
    int64_t len;
    size_t cap;
    int32_t *ids, *type_ids, *sequences;
    int64_t *byte_offsets, *char_offsets; /* [len][2] */
    attn_text_place *places;
    bool has_chars;       /* char_offsets are filled */
    attn_strbuf spelled;
    attn_strbuf texts[2]; /* copies, for code-point offsets */
};

/* ---- Between the files of this room ---- */

attn_tokenizer *attn_tokenizer_new(void);
attn_step *attn_steps_add(attn_steps *steps, enum attn_step_kind kind); /* NULL: out of memory, recorded */
void attn_steps_free(attn_steps *steps);

/* Registers an added token; its spelling is in the vocabulary already. */
attn_status attn_added_add(attn_tokenizer *tokenizer, const attn_added_token *token);
/* Cuts text[0, len) at the added tokens of one trie, appending to out. Pieces keep `base` added to their places. */
attn_status attn_added_cut(const attn_tokenizer *tokenizer, const attn_trie *trie, const char *text, size_t len,
                           bool specials_as_text, attn_splits *out);

/* The next match of a step's pattern (regex or plain) in text[0, len) from `at` on; *start is SIZE_MAX when there is
 * none. */
attn_status attn_step_match(const attn_step *step, attn_regex_scratch *scratch, const char *text, size_t len, size_t at,
                            bool not_empty_at, size_t *start, size_t *end);
/* Appends text with every match replaced by the step's content. scratch may be NULL. */
attn_status attn_replace(const attn_step *step, attn_regex_scratch *scratch, const char *text, size_t len,
                         attn_strbuf *out);

/* Runs one normaliser over the work text. */
attn_status attn_normalize(const attn_step *step, attn_scratch *scratch);
/* Runs one pre-tokenizer over scratch->splits. `raw`: byte-level text stays plain bytes for the model. */
attn_status attn_presplit(const attn_step *step, attn_scratch *scratch, bool raw);

/* Tokens of the piece text[start, end) of the work text, appended to out. */
attn_status attn_tokenizer_model_encode(const attn_tokenizer *tokenizer, attn_scratch *scratch, size_t start, size_t end,
                              attn_pieces *out);
/* Fills wordpiece.continuing: tokens that begin with the prefix, by what follows it. */
attn_status attn_wordpiece_prepare(attn_tokenizer *tokenizer, attn_text prefix);

/* The models, on one piece; they append to out, which is empty. */
attn_status attn_wordpiece_encode(const attn_tokenizer *tokenizer, const char *piece, size_t len, attn_symbols *out);
attn_status attn_wordlevel_encode(const attn_tokenizer *tokenizer, const char *piece, size_t len, attn_symbols *out);
attn_status attn_unigram_encode(const attn_tokenizer *tokenizer, attn_scratch *scratch, const char *piece, size_t len,
                                attn_symbols *out);

/* Truncates, adds special tokens, fills the encoding from scratch->pieces. */
attn_status attn_post_process(const attn_tokenizer *tokenizer, attn_scratch *scratch, int n_texts,
                              const attn_encode_options *options, attn_encoding *encoding);
attn_status attn_scratch_create(attn_scratch **made);
void attn_scratch_free_all(attn_scratch *scratch);

/* Building post-processors. item->special must be an index that attn_post_special returned. */
attn_status attn_post_add(attn_tokenizer *tokenizer, enum attn_post_kind kind, attn_post **post);
attn_status attn_post_special(attn_post *post, const char *name, size_t len, int32_t *index);
attn_status attn_post_special_id(attn_template_special *special, int32_t id, const char *text, size_t len);
attn_status attn_post_item(attn_post *post, int pair, int32_t sequence, int32_t type_id, int32_t special);
void attn_post_free(attn_post *post);

/* Last step before use, however the tokenizer was built. */
attn_status attn_tokenizer_finish(attn_tokenizer *tokenizer);

attn_status attn_splits_add(attn_splits *splits, size_t start, size_t end, int32_t added);

#endif
