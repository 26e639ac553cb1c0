"""python -m attn info [--json]: version, instruction set, threads, and a self-test of the library in use."""
import argparse
import json
import sys

import numpy as np

import attn
from attn import library


def self_test():
    """One small problem on every level of this machine against the formula in float64; the largest error of each level."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, 9, 16)).astype(np.float32) for _ in range(3))
    scores = np.einsum("bhid,bhjd->bhij", q.astype(np.float64), k) / 4.0
    scores = np.where(np.tril(np.ones((9, 9), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    want = weights / weights.sum(axis=-1, keepdims=True) @ v
    errors = {}
    for level in library.ISA_LEVELS:
        try:
            context = attn.Context(isa=level)
        except attn.Unsupported:
            continue
        if level != "best":
            errors[level] = float(np.abs(attn.attention(q, k, v, causal=True, context=context) - want).max())
    return errors


def info(as_json):
    context = attn.default_context()
    errors = self_test()
    passed = all(error < 1e-5 for error in errors.values())
    found = {"version": attn.__version__, "library": library.PATH, "isa": context.isa, "threads": context.threads,
             "self_test": "passed" if passed else "FAILED", "largest_error": errors}
    if as_json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print("%-14s %s" % (name, ", ".join("%s %.1e" % e for e in value.items()) if isinstance(value, dict) else value))
    return 0 if passed else 1


def main():
    parser = argparse.ArgumentParser(prog="python -m attn", description=__doc__)
    parser.add_argument("command", choices=["info"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    return info(options.json)


sys.exit(main())
