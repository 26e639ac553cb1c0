"""`attn generate`, `attn score` and `attn info` on the real decoder."""
import functools
import json
import math
import os
import subprocess

import harness
import models

BRIDGE = "The bridge was closed because it"


@functools.lru_cache(maxsize=None)
def generate(attn, *arguments):
    models.need(models.DECODER)
    return json.loads(attn("generate", "--json", *arguments)[0])["results"]


def test_same_as_run(attn):
    models.need(models.DECODER)
    greedy = json.loads(attn("run", "--json", "--no-cut", "-n", "24", BRIDGE)[0])["greedy_ids"]
    assert generate(attn, "-n", "24", BRIDGE)[0]["generated_ids"] == greedy


def test_batch_is_as_alone(attn):
    prompts = [BRIDGE, "One", "def add(a, b):\n    return a +"]
    for options in ([], ["--seed", "3", "--temp", "0.9"]):
        together = generate(attn, "-n", "24", *options, *prompts)
        assert [r["text"] for r in together] == prompts
        for i in (0, 2):
            assert together[i] == generate(attn, "-n", "24", *options, prompts[i])[0], prompts[i]


def test_stop_text(attn):
    whole = generate(attn, "-n", "24", BRIDGE)[0]
    word = whole["generated_text"].split()[3]
    cut = generate(attn, "-n", "24", "--stop", word, BRIDGE)[0]
    assert cut["stop"] == "text" and cut["generated_text"] == whole["generated_text"].split(word)[0]
    assert whole["stop"] == "length" and len(whole["generated_ids"]) == 24
    waits = generate(attn, "-n", "24", "--stop", whole["generated_text"][-3:] + "and more", BRIDGE)[0]  # it might have become one
    assert waits["generated_text"] == whole["generated_text"]


def test_streams_text_only(attn):
    text = generate(attn, "-n", "24", BRIDGE)[0]["generated_text"]
    assert attn("generate", "-n", "24", "-", stdin=BRIDGE + "\n") == (text + "\n", "")
    both = attn("generate", "-n", "24", BRIDGE, "One")[0]
    assert "[1] " + BRIDGE + text in both and "[2] One" in both


def test_chat(attn):
    answer = generate(attn, "--chat", "-n", "12", "What is the capital of France? Answer in one word.")[0]
    assert "Paris" in answer["generated_text"]
    said = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"  # the model's template puts it in front
    text = "<|im_start|>system\n%s<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert generate(attn, "--chat", "-n", "1", "Hi")[0]["ids"] == generate(attn, "-n", "1", text % said)[0]["ids"]
    assert "invalid UTF-8 at byte 1" in attn("generate", "--chat", "-n", "1", "a\udcff", code=1)[1]
    other = generate(attn, "--system", "You answer in French.", "-n", "1", "What is the capital of France?")[0]
    assert len(other["ids"]) < len(answer["ids"]) + 10 and other["ids"] != answer["ids"]


def test_context(attn):
    models.need(models.DECODER)
    full = generate(attn, "--ctx", "10", "-n", "50", BRIDGE)[0]
    assert full["stop"] == "context" and len(full["generated_ids"]) <= 5
    assert "context of 10 tokens is full after " in attn("generate", "--ctx", "10", "-n", "50", BRIDGE)[1]
    assert "full" not in attn("generate", "--ctx", "10", "-n", "2", BRIDGE)[1]
    out, err = attn("generate", "--ctx", "3", BRIDGE, code=1)
    assert out == "" and "6 tokens" in err and "3" in err
    assert "8192" in attn("generate", "--ctx", "9000", BRIDGE, code=2)[1]


def test_cache_types(attn):
    assert "--kv-type" in attn("generate", "--kv-type", "f8", BRIDGE, code=2)[1]
    exact = generate(attn, "-n", "24", BRIDGE)[0]
    for kind, most in (("f16", 0.01), ("bf16", 0.05), ("int8", 0.2)):
        close = generate(attn, "-n", "2", "--kv-type", kind, BRIDGE)[0]
        difference = abs(close["logprobs"][0] - exact["logprobs"][0])
        assert 0 < difference < most, (kind, difference)  # 0 would be an f32 cache
        again = generate(attn, "-n", "2", "--kv-type", kind, "--threads", "1", BRIDGE)[0]
        assert again["logprobs"] == close["logprobs"], kind


def test_generate_refusals(attn):
    assert "no prompt" in attn("generate", code=2)[1]
    assert "cannot read" in attn("generate", "--lines", "/nowhere", code=1)[1]
    assert "--stop" in attn("generate", "--stop", "", "x", code=2)[1]
    assert "-n is '0'" in attn("generate", "-n", "0", "x", code=2)[1]
    models.need(models.DECODER)
    assert "empty" in attn("generate", "", code=1)[1]


def test_score_is_the_sum_of_logprobs(attn):
    models.need(models.DECODER)
    found = json.loads(attn("run", "--json", "--no-cut", "-n", "0", BRIDGE)[0])
    score = json.loads(attn("score", "--json", "-", stdin=BRIDGE)[0])
    nll = -sum(found["logprob_of_next"])
    assert abs(score["nll"] - nll) < 1e-4 and score["scored_tokens"] == 5 and score["tokens"] == 6
    assert abs(score["perplexity"] - math.exp(nll / 5)) < 1e-3 * score["perplexity"]
    assert score["scored_bytes"] == len(BRIDGE) - len("The")
    assert abs(score["bits_per_byte"] - nll / math.log(2) / score["scored_bytes"]) < 1e-6


def test_score_is_transformers(attn):
    """The sliding evaluation of Transformers' pages on perplexity, computed there (golden/score)."""
    models.need(models.DECODER)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "golden", "score", "smollm2.json")) as file:
        golden = json.load(file)
    for window in golden["windows"]:
        options = ["--ctx", str(window["ctx"]), "--stride", str(window["stride"])]
        score = json.loads(attn("score", "--json", *options, "-", stdin=golden["text"])[0])
        assert abs(score["nll"] - window["nll"]) < 2e-3, (window, score["nll"])
        assert score["scored_tokens"] == 124


def test_score_windows(attn):
    """Sliding windows against the same sums made from `attn run` on each window's tokens as text."""
    models.need(models.DECODER)
    words = "one two three four five six seven eight nine ten eleven twelve"
    whole = json.loads(attn("run", "--json", "--no-cut", "-n", "0", words)[0])
    tokens = [t.replace("Ġ", " ") for t in whole["tokens"]]
    context, stride, total, scored_to, begin = 6, 3, 0.0, 1, 0
    while scored_to < len(tokens):
        end = min(begin + context, len(tokens))
        window = json.loads(attn("run", "--json", "--no-cut", "-n", "0", "".join(tokens[begin:end]))[0])
        assert window["ids"] == whole["ids"][begin:end]
        total -= sum(window["logprob_of_next"][scored_to - begin - 1:])
        scored_to, begin = end, begin + stride
    score = json.loads(attn("score", "--json", "--ctx", "6", "--stride", "3", "-", stdin=words)[0])
    assert abs(score["nll"] - total) < 1e-3 and score["scored_tokens"] == len(tokens) - 1


def test_score_refusals(attn):
    assert "one file" in attn("score", code=2)[1]
    assert "cannot read" in attn("score", "/nowhere", code=1)[1]
    models.need(models.DECODER)
    assert "at least 2" in attn("score", "-", stdin="a", code=1)[1]
    assert "--stride" in attn("score", "--ctx", "4", "--stride", "4", "-", stdin=BRIDGE, code=2)[1]
    assert "8192" in attn("score", "--ctx", "9000", "-", stdin=BRIDGE, code=2)[1]


def test_info(attn):
    models.need(models.DECODER)
    info = json.loads(attn("info", "--json", "--tensors", "--ctx", "1000")[0])
    assert (info["layers"], info["heads"], info["kv_heads"], info["head_dim"], info["d_model"]) == (30, 9, 3, 64, 576)
    assert info["vocab_size"] == 49152 and info["parameters"] == 134515008 and info["family"] == "llama"
    assert info["cache_bytes"] == 1000 * 30 * 2 * 3 * 64 * 4
    elements = sum(math.prod(t["shape"]) for t in info["tensors"])
    assert elements == info["parameters"] and sum(t["bytes"] for t in info["tensors"]) < 99e6
    half = json.loads(attn("info", "--json", "--ctx", "1000", "--kv-type", "bf16")[0])
    assert half["cache_bytes"] * 2 == info["cache_bytes"]
    text = attn("info", "--tensors")[0]
    assert "134,515,008" in text and "token_embd.weight" in text
    assert attn("info", models.DECODER)[0] == attn("info")[0]
    assert "one too many" in attn("info", "a", "b", code=2)[1]


def test_closed_pipe_ends_quietly(attn):
    models.need(models.DECODER)
    process = subprocess.Popen([attn.path, "generate", "-n", "2000", "--ignore-end", BRIDGE], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(timeout=60) != 0
    assert b"Assert" not in process.stderr.read()


harness.run(globals())
