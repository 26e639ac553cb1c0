/* attn/tokenizer.h - text to token ids and back (libattn_model).
 *
 *     load -> look up -> encode -> decode -> decode as a stream
 *
 * A tokenizer is read-only after loading and may be shared by any number of threads. An attn_encoding and an
 * attn_decode_stream belong to one thread at a time. Ids, offsets and decoded text are those of Hugging Face's
 * `tokenizers` library for the same tokenizer.json. The rules of attn.h hold: zero is the default, errors are values,
 * on an error outputs are untouched unless a function says otherwise.
 *
 *     attn_tokenizer *tokenizer;
 *     attn_encoding *encoding;
 *     if (attn_tokenizer_load("tokenizer.json", &tokenizer) != ATTN_OK) puts(attn_tokenizer_error());
 *     attn_encoding_create(&encoding);
 *     attn_tokenizer_encode(tokenizer, "Hello", 5, NULL, 0, NULL, encoding);
 *     const int32_t *ids = attn_encoding_ids(encoding);          // attn_encoding_length(encoding) of them
 *
 * Text is UTF-8 with a length in bytes; a zero byte is a character like any other. Encoding takes time linear in the
 * text, whatever the text is.
 */
#ifndef ATTN_TOKENIZER_H
#define ATTN_TOKENIZER_H

#include "attn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_tokenizer attn_tokenizer;
typedef struct attn_encoding attn_encoding;
typedef struct attn_decode_stream attn_decode_stream;

/** Why the last function of this header failed on the calling thread, naming field and value; "" when none did.
 * Valid until the next call of this header on this thread. */
ATTN_API const char *attn_tokenizer_error(void);

/* ---- Loading --------------------------------------------------------------------------------- */

/** Reads a tokenizer.json file (Hugging Face's format). On error *tokenizer is NULL.
 *
 * Models: BPE (byte-level, byte fallback, ignore_merges), WordPiece, Unigram, WordLevel. A part that is not served
 * is refused by name; a broken one by field.
 * Returns OK; IO (cannot be opened or read); FORMAT; UNSUPPORTED; OUT_OF_MEMORY; INVALID_ARGUMENT (NULL). */
ATTN_API attn_status attn_tokenizer_load(const char *path, attn_tokenizer **tokenizer);

/** The same from memory: the bytes of a tokenizer.json. They are not needed afterwards. */
ATTN_API attn_status attn_tokenizer_from_json(const void *bytes, size_t size, attn_tokenizer **tokenizer);

/* A piece of text that need not end in a zero byte. */
typedef struct attn_text {
    const char *data;
    size_t size;
} attn_text;

enum { /* attn_tokenizer_arrays.model */
    ATTN_TOKENIZER_BYTE_BPE = 0,  /* GGUF "gpt2": byte-level BPE with merges */
    ATTN_TOKENIZER_SPM = 1,       /* GGUF "llama": pieces with scores, byte fallback, U+2581 for blanks */
    ATTN_TOKENIZER_WORDPIECE = 2  /* GGUF "bert": U+2581 in front of pieces that begin a word */
};

/* What a GGUF file holds about its tokenizer. An id of -1 means that there is none; note that ATTN_ARGS_INIT
 * sets 0, which is an id. */
typedef struct attn_tokenizer_arrays {
    size_t struct_size;
    int32_t model;                /* ATTN_TOKENIZER_*: tokenizer.ggml.model */
    int32_t reserved;             /* 0 */
    const char *pre;              /* tokenizer.ggml.pre: "gpt-2", "smollm", "llama-bpe", "qwen2", ...; NULL or "": as "gpt-2" */
    const attn_text *tokens;      /* [n_tokens]: tokenizer.ggml.tokens; the id is the index */
    int64_t n_tokens;
    const attn_text *merges;      /* [n_merges]: "left right", best first; byte-level BPE only */
    int64_t n_merges;
    const float *scores;          /* [n_tokens]; SPM only */
    const int32_t *token_types;   /* [n_tokens] 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte; NULL: all 1.
                                     3 and 4 are found in text as they stand; 3 is left out by ATTN_DECODE_SKIP_SPECIAL */
    int32_t bos_id, eos_id, unk_id, pad_id, sep_id, cls_id, mask_id; /* 0 .. n_tokens - 1, or -1 */
    int32_t add_bos, add_eos;     /* 1: encode puts bos_id in front / eos_id behind; 0: not */
    int32_t add_space_prefix;     /* SPM: 1 puts a blank before a text, and before what follows a special token */
    int32_t lowercase;            /* WordPiece: 1 lowercases and strips accents */
} attn_tokenizer_arrays;

/** Builds a tokenizer from the arrays of a GGUF file; they are copied. On error *tokenizer is NULL.
 * Returns OK; INVALID_ARGUMENT (an id or size out of range); FORMAT (a merge or token that breaks its format, by
 * index); UNSUPPORTED (an unknown `pre` or `model`, by name); OUT_OF_MEMORY. */
ATTN_API attn_status attn_tokenizer_from_arrays(const attn_tokenizer_arrays *arrays, attn_tokenizer **tokenizer);

/** Frees a tokenizer. NULL is fine. Its streams must be destroyed first; encodings only lose attn_encoding_token. */
ATTN_API void attn_tokenizer_destroy(attn_tokenizer *tokenizer);

/* ---- Looking up ------------------------------------------------------------------------------ */

/** One more than the highest id, added tokens included. */
ATTN_API int64_t attn_tokenizer_size(const attn_tokenizer *tokenizer);

/** The vocabulary's spelling of an id ("\u0120bridge", "##ing"), ended by a zero byte; its length in *size where size is
 * not NULL. NULL for an id that the vocabulary does not have. Lives as long as the tokenizer. */
ATTN_API const char *attn_tokenizer_token(const attn_tokenizer *tokenizer, int32_t id, size_t *size);

/** The id of exactly this spelling, -1 when there is none. */
ATTN_API int32_t attn_tokenizer_id(const attn_tokenizer *tokenizer, const char *token, size_t size);

/** 1 when the id is a special token (control tokens, [CLS], ...), else 0. */
ATTN_API int attn_tokenizer_is_special(const attn_tokenizer *tokenizer, int32_t id);

enum { /* attn_tokenizer_special */
    ATTN_SPECIAL_BOS = 0,
    ATTN_SPECIAL_EOS = 1,
    ATTN_SPECIAL_UNK = 2,
    ATTN_SPECIAL_PAD = 3,
    ATTN_SPECIAL_SEP = 4,
    ATTN_SPECIAL_CLS = 5,
    ATTN_SPECIAL_MASK = 6
};

/** The id of a role, -1 when the tokenizer has none. From arrays: the ids given. From tokenizer.json, which does not say:
 * UNK as its model names it, the others by their usual spellings among the special tokens (<s>, </s>, [PAD], ...). */
ATTN_API int32_t attn_tokenizer_special(const attn_tokenizer *tokenizer, int32_t role);

/** The truncation length that tokenizer.json asks for; 0 when it asks for none. Encode does not apply it by itself. */
ATTN_API int64_t attn_tokenizer_max_length(const attn_tokenizer *tokenizer);

/* ---- Encoding -------------------------------------------------------------------------------- */

enum { /* attn_encode_options.flags */
    ATTN_ENCODE_NO_SPECIAL = 1,       /* do not add the tokenizer's own tokens (BOS, [CLS], ...) */
    ATTN_ENCODE_SPECIALS_AS_TEXT = 2, /* a special token spelled in the text is ordinary text */
    ATTN_ENCODE_REPLACE_INVALID = 4,  /* ill-formed UTF-8 becomes U+FFFD, one per maximal ill-formed part */
    ATTN_ENCODE_TRUNCATE_LEFT = 8     /* max_length drops tokens from the beginning instead of the end */
};

typedef struct attn_encode_options {
    size_t struct_size;
    uint32_t flags;     /* ATTN_ENCODE_*; unknown bits are UNSUPPORTED */
    int32_t reserved;   /* 0 */
    int64_t max_length; /* at most this many ids, special ones included and kept; the longer of a pair is cut first.
                           0: no limit */
} attn_encode_options;

/** An empty encoding, to be filled again and again; it keeps its memory between calls. */
ATTN_API attn_status attn_encoding_create(attn_encoding **encoding);
/** Frees an encoding. NULL is fine. */
ATTN_API void attn_encoding_destroy(attn_encoding *encoding);

/** Encodes text, or the pair (text, pair) where pair is not NULL. options may be NULL.
 *
 * Neither text may exceed 2^31 - 1 bytes. On error the encoding is empty.
 * Returns OK; INVALID_ARGUMENT (a NULL; a text too long; max_length negative or below the number of special tokens);
 * FORMAT (ill-formed UTF-8, with the byte's position); UNSUPPORTED (flags; a text on which the split pattern exceeds
 * its matching limits); OUT_OF_MEMORY. */
ATTN_API attn_status attn_tokenizer_encode(const attn_tokenizer *tokenizer, const char *text, size_t text_bytes,
                                           const char *pair, size_t pair_bytes,
                                           const attn_encode_options *options, attn_encoding *encoding);

/** Number of tokens. */
ATTN_API int64_t attn_encoding_length(const attn_encoding *encoding);

/* The arrays below have attn_encoding_length() entries and live until the next encode into, or the end of, the encoding. */

ATTN_API const int32_t *attn_encoding_ids(const attn_encoding *encoding);
/** 0 or 1 as the tokenizer's template says (BERT: which text of a pair). */
ATTN_API const int32_t *attn_encoding_type_ids(const attn_encoding *encoding);
/** Which text a token comes from: 0 text, 1 pair, -1 added by the tokenizer. */
ATTN_API const int32_t *attn_encoding_sequences(const attn_encoding *encoding);
/** [length][2]: first and one past last byte in its text (after the replacement of ill-formed bytes); 0, 0 for
 * tokens that the tokenizer added. Always at borders of characters. */
ATTN_API const int64_t *attn_encoding_byte_offsets(const attn_encoding *encoding);
/** [length][2]: the same in Unicode code points. Computed at the first call after an encode; NULL when out of memory. */
ATTN_API const int64_t *attn_encoding_char_offsets(attn_encoding *encoding);
/** Text of token i: the vocabulary's spelling; for an added token found in the text, the text that it covers. Not ended
 * by a zero byte; length in *size. NULL for i out of range. The tokenizer must still be there. */
ATTN_API const char *attn_encoding_token(const attn_encoding *encoding, int64_t i, size_t *size);

/* ---- Decoding -------------------------------------------------------------------------------- */

enum { /* flags of decoding */
    ATTN_DECODE_SKIP_SPECIAL = 1 /* leave special tokens out */
};

/** UTF-8 text of ids, not ended by a zero byte. text[capacity] receives at most capacity bytes, *n_bytes is how many
 * there are in all (call with capacity 0 to learn it). Ids that the vocabulary does not have give nothing, as do models
 * with more rows than tokens. Bytes that are no character give U+FFFD.
 * Returns OK; INVALID_ARGUMENT (a NULL; a negative count or id); UNSUPPORTED (flags); OUT_OF_MEMORY. */
ATTN_API attn_status attn_tokenizer_decode(const attn_tokenizer *tokenizer, const int32_t *ids, int64_t n_ids,
                                           uint32_t flags, char *text, size_t capacity, size_t *n_bytes);

/** A decoder that takes one id at a time. What it emits, put together, is what attn_tokenizer_decode gives for all
 * ids, and it never emits part of a character. The tokenizer must outlive it. */
ATTN_API attn_status attn_decode_stream_create(const attn_tokenizer *tokenizer, uint32_t flags,
                                               attn_decode_stream **stream);
/** Frees a stream. NULL is fine. */
ATTN_API void attn_decode_stream_destroy(attn_decode_stream *stream);
/** Takes the next id. *text (*n_bytes, may be 0) is what can be shown now; valid until the next call on the stream. */
ATTN_API attn_status attn_decode_stream_push(attn_decode_stream *stream, int32_t id, const char **text,
                                             size_t *n_bytes);
/** Ends the text: *text is what was held back (U+FFFD for an unfinished character). The stream then starts anew. */
ATTN_API attn_status attn_decode_stream_finish(attn_decode_stream *stream, const char **text, size_t *n_bytes);

#ifdef __cplusplus
}
#endif
#endif
