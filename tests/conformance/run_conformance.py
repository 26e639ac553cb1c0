"""run_conformance.py: the adapter against what others say attention is.

 - ONNX: the node tests of Attention and RotaryEmbedding in the installed `onnx` package, against their published outputs.
 - PyTorch: the samples in tests/data/conformance/torch_cases.npz, against float64 outputs and gradients.
 - FOLDER...: folders of cases in the same format (one folder a case: meta.json and .npy files), such as others export.

Every output that a case lists must come back, and no case of these operators may be skipped. Ends with
'N passed, N failed, N skipped'.
"""
import json
import os
import sys
import traceback
import warnings

import ml_dtypes
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import adapter  # noqa: E402

TORCH_CASES = os.path.join(HERE, "..", "data", "conformance", "torch_cases.npz")
TOLERANCE = {"float64": (1e-9, 1e-11), "float32": (2e-5, 2e-6), "float16": (2e-3, 1e-3), "bfloat16": (1.6e-2, 8e-3)}
# The suites must not shrink without being noticed: fewer cases than this is a failure.
AT_LEAST = {"Attention": 56, "RotaryEmbedding": 5, "sdpa": 60, "multi_head_attention": 24}


def wide(array):
    """bfloat16 as float32, anything else as it is."""
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array


def onnx_cases():
    """(name, op, attrs, inputs, dtypes, {output: (expected, dtype, tolerance)}) of the installed onnx package."""
    warnings.filterwarnings("ignore")
    import onnx
    from onnx import defs, helper, numpy_helper
    from onnx.backend.test.case.node import collect_testcases

    def array_of(value):
        return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)

    def bind(edges, formal, given):
        given = iter(given)
        return {formal[i].name: array_of(next(given)) for i, edge in enumerate(edges) if edge}

    for test in collect_testcases():
        nodes = test.model.graph.node
        if len(nodes) != 1 or nodes[0].op_type not in ("Attention", "RotaryEmbedding"):
            continue
        node = nodes[0]
        opset = max(o.version for o in test.model.opset_import if o.domain in ("", "ai.onnx"))
        schema = defs.get_schema(node.op_type, opset, "")
        inputs, outputs = (bind(edges, formal, given) for edges, formal, given in
                           zip((node.input, node.output), (schema.inputs, schema.outputs), test.data_sets[0]))
        attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        expected = {n: (wide(a), a.dtype.name, TOLERANCE.get(a.dtype.name)) for n, a in outputs.items()}
        yield (test.name, node.op_type, attrs, {n: wide(a) for n, a in inputs.items()},
               {n: a.dtype.name for n, a in inputs.items()}, expected)


def torch_cases():
    with np.load(TORCH_CASES) as packed:
        names = sorted({key.split("/")[0] for key in packed.files})
        for name in names:
            meta = json.loads(str(packed[name + "/meta"]))
            inputs, expected = {}, {}
            for key in packed.files:
                case, kind, *rest = key.split("/")
                if case != name or kind == "meta":
                    continue
                array = packed[key]
                if kind == "in":
                    if meta["dtypes"][rest[0]] == "bfloat16":
                        array = array.view(ml_dtypes.bfloat16).astype(np.float32)
                    inputs[rest[0]] = array
                else:
                    dtype = meta["out_dtypes"][rest[0]]
                    expected[rest[0]] = (array, dtype, tuple(meta["tol"].get(rest[0], TOLERANCE.get(dtype))))
            yield name, meta["op"], meta["attrs"], inputs, meta["dtypes"], expected


def folder_cases(root):
    """Cases of the operators that the adapter has, from a folder of folders with meta.json and .npy files."""
    for where, _, files in sorted(os.walk(root)):
        if "meta.json" not in files:
            continue
        with open(os.path.join(where, "meta.json"), encoding="utf-8") as file:
            meta = json.load(file)
        if meta.get("op") not in adapter.OPERATORS:
            continue

        def load(entry):
            array = np.load(os.path.join(where, entry["file"]))
            return array.view(ml_dtypes.bfloat16).astype(np.float32) if entry["dtype"] == "bfloat16" else array

        inputs = [e for e in meta["inputs"] if e]
        exact = {e["name"]: load(e) for e in meta.get("exact") or meta["outputs"] if e}
        expected = {e["name"]: (exact[e["name"]], e["dtype"], tuple(meta.get("tol", {}).get(e["name"], TOLERANCE.get(e["dtype"]) or ())))
                    for e in meta["outputs"] if e}
        yield (os.path.relpath(where, root), meta["op"], meta["attrs"], {e["name"]: load(e) for e in inputs},
               {e["name"]: e["dtype"] for e in inputs}, expected)


def disagreement(got, want, tolerance):
    got = wide(got)
    if got.shape != want.shape:
        return "shape %s, expected %s" % (got.shape, want.shape)
    if want.dtype.kind in "biu":
        return None if (got == want).all() else "%d integers differ" % (got != want).sum()
    got, want = got.astype(np.float64), want.astype(np.float64)
    relative, absolute = tolerance
    with np.errstate(invalid="ignore"):
        good = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= absolute + relative * np.abs(want))
    if good.all():
        return None
    index = tuple(int(i) for i in np.argwhere(~good)[0])
    return "%d of %d differ, the first at %s: got %.9g, expected %.9g" % (
        (~good).sum(), good.size, index, got[index], want[index])


def main():
    passed = failed = 0
    seen = dict.fromkeys(AT_LEAST, 0)
    for name, op, attrs, inputs, dtypes, expected in [*onnx_cases(), *torch_cases(), *(c for f in sys.argv[1:] for c in folder_cases(f))]:
        seen[op] = seen.get(op, 0) + 1
        try:
            found = adapter.run(op, attrs, inputs, dtypes)
            problems = ["%s is missing" % n for n in expected if found.get(n) is None]
            problems += ["%s: %s" % (n, d) for n, (want, _, tolerance) in expected.items() if found.get(n) is not None
                         for d in [disagreement(found[n], want, tolerance)] if d]
        except Exception:
            problems = [traceback.format_exc(limit=-1).strip().replace("\n", " | ")]
        if problems:
            failed += 1
            print("FAIL %s (%s): %s" % (name, op, "; ".join(problems)))
        else:
            passed += 1
    for op, least in AT_LEAST.items():
        if seen[op] < least:
            failed += 1
            print("FAIL only %d cases of %s; %d are known" % (seen[op], op, least))
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
