"""Every number that the two lessons print, as `attn explain` computes it, to the digits that they show; and how bad
input is refused."""
import json
import os
import tempfile
import xml.dom.minidom

import harness


def same(computed, printed):
    """computed (nested lists of numbers) rounds to what a lesson prints; None is a masked entry."""
    if isinstance(printed, list):
        assert len(computed) == len(printed), (computed, printed)
        for a, b in zip(computed, printed):
            same(a, b)
    elif printed is None:
        assert computed is None, computed
    else:
        digits = len(printed.split(".")[1]) if "." in printed else 0
        assert "%.*f" % (digits, computed) == printed, (computed, printed)


def explain(attn, *arguments, stdin=""):
    return json.loads(attn("explain", "--json", *arguments, stdin=stdin)[0])


def test_bridge(attn):
    steps = explain(attn, "bridge")["bridge"]
    same(steps["scaled"], [["0.707", None, None], ["0.000", "1.414", None], ["1.414", "0.707", "2.121"]])
    same(steps["weights"], [["1.000", "0", "0"], ["0.196", "0.804", "0"], ["0.284", "0.140", "0.576"]])
    same(steps["outputs"], [["2.000", "0.000"], ["0.391", "1.609"], ["1.144", "0.856"]])
    same(1 / steps["scale"], "1.414")
    for row in steps["weights"]:
        assert abs(sum(row) - 1) < 1e-12
    # masked weights are zero exactly, not nearly
    assert steps["weights"][0][1:] == [0, 0] and steps["weights"][1][2] == 0


def test_trace(attn):
    steps = explain(attn, "trace")["trace"]
    same(steps["scores"], [["1", "1", "2"]])
    same(steps["scaled"], [["0.707", "0.707", "1.414"]])
    same(steps["weights"], [["0.248", "0.248", "0.503"]])
    same(steps["outputs"], [["1.255", "1.503"]])
    same(steps["unscaled"]["weights"], [["0.212", "0.212", "0.576"]])


def test_saturation(attn):
    rows = explain(attn, "saturation")["saturation"]
    assert [r["d_k"] for r in rows] == [4, 16, 64, 256, 1024]
    same([r["unscaled"]["winner"] for r in rows], ["0.88", "0.98", "0.9997", "1.0000", "1.0000"])
    same([r["scaled"]["winner"] for r in rows], ["0.73"] * 5)
    gradients = [-r["unscaled"]["gradient"] for r in rows]
    assert all(later < earlier / 5 for earlier, later in zip(gradients, gradients[1:]))
    assert 0 < gradients[-1] < 1e-13
    for r in rows:
        same([r["scaled"]["gap"], r["scaled"]["gradient"]], ["1.000", "-0.197"])
        assert abs(r["unscaled"]["gap"] - r["d_k"] ** 0.5) < 1e-9
        w = r["unscaled"]["winner"]  # the softmax's derivative, -w (1 - w), as far as 1 - w still has digits
        assert abs(r["unscaled"]["gradient"] + w * (1 - w)) < 1e-11


def test_mask(attn):
    mask = explain(attn, "mask")["mask"]
    assert mask["causal"]["admitted_pairs"] == 6 and mask["bidirectional"]["admitted_pairs"] == 9
    # the last position sees the same keys either way
    assert mask["causal"]["outputs"][2] == mask["bidirectional"]["outputs"][2]
    assert mask["causal"]["weights"][0] == [1, 0, 0] and min(mask["bidirectional"]["weights"][0]) > 0.1
    text = attn("explain", "mask")[0]
    assert text.count("-inf") == 10 and "q5k5" in text and "q1k2" not in text


def test_figures(attn):
    """The first lesson's six figures: the same numbers as above, as valid SVG."""
    with tempfile.TemporaryDirectory() as folder:
        where = os.path.join(folder, "figures")
        assert attn("explain", "--figures", where)[0] == ""
        texts = []
        for i in range(1, 7):
            path = os.path.join(where, "figure-%d.svg" % i)
            texts.append([node.firstChild.data for node in xml.dom.minidom.parse(path).getElementsByTagName("text")])
        assert len(os.listdir(where)) == 6
        assert ["y%d" % i for i in range(1, 6)] == [t for t in texts[0] if t[0] == "y"] and any("15 of 25" in t for t in texts[0])
        assert "from 1 to 5: 4" in texts[1] and "from 1 to 5: 1" in texts[1]
        assert "y3 = (1.255, 1.503)" in texts[2] and "weight 0.503" in texts[2] and "q3 k3 = 2" in texts[2]
        assert {"0.8808", "0.9820", "0.9997", "1.0000", "0.7311"} <= set(texts[3]) and texts[3].count("0.7311") == 5
        assert {"0.707", "1.414", "0.248", "0.503", "y3 = (1.255, 1.503)"} <= set(texts[4])
        assert texts[5].count("-inf") == 10
        refused = os.path.join(folder, "file")
        open(refused, "w").close()
        assert "cannot make the folder" in attn("explain", "--figures", refused, code=1)[1]


def test_paths(attn):
    rows = explain(attn, "paths")["paths"]
    by_end = {r["to"]: r for r in rows}
    assert by_end[5]["rnn"] == 4 and by_end[5]["attention"] == 1
    assert by_end[50]["rnn"] == 49 and by_end[50]["attention"] == 1
    assert by_end[50]["window_8"] == 7  # 49 positions in steps of at most 7


def test_text_shows_the_lessons_numbers(attn):
    text = attn("explain")[0]
    for number in ["0.196", "0.804", "0.284", "0.140", "0.576", "(2.000, 0.000)", "(0.391, 1.609)", "(1.144, 0.856)",
                   "0.707", "1.414", "2.121", "0.248", "0.503", "(1.255, 1.503)", "0.212", "0.8808", "0.9820",
                   "0.9997", "1.0000", "0.7311"]:
        assert number in text, number
    assert "0.284 (2, 0) + 0.140 (0, 2) + 0.576 (1, 1) = (1.144, 0.856)" in text
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_own_numbers(attn):
    own = {"q": [[1, 1]], "k": [[1, 0], [0, 1], [1, 1]], "v": [[1, 0], [0, 2], [2, 2]]}
    trace = explain(attn, "trace")["trace"]
    assert explain(attn, "-", stdin=json.dumps(own))["file"]["outputs"] == trace["outputs"]
    unscaled = explain(attn, "-", stdin=json.dumps(dict(own, scale=1)))["file"]
    assert unscaled["weights"] == trace["unscaled"]["weights"]
    # one more key, later than the query: the mask hides it, whatever it holds
    more = dict(own, k=own["k"] + [[9, 9]], v=own["v"] + [[5, 5]], causal=True, query_offset=2)
    assert explain(attn, "-", stdin=json.dumps(more))["file"]["outputs"] == trace["outputs"]
    seen = dict(more, causal=False)
    assert explain(attn, "-", stdin=json.dumps(seen))["file"]["weights"][0][3] > 0.99
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "my.json")
        with open(path, "w") as file:
            json.dump(dict(own, tokens=["café", "東京", "a\nb"], title="mine"), file)
        text = attn("explain", path)[0]
    assert text.startswith("mine\n") and "東京" in text and "a⏎b" in text


def test_many_keys_are_cut_into_blocks(attn):
    n = 40
    own = {"q": [[0.1 * i] for i in range(n)], "k": [[1.0]] * n, "v": [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]] * n, "causal": True}
    text = attn("explain", "-", stdin=json.dumps(own), env={"COLUMNS": "100"})[0]
    lines = text.splitlines()
    assert max(len(line) for line in lines) <= 100
    assert max(len(line) for line in lines) > 80
    assert sum("keys " in line for line in lines) > 3


def test_bad_files_are_refused_by_name(attn):
    good = {"q": [[1, 1]], "k": [[1, 0]], "v": [[1]]}
    cases = [
        ("{", "line 1"),
        ("[]", "JSON object"),
        ('{"q": [[1]], "q": [[1]]}', "duplicate"),
        (json.dumps({"k": [[1]], "v": [[1]]}), '"q"'),
        (json.dumps(dict(good, q=[])), '"q"'),
        (json.dumps(dict(good, q=[[]])), '"q"'),
        (json.dumps(dict(good, q=[1])), '"q"'),
        (json.dumps(dict(good, q=[["a", 1]])), 'row 1, entry 1'),
        (json.dumps(dict(good, k=[[1, 0], [1]])), '"k" row 2'),
        (json.dumps(dict(good, k=[[1, 0, 0]])), "rows of"),
        (json.dumps(dict(good, v=[[1], [2]])), '"v" has 2 rows'),
        (json.dumps(dict(good, causal=1)), '"causal"'),
        (json.dumps(dict(good, scale="x")), '"scale"'),
        (json.dumps(dict(good, title=3)), '"title"'),
        (json.dumps(dict(good, tokens=["a", "b"])), '"tokens"'),
        (json.dumps(dict(good, tokens=[1])), '"tokens" entry 1'),
        (json.dumps(dict(good, query_offset=0.5)), '"query_offset"'),
        (json.dumps(dict(good, query_offset=10 ** 15)), '"query_offset"'),
        (json.dumps(dict(good, casual=True)), '"casual"'),
        (json.dumps(dict(good, k=[[1, 0]] * 2, v=[[1]] * 2, causal=True)), '"query_offset"'),
        ("[" * 100000, "line 1"),
    ]
    for text, wanted in cases:
        out, err = attn("explain", "-", stdin=text, code=1)
        assert out == "" and wanted in err, (text[:80], err)
    assert "cannot read" in attn("explain", "/nowhere/my.json", code=1)[1]
    assert "topics:" in attn("explain", "bridges", code=1)[1]


def test_huge_numbers_do_not_crash(attn):
    huge = {"q": [[1e308, 1e308]], "k": [[1e308, 1e308], [0, 0]], "v": [[1], [2]]}
    attn("explain", "-", stdin=json.dumps(huge))
    steps = explain(attn, "-", stdin=json.dumps(huge))["file"]
    assert steps["scores"][0][0] is None  # overflowed: not a number that JSON can hold


harness.run(globals())
