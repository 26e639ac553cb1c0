"""Trained models from Python: attn.Model over libattn_model (attn/model.h).

>>> model = attn.Model.load("SmolLM2-135M-Instruct.Q4_1.gguf")
>>> model.generate("The bridge was closed because it", max_new=20).text
>>> model.inspect("The bridge was closed because it")          # a picture in Jupyter
"""
from __future__ import annotations

import ctypes
import os
import signal
import threading
from ctypes import byref
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import library, model_library as m
from .arrays import integer
from .errors import AttnError, InvalidArgument, Unsupported, raise_status

if TYPE_CHECKING:
    from .inspection import Inspection

Array = np.ndarray[Any, Any]
Path = Union[str, "os.PathLike[str]"]
Text = Union[str, Sequence[int], Array]


class Generation(NamedTuple):
    """What generate() returns: the new text and tokens, and why it ended ("length", "eos", "context", "callback", "text")."""

    text: Optional[str]
    tokens: Array
    reason: str


def _path(path: Path) -> bytes:
    given = os.fsencode(path)
    if b"\0" in given:
        raise InvalidArgument("path %r holds a NUL" % (path,))
    return given


class Tokenizer:
    """Text to token ids and back, as Hugging Face's tokenizers does it. From Model.tokenizer or Tokenizer.load(path)."""

    def __init__(self, handle: Any, owner: Any) -> None:
        self._handle, self._owner = handle, owner

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Reads a tokenizer.json. Raises FileError, FormatError, Unsupported."""
        lib, handle = m.load(), ctypes.c_void_p()
        _check_tokenizer(lib.attn_tokenizer_load(_path(path), byref(handle)))
        return cls(handle, None)

    def __del__(self) -> None:
        if m is not None and getattr(self, "_owner", self) is None and self._handle:  # as Python ends, globals are None
            m.load().attn_tokenizer_destroy(self._handle)

    def __reduce__(self) -> Any:
        raise TypeError("a Tokenizer cannot be copied or pickled: load it where it is needed")

    def __len__(self) -> int:
        return int(m.load().attn_tokenizer_size(self._handle))

    def _encode(self, text: str, pair: Optional[str], special: bool, plain: bool, max_length: int = 0) -> Tuple[Array, Array]:
        lib, encoding = m.load(), ctypes.c_void_p()
        options = library.args_init(m.EncodeOptions)
        options.flags = (0 if special else m.ENCODE_NO_SPECIAL) | (m.ENCODE_SPECIALS_AS_TEXT if plain else 0)
        options.max_length = integer(max_length, "max_length", 64)
        data, second = text.encode("utf-8"), None if pair is None else pair.encode("utf-8")
        _check_tokenizer(lib.attn_encoding_create(byref(encoding)))
        try:
            _check_tokenizer(lib.attn_tokenizer_encode(self._handle, data, len(data), second, len(second or b""), byref(options),
                                                       encoding))
            n = lib.attn_encoding_length(encoding)
            ids = np.array(lib.attn_encoding_ids(encoding)[:n], np.int32)
            offsets = np.array(lib.attn_encoding_char_offsets(encoding)[:2 * n], np.int64).reshape(n, 2)
            return ids, offsets
        finally:
            lib.attn_encoding_destroy(encoding)

    def encode(self, text: str, pair: Optional[str] = None, special: bool = True, plain: bool = False, max_length: int = 0) -> Array:
        """int32 ids of a text, or of a pair. special: add the model's own tokens; plain: spelled-out special tokens are text;
        max_length: at most so many ids, special ones kept (0: all)."""
        return self._encode(text, pair, special, plain, max_length)[0]

    def offsets(self, text: str, special: bool = True) -> Array:
        """[n, 2] first and one past last character of each token of encode(text)."""
        return self._encode(text, None, special, False)[1]

    def decode(self, tokens: Any, skip_special: bool = False) -> str:
        """Text of token ids."""
        lib, ids = m.load(), _ids(tokens)
        size = ctypes.c_size_t()
        flags = 1 if skip_special else 0
        _check_tokenizer(lib.attn_tokenizer_decode(self._handle, ids.ctypes.data, len(ids), flags, None, 0, byref(size)))
        buffer = ctypes.create_string_buffer(size.value + 1)
        _check_tokenizer(lib.attn_tokenizer_decode(self._handle, ids.ctypes.data, len(ids), flags, buffer, size.value, byref(size)))
        return buffer.raw[:size.value].decode("utf-8")

    def token(self, id: int) -> Optional[str]:
        """The vocabulary's own spelling of an id; None outside the vocabulary."""
        size = ctypes.c_size_t()
        found = m.load().attn_tokenizer_token(self._handle, id, byref(size))
        return found[:size.value].decode("utf-8", "replace") if found else None

    def id(self, token: str) -> Optional[int]:
        """The id of a spelling; None where the vocabulary lacks it."""
        data = token.encode("utf-8")
        found = m.load().attn_tokenizer_id(self._handle, data, len(data))
        return None if found < 0 else found


def _check_tokenizer(status: int) -> None:
    if status:
        raise_status(status, m.load().attn_tokenizer_error().decode("utf-8", "replace"))


def _check(status: int) -> None:
    if status:
        raise_status(status, m.load().attn_model_error(None).decode("utf-8", "replace"))


def _ids(tokens: Any) -> Array:
    ids = np.asarray(tokens)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise InvalidArgument("tokens has shape %s and dtype %s; a list of integers is expected" % (ids.shape, ids.dtype))
    if ids.size and (ids.min() < -2**31 or ids.max() >= 2**31):
        raise InvalidArgument("a token id does not fit 32 bits")
    return np.ascontiguousarray(ids, np.int32)


class _Session:
    """A session for one call; `with` frees it."""

    def __init__(self, model: Model, batch: int = 1, capacity: int = 0) -> None:
        options = library.args_init(m.SessionOptions)
        options.batch, options.capacity = batch, capacity
        self.handle = ctypes.c_void_p()
        _check(m.load().attn_session_create(model._use(), byref(options), byref(self.handle)))

    def __enter__(self) -> ctypes.c_void_p:
        return self.handle

    def __exit__(self, *_: Any) -> None:
        m.load().attn_session_destroy(self.handle)


class _CtrlC:
    """While C runs: what a handler of Ctrl-C raises is kept, callbacks tell the library to stop, and at the end it is raised.

    Handlers run on the main thread only, where a callback of ctypes would lose what is raised as it begins."""

    def __init__(self) -> None:
        self.raised: List[BaseException] = []
        self.before: Any = None
        self.progress = m.ProgressCallback(lambda _user, _done, _total: 1 if self.raised else 0)

    def __enter__(self) -> _CtrlC:
        before = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None

        def handle(*given: Any) -> None:
            try:
                before(*given)  # type: ignore[operator, misc]
            except BaseException as error:
                self.raised.append(error)

        if callable(before):
            self.before = signal.signal(signal.SIGINT, handle)
        return self

    def __exit__(self, *_: Any) -> None:
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)
        if self.raised:
            raise self.raised[0]

    def attach(self, args: Any) -> None:
        """Makes a call that reports its progress end early."""
        if self.before is not None:
            args.progress = ctypes.cast(self.progress, ctypes.c_void_p)


class Model:
    """A trained model, read-only after loading: any number of Python threads may use it at once (each call has a session of
    its own, and the interpreter lock is released during it). In a forked child it raises an error: load it there anew."""

    def __init__(self, handle: Any, path: str) -> None:
        self._handle, self._pid, self.path = handle, os.getpid(), path
        self._last = threading.local()
        info = library.args_init(m.ModelInfo)
        _check(m.load().attn_model_get_info(handle, byref(info)))
        found = {field[0]: getattr(info, field[0]) for field in info._fields_ if field[0] != "struct_size"}
        self.info: Dict[str, Any] = {n: v.decode("utf-8", "replace") if isinstance(v, bytes) else v for n, v in found.items()}
        self.info["kind"], self.info["has_logits"] = m.KINDS[info.kind], bool(info.has_logits)
        tokenizer = m.load().attn_model_tokenizer(handle)
        self.tokenizer: Optional[Tokenizer] = Tokenizer(tokenizer, self) if tokenizer else None

    @classmethod
    def load(cls, path: Path, *, threads: int = 0, weights: str = "stored", tokenizer: bool = True) -> Model:
        """Loads a GGUF file, a safetensors file, or a folder with config.json, model.safetensors and tokenizer.json.

        weights: "stored", "f32", "bf16" or "int8". Raises FileError, FormatError, Unsupported (naming the family or tensor
        type), ModelLibraryMissing where this installation has no libattn_model."""
        if not isinstance(weights, str) or weights not in m.WEIGHTS:
            raise InvalidArgument("weights is %r; known are %s" % (weights, ", ".join(m.WEIGHTS)))
        lib, handle = m.load(), ctypes.c_void_p()
        options = library.args_init(m.ModelOptions)
        options.n_threads, options.weights = integer(threads, "threads", 32), m.WEIGHTS[weights]
        options.flags = 0 if tokenizer else m.LOAD_NO_TOKENIZER
        _check(lib.attn_model_load(_path(path), byref(options), byref(handle)))
        return cls(handle, os.fspath(path))

    def __del__(self) -> None:
        if m is not None and os is not None and getattr(self, "_handle", None) and self._pid == os.getpid():
            m.load().attn_model_destroy(self._handle)

    def __reduce__(self) -> Any:
        raise TypeError("a Model cannot be copied or pickled: threads may share it, another process loads it anew")

    def _use(self) -> Any:
        if self._pid != os.getpid():
            raise AttnError("this Model was loaded in process %d and is used in its child %d; load it again there"
                            % (self._pid, os.getpid()))
        return self._handle

    def __repr__(self) -> str:
        return "<attn.Model %s: %s, %d layers of %d heads, width %d, vocabulary %d>" % (
            self.info["name"], self.info["family"], self.info["n_layers"], self.info["n_heads"], self.info["d_model"],
            self.info["vocab_size"])

    def tokens(self, text: Text) -> Array:
        """Token ids of a text, the model's own tokens (BOS, [CLS], ...) included; ids are taken as they are."""
        if not isinstance(text, str):
            return _ids(text)
        if self.tokenizer is None:
            raise Unsupported("%s has no tokenizer: give token ids" % self.path)
        self._use()
        return self.tokenizer.encode(text)

    def chat(self, messages: Sequence[Mapping[str, str]], *, prompt: bool = True) -> Array:
        """Token ids of a conversation in the form of the model's own chat template, for generate(). messages: dicts with "role" and
        "content". prompt: end where the answer begins."""
        if self.tokenizer is None:
            raise Unsupported("%s has no tokenizer" % self.path)
        pairs = [(x["role"].encode("utf-8"), x["content"].encode("utf-8")) for x in messages]
        given = (m.ChatMessage * max(len(pairs), 1))(*[m.ChatMessage(role, content, len(content)) for role, content in pairs])
        size, flags, handle = ctypes.c_size_t(), 0 if prompt else m.CHAT_NO_PROMPT, self._use()
        _check(m.load().attn_model_chat(handle, given, len(pairs), flags, None, 0, byref(size)))
        text = ctypes.create_string_buffer(size.value + 1)
        _check(m.load().attn_model_chat(handle, given, len(pairs), flags, text, size.value, byref(size)))
        return self.tokenizer.encode(text.raw[:size.value].decode("utf-8"), special=False)

    def spell(self, ids: Iterable[int]) -> List[str]:
        """The text of each token by itself."""
        if self.tokenizer is None:
            return ["#%d" % i for i in ids]
        return [self.tokenizer.decode([i]) for i in ids]

    # ---- Forward ------------------------------------------------------------------------------------
    def _forward(self, ids: Array, *, source: Optional[Text] = None, all_positions: bool = False, logits: bool = False,
                 hidden: bool = False, rows: Optional[Sequence[Tuple[int, int, int]]] = None,
                 edits: Sequence[m.Edit] = ()) -> Dict[str, Array]:
        """One pass over ids on a new session. Returns a dict of what was asked for."""
        if logits and not all_positions and not len(ids):
            raise InvalidArgument("the text has no tokens: there is no last one")
        args = library.args_init(m.ForwardArgs)
        args.tokens, args.n_tokens = ids.ctypes.data, len(ids)
        found: Dict[str, Array] = {}
        if logits:
            found["logits"] = np.empty((len(ids) if all_positions else 1, self.info["vocab_size"]), np.float32)
            args.logits, args.logits_rows = found["logits"].ctypes.data, m.LOGITS_ALL if all_positions else m.LOGITS_LAST
        if hidden:
            found["hidden"] = np.empty((len(ids), self.info["d_model"]), np.float32)
            args.last_hidden = found["hidden"].ctypes.data
        if rows:
            array = (m.AttentionRow * len(rows))(*[m.AttentionRow(layer, 0, head, query, 0, 0) for layer, head, query in rows])
            found["rows"] = np.zeros((len(rows), len(ids)), np.float32)
            args.rows, args.n_rows = ctypes.addressof(array), len(rows)
            args.row_weights, args.row_stride = found["rows"].ctypes.data, len(ids)
        if edits:
            changes = (m.Edit * len(edits))(*edits)
            args.edits, args.n_edits = ctypes.addressof(changes), len(edits)
        with _Session(self) as session:
            if self.info["kind"] == "encoder-decoder":
                self._encode_source(session, source)
            with _CtrlC() as ctrl_c:
                ctrl_c.attach(args)
                status = m.load().attn_model_forward(session, byref(args))
            _check(status)
        return found

    def _encode_source(self, session: ctypes.c_void_p, source: Optional[Text]) -> None:
        if source is None:
            raise InvalidArgument("%s is an encoder-decoder: source, what the encoder reads, is missing" % self.info["family"])
        ids = self.tokens(source)
        args = library.args_init(m.ForwardArgs)
        args.tokens, args.n_tokens = ids.ctypes.data, len(ids)
        _check(m.load().attn_model_forward_encoder(session, byref(args)))

    def _remember(self, text: Text) -> Array:
        self._last.ids = ids = self.tokens(text)
        return ids

    def logits(self, text: Text, *, all: bool = False, source: Optional[Text] = None) -> Array:
        """Next-token logits after the last token, float32 [vocab_size]; all: after each token, [n_tokens, vocab_size].
        source: what the encoder of an encoder-decoder reads."""
        found = self._forward(self._remember(text), logits=True, all_positions=all, source=source)["logits"]
        return found if all else found[0]

    def hidden(self, text: Text, *, source: Optional[Text] = None) -> Array:
        """Hidden states after the final norm, float32 [n_tokens, d_model]."""
        return self._forward(self._remember(text), hidden=True, source=source)["hidden"]

    def attention(self, layer: int, head: int, text: Optional[Text] = None, *, query: Optional[int] = None,
                  source: Optional[Text] = None) -> Array:
        """Self-attention weights of one head: [n_tokens, n_tokens], or the row [n_tokens] of one query (negative: from the end).

        text None: that of the last call on this thread. Rows are computed one by one, never as a matrix over all heads. A
        weight is a coefficient of one head in one layer, not a cause: see inspect()."""
        for name, given, limit in (("layer", layer, "n_layers"), ("head", head, "n_heads")):
            if not 0 <= integer(given, name) < self.info[limit]:
                raise InvalidArgument("%s is %d; the model has %d" % (name, given, self.info[limit]))
        ids = self._remember(text) if text is not None else getattr(self._last, "ids", None)
        if ids is None:
            raise InvalidArgument("no text was given, and none was run before on this thread")
        queries = range(len(ids)) if query is None else [query]
        rows = self._forward(ids, rows=[(layer, head, q) for q in queries], source=source)["rows"]
        return rows if query is None else rows[0]

    # ---- Generation and embeddings --------------------------------------------------------------------
    def generate(self, prompt: Text, max_new: int = 64, *, temperature: float = 0.0, top_k: int = 0,
                 top_p: Optional[float] = None, min_p: float = 0.0, repetition_penalty: Optional[float] = None, seed: int = 0,
                 stop: Sequence[str] = (), ignore_eos: bool = False, on_text: Optional[Callable[[str], Any]] = None,
                 source: Optional[Text] = None) -> Generation:
        """Continues a prompt token by token; temperature 0 is greedy. stop: texts before which the output ends.

        on_text(text) is called with each new piece of text; a true result ends the generation. The same seed gives the same
        tokens. source: what the encoder of an encoder-decoder reads (prompt is then the decoder's beginning; an empty one: as the
        model begins by itself)."""
        if isinstance(stop, str):
            raise InvalidArgument("stop is one string; a list of texts is expected")
        max_new = integer(max_new, "max_new")
        encode = source is not None and len(prompt) == 0 and self.info["kind"] == "encoder-decoder"
        ids = self._remember(source if encode and source is not None else prompt)
        lengths = np.array([len(ids)], np.int64)
        tokens, count, reason = np.zeros((1, max(max_new, 1)), np.int32), np.zeros(1, np.int64), np.zeros(1, np.int32)
        if max_new < 1:
            raise InvalidArgument("max_new is %d; at least 1 is expected" % max_new)
        args = library.args_init(m.GenerateArgs)
        args.prompts, args.prompt_lengths, args.max_new = ids.ctypes.data, lengths.ctypes.data, max_new
        _fill_sampling(args, temperature, top_k, top_p, min_p, repetition_penalty, seed)
        texts = (ctypes.c_char_p * max(len(stop), 1))(*[t.encode("utf-8") for t in stop])
        args.stop_texts, args.n_stop_texts = texts, len(stop)
        args.flags = (m.GENERATE_IGNORE_EOS if ignore_eos else 0) | (m.GENERATE_ENCODE if encode else 0)
        args.tokens, args.token_stride = tokens.ctypes.data, tokens.shape[1]
        args.n_generated, args.stop_reasons = count.ctypes.data, reason.ctypes.data
        pieces: List[str] = []
        ctrl_c = _CtrlC()

        def receive(_: Any, generated: Any) -> int:
            try:
                piece = ctypes.string_at(generated[0].text, generated[0].n_bytes).decode("utf-8") if generated[0].text else ""
                pieces.append(piece)
                return 1 if ctrl_c.raised or (on_text is not None and on_text(piece)) else 0
            except BaseException as error:  # it cannot pass through C: stop, and raise it after the call
                ctrl_c.raised.append(error)
                return 1

        callback = m.TokenCallback(receive)
        args.callback = ctypes.cast(callback, ctypes.c_void_p)  # without on_text too, for Ctrl-C
        with _Session(self) as session:
            if self.info["kind"] == "encoder-decoder" and not encode:
                self._encode_source(session, source)
            with ctrl_c:
                status = m.load().attn_generate(session, byref(args))
        _check(status)
        new = tokens[0, :count[0]].copy()
        return Generation(self._text_of(new, stop), new, m.STOP_REASONS[reason[0]])

    def _text_of(self, tokens: Array, stop: Sequence[str]) -> Optional[str]:
        if self.tokenizer is None:
            return None
        text = self.tokenizer.decode(tokens, skip_special=True)
        ends = [text.find(s) for s in stop if s in text]
        return text[:min(ends)] if ends else text

    def embed(self, texts: Sequence[Text], *, pooling: str = "default", normalize: bool = True, prompt: Optional[str] = None,
              truncate: Optional[int] = None) -> Array:
        """One vector a text, float32 [n_texts, d_model], packed without padding. texts: strings, or lists of token ids, which are
        taken as they are. prompt: what stands before each string, truncate: tokens of it that are read; without them the
        model's own (info["embed_prompt"], info["embed_tokens"], else its context)."""
        if isinstance(texts, str):
            raise InvalidArgument("texts is one string; a list of texts is expected")
        if not isinstance(pooling, str) or pooling not in m.POOLING:
            raise InvalidArgument("pooling is %r; known are %s" % (pooling, ", ".join(m.POOLING)))
        before = self.info["embed_prompt"] if prompt is None else prompt
        most = (self.info["embed_tokens"] or self.info["context_length"]) if truncate is None else truncate
        most = min(most, self.info["context_length"] or most)
        if self.tokenizer is None or not any(isinstance(t, str) for t in texts):
            encoded = [self.tokens(t) for t in texts]
        else:
            encoded = [self.tokenizer.encode(before + t, max_length=most) if isinstance(t, str) else _ids(t) for t in texts]
        flat = np.concatenate(encoded) if encoded else np.zeros(0, np.int32)
        lengths = np.array([len(ids) for ids in encoded], np.int64)
        out = np.empty((len(encoded), self.info["d_model"]), np.float32)
        args = library.args_init(m.EmbedArgs)
        args.tokens, args.lengths, args.n_texts = flat.ctypes.data, lengths.ctypes.data, len(encoded)
        args.pooling, args.no_normalize, args.embeddings = m.POOLING[pooling], not normalize, out.ctypes.data
        with _Session(self) as session:
            with _CtrlC() as ctrl_c:
                ctrl_c.attach(args)
                status = m.load().attn_embed(session, byref(args))
            _check(status)
        return out

    def inspect(self, text: Text, *, query: int = -1, heads: int = 12, answers: Any = None) -> Inspection:
        """What the heads read from one position, and what moves when a reading is cut: an Inspection, which shows itself as
        HTML in Jupyter. See attn.inspection."""
        from .inspection import inspect
        return inspect(self, self._remember(text), query, heads, answers)


def _fill_sampling(args: m.GenerateArgs, temperature: float, top_k: int, top_p: Optional[float], min_p: float,
                   repetition_penalty: Optional[float], seed: int) -> None:
    sampling = args.sampling
    sampling.struct_size = ctypes.sizeof(m.Sampling)
    sampling.temperature, sampling.top_k, sampling.min_p, sampling.seed = temperature, top_k, min_p, seed
    if top_p is not None:
        sampling.top_p = top_p
        sampling.flags |= m.SAMPLING_TOP_P_GIVEN
    if repetition_penalty is not None:
        sampling.repetition_penalty = repetition_penalty
        sampling.flags |= m.SAMPLING_PENALTY_GIVEN
