/* presplit.c - pre-tokenizers: splitting the work text into the pieces that the model sees. */
#include "text/bytelevel.h"
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

/* Applies a step's behaviour to pieces of one split that are matches or what lies between. Pieces are handed over in
 * order, without gaps. */
typedef struct splitter {
    attn_splits *out;
    enum attn_behavior behavior;
    size_t first;      /* out->len at the beginning of this split */
    bool was_match;    /* of the piece before */
    bool pending;      /* MERGED_WITH_NEXT: a match waits for its piece */
    size_t pending_start, pending_end;
} splitter;

static attn_status add_piece(splitter *s, size_t start, size_t end)
{
    return start < end ? attn_splits_add(s->out, start, end, -1) : ATTN_OK;
}

static attn_status hand_over(splitter *s, size_t start, size_t end, bool match)
{
    if (start == end)
        return ATTN_OK;
    bool was_match = s->was_match, any = s->out->len > s->first;
    attn_split *last = any ? &s->out->data[s->out->len - 1] : NULL;
    s->was_match = match;
    switch (s->behavior) {
    case ATTN_BEHAVIOR_REMOVED:
        return match ? ATTN_OK : add_piece(s, start, end);
    case ATTN_BEHAVIOR_ISOLATED:
        return add_piece(s, start, end);
    case ATTN_BEHAVIOR_CONTIGUOUS:
        if (any && was_match == match) {
            last->end = (uint32_t)end;
            return ATTN_OK;
        }
        return add_piece(s, start, end);
    case ATTN_BEHAVIOR_MERGED_WITH_PREVIOUS:
        if (any && match && !was_match) {
            last->end = (uint32_t)end;
            return ATTN_OK;
        }
        return add_piece(s, start, end);
    case ATTN_BEHAVIOR_MERGED_WITH_NEXT:
        if (match) {
            if (s->pending)
                ATTN_TEXT_TRY(add_piece(s, s->pending_start, s->pending_end));
            s->pending = true;
            s->pending_start = start;
            s->pending_end = end;
            return ATTN_OK;
        }
        ATTN_TEXT_TRY(add_piece(s, s->pending ? s->pending_start : start, end));
        s->pending = false;
        return ATTN_OK;
    }
    return ATTN_OK;
}

static attn_status close_split(splitter *s)
{
    if (s->pending)
        ATTN_TEXT_TRY(add_piece(s, s->pending_start, s->pending_end));
    return ATTN_OK;
}

/* Splits one piece by the matches of a pattern. */
static attn_status split_by_pattern(const attn_step *step, attn_scratch *scratch, splitter *s, size_t from, size_t to)
{
    const char *text = scratch->text.data + from;
    size_t len = to - from, done = 0, at = 0;
    bool not_empty = false;
    while (at <= len) {
        size_t start, end, fast;
        if (step->fast && at < len && (fast = attn_fast_split(step->fast, text, len, at)) != 0) {
            ATTN_TEXT_TRY(hand_over(s, from + at, from + at + fast, !step->invert));
            done = at += fast;
            continue;
        }
        ATTN_TEXT_TRY(attn_step_match(step, scratch->regex, text, len, at, not_empty, &start, &end));
        if (start == SIZE_MAX)
            break;
        if (start == end) { /* nothing is matched here: go on behind the next character */
            at = start + (start < len ? attn_utf8_size(text[start]) : 1);
            not_empty = false;
            ATTN_TEXT_TRY(hand_over(s, from + done, from + start, step->invert));
            done = start;
            continue;
        }
        ATTN_TEXT_TRY(hand_over(s, from + done, from + start, step->invert));
        ATTN_TEXT_TRY(hand_over(s, from + start, from + end, !step->invert));
        done = at = end;
        not_empty = true;
    }
    return hand_over(s, from + done, to, step->invert);
}

/* Splits one piece by a property of its characters: each character that has it is a match. */
static attn_status split_by_property(bool (*has)(uint32_t point), attn_scratch *scratch, splitter *s, size_t from,
                                     size_t to)
{
    const char *text = scratch->text.data;
    size_t done = from;
    for (size_t at = from; at < to;) {
        size_t size = attn_utf8_size(text[at]);
        if (has(attn_utf8_get(text + at, size))) {
            ATTN_TEXT_TRY(hand_over(s, done, at, false));
            ATTN_TEXT_TRY(hand_over(s, at, at + size, true));
            done = at + size;
        }
        at += size;
    }
    return hand_over(s, done, to, false);
}

/* What becomes of a character: part of a word, dropped, or a piece of its own. */
enum char_role {
    ROLE_WORD,
    ROLE_DROPPED,
    ROLE_ALONE
};

static enum char_role bert_role(const attn_step *step, uint32_t point)
{
    (void)step;
    return attn_is_space(point) ? ROLE_DROPPED : attn_is_punctuation(point) ? ROLE_ALONE : ROLE_WORD;
}

static enum char_role blank_role(const attn_step *step, uint32_t point)
{
    (void)step;
    return attn_is_space(point) ? ROLE_DROPPED : ROLE_WORD;
}

static enum char_role delimiter_role(const attn_step *step, uint32_t point)
{
    return point == step->point ? ROLE_DROPPED : ROLE_WORD;
}

static attn_status split_by_role(const attn_step *step, enum char_role (*role_of)(const attn_step *, uint32_t),
                                 attn_scratch *scratch, splitter *s, size_t from, size_t to)
{
    const char *text = scratch->text.data;
    size_t word = from;
    for (size_t at = from; at < to;) {
        size_t size = attn_utf8_size(text[at]);
        enum char_role role = role_of(step, attn_utf8_get(text + at, size));
        if (role != ROLE_WORD) {
            ATTN_TEXT_TRY(add_piece(s, word, at));
            if (role == ROLE_ALONE)
                ATTN_TEXT_TRY(add_piece(s, at, at + size));
            word = at + size;
        }
        at += size;
    }
    return add_piece(s, word, to);
}

/* Runs of word characters, runs of others; blanks are dropped. */
static attn_status split_words(attn_scratch *scratch, splitter *s, size_t from, size_t to)
{
    const char *text = scratch->text.data;
    size_t start = from;
    int kind = 0; /* of the run: 0 blank, 1 word, 2 other */
    for (size_t at = from; at < to;) {
        size_t size = attn_utf8_size(text[at]);
        uint32_t point = attn_utf8_get(text + at, size);
        int now = attn_is_word(point) ? 1 : attn_is_space(point) ? 0 : 2;
        if (now != kind) {
            if (kind)
                ATTN_TEXT_TRY(add_piece(s, start, at));
            start = at;
            kind = now;
        }
        at += size;
    }
    return kind ? add_piece(s, start, to) : ATTN_OK;
}

static attn_status split_one(const attn_step *step, attn_scratch *scratch, splitter *s, size_t from, size_t to)
{
    switch (step->kind) {
    case ATTN_STEP_DIGITS:
        return split_by_property(attn_is_numeric, scratch, s, from, to);
    case ATTN_STEP_PUNCTUATION:
        return split_by_property(attn_is_punctuation, scratch, s, from, to);
    case ATTN_STEP_BERT_SPLIT:
        return split_by_role(step, bert_role, scratch, s, from, to);
    case ATTN_STEP_WHITESPACE_SPLIT:
        return split_by_role(step, blank_role, scratch, s, from, to);
    case ATTN_STEP_CHAR_DELIMITER:
        return split_by_role(step, delimiter_role, scratch, s, from, to);
    case ATTN_STEP_WHITESPACE:
        return split_words(scratch, s, from, to);
    default:
        return split_by_pattern(step, scratch, s, from, to);
    }
}

/* Puts a blank in front of every piece that does not begin with one. */
static attn_status prefix_spaces(attn_scratch *scratch)
{
    attn_rewriter rewriter;
    attn_rewrite_begin(&rewriter, &scratch->text);
    for (size_t i = 0; i < scratch->splits.len; i++) {
        attn_split *split = &scratch->splits.data[i];
        size_t size = split->end - split->start, start = rewriter.len;
        rewriter.at = split->start;
        if (split->added < 0 && size && scratch->text.data[split->start] != ' ')
            ATTN_TEXT_TRY(attn_rewrite_prepend(&rewriter, " ", 1));
        ATTN_TEXT_TRY(attn_rewrite_copy(&rewriter, size));
        split->start = (uint32_t)start;
        split->end = (uint32_t)rewriter.len;
    }
    attn_rewrite_end(&rewriter);
    return ATTN_OK;
}

/* Writes every byte as its character of the alphabet. */
static attn_status spell_bytes(attn_scratch *scratch)
{
    attn_rewriter rewriter;
    attn_rewrite_begin(&rewriter, &scratch->text);
    for (size_t i = 0; i < scratch->splits.len; i++) {
        attn_split *split = &scratch->splits.data[i];
        size_t start = rewriter.len, end = split->end;
        rewriter.at = split->start;
        if (split->added >= 0)
            ATTN_TEXT_TRY(attn_rewrite_copy(&rewriter, end - split->start));
        while (rewriter.at < end) {
            const char *from = scratch->text.data + rewriter.at;
            size_t size = attn_utf8_size(*from);
            for (size_t b = 0; b < size; b++)
                ATTN_TEXT_TRY(attn_rewrite_put(&rewriter, attn_bytelevel_point((unsigned char)from[b]), b > 0));
        }
        split->start = (uint32_t)start;
        split->end = (uint32_t)rewriter.len;
    }
    attn_rewrite_end(&rewriter);
    return ATTN_OK;
}

static attn_status split_all(const attn_step *step, attn_scratch *scratch)
{
    attn_splits *in = &scratch->splits, *out = &scratch->more_splits;
    out->len = 0;
    for (size_t i = 0; i < in->len; i++) {
        attn_split split = in->data[i];
        if (split.added >= 0) {
            ATTN_TEXT_TRY(attn_splits_add(out, split.start, split.end, split.added));
            continue;
        }
        splitter s = {.out = out, .behavior = step->behavior, .first = out->len};
        ATTN_TEXT_TRY(split_one(step, scratch, &s, split.start, split.end));
        ATTN_TEXT_TRY(close_split(&s));
    }
    attn_splits swapped = *in;
    *in = *out;
    *out = swapped;
    return ATTN_OK;
}

/* Metaspace: blanks become the mark, pieces get one in front as the step says. */
static attn_status mark_spaces(const attn_step *step, attn_scratch *scratch)
{
    char mark[4];
    size_t mark_size = attn_utf8_put(step->point, mark);
    const attn_worktext *text = &scratch->text;
    attn_rewriter rewriter;
    attn_rewrite_begin(&rewriter, &scratch->text);
    for (size_t i = 0; i < scratch->splits.len; i++) {
        attn_split *split = &scratch->splits.data[i];
        size_t start = rewriter.len, end = split->end;
        rewriter.at = split->start;
        if (split->added < 0 && rewriter.at < end) {
            const char *first = text->data + rewriter.at;
            uint32_t from, to;
            attn_worktext_range(text, rewriter.at, &from, &to);
            /* offsets of Hugging Face's library slip behind a map, so that a piece begins the text there though its first
             * character has been deleted; elsewhere it then does not */
            bool at_beginning = split->start || !step->behind_map ? from == 0 : text->origin == 0;
            bool marked = *first == ' ' || (end - rewriter.at >= mark_size && !memcmp(first, mark, mark_size));
            if (!marked && (step->prepend == ATTN_PREPEND_ALWAYS || (step->prepend == ATTN_PREPEND_FIRST && at_beginning)))
                ATTN_TEXT_TRY(attn_rewrite_prepend(&rewriter, mark, mark_size));
            const char *blank;
            while ((blank = memchr(text->data + rewriter.at, ' ', end - rewriter.at)) != NULL) {
                ATTN_TEXT_TRY(attn_rewrite_copy(&rewriter, (size_t)(blank - text->data) - rewriter.at));
                ATTN_TEXT_TRY(attn_rewrite_put(&rewriter, step->point, 0));
            }
        }
        ATTN_TEXT_TRY(attn_rewrite_copy(&rewriter, end - rewriter.at));
        split->start = (uint32_t)start;
        split->end = (uint32_t)rewriter.len;
    }
    attn_rewrite_end(&rewriter);
    return ATTN_OK;
}

attn_status attn_presplit(const attn_step *step, attn_scratch *scratch, bool raw)
{
    if (step->kind == ATTN_STEP_METASPACE) {
        ATTN_TEXT_TRY(mark_spaces(step, scratch));
        return step->split ? split_all(step, scratch) : ATTN_OK;
    }
    if (step->kind != ATTN_STEP_BYTE_LEVEL)
        return split_all(step, scratch);
    if (step->prefix_space)
        ATTN_TEXT_TRY(prefix_spaces(scratch));
    if (step->use_regex)
        ATTN_TEXT_TRY(split_all(step, scratch));
    return raw ? ATTN_OK : spell_bytes(scratch);
}
