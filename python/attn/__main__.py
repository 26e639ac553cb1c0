"""python -m attn info [--json]: version, instruction set, threads, and a self-test of the library in use.
python -m attn run SCRIPT [ARGUMENTS]: runs a PyTorch script after attn.install(); the script stays as it is."""
from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
from typing import Any, Dict, List

import numpy as np

import attn
from attn import library, model_library


def self_test() -> Dict[str, float]:
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


def model_library_state() -> str:
    """Where libattn_model is; why attn.Model cannot be used otherwise."""
    try:
        return str(model_library.load()._name)
    except attn.ModelLibraryMissing as error:
        return "none (%s)" % error


def run_script(arguments: List[str]) -> int:
    """Runs a Python script as `python script.py ...` would, with PyTorch's attention served by libattn."""
    script, sys.argv = arguments[0], arguments
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    attn.install()
    runpy.run_path(script, run_name="__main__")
    return 0


def info(as_json: bool) -> int:
    """Prints what is in use; 0 where the self-test passed."""
    context = attn.default_context()
    errors = self_test()
    passed = all(error < 1e-5 for error in errors.values())
    found: Dict[str, Any] = {"version": attn.__version__, "library": library.PATH, "isa": context.isa, "threads": context.threads,
                             "model_library": model_library_state(), "self_test": "passed" if passed else "FAILED", "largest_error": errors}
    if as_json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print("%-14s %s" % (name, ", ".join("%s %.1e" % e for e in value.items()) if isinstance(value, dict) else value))
    return 0 if passed else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m attn", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="version, instruction set, threads, self-test").add_argument("--json", action="store_true")
    run = commands.add_parser("run", help="run a PyTorch script with attn.install()")
    run.add_argument("script")
    run.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    return info(options.json) if options.command == "info" else run_script([options.script, *options.arguments])


if __name__ == "__main__":
    sys.exit(main())
