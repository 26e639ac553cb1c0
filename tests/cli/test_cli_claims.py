"""docs/claims.md says what the commands say now; and the check finds what is wrong with a row."""
import os
import subprocess
import sys

import harness

TOOLS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tools")
sys.path.insert(0, TOOLS)
import check_claims  # noqa: E402


def test_the_page_is_what_the_commands_say(attn):
    done = subprocess.run([sys.executable, "-B", os.path.join(TOOLS, "check_claims.py"), attn.path], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 faults" in done.stdout and done.stdout.count("open: ") == int(done.stdout.split(" open, ")[0].split()[-1])


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
        assert not faults and len(open_rows) == 2 and page.count("**open**") == 2
    finally:
        check_claims.ROWS = kept


harness.run(globals())
