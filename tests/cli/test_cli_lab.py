"""`attn lab`: the numbers that have to hold on any machine, from one run of all of them; and docs/claims.md and the course,
which cite them. Times are looked at for being there, never for their size."""
import json
import math
import os
import re
import sys
import tempfile
import xml.dom.minidom

import harness
import models

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import check_claims  # noqa: E402
import make_course  # noqa: E402

NAMES = ["scaling", "path", "recall", "stall", "heads", "depth", "mask", "lookback", "at-once", "order", "change", "counts", "cost",
         "serial", "bridge", "evidence", "occurrences", "induction"]
if not os.path.exists(models.DECODER):
    NAMES = [name for name in NAMES if name not in ("bridge", "evidence")]
ALL = {}


def everything(attn):
    """One run of all of them, shared by the tests."""
    if not ALL:
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "report")
            ALL["text"] = attn("lab", "all", "--quick", "-o", report, timeout=600)[0]
            ALL["files"] = {name: open(os.path.join(report, name), encoding="utf-8").read() for name in os.listdir(report)}
        ALL["results"] = json.loads(ALL["files"]["results.json"])
    return ALL


def experiment(attn, name):
    return next(e for e in everything(attn)["results"]["experiments"] if e["name"] == name)


def columns(e):
    return dict(zip(e["columns"], zip(*e["rows"])))


def holds(e, part):
    found = [c["holds"] for c in e["checks"] if part in c["text"]]
    assert len(found) == 1, (part, e["checks"])
    return found[0]


def test_scaling(attn):
    e = experiment(attn, "scaling")
    c = columns(e)
    assert c["d_k"] == (4, 16, 64, 256, 1024)
    assert ["%.4f" % w for w in c["one sigma, unscaled"]] == ["0.8808", "0.9820", "0.9997", "1.0000", "1.0000"]
    assert all(abs(w - 1 / (1 + math.exp(-1))) < 1e-12 for w in c["one sigma, scaled"])
    assert c["winner, unscaled"][-1] > 0.9 > c["winner, unscaled"][0]
    assert list(c["winner, unscaled"]) == sorted(c["winner, unscaled"])
    assert max(c["winner, scaled"]) - min(c["winner, scaled"]) < 0.05
    assert c["gradient, unscaled"][-1] < c["gradient, scaled"][-1] / 3
    # a result that the lesson does not have: with random keys the mean stays below 1.0000
    assert c["winner, unscaled"][-1] < 0.99995 and not holds(e, "too, takes 1.0000")


def test_path(attn):
    e = experiment(attn, "path")
    c = columns(e)
    for net in ["Elman RNN", "LSTM"]:
        assert c[net][-1] < 1e-9 < 1e-2 < c[net][0], net
        assert list(c[net]) == sorted(c[net], reverse=True)
    assert c["LSTM"][-1] > c["Elman RNN"][-1] and c["LSTM, forget bias 3"][-1] > 1e-2
    assert c["attention"][-1] > 1e-2
    # one step is no promise of a constant gradient: an untrained head spreads itself over n positions
    assert c["attention"][-1] < c["attention"][0] / 4 and not holds(e, "does not depend on the distance")


def test_recall(attn):
    e = experiment(attn, "recall")
    c = columns(e)
    assert min(column[0] for column in [c["Elman RNN, recalled"], c["LSTM, recalled"], c["attention, recalled"]]) > 0.9
    assert c["Elman RNN, recalled"][-1] < 0.4 and c["attention, recalled"][-1] > 0.6
    assert c["attention, gradient"][-1] > 1e3 * c["Elman RNN, gradient"][-1]
    assert holds(e, "attention still does") and holds(e, "training has raised it")


def test_stall(attn):
    e = experiment(attn, "stall")
    c = columns(e)
    assert c["found, scaled"][-1] > c["found, unscaled"][-1] + 0.3 and c["loss, scaled"][-1] < c["loss, unscaled"][-1] - 0.5
    assert holds(e, "stays higher") and holds(e, "with the division")


def test_heads(attn):
    e = experiment(attn, "heads")
    c = columns(e)
    assert set(c["parameters of each"]) == {4 * 64 * 64}
    assert c["found by one head"][0] > 0.9 and c["by eight heads"][0] > 0.9
    assert c["by eight heads"][-1] > c["found by one head"][-1] + 0.2
    assert holds(e, "joined and passed through W_O") and holds(e, "eight places: eight heads")


def test_depth(attn):
    e = experiment(attn, "depth")
    c = columns(e)
    assert c["pre-norm"][0] < 0.5 and c["post-norm"][0] < 0.5
    assert all(0 <= loss < 4 for row in e["rows"] for loss in row[1:])
    assert holds(e, "a pre-norm block gives its input") and holds(e, "two layers learn it")


def test_mask(attn):
    e = experiment(attn, "mask")
    c = columns(e)
    entropy = 2 * (math.log(12) + 2 * math.log(4)) / 17
    assert abs(c["entropy of the language"][0] - entropy) < 1e-12
    assert c["training loss, no mask"][-1] < entropy / 2 < c["training loss, mask"][-1]
    assert c["token by token, no mask"][-1] > c["training loss, no mask"][-1] + 1
    assert abs(c["token by token, mask"][-1] - c["training loss, mask"][-1]) < 0.2
    assert e["numbers"]["sentences of the language, mask"] > e["numbers"]["sentences of the language, no mask"] + 0.5


def test_lookback(attn):
    e = experiment(attn, "lookback")
    for column in list(zip(*e["rows"]))[1:]:
        assert abs(sum(column) - 1) < 1e-9 and min(column) > 0
    assert all(check["holds"] for check in e["checks"])


def test_evidence(attn):
    models.need(models.DECODER)
    e = experiment(attn, "evidence")
    c, numbers = columns(e), e["numbers"]
    assert numbers["heads"] == 270 and numbers["pairs"] == 32  # 256 without --quick
    assert list(c["selecting half"]) == sorted(c["selecting half"], reverse=True)
    for mean, low, high in zip(c["testing half"], c["95 % from"], c["95 % to"]):
        assert low < mean < high
    least = 270 * 2 / 2 ** 16  # two of 2^16 flips of sign, times the heads
    assert min(c["p x heads"]) >= least * 0.999 and (c["layer"][0], c["head"][0]) == (13, 8)
    assert c["p x heads"][0] < 0.05 and c["95 % from"][0] > 0.1 and numbers["selected heads confirmed"] >= 1
    assert numbers["moved, to"] < 0 < numbers["outcome, from"]


def test_occurrences(attn):
    e = experiment(attn, "occurrences")
    c = columns(e)
    assert holds(e, "the same vector") and holds(e, "behind the first layer")
    assert c["small model, same sense"][0] == 0 == c["small model, other sense"][0] and c["small model, other sense"][1] > 0.01
    if os.path.exists(models.DECODER):
        assert len(e["rows"]) == 31 and e["rows"][0][1:3] == [0, 0] and holds(e, "of another sense")


def test_induction(attn):
    e = experiment(attn, "induction")
    c = columns(e)
    assert c["heads cut"][0] == 0 and c["small, random"][0] == c["small, best"][0]
    assert holds(e, "copying model: a head puts") and holds(e, "copying model: the repeated half costs")
    assert holds(e, "copying model: without its best")
    if os.path.exists(models.DECODER):
        assert holds(e, "SmolLM2-135M: a head puts") and holds(e, "SmolLM2-135M: without its best")


def test_claims_page(attn):
    """docs/claims.md is what this run says; every place of the lessons has a row, no row is open."""
    page, open_rows, faults = check_claims.make(check_claims.Attn(attn.path, everything(attn)["results"]["experiments"]))
    assert not open_rows and not faults + check_claims.uncovered(), open_rows + faults + check_claims.uncovered()
    with open(check_claims.PAGE, encoding="utf-8") as file:
        assert file.read() == page, "tools/check_claims.py ATTN --write"


def test_course(attn):
    """docs/course and docs/README.md are what this run, the example and the other commands say."""
    run = everything(attn)
    drawn = {name[:-4]: text for name, text in run["files"].items() if name.endswith(".svg")}
    faults = make_course.check(check_claims.Attn(attn.path, run["results"]["experiments"]), drawn)
    assert not faults, faults


def test_stale_pages_are_found(attn):
    page = "The winner takes 0.8808 of 1024; trained 0.9.\n"
    for new, wanted in [(page, None), (page.replace("0.8808", "0.8810"), "0.8808"), (page.replace("1024", "1023"), "1024"),
                        (page.replace("0.9", "0.95"), None), (page.replace("0.9", "0.4"), "0.9"), (page.replace("takes", "took"), "took")]:
        fault = make_course.fault("course/x.md", page, new)
        assert (fault is None) == (wanted is None) and (wanted is None or wanted in fault), (new, fault)


def test_at_once(attn):
    c = columns(experiment(attn, "at-once"))
    for kind in ["f32", "f64"]:
        assert all(d <= a for d, a in zip(c["difference, " + kind], c["allowed, " + kind]))
        assert max(c["allowed, " + kind]) < (1e-2 if kind == "f32" else 1e-11)


def test_order(attn):
    c = columns(experiment(attn, "order"))
    assert max(c["no positions"]) < 1e-12
    assert min(c["sinusoidal positions"]) > 1e-3 and min(c["causal, no positions"]) > 1e-3


def test_change(attn):
    e = experiment(attn, "change")
    n = len(e["rows"])
    for i, row in enumerate(e["rows"]):
        assert row == [i + 1, 1 if i else 0, n - i if i else n - 1, n - i], row
    assert all(check["holds"] for check in e["checks"]) and len(e["checks"]) == 4


def test_counts(attn):
    e = experiment(attn, "counts")
    for row in e["rows"]:
        n = row[0]
        assert row[1:] == [n * n, n * (n + 1) / 2, 3 * 24 * 24, n, n / 2, 1], row
    assert all(check["holds"] for check in e["checks"])


def test_cost_and_serial(attn):
    cost = experiment(attn, "cost")
    c = columns(cost)
    assert holds(cost, "same outputs") and holds(cost, "fused operator's memory does not")
    assert all(kib == n * n * 4 / 1024 for n, kib in zip(c["n"], c["n x n, KiB"]))
    assert c["fused, KiB"][-1] < c["n x n, KiB"][-1] / 8
    serial = experiment(attn, "serial")
    for row in cost["rows"] + serial["rows"]:
        assert all(value > 0 for value in row)
    assert holds(serial, "needs the state before it") and holds(serial, "can be divided among threads")


def test_bridge(attn):
    models.need(models.DECODER)
    e = experiment(attn, "bridge")
    assert len(e["rows"]) == 6 and abs(e["rows"][1][1] - 0.77) < 0.005
    assert abs(sum(row[1] for row in e["rows"]) - 1) < 1e-5 and abs(sum(row[2] for row in e["rows"]) - 1) < 1e-5
    assert holds(e, "weight 0.77") and not holds(e, "heads in general do")


def test_another_model_is_called_by_its_name(attn):
    named = ("--quick", "--json", "--model", "models/austen")
    got = [json.loads(attn("lab", name, *named)[0]) for name in ("occurrences", "induction")]
    assert got[0]["command"] == "attn lab occurrences --quick --model models/austen"
    for e in (run["experiments"][0] for run in got):
        assert "SmolLM2" not in json.dumps(e) and "austen" in e["finding"] and e["columns"][1].startswith("--model")


def test_bridge_is_skipped_without_the_model(attn):
    with tempfile.TemporaryDirectory() as folder:
        nowhere = {"XDG_CACHE_HOME": folder}
        assert "no.gguf" in attn("lab", "bridge", "--model", "no.gguf", code=1)[1]
        out = attn("lab", "bridge", "-o", os.path.join(folder, "report"), env=nowhere)[0]
        assert "skipped: the model SmolLM2-135M" in out and os.listdir(os.path.join(folder, "report")) == ["results.json"]
        e = json.loads(attn("lab", "bridge", "--json", env=nowhere)[0])["experiments"][0]
        assert e["skipped"] and "rows" not in e


def test_report(attn):
    run = everything(attn)
    assert sorted(run["files"]) == sorted([n + ".svg" for n in NAMES] + ["index.html", "results.json"])
    assert [e["name"] for e in run["results"]["experiments"] if "skipped" not in e] == NAMES
    page = run["files"]["index.html"]
    assert not re.search(r"(src|href)=\"(?!#)|url\(|@import|<script", page), "the page reaches outside itself"
    for name in NAMES:
        svg = run["files"][name + ".svg"]
        xml.dom.minidom.parseString(svg)
        assert svg in page and "nan" not in svg and "inf" not in svg
        assert svg.count("<polyline") >= 2
        e = experiment(attn, name)
        assert e["finding"] in run["text"].replace("\n  ", " ") or e["finding"][:40] in run["text"].replace("\n  ", " ")
        assert len(e["finding"]) > 200 and e["checks"]
        for check in e["checks"]:
            assert ("seen     " if check["holds"] else "NOT seen ") + check["text"] in run["text"]
            assert check["text"].replace(">", "&#62;") in page


def test_the_same_again(attn):
    for name in ["scaling", "path", "change"]:
        again = json.loads(attn("lab", name, "--quick", "--json")[0])["experiments"][0]
        first = experiment(attn, name)
        assert len(again["rows"]) == len(first["rows"])
        for a, b in zip(again["rows"], first["rows"]):
            assert all(math.isclose(x, y, rel_tol=1e-10) for x, y in zip(a, b)), name


def test_what_is_refused(attn):
    assert "no experiment named" in attn("lab", code=2)[1]
    out, err = attn("lab", "scalng", code=2)
    assert out == "" and "'scalng'" in err and "at-once" in err
    assert "one experiment at a time" in attn("lab", "scaling", "path", code=2)[1]
    assert "--fast" in attn("lab", "--fast", "all", code=2)[1]
    with tempfile.NamedTemporaryFile() as file:
        out, err = attn("lab", "change", "-o", file.name, code=1)
        assert out == "" and file.name in err  # before the experiment, which may take minutes


harness.run(globals())
