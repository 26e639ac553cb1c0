"""Writes tokenizer_vectors.json beside this file: small tokenizers with every kind of normaliser, pre-tokenizer, model,
post-processor and decoder, random texts, and what Hugging Face's `tokenizers` (0.23.3) makes of them.

    pip install tokenizers==0.23.3 && python make_tokenizer_vectors.py [SEED]
"""
import base64
import json
import os
import random
import struct
import sys

from tokenizers import Tokenizer


def sequence(key, *steps):
    return {"type": "Sequence", key: list(steps)}


def added(id, content, **flags):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": False, **flags}


def metaspace(scheme, split=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES_PREFIX = dict(BYTES, add_prefix_space=True)
BYTES_PLAIN = dict(BYTES, use_regex=False)
LLAMA3 = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
          "|\\s+(?!\\S)|\\s+")


def alphabet():
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in visible]
    return [chr(b) for b in visible] + [chr(256 + n) for n in range(len(hidden))]


BYTE_MERGES = [["t", "h"], ["th", "e"], ["Ġ", "the"], ["Ġ", "a"], ["a", "t"], ["c", "at"], ["1", "2"], ["Ġ", "Ġ"], ["'", "s"],
               ["Ã", "©"], ["Ċ", "Ċ"]]
CHARACTERS = ["<unk>", "a", "b", "c", "t", "h", "e", "th", "the", "at", "cat", "##a", "##t", "##at", "a</w>", "t</w>", "ab", "é", "1", "2",
              "12", ".", "<0xC3>", "<0xA9>", " ", "▁", "▁the", "▁a", "##b", "!", "[CLS]", "[SEP]", "d", "##c", "##h", "##e"]
MERGES = [["t", "h"], ["th", "e"], ["a", "t"], ["c", "at"], ["1", "2"], ["▁", "the"], ["▁", "a"], ["a", "b"]]
PIECES = ["▁", "a", "b", "c", "t", "h", "e", "the", "▁the", "▁cat", "at", "▁a", "cat", "ab", ".", "1", "12", "é", "東京"]
ADDED = [added(0, "<x>", special=True), added(0, "<mask>", lstrip=True, special=True), added(0, "<r>", rstrip=True),
         added(0, "abc", single_word=True), added(0, "The", normalized=True), added(0, "<x><x>")]


def numbered(words):
    return {word: i for i, word in enumerate(words)}


def bpe(**changes):
    return {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": numbered(CHARACTERS), "merges": MERGES,
            **changes}


def byte_bpe(**changes):
    words = alphabet() + [a + b for a, b in BYTE_MERGES] + ["Ġcat"]
    return bpe(unk_token=None, vocab=numbered(words), merges=BYTE_MERGES, **changes)


def wordpiece():
    return {"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 12,
            "vocab": numbered(CHARACTERS)}


def unigram(**changes):
    vocab = [["<unk>", 0.0]] + [[p, -3.0 - 0.1 * i] for i, p in enumerate(PIECES)] + [["<0xC3>", -9.0], ["<0xA9>", -9.0]]
    return {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": False, **changes}


def bert(**changes):
    return {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True,
            **changes}


def charsmap(pairs):
    """SentencePiece's precompiled map: a double array of the sources' bytes (units of darts-clone), and the texts behind it."""
    texts, trie = b"", {}
    for source, text in pairs.items():
        node = trie
        for byte in source.encode():
            node = node.setdefault(byte, {})
        node[0] = len(texts)
        texts += text.encode() + b"\0"
    units, taken, todo = {0: 0}, {0}, [(0, trie)]
    for at, node in todo:  # children of a unit lie at its offset ^ their byte; a text's place at the offset itself
        base = next(b for b in range(1, 1 << 20) if not any(b ^ byte in taken for byte in node))
        units[at] |= (at ^ base) << 10 | (0x100 if 0 in node else 0)
        taken.update(base ^ byte for byte in node)
        units.update((base ^ byte, byte or node[0] | 1 << 31) for byte in node)
        todo.extend((base ^ byte, child) for byte, child in node.items() if byte)
    array = b"".join(struct.pack("<I", units.get(i, 0xff)) for i in range((max(units) | 255) + 1))
    return base64.b64encode(struct.pack("<I", len(array)) + array + texts).decode()


def template(bos, eos):
    def special(name, type_id):
        return {"SpecialToken": {"id": name, "type_id": type_id}}
    a, b = ({"Sequence": {"id": s, "type_id": t}} for s, t in (("A", 0), ("B", 1)))
    return {"type": "TemplateProcessing", "single": [special(bos, 0), a, special(eos, 0)],
            "pair": [special(bos, 0), a, special(eos, 0), b, special(eos, 1)],
            "special_tokens": {n: {"id": n, "ids": [CHARACTERS.index(n)], "tokens": [n]} for n in (bos, eos)}}


def pair_of(kind, **more):
    return {"type": kind, "sep": ["[SEP]", 31], "cls": ["[CLS]", 30], **more}


SPM_DECODER = sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                       {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0})
SPM_NORMALIZER = sequence("normalizers", {"type": "Prepend", "prepend": "▁"},
                          {"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
WP_DECODER = {"type": "WordPiece", "prefix": "##", "cleanup": True}
BERT_SPLIT = {"type": "BertPreTokenizer"}


def tokenizer(model, pre=None, norm=None, post=None, decoder=None, tokens=ADDED):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": norm, "pre_tokenizer": pre,
            "post_processor": post, "decoder": decoder, "model": model}


def configurations():
    yield tokenizer(byte_bpe(), BYTES, decoder=BYTES)
    yield tokenizer(byte_bpe(), BYTES_PREFIX, post=BYTES_PREFIX, decoder=BYTES)
    yield tokenizer(byte_bpe(), BYTES, {"type": "NFC"}, dict(BYTES, trim_offsets=False), BYTES)
    yield tokenizer(byte_bpe(ignore_merges=True), sequence("pretokenizers", split({"Regex": LLAMA3}, "Isolated"), BYTES_PLAIN),
                    decoder=BYTES)
    for individual in (True, False):
        yield tokenizer(byte_bpe(), sequence("pretokenizers", {"type": "Digits", "individual_digits": individual}, BYTES),
                        decoder=BYTES)
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        yield tokenizer(byte_bpe(), sequence("pretokenizers", split({"Regex": "[aeiou ]|\\d+"}, behavior, behavior == "Isolated"),
                                             BYTES_PLAIN), decoder=BYTES)
    yield tokenizer(byte_bpe(), sequence("pretokenizers", split({"String": "a"}, "MergedWithPrevious"), BYTES), decoder=BYTES)
    yield tokenizer(byte_bpe(), sequence("pretokenizers", BYTES, {"type": "Digits", "individual_digits": True}), decoder=BYTES)
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        yield tokenizer(byte_bpe(), BYTES, {"type": form}, decoder=BYTES, tokens=[])
    yield tokenizer(byte_bpe(), None, {"type": "ByteLevel"}, decoder=BYTES, tokens=[])
    yield tokenizer(bpe(), BYTES_PREFIX, post=pair_of("RobertaProcessing", trim_offsets=True, add_prefix_space=True))
    for cased in (False, True):
        yield tokenizer(wordpiece(), BERT_SPLIT, bert(lowercase=not cased), template("[CLS]", "[SEP]"), WP_DECODER)
    yield tokenizer(wordpiece(), {"type": "Whitespace"}, None, pair_of("BertProcessing"), WP_DECODER)
    yield tokenizer(wordpiece(), {"type": "WhitespaceSplit"},
                    sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
                             {"type": "Strip", "strip_left": True, "strip_right": True}), None, dict(WP_DECODER, cleanup=False))
    yield tokenizer(wordpiece(), {"type": "CharDelimiterSplit", "delimiter": "t"}, {"type": "Nmt"})
    for fuse in (False, True):
        yield tokenizer(bpe(fuse_unk=fuse, byte_fallback=True), None, SPM_NORMALIZER, template("<unk>", "<unk>"), SPM_DECODER)
    yield tokenizer(bpe(unk_token=None), metaspace("first"), decoder=metaspace("first"))
    yield tokenizer(bpe(end_of_word_suffix="</w>"), {"type": "Whitespace"}, decoder={"type": "BPEDecoder", "suffix": "</w>"})
    for scheme in ("always", "first", "never"):
        yield tokenizer(unigram(), metaspace(scheme), decoder=metaspace(scheme))
    yield tokenizer(unigram(byte_fallback=True), metaspace("always", False), decoder=SPM_DECODER)
    yield tokenizer({"type": "WordLevel", "vocab": numbered(CHARACTERS), "unk_token": "<unk>"},
                    {"type": "Punctuation", "behavior": "Contiguous"})
    for pattern in REGEXES:
        yield tokenizer(byte_bpe(), sequence("pretokenizers", split({"Regex": pattern}, "Isolated"), BYTES_PLAIN), decoder=BYTES)
    for pattern in ("a*", "\\b", "t|(?=e)"):  # matches of nothing
        yield tokenizer(byte_bpe(), BYTES, decoder=sequence("decoders", BYTES, {"type": "Replace", "pattern": {"Regex": pattern}, "content": "-"}))
    yield tokenizer(wordpiece(), BERT_SPLIT, bert(), None, WP_DECODER,  # tokens that another text stands for, once normalised
                    [added(30, "[CLS]", special=True, normalized=True), added(36, "The", normalized=True), added(37, "THE", normalized=True)])
    nothing = {"type": "Replace", "pattern": {"Regex": ".+"}, "content": ""}
    for more in ({"type": "BPEDecoder", "suffix": "</w>"}, {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}, WP_DECODER):
        yield tokenizer(bpe(end_of_word_suffix="</w>"), {"type": "Whitespace"}, decoder=sequence("decoders", nothing, more))
    for fallback in (False, True):
        yield tokenizer(unigram(byte_fallback=fallback), metaspace("always"), {"type": "Precompiled", "precompiled_charsmap": charsmap(FOLDED)},
                        template("<unk>", "<unk>"), metaspace("always"))


FOLDED = {"ﬁ": "fi", "①": "1", "½": "1⁄2", "Å": "Å", "ß": "ss", "\u0323": "", "\u0307": "", "\u3000": " ", "\u00a0": " ", "\u200b": " ", "\n": " ",
          "e\u0301": "é", "İ": "i\u0307", "\u1100\u1161\u11a8": "각", "A": "a", "\u0085": " ", "\ufffd": " ", "é": "é"}
# where Oniguruma and other libraries part: what \\w, \\b, [:alpha:] and scripts hold; classes within classes; \\uHHHH
REGEXES = [r"\w+|[^\w\s]+", r"[\w']+", r"[^\W\d]+", r"\b", r"\B|\W", "[[:alpha:]]+|[[:punct:]]+", "[[:alnum:]]+|[[:^alnum:]]", "[[:upper:]]|[[:lower:]]+",
           r"\p{Han}+|\p{Hangul}+|\p{^Han}+", r"[\u4e00-\u9fff]+|[\u0300-\u036f]", r" ?[^(\s|[.,!?…。，、।۔،])]+", "[a-c[e-h]1-]+", "[x[-a]t]+"]
WORDS = [" ", " ", "▁", "a", "b", "c", "d", "t", "h", "e", "the", "cat", " the", " cat", "é", "e\u0301", ".", ",", "!", "A", "T", "É", "ß", "İ", "東京",
         "가", "1", "2", "12", "'s", "'LL", "-", "<x>", "<mask>", "<r>", "abc", "The", "<x><x>", "[CLS]", "  ", "\n", "\n\n", "\t", "\r\n",
         "\u00a0", "\u3000", "\u200b", "\u0085", "\u2028", "\x07", "\ufffd", "ﬁ", "①", "½", "Å", "👩\u200d💻", "\u0327\u0301", "\u1100\u1161\u11a8",
         "aaaaaaaaaaaaaaaaaaaa", " do not", " n't", "ß̣̇"]


def main():
    rng = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    cases = []
    for config in configurations():
        reference = Tokenizer.from_str(json.dumps(config))
        items = []
        for _ in range(8):
            text, pair = ("".join(rng.choice(WORDS) for _ in range(rng.randrange(10))) for _ in range(2))
            item = {"text": text, "special": rng.random() < 0.7, "as_text": rng.random() < 0.15, "max_length": rng.choice([0, 0, 6])}
            if rng.random() < 0.25:
                item["pair"] = pair
            reference.encode_special_tokens = item["as_text"]
            if item["max_length"]:
                reference.enable_truncation(item["max_length"])
            else:
                reference.no_truncation()
            got = reference.encode(text, item.get("pair"), add_special_tokens=item["special"])
            item.update(ids=got.ids, type_ids=got.type_ids, offsets=got.offsets, tokens=got.tokens)
            if got.ids:
                item["decoded"] = reference.decode(got.ids, skip_special_tokens=True)
            items.append(item)
        cases.append({"tokenizer": config, "items": items})
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer_vectors.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases) + "\n]\n")
    print(len(cases), "tokenizers,", sum(len(c["items"]) for c in cases), "texts")


main()
