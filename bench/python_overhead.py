"""python_overhead.py: what a call from Python costs on the smallest problem (one query, one key, head_dim 8).

Microseconds: the least of many short runs, and the C call alone for comparison. Run it on a quiet machine:
    PYTHONPATH=python python3 bench/python_overhead.py [--json]
"""
import json
import platform
import sys
import timeit

import numpy as np

import attn
from attn.library import lib

q, k, v = (np.random.default_rng(n).standard_normal((1, 1, 1, 8)).astype(np.float32) for n in range(3))
out = np.empty_like(q)
call = attn.prepare(q, k, v, return_lse=False)
handle, arguments = call.context.handle, call._reference

CALLS = {
    "the C function through ctypes": lambda: lib.attn_sdpa_forward(handle, arguments, None, 0),
    "a prepared call": call,
    "attention": lambda: attn.attention(q, k, v),
    "attention, out given": lambda: attn.attention(q, k, v, out=out),
    "scaled_dot_product_attention": lambda: attn.scaled_dot_product_attention(q, k, v, is_causal=True),
    "attention with a window": lambda: attn.attention(q, k, v, window=(3, 0)),
}

found = {name: round(min(timeit.repeat(function, number=100, repeat=300)) / 100 * 1e6, 2) for name, function in CALLS.items()}
if "--json" in sys.argv:
    print(json.dumps({"microseconds": found, "python": platform.python_version(), "isa": attn.default_context().isa}))
else:
    print("Python %s, NumPy %s, libattn %s (%s)" % (platform.python_version(), np.__version__, attn.__version__,
                                                    attn.default_context().isa))
    for name, microseconds in found.items():
        print("%-32s %7.2f us" % (name, microseconds))
