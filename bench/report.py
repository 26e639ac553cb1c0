"""report.py: docs/performance.md from bench/performance.in.md (the words) and bench/results/*.jsonl (the numbers).

A line `@name@` of the template is replaced by the table of that name; of several runs of a row chosen() takes one.
"""
import glob
import json
import os

import bars
import peers

HERE = os.path.dirname(os.path.abspath(__file__))


def chosen(runs):
    """One of several runs of a row. Other work on a machine only slows: the run nearest the limit, measured between its own
    rounds, counts; of rates of whole models, ours and others', the best. Ratios of two times of ours can err both ways: the middle
    one. Of all others: the last."""
    if all("ratio" in r for r in runs):
        return sorted(runs, key=lambda r: r["ratio"])[len(runs) // 2]
    if all("share" in r and r["share"] <= bars.DISTURBED for r in runs):
        return max(runs, key=lambda r: r["share"])
    if all(r["kind"] == "model" and r["unit"].split(" ")[0].endswith("/s") for r in runs):
        return max(runs, key=lambda r: r["value"])
    return runs[-1]


def results():
    """All results kept, by kind; one for every row, in the order of first appearance."""
    kinds = {}
    for path in sorted(glob.glob(os.path.join(HERE, "results", "*.jsonl"))):
        with open(path, encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                name = tuple(str(row.get(k)) for k in ("shape", "pass", "dtype", "threads", "peer", "row", "who", "level"))
                kinds.setdefault(row["kind"], {}).setdefault(name, []).append(row)
    return {kind: [chosen(runs) for runs in rows.values()] for kind, rows in kinds.items()}


def table(head, rows):
    if not rows:
        return "No results are kept: the machine was not quiet enough while this page was made."
    return "\n".join(["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)] + ["| " + " | ".join(r) + " |" for r in rows])


def milliseconds(seconds):
    return "%.4f" % (seconds * 1e3) if seconds < 1e-3 else "%.3g" % (seconds * 1e3) if seconds < 1 else "{:,.0f}".format(seconds * 1e3)


def said(met):
    return {None: "", True: "yes", False: "**no**"}[met]


def hosts(found):
    """The machine's limits as every kept run measured them."""
    return [h for kind, rows in found.items() if kind.startswith("host") for h in rows]


def carried_cells(bar, value):
    """A bar of the reference machine as the same share of this one's limit (bars.carried), and whether it is met."""
    return ["%.3g" % bar if bar < 1000 else "{:,.0f}".format(bar), said(value >= bar)] if bar else ["", ""]


def machine(found):
    lines = []
    for h in found.get("host", [])[-1:]:
        lines.append("%s; %d threads; %s, compiler %s; %s. One core: f32 multiply-adds %.1f GFLOP/s, AVX2 %.1f, bf16 dot product %s, "
                     "bytes %s Gop/s. Reads of 256 MB: %.1f GB/s with one thread, %.1f with all." % (
                         h["cpu"], h["threads"], h["isa"], h["compiler"], h["date"], h["peak_f32"], h["peak_avx2"],
                         "%.1f" % h["peak_bf16"] if h["peak_bf16"] else "none",
                         "%.1f" % h["peak_u8s8"] if h.get("peak_u8s8") else "not measured", h["read_1"], h["read_all"]))
    return "\n".join(lines) or "No results are kept."


def median_text(r):
    return milliseconds(r["median_s"]) + (" *" if r.get("clock") == "processor" else "")


def ops(found):
    rows = [r for r in found.get("row", []) if "ratio" not in r]
    order = {name: n for n, name in enumerate(["S%d" % n for n in range(1, 14)] + ["S2 at avx2", "million-end", "million"])}
    lines = []
    for r in sorted(rows, key=lambda r: (order.get(r["shape"], 99), r["pass"] == "backward", "f32 bf16 f16 i8".index(r["dtype"]), r["threads"])):
        bar, met = bars.judge(r, rows)
        lines.append([r["shape"] + (" backward" if r["pass"] == "backward" else ""), r["dtype"], str(r["threads"]), median_text(r),
                      "%.1f %s" % (r["rate"], r["unit"]), "%.0f %% of %.1f" % (100 * r["share"], r["limit"]), "%.1e" % r["error"], bar, said(met)])
    note = "\n\n\\* processor time" if any(r.get("clock") == "processor" for r in rows) else ""
    return table(["row", "type", "threads", "ms", "rate of the best run", "share of the limit", "error", "bar", "met"], lines) + note


def cliffs(found):
    cells, names = {}, []
    for r in found.get("row", []):
        if "ratio" in r:
            cells[r["shape"], r["dtype"], r["threads"]] = r["ratio"]
            if (r["shape"], r["reference"]) not in names:
                names.append((r["shape"], r["reference"]))
    columns = sorted({key[1:] for key in cells}, key=lambda c: ("f32 bf16".index(c[0]), c[1]))
    lines = []
    for shape, reference in names:
        ratios = [cells.get((shape,) + c) for c in columns]
        lines.append([shape, reference] + ["" if x is None else "%.2f" % x if x <= bars.CLIFF else "**%.2f**" % x for x in ratios])
    return table(["row", "held against"] + ["%s, %d thr." % c for c in columns], lines)


def verdict(met, shape, dtype):
    return said(met) + ("" if met or not {(shape, dtype), (shape + " backward", dtype)} & set(bars.SHARE) else "; its share decides")


def rivals(found):
    rows, keys = found.get("peer", []), []
    for r in rows:
        if (r["shape"], r["dtype"], r["threads"]) not in keys:
            keys.append((r["shape"], r["dtype"], r["threads"]))
    names = sorted({r["peer"] for r in rows} - {"ours"})
    lines = []
    for shape, dtype, threads in sorted(keys, key=lambda k: (int(k[0][1:]), "f32 bf16 f16".index(k[1]), k[2])):
        here = [r for r in rows if (r["shape"], r["dtype"], r["threads"]) == (shape, dtype, threads)]
        of = {r["peer"]: milliseconds(peers.total(r)) + ("" if r["ok"] else " (wrong)") for r in here}
        best, bar = peers.best_of(here), bars.TIMES.get((shape, dtype))
        judged = ["%.2f" % bar, verdict(best[1] >= bar, shape, dtype)] if best and bar else ["", ""]
        lines.append([shape, dtype, str(threads), of.get("ours", "")] + [of.get(n, "") for n in names] +
                     ["%.2f (%s)" % (best[1], best[0]) if best else ""] + judged)
    return table(["row", "type", "threads", "ours, ms"] + names + ["best peer / ours", "bar", "met"], lines)


def tiles(found):
    lines = []
    for r in found.get("tile", []):
        measured = "%.0f %% of the multiply-adds" % (100 * r["share"]) if "share" in r else "%.1f cycles a vector" % r["cycles"]
        lines.append([r["level"], r["row"], "%.2f" % (r["seconds"] * 1e6), measured])
    return table(["level", "tile", "us", "measured"], lines)


TABLES = {"machine": machine, "ops": ops, "cliffs": cliffs, "peers": rivals, "tiles": tiles}
try:
    import models_bench
    import train_bench
    TABLES.update(models=models_bench.table, train=train_bench.table, long=train_bench.long_table)
except ImportError:
    pass


def write(path):
    found = results()
    with open(os.path.join(HERE, "performance.in.md"), encoding="utf-8") as file:
        lines = file.read().split("\n")
    out = [TABLES[line[1:-1]](found) if len(line) > 2 and line[0] == line[-1] == "@" and line[1:-1] in TABLES else line for line in lines]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out))
    print("written: %s" % os.path.relpath(path))
