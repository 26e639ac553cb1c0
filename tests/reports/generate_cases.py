"""Runs one generation case: distribution (final probabilities), seed (the same draws whatever runs beside them)."""
import ctypes
import threading
from ctypes import byref, c_double, c_float, c_int32

from case_tensors import number
from model_binding import Sampling, function
from op_cases import Failed, Skipped

TOP_P_GIVEN, PENALTY_GIVEN = 1, 2
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


OPS = {"distribution": distribution, "seed": seed}


def run(case):
    OPS[case["op"]](case)
