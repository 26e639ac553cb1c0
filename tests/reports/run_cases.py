"""run_cases.py FOLDER...: runs the case files of each folder (format: tests/data/cases/README.md) on the library, at every
instruction-set level of this machine and every dtype of a case. Lists what failed and, by feature, what was skipped; ends
with 'N passed, N failed, N skipped'. --only TEXT: cases whose name holds TEXT. --isa LEVEL: one level only."""
import argparse
import collections
import faulthandler
import glob
import json
import os
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "python")]

import attn  # noqa: E402
import generate_cases  # noqa: E402
import layer_cases  # noqa: E402
import lesson_cases  # noqa: E402
import op_cases  # noqa: E402
import safetensors_cases  # noqa: E402
import tokenizer_cases  # noqa: E402
from attn import library  # noqa: E402

OPERATOR = ("fwd", "bwd", "decode", "merge")


def is_operator(case):
    return case.get("op") in OPERATOR and "tokenizer" not in case


class Report:
    def __init__(self):
        self.passed, self.failed, self.skipped = 0, 0, collections.Counter()

    def run(self, label, function, *arguments):
        try:
            function(*arguments)
            self.passed += 1
        except op_cases.Skipped as reason:
            self.skipped[str(reason)] += 1
        except op_cases.Failed as reason:
            self.failed += 1
            print("FAIL %s: %s" % (label, reason))
        except Exception:
            self.failed += 1
            print("FAIL %s: %s" % (label, traceback.format_exc(limit=-2).strip().replace("\n", " | ")))

    def close(self):
        for reason, n in sorted(self.skipped.items()):
            print("skipped %d: %s" % (n, reason))
        total = sum(self.skipped.values())
        print("%d passed, %d failed, %d skipped" % (self.passed, self.failed, total))
        return 1 if self.failed or not self.passed else 0


def isa_levels(only):
    """The levels of this machine, each with contexts of 1 to 4 threads."""
    for level in library.ISA_LEVELS:
        if level == "best" or (only and level != only):
            continue
        try:
            yield level, {n: attn.Context(threads=n, isa=level) for n in (1, 2, 3, 4)}
        except attn.Unsupported:
            continue


def load(folder, only):
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        with open(path, encoding="utf-8") as file:
            case = json.load(file)
        if isinstance(case, dict) and "id" in case and "kind" in case and only in case["id"]:
            yield path, case


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--only", default="")
    parser.add_argument("--isa", default="")
    options = parser.parse_args()
    faulthandler.enable()
    os.environ.pop("ATTN_ISA", None)
    cases = [c for folder in options.folders for c in load(folder, options.only)]
    if not cases:
        sys.exit("run_cases.py: no cases in %s" % " ".join(options.folders))
    report = Report()
    for level, contexts in isa_levels(options.isa):
        for path, case in cases:
            if is_operator(case):
                for dtype in case.get("dtypes", ["f32"]):
                    report.run("%s %s %s" % (case["id"], level, dtype), op_cases.run, case, dtype, contexts)
    for path, case in cases:
        op = case.get("op")
        if "tokenizer" in case and op in tokenizer_cases.OPS:
            report.run(case["id"], tokenizer_cases.run, case, path)
        elif op in generate_cases.OPS:
            report.run(case["id"], generate_cases.run, case)
        elif op in layer_cases.OPS or op in lesson_cases.OPS:
            for dtype in case["tol"]:
                report.run("%s %s" % (case["id"], dtype), layer_cases.run, case, dtype, path)
        elif "file" in case and "op" not in case:
            report.run(case["id"], safetensors_cases.run, case, path)
        elif not is_operator(case):
            report.skipped["op %s" % op] += 1
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
