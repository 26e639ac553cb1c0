"""The command table, help, versions, exit codes and messages of `attn`."""
import subprocess

import harness


def commands(attn):
    lines = attn("--help")[0].split("commands:\n")[1].split("\n\n")[0].splitlines()
    return [line.split()[0] for line in lines]


def test_help(attn):
    out, err = attn("--help")
    assert err == "" and "usage:" in out and "exit codes:" in out
    assert max(len(line) for line in out.splitlines()) <= 100
    assert "explain" in commands(attn)


def test_every_command_has_a_page_with_an_example(attn):
    for name in commands(attn):
        out, err = attn(name, "--help")
        assert err == "" and out.startswith("attn %s" % name) and "example" in out, name
        assert "--json" in out or "log.jsonl" in out, name  # training writes its log for programs as it goes
        assert max(len(line) for line in out.splitlines()) <= 100, name


def test_no_arguments_is_wrong_usage(attn):
    out, err = attn(code=2)
    assert out == "" and "usage:" in err


def test_version(attn):
    out, _ = attn("--version")
    assert out.startswith("attn 0.") and out.count("\n") == 1


def test_unknown_option_is_named(attn):
    for name in commands(attn):
        _, err = attn(name, "--nonsense", code=2)
        assert "--nonsense" in err and "--help" in err, (name, err)


def test_full_disk_is_an_error(attn):
    with open("/dev/full", "w") as full:
        done = subprocess.run([attn.path, "explain", "paths"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1 and b"cannot write" in done.stderr


harness.run(globals())
