"""Model.inspect(text): which earlier positions the heads read, and what moves when one reading is cut, as data and as the page
of `attn inspect` (attn/inspect.h and attn/viz.h)."""
from __future__ import annotations

import ctypes
import html
from typing import TYPE_CHECKING, Any, List, NamedTuple, Optional, Tuple

import numpy as np

from . import library
from . import model_library as m
from .errors import InvalidArgument, Unsupported

if TYPE_CHECKING:
    from .model import Model

Array = np.ndarray[Any, Any]


class InspectArgs(ctypes.Structure):
    """attn_inspect_args."""

    _fields_ = [("struct_size", ctypes.c_size_t), ("tokens", ctypes.c_void_p), ("n_tokens", ctypes.c_int64),
                ("target", ctypes.c_void_p), ("n_target", ctypes.c_int64), ("pair", ctypes.c_void_p), ("at", ctypes.c_int64),
                ("layer", ctypes.c_int64), ("head", ctypes.c_int64), ("answers", ctypes.c_void_p), ("most_weights", ctypes.c_int64),
                ("most_pairs", ctypes.c_int64), ("n_exact", ctypes.c_int64), ("n_sample", ctypes.c_int64), ("window", ctypes.c_int64),
                ("seed", ctypes.c_uint64), ("flags", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("progress", ctypes.c_void_p),
                ("progress_user", ctypes.c_void_p)]


N_EXACT = 8  # readings with the largest estimates that the page cuts


class Reading(NamedTuple):
    """One head's row of the query, and what moved when its largest reading was cut."""

    layer: int
    head: int
    weights: Array  # [n_keys], float32
    key: int        # the position read most, the first token and the query itself left out; -1: none
    cut: float      # change of the difference of the two answers' logits; NaN where the model has no logits


class Inspection:
    """tokens: their texts. weights [n_layers, n_heads, n_tokens]: the query's rows of every head. readings: the heads that read
    most from elsewhere, in order of layers. likeliest: [(text, probability)] of the next token (decoders)."""

    def __init__(self, model: Model, ids: Array, query: int, weights: Array, readings: List[Reading],
                 likeliest: List[Tuple[str, float]], answers: Optional[List[int]], difference: float) -> None:
        self.model, self.ids, self.tokens, self.query = model, ids, model.spell(ids), query
        self.weights, self.readings, self.likeliest = weights, readings, likeliest
        self.answers, self.difference = answers, difference
        self._page: Optional[str] = None

    def __repr__(self) -> str:
        lines = ["%r (position %d) reads" % (self.tokens[self.query], self.query + 1)]
        for r in self.readings:
            lines.append("  layer %2d head %2d  %-12s %.2f  cut %+.2f" % (
                r.layer, r.head, self.tokens[r.key] if r.key >= 0 else "-", r.weights[r.key] if r.key >= 0 else 0.0, r.cut))
        return "\n".join(lines)

    def page(self) -> str:
        """The page of `attn inspect` as one HTML text, the position of the query chosen; its readings are cut in the model."""
        if self._page is None:
            self._page = _page(self.model, self.ids, self.query, self.answers)
        return self._page

    def _repr_html_(self) -> str:
        return "<iframe style=\"width:100%%;height:1100px;border:0\" srcdoc=\"%s\"></iframe>" % html.escape(self.page())


def _page(model: Model, ids: Array, query: int, answers: Optional[List[int]]) -> str:
    from .model import _check, _CtrlC, _Session
    lib, text, size, inspection = m.load(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_void_p()
    args = library.args_init(InspectArgs)
    ids = np.ascontiguousarray(ids, np.int32)
    two = None if answers is None else np.array(answers, np.int32)
    args.tokens, args.n_tokens, args.at, args.layer, args.head = ids.ctypes.data, len(ids), query, -1, -1
    args.answers = None if two is None else two.ctypes.data
    args.n_exact, args.n_sample = N_EXACT, -1
    title = "".join(model.spell(ids)).encode("utf-8", "replace")
    with _Session(model) as session:
        with _CtrlC() as ctrl_c:
            ctrl_c.attach(args)
            status = lib.attn_inspect(session, ctypes.byref(args), ctypes.byref(inspection))
        _check(status)
    try:
        _check(lib.attn_inspect_html(model._use(), inspection, title, ctypes.byref(text), ctypes.byref(size)))
        return ctypes.string_at(text, size.value).decode("utf-8")
    finally:
        lib.attn_inspection_destroy(inspection)
        lib.attn_viz_free(text)


def _elsewhere(row: Array, query: int) -> Array:
    """The row without the first token, where heads park what they do not use, and without the query itself."""
    rest: Array = row.copy()
    rest[0] = rest[query] = 0
    return rest


def inspect(model: Model, ids: Array, query: int, heads: int, answers: Any) -> Inspection:
    """See Model.inspect. query: the position looked at (negative: from the end). answers: two token ids, or two texts of one
    token each, whose logits are compared (None: the two likeliest)."""
    if model.info["kind"] == "encoder-decoder":
        raise Unsupported("inspect() serves decoders and encoders; %s is an encoder-decoder" % model.info["family"])
    n = len(ids)
    if heads < 1:
        raise InvalidArgument("heads is %d, must be 1 or more" % heads)
    if not -n <= query < n:
        raise InvalidArgument("query is %d; the text has %d tokens" % (query, n))
    query %= n
    layers, per_layer = model.info["n_layers"], model.info["n_heads"]
    predicts = model.info["has_logits"] and model.info["kind"] == "decoder"
    found = model._forward(ids, logits=predicts, rows=[(i, h, query) for i in range(layers) for h in range(per_layer)])
    weights = found["rows"].reshape(layers, per_layer, n)
    likeliest: List[Tuple[str, float]] = []
    difference = float("nan")
    if predicts:
        logits = found["logits"][0].astype(np.float64)
        probabilities = np.exp(logits - logits.max())
        probabilities /= probabilities.sum()
        order = np.argsort(-probabilities, kind="stable")[:8]
        likeliest = [(t, float(probabilities[i])) for t, i in zip(model.spell(order), order)]
        answers = [int(i) for i in order[:2]] if answers is None else [_answer(model, a) for a in answers]
        if len(answers) != 2 or not all(0 <= a < len(logits) for a in answers):
            raise InvalidArgument("answers are the tokens %s; two of 0..%d are expected" % (answers, len(logits) - 1))
        difference = float(logits[answers[0]] - logits[answers[1]])
    else:
        answers = None
    elsewhere = np.array([_elsewhere(row, query).sum() for row in weights.reshape(-1, n)])
    chosen = sorted(np.argsort(-elsewhere, kind="stable")[:heads])
    readings = [_reading(model, ids, query, weights, int(c) // per_layer, int(c) % per_layer, answers, difference) for c in chosen]
    return Inspection(model, ids, query, weights, readings, likeliest, answers, difference)


def _answer(model: Model, answer: Any) -> int:
    if not isinstance(answer, str):
        return int(answer)
    if model.tokenizer is None:
        raise Unsupported("%s has no tokenizer: give token ids as answers" % model.path)
    ids = model.tokenizer.encode(answer, special=False)
    if len(ids) != 1:
        raise InvalidArgument("the answer %r is %d tokens; one is expected" % (answer, len(ids)))
    return int(ids[0])


def _reading(model: Model, ids: Array, query: int, weights: Array, layer: int, head: int, answers: Optional[List[int]],
             difference: float) -> Reading:
    row = weights[layer, head]
    rest = _elsewhere(row, query)
    key = int(rest.argmax()) if rest.max() > 0 else -1
    cut = float("nan")
    if answers is not None and key >= 0:
        edit = m.Edit(layer=layer, entry=0, head=head, query=query, key=key, kind=m.EDIT_KNOCKOUT)
        logits = model._forward(ids, logits=True, edits=[edit])["logits"][0]
        cut = float(logits[answers[0]]) - float(logits[answers[1]]) - difference
    return Reading(layer, head, row, key, cut)
