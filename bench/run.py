#!/usr/bin/env python3
"""The benchmarks: ours beside the machine's limits, the bars of the project and, where they are installed, other libraries.

    ./dev bench [ops] [--only S1,cliffs,million-end] [--dtypes f32,bf16,f16,i8] [--threads 1,2] [--seconds 0.8]
    ./dev bench models | train       [--only ROW,...] [--threads 1,2]
    ./dev bench report [FILE.md]     docs/performance.md again, from the results kept in bench/results
    ./dev bench NAME [ARGS]          one program, bench/bench_NAME.c

--json prints the results as lines of JSON instead of a table. --out FILE appends them to a file. --no-peers leaves others out;
--peers a,b measures these only. --cpu-time: our one-thread rows by processor time, for a machine with other work.
PEERS_VENV names a virtual environment with other libraries (bench/peers.py, peer_models.py), LLAMA_BENCH llama.cpp's llama-bench.
"""
import argparse
import datetime
import json
import os
import platform
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, HERE)
import bars  # noqa: E402
import peers  # noqa: E402

OPS = os.path.join(ROOT, "build", "bench", "bench_ops")
PEER_SHAPES = {"S%d" % n for n in range(1, 14)}


def lines_of(command, environment=None):
    """The lines of JSON that a program prints; the program's own words where it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit("%s failed" % " ".join(command))
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            facts = [line.split(":") for line in file.read().split("\n\n")[0].splitlines() if ":" in line]
    except OSError:
        return platform.processor() or platform.machine()
    known = {name.strip(): value.strip() for name, value in facts}
    return "%s, family %s, model %s" % (known.get("model name", platform.machine()), known.get("cpu family", "?"), known.get("model", "?"))


def host(arguments):
    found = lines_of([OPS, "--json", "--shapes", "none"])[0]
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return dict(found, cpu=cpu_name(), date=datetime.date.today().isoformat(), command="./dev bench " + " ".join(arguments), load=load)


class Output:
    """Where results go: the screen as text or JSON, and a file."""

    def __init__(self, options):
        self.json, self.path, self.rows = options.json, options.out, []

    def add(self, row, text=None):
        self.rows.append(row)
        if self.path:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        if self.json:
            print(json.dumps(row), flush=True)
        elif text:
            print(text, flush=True)


def spelled(seconds):
    return "%.2f us" % (seconds * 1e6) if seconds < 1e-4 else "%.3f ms" % (seconds * 1e3) if seconds < 1 else "%.2f s" % seconds


def verdict(met):
    return "" if met is None else "met" if met else "NOT met"


def ops_text(row, rows):
    bar, met = bars.judge(row, rows)
    beside = "%.2fx of %s" % (row["ratio"], row["reference"]) if "ratio" in row else \
        "%5.1f %% of %.1f" % (100 * row["share"], row["limit"])
    name = row["shape"] + (" backward" if row["pass"] == "backward" else "")
    return "%-13s %-4s %2d %11s %8.1f %-7s %-19s %8.1e  %-14s %s" % (
        name, row["dtype"], row["threads"], spelled(row["median_s"]), row["rate"], row["unit"], beside, row["error"], bar, verdict(met))


def peers_text(shape, dtype, found):
    best = peers.best_of(found)
    if not best:
        return None
    bar = bars.TIMES.get((shape, dtype))
    return "%-21s best peer %-13s takes %.2fx our time%s   (%s)" % (
        "", best[0], best[1], ", bar %.2fx: %s" % (bar, verdict(best[1] >= bar)) if bar else "",
        ", ".join("%s %s%s" % (r["peer"], spelled(peers.total(r)), "" if r["ok"] else " WRONG") for r in found))


def ops(options, arguments):
    out = Output(options)
    first = host(arguments)
    out.add(first, "%s; attn %s, %s, %d threads, %s\none core: f32 %.1f GFLOP/s, bf16 dot product %s, AVX2 %.1f; reads %.1f GB/s "
            "with 1 thread, %.1f with all\nrow           type thr    median     rate        share of the limit     error   bar" % (
                first["cpu"], first["version"], first["isa"], first["threads"], first["compiler"], first["peak_f32"],
                "%.1f" % first["peak_bf16"] if first["peak_bf16"] else "none", first["peak_avx2"], first["read_1"], first["read_all"]))
    others = peers.Peers(options.peers) if not options.no_peers else None
    listed = [line.split("\t") for line in subprocess.run([OPS, "--list"], stdout=subprocess.PIPE, text=True, check=True)
              .stdout.splitlines()]
    wanted = options.only.split(",") if options.only else ["usual", "cliffs", "S2 at avx2"]
    threads = options.threads or ",".join(str(n) for n in sorted({1, first["threads"]}))
    jobs = [(shape, dtype, None) for shape, dtype, group in listed if shape in wanted or group in wanted]
    if "S2 at avx2" in wanted and first["peak_avx2"] > 0:
        jobs.append(("S2", "f32", "avx2"))
    for shape, dtype, isa in jobs:
        if options.dtypes and dtype not in options.dtypes.split(","):
            continue
        command = [OPS, "--json", "--rows-only", "--shapes", shape, "--dtypes", dtype, "--threads", threads, "--seconds",
                   str(options.seconds)] + (["--isa", isa] if isa else []) + (["--cpu-time"] if options.cpu_time else [])
        for row in lines_of(command):
            row["shape"] += " at avx2" if isa else ""
            out.add(row, ops_text(row, out.rows))
        for count in threads.split(",") if others and shape in PEER_SHAPES and not isa else ():
            found = others.run(shape, dtype, int(count))
            for n, row in enumerate(found):
                out.add(row, peers_text(shape, dtype, found) if n == len(found) - 1 else None)
    if not options.json:
        judged = [bars.judge(r, out.rows)[1] for r in out.rows if r["kind"] == "row"]
        print("%d of %d bars met" % (judged.count(True), judged.count(True) + judged.count(False)))


def main():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="ops", choices=("ops", "models", "train", "report"))
    parser.add_argument("file", nargs="?", default=os.path.join(ROOT, "docs", "performance.md"), help=argparse.SUPPRESS)
    parser.add_argument("--only", default="")
    parser.add_argument("--dtypes", default="")
    parser.add_argument("--threads", default="")
    parser.add_argument("--seconds", type=float, default=0.8)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", default="")
    parser.add_argument("--peers", default="")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--cpu-time", action="store_true")
    options = parser.parse_args()
    if options.what == "report":
        import report
        report.write(options.file)
    elif options.what == "ops":
        ops(options, sys.argv[1:])
    else:
        __import__(options.what + "_bench").run(options, Output(options), lines_of, host, sys.argv[1:])


if __name__ == "__main__":
    main()
