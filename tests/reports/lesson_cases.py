"""Layer cases beside those of layers_library: the optimiser, ids, slopes, rotary frequencies, tiny models, pooling, one head.
Each function takes the case, a numpy type and the case's path, and returns named arrays."""
import contextlib
import ctypes
import os
import struct
import tempfile

import numpy as np

import attn
from attn import library
from attn import model as models
from attn import model_library
from case_tensors import values
from layers_library import DTYPE, Layers, NORM_RMS, _struct, init, pointer
from model_binding import _library
from op_cases import Failed, Skipped

AdamW = _struct("AdamW", "size: struct_size\ni32: dtype reserved\ni64: n\nptr: weights gradient m v\n"
                "f64: learning_rate beta1 beta2 epsilon weight_decay\ni64: step")
MAGIC, HEADER = b"ATTNIDS1", 64


def tensors(case, dtype):
    return {n: np.ascontiguousarray(values(t), dtype) for n, t in case["inputs"].items()}


def train(name, *args):
    """Calls a function of attn/train.h; Failed with its text where it refuses."""
    function = getattr(_library, name)
    function.restype = ctypes.c_int
    if function(*args):
        _library.attn_train_error.restype = ctypes.c_char_p
        raise Failed(_library.attn_train_error().decode())


def adamw(case, dtype, path):
    x, p = tensors(case, dtype), case["params"]
    weights, m, v, after = x["p"].copy(), np.zeros_like(x["p"]), np.zeros_like(x["p"]), []
    for step, gradient in enumerate(np.ascontiguousarray(x["grads"]), 1):
        gradient = np.ascontiguousarray(gradient)
        train("attn_train_adamw", ctypes.byref(init(
            AdamW, dtype=DTYPE[weights.dtype], n=weights.size, weights=pointer(weights), gradient=pointer(gradient),
            m=pointer(m), v=pointer(v), learning_rate=p["lr"], beta1=p["beta1"], beta2=p["beta2"], epsilon=p["eps"],
            weight_decay=p["weight_decay"], step=step)))
        after.append(weights.copy())
    return {"p_after": np.array(after)}


def alibi_slopes(case, dtype, path):
    slopes = np.empty(case["params"]["heads"])
    function = _library.attn_alibi_slopes
    function.argtypes = [ctypes.c_int64, ctypes.c_void_p]
    if function(slopes.size, slopes.ctypes.data):
        raise Failed("attn_alibi_slopes refuses %d heads" % slopes.size)
    return {"slopes": slopes.astype(dtype)}


def rope_inv_freq(case, dtype, path):
    """Frequencies are the angles by which position 1 turns the pair (1, 0)."""
    p = case["params"]
    scaling = {"default": "plain"}.get(p["type"], p["type"])
    x = np.zeros((1, 1, 1, p["head_dim"]), dtype)
    x[..., :p["head_dim"] // 2] = 1
    known = {"original_max_position_embeddings": "original_length"}
    options = {known.get(n, n): value for n, value in p.items() if n not in ("type", "head_dim", "theta")}
    turned = np.asarray(attn.rope(x, base=p["theta"], positions=np.array([1]), scaling=scaling, **options), np.float64)
    half = p["head_dim"] // 2
    return {"inv_freq": np.arctan2(turned[0, 0, 0, half:], turned[0, 0, 0, :half])}


@contextlib.contextmanager
def ids_file(tokens):
    """A file as attn_train_encode writes it, with these training ids and none for validation; yields an open handle."""
    head = MAGIC + struct.pack("<QQQQQQ", 2, 1 << 15, len(tokens), 0, 0, 0)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokens.bin")
        with open(path, "wb") as file:
            file.write(head.ljust(HEADER, b"\0") + np.asarray(tokens, "<u2").tobytes())
        handle = ctypes.c_void_p()
        train("attn_train_data_open", path.encode(), ctypes.byref(handle))
        try:
            yield handle
        finally:
            _library.attn_train_data_close(handle)


def batch_of(tokens, length, index=0):
    x, y = np.empty(length, np.int32), np.empty(length, np.int32)
    with ids_file(tokens) as data:
        i64, u64 = ctypes.c_int64, ctypes.c_uint64
        train("attn_train_data_batch", data, u64(0), i64(index), i64(1), i64(length), ctypes.c_void_p(x.ctypes.data),
              ctypes.c_void_p(y.ctypes.data))
    return x, y


def next_token_pairs(case, dtype, path):
    first = case["start"]
    x, y = batch_of(case["tokens"][first:first + case["block"] + 1], case["block"])
    return {"x": x, "y": y}


def valid_starts_list(case, dtype, path):
    """Texts too short for one piece are refused; of the others every batch is one of the valid pieces."""
    for item in case["items"]:
        n, length, want = item["n_tokens"], item["block"], item["expect"]
        try:
            starts = {int(batch_of(range(n), length, index)[0][0]) for index in range(64)}
        except Failed as reason:
            if "error" not in want:
                raise
            if "one more than the length is needed" not in str(reason):
                raise Failed("the message does not say how many are needed: %s" % reason)
            continue
        if "error" in want or not starts <= set(range(want["count"])):
            raise Failed("%d tokens, pieces of %d: starts %s, wanted %s" % (n, length, sorted(starts), want))
    return {}


@contextlib.contextmanager
def tiny_model(case, path):
    base = os.path.join(os.path.dirname(os.path.abspath(path)), case["model"])
    with tempfile.TemporaryDirectory() as folder:
        for name, file in (("config.json", ".config.json"), ("model.safetensors", ".safetensors")):
            if not os.path.exists(base + file):
                raise Skipped("%s is not beside the cases" % (case["model"] + file))
            os.symlink(base + file, os.path.join(folder, name))
        yield models.Model.load(folder, tokenizer=False, weights="f32")


def logits(case, dtype, path):
    if dtype == np.float64:
        raise Skipped("models compute in f32")
    with tiny_model(case, path) as model:
        return {"logits": model.logits(np.array(case["ids"], np.int32), all=True)}


def logits_cached(case, dtype, path):
    if dtype == np.float64:
        raise Skipped("models compute in f32")
    ids, rows = np.array(case["ids"], np.int32), []
    with tiny_model(case, path) as model, models._Session(model) as session:
        for n in case["chunks"]:
            first = sum(r.shape[0] for r in rows)
            part = np.ascontiguousarray(ids[first:first + n])
            args = library.args_init(model_library.ForwardArgs)
            rows.append(np.empty((n, model.info["vocab_size"]), np.float32))
            args.tokens, args.n_tokens = part.ctypes.data, n
            args.logits, args.logits_rows = rows[-1].ctypes.data, model_library.LOGITS_ALL
            models._check(model_library.load().attn_model_forward(session, ctypes.byref(args)))
    return {"logits": np.concatenate(rows)}


def mean_pool(case, dtype, path):
    """The soft lookup with a query of zeros: equal weights over the real tokens. RMSNorm without eps gives unit length."""
    x = tensors(case, dtype)
    h, keep = x["h"], x["mask"] != 0
    batch, _, width = h.shape
    key = np.zeros(h.shape[:2] + (1,), dtype)[:, None]
    mean = attn.attention(np.zeros((batch, 1, 1, 1), dtype), key, np.ascontiguousarray(h[:, None]),
                          mask=np.ascontiguousarray(keep[:, None, None]))
    mean = np.asarray(mean).reshape(batch, width)
    unit = Layers().norm(np.ascontiguousarray(mean), NORM_RMS, 1e-300, np.full(width, width ** -0.5, dtype))
    return {"mean": mean, "mean_l2": unit}


def export_head(case, dtype, path):
    x = tensors(case, dtype)
    which = [(0, case["head"], i) for i in range(x["q"].shape[2])]
    return {"weights": attn.rows(x["q"], x["k"], which, value=x["v"])}


OPS = {f.__name__: f for f in (adamw, alibi_slopes, rope_inv_freq, next_token_pairs, valid_starts_list, logits, logits_cached,
                               mean_pool, export_head)}
