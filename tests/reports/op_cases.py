"""Runs one case of the attention operator (op fwd, bwd, decode, merge) on the library."""
import numpy as np

import attn
from case_tensors import Guarded, convert, disagreement, spread, tensor, values, widen

ERRORS = {"invalid_argument": attn.InvalidArgument, "unsupported": attn.Unsupported, "out_of_memory": attn.OutOfMemory}


class Skipped(Exception):
    """The library or this runner does not offer what the case asks for; the text names the feature."""


class Failed(Exception):
    """The result is wrong; the text says how."""


def rules_of(case, shapes):
    """The flags of a case as keywords of attn.attention."""
    flags = dict(case.get("flags", {}))
    batch, seq_q, seq_kv = shapes
    rules = {"causal": bool(flags.pop("causal", False))}
    window = flags.pop("window", None)
    if window is not None:
        rules["window"] = tuple(window)
    align, q_pos = flags.pop("align", "top_left"), flags.pop("q_pos", None)
    kv_lens, q_lens = flags.pop("kv_lens", None), flags.pop("q_lens", None)
    starts_q, starts_k = flags.pop("cu_seqlens_q", None), flags.pop("cu_seqlens_k", None)
    if starts_q is not None:
        rules.update(cu_seqlens_q=starts_q, cu_seqlens_k=starts_k)
        lengths = list(zip(np.diff(starts_q), np.diff(starts_k)))
    else:
        lengths = list(zip(q_lens or [seq_q] * batch, kv_lens or [seq_kv] * batch))
    if rules["causal"] or window is not None:
        if q_pos is not None:
            rules["query_offset"] = q_pos
        elif align == "bottom_right":
            rules["query_offset"] = [int(k - q) for q, k in lengths]
        elif align == "top_left":
            rules["query_offset"] = 0
        else:
            raise Skipped("align %s" % align)
    if kv_lens is not None:
        rules["kv_len"] = kv_lens
    if q_lens is not None:
        rules["q_len"] = q_lens
    for theirs, ours in (("scale", "scale"), ("softcap", "softcap"), ("sinks", "sinks"), ("alibi_slopes", "alibi_slopes"),
                         ("alibi_offset", "bias_offset"), ("dropout_p", "dropout_p")):
        value = flags.pop(theirs, None)
        if value is not None:
            rules[ours] = value
    if flags:
        raise Skipped("flag " + ", ".join(sorted(flags)))
    return rules


class OpCase:
    """A case at one dtype in one layout. layout: "given" (buffers as strided views), "copied" (contiguous, a guard page
    behind every array) or "spread" (another axis order, padding, last stride 2)."""

    def __init__(self, case, dtype, layout, context):
        self.case, self.dtype, self.layout, self.context = case, dtype, layout, context
        self.guard = Guarded()
        inputs = {}
        for name, spec in case.get("inputs", {}).items():
            typed = name in ("q", "k", "v", "dout", "outs")
            inputs[name] = self._place(tensor(spec, dtype if typed else "f64" if dtype == "f64" and name in ("lses", "dlse")
                                              else "f32"))
        self.inputs = inputs

    def _place(self, array):
        if self.layout == "copied":
            return self.guard.copy(array)
        return spread(array) if self.layout == "spread" else array

    def rules(self):
        q, k = self.inputs["q"], self.inputs["k"]
        rules = rules_of(self.case, (q.shape[0], q.shape[2], k.shape[2]))
        for name in ("mask", "keep"):
            if name in self.inputs:
                rules[name] = self.inputs[name]
        rules["context"] = self.context
        return rules

    def run(self):
        """The outputs of the case by name."""
        operation = getattr(self, "_" + self.case["op"], None)
        if operation is None:
            raise Skipped("op " + self.case["op"])
        try:
            return operation()
        except attn.Unsupported as error:
            raise Skipped(str(error)) from error
        except AttributeError as error:
            if "undefined symbol" in str(error):
                raise Skipped(str(error).split(": ")[-1]) from error
            raise

    def _output(self, like_shape):
        """An output array in the case's dtype, guarded in the copied layout."""
        dtype = self.inputs["q"].dtype
        if self.layout == "copied":
            return self.guard.empty(like_shape, dtype)
        made = np.empty(like_shape, dtype)
        return spread(made) if self.layout == "spread" else made

    def _forward(self, rules):
        q, k, v = (self.inputs[n] for n in "qkv")
        out, lse = attn.attention(q, k, v, return_lse=True, out=self._output(q.shape[:3] + v.shape[3:]), **rules)
        return out, lse

    def _fwd(self):
        rules = self.rules()
        if "storage" in self.case:
            rules.update(self._quantised())
        out, lse = self._forward(rules)
        results = {"out": out, "lse": lse}
        expect = self.case["expect"]
        if "weights" in expect or "weights_mean" in expect:
            q, k = self.inputs["q"], self.inputs["k"]
            which = [(b, h, i) for b in range(q.shape[0]) for h in range(q.shape[1]) for i in range(q.shape[2])]
            rules.pop("dropout_p", None), rules.pop("keep", None)
            weights = attn.rows(q, k, which, lse=lse, **rules).reshape(q.shape[:3] + (k.shape[2],))
            results.update(weights=weights, weights_mean=weights.mean(axis=1))
        return results

    def _quantised(self):
        """k and v as this library stores quantised keys: int8 with one scale per token and head (q8_0 has one per 32)."""
        if set(self.case["storage"].values()) != {"q8_0"}:
            raise Skipped("storage %s" % self.case["storage"])
        scales = {}
        for name, ours in (("k", "key_scale"), ("v", "value_scale")):
            x = widen(self.inputs[name])
            scale = np.abs(x).max(axis=3, keepdims=True) / 127
            self.inputs[name] = self._place(np.rint(x / np.where(scale == 0, 1, scale)).astype(np.int8))
            scales[ours] = self._place(scale.astype(np.float32))
        return scales

    def _bwd(self):
        rules = self.rules()
        q, k, v = (self.inputs[n] for n in "qkv")
        out, lse = self._forward(rules)
        wanted = set(self.case["expect"]) | set(self.case["expect"].get("sample", {}))
        found = attn.attention_backward(self.inputs["dout"], q, k, v, out, lse, d_lse=self.inputs.get("dlse"),
                                        want_bias="dmask" in wanted, want_sinks="dsinks" in wanted, **rules)
        results = {"out": out, "lse": lse, "dq": found.query, "dk": found.key, "dv": found.value}
        if found.bias is not None:
            results["dmask"] = found.bias
        if found.sinks is not None:
            results["dsinks"] = found.sinks
        return results

    def _merge(self):
        outs, lses = self.inputs["outs"], self.inputs["lses"]
        out, lse = attn.merge(list(outs), list(lses), context=self.context)
        return {"out": out, "lse": lse}

    def _decode(self):
        """Chunk by chunk through a cache; contiguous and paged must agree to the bit."""
        plain, paged = self._decode_through({}), self._decode_through({"block_size": 16})
        for name in plain:
            if plain[name].tobytes() != paged[name].tobytes():
                raise Failed("%s of a paged cache differs from that of a contiguous one" % name)
        return plain

    def _decode_through(self, storage):
        q, k, v = (self.inputs[n] for n in "qkv")
        rules = self.rules()
        rules.pop("query_offset", None)
        mask = rules.pop("mask", None)
        cache = attn.KVCache(q.shape[0], k.shape[1], k.shape[2], k.shape[3], v.shape[3], q.dtype, **storage)
        outs, lses, at = [], [], 0
        for n in self.case["chunks"]:
            now = slice(at, at + n)
            if mask is not None:
                rules["mask"] = mask[..., now, :] if mask.shape[-2] > 1 else mask
            out, lse = cache.decode(q[:, :, now], k[:, :, now], v[:, :, now], return_lse=True, **rules)
            outs.append(np.asarray(out)), lses.append(np.asarray(lse))
            at += n
        return {"out": np.concatenate(outs, axis=2), "lse": np.concatenate(lses, axis=2)}


def compare(case, dtype, results):
    """Checks results against the case's expect; raises Failed."""
    expect, compared = case["expect"], 0
    for name, spec in expect.items():
        if name == "sample":
            continue
        if name in results:
            compared += 1
            _check(case, dtype, name, results[name], values(spec))
        elif name not in case.get("optional_outputs", []):
            raise Failed("no output %s" % name)
    for name, spec in expect.get("sample", {}).items():
        if name not in results:
            raise Failed("no output %s" % name)
        got = widen(results[name])
        if got.shape != tuple(spec["shape"]):
            raise Failed("%s has shape %s, expected %s" % (name, got.shape, tuple(spec["shape"])))
        compared += 1
        _check(case, dtype, name, got.ravel()[spec["index"]], values({"shape": [len(spec["index"])], "data": spec["data"]}))
    if compared == 0:
        raise Failed("nothing was compared")


def _check(case, dtype, name, got, want):
    # The gradient of the sinks is float32 in the C interface, whatever the query is.
    tolerance = case["tol"]["f32" if name == "dsinks" and dtype == "f64" and "f32" in case["tol"] else dtype]
    problem = disagreement(got, want, tolerance)
    if problem:
        raise Failed("%s: %s" % (name, problem))


def expect_error(case, op_case):
    """The call must end with the named error (or, with any_of or allow_error beside results, may)."""
    wanted = case["expect"]["error"]
    kinds = [ERRORS.get(w, attn.AttnError) for w in ([wanted] if isinstance(wanted, str) else wanted)]
    try:
        op_case.run()
    except tuple(kinds):
        return
    except Skipped as skipped:
        if isinstance(skipped.__cause__, tuple(kinds)):
            return
        raise
    raise Failed("no error; expected %s" % wanted)


def same_bits(case, dtype, contexts):
    """All outputs are the same to the bit on 1, 2, 3 and 4 threads."""
    first = None
    for threads, context in contexts.items():
        found = {n: np.asarray(a).tobytes() for n, a in OpCase(case, dtype, "given", context).run().items()}
        first = first or (threads, found)
        for name in found:
            if found[name] != first[1][name]:
                raise Failed("%s differs between %d and %d threads" % (name, first[0], threads))


def batch_invariant(case, dtype, context):
    """Each batch entry alone gives the same bits as in the batch."""
    whole = OpCase(case, dtype, "given", context).run()
    for b in range(case["inputs"]["q"]["shape"][0]):
        alone = OpCase(case, dtype, "given", context)
        for name, array in alone.inputs.items():
            # An axis of extent 1 broadcasts over the batch and stays.
            if array.ndim == 4 and array.shape[0] > 1:
                alone.inputs[name] = array[b:b + 1]
        alone.case = dict(case, flags={n: ([v[b]] if n in ("kv_lens", "q_lens", "q_pos") else v)
                                       for n, v in case.get("flags", {}).items()})
        for name, array in alone.run().items():
            if name not in ("dmask", "dsinks") and np.asarray(array).tobytes() != np.ascontiguousarray(
                    np.asarray(whole[name])[b:b + 1]).tobytes():
                raise Failed("%s of batch entry %d alone differs from that in the batch" % (name, b))


def run(case, dtype, contexts):
    """One case at one dtype; contexts: {threads: context} at one instruction-set level. Raises Skipped or Failed."""
    context = contexts[min(contexts)]
    run_dtype = "f32" if dtype == "q8_0" else dtype
    layouts = ("given", "copied", "spread")
    if "error" in case["expect"]:
        for layout in layouts:
            expect_error(case, OpCase(case, run_dtype, layout, context))
        return
    try:
        for layout in layouts:
            try:
                compare(case, dtype, OpCase(case, run_dtype, layout, context).run())
            except Failed as failed:
                raise Failed("%s layout: %s" % (layout, failed)) from None
        # Cheap, so it is asked of every case and not only where `checks` names it.
        same_bits(case, run_dtype, contexts)
        if "batch_invariant" in case.get("checks", []):
            batch_invariant(case, run_dtype, context)
    except attn.AttnError as error:
        if ERRORS.get(case.get("allow_error")) is type(error):
            return
        raise Failed("%s: %s" % (type(error).__name__, error)) from error
