"""check_claims.py ATTN [--write]: docs/claims.md is what tools/claims_rows.py and the command ATTN say now; every place of the
lessons has a row, every row's command exists and its test is there. A row without command or test is open: an error, like every
other fault. Exit 1 when there is one. --write writes the page."""
import json
import os
import re
import subprocess
import sys

from claims_rows import PLACES, ROWS

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "claims.md")
HEAD = """# Claims

What the two lessons that this project was started from state, row by row, and what shows it. A is *Transformers and
Self-Attention*, B is *How Self-Attention Moves Information*; the claims are in our words. A place is a section with the number of
its paragraph, a figure, table, note or question. Results come from the commands (`attn lab` with `--quick`), written here by
`tools/check_claims.py`; *not seen* means that the measurement does not show it. The tests fail where a place has no row, or
a row no command or no test.

"""


class Attn:
    """The command's numbers, each part run once."""

    def __init__(self, path, experiments=()):
        """experiments: those of a run of `attn lab all --quick` that has been made already."""
        self.path, self.labs = path, {e["name"]: e for e in experiments}
        self.explained = self.output("explain", "--json")
        self.info = self.output("info", "--json", os.path.join(ROOT, "models", "austen"))
        self.topics = set(self.explained)
        self.helps = {}

    def output(self, *arguments):
        done = subprocess.run([self.path, *arguments], capture_output=True, check=True, text=True, cwd=ROOT)
        return json.loads(done.stdout)

    def lab(self, name):
        if name not in self.labs:
            self.labs[name] = self.output("lab", name, "--quick", "--json")["experiments"][0]
        return self.labs[name]

    def help(self, command):
        if command not in self.helps:
            self.helps[command] = subprocess.run([self.path, command, "--help"], capture_output=True, text=True).stdout
        return self.helps[command]


def look_up(attn, spec):
    """The text that stands for {spec} in a result."""
    if spec.startswith("info "):
        return str(attn.info[spec[5:]])
    if not spec.startswith("lab "):
        path, style = spec.rsplit(":", 1) if ":" in spec else (spec, "")
        value = attn.explained
        for step in path.split("."):
            value = value[int(step)] if isinstance(value, list) else value[step]
        return format(value, style)
    name, wanted = spec[4:].split(": ", 1)
    experiment = attn.lab(name)
    cell = re.fullmatch(r"(.*), (\d+):([.0-9a-z]+)", wanted)
    if cell:
        return format(experiment["rows"][int(cell[2])][experiment["columns"].index(cell[1])], cell[3])
    found = [c["holds"] for c in experiment["checks"] if wanted in c["text"]]
    if len(found) != 1:
        raise KeyError("%d checks of lab %s hold '%s'" % (len(found), name, wanted))
    return "seen" if found[0] else "not seen"


def command_fault(attn, command):
    """Why a command line cannot be what it says, or None."""
    words = command.split()
    page = attn.help(words[1]) if words[0] == "attn" else ""
    if not page.startswith("attn %s - " % words[1]):
        return "there is no such command: " + command
    for word in words[2:]:
        if word.startswith("--") and word not in page:
            return "%s does not know %s" % (" ".join(words[:2]), word)
    if words[1] == "explain" and words[2] not in attn.topics and words[2] not in ("FILE.json", "--figures"):
        return "attn explain has no topic " + words[2]
    if words[1] == "lab" and not re.search(r"^  %s " % re.escape(words[2]), page, re.M):
        return "attn lab has no experiment " + words[2]
    return None


def test_fault(test):
    path, name = test.split(":")
    full = os.path.join(ROOT, path)
    if not os.path.exists(full):
        return "there is no file " + path
    with open(full, encoding="utf-8") as file:
        pattern = r"def %s\(" if path.endswith(".py") else r"void %s\("
        return None if re.search(pattern % re.escape(name), file.read()) else "%s has no %s" % (path, name)


def places():
    """Every place that needs a row."""
    for name, n in PLACES.items():
        if n == 0:
            yield name
        for i in range(1, n + 1):
            yield "%s%s%d" % (name, "." if name[0] == "B" and name[2:].isdigit() else " ", i)


def uncovered():
    have, want = {row[0] for row in ROWS}, list(places())
    return ["no row for " + place for place in want if place not in have] + \
        ["%s is no place of the lessons" % place for place in sorted(have) if place not in want]


def make(attn):
    """The page, the open rows, and what is wrong."""
    lines, open_rows, faults = ["| place | claim | command | result | test |", "| --- | --- | --- | --- | --- |"], [], []
    for place, claim, command, result, test in ROWS:
        faults += [f for f in [command and command_fault(attn, command), test and test_fault(test)] if f]
        try:
            text = re.sub(r"\{([^}]*)\}", lambda match: look_up(attn, match[1]), result)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            faults.append("%s: %s: %r" % (place, result, error))
            text = "?"
        if not test or not command:
            open_rows.append("%s: %s" % (place, claim))
            faults.append("open: %s: %s" % (place, claim))
        shown = "`%s` %s" % (os.path.basename(test.split(":")[0]), test.split(":")[1]) if test else "**open**"
        lines.append("| %s | %s | %s | %s | %s |" % (place, claim, "`%s`" % command if command else "**open**", text, shown))
    lines.append("\n%d rows, %d of them open." % (len(ROWS), len(open_rows)))
    return HEAD + "\n".join(lines) + "\n", open_rows, faults


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--write"]):
        sys.exit("usage: check_claims.py ATTN [--write]")
    sys.argv[1] = os.path.abspath(sys.argv[1])
    page, open_rows, faults = make(Attn(sys.argv[1]))
    faults += uncovered()
    if sys.argv[2:]:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(page)
    with open(PAGE, encoding="utf-8") as file:
        committed = file.read()
    if committed != page:
        faults.append("docs/claims.md is not what the commands say now: tools/check_claims.py ATTN --write")
        faults += ["  now: " + line for line in page.splitlines() if line not in committed.splitlines()][:10]
    for fault in faults:
        print("WRONG: " + fault)
    print("%d rows, %d open, %d faults" % (len(ROWS), len(open_rows), len(faults)))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
