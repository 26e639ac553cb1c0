"""train_bench.py: `./dev bench train`. Tokens a second of a whole training step (forward, backward, clipping, AdamW) on nanoGPT's
shapes, and of a width over lengths up to 8,192, beside the bars and, where PEERS_VENV has it, the same step in PyTorch (bench/peer_models.py)."""
import json
import os
import subprocess

import bars

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(os.path.dirname(HERE), "build", "bench", "bench_train")
BARS = {("baby", "f32"): (2700, 5000), ("baby", "bf16"): (4500, 8500), ("nano", "f32"): (30000, None),
        ("124m", "f32"): (230, None), ("124m", "bf16"): (330, 600)}
LENGTHS = ((256, 32), (1024, 8), (2048, 4), (4096, 2), (8192, 1))  # the baby's width over the same 8,192 tokens a step
MEMORY_MB = 1568 * 1.048576 / 2  # baby: half of what PyTorch needs


def judge(row):
    if row["who"] != "attn":
        return "", None
    bar = BARS.get((row["row"], row["dtype"]), (None, None))[0 if row["threads"] == 1 else 1]
    return ("%d" % bar, row["per_s"] >= bar) if bar else ("", None)


def peer(python, *arguments):
    done = subprocess.run([python, os.path.join(HERE, "peer_models.py"), "train"] + [str(a) for a in arguments], capture_output=True,
                          text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if done.returncode == 0 and lines else None


def run(options, out, lines_of, host, arguments):
    first = host(arguments)
    out.add(dict(first, kind="host-train"), "%s; attn %s, %s; f32 %.1f GFLOP/s a core" % (first["cpu"], first["version"], first["isa"], first["peak_f32"]))
    python = None if options.no_peers or not os.environ.get("PEERS_VENV") else os.path.join(os.environ["PEERS_VENV"], "bin", "python")
    for config in ("nano", "baby", "124m"):
        for dtype in options.dtypes.split(",") if options.dtypes else ("f32", "bf16"):
            for threads in (int(n) for n in (options.threads or "1,2").split(",")):
                if options.only and config not in options.only.split(","):
                    continue
                seconds = min(options.seconds * 4, 6)
                found = [dict(lines_of([PROGRAM, config, "--dtype", dtype, "--threads", str(threads), "--seconds", str(seconds)] +
                                      (["--cpu-time"] if options.cpu_time and threads == 1 else []))[0], who="attn")]
                if options.cpu_time and threads == 1:
                    found[0]["clock"] = "processor"
                other = peer(python, config, dtype, threads, seconds) if python else None
                for r in found + ([other] if other else []):
                    row = dict(r, kind="train", row=config, dtype=dtype, threads=threads)
                    bar, met = judge(row)
                    ratio = "   %.2fx" % (found[0]["per_s"] / other["per_s"]) if other and r is other else ""
                    out.add(row, "%-5s %-5s %d  %-8s %10.1f tokens/s %8.1f MB   %-7s %s%s" % (
                        config, dtype, threads, row["who"], row["per_s"], row["memory_mb"], bar, "" if met is None else "met" if met else "NOT met", ratio))


    if options.only and "long" not in options.only.split(","):
        return
    for length, batch in LENGTHS:
        for threads in (int(n) for n in (options.threads or "1,2").split(",")):
            found = lines_of([PROGRAM, "baby", "--length", str(length), "--batch", str(batch), "--threads", str(threads), "--seconds", "1"])[0]
            out.add(dict(found, kind="train-long", row=str(length), who="attn"), "long %5d x %-2d %d  %10.1f tokens/s %7.2f GFLOP/s %8.1f MB" % (
                length, batch, threads, found["per_s"], found["gflops"], found["memory_mb"]))


def long_table(found):
    import report
    return report.table(["tokens x sequences", "threads", "tokens/s", "GFLOP/s of useful work", "MB"], [
        ["%s x %d" % (r["row"], 8192 // int(r["row"])), str(r["threads"]), "{:,.0f}".format(r["per_s"]), "%.1f" % r["gflops"], "%.0f" % r["memory_mb"]]
        for r in found.get("train-long", [])])


def table(found):
    import report
    rows = found.get("train", [])
    lines = []
    for r in rows:
        if r["who"] != "attn":
            continue
        bar, met = judge(r)
        here = bars.carried(float(bar), "peak_" + r["dtype"], report.hosts(found)) if bar else None
        other = [o for o in rows if o["who"] != "attn" and all(o[k] == r[k] for k in ("row", "dtype", "threads"))]
        lines.append([r["row"], r["dtype"], str(r["threads"]), "{:,.0f}".format(r["per_s"]) + (" *" if r.get("clock") == "processor" else ""), "%.0f" % r["memory_mb"],
                      "{:,.0f}".format(other[-1]["per_s"]) if other else "", "%.0f" % other[-1]["memory_mb"] if other else "",
                      "%.2f" % (r["per_s"] / other[-1]["per_s"]) if other else "", bar, report.said(met)] +
                     report.carried_cells(here, r["per_s"]))
    return report.table(["model", "type", "threads", "tokens/s", "MB", "PyTorch tokens/s", "MB", "ratio", "bar", "met", "carried over", "met"], lines) + ("\n\n\\* processor time" if any(r.get("clock") == "processor" for r in rows) else "")
