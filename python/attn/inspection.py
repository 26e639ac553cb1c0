"""Model.inspect(text): which earlier positions the heads read, and what moves when one reading is cut, as data and as HTML."""
import html
from typing import Any, List, NamedTuple, Tuple

import numpy as np

from . import model_library as m
from .errors import InvalidArgument, Unsupported

NOTE = ("A weight is how much of a token's value one head, in one layer, adds in here. It is no cause and no explanation: all "
        "other heads and layers shape the output. “cut” is the change of logit(%s) − logit(%s), now %+.2f, when "
        "the head's largest reading gets weight 0 and the rest is renormalised. Later layers often repair a single cut, and "
        "one text illustrates; it proves nothing.")


class Reading(NamedTuple):
    """One head's row of the query, and what moved when its largest reading was cut."""

    layer: int
    head: int
    weights: np.ndarray  # [n_keys]
    key: int             # the position read most, the first token and the query itself left out; -1: none
    cut: float           # change of the difference of the two answers' logits; NaN where the model has no logits


class Inspection:
    """tokens: their texts. weights [n_layers, n_heads, n_tokens]: the query's rows of every head. readings: the heads that read
    most from elsewhere, in order of layers. likeliest: [(text, probability)] of the next token (decoders)."""

    def __init__(self, model, ids, query, weights, readings, likeliest, answers, difference):
        self.model, self.ids, self.tokens, self.query = model, ids, model.spell(ids), query
        self.weights: np.ndarray = weights
        self.readings: List[Reading] = readings
        self.likeliest: List[Tuple[str, float]] = likeliest
        self.answers: Any = answers
        self.difference: float = difference

    def __repr__(self):
        lines = ["%r (position %d) reads" % (self.tokens[self.query], self.query + 1)]
        for r in self.readings:
            lines.append("  layer %2d head %2d  %-12s %.2f  cut %+.2f" % (
                r.layer, r.head, self.tokens[r.key] if r.key >= 0 else "-", r.weights[r.key] if r.key >= 0 else 0.0, r.cut))
        return "\n".join(lines)

    def _repr_html_(self):
        return "<div style=\"font-family:sans-serif;color:#222;background:#fff;max-width:60em;overflow-x:auto\">%s%s%s%s</div>" % (
            self._text(), self._next(), self._table(), self._note())

    def _shown(self, position):
        text = html.escape(self.tokens[position].replace("\n", "⏎").replace("\t", "⇥"))
        return text if text.strip() else "␣" * max(len(text), 1)

    def _text(self):
        most = np.max([r.weights for r in self.readings], axis=0) if self.readings else np.zeros(len(self.tokens))
        cells = []
        for j in range(len(self.tokens)):
            style = "outline:2px solid #b33" if j == self.query else ""
            cells.append("<span title=\"position %d, largest weight below %.2f\" style=\"padding:2px 3px;margin:1px;"
                         "display:inline-block;background:%s;%s\">%s</span>" % (j + 1, most[j], _heat(most[j]), style, self._shown(j)))
        return "<p>%s</p>" % "".join(cells)

    def _next(self):
        if not self.likeliest:
            return ""
        rows = "".join("<tr><td style=\"text-align:left\"><code>%s</code></td><td>%.1f %%</td><td style=\"text-align:left\"><div style=\"background:#4a7ab5;"
                       "height:0.8em;width:%.1fem\"></div></td></tr>" % (html.escape(repr(t)), 100 * p, 20 * p)
                       for t, p in self.likeliest)
        return "<p style=\"margin-bottom:0\"><b>Likeliest next tokens</b></p><table>%s</table>" % rows

    def _table(self):
        head = "<tr><th>layer</th><th>head</th>%s<th>cut</th></tr>" % "".join(
            "<th style=\"font-weight:normal%s\">%s</th>" % (";color:#b33" if j == self.query else "", self._shown(j))
            for j in range(len(self.tokens)))
        rows = []
        for r in self.readings:
            cells = "".join("<td style=\"background:%s;text-align:center\" title=\"layer %d, head %d reads %s: %.4f\">%s</td>" % (
                _heat(w), r.layer, r.head, self._shown(j), w, "%.2f" % w if w >= 0.005 else "·")
                for j, w in enumerate(r.weights))
            rows.append("<tr><td>%d</td><td>%d</td>%s<td>%s</td></tr>" % (
                r.layer, r.head, cells, "%+.2f" % r.cut if np.isfinite(r.cut) else ""))
        return "<p style=\"margin-bottom:0\"><b>What %s (position %d) reads</b>: the %d of %d heads that read most from elsewhere" \
            "</p><table style=\"border-collapse:collapse;font-size:90%%\">%s%s</table>" % (
                self._shown(self.query), self.query + 1, len(self.readings),
                self.weights.shape[0] * self.weights.shape[1], head, "".join(rows))

    def _note(self):
        if self.answers is None:
            note = NOTE.split("“")[0]
        else:
            note = NOTE % (*[html.escape(repr(t)) for t in self.model.spell(self.answers)], self.difference)
        return "<p style=\"font-size:90%%;color:#555\">%s</p>" % note


def _heat(weight):
    """A background from white to orange."""
    w = float(min(max(weight, 0.0), 1.0))
    return "rgb(255,%d,%d)" % (255 - 115 * w, 255 - 215 * w)


def _elsewhere(row, query):
    """The row without the first token, where heads park what they do not use, and without the query itself."""
    rest = row.copy()
    rest[0] = rest[query] = 0
    return rest


def inspect(model, ids, query, heads, answers):
    """See Model.inspect. query: the position looked at (negative: from the end). answers: two token ids, or two texts of one
    token each, whose logits are compared (None: the two likeliest)."""
    if model.info["kind"] == "encoder-decoder":
        raise Unsupported("inspect() serves decoders and encoders; %s is an encoder-decoder" % model.info["family"])
    n = len(ids)
    if not -n <= query < n:
        raise InvalidArgument("query is %d; the text has %d tokens" % (query, n))
    query %= n
    layers, per_layer = model.info["n_layers"], model.info["n_heads"]
    predicts = model.info["has_logits"] and model.info["kind"] == "decoder"
    found = model._forward(ids, logits=predicts, rows=[(i, h, query) for i in range(layers) for h in range(per_layer)])
    weights = found["rows"].reshape(layers, per_layer, n)
    likeliest, difference = [], float("nan")
    if predicts:
        logits = found["logits"][0].astype(np.float64)
        probabilities = np.exp(logits - logits.max())
        probabilities /= probabilities.sum()
        order = np.argsort(-probabilities, kind="stable")[:8]
        likeliest = [(t, float(probabilities[i])) for t, i in zip(model.spell(order), order)]
        answers = [int(i) for i in order[:2]] if answers is None else [_answer(model, a) for a in answers]
        difference = float(logits[answers[0]] - logits[answers[1]])
    else:
        answers = None
    elsewhere = np.array([_elsewhere(row, query).sum() for row in weights.reshape(-1, n)])
    chosen = sorted(np.argsort(-elsewhere, kind="stable")[:heads])
    readings = [_reading(model, ids, query, weights, int(c) // per_layer, int(c) % per_layer, answers, difference) for c in chosen]
    return Inspection(model, ids, query, weights, readings, likeliest, answers, difference)


def _answer(model, answer):
    if not isinstance(answer, str):
        return int(answer)
    ids = model.tokenizer.encode(answer, special=False)
    if len(ids) != 1:
        raise InvalidArgument("the answer %r is %d tokens; one is expected" % (answer, len(ids)))
    return int(ids[0])


def _reading(model, ids, query, weights, layer, head, answers, difference):
    row = weights[layer, head]
    rest = _elsewhere(row, query)
    key = int(rest.argmax()) if rest.max() > 0 else -1
    cut = float("nan")
    if answers is not None and key >= 0:
        edit = m.Edit(layer=layer, entry=0, head=head, query=query, key=key, kind=m.EDIT_KNOCKOUT)
        logits = model._forward(ids, logits=True, edits=[edit])["logits"][0]
        cut = float(logits[answers[0]]) - float(logits[answers[1]]) - difference
    return Reading(layer, head, row, key, cut)
