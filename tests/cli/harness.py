"""harness.py: what the tests of the `attn` command share. A test file defines functions test_*(attn) and ends with
run(globals()); it is called with the path of the command. Prints the closing lines of a cmocka program, so that each
function counts as one test."""
import os
import subprocess
import sys
import traceback


class Skip(Exception):
    """Raised by a test that cannot run here; the text says why."""


class Attn:
    def __init__(self, path):
        self.path = path

    def __call__(self, *arguments, stdin="", code=0, env=None, timeout=120):
        """Runs attn; asserts its exit code; returns (stdout, stderr) as text."""
        environment = dict(os.environ, **(env or {}))
        environment.setdefault("ATTN_NUM_THREADS", "2")
        environment.setdefault("ATTN_OFFLINE", "1")  # a missing model is not fetched, unless the test asks for it
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        done = subprocess.run([self.path, *arguments], input=data, capture_output=True, env=environment, timeout=timeout)
        out, err = done.stdout.decode(), done.stderr.decode()
        assert done.returncode == code, "attn %s: exit %d, wanted %d\n%s%s" % (
            " ".join(arguments), done.returncode, code, out, err)
        return out, err


def run(names):
    attn = Attn(sys.argv[1])
    tests = [(name, f) for name, f in names.items() if name.startswith("test_")]
    failed, skipped = [], []
    for name, function in tests:
        try:
            function(attn)
            print("[       OK ] " + name)
        except Skip as reason:
            skipped.append(name)
            print("[  SKIPPED ] %s: %s" % (name, reason))
        except Exception:
            failed.append(name)
            traceback.print_exc(file=sys.stdout)
            print("[  FAILED  ] " + name)
    print("[  PASSED  ] %d test(s)." % (len(tests) - len(failed) - len(skipped)))
    if skipped:
        print("[  SKIPPED ] %d test(s), listed above" % len(skipped))
    if failed:
        print("[  FAILED  ] %d test(s), listed above" % len(failed))
    sys.exit(1 if failed else 0)
