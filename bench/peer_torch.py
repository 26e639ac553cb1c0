"""peer_torch.py: PyTorch's scaled_dot_product_attention and ours on one shape, in turns, without the harness of peers.py.

    python3 bench/peer_torch.py --shape S1 --dtype f32 --threads 1      one line of JSON for each of the two
"""
import argparse
import json
import statistics
import sys
import time

import torch

sys.dont_write_bytecode = True
sys.path.insert(0, __file__.rsplit("/", 1)[0])
python_bench = __import__("python")  # bench/python.py: the same calls, as a user writes them

NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


def seconds(run, budget=0.5):
    run()
    taken, start = [], time.perf_counter()
    while len(taken) < 3 or (time.perf_counter() - start < budget and len(taken) < 200):
        begun, calls = time.perf_counter(), 0
        while calls == 0 or time.perf_counter() - begun < 1e-3:
            run()
            calls += 1
        taken.append((time.perf_counter() - begun) / calls)
    return statistics.median(taken)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", required=True)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found = {"torch": seconds(python_bench.operator_run(options.shape, NAMES[options.dtype]))}
    try:
        import attn
        attn.set_default(threads=options.threads)
        attn.install()
        found["ours"] = seconds(python_bench.operator_run(options.shape, NAMES[options.dtype]))
    except ImportError:
        pass
    for peer, took in found.items():
        # operator_run does forward and backward together on S11: the sum is what counts
        print(json.dumps({"peer": peer, "shape": options.shape, "dtype": options.dtype, "threads": options.threads,
                          "fwd_s": took, "bwd_s": None}))


if __name__ == "__main__":
    main()
