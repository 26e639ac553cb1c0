#!/usr/bin/env python3
"""PyTorch before and after attn.install(): the operator on S1 to S13, and whole models, with 1 and 2 threads.

    PYTHONPATH=python python3 bench/python.py [--threads 1,2] [--only S1,S13,gpt2-1024] [--seconds 1.0] [--json]
    PYTHONPATH=python python3 bench/python.py --keep rows.jsonl --markdown        # the tables of docs/python.md

Needs torch; transformers for the models. Each row is run in a process of its own, before and after alternating in it, and
shows the median time of a run; a run longer than 5 seconds is timed once, the first. Models have random weights from their
published configurations: times do not depend on them. The last columns say what was gained, and the largest resident memory of
the process during a run; rows where linear layers dominate gain little, and are shown all the same. --keep FILE takes rows that
are in FILE from there, and adds those measured now: the whole table can be measured in pieces; --seconds 0 measures nothing.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
F32, BF16, F16 = "float32", "bfloat16", "float16"
# name: (batch, heads, kv heads, queries, keys, head_dim, rule, types)
SHAPES = {
    "S1": (1, 12, 12, 1024, 1024, 64, "causal", (F32, BF16)), "S2": (1, 32, 8, 2048, 2048, 128, "causal", (F32, BF16, F16)),
    "S3": (1, 8, 8, 8192, 8192, 128, "causal", (F32, BF16)), "S4": (32, 12, 12, 128, 128, 32, "lengths", (F32,)),
    "S5": (8, 12, 12, 512, 512, 64, "none", (F32, BF16)), "S6": (4, 16, 16, 577, 577, 64, "none", (F32,)),
    "S7": (1, 32, 8, 1, 8192, 128, "none", (F32, BF16, F16)), "S8": (16, 32, 8, 1, 2048, 128, "none", (F32, BF16)),
    "S9": (1, 1, 1, 131072, 131072, 64, "causal", (F32,)), "S10": (1, 8, 8, 16384, 16384, 128, "window", (F32,)),
    "S11": (4, 12, 12, 1024, 1024, 64, "causal", (F32,)), "S12": (1, 16, 16, 1024, 1024, 64, "bias", (F32,)),
    "S13": (1, 4, 4, 16, 16, 32, "causal", (F32,))}
WINDOW = 1024
LONG_RUN = 5.0  # seconds; what a first run does once (packing, first touch) is no part of so long a time that shows
MODELS = ("minilm", "gpt2-1024", "gpt2-4096", "nanogpt-step", "smollm2-8192", "vit-577")


def operator_run(name, dtype):
    """A function that makes one call of PyTorch's operator, as a user would write it."""
    import torch
    import torch.nn.functional as functional
    batch, heads, kv_heads, n_queries, n_keys, dim, rule, _ = SHAPES[name]
    torch.manual_seed(0)
    make = lambda h, n: torch.randn(batch, n, h, dim).to(getattr(torch, dtype)).transpose(1, 2)  # noqa: E731
    q, k, v = make(heads, n_queries), make(kv_heads, n_keys), make(kv_heads, n_keys)
    mask, causal, grouped = None, rule == "causal", heads != kv_heads
    if rule == "lengths":
        lengths = torch.randint(16, n_keys + 1, (batch, 1))
        mask = (torch.arange(n_keys)[None] < lengths)[:, None, None, :]
    elif rule == "window":
        i, j = torch.arange(n_queries)[:, None], torch.arange(n_keys)[None]
        mask = (j <= i) & (j > i - WINDOW)
    elif rule == "bias":
        mask = torch.randn(1, heads, n_queries, n_keys)
    if name != "S11":
        def run():
            with torch.no_grad():
                functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=grouped)
        return run
    leaves = [t.detach().requires_grad_(True) for t in (q, k, v)]
    d_out = torch.randn(batch, heads, n_queries, dim).to(getattr(torch, dtype))

    def step():
        torch.autograd.grad(functional.scaled_dot_product_attention(*leaves, is_causal=True), leaves, d_out)
    return step


def minilm():
    """64 sentences of 8 to 128 words through sentence-transformers, all-MiniLM-L6-v2's shape."""
    import tempfile

    import sentence_transformers
    import torch
    import transformers
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + ["w%d" % i for i in range(2000)]
    torch.manual_seed(0)
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(words))
    config = transformers.BertConfig(vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
                                     intermediate_size=1536, max_position_embeddings=512)
    transformers.BertModel(config).save_pretrained(folder)
    transformers.BertTokenizer(os.path.join(folder, "vocab.txt")).save_pretrained(folder)
    texts = [" ".join("w%d" % ((i * 31 + j * 7) % 2000) for j in range(8 + (i * 37) % 121)) for i in range(64)]

    def load(kind):
        return sentence_transformers.SentenceTransformer(folder, device="cpu", model_kwargs={"attn_implementation": kind})
    before, after = load("sdpa"), load("attn")
    return lambda: before.encode(texts, batch_size=32), lambda: after.encode(texts, batch_size=32)


def decoder(config, n, layers=None):
    """One forward pass over n tokens, logits of the last one only."""
    import torch
    import transformers
    torch.manual_seed(0)
    if layers:
        config.num_hidden_layers = layers
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    ids = torch.randint(config.vocab_size, (1, n))

    def run(kind):
        def forward():
            model.set_attn_implementation(kind)
            with torch.no_grad():
                model(input_ids=ids, use_cache=False, logits_to_keep=1)
        return forward
    return run("sdpa"), run("attn")


def nanogpt_step():
    """One training step of nanoGPT's small configuration: 6 layers of 6 heads, width 384, 4 x 256 tokens."""
    import torch
    import transformers
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=65, n_positions=256, n_embd=384, n_layer=6, n_head=6, resid_pdrop=0.0,
                                     embd_pdrop=0.0, attn_pdrop=0.0)
    model = transformers.GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    ids = torch.randint(65, (4, 256))

    def run(kind):
        def step():
            model.set_attn_implementation(kind)
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return step
    return run("sdpa"), run("attn")


def vit():
    """A picture of 384 x 384, ViT-base with patches of 16: 577 tokens."""
    import torch
    import transformers
    torch.manual_seed(0)
    model = transformers.ViTModel(transformers.ViTConfig(image_size=384)).eval()
    pixels = torch.randn(1, 3, 384, 384)

    def run(kind):
        def forward():
            model.set_attn_implementation(kind)
            with torch.no_grad():
                model(pixel_values=pixels)
        return forward
    return run("sdpa"), run("attn")


def model_runs(name):
    import transformers
    if name.startswith("gpt2"):
        n = int(name.split("-")[1])
        return decoder(transformers.GPT2Config(n_positions=max(n, 1024)), n)
    if name == "smollm2-8192":
        return decoder(transformers.LlamaConfig(
            vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
            num_key_value_heads=3, max_position_embeddings=8192, tie_word_embeddings=True), 8192)
    return {"minilm": minilm, "nanogpt-step": nanogpt_step, "vit-577": vit}[name]()


def peak_bytes(reset=False):
    """Largest resident size since the last reset."""
    if reset:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
        return 0
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def alternate(before, after, seconds):
    """Median seconds of both, run in turns after one warm-up each, and their peaks of memory."""
    times, peaks, once, started = ([], []), [], [], time.perf_counter()
    for run in (before, after):
        peak_bytes(reset=True)
        begun = time.perf_counter()
        run()
        once.append(time.perf_counter() - begun)
        peaks.append(peak_bytes())
    if max(once) > LONG_RUN:
        return once, peaks, 1
    once = []
    for run in (before, after):
        begun = time.perf_counter()
        run()
        once.append(time.perf_counter() - begun)
    inner = max(1, int(0.01 / max(min(once), 1e-7)))  # a clock reads no shorter than a microsecond
    while True:
        for run, found in zip((before, after), times):
            begun = time.perf_counter()
            for _ in range(inner):
                run()
            found.append((time.perf_counter() - begun) / inner)
        if len(times[0]) >= 30 or time.perf_counter() - started > seconds:
            return [statistics.median(t) for t in times], peaks, len(times[0]) * inner


def measure(name, dtype, threads, seconds):
    """One row, in this process."""
    import torch

    import attn
    torch.set_num_threads(threads)
    attn.set_default(threads=threads)
    if name in SHAPES:
        run = operator_run(name, dtype)

        def after():
            run()
        original = torch.nn.functional.scaled_dot_product_attention
        attn.install()
        ours = torch.nn.functional.scaled_dot_product_attention

        def with_function(function):
            def call():
                torch.nn.functional.scaled_dot_product_attention = function
                run()
            return call
        before, after = with_function(original), with_function(ours)
    else:
        import attn.transformers  # noqa: F401
        before, after = model_runs(name)
    (old, new), peaks, runs = alternate(before, after, seconds)
    return {"name": name, "dtype": dtype, "threads": threads, "before_s": old, "after_s": new, "ratio": old / new, "runs": runs,
            "before_peak_bytes": peaks[0], "after_peak_bytes": peaks[1]}


def spelled(seconds):
    return "%.1f us" % (seconds * 1e6) if seconds < 1e-3 else "%.2f ms" % (seconds * 1e3) if seconds < 1 else "%.2f s" % seconds


def cells(row):
    """A row as it is shown."""
    return (row["name"], row["dtype"], str(row["threads"]), spelled(row["before_s"]), spelled(row["after_s"]),
            "%.2fx" % row["ratio"], "%d MB" % (row["before_peak_bytes"] / 1e6), "%d MB" % (row["after_peak_bytes"] / 1e6))


HEADINGS = ("row", "type", "threads", "PyTorch", "attn", "ratio", "memory", "with attn")


def plain(row_cells):
    return "%-13s %-9s %7s %11s %11s %8s %9s %9s" % row_cells


def markdown(row_cells):
    return "| %s |" % " | ".join(row_cells)


def summary(rows):
    """What the operator's rows say together; None where there are none."""
    ratios = {r["name"] + " " + r["dtype"] + " at %d" % r["threads"]: r["ratio"] for r in rows if r["name"] in SHAPES}
    if not ratios:
        return None
    least = min(ratios, key=ratios.get)
    return "%d rows of the operator: %.2fx by geometric mean; the slowest is %s with %.2fx" % (
        len(ratios), statistics.geometric_mean(ratios.values()), least, ratios[least])


def machine():
    """What the table was measured on."""
    import torch

    import attn
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next((line.split(":")[1].strip() for line in file if "model name" in line), "unknown CPU")
    return "%s (%d logical CPUs); Python %s, PyTorch %s, libattn %s (%s)" % (
        cpu, os.cpu_count(), platform.python_version(), torch.__version__, attn.__version__, attn.default_context().isa)


def one_row(name, dtype, threads, seconds):
    """A row measured in a process of its own, or a line that says why there is none."""
    command = [sys.executable, os.path.abspath(__file__), "--row", name, dtype, str(threads), "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stderr if done.returncode else done.stdout).strip().split("\n")
    return (None, lines[-1]) if done.returncode else (json.loads(lines[-1]), None)


def kept_rows(path):
    """{(name, dtype, threads): row} of the file that --keep names."""
    if path is None or not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return {(r["name"], r["dtype"], r["threads"]): r for r in map(json.loads, file)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--keep", metavar="FILE")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true")
    shown.add_argument("--markdown", action="store_true")
    parser.add_argument("--row", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(measure(options.row[0], options.row[1], int(options.row[2]), options.seconds)))
        return
    chosen = [n for n in options.only.split(",") if n] or [*SHAPES, *MODELS]
    unknown = [n for n in chosen if n not in SHAPES and n not in MODELS]
    if unknown:
        parser.error("unknown: %s; there are %s" % (", ".join(unknown), ", ".join([*SHAPES, *MODELS])))
    line = markdown if options.markdown else plain
    if not options.json:
        print(machine() + "\n")
        print(line(HEADINGS) + ("\n" + markdown(["---"] * 2 + ["---:"] * 6) if options.markdown else ""))
    kept, found = kept_rows(options.keep), []
    wanted = [(n, d, int(t)) for n in chosen for d in (SHAPES[n][-1] if n in SHAPES else (F32,)) for t in options.threads.split(",")]
    for key in wanted:
        if key not in kept and options.seconds == 0:
            continue
        row, failure = (kept[key], None) if key in kept else one_row(*key, options.seconds)
        if failure:
            print("%s %s, %d threads, failed: %s" % (*key, failure), file=sys.stderr)
            continue
        found.append(row)
        if options.keep and key not in kept:
            with open(options.keep, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        print(json.dumps(row) if options.json else line(cells(row)), flush=True)
    if summary(found) and not options.json:
        print("\n" + summary(found))


if __name__ == "__main__":
    main()
