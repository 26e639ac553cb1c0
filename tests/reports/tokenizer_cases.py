"""Runs one tokenizer case: encode, decode, decode_bytes, encode_bytes, stream, load."""
import ctypes
import os
from ctypes import byref, c_int32, c_size_t, c_void_p

from model_binding import TEXT, EncodeOptions, function
from op_cases import Failed, Skipped

NO_SPECIAL, SPECIALS_AS_TEXT, REPLACE_INVALID = 1, 2, 4
SKIP_SPECIAL = 1


class Refused(Exception):
    """The library returned an error status."""


def check(status):
    if status:
        raise Refused(function("attn_tokenizer_error")().decode())


class Tokenizer:
    def __init__(self, path):
        self.handle, self.encoding = c_void_p(), c_void_p()
        check(function("attn_tokenizer_load")(os.fsencode(path), byref(self.handle)))
        check(function("attn_encoding_create")(byref(self.encoding)))

    def close(self):
        function("attn_encoding_destroy")(self.encoding)
        function("attn_tokenizer_destroy")(self.handle)

    def encode(self, text, pair=None, flags=0, max_length=0):
        """(ids, tokens, byte offsets, type ids)"""
        options = EncodeOptions(ctypes.sizeof(EncodeOptions), flags, 0, max_length)
        check(function("attn_tokenizer_encode")(self.handle, text, len(text), pair, len(pair or b""), byref(options), self.encoding))
        n = function("attn_encoding_length")(self.encoding)
        ids, types = function("attn_encoding_ids")(self.encoding), function("attn_encoding_type_ids")(self.encoding)
        offsets = function("attn_encoding_byte_offsets")(self.encoding)
        tokens = []
        for i in range(n):
            size = c_size_t()
            token = function("attn_encoding_token")(self.encoding, i, byref(size))
            tokens.append(ctypes.string_at(token, size.value).decode("utf-8"))
        return ids[:n], tokens, [[offsets[2 * i], offsets[2 * i + 1]] for i in range(n)], types[:n]

    def decode(self, ids, flags):
        array, size = (c_int32 * len(ids))(*ids), c_size_t()
        decode = function("attn_tokenizer_decode")
        check(decode(self.handle, array, len(ids), flags, None, 0, byref(size)))
        text = ctypes.create_string_buffer(size.value + 1)
        check(decode(self.handle, array, len(ids), flags, text, size.value, byref(size)))
        return text.raw[:size.value]

    def stream(self, ids, flags):
        """(the pieces put together, what the end emits); every piece is whole UTF-8."""
        handle, text, size, pieces = c_void_p(), TEXT(), c_size_t(), b""
        check(function("attn_decode_stream_create")(self.handle, flags, byref(handle)))
        try:
            for i in ids:
                check(function("attn_decode_stream_push")(handle, i, byref(text), byref(size)))
                piece = ctypes.string_at(text, size.value) if size.value else b""
                piece.decode("utf-8")
                pieces += piece
            check(function("attn_decode_stream_finish")(handle, byref(text), byref(size)))
            return pieces, ctypes.string_at(text, size.value) if size.value else b""
        finally:
            function("attn_decode_stream_destroy")(handle)


def same(what, got, want):
    if got != want:
        raise Failed("%s: got %r, expected %r" % (what, got, want))


def bytes_of(item, key="text"):
    return bytes.fromhex(item["utf8_hex"]) if key == "text" and "utf8_hex" in item else item[key].encode("utf-8", "surrogatepass")


def run_encode(case, tokenizer, item):
    flags = (0 if case.get("add_special_tokens", True) else NO_SPECIAL) | \
        (SPECIALS_AS_TEXT if case.get("specials_as_text") else 0)
    pair = item["pair"].encode() if "pair" in item else None
    ids, tokens, offsets, types = tokenizer.encode(bytes_of(item), pair, flags, case.get("max_length", 0))
    same("ids", ids, item["ids"])
    for key, got in (("tokens", tokens), ("byte_offsets", offsets), ("type_ids", types)):
        if key in item:
            same(key, got, item[key])
    if "decoded" in item:
        same("decoded", tokenizer.decode(ids, SKIP_SPECIAL).decode("utf-8"), item["decoded"])


def run_encode_bytes(case, tokenizer, item):
    """Ill-formed input: refused, or replaced, as the case allows."""
    text, allowed = bytes.fromhex(item["bytes_hex"]), item["any_of"]
    try:
        tokenizer.encode(text, None, NO_SPECIAL)
        raise Failed("ill-formed UTF-8 was taken without a word")
    except Refused:
        if "error:invalid_utf8" not in allowed:
            raise Failed("refused; allowed are %s" % allowed) from None
    if "replaced" in allowed:
        same("replaced ids", tokenizer.encode(text, None, NO_SPECIAL | REPLACE_INVALID)[0], item["replaced_ids"])


def run_decode(case, tokenizer, item):
    flags = SKIP_SPECIAL if case.get("skip_special_tokens", True) else 0
    want = bytes_of(item)
    same("text", tokenizer.decode(item["ids"], flags), want)
    pieces, end = tokenizer.stream(item["ids"], flags)
    same("stream", pieces + end, want)


def run_decode_bytes(case, tokenizer, item):
    same("bytes", tokenizer.decode(item["ids"], 0), bytes.fromhex(item["bytes_hex"]))


def run_stream(case, tokenizer, item):
    pieces, end = tokenizer.stream(item["ids"], 0)
    same("pieces", pieces.decode("utf-8"), item["pieces_concat"])
    same("flush", end.decode("utf-8"), item.get("flush", ""))


ITEMS = {"encode": run_encode, "encode_bytes": run_encode_bytes, "decode": run_decode, "decode_bytes": run_decode_bytes,
         "stream": run_stream}
OPS = ("load", *ITEMS)


def run(case, path):
    file = os.path.join(os.path.dirname(path), case["tokenizer"])
    if case["op"] == "load":
        try:
            Tokenizer(file).close()
        except Refused as error:
            if not str(error):
                raise Failed("refused without a reason") from None
            return
        raise Failed("the file was taken; it must be refused")
    tokenizer = Tokenizer(file)
    try:
        for n, item in enumerate(case["items"]):
            try:
                ITEMS[case["op"]](case, tokenizer, item)
            except (Failed, Refused) as problem:
                raise Failed("item %d: %s" % (n, problem)) from None
            except KeyError as missing:
                raise Skipped("tokenizer %s without %s" % (case["op"], missing)) from None
    finally:
        tokenizer.close()
