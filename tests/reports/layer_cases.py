"""Runs layer cases (activations, norms, rotary positions, losses, multi-head attention) on libattn_model."""
import numpy as np

import attn
from case_tensors import values
import lesson_cases
from layers_library import NORM_LAYER, NORM_RMS, Layers
from op_cases import Failed

TYPES = {"f64": np.float64, "f32": np.float32}


def check(case, dtype, name, got, want):
    want = np.asarray(values(want) if isinstance(want, dict) else want, np.float64)
    tol = case["tol"][dtype]
    got = np.asarray(got, np.float64)
    if got.shape != want.shape:
        raise Failed("%s: shape %s, not %s" % (name, got.shape, want.shape))
    bad = ~(np.abs(got - want) <= tol["abs"] + tol["rel"] * np.abs(want)) & ~((got == want) | (np.isnan(got) & np.isnan(want)))
    if bad.any():
        at = np.unravel_index(np.argmax(bad), bad.shape)
        raise Failed("%s%s is %r, not %r" % (name, list(at), got[at], want[at]))


def gelu(layers, case, x):
    return {"erf": layers.activation(x["x"], "gelu_erf"), "tanh": layers.activation(x["x"], "gelu_tanh")}


def eps_of(name):
    return float(name[len("eps_"):])


def layer_norm(layers, case, x):
    return {n: layers.norm(x["x"], NORM_LAYER, eps_of(n), x["gamma"], x.get("beta")) for n in case["expect"]}


def rms_norm(layers, case, x):
    return {n: layers.norm(x["x"], NORM_RMS, eps_of(n), x["gamma"]) for n in case["expect"]}


def rope(layers, case, x):
    positions = values(case["inputs"]["pos"]).astype(np.int64).reshape(1, -1)
    base = case["params"]["theta"]
    return {n: attn.rope(x["x"][None, None], base=base, positions=positions, interleaved=n == "interleaved")[0, 0]
            for n in case["expect"]}


def cross_entropy(layers, case, x):
    loss, counted, d = layers.cross_entropy(x["logits"], case["targets"], case["ignore_index"])
    return {"loss": loss / counted if counted else float("nan"), "dlogits": d}


def grad_accumulation(layers, case, x):
    targets, ignored = np.array(case["targets"]), case["ignore_index"]
    total = int((targets != ignored).sum())
    loss, d = 0.0, np.zeros_like(x["logits"])
    for rows in case["micro_batches"]:
        part, _, d_part = layers.cross_entropy(np.ascontiguousarray(x["logits"][rows]), targets[rows], ignored, 1 / total)
        loss += part
        d[rows] = d_part
    return {"loss": loss / total, "dlogits": d}


def mha(layers, case, x):
    names = {"wq": "w_query", "wk": "w_key", "wv": "w_value", "wo": "w_out", "bq": "b_query", "bk": "b_key", "bv": "b_value",
             "bo": "b_out"}
    rows, heads = x["x"], case["heads"]
    weights = {to: x[n] for n, to in names.items() if n in x}
    bias = allow = None
    if "mask" in x:  # index n * heads + h, as in PyTorch; a boolean True admits (cases/README.md), numbers are added
        mask = values(case["inputs"]["mask"])
        mask = mask.reshape((-1, heads if mask.ndim == 3 else 1) + mask.shape[-2:])
        if mask.dtype == bool:
            allow = np.ascontiguousarray(mask).astype(np.uint8)
        else:
            bias = np.ascontiguousarray(mask, rows.dtype)
    results = {}
    for name, average in (("weights", False), ("weights_mean", True)):
        found = layers.mha(rows, rows, rows, heads, x["wq"].shape[0] // heads, weights, bias=bias, allow=allow,
                           average=average)
        results.update({"out": found["out"], name: found["weights"]})
    return results


OPS = {"gelu": gelu, "layer_norm": layer_norm, "rms_norm": rms_norm, "rope": rope, "cross_entropy": cross_entropy,
       "grad_accumulation": grad_accumulation, "mha": mha}


def run(case, dtype, path):
    if case["op"] in lesson_cases.OPS:
        results = lesson_cases.OPS[case["op"]](case, TYPES[dtype], path)
    else:
        results = plain(case, dtype)
    for name, want in case.get("expect", {}).items():
        if name not in results:
            raise Failed("no output %s" % name)
        check(case, dtype, name, results[name], want)


def plain(case, dtype):
    inputs = {n: np.ascontiguousarray(values(t), TYPES[dtype]) for n, t in case["inputs"].items()}
    return OPS[case["op"]](Layers(), case, inputs)
