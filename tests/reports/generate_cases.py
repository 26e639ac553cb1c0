"""Runs one generation case: distribution (final probabilities), seed (the same draws whatever runs beside them), generate_limit
(the end of the context)."""
import ctypes
import os
import threading
from ctypes import byref, c_double, c_float, c_int32

from attn import library
from attn import model as models
from attn import model_library
from case_tensors import number
from model_binding import Sampling, function
from op_cases import Failed, Skipped

TOP_P_GIVEN, PENALTY_GIVEN = 1, 2
IGNORE_EOS = 1
STOPS = ["length", "eos", "context", "callback", "text"]
TINY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "models", "tiny-llama.safetensors")
PARAMS = {"temp", "k", "p", "min_p", "pen", "hist"}


def sampling_of(params, seed=0):
    if set(params) - PARAMS:
        raise Skipped("sampling parameter " + ", ".join(sorted(set(params) - PARAMS)))
    sampling = Sampling()
    sampling.struct_size = ctypes.sizeof(Sampling)
    sampling.temperature = params.get("temp", 1.0)
    sampling.top_k, sampling.min_p, sampling.seed = params.get("k", 0), params.get("min_p", 0.0), seed
    if "p" in params:
        sampling.top_p, sampling.flags = params["p"], sampling.flags | TOP_P_GIVEN
    if "pen" in params:
        sampling.repetition_penalty, sampling.flags = params["pen"], sampling.flags | PENALTY_GIVEN
    history = params.get("hist", [])
    return sampling, (c_int32 * len(history))(*history), len(history)


def floats(logits):
    return (c_float * len(logits))(*[number(x) for x in logits])


def distribution(case):
    sampling, history, n_history = sampling_of(case["params"])
    logits, probs = floats(case["logits"]), (c_double * len(case["logits"]))()
    status = function("attn_sampling_distribution")(byref(sampling), logits, len(logits), history, n_history, probs)
    expect = case["expect"]
    if "error" in expect:
        text = function("attn_model_error")(None)
        if status == 0:
            raise Failed("no error; expected %s" % expect["error"])
        if not text:
            raise Failed("an error without a text")
        return
    if status:
        raise Failed("status %d: %s" % (status, function("attn_model_error")(None).decode()))
    tolerance = case.get("tol", {"abs": 1e-6})
    for i, (got, want) in enumerate(zip(probs, expect["probs"])):
        if not abs(got - want) <= tolerance["abs"] + tolerance.get("rel", 0) * abs(want) or (want == 0) != (got == 0):
            raise Failed("probability %d: got %.9g, expected %.9g" % (i, got, want))


def draw(params, seed, steps):
    """The tokens of one sequence."""
    sampling, history, n_history = sampling_of(params, seed)
    tokens, token = [], c_int32()
    for step, logits in enumerate(steps):
        status = function("attn_sampling_draw")(byref(sampling), floats(logits), len(logits), history, n_history, step, byref(token))
        if status:
            raise Failed("status %d: %s" % (status, function("attn_model_error")(None).decode()))
        tokens.append(token.value)
    return tokens


def seed(case):
    """Draws depend on seed, step, logits and options alone: not on others' draws before, between or beside them."""
    steps, params = case["logits_steps"], case["params"]
    alone = draw(params, case["seed"], steps)
    beside = []
    for n in range(len(steps)):  # step by step, with another sequence's draws between
        draw(params, 7, steps[:n + 1])
        beside.append(draw(params, case["seed"], steps[:n + 1])[n])
    if beside != alone:
        raise Failed("beside another sequence %s, alone %s" % (beside, alone))
    found = []
    workers = [threading.Thread(target=lambda s=s: found.append((s, draw(params, s, steps)))) for s in (case["seed"], 7, case["seed"], 9)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(tokens != alone for s, tokens in found if s == case["seed"]):
        raise Failed("on several threads %s, alone %s" % (found, alone))


def generate_limit(case):
    """A cache of n_ctx tokens: generation ends where it is full, and a prompt that does not fit is refused."""
    start, limit = case["prompt_len"], case["max_new"]
    model = models.Model.load(TINY, tokenizer=False)
    with models._Session(model, capacity=case["n_ctx"]) as session:
        args, api = library.args_init(model_library.GenerateArgs), model_library.load()
        prompt, tokens = (c_int32 * max(start, 1))(*[5] * start), (c_int32 * (limit + 1))(*[-7] * (limit + 1))
        length, made, reason = ctypes.c_int64(start), ctypes.c_int64(), c_int32()
        args.prompts, args.prompt_lengths, args.max_new = ctypes.addressof(prompt), ctypes.addressof(length), limit
        args.tokens, args.token_stride, args.flags = ctypes.addressof(tokens), limit, IGNORE_EOS
        args.n_generated, args.stop_reasons = ctypes.addressof(made), ctypes.addressof(reason)
        status = api.attn_generate(session, byref(args))
        expect = case["expect"]
        if "error" in expect:
            if not status or not api.attn_model_error(None):
                raise Failed("status %d without a text; expected %s" % (status, expect["error"]))
            return
        if status:
            raise Failed("status %d: %s" % (status, api.attn_model_error(None).decode()))
        if (made.value, STOPS[reason.value]) != (expect["new_tokens"], expect["stop"]):
            raise Failed("%d tokens, stop %s, expected %s" % (made.value, STOPS[reason.value], expect))
        if any(t != -7 for t in tokens[made.value:]):
            raise Failed("a write behind the %d new tokens" % made.value)


OPS = {"distribution": distribution, "seed": seed, "generate_limit": generate_limit}


def run(case):
    OPS[case["op"]](case)
