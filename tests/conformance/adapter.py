"""Runs the operators that other suites define (ONNX Attention and RotaryEmbedding, PyTorch's scaled_dot_product_attention and
multi_head_attention_forward, with gradients) on libattn.

run(op, attrs, inputs, dtypes) -> {output name: array}; inputs are arrays (bfloat16 as float32 of the same value), dtypes the
types they stand for. Multi-head attention is attn/layers.h of libattn_model, everything else libattn; so every number is the
library's. Operators without attention raise NotImplementedError.
"""
import math
import os
import sys

import ml_dtypes
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reports"))
import attn  # noqa: E402
from layers_library import Layers  # noqa: E402


def typed(inputs, dtypes):
    """The inputs in the types they stand for."""
    return {n: a.astype(ml_dtypes.bfloat16) if dtypes.get(n) == "bfloat16" else np.asarray(a)
            for n, a in inputs.items() if a is not None}


def all_rows(q):
    b, h, n = q.shape[:3]
    return np.stack(np.meshgrid(range(b), range(h), range(n), indexing="ij"), axis=-1).reshape(-1, 3)


def weights_of(q, k, **rules):
    """The whole matrix of weights, row by row."""
    return attn.rows(q, k, all_rows(q), **rules).reshape(q.shape[:3] + (k.shape[2],))


def usable_mask(mask, q):
    """The library takes float masks in float32 or the query's type."""
    if mask.dtype == bool or mask.dtype in (np.float32, q.dtype):
        return mask
    return mask.astype(np.float64 if q.dtype == np.float64 else np.float32)


# ---- ONNX ----------------------------------------------------------------------------------------
def split_heads(array, n_heads):
    """[batch, seq, heads * dim] seen as [batch, heads, seq, dim]."""
    batch, seq, width = array.shape
    return array.reshape(batch, seq, n_heads, width // n_heads if n_heads else 0).transpose(0, 2, 1, 3)


def score_matrix(q, k, allow, bias, scale, softcap):
    """Scores [batch, heads, seq_q, seq_kv] from the library: the log-sum-exp over one key is that key's score."""
    def column(mask, j):
        return None if mask is None else mask[..., j:j + 1] if mask.shape[-1] > 1 else mask

    columns = []
    for j in range(k.shape[2]):
        one = k[:, :, j:j + 1]
        columns.append(attn.attention(q, one, one, mask=column(allow, j), bias=column(bias, j), scale=scale,
                                      softcap=softcap, return_lse=True)[1])
    return np.stack(columns, axis=-1)


def positions_allowed(seq_q, seq_kv, offsets, causal, window, kv_len):
    """The position rules as a boolean array [batch or 1, 1, seq_q, seq_kv]."""
    i, j = np.arange(seq_q)[None, :, None], np.arange(seq_kv)[None, None, :]
    p = i + np.asarray(offsets).reshape(-1, 1, 1)
    ok = np.ones((p.shape[0], seq_q, seq_kv), bool)
    if causal:
        ok &= j <= p
    left, right = window
    if left >= 0:
        ok &= j >= p - left
    if right >= 0:
        ok &= j <= p + right
    if kv_len is not None:
        ok &= j < np.asarray(kv_len).reshape(-1, 1, 1)
    return ok[:, None]


def onnx_attention(attrs, x):
    q, k, v = x["Q"], x["K"], x["V"]
    flat = q.ndim == 3
    if flat:
        q = split_heads(q, attrs["q_num_heads"])
        k, v = split_heads(k, attrs["kv_num_heads"]), split_heads(v, attrs["kv_num_heads"])
    past = 0
    if "past_key" in x:
        past = x["past_key"].shape[2]
        k, v = np.concatenate([x["past_key"], k], axis=2), np.concatenate([x["past_value"], v], axis=2)
    seq_q, seq_kv = q.shape[2], k.shape[2]
    causal = bool(attrs.get("is_causal", 0))
    window = (attrs.get("left_window_size", -1), attrs.get("right_window_size", -1))
    offsets, kv_len, rules = past, None, {}
    if "nonpad_kv_seqlen" in x:
        kv_len = x["nonpad_kv_seqlen"].reshape(-1)
        offsets = kv_len - seq_q
        rules["kv_len"] = kv_len
    if causal or window != (-1, -1):
        rules.update(causal=causal, window=window, query_offset=offsets)
    scale, softcap = attrs.get("scale"), attrs.get("softcap", 0.0)
    mask = x.get("attn_mask")
    if mask is not None:
        missing = seq_kv - mask.shape[-1]
        if missing > 0 and mask.shape[-1] > 0:
            fill = False if mask.dtype == bool else -np.inf
            mask = np.concatenate([mask, np.full(mask.shape[:-1] + (missing,), fill, mask.dtype)], axis=-1)
        rules["mask"] = usable_mask(mask, q)
    out, lse = attn.attention(q, k, v, scale=scale, softcap=softcap, return_lse=True, **rules)
    result = {"Y": out.transpose(0, 2, 1, 3).reshape(out.shape[0], seq_q, -1) if flat else out,
              "present_key": k, "present_value": v}
    result["qk_matmul_output"] = onnx_scores(attrs.get("qk_matmul_output_mode", 0), q, k, lse, scale, softcap, rules,
                                             positions_allowed(seq_q, seq_kv, offsets, causal, window, kv_len))
    return result


def onnx_scores(mode, q, k, lse, scale, softcap, rules, ok):
    if mode == 3:
        return weights_of(q, k, scale=scale, softcap=softcap, **rules)
    mask = rules.get("mask")
    allow = bias = None
    if mode == 2:
        allow = ok
        if mask is not None and mask.dtype == bool:
            allow = allow & mask
        elif mask is not None:
            bias = mask
    return score_matrix(q, k, allow, bias, scale, softcap if mode else 0.0)


def onnx_rotary(attrs, x):
    array = x["X"]
    heads_first = array if array.ndim == 4 else split_heads(array, attrs["num_heads"])
    cos, sin, positions = x["cos_cache"], x["sin_cache"], x.get("position_ids")
    if positions is None:  # the caches hold a row for each (batch, position)
        batch, seq, half = cos.shape
        positions = np.arange(batch * seq).reshape(batch, seq)
        cos, sin = cos.reshape(-1, half), sin.reshape(-1, half)
    out = attn.rope(heads_first, rotary_dim=attrs.get("rotary_embedding_dim", 0), interleaved=bool(attrs.get("interleaved", 0)),
                    positions=positions, cos_table=cos, sin_table=sin)
    return {"Y": out if array.ndim == 4 else out.transpose(0, 2, 1, 3).reshape(array.shape)}


# ---- PyTorch -------------------------------------------------------------------------------------
def sum_to(gradient, shape):
    """A gradient summed over the axes in which its input was broadcast."""
    gradient = np.asarray(gradient)
    wide = gradient.astype(np.promote_types(gradient.dtype, np.float32) if gradient.dtype != ml_dtypes.bfloat16 else np.float32)
    while wide.ndim > len(shape):
        wide = wide.sum(axis=0)
    for axis, extent in enumerate(shape):
        if extent == 1 and wide.shape[axis] != 1:
            wide = wide.sum(axis=axis, keepdims=True)
    return wide


def torch_sdpa(attrs, x):
    if attrs.get("dropout_p"):
        raise NotImplementedError("dropout has a generator of its own")
    q, k, v, mask = x["query"], x["key"], x["value"], x.get("attn_mask")
    if mask is not None:
        mask = usable_mask(mask, q)
    causal, scale, gqa = bool(attrs.get("is_causal")), attrs.get("scale"), bool(attrs.get("enable_gqa"))
    out = attn.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=gqa)
    result = {"output": out}
    if "grad_output" in x:
        result.update(sdpa_gradients(q, k, v, mask, x["grad_output"], causal, scale, gqa))
    return result


def sdpa_gradients(q, k, v, mask, d_out, causal, scale, gqa):
    """Gradients through broadcast batch axes: the operator sees the expanded arrays, the sums come after it."""
    def heads(a):
        return a.shape[-3] if a.ndim > 2 else 1

    lead = np.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
    kv_heads = max(heads(k), heads(v)) if gqa else max(heads(q), heads(k), heads(v))
    n_heads = heads(q) if gqa else kv_heads
    batch = int(np.prod(lead, dtype=np.int64))

    def four(a, n):
        return np.broadcast_to(a, lead + (n,) + a.shape[-2:]).reshape((batch, n) + a.shape[-2:])

    q4, k4, v4, d4 = four(q, n_heads), four(k, kv_heads), four(v, kv_heads), four(d_out, n_heads)
    rules = {"causal": causal, "scale": scale}
    if causal:
        rules["query_offset"] = 0
    wide_mask = None
    if mask is not None:
        if mask.ndim > 4:
            wide_mask = np.broadcast_to(mask, lead + mask.shape[-3:])
            mask4 = wide_mask.reshape((batch,) + mask.shape[-3:])
        else:
            mask4 = mask
        rules["mask"] = mask4
    # With 16-bit inputs the backward pass reads an unrounded output: <d_out, out> would carry out's rounding into every
    # gradient of its row.
    exact = np.float64 if q.dtype == np.float64 else np.float32
    out, lse = attn.attention(q4, k4, v4, return_lse=True, out=np.empty(q4.shape[:3] + v4.shape[3:], exact), **rules)
    grads = attn.attention_backward(d4.astype(exact), q4, k4, v4, out, lse, want_bias=mask is not None and mask.dtype != bool, **rules)

    def back(gradient, n, original):
        return sum_to(np.asarray(gradient).reshape(lead + (n,) + gradient.shape[-2:]), original.shape)

    found = {"grad_query": back(grads.query, n_heads, q), "grad_key": back(grads.key, kv_heads, k),
             "grad_value": back(grads.value, kv_heads, v)}
    if grads.bias is not None:
        full = grads.bias if wide_mask is None else grads.bias.reshape(wide_mask.shape)
        found["grad_attn_mask"] = sum_to(full, mask.shape)
    return found


def mask_with_heads(mask, batch, n_heads):
    """(Sq, Sk) or (B * H, Sq, Sk) with four axes."""
    return mask.reshape((1, 1) + mask.shape if mask.ndim == 2 else (batch, n_heads) + mask.shape[1:])


def multi_head_masks(x, batch, n_heads, seq_q, dtype):
    """Boolean masks (True hides) as one that admits, and float masks as one sum; None where there is none."""
    allow = bias = None
    for name in ("attn_mask", "key_padding_mask"):
        if name not in x:
            continue
        wide = x[name].reshape(batch, 1, 1, -1) if name == "key_padding_mask" else mask_with_heads(x[name], batch, n_heads)
        if wide.dtype == bool:
            allow = ~wide if allow is None else allow & ~wide
        else:
            bias = wide.astype(dtype) if bias is None else bias + wide.astype(dtype)
    allow = None if allow is None else np.ascontiguousarray(np.broadcast_to(allow, allow.shape[:2] + (seq_q, allow.shape[3])), np.uint8)
    bias = None if bias is None else np.ascontiguousarray(np.broadcast_to(bias, bias.shape[:2] + (seq_q, bias.shape[3])))
    return allow, bias


def multi_head_weights(x):
    """The tensors of PyTorch under the names of attn_mha_weights."""
    found = {"w_out": x["out_proj_weight"]}
    matrices = np.split(x["in_proj_weight"], 3) if "in_proj_weight" in x else [x[n + "_proj_weight"] for n in "qkv"]
    found.update(zip(("w_query", "w_key", "w_value"), matrices))
    if "in_proj_bias" in x:
        found.update(zip(("b_query", "b_key", "b_value"), np.split(x["in_proj_bias"], 3)))
    if "out_proj_bias" in x:
        found["b_out"] = x["out_proj_bias"]
    if "bias_k" in x:
        found["bias_k"], found["bias_v"] = x["bias_k"].reshape(-1), x["bias_v"].reshape(-1)
    return found


def torch_multi_head(attrs, x):
    """torch's multi_head_attention_forward on (seq, batch, embed) or (seq, embed): attn_mha_forward and its backward."""
    if attrs.get("dropout_p") and attrs.get("training", True):
        raise NotImplementedError("dropout has a generator of its own")
    flat, n_heads = x["query"].ndim == 2, attrs["num_heads"]

    def rows(a):  # (seq, batch, width) as [batch, seq, width]
        return np.ascontiguousarray((a[:, None] if flat else a).transpose(1, 0, 2))

    def back(a):
        return a[0] if flat else a.transpose(1, 0, 2)

    q, k, v = (rows(x[n]) for n in ("query", "key", "value"))
    batch, seq_q = q.shape[:2]
    allow, bias = multi_head_masks(x, batch, n_heads, seq_q, q.dtype)
    d_bias = None
    if "grad_output" in x and "attn_mask" in x and x["attn_mask"].dtype != bool:
        d_bias = np.zeros(mask_with_heads(x["attn_mask"], batch, n_heads).shape, q.dtype)
    r = Layers().mha(q, k, v, n_heads, attrs["embed_dim_to_check"] // n_heads, multi_head_weights(x), bias=bias, allow=allow,
                     add_zero=attrs.get("add_zero_attn", False), average=attrs.get("average_attn_weights", True),
                     d_out=rows(x["grad_output"]) if "grad_output" in x else None, d_bias=d_bias)
    found = {"output": back(r["out"]), "weights": r["weights"][0] if flat else r["weights"]}
    if "grad_output" not in x:
        return found
    found.update({"grad_" + n: back(r["d_" + n]) for n in ("query", "key", "value")})
    joined = [r["d_w_query"], r["d_w_key"], r["d_w_value"]]
    if "in_proj_weight" in x:
        found["grad_in_proj_weight"] = np.concatenate(joined)
    else:
        found.update(zip(("grad_q_proj_weight", "grad_k_proj_weight", "grad_v_proj_weight"), joined))
    if "in_proj_bias" in x:
        found["grad_in_proj_bias"] = np.concatenate([r["d_b_query"], r["d_b_key"], r["d_b_value"]])
    found["grad_out_proj_weight"] = r["d_w_out"]
    if "out_proj_bias" in x:
        found["grad_out_proj_bias"] = r["d_b_out"]
    if "bias_k" in x:
        found["grad_bias_k"] = r["d_bias_k"].reshape(x["bias_k"].shape)
        found["grad_bias_v"] = r["d_bias_v"].reshape(x["bias_v"].shape)
    if d_bias is not None:
        found["grad_attn_mask"] = d_bias.reshape(x["attn_mask"].shape)
    return found


OPERATORS = {"Attention": onnx_attention, "RotaryEmbedding": onnx_rotary, "sdpa": torch_sdpa,
             "multi_head_attention": torch_multi_head}


def run(op, attrs, inputs, dtypes):
    """See the module's text."""
    if op in ("model_forward", "model_generate"):
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
        import hf_models
        return hf_models.run(op, attrs, inputs, dtypes)
    if op not in OPERATORS:
        raise NotImplementedError(op)
    if not math.isfinite(attrs.get("scale") or 0.0):
        raise NotImplementedError("scale %s" % attrs["scale"])
    return OPERATORS[op](attrs, typed(inputs, dtypes))
