"""The check of docs/claims.md finds what is wrong with a row. The page itself is compared in test_cli_lab.py."""
import json
import os
import sys

import harness

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOLS, SMALL = os.path.join(ROOT, "tools"), os.path.join(ROOT, "models", "austen")
sys.path.insert(0, TOOLS)
import check_claims  # noqa: E402


def test_the_longest_input(attn):
    """What docs/claims.md says about models' inputs: they have a longest one, and more is refused."""
    longest = json.loads(attn("info", "--json", SMALL)[0])["context_length"]
    assert longest == 256
    assert "256" in attn("run", "-n", "0", "--model", SMALL, "and " * 400, code=1)[1]


def test_every_place_has_a_row(attn):
    assert not check_claims.uncovered()
    kept = check_claims.ROWS
    try:
        check_claims.ROWS = [row for row in kept if row[0] != "A figure 3"] + [("A figure 7",) + kept[0][1:]]
        assert check_claims.uncovered() == ["no row for A figure 3", "A figure 7 is no place of the lessons"]
    finally:
        check_claims.ROWS = kept


def test_wrong_rows_are_found(attn):
    numbers = check_claims.Attn(attn.path)
    good = ("A", "x", "attn explain trace", "{trace.scores.0.0:.0f}", "tests/cli/test_cli_explain.py:test_trace")
    cases = [(2, "attn explian trace", "no such command"), (2, "attn explain traces", "no topic traces"),
             (2, "attn lab scal", "no experiment scal"), (2, "attn inspect --head-test2", "does not know"),
             (3, "{trace.score.0.0:.0f}", "score"), (3, "{lab scaling: nothing like it}", "0 checks"),
             (4, "tests/cli/test_cli_explain.py:test_tra", "has no test_tra"), (4, "tests/cli/none.py:test_x", "no file")]
    kept = check_claims.ROWS
    try:
        check_claims.ROWS = [good]
        page, open_rows, faults = check_claims.make(numbers)
        assert not faults and not open_rows and "| 1 |" in page
        for field, text, wanted in cases:
            check_claims.ROWS = [good[:field] + (text,) + good[field + 1:]]
            faults = check_claims.make(numbers)[2]
            assert len(faults) == 1 and wanted in faults[0], (text, faults)
        check_claims.ROWS = [good[:4] + ("",), good[:2] + ("",) + good[3:]]
        page, open_rows, faults = check_claims.make(numbers)
        assert len(faults) == len(open_rows) == 2 == page.count("**open**"), "an open row is an error"
    finally:
        check_claims.ROWS = kept


harness.run(globals())
