"""`attn run` on the real model: the same numbers as its golden files, sums that must hold, positions, text of all
scripts, and what is refused."""
import functools
import glob
import json
import math
import os

import harness
import models

BRIDGE = "The bridge was closed because it"
GOLDEN = os.path.join(os.path.dirname(__file__), "..", "data", "golden", "smollm2", "*.json")


@functools.lru_cache(maxsize=None)
def run(attn, *arguments, stdin=""):
    """The JSON of a run; loading the model is what takes time, so that equal runs are made once."""
    models.need(models.DECODER)
    return json.loads(attn("run", "--json", *arguments, stdin=stdin)[0])


def test_golden_files(attn):
    files = sorted(glob.glob(GOLDEN))
    models.need(models.DECODER)
    if not files:
        raise harness.Skip("no golden files at %s" % GOLDEN)
    for path in files:
        with open(path) as file:
            golden = json.load(file)
        found = run(attn, "--all-heads", "--no-cut", "--", golden["text"])
        assert found["text"] == golden["text"]
        assert found["ids"] == golden["ids"] and found["tokens"] == golden["tokens"], path
        logits = dict(zip(found["top_ids"], found["top_logits"]))
        for rank, (token, logit) in enumerate(zip(golden["top_ids"], golden["top_logits"])):
            if token in logits:
                assert abs(logits[token] - logit) <= 2e-3, (path, token)
            else:  # only the last ranks may be taken by another token that is as likely
                assert abs(logit - found["top_logits"][-1]) <= 4e-3, (path, rank)
        assert found["top_tokens"] == golden["top_tokens"] or len(set(found["top_logits"][:10])) < 10, path
        for a, b in zip(found["logprob_of_next"], golden["logprob_of_next"], strict=True):
            assert abs(a - b) <= 2e-3, path
        for mine, theirs in zip(found["last_row_attention"], golden["last_row_attention"], strict=True):
            for a, b in zip(mine, theirs, strict=True):
                assert max(abs(x - y) for x, y in zip(a, b, strict=True)) <= 1e-4, path
        for step, margin in enumerate(golden["greedy_margins"]):
            if margin < 0.01:
                break
            assert found["greedy_ids"][step] == golden["greedy_ids"][step], (path, step)
        else:
            assert found["greedy_text"] == golden["greedy_text"], path


def test_sums_hold(attn):
    found = run(attn, BRIDGE)
    top = found["top_probabilities"]
    assert all(a >= b for a, b in zip(top, top[1:])) and sum(top) <= 1 + 1e-9
    for p, logit in zip(top, found["top_logits"]):
        assert abs(math.log(p / top[0]) - (logit - found["top_logits"][0])) < 1e-4
    heads = found["reading"]["heads"]
    assert len(heads) == 12 and heads == sorted(heads, key=lambda h: (h["layer"], h["head"]))
    for h in heads:
        assert abs(sum(h["weights"]) - 1) < 1e-5
        assert abs(h["first"] + h["own"] + h["elsewhere"] - 1) < 1e-5
        assert h["largest_weight"] == max(h["weights"][1:-1]) == h["weights"][h["largest_index"]]
        assert h["cut"]["kl"] >= 0


def test_ranking_sets_the_first_token_apart(attn):
    shown = run(attn, "--show", "1000", "-n", "0", "--no-cut", BRIDGE)["reading"]["heads"]
    assert len(shown) == 270
    best = sorted(shown, key=lambda h: -h["elsewhere"])[:12]
    twelve = run(attn, BRIDGE)["reading"]["heads"]
    assert {(h["layer"], h["head"]) for h in twelve} == {(h["layer"], h["head"]) for h in best}


def test_the_lessons_story(attn):
    """Layer 13, head 8 reads "bridge" from "it" with weight 0.77."""
    heads = run(attn, "--show", "1000", "-n", "0", "--no-cut", BRIDGE)["reading"]["heads"]
    head = heads[13 * 9 + 8]
    assert (head["layer"], head["head"], head["largest_index"]) == (13, 8, 1)
    assert abs(head["largest_weight"] - 0.77) < 0.005


def test_cut_reads_back_from_the_edited_pass(attn):
    """Cutting large weights must move the logits; a cut in the last layer at an earlier position cannot, since nothing
    after it carries anything from there to the last position."""
    found = run(attn, BRIDGE)["reading"]
    assert any(abs(h["cut"]["logit_difference"] - found["logit_difference"]) > 1e-3 for h in found["heads"])
    last_layer = run(attn, "--layer", "29", "--at", "Ġwas", "-n", "0", BRIDGE)["reading"]
    assert last_layer["index"] == 2 and len(last_layer["heads"]) == 9
    for h in last_layer["heads"]:
        assert abs(h["cut"]["logit_difference"] - last_layer["logit_difference"]) < 1e-4
        assert h["largest_index"] == 1 and len(h["weights"]) == 3


def test_positions(attn):
    assert run(attn, BRIDGE)["reading"]["index"] == 5
    for where, index in [("bridge", 1), ("-2", 4)]:
        assert run(attn, "--at", where, "--head", "0", "-n", "0", "--no-cut", BRIDGE)["reading"]["index"] == index
    for where in ["7", "river"]:
        out, err = attn("run", "--at", where, BRIDGE, code=2)
        assert out == "" and "--at" in err


def test_sampling_is_repeatable(attn):
    options = ("--no-cut", "-n", "8", "--top-p", "0.9", "--seed")
    one = run(attn, *options, "5", BRIDGE)["sampled_ids"]
    assert one == run(attn, *options, "5", "--threads", "1", BRIDGE)["sampled_ids"]
    assert any(one != run(attn, *options, seed, BRIDGE)["sampled_ids"] for seed in ("6", "7", "8"))
    assert run(attn, "--top-k", "1", "-n", "8", "--no-cut", BRIDGE)["sampled_ids"] == run(attn, BRIDGE)["greedy_ids"][:8]


def test_text_view(attn):
    models.need(models.DECODER)
    for columns, words in ((80, [BRIDGE]), (120, BRIDGE.split())):
        text = attn(*words, env={"COLUMNS": str(columns)})[0]
        lines = text.splitlines()
        assert "\x1b" not in text
        view = [line for line in lines if "bridge was closed because it" not in line]
        assert max(len(line) for line in view) <= columns
        assert not any(line != line.rstrip() for line in view)
        for wanted in ["30 layers", "6 tokens", "Likeliest next tokens", "What \"it\" (position 6) reads",
                       "A weight is how much", "no cause, no explanation", "elsewhere", "first: the weight on \"The\""]:
            assert wanted in text, wanted
        assert any(line.split()[:2] == ["13", "8"] and ".77" in line for line in lines)


def test_all_scripts(attn):
    models.need(models.DECODER)
    words = "Café, 東京 😀 שלום עולם مرحبا a\nb\tc\rd\x1b[31me 👩‍👩‍👧 e\u0301 \u202e x " + "word " * 60
    out, _ = attn("run", "-n", "2", "--", words)
    assert "\x1b" not in out and "\u202e" not in out.split("Continued")[0]
    view = [line for line in out.split("What \"")[1].splitlines()]
    assert "reads most" in out and max(len(line) for line in view) <= 90  # code points; no line has 80 columns
    assert "\\xE6" in out and "\ufffd" not in out.split("Likeliest")[0]  # parts of a character show as their bytes
    assert run(attn, "-n", "0", "--no-cut", "--", words)["text"] == words


def test_standard_input_and_the_first_word(attn):
    models.need(models.DECODER)
    assert run(attn, "-n", "0", "--no-cut", "-", stdin=BRIDGE + "\n")["ids"] == run(attn, BRIDGE)["ids"]
    assert json.loads(attn("--json", "-n", "0", "--no-cut", "--", "run")[0])["text"] == "run"
    assert json.loads(attn("--threads", "1", "run", "--json", "-n", "0", "--no-cut", "x")[0])["text"] == "x"


def test_one_token(attn):
    found = run(attn, "-n", "2", "The")
    assert found["logprob_of_next"] == [] and found["reading"]["heads"][0]["weights"] == [1]
    assert "can read only itself" in attn("run", "-n", "1", "The")[0]


def test_refusals(attn):
    assert "no text" in attn("run", code=2)[1]
    models.need(models.DECODER)
    assert "empty" in attn("run", "", code=2)[1]
    assert "--layer is 30" in attn("run", "--layer", "30", BRIDGE, code=2)[1]
    assert attn("run", "-", stdin=b"ab\xff", code=1)[1]
    assert run(attn, "-n", "0", "--no-cut", "--replace-invalid", "-", stdin=b"ab\xff")["ids"]


def test_bad_option_values(attn):
    for option in ["--temp", "--top-k", "--top-p", "--min-p", "--seed", "--layer", "--head", "--threads", "-n"]:
        for value in ["x", "", "-1", "nan", "1e99", "99999999999999999999"]:
            _, err = attn("run", option, value, BRIDGE, code=2)
            assert option in err and value in err, (option, value, err)


def test_missing_model(attn):
    shipped = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(attn.path))), "models", "austen")
    if os.path.isdir(shipped):  # beside the build: what is shown where the real model cannot be had
        for command in ("run", "generate"):
            out, err = attn(command, "-n", "2", "It was", env={"XDG_CACHE_HOME": "/nowhere"})
            assert out and "small model" in err and "austen" in err, err
    for command in (["score", "/dev/null"], ["info"]):
        out, err = attn(*command, env={"XDG_CACHE_HOME": "/nowhere"}, code=3)
        assert out == "" and "/nowhere/attn" in err and "dev" in err and err.count("\n") == 1, err
    out, err = attn("--model", "/nowhere/x.gguf", "hello", code=3)
    assert out == "" and "/nowhere/x.gguf" in err
    assert attn("run", "--model", "/dev/null", "hello", code=1)[1]


harness.run(globals())
