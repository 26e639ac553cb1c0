"""make_course.py ATTN [--write] [--report FOLDER]: docs/course is what its sources, the command ATTN and the program
example_model_course beside it say now. --write writes the pages, their figures and docs/README.md; without it they are compared.
FOLDER holds a run of `attn lab all --quick -o FOLDER`; without it there is a run. Exit 1 on a difference.

docs/course/source/NN-name.md are the pages without numbers. In them {{SPEC}} is a number or a result, as in
tools/claims_rows.py; {{code NAME}} the piece of examples/model_course.c between "[NAME" and "]"; {{output NAME}} what that
program prints for it; {{figure NAME KIND}} a figure: of `attn explain --figures`, `attn lab --quick` or `attn inspect --svg`.

Whole numbers have to be equal, and those with three digits or more behind the point to the last. Numbers with fewer may differ
by 0.15 or a tenth: networks that are trained end a little differently on another processor. Figures of trained
networks, and one of rounding errors, are compared without their numbers, all others to a pixel."""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

from check_claims import ROOT, Attn, look_up

COURSE = os.path.join(ROOT, "docs", "course")
SOURCES = os.path.join(COURSE, "source")
PROGRAM = os.path.join(ROOT, "examples", "model_course.c")
ROUGH = {"recall", "stall", "heads", "depth", "mask", "occurrences", "head", "at-once"}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]\d+)?")
HEAD_TEXT = "She was very happy that he had been so good to her"

INDEX = """# Documentation

The course goes through what attention is, a page for each step: the formula, the C call, its numbers and a figure, all
computed by this repository's own code (`tools/make_course.py` writes the pages and compares them in the tests). The other pages
say how things work here.

## The course

%s

## The library

- [The operator](operator.md): how exact attention is computed without the matrix; [its backward pass](operator-backward.md)
- [Layers](layers.md), [models](models.md), [files](files.md), [training](training.md), [Python](python.md)
- [The command line](cli.md), [looking into a model](inspect.md)
- [Performance](performance.md)

## The project

- [Claims](claims.md): what the two lessons state, row by row, and what shows it
- [Architecture](architecture.md), [decisions](decisions.md), [adding a model](adding-a-model.md)
"""


class Course:
    def __init__(self, attn, work):
        self.attn, self.work = attn, work
        program = os.path.join(os.path.dirname(attn.path), "examples", "example_model_course")
        text = subprocess.run([program], capture_output=True, check=True, text=True, cwd=ROOT).stdout
        self.outputs = dict(part.split("\n", 1) for part in text.split("== ")[1:])
        with open(PROGRAM, encoding="utf-8") as file:
            self.source = file.read()
        self.figures = {}

    def code(self, name):
        found = re.search(r"\n( *)/\* \[%s \*/\n(.*?)\n */\* \] \*/" % re.escape(name), self.source, re.S)
        if not found:
            raise KeyError("examples/model_course.c has no piece " + name)
        lines = found[2].split("\n")
        return "```c\n" + "\n".join(line[len(found[1]):] for line in lines) + "\n```"

    def output(self, name):
        return "```text\n" + self.outputs[name].rstrip("\n") + "\n```"

    def run(self, *arguments):
        """Without the real model: what a page shows does not depend on its being here."""
        subprocess.run([self.attn.path, *arguments], capture_output=True, check=True, cwd=ROOT,
                       env=dict(os.environ, XDG_CACHE_HOME=self.work))

    def draw(self, name, kind, drawn):
        if kind == "lab" and name in drawn and name != "occurrences":
            self.figures[name] = drawn[name]
            return
        path = os.path.join(self.work, name + ".svg")
        if not os.path.exists(path):
            if kind == "explain":
                self.run("explain", "--figures", self.work)
            elif kind == "lab":
                self.run("lab", name, "--quick", "-o", self.work)
            else:
                self.run("inspect", "--model", "models/austen", "--no-measures", "--layer", "2", "--head", "4", "--svg", path, HEAD_TEXT)
        with open(path, encoding="utf-8") as file:
            self.figures[name] = file.read()

    def expand(self, text, drawn):
        def one(match):
            words = match[1].split(" ")
            if words[0] == "code":
                return self.code(words[1])
            if words[0] == "output":
                return self.output(words[1])
            if words[0] == "figure":
                self.draw(words[1], words[2], drawn)
                title = re.match(r"<svg[^>]*>\s*<title>(.*?)</title>", self.figures[words[1]])
                return "![%s](%s.svg)" % (title[1] if title else "One head of the small model", words[1])
            return look_up(self.attn, match[1].replace("\n", " "))
        return re.sub(r"\{\{([^}]*)\}\}", one, text)


def make(attn, drawn=None):
    """{path below docs: text}. drawn: figures of a run of `attn lab all --quick`, by name."""
    names = sorted(name for name in os.listdir(SOURCES) if name.endswith(".md"))
    texts, titles, pages = {}, {}, {}
    for name in names:
        with open(os.path.join(SOURCES, name), encoding="utf-8") as file:
            texts[name] = file.read()
        titles[name] = texts[name].split("\n", 1)[0][2:]
    with tempfile.TemporaryDirectory() as work:
        course = Course(attn, work)
        for i, name in enumerate(names):
            around = ["[%s](%s)" % (titles[n], n) for n in names[max(0, i - 1):i]], ["[%s](%s)" % (titles[n], n) for n in names[i + 1:i + 2]]
            foot = " | ".join(["before: " + p for p in around[0]] + ["[all pages](../README.md)"] + ["next: " + p for p in around[1]])
            pages["course/" + name] = course.expand(texts[name], drawn or {}) + "\n---\n\n" + foot + "\n"
        for name, svg in course.figures.items():
            pages["course/%s.svg" % name] = svg
    pages["README.md"] = INDEX % "\n".join("%d. [%s](course/%s)" % (i + 1, titles[n], n) for i, n in enumerate(names))
    return pages


def near(old, new):
    """Whether a committed number may stand for a computed one."""
    a, b = float(old), float(new)
    digits = len(old.split(".")[1]) if "." in old and "e" not in old else 0
    if digits >= 3:
        return abs(a - b) < 1.01 * 10.0 ** -digits
    return a == b if old.isdigit() else abs(a - b) <= max(0.15, 0.1 * abs(b))


def fault(path, old, new):
    """What is wrong with a committed file, or None."""
    if NUMBER.sub("#", old) != NUMBER.sub("#", new):
        lines = [b for a, b in zip(old.split("\n"), new.split("\n")) if NUMBER.sub("#", a) != NUMBER.sub("#", b)]
        return "docs/%s says something else now: %s" % (path, lines[0][:160] if lines else "its length differs")
    figure = path.endswith(".svg")
    if figure and os.path.basename(path)[:-4] in ROUGH:
        return None
    for a, b in zip(NUMBER.findall(old), NUMBER.findall(new)):
        if not (abs(float(a) - float(b)) <= 1 if figure else near(a, b)):
            return "docs/%s has %s where %s is computed now" % (path, a, b)
    return None


def check(attn, drawn=None):
    """What is wrong with the committed pages."""
    faults, pages = [], make(attn, drawn)
    for path, text in sorted(pages.items()):
        full = os.path.join(ROOT, "docs", path)
        if not os.path.exists(full):
            faults.append("docs/%s is missing" % path)
            continue
        with open(full, encoding="utf-8") as file:
            faults += [f for f in [fault(path, file.read(), text)] if f]
    for name in os.listdir(COURSE):
        if name != "source" and "course/" + name not in pages:
            faults.append("docs/course/%s belongs to no page" % name)
    return faults


def read_report(folder):
    """The experiments of a report and its figures by name."""
    with open(os.path.join(folder, "results.json"), encoding="utf-8") as file:
        experiments, drawn = json.load(file)["experiments"], {}
    for name in os.listdir(folder):
        if name.endswith(".svg"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                drawn[name[:-4]] = file.read()
    return experiments, drawn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("attn")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--report")
    options = parser.parse_args()
    attn_path = os.path.abspath(options.attn)
    with tempfile.TemporaryDirectory() as work:
        if not options.report:
            subprocess.run([attn_path, "lab", "all", "--quick", "-o", work], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        experiments, drawn = read_report(options.report or work)
    attn = Attn(attn_path, experiments)
    if options.write:
        for path, text in make(attn, drawn).items():
            with open(os.path.join(ROOT, "docs", path), "w", encoding="utf-8") as file:
                file.write(text)
    faults = check(attn, drawn)
    for line in faults:
        print("WRONG: " + line + " (tools/make_course.py ATTN --write)")
    print("%d faults" % len(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
