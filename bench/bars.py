"""bars.py: what each row of the operator's bench is held against.

Shares are of the measured limit of the same run: multiply-adds (bf16: the bf16 dot product where the CPU has one) or reads.
"times" is the ratio to the best peer's time. Where both are given the share decides. (1 thread, all threads)"""

SHARE = {
    ("S1", "f32"): (0.80, 0.80), ("S1", "bf16"): (0.60, 0.60),
    ("S2", "f32"): (0.88, 0.85), ("S2", "bf16"): (0.70, 0.70),
    ("S3", "f32"): (0.88, 0.85), ("S3", "bf16"): (0.70, 0.70),
    ("S5", "f32"): (0.84, 0.84), ("S5", "bf16"): (0.65, 0.65), ("S6", "f32"): (0.84, 0.84),
    ("S7", "f32"): (0.85, 0.85), ("S7", "bf16"): (0.85, 0.85), ("S7", "f16"): (0.85, 0.85), ("S7", "i8"): (0.85, 0.85),
    ("S8", "f32"): (0.85, 0.85), ("S8", "bf16"): (0.85, 0.85), ("S8", "f16"): (0.85, 0.85), ("S8", "i8"): (0.85, 0.85),
    ("S9", "f32"): (0.80, 0.77), ("S12", "f32"): (0.80, 0.80),
    ("S11 backward", "f32"): (0.75, 0.75), ("S11 backward", "bf16"): (0.75, 0.75),
    ("S2 at avx2", "f32"): (0.75, 0.75),
}
TIMES = {
    ("S1", "f32"): 2.0, ("S1", "bf16"): 1.8, ("S2", "f32"): 1.5, ("S2", "bf16"): 2.1, ("S3", "f32"): 2.2, ("S3", "bf16"): 3.0,
    ("S4", "f32"): 2.5, ("S5", "f32"): 1.25, ("S5", "bf16"): 1.15, ("S6", "f32"): 1.25, ("S7", "f32"): 1.6, ("S7", "bf16"): 3.5,
    ("S7", "f16"): 3.5, ("S8", "f32"): 1.6, ("S8", "bf16"): 3.5, ("S11", "f32"): 2.5, ("S12", "f32"): 1.2,
}
# What a core of the machine for which bars in sentences, tokens and microseconds were set can do at most (two Zen 5 cores):
# GFLOP/s of f32 and of the bf16 dot product, Gop/s of bytes, GB/s of reads with one thread. By these such a bar is carried over
# to the machine of a run: the same share of the limit that the work is bound by.
REFERENCE = {"peak_f32": 259, "peak_bf16": 500, "peak_u8s8": 1060, "read_1": 33}
CLIFF = 1.2           # times the next multiple of 16
TINY_SECONDS = 3e-6   # S13 with one thread
WINDOW_OF_S3 = 0.85   # S10's rate over S3's
LONG_MEMORY_MB = 64 * 1.048576
I8_OF_PEAK = 0.75     # 8-bit caches: the lower of 85 % of the reads and this share of the multiply-adds
F16_ERROR = 2**-11     # f32 sums and one rounding of the output: by norm, as peers are checked, 1.4e-4 (PyTorch 2.0e-4)
DISTURBED = 1.1       # a share above this says that other work slowed the limit's own loop: no verdict


def key(row):
    return (row["shape"] + (" backward" if row["pass"] == "backward" else ""), row["dtype"])


def judge(row, rows):
    """(the bar in words, whether it is met or None) for one row; rows: all rows of the run, for bars between rows."""
    one = 0 if row["threads"] == 1 else 1
    share = SHARE.get(key(row), (None, None))[one]
    if row.get("ratio") is not None:
        return "%.1fx of %s" % (CLIFF, row["reference"]), row["ratio"] <= CLIFF
    if row["shape"] == "S13":
        return ("3 us", row["median_s"] <= TINY_SECONDS) if one == 0 else ("", None)
    if row["shape"] == "S10":
        same = [r for r in rows if r["kind"] == "row" and r["shape"] == "S3" and r["dtype"] == "f32" and r["threads"] == row["threads"]]
        return ("85 % of S3", row["rate"] >= WINDOW_OF_S3 * same[-1]["rate"]) if same else ("85 % of S3", None)
    if row["shape"] == "S2" and row["dtype"] == "f16":
        same = [r for r in rows if r["kind"] == "row" and r["shape"] == "S2" and r["dtype"] == "f32" and r["threads"] == row["threads"]]
        return ("f32's rate", row["rate"] >= same[-1]["rate"] and row["error"] <= F16_ERROR) if same else ("f32's rate", None)
    if share is None:
        return "", None
    if row["share"] > DISTURBED:
        return "%.0f %% (limit disturbed)" % (100 * share), None
    if row["dtype"] == "bf16" and row["unit"] == "GFLOP/s" and row["isa"] not in ("avx512bf16", "neonbf16"):
        return "%.0f %% of bf16 dot" % (100 * share), None  # this CPU has no bf16 dot product to be held against
    if row["dtype"] == "i8":
        lower = row["share"] >= share or row["gflops"] >= I8_OF_PEAK * row["peak"]
        return "85 % or 75 % FMA", lower
    if row["shape"] == "S9":
        return "%.0f %%, 64 MiB" % (100 * share), row["share"] >= share and row["memory_mb"] <= LONG_MEMORY_MB
    return "%.0f %%" % (100 * share), row["share"] >= share


def carried(bar, limit, hosts):
    """A rate set for the reference machine as the same share of a limit (a key of REFERENCE) of this one, or None where that was
    not measured. hosts: the rows of the machine; the best counts, because other work only slows."""
    found = max((h.get(limit) or 0 for h in hosts), default=0)
    return bar * found / REFERENCE[limit] if found else None
