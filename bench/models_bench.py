"""models_bench.py: `./dev bench models`. Embeddings, generation and tokenizers, with 1 and all threads, beside their bars, the
read rate of the same run and, where PEERS_VENV has them, Hugging Face's libraries and ONNX Runtime (bench/peer_models.py); LLAMA_BENCH
names llama.cpp's program llama-bench, which then runs the same files.

Models that are not there are named and left out: all-MiniLM-L6-v2 and SmolLM2 come with `./dev model NAME`. GPT-2 124M has random
weights (bench/make_gguf.py). BENCH_TEXTS names another file of passages, one a line, than the one beside the repository.
"""
import glob
import json
import os
import re
import subprocess
import sys
import time

import bars

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
BUILD = os.path.join(ROOT, "build")
MODELS = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "attn")
MINILM = os.path.join(MODELS, "all-MiniLM-L6-v2")
SMOLLM2 = os.path.join(MODELS, "SmolLM2-135M-Instruct.Q4_1.gguf")
# (1 thread, 2 threads); a decode bar is a share of the read rate over the weight bytes
BARS = {"MiniLM f32": (195, 370), "MiniLM bf16": (330, 600), "MiniLM int8": (450, 800), "GPT-2 prefill f32": (1200, None),
        "GPT-2 prefill bf16": (2100, None), "SmolLM2 prefill": (700, None), "SmolLM2 decode": (200, None), "BPE": (20, None),
        "WordPiece": (10, None), "MiniLM cold start": (0.10, None), "MiniLM memory": (150, None), "size on disk": (10, None)}
# what such work is bound by, for bars.carried()
LIMITS = {"MiniLM f32": "peak_f32", "MiniLM bf16": "peak_bf16", "MiniLM int8": "peak_u8s8", "GPT-2 prefill f32": "peak_f32",
          "GPT-2 prefill bf16": "peak_bf16", "SmolLM2 prefill": "peak_f32", "SmolLM2 decode": "read_1"}
# rows where others round activations to 8 bits or bf16; ours do on demand
ROUNDED = {"GPT-2 q8_0": "--act-int8", "GPT-2 q4_0": "--act-int8", "SmolLM2": "--act-int8", "GPT-2 bf16": "--act-bf16"}
# whose row is held against the bar, where it is not that of f32 activations: PyTorch's bf16 rounds them
JUDGED = {"GPT-2 prefill bf16": "attn --act-bf16"}
LESS_IS_BETTER = ("MiniLM cold start", "MiniLM memory", "size on disk")
DECODE_SHARE = 0.85
COSINE = {"f32": 0.99999, "bf16": 0.9999, "int8": 0.999}


def judge(row):
    """(bar in words, met or None)"""
    if row["who"] != JUDGED.get(row["row"], "attn"):
        return "", None
    if "share" in row:
        bar = "%.0f %% of the reads" % (100 * DECODE_SHARE)
        return bar, None if row["threads"] != 2 or row["share"] > bars.DISTURBED else row["share"] >= DECODE_SHARE
    bar = BARS.get(row["row"], (None, None))[0 if row["threads"] == 1 else 1]
    if bar is None:
        return "", None
    met = row["value"] <= bar if row["row"] in LESS_IS_BETTER else row["value"] >= bar
    return "%g" % bar, met and row.get("right", True)


def passages():
    """The file of passages: the given one, or as many lines of the shipped corpus sample."""
    for path in (os.environ.get("BENCH_TEXTS"), os.path.join(ROOT, "..", "shared", "bench", "e2e", "sentences.txt")):
        if path and os.path.exists(path):
            return path
    path = os.path.join(BUILD, "bench", "passages.txt")
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        words = [w for w in re.findall(r"[A-Za-z]+", file.read())]
    with open(path, "w", encoding="utf-8") as file:
        for n in range(1000):  # 5 to 120 words, median about 30, always the same
            length = 5 + (n * 37) % 45 if n % 5 else 40 + (n * 53) % 81
            file.write(" ".join(words[(n * 131 + k) % len(words)] for k in range(length)) + ".\n")
    return path


class Rows:
    def __init__(self, options, out, lines_of):
        self.options, self.out, self.lines_of = options, out, lines_of
        self.threads = [int(n) for n in (options.threads or "1,2").split(",")]
        self.python = None if options.no_peers or not os.environ.get("PEERS_VENV") else \
            os.path.join(os.environ["PEERS_VENV"], "bin", "python")

    def wanted(self, name):
        return not self.options.only or any(part in name for part in self.options.only.split(","))

    def ours(self, *arguments):
        one = ["--cpu-time"] if self.options.cpu_time and arguments[arguments.index("--threads") + 1] == 1 else []
        return self.lines_of([os.path.join(BUILD, "bench", "bench_models")] + [str(a) for a in arguments] + one)[0]

    def peer(self, *arguments):
        if not self.python:
            return None
        done = subprocess.run([self.python, os.path.join(HERE, "peer_models.py")] + [str(a) for a in arguments],
                              capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        return json.loads(lines[-1]) if done.returncode == 0 and lines else None

    def llama(self, path, threads):
        """llama.cpp on the same file: {"prefill_per_s": ..., "decode_per_s": ...}, or None."""
        program = os.environ.get("LLAMA_BENCH")
        if self.options.no_peers or not program:
            return None
        done = subprocess.run([program, "-m", path, "-p", "512", "-n", "128", "-t", str(threads), "-r", "2", "-o", "jsonl"],
                              capture_output=True, text=True, check=False)
        found = {}
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                row = json.loads(line)
                found["prefill_per_s" if row["n_prompt"] else "decode_per_s"] = max(row["samples_ts"])
        if len(found) < 2:
            print("llama-bench: %s" % (done.stderr.strip().splitlines() or ["nothing printed"])[-1], file=sys.stderr)
            return None
        return found

    def add(self, name, threads, value, unit, who="attn", **more):
        if who == "attn" and self.options.cpu_time and threads == 1:
            more["clock"] = "processor"
        row = dict({"kind": "model", "row": name, "threads": threads, "value": value, "unit": unit, "who": who}, **more)
        bar, met = judge(row)
        beside = "   %4.0f %% of reads %.1f GB/s" % (100 * row["share"], row["read_gb_s"]) if "share" in row else ""
        self.out.add(row, "%-22s %d  %10.2f %-12s %-22s %-20s %s%s%s" % (
            name, threads, value, unit, who, bar, "" if met is None else "met" if met else "NOT met", beside,
            "   cosine %.6f" % row["cosine"] if "cosine" in row else ""))


def embeddings(rows):
    if not os.path.isdir(MINILM):
        print("left out: MiniLM (./dev model all-MiniLM-L6-v2 fetches it)", file=sys.stderr)
        return
    texts = passages()
    for weights in ("f32", "bf16", "int8"):
        name = "MiniLM " + weights
        if not rows.wanted(name):
            continue
        for threads in rows.threads:
            # the row of attn is the one whose activations are rounded as the others round theirs
            more = {"f32": [], "bf16": ["--act-bf16", "--reference"], "int8": ["--act-int8", "--reference"]}[weights]
            r = rows.ours("embed", MINILM, texts, "--weights", weights, "--threads", threads, "--runs", 2, *more)
            exact = {"cosine": r["cosine"], "right": r["cosine"] >= COSINE[weights]} if "cosine" in r else {}
            rows.add(name, threads, r["per_s"], "sentences/s", memory_mb=r["memory_mb"], **exact)
            if weights == "bf16":
                r = rows.ours("embed", MINILM, texts, "--weights", weights, "--threads", threads, "--runs", 2, "--reference")
                rows.add(name, threads, r["per_s"], "sentences/s", who="attn, f32 activations", memory_mb=r["memory_mb"],
                         cosine=r["cosine"])
            if threads == 1 and weights == "f32":
                rows.add("MiniLM memory", 1, r["memory_mb"], "MB")
            peers = {"f32": ("embed", "embed_onnx"), "bf16": ("embed",), "int8": ("embed_onnx",)}[weights]
            for other in filter(None, (rows.peer(peer, MINILM, texts, weights, threads) for peer in peers)):
                rows.add(name, threads, other["per_s"], "sentences/s", who=other["who"], memory_mb=other["memory_mb"])
    if rows.wanted("MiniLM cold start"):
        cold_start(rows)


def cold_start(rows):
    """Seconds from starting the command to its end after one embedding, the page cache warm; the best of 7."""
    taken = []
    for _ in range(7):
        start = time.perf_counter()
        subprocess.run([os.path.join(BUILD, "attn"), "embed", "--model", MINILM, "--threads", "1"], input=b"one sentence\n",
                       stdout=subprocess.DEVNULL, check=True)
        taken.append(time.perf_counter() - start)
    rows.add("MiniLM cold start", 1, min(taken), "s")
    size = 0
    for path in [os.path.join(BUILD, "attn")] + glob.glob(os.path.join(BUILD, "libattn*.so.*.*.*")):
        stripped = os.path.join(BUILD, "bench", "stripped")
        size += os.path.getsize(stripped if subprocess.run(["strip", "-o", stripped, path], check=False).returncode == 0 else path)
    rows.add("size on disk", 1, size / 1e6, "MB, stripped")


def decoder(rows, name, path, weights, peer):
    """Prefill and decode of one model file at every thread count."""
    if not rows.wanted(name):
        return
    label = name.split(" ")
    for threads in rows.threads:
        r = rows.ours("decode", path, "--weights", weights, "--threads", threads, "--runs", 2)
        kind = " " + label[1] if len(label) > 1 else ""
        rows.add(label[0] + " prefill" + kind, threads, r["prefill_per_s"], "tokens/s", memory_mb=r["memory_mb"])
        more = {"share": r["decode_per_s"] * r["weight_bytes"] * 1e-9 / r["read_gb_s"], "read_gb_s": r["read_gb_s"]} if kind else {}
        rows.add(label[0] + " decode" + kind, threads, r["decode_per_s"], "tokens/s", **more)
        if name in ROUNDED:
            r = rows.ours("decode", path, ROUNDED[name], "--threads", threads, "--runs", 2, "--reference")
            rows.add(label[0] + " prefill" + kind, threads, r["prefill_per_s"], "tokens/s", who="attn " + ROUNDED[name],
                     memory_mb=r["memory_mb"], cosine=r["cosine"])
            rows.add(label[0] + " decode" + kind, threads, r["decode_per_s"], "tokens/s", who="attn " + ROUNDED[name])
        other = rows.peer("decode", *peer, threads) if peer else None
        if other:
            rows.add(label[0] + " prefill" + kind, threads, other["prefill_per_s"], "tokens/s", who=other["who"], memory_mb=other["memory_mb"])
            rows.add(label[0] + " decode" + kind, threads, other["decode_per_s"], "tokens/s", who=other["who"])
        other = rows.llama(path, threads)
        if other:
            rows.add(label[0] + " prefill" + kind, threads, other["prefill_per_s"], "tokens/s", who="llama.cpp")
            rows.add(label[0] + " decode" + kind, threads, other["decode_per_s"], "tokens/s", who="llama.cpp")


def tokenizers(rows):
    texts, path = passages(), os.path.join(BUILD, "bench", "corpus.txt")
    with open(texts, encoding="utf-8") as source, open(path, "w", encoding="utf-8") as file:
        file.write(source.read() * 12)
    for name, tokenizer in (("WordPiece", os.path.join(MINILM, "tokenizer.json")), ("BPE", os.path.join(ROOT, "models", "austen", "tokenizer.json"))):
        if not rows.wanted(name) or not os.path.exists(tokenizer):
            continue
        done = subprocess.run([os.path.join(BUILD, "bench", "bench_tokenizer"), tokenizer, path, "3"], stdout=subprocess.PIPE, text=True, check=True)
        rows.add(name, 1, float(re.search(r"lines\s+([\d.]+) MB/s", done.stdout).group(1)), "MB/s by lines")
        other = rows.peer("tokens", tokenizer, path)
        if other:
            rows.add(name, 1, other["per_s"], "MB/s by lines", who=other["who"])


def run(options, out, lines_of, host, arguments):
    first = host(arguments)
    out.add(dict(first, kind="host-models"), "%s; attn %s, %s; reads %.1f GB/s with 1 thread, %.1f with all\nrow                   thr       value" % (
        first["cpu"], first["version"], first["isa"], first["read_1"], first["read_all"]))
    rows = Rows(options, out, lines_of)
    embeddings(rows)
    for kind, peer in (("f32", ("gpt2", "f32")), ("bf16", ("gpt2", "bf16")), ("q8_0", None), ("q4_0", None)):
        path = os.path.join(BUILD, "bench", "gpt2-%s.gguf" % kind)
        if rows.wanted("GPT-2 " + kind):
            if not os.path.exists(path):
                import make_gguf
                make_gguf.write(path, kind)
            decoder(rows, "GPT-2 " + kind, path, "stored", peer)
            os.remove(path)
    if os.path.exists(SMOLLM2):
        decoder(rows, "SmolLM2", SMOLLM2, "stored", ("smollm2", "f32"))
    else:
        print("left out: SmolLM2 (./dev model fetches it)", file=sys.stderr)
    tokenizers(rows)


def table(found):
    """The rows for docs/performance.md."""
    import report
    lines, rows = [], found.get("model", [])
    names = list(dict.fromkeys(r["row"] for r in sorted(rows, key=lambda r: r["who"] != "attn")))
    for r in sorted(rows, key=lambda r: (names.index(r["row"]), r["threads"], not r["who"].startswith("attn"))):
        bar, met = judge(r)
        here = bars.carried(float(bar), LIMITS[r["row"]], report.hosts(found)) if bar and r["row"] in LIMITS else None
        beside = "%.0f %% of %.1f GB/s" % (100 * r["share"], r["read_gb_s"]) if "share" in r else \
            "cosine %.6f" % r["cosine"] if "cosine" in r else "%.0f MB" % r["memory_mb"] if "memory_mb" in r else ""
        mark = " (processor time)" if r.get("clock") == "processor" else ""
        lines.append([r["row"], str(r["threads"]), r["who"], "%.4g %s%s" % (r["value"], r["unit"], mark), beside, bar, report.said(met)] + report.carried_cells(here, r["value"]))
    return report.table(["row", "threads", "library", "measured", "beside it", "bar", "met", "carried over", "met"], lines)
