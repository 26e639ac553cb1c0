"""peers.py: other libraries on the same shapes, where they are installed. Nothing here is needed to measure ours.

PEERS_VENV  a virtual environment with numpy and any of torch, onnxruntime and onnx, openvino, jax, scipy_openblas32
PEERS_DIR   the harness that times every library on the same files in processes of their own (run_one.py);
            default: ../shared/bench/peers beside the repository. Ours then runs there too, as cdrv:ours.
PEERS_BUILD, PEERS_CACHE  its compiled peers and its inputs; default: build/peers, build/peers-cache
"""
import json
import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
DTYPES = ("f32", "bf16", "f16")
PROBE = ("import importlib.util as u; print(' '.join(n for n in ('numpy', 'torch', 'onnxruntime', 'onnx', 'openvino', 'jax',"
         " 'scipy_openblas32') if u.find_spec(n)))")


class Peers:
    """Which peers can run here, and their times."""

    def __init__(self, wanted=""):
        self.python, self.names, self.harness = None, [], None
        folder = os.environ.get("PEERS_VENV")
        if not folder:
            return
        python = os.path.join(folder, "bin", "python")
        found = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, check=False).stdout.split() \
            if os.path.exists(python) else []
        harness = os.environ.get("PEERS_DIR") or os.path.join(ROOT, "..", "shared", "bench", "peers")
        self.harness = os.path.abspath(harness) if os.path.exists(os.path.join(harness, "py", "run_one.py")) else None
        self.python = python
        self.environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=os.path.join(ROOT, "python"),
                                OURS_DRIVER=os.path.join(ROOT, "build", "bench", "attn_driver"),
                                ATTN_LIBRARY=os.path.join(ROOT, "build", "libattn.so"))
        for name, value in (("PEERS_BUILD", "peers"), ("PEERS_CACHE", "peers-cache")):
            self.environment.setdefault(name, os.path.join(ROOT, "build", value))
        if self.harness and "numpy" in found:
            self.names = self.known(found)
        elif "torch" in found:
            self.names = ["torch"]
        if wanted:
            self.names = [n for n in self.names if n in wanted.split(",")]

    def known(self, found):
        names = ["torch:flash"] if "torch" in found else []
        if "onnxruntime" in found and "onnx" in found:
            names += ["ort:gqa", "ort:attn"]
        names += [n for n in ("openvino", "jax") if n in found]
        if "scipy_openblas32" in found and self.built("naive"):
            names.append("cdrv:openblas")
        if self.built("ggml_fa"):
            names.append("cdrv:ggml")
        return names

    def built(self, name):
        """Whether the harness's own C program is there, after one try to build it."""
        path = os.path.join(self.environment["PEERS_BUILD"], name)
        if not os.path.exists(path) and name == "naive":
            subprocess.run(["bash", os.path.join(self.harness, "build.sh")], env=self.environment, capture_output=True, check=False)
        return os.path.exists(path)

    def run(self, shape, dtype, threads):
        """Times of ours and of every peer on this shape: [{"peer", "seconds", "ok", ...}]; ours is called "ours"."""
        if not self.names or dtype not in DTYPES:
            return []
        rows, options = [], ["--shape", shape, "--dtype", dtype, "--threads", str(threads)]
        if not self.harness or (shape, dtype) == ("S11", "bf16"):  # the harness has no 16-bit gradient of the output
            rows = self.lines([os.path.join(HERE, "peer_torch.py")] + options) if any("torch" in n for n in self.names) else []
        else:
            for name in ["cdrv:ours"] + self.names:
                if name not in ("cdrv:openblas", "jax") or dtype == "f32":
                    rows += self.lines([os.path.join(self.harness, "py", "run_one.py"), "--peer", name] + options)
        return [self.row(r) for r in rows if "error" not in r]

    def lines(self, command):
        try:
            done = subprocess.run([self.python] + command, capture_output=True, text=True, check=False, timeout=300,
                                  env=self.environment)
        except subprocess.TimeoutExpired:
            return []
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    @staticmethod
    def row(r):
        return {"kind": "peer", "peer": r["peer"].replace("cdrv:", ""), "shape": r["shape"], "dtype": r["dtype"], "threads": r["threads"],
                "forward_s": r["fwd_s"], "backward_s": r.get("bwd_s"), "ok": r.get("ok", True), "error": r.get("rel"),
                "others_cores": r.get("others_cores")}


def total(row):
    return row["forward_s"] + (row["backward_s"] or 0)


def best_of(rows):
    """(name of the fastest peer with right results, its time over ours) of the rows of one shape; None without both."""
    ours = [r for r in rows if r["peer"] == "ours"]
    both = bool(ours and ours[-1]["backward_s"])
    others = [r for r in rows if r["peer"] != "ours" and r["ok"] and bool(r["backward_s"]) == both]
    if not ours or not others:
        return None
    best = min(others, key=total)
    return best["peer"], total(best) / total(ours[-1])
