"""attn inspect on the real model: the page, the JSON, the SVG, the table of measures, head tests, refusals."""
import json
import os
import re
import resource
import shutil
import struct
import tempfile
import xml.dom.minidom
import zlib

import harness
import models

BRIDGE = "The bridge was closed because it"
WORK = tempfile.mkdtemp()
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


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


def names_of(x):
    """Every name of every object."""
    if isinstance(x, dict):
        return set(x) | set().union(*map(names_of, x.values()))
    return set().union(*map(names_of, x[:1000])) if isinstance(x, list) and x and isinstance(x[0], dict) else set()


def test_characters_cut_into_tokens(attn):
    """Each part is named by its character; the text comes together from the first parts."""
    models.need(models.DECODER)
    text = "\u6771\u4eac \u05e9\u05dc\u05d5\u05dd \U0001f469"
    tokens = json.loads(attn("inspect", "--json", "--no-measures", text)[0])["tokens"]
    parts = [re.fullmatch(r"(.*)\[(\d+)/(\d+)\]", token, re.S) for token in tokens]
    assert any(parts) and not any("\ufffd" in token for token in tokens), tokens
    assert "".join(p[1] if p else token for p, token in zip(parts, tokens) if not p or p[2] == "1") == text
    shown = attn("inspect", "--no-measures", "--layer", "3", "--head", "2", text)[0]  # the terminal's are the same
    assert "\U0001f469[1/3]" in shown and "\u6771[1/2]" in shown and "\\x" not in shown, shown


def test_answers_and_pair(attn):
    """Also: docs/inspect.md has each name that the JSON has, between backquotes."""
    found = data(attn, "--answer", "was", "--other", "is", "--pair", "The road was closed because it", "--heads", "--seed", "5")
    assert found["answers"] == [" was", " is"] and found["measures"]["outcome"] > 0
    assert len(found["measures"]["heads"]) == 270
    moved = [abs(h["patch"][0]) for h in found["measures"]["heads"]]
    assert max(moved) > 0.01 and all(e["pair"] for e in found["measures"]["edges"])
    text = open(os.path.join(ROOT, "docs", "inspect.md")).read()
    missing = names_of(found) - set(re.findall(r"`([a-z_]+)`", text[text.index("## JSON"):])) - {"format"}
    assert not missing, missing
    assert (found["format"], found["seed"], found["n_exact"], found["n_sample"]) == ("attn-inspect-1", 5, 6, 12)
    assert found["n_parameters"] == 134515008 and "Q4_1" in found["weights"] and found["libattn"] and found["isa"]


def test_files(attn):
    models.need(models.DECODER)
    page, svg, one = (os.path.join(WORK, name) for name in ("a.html", "a.svg", "b.svg"))
    out, err = attn("inspect", "--no-measures", "-o", page, "--svg", svg, BRIDGE)
    assert "a.html" in err
    html = open(page, encoding="utf-8").read()
    assert html.count("<script>") == 1 and "http://" not in html.replace("http://www.w3.org", "") and "https://" not in html
    attn("inspect", "--no-measures", "--layer", "13", "--head", "8", "--svg", one, BRIDGE)
    assert len(xml.dom.minidom.parse(one).getElementsByTagName("rect")) > 15 and "bridge" in open(one).read()
    thumbs = xml.dom.minidom.parse(svg).getElementsByTagName("image")[0]
    assert (thumbs.getAttribute("width"), thumbs.getAttribute("height")) == (str(9 * 72), str(30 * 72))


def pixels_of(path):
    """Rows of palette indices and the palette of a PNG, by zlib alone."""
    data, at, parts = open(path, "rb").read(), 8, {}
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    while at < len(data):
        n, name = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + n]
        assert struct.unpack(">I", data[at + 8 + n:at + 12 + n])[0] == zlib.crc32(name + body)
        parts[name] = parts.get(name, b"") + body
        at += 12 + n
    width, height = struct.unpack(">II", parts[b"IHDR"][:8])
    raw = zlib.decompress(parts[b"IDAT"])
    rows = [raw[y * (width + 1) + 1:(y + 1) * (width + 1)] for y in range(height)]
    assert len(raw) == height * (width + 1)
    return rows, [tuple(parts[b"PLTE"][3 * i:3 * i + 3]) for i in range(len(parts[b"PLTE"]) // 3)]


def test_png(attn):
    """Each cell of the picture has the colour of its weight: darker for more, by the root."""
    png, all_heads = os.path.join(WORK, "a.png"), os.path.join(WORK, "b.png")
    found = data(attn, "--no-measures", "--layer", "13", "--head", "8", "--png", png)
    attn("inspect", "--no-measures", "--png", all_heads, BRIDGE)
    rows, palette = pixels_of(png)
    m = found["maps"][0]
    light = lambda rgb: 0.2126 * rgb[0] ** 2.2 + 0.7152 * rgb[1] ** 2.2 + 0.0722 * rgb[2] ** 2.2
    for q in range(6):
        weights = row(m, 13 * 9 + 8, q)
        for k in range(6):
            index = rows[44 + q * 106 + 53][40 + k * 106 + 53]
            want = 3 + round(weights[k] ** 0.5 * 252) if k in weights else 3 if k <= q else 2
            assert abs(index - want) <= (k in weights), (q, k)  # a step where the JSON's six digits round
    assert all(light(palette[i]) > light(palette[i + 8]) for i in range(3, 248))
    assert len(pixels_of(all_heads)[0]) > 30 * 36


def long_model():
    """The shipped model's first layer under a context of 131,072 tokens."""
    folder = os.path.join(WORK, "long")
    if not os.path.exists(folder):
        shutil.copytree(os.path.join(ROOT, "models", "austen"), folder)
        path = os.path.join(folder, "config.json")
        config = json.load(open(path))
        config.update(max_position_embeddings=131072, num_hidden_layers=1)
        with open(path, "w") as file:
            json.dump(config, file)
    return folder


def test_a_long_text_stays_linear(attn):
    """16,001 tokens in 1.2 GB of address space (the matrices of 5 heads would take 5 GB): rows and largest weights alone."""
    page = os.path.join(WORK, "long.html")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1200 << 20, before[1]))  # inherited by attn
    try:
        out = attn("inspect", "--model", long_model(), "--threads", "2", "--at", "15000", "--json", "--no-measures", "-o", page,
                   "-", stdin="the river and the bank " * 2000)[0]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    found = json.loads(out)
    m, n = found["maps"][0], len(found["tokens"])
    assert n == 16001 and m["n_queries"] == n and len(m["queries"]) < n and 14999 in m["queries"]
    assert len(m["weights"]) <= 2100000 and os.path.getsize(page) < 12e6
    for head in range(5):
        at = row(m, head, m["queries"].index(14999))
        whole = m["at_rows"][head * n:(head + 1) * n]
        assert abs(sum(whole) - 1) < 1e-3 and not any(whole[15000:])
        least = sorted(whole, reverse=True)[m["most_kept"] - 1]
        assert all(abs(w - whole[k]) < 1e-6 * w + 1e-9 and w >= least * 0.999999 for k, w in at.items())


def test_terminal(attn):
    models.need(models.DECODER)
    out = attn("inspect", "--exact", "4", "--sample", "8", BRIDGE)[0]
    for wanted in ("knockout", "removal", "Rank correlation", "no cause", "gradient", "first token"):
        assert wanted in out, wanted
    read = [line for line in out.splitlines() if line.split()[:2] == ["13.8", "bridge"]]
    assert read and read[0].split()[2:4] == ["2", "0.770"]
    matrix = attn("inspect", "--no-measures", "--layer", "13", "--head", "8", BRIDGE)[0].splitlines()
    assert ".77" in next(line for line in matrix if line.split()[:2] == ["6", "it"]) and "no cause" in matrix[-2]


def test_whole_heads_in_the_terminal(attn):
    """Direct effect, mean, resample, zero, patch and path of each head, the largest by its mean first."""
    lines = attn("inspect", "--model", os.path.join(ROOT, "models", "austen"), "--exact", "4", "--sample", "6", "--heads", "--pair",
                 "It was a truth of which he had nothing", "It was a truth of which she had nothing")[0].splitlines()
    heads = [line.split() for line in lines[lines.index(next(x for x in lines if x.startswith("Whole heads"))) + 2:]][:12]
    sizes = [abs(float(h[2])) for h in heads]
    assert all(len(h) == 7 for h in heads) and sizes == sorted(sizes, reverse=True) and sizes[0] > 0.01, heads


def test_encoder_decoder(attn):
    """What the decoder reads of itself and of the encoder's text, each row summing to one; effects in all three attentions."""
    pairs, folder, out = (os.path.join(WORK, name) for name in ("pairs.tsv", "pairs", "pairs.json"))
    with open(pairs, "w") as file:
        file.writelines("the old bridge number %d\tbridge old %d\n" % (i % 17, i % 17) for i in range(200))
    attn("train", pairs, "--arch", "encdec", "-o", folder, "--layers", "2", "--heads", "2", "--width", "32", "--context", "64",
         "--vocab", "300", "--steps", "40", "--batch", "4", "--threads", "1")
    said = attn("inspect", "--model", folder, "--target", "bridge old 3", "--exact", "4", "--sample", "6", "--heads", "--json=" + out,
                "the old bridge number 3")[0]
    with open(out) as file:
        found = json.load(file)
    assert "of the encoder's text" in said and all(kind in said for kind in ("encoder ", "decoder ", "cross "))
    maps = found["maps"]
    assert [(m["attention"], m["encoder"]) for m in maps] == [(0, 1), (0, 0), (1, 0)] and found["kind"] == 2
    assert maps[2]["n_keys"] == len(found["tokens"]) and maps[2]["n_queries"] == len(found["target"])
    for m in maps:
        for head in range(4):
            for r in range(m["n_rows"]):
                weights = row(m, head, r)
                assert abs(sum(weights.values()) - 1) < 1e-4 and (m is not maps[1] or max(weights) <= r)
    assert sorted(h["map"] for h in found["measures"]["heads"]) == [0] * 4 + [1] * 4 + [2] * 4
    assert {e["map"] for e in found["measures"]["edges"]} == {0, 1, 2}


def test_run_writes_a_page(attn):
    models.need(models.DECODER)
    path = os.path.join(WORK, "run.html")
    out = attn("run", "-n", "2", "--page", path, BRIDGE)[0]
    assert path in out.splitlines()[-1] and "bridge" in open(path, encoding="utf-8").read()


def test_induction_heads_are_there_and_matter(attn):
    models.need(models.DECODER)
    shipped = json.loads(attn("inspect", "--head-tests", "--json", "--model", os.path.join(ROOT, "models", "copying"))[0])
    assert len(shipped["cut"]) == 2 and max(h["induction"] for h in shipped["heads"]) > 0.4  # a quarter of its eight heads
    assert shipped["loss_cut"] - shipped["loss_second"] > max(1, 2 * (shipped["loss_control"] - shipped["loss_second"]))
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
    assert "--layer is 30; " in attn("inspect", "--layer", "30", BRIDGE, code=2)[1]
    assert "--head is 9; " in attn("inspect", "--layer", "3", "--head", "9", BRIDGE, code=2)[1]
    assert "--head is 3, but no --layer" in attn("inspect", "--head", "3", BRIDGE, code=2)[1]
    assert "--window is 99; " in attn("inspect", "--window", "99", BRIDGE, code=2)[1]
    assert "--at is 'castle'" in attn("inspect", "--at", "castle", BRIDGE, code=2)[1]
    assert "empty" in attn("inspect", "", code=2)[1]
    assert "--target is what" in attn("inspect", "--target", "foo", BRIDGE, code=2)[1]
    assert "hold 2 of page" in attn("inspect", "--json", "-o", "-", BRIDGE, code=2)[1]
    assert "takes no text" in attn("inspect", "--head-tests", BRIDGE, code=2)[1]
    assert "makes no page" in attn("inspect", "--head-tests", "-o", "x.html", code=2)[1]
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
