"""python_overhead.py: what a call from Python costs on the smallest problem (one query, one key, head_dim 8).

Microseconds above what the same call costs as a bare ctypes call with its arguments ready (first row, itself shown whole): the
least of many short runs. Run it on a quiet machine:
    PYTHONPATH=python python3 bench/python_overhead.py [--json]
"""
import json
import platform
import sys
import timeit

import numpy as np

import attn
from attn.library import lib

try:
    import torch
except ImportError:
    torch = None

q, k, v = (np.random.default_rng(n).standard_normal((1, 1, 1, 8)).astype(np.float32) for n in range(3))
out = np.empty_like(q)
INTEGERS, SLOPES = np.ones(1, np.int64), np.ones(1, np.float32)
EVERY_KEYWORD = {  # one keyword each; several add up to a little more
    "causal": {"causal": True}, "window": {"window": (3, 0)}, "query_offset": {"causal": True, "query_offset": 0},
    "scale": {"scale": 0.5}, "softcap": {"softcap": 30.0}, "out": {"out": out}, "return_lse": {"return_lse": True},
    "mask": {"mask": np.ones((1, 1), bool)}, "bias": {"bias": np.zeros((1, 1), np.float32)}, "kv_len": {"kv_len": INTEGERS},
    "kv_len, a list": {"kv_len": [1]}, "q_len": {"q_len": INTEGERS}, "sinks": {"sinks": SLOPES},
    "alibi_slopes": {"alibi_slopes": SLOPES}, "relative": {"relative": np.zeros((1, 3), np.float32), "relative_left": 1},
    "cu_seqlens": {"cu_seqlens_q": np.array([0, 1]), "cu_seqlens_k": np.array([0, 1])},
    "dropout": {"dropout_p": 0.1, "dropout_seed": 7}, "context": {"context": attn.Context()}}


def microseconds(function):
    return min(timeit.repeat(function, number=100, repeat=200)) / 100 * 1e6


def bare(**rules):
    """The C function on arguments that are ready."""
    call = attn.prepare(q, k, v, **{"return_lse": False, **rules})
    handle, arguments = call.context.handle, call._reference
    KEPT.append(call)
    return lambda: lib.attn_sdpa_forward(handle, arguments, None, 0)


def above_bare(function, **rules):
    return round(microseconds(function) - microseconds(bare(**rules)), 2)


KEPT = []
found = {"the C function through ctypes": round(microseconds(bare()), 2),
         "a prepared call": above_bare(attn.prepare(q, k, v, return_lse=False)),
         "attention": above_bare(lambda: attn.attention(q, k, v)),
         "scaled_dot_product_attention": above_bare(lambda: attn.scaled_dot_product_attention(q, k, v, is_causal=True), causal=True)}
for name, rules in EVERY_KEYWORD.items():
    found["attention: " + name] = above_bare(lambda: attn.attention(q, k, v, **rules), **rules)
if torch is not None:
    tensors = [torch.from_numpy(array) for array in (q, k, v)]
    found["attention of tensors"] = above_bare(lambda: attn.attention(*tensors))
if "--json" in sys.argv:
    print(json.dumps({"microseconds": found, "python": platform.python_version(), "isa": attn.default_context().isa}))
else:
    print("Python %s, NumPy %s, libattn %s (%s)" % (platform.python_version(), np.__version__, attn.__version__,
                                                    attn.default_context().isa))
    for name, cost in found.items():
        print("%-32s %7.2f us%s" % (name, cost, "" if name.startswith("the C") else " more"))
