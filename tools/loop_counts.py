#!/usr/bin/env python3
"""Counts what the innermost loops of compiled kernels do: instructions, multiply-adds, loads, stores, accesses to the stack,
shuffles and conversions; with llvm-mca, the cycles of a round as models of processors see it.

    tools/loop_counts.py build/CMakeFiles/attn_ops.dir/src/kernels/sdpa/fwd_avx512.c.o
    tools/loop_counts.py --least 8 --cpu sapphirerapids,znver4 --mca llvm-mca-19 OBJECT...

A row is one loop: function, offset, rounds are told apart by their backward jump. `limit` is the most of multiply-adds / 2,
loads / 2 and stores / 1: the cycles that two multiply-add and two load ports ask for. Cycles assume that every load hits the
first cache and that the loop goes on for ever."""
import argparse
import collections
import re
import shutil
import subprocess

Instruction = collections.namedtuple("Instruction", "address text name operands")

MULTIPLY = re.compile(r"^(vf(n?m)(add|sub)\d*p[sd]|vdpbf16ps|vpdpbusds?|vpmaddwd|fml[as]|bfdot|sdot)")
MOVE_BETWEEN = re.compile(r"^v?p?(shuf|unpck|perm|broadcast|movzx|movsx|cvt|blend|insert|extract|slld|srld|pslld|align)|^vp?(shuf|"
                          r"unpck|perm|movzx|movsx|slld|srld|shufb|unpckl|unpckh|blend|align)|^vcvt|^vextract|^vinsert")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
LINE = re.compile(r"^\s*([0-9a-f]+):\t([^<]+?)\s*(?:# .*|//.*|<.*)?$")


def functions(path):
    """(name, [Instruction]) of an object, by objdump."""
    with open(path, "rb") as file:
        objdump = "aarch64-linux-gnu-objdump" if file.read(20)[18:20] == b"\xb7\x00" else "objdump"  # ELF's e_machine
    text = subprocess.run([objdump, "-d", "--no-show-raw-insn", path], check=True, capture_output=True, text=True).stdout
    name, body = None, []
    for line in text.splitlines():
        start = FUNCTION.match(line)
        if start:
            if body:
                yield name, body
            name, body = start.group(1), []
            continue
        found = LINE.match(line)
        if found:
            words = found.group(2).split(None, 1)
            body.append(Instruction(int(found.group(1), 16), found.group(2), words[0], words[1] if len(words) > 1 else ""))
    if body:
        yield name, body


def innermost(body):
    """The loops of a function that hold no other: instruction lists that end in a jump to their beginning."""
    at = {one.address: n for n, one in enumerate(body)}
    ends = []
    for n, one in enumerate(body):
        target = re.search(r"(?:^|, )([0-9a-f]+)$", one.operands)
        if re.match(r"j|b(\.|$)|cbn?z|tbn?z", one.name) and target:
            begin = at.get(int(target.group(1), 16))
            if begin is not None and begin <= n:
                ends.append((begin, n))
    for begin, end in ends:
        if not any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in ends):
            yield body[begin:end + 1]


def memory_kind(one):
    """'', 'load', 'store' or 'both'; address arithmetic and prefetches are none."""
    if "[" in one.operands:  # aarch64
        return "load" if one.name.startswith("ld") else "store" if one.name.startswith("st") else ""
    if "(" not in one.operands or one.name.startswith(("lea", "nop", "prefetch", "cs", "data16")):
        return ""
    last = one.operands.rstrip().endswith(")") or bool(re.search(r"\)\{%k\d\}$", one.operands))
    if not last or one.name.startswith(("cmp", "test")):
        return "load"
    return "store" if one.name.startswith(("mov", "vmov", "vextract", "vpmov", "vcvtps2ph")) else "both"


def counts(loop):
    kinds = [memory_kind(one) for one in loop]
    multiply = sum(1 for one in loop if MULTIPLY.match(one.name))
    loads = sum(1 for kind in kinds if kind in ("load", "both"))
    stores = sum(1 for kind in kinds if kind in ("store", "both"))
    stack = sum(1 for one, kind in zip(loop, kinds) if kind and re.search(r"\(%r[sb]p[,)]|\[(sp|x29)", one.operands))
    moves = sum(1 for one in loop if MOVE_BETWEEN.match(one.name) and not (one.name.startswith("vpbroadcast") and "(" in one.operands)
                and not (one.name.startswith("vbroadcast") and "(" in one.operands))
    return {"insns": len(loop), "multiply": multiply, "loads": loads, "stores": stores, "stack": stack, "moves": moves,
            "limit": max(multiply / 2, loads / 2, stores)}


def cycles(loop, mca, cpu):
    """Cycles of a round by llvm-mca."""
    lines = ["again:"]
    for one in loop:
        lines.append(f"{one.name} again" if one.name.startswith("j") else one.text)
    run = subprocess.run([mca, "-mtriple=x86_64", f"-mcpu={cpu}", "-iterations=200"], input="\n".join(lines), capture_output=True,
                         text=True)
    total = re.search(r"Total Cycles:\s+(\d+)", run.stdout)
    return f"{int(total.group(1)) / 200:.1f}" if total else "-"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("objects", nargs="+")
    parser.add_argument("--least", type=int, default=4, help="multiply-adds that a loop has, or it is left out (default 4)")
    parser.add_argument("--only", default="", help="functions whose name matches")
    parser.add_argument("--cpu", default="znver4,sapphirerapids", help="models of llvm-mca")
    parser.add_argument("--mca", default="llvm-mca-19")
    parser.add_argument("--show", action="store_true", help="the instructions, too")
    args = parser.parse_args()
    cpus = args.cpu.split(",") if shutil.which(args.mca) else []  # of x86
    head = ["insns", "multiply", "loads", "stores", "stack", "moves", "limit"]
    print(f"{'function':<34}{'at':>7} " + "".join(f"{word:>9}" for word in head) + "".join(f"{cpu:>15}" for cpu in cpus))
    for path in args.objects:
        for name, body in functions(path):
            for loop in innermost(body) if re.search(args.only, name) else []:
                row = counts(loop)
                if row["multiply"] < args.least:
                    continue
                print(f"{name[:33]:<34}{loop[0].address - body[0].address:>7x} " + "".join(f"{row[word]:>9}" for word in head) +
                      "".join(f"{cycles(loop, args.mca, cpu):>15}" for cpu in cpus))
                if args.show:
                    print("\n".join("    " + one.text for one in loop))


if __name__ == "__main__":
    main()
