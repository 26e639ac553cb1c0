"""attn inspect on the real model: the page, the JSON, the SVG, the table of measures, head tests, refusals."""
import json
import os
import resource
import tempfile
import xml.dom.minidom

import harness
import models

BRIDGE = "The bridge was closed because it"
WORK = tempfile.mkdtemp()


def data(attn, *options):
    models.need(models.DECODER)
    return json.loads(attn("inspect", "--json", "--exact", "6", "--sample", "12", *options, BRIDGE)[0])


def row(m, head, r):
    at = head * len(m["queries"]) + r
    return dict(zip(m["keys"][m["starts"][at]:m["starts"][at + 1]], m["weights"][m["starts"][at]:m["starts"][at + 1]]))


def test_json(attn):
    found = data(attn)
    m = found["maps"][0]
    assert found["tokens"] == ["The", " bridge", " was", " closed", " because", " it"]
    assert (m["n_layers"], m["n_heads"], m["n_queries"]) == (30, 9, 6) and m["queries"] == list(range(6))
    for head in range(270):
        for r in range(6):
            assert abs(sum(row(m, head, r).values()) - 1) < 1e-4 and max(row(m, head, r)) <= r
    assert abs(row(m, 13 * 9 + 8, 5)[1] - 0.77) < 0.005
    assert abs(m["at_rows"][(13 * 9 + 8) * 6 + 1] - 0.77) < 0.005
    measures = found["measures"]
    assert len(measures["windows"]) == 30 and measures["estimate"] == 1 and measures["n_screened"] == 270 * 20
    sizes = [abs(e["estimate"]) for e in measures["edges"]]
    assert sizes == sorted(sizes, reverse=True)
    top = sum(1 for e in measures["edges"] if e["why"] & 1)
    assert top == 6 and any(abs(e["knockout"][0]) > 0.1 for e in measures["edges"][:6])


def test_answers_and_pair(attn):
    found = data(attn, "--answer", "was", "--other", "is", "--pair", "The road was closed because it", "--heads")
    assert found["answers"] == [" was", " is"] and found["measures"]["outcome"] > 0
    assert len(found["measures"]["heads"]) == 270
    moved = [abs(h["patch"][0]) for h in found["measures"]["heads"]]
    assert max(moved) > 0.01 and all(e["pair"] for e in found["measures"]["edges"])


def test_files(attn):
    models.need(models.DECODER)
    page, svg, one = (os.path.join(WORK, name) for name in ("a.html", "a.svg", "b.svg"))
    out, err = attn("inspect", "--no-measures", "-o", page, "--svg", svg, BRIDGE)
    assert "a.html" in err
    html = open(page, encoding="utf-8").read()
    assert html.count("<script") == 2 and "http://" not in html.replace("http://www.w3.org", "") and "https://" not in html
    attn("inspect", "--no-measures", "--layer", "13", "--head", "8", "--svg", one, BRIDGE)
    for path, least in ((svg, 500), (one, 15)):
        assert len(xml.dom.minidom.parse(path).getElementsByTagName("rect")) > least
    assert "bridge" in open(one).read()


def test_terminal(attn):
    models.need(models.DECODER)
    out = attn("inspect", "--exact", "4", "--sample", "8", BRIDGE)[0]
    for wanted in ("knockout", "removal", "rank correlation", "no cause", "gradient", "first token"):
        assert wanted in out, wanted


def test_run_writes_a_page(attn):
    models.need(models.DECODER)
    path = os.path.join(WORK, "run.html")
    out = attn("run", "-n", "2", "--page", path, BRIDGE)[0]
    assert path in out.splitlines()[-1] and "bridge" in open(path, encoding="utf-8").read()


def test_induction_heads_are_there_and_matter(attn):
    models.need(models.DECODER)
    found = json.loads(attn("inspect", "--head-tests", "--json", "--seed", "3")[0])
    best = max(h["induction"] for h in found["heads"])
    print("  best induction score %.2f; loss of the copy %.2f, cut %.2f, control %.2f" % (
        best, found["loss_second"], found["loss_cut"], found["loss_control"]))
    assert len(found["heads"]) == 270 and best > 0.4
    assert found["loss_second"] < found["loss_first"] - 3  # it copies
    assert found["loss_cut"] > found["loss_second"] + 0.2  # by those heads
    assert found["loss_cut"] - found["loss_second"] > 2 * (found["loss_control"] - found["loss_second"])


def test_refusals(attn):
    assert "no text" in attn("inspect", code=2)[1]
    models.need(models.DECODER)
    assert "--other" in attn("inspect", "--answer", "was", BRIDGE, code=2)[1]
    assert "tokens" in attn("inspect", "--answer", "incomprehensibilities", "--other", "is", BRIDGE, code=2)[1]
    assert "--pair has" in attn("inspect", "--pair", "It", BRIDGE, code=2)[1]
    assert "--at is 10; " in attn("inspect", "--at", "10", BRIDGE, code=2)[1]
    assert "--at is 0; " in attn("inspect", "--at", "0", BRIDGE, code=2)[1]
    assert "--at is -7; " in attn("inspect", "--at", "-7", BRIDGE, code=2)[1]
    assert "layer 30 of 30" in attn("inspect", "--layer", "30", BRIDGE, code=2)[1]
    assert "empty" in attn("inspect", "", code=2)[1]
    assert "cannot write" in attn("inspect", "--no-measures", "-o", "/nowhere/x.html", BRIDGE, code=1)[1]


def test_a_page_is_written_whole_or_not_at_all(attn):
    models.need(models.DECODER)
    page = os.path.join(WORK, "limited.html")
    with open(page, "w") as file:
        file.write("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, before[1]))  # inherited by attn
    try:
        said = attn("inspect", "--no-measures", "-o", page, BRIDGE, code=1)[1]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "limited.html: File too large" in said, said
    assert open(page).read() == "old" and not os.path.exists(page + ".partial")
    assert "/dev/full: No space" in attn("inspect", "--no-measures", "-o", "/dev/full", BRIDGE, code=1)[1]
    assert not os.path.isfile("/dev/full")


harness.run(globals())
