/* json_steps.c - normalisers, pre-tokenizers and decoders of a tokenizer.json. */
#include "text/bytelevel.h"
#include "text/json_fields.h"
#include "text/normalize.h"

static attn_status copy_text(attn_strbuf *out, attn_text text)
{
    ATTN_TEXT_TRY(attn_strbuf_reserve(out, text.size + 1)); /* not NULL when empty */
    return attn_strbuf_add(out, text.data, text.size);
}

/* One character. */
static attn_status read_char(const attn_field *object, const char *key, const char *missing, uint32_t *point)
{
    attn_text text;
    attn_field field = attn_field_member(object, key);
    ATTN_TEXT_TRY(attn_field_text_of(object, key, missing, &text));
    if (!text.size || attn_utf8_size(text.data[0]) != text.size)
        return attn_field_expected(&field, "one character");
    *point = attn_utf8_get(text.data, text.size);
    return ATTN_OK;
}

/* {"String": "..."} or {"Regex": "..."}. */
static attn_status read_pattern(const attn_field *object, attn_step *step)
{
    attn_field pattern = attn_field_member(object, "pattern");
    ATTN_TEXT_TRY(attn_field_object(&pattern));
    attn_field plain = attn_field_member(&pattern, "String"), regex = attn_field_member(&pattern, "Regex");
    attn_text text;
    if (plain.value) {
        ATTN_TEXT_TRY(attn_field_text(&plain, &text));
        return copy_text(&step->pattern, text);
    }
    ATTN_TEXT_TRY(attn_field_text(&regex, &text));
    step->fast = attn_fast_split_of(text.data, text.size);
    return attn_regex_create(text.data, text.size, regex.path, &step->regex);
}

static attn_status read_behavior(const attn_field *object, const char *missing, enum attn_behavior *behavior)
{
    static const struct {
        const char *name;
        enum attn_behavior value;
    } names[] = {{"Removed", ATTN_BEHAVIOR_REMOVED},
                 {"Isolated", ATTN_BEHAVIOR_ISOLATED},
                 {"MergedWithPrevious", ATTN_BEHAVIOR_MERGED_WITH_PREVIOUS},
                 {"MergedWithNext", ATTN_BEHAVIOR_MERGED_WITH_NEXT},
                 {"Contiguous", ATTN_BEHAVIOR_CONTIGUOUS}};
    attn_text text;
    ATTN_TEXT_TRY(attn_field_text_of(object, "behavior", missing, &text));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(text.data, names[i].name)) {
            *behavior = names[i].value;
            return ATTN_OK;
        }
    attn_field field = attn_field_member(object, "behavior");
    return attn_field_expected(&field, "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

/* ---- Readers of one step each; the step is zeroed but for its kind ---- */

static attn_status read_nothing(const attn_field *object, attn_step *step)
{
    (void)object;
    (void)step;
    return ATTN_OK;
}

static attn_status read_bert(const attn_field *object, attn_step *step)
{
    ATTN_TEXT_TRY(attn_field_flag(object, "clean_text", true, &step->clean_text));
    ATTN_TEXT_TRY(attn_field_flag(object, "handle_chinese_chars", true, &step->chinese));
    ATTN_TEXT_TRY(attn_field_flag(object, "lowercase", true, &step->lowercase));
    return attn_field_flag(object, "strip_accents", step->lowercase, &step->strip_accents);
}

static attn_status read_strip(const attn_field *object, attn_step *step)
{
    ATTN_TEXT_TRY(attn_field_flag(object, "strip_left", true, &step->left));
    return attn_field_flag(object, "strip_right", true, &step->right);
}

static attn_status read_prepend(const attn_field *object, attn_step *step)
{
    attn_text text;
    ATTN_TEXT_TRY(attn_field_text_of(object, "prepend", NULL, &text));
    return copy_text(&step->content, text);
}

static attn_status read_replace(const attn_field *object, attn_step *step)
{
    attn_text text;
    ATTN_TEXT_TRY(attn_field_text_of(object, "content", NULL, &text));
    ATTN_TEXT_TRY(copy_text(&step->content, text));
    return read_pattern(object, step);
}

static attn_status read_split(const attn_field *object, attn_step *step)
{
    ATTN_TEXT_TRY(read_behavior(object, NULL, &step->behavior));
    ATTN_TEXT_TRY(attn_field_flag(object, "invert", false, &step->invert));
    return read_pattern(object, step);
}

static attn_status read_byte_level(const attn_field *object, attn_step *step)
{
    ATTN_TEXT_TRY(attn_field_flag(object, "add_prefix_space", true, &step->prefix_space));
    ATTN_TEXT_TRY(attn_field_flag(object, "use_regex", true, &step->use_regex));
    step->behavior = ATTN_BEHAVIOR_ISOLATED;
    step->fast = ATTN_FAST_GPT2;
    return attn_regex_create(attn_bytelevel_pattern, strlen(attn_bytelevel_pattern), object->path, &step->regex);
}

static attn_status read_metaspace(const attn_field *object, attn_step *step)
{
    bool prefix;
    attn_field scheme = attn_field_member(object, "prepend_scheme");
    ATTN_TEXT_TRY(read_char(object, "replacement", NULL, &step->point));
    ATTN_TEXT_TRY(attn_field_flag(object, "add_prefix_space", true, &prefix));
    ATTN_TEXT_TRY(attn_field_flag(object, "split", true, &step->split));
    if (attn_field_is(&scheme, "first"))
        step->prepend = ATTN_PREPEND_FIRST;
    else if (attn_field_is(&scheme, "never") || (!scheme.value && !prefix))
        step->prepend = ATTN_PREPEND_NEVER;
    else if (scheme.value && !attn_field_is(&scheme, "always"))
        return attn_field_expected(&scheme, "always, first or never");
    char mark[4];
    step->behavior = ATTN_BEHAVIOR_MERGED_WITH_NEXT;
    return copy_text(&step->pattern, (attn_text){mark, attn_utf8_put(step->point, mark)});
}

static attn_status read_punctuation(const attn_field *object, attn_step *step)
{
    return read_behavior(object, "Isolated", &step->behavior);
}

static attn_status read_digits(const attn_field *object, attn_step *step)
{
    ATTN_TEXT_TRY(attn_field_flag(object, "individual_digits", false, &step->individual));
    step->behavior = step->individual ? ATTN_BEHAVIOR_ISOLATED : ATTN_BEHAVIOR_CONTIGUOUS;
    return ATTN_OK;
}

static attn_status read_delimiter(const attn_field *object, attn_step *step)
{
    return read_char(object, "delimiter", NULL, &step->point);
}

static attn_status read_wordpiece(const attn_field *object, attn_step *step)
{
    attn_text text;
    ATTN_TEXT_TRY(attn_field_text_of(object, "prefix", "##", &text));
    ATTN_TEXT_TRY(attn_field_flag(object, "cleanup", true, &step->cleanup));
    return copy_text(&step->content, text);
}

static attn_status read_strip_token(const attn_field *object, attn_step *step)
{
    attn_field start = attn_field_member(object, "start"), stop = attn_field_member(object, "stop");
    ATTN_TEXT_TRY(read_char(object, "content", NULL, &step->point));
    ATTN_TEXT_TRY(attn_field_int(&start, 0, INT32_MAX, &step->start));
    return attn_field_int(&stop, 0, INT32_MAX, &step->stop);
}

static attn_status read_suffix(const attn_field *object, attn_step *step)
{
    attn_text text;
    ATTN_TEXT_TRY(attn_field_text_of(object, "suffix", "</w>", &text));
    return copy_text(&step->content, text);
}

static int base64_digit(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+' ? 62 : c == '/' ? 63 : -1;
}

static attn_status read_precompiled(const attn_field *object, attn_step *step)
{
    attn_text text;
    attn_field field = attn_field_member(object, "precompiled_charsmap");
    ATTN_TEXT_TRY(attn_field_text(&field, &text));
    ATTN_TEXT_TRY(attn_strbuf_reserve(&step->content, text.size / 4 * 3 + 4));
    uint32_t bits = 0;
    int n_bits = 0;
    while (text.size && text.data[text.size - 1] == '=')
        text.size--;
    for (size_t i = 0; i < text.size; i++) {
        int digit = base64_digit(text.data[i]);
        if (digit < 0)
            return attn_text_fail(ATTN_ERR_FORMAT, "%s is not base64: byte %zu", field.path, i);
        bits = bits << 6 | (uint32_t)digit;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            step->content.data[step->content.len++] = (char)(bits >> n_bits & 0xff);
        }
    }
    if (attn_precompiled_check(&step->content) != ATTN_OK)
        return attn_text_fail(ATTN_ERR_FORMAT, "%s (%zu bytes) holds no character map", field.path, step->content.len);
    return ATTN_OK;
}

/* ---- The table of types ---- */

#define IN_NORMALIZER (1u << ATTN_FAMILY_NORMALIZER)
#define IN_SPLITTER (1u << ATTN_FAMILY_SPLITTER)
#define IN_DECODER (1u << ATTN_FAMILY_DECODER)

static const struct step_type {
    const char *name;
    unsigned families;
    enum attn_step_kind kind;
    attn_status (*read)(const attn_field *object, attn_step *step);
} step_types[] = {
    {"BertNormalizer", IN_NORMALIZER, ATTN_STEP_BERT, read_bert},
    {"Lowercase", IN_NORMALIZER, ATTN_STEP_LOWERCASE, read_nothing},
    {"NFC", IN_NORMALIZER, ATTN_STEP_NFC, read_nothing},
    {"NFD", IN_NORMALIZER, ATTN_STEP_NFD, read_nothing},
    {"NFKC", IN_NORMALIZER, ATTN_STEP_NFKC, read_nothing},
    {"NFKD", IN_NORMALIZER, ATTN_STEP_NFKD, read_nothing},
    {"Strip", IN_NORMALIZER, ATTN_STEP_STRIP, read_strip},
    {"StripAccents", IN_NORMALIZER, ATTN_STEP_STRIP_ACCENTS, read_nothing},
    {"Nmt", IN_NORMALIZER, ATTN_STEP_NMT, read_nothing},
    {"Prepend", IN_NORMALIZER, ATTN_STEP_PREPEND, read_prepend},
    {"Replace", IN_NORMALIZER | IN_DECODER, ATTN_STEP_REPLACE, read_replace},
    {"Precompiled", IN_NORMALIZER, ATTN_STEP_PRECOMPILED, read_precompiled},
    {"ByteLevel", IN_NORMALIZER | IN_SPLITTER | IN_DECODER, ATTN_STEP_BYTE_LEVEL, read_byte_level},
    {"Split", IN_SPLITTER, ATTN_STEP_SPLIT, read_split},
    {"BertPreTokenizer", IN_SPLITTER, ATTN_STEP_BERT_SPLIT, read_nothing},
    {"Metaspace", IN_SPLITTER | IN_DECODER, ATTN_STEP_METASPACE, read_metaspace},
    {"Whitespace", IN_SPLITTER, ATTN_STEP_WHITESPACE, read_nothing},
    {"WhitespaceSplit", IN_SPLITTER, ATTN_STEP_WHITESPACE_SPLIT, read_nothing},
    {"Punctuation", IN_SPLITTER, ATTN_STEP_PUNCTUATION, read_punctuation},
    {"Digits", IN_SPLITTER, ATTN_STEP_DIGITS, read_digits},
    {"CharDelimiterSplit", IN_SPLITTER, ATTN_STEP_CHAR_DELIMITER, read_delimiter},
    {"WordPiece", IN_DECODER, ATTN_STEP_WORDPIECE, read_wordpiece},
    {"ByteFallback", IN_DECODER, ATTN_STEP_BYTE_FALLBACK, read_nothing},
    {"Fuse", IN_DECODER, ATTN_STEP_FUSE, read_nothing},
    {"Strip", IN_DECODER, ATTN_STEP_STRIP_TOKEN, read_strip_token},
    {"BPEDecoder", IN_DECODER, ATTN_STEP_BPE_SUFFIX, read_suffix},
};

attn_status attn_json_steps(const attn_field *field, enum attn_step_family family, attn_steps *steps)
{
    static const char *const lists[] = {"normalizers", "pretokenizers", "decoders"};
    if (!field->value)
        return ATTN_OK;
    ATTN_TEXT_TRY(attn_field_object(field));
    attn_field type = attn_field_member(field, "type");
    attn_text name;
    ATTN_TEXT_TRY(attn_field_text(&type, &name));
    if (attn_field_is(&type, "Sequence")) {
        attn_field list = attn_field_member(field, lists[family]);
        ATTN_TEXT_TRY(attn_field_array(&list));
        for (size_t i = 0; i < json_array_size(list.value); i++) {
            attn_field item = attn_field_at(&list, i);
            ATTN_TEXT_TRY(attn_field_object(&item));
            ATTN_TEXT_TRY(attn_json_steps(&item, family, steps));
        }
        return ATTN_OK;
    }
    for (size_t i = 0; i < sizeof step_types / sizeof *step_types; i++)
        if (step_types[i].families & 1u << family && !strcmp(step_types[i].name, name.data)) {
            attn_step *step = attn_steps_add(steps, step_types[i].kind);
            return step ? step_types[i].read(field, step) : ATTN_ERR_OUT_OF_MEMORY;
        }
    return attn_field_unsupported(&type);
}
