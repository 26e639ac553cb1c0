"""pack_torch_cases.py FOLDER TARGET.npz [BYTES]: packs the small cases of a folder of PyTorch samples into one file.

FOLDER holds one folder a case: meta.json (op, attrs, inputs, outputs, exact, tol) and the .npy files that it names; a
case is taken when its arrays have at most BYTES (16000). In the file, CASE/meta is JSON, CASE/in/NAME an input and
CASE/out/NAME the float64 output; bfloat16 is stored as its bits in uint16, and meta says so.
"""
import json
import os
import sys

import numpy as np


def main():
    folder, target = sys.argv[1:3]
    limit = int(sys.argv[3]) if len(sys.argv) > 3 else 16000
    packed, taken = {}, 0
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name, "meta.json"), encoding="utf-8") as file:
            meta = json.load(file)
        entries = [("in", e) for e in meta["inputs"] if e] + [("out", e) for e in meta["exact"] if e]
        loaded = {"%s/%s/%s" % (name, kind, e["name"]): np.load(os.path.join(folder, name, e["file"])) for kind, e in entries}
        if sum(a.nbytes for a in loaded.values()) > limit:
            continue
        packed.update(loaded)
        kept = {"op": meta["op"], "attrs": meta["attrs"], "tol": meta.get("tol", {}), "source": meta["source"],
                "dtypes": {e["name"]: e["dtype"] for e in meta["inputs"] if e},
                "out_dtypes": {e["name"]: e["dtype"] for e in meta["outputs"] if e}}
        packed[name + "/meta"] = np.array(json.dumps(kept, sort_keys=True))
        taken += 1
    np.savez_compressed(target, **packed)
    print("%d cases, %d bytes" % (taken, os.path.getsize(target)))


main()
