/* tokenizer.c - making, finishing, asking and freeing tokenizers. */
#include "text/bytelevel.h"
#include "text/tokenizer_impl.h"

attn_tokenizer *attn_tokenizer_new(void)
{
    attn_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer || pthread_mutex_init(&tokenizer->lock, NULL)) {
        free(tokenizer);
        attn_text_no_memory();
        return NULL;
    }
    for (int role = 0; role < 7; role++)
        tokenizer->special_ids[role] = -1;
    tokenizer->vocab.max_id = -1;
    tokenizer->unk_entry = tokenizer->bpe.unk_entry = tokenizer->unigram.unk_entry = ATTN_UNK_NONE;
    tokenizer->wordpiece.unk_entry = ATTN_UNK_MISSING;
    return tokenizer;
}

/* ---- Steps ---- */

attn_step *attn_steps_add(attn_steps *steps, enum attn_step_kind kind)
{
    if (attn_grow(&steps->data, &steps->cap, steps->len + 1, sizeof *steps->data) != ATTN_OK)
        return NULL;
    attn_step *step = &steps->data[steps->len++];
    memset(step, 0, sizeof *step);
    step->kind = kind;
    return step;
}

void attn_steps_free(attn_steps *steps)
{
    for (size_t i = 0; i < steps->len; i++) {
        attn_regex_destroy(steps->data[i].regex);
        attn_strbuf_free(&steps->data[i].pattern);
        attn_strbuf_free(&steps->data[i].content);
    }
    free(steps->data);
    memset(steps, 0, sizeof *steps);
}

/* ---- Post-processors ---- */

attn_status attn_post_add(attn_tokenizer *tokenizer, enum attn_post_kind kind, attn_post **post)
{
    size_t cap = tokenizer->n_posts; /* grown one at a time: there are one or two */
    ATTN_TEXT_TRY(attn_grow(&tokenizer->posts, &cap, tokenizer->n_posts + 1, sizeof *tokenizer->posts));
    *post = &tokenizer->posts[tokenizer->n_posts++];
    memset(*post, 0, sizeof **post);
    (*post)->kind = kind;
    return ATTN_OK;
}

attn_status attn_post_special(attn_post *post, const char *name, size_t len, int32_t *index)
{
    for (size_t i = 0; i < post->n_specials; i++)
        if (post->specials[i].name.len == len && !memcmp(post->specials[i].name.data, name, len)) {
            *index = (int32_t)i;
            return ATTN_OK;
        }
    ATTN_TEXT_TRY(attn_grow(&post->specials, &post->specials_cap, post->n_specials + 1, sizeof *post->specials));
    attn_template_special *special = &post->specials[post->n_specials];
    memset(special, 0, sizeof *special);
    *index = (int32_t)post->n_specials++;
    ATTN_TEXT_TRY(attn_strbuf_reserve(&special->name, len + 1));
    return attn_strbuf_add(&special->name, name, len);
}

attn_status attn_post_special_id(attn_template_special *special, int32_t id, const char *text, size_t len)
{
    ATTN_TEXT_TRY(attn_grow(&special->tokens, &special->cap, special->len + 1, sizeof *special->tokens));
    special->tokens[special->len++] = (attn_special_token){.id = id, .at = special->text.len, .len = len};
    ATTN_TEXT_TRY(attn_strbuf_reserve(&special->text, len + 1));
    return attn_strbuf_add(&special->text, text, len);
}

attn_status attn_post_item(attn_post *post, int pair, int32_t sequence, int32_t type_id, int32_t special)
{
    ATTN_TEXT_TRY(attn_grow(&post->items[pair], &post->items_cap[pair], post->n_items[pair] + 1, sizeof **post->items));
    post->items[pair][post->n_items[pair]++] = (attn_template_item){sequence, type_id, special};
    return ATTN_OK;
}

void attn_post_free(attn_post *post)
{
    for (size_t i = 0; i < post->n_specials; i++) {
        free(post->specials[i].tokens);
        attn_strbuf_free(&post->specials[i].name);
        attn_strbuf_free(&post->specials[i].text);
    }
    free(post->specials);
    free(post->items[0]);
    free(post->items[1]);
}

/* ---- Finishing ---- */

/* Of tokens that are normalised to the same text the first one is found. */
static bool is_taken(const attn_trie *trie, const char *text, size_t len)
{
    size_t matched = 0;
    return trie->n_nodes && attn_trie_longest(trie, text, len, &matched) >= 0 && matched == len;
}

/* An added token that is looked for in normalised text is normalised itself. */
static attn_status add_normalized(attn_tokenizer *tokenizer, attn_scratch *scratch, size_t index)
{
    size_t len;
    const char *text = attn_vocab_text(&tokenizer->vocab, tokenizer->added.tokens[index].entry, &len);
    scratch->text.original = text;
    scratch->text.original_len = len;
    attn_worktext_set(&scratch->text, 0, len);
    for (size_t i = 0; i < tokenizer->normalizers.len; i++)
        ATTN_TEXT_TRY(attn_normalize(&tokenizer->normalizers.data[i], scratch));
    attn_vocab *vocab = &tokenizer->vocab;
    attn_token_entry *entry = &vocab->entries[tokenizer->added.tokens[index].entry];
    if (scratch->text.data != text) { /* some normaliser has written a new form: decoding shows that one */
        if (scratch->text.len != len || memcmp(scratch->text.data ? scratch->text.data : "", text, len))
            entry->flags |= ATTN_TOKEN_RESPELLED;
        entry->shown_at = vocab->text.len;
        entry->shown_len = (uint32_t)scratch->text.len;
        ATTN_TEXT_TRY(attn_strbuf_add(&vocab->text, scratch->text.data, scratch->text.len));
    }
    if (!scratch->text.len)
        return ATTN_OK; /* it is nowhere to be found */
    if (is_taken(&tokenizer->added.normalized, scratch->text.data, scratch->text.len))
        return ATTN_OK;
    return attn_trie_add(&tokenizer->added.normalized, scratch->text.data, scratch->text.len, (int32_t)index);
}

static attn_status add_to_tries(attn_tokenizer *tokenizer)
{
    attn_added *added = &tokenizer->added;
    attn_scratch *scratch = NULL;
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < added->len && status == ATTN_OK; i++) {
        size_t len;
        const char *text = attn_vocab_text(&tokenizer->vocab, added->tokens[i].entry, &len);
        if (added->tokens[i].normalized) {
            if (!scratch)
                status = attn_scratch_create(&scratch);
            if (status == ATTN_OK)
                status = add_normalized(tokenizer, scratch, i);
        } else {
            status = attn_trie_add(&added->raw, text, len, (int32_t)i);
        }
    }
    attn_scratch_free_all(scratch);
    return status;
}

/* Byte-level pieces may stay plain bytes when nothing after the byte-level step looks at the text. */
static bool ends_byte_level(const attn_tokenizer *tokenizer)
{
    size_t n = tokenizer->splitters.len, byte_level = 0;
    for (size_t i = 0; i < n; i++)
        byte_level += tokenizer->splitters.data[i].kind == ATTN_STEP_BYTE_LEVEL;
    return byte_level == 1 && tokenizer->splitters.data[n - 1].kind == ATTN_STEP_BYTE_LEVEL;
}

attn_status attn_tokenizer_finish(attn_tokenizer *tokenizer)
{
    ATTN_TEXT_TRY(add_to_tries(tokenizer));
    attn_bpe_prepare_fallback(&tokenizer->bpe, &tokenizer->vocab); /* Unigram uses it, too */
    if (tokenizer->model == ATTN_MODEL_BPE && ends_byte_level(tokenizer))
        return attn_bpe_prepare_raw(&tokenizer->bpe, &tokenizer->vocab);
    return ATTN_OK;
}

void attn_tokenizer_destroy(attn_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    attn_scratch_free_all(tokenizer->pool);
    attn_vocab_free(&tokenizer->vocab);
    attn_steps_free(&tokenizer->normalizers);
    attn_steps_free(&tokenizer->splitters);
    attn_steps_free(&tokenizer->decoders);
    free(tokenizer->added.tokens);
    attn_trie_free(&tokenizer->added.raw);
    attn_trie_free(&tokenizer->added.normalized);
    attn_bpe_free(&tokenizer->bpe);
    attn_strmap_free(&tokenizer->wordpiece.continuing);
    attn_trie_free(&tokenizer->unigram.trie);
    free(tokenizer->unigram.scores);
    for (size_t i = 0; i < tokenizer->n_posts; i++)
        attn_post_free(&tokenizer->posts[i]);
    free(tokenizer->posts);
    pthread_mutex_destroy(&tokenizer->lock);
    free(tokenizer);
}

/* ---- Looking up ---- */

int64_t attn_tokenizer_size(const attn_tokenizer *tokenizer)
{
    return tokenizer ? (int64_t)tokenizer->vocab.max_id + 1 : 0;
}

const char *attn_tokenizer_token(const attn_tokenizer *tokenizer, int32_t id, size_t *size)
{
    int32_t entry = tokenizer ? attn_vocab_entry_of(&tokenizer->vocab, id) : -1;
    if (entry < 0)
        return NULL;
    size_t len;
    const char *text = attn_vocab_text(&tokenizer->vocab, entry, &len);
    if (size)
        *size = len;
    return text;
}

int32_t attn_tokenizer_id(const attn_tokenizer *tokenizer, const char *token, size_t size)
{
    return tokenizer && token ? attn_vocab_id(&tokenizer->vocab, token, size) : -1;
}

int attn_tokenizer_is_special(const attn_tokenizer *tokenizer, int32_t id)
{
    int32_t entry = tokenizer ? attn_vocab_entry_of(&tokenizer->vocab, id) : -1;
    return entry >= 0 && (tokenizer->vocab.entries[entry].flags & ATTN_TOKEN_SPECIAL) != 0;
}

int32_t attn_tokenizer_special(const attn_tokenizer *tokenizer, int32_t role)
{
    return tokenizer && role >= 0 && role < 7 ? tokenizer->special_ids[role] : -1;
}

int64_t attn_tokenizer_max_length(const attn_tokenizer *tokenizer)
{
    return tokenizer ? tokenizer->max_length : 0;
}
