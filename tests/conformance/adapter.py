"""Runs the operators that other suites define (ONNX Attention and RotaryEmbedding, PyTorch's scaled_dot_product_attention and
multi_head_attention_forward, with gradients) on libattn.

run(op, attrs, inputs, dtypes) -> {output name: array}; inputs are arrays (bfloat16 as float32 of the same value), dtypes the
types they stand for. Attention and its gradients are the library's; the linear projections around multi-head attention are
NumPy's, since libattn has none. Checkpoints (model_forward, model_generate) go to tests/models/hf_models.py. Operators
without attention raise NotImplementedError.
"""
import math
import os
import sys

import ml_dtypes
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import attn  # noqa: E402


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


class MultiHead:
    """torch's multi_head_attention_forward on (seq, batch, embed): projections, then the operator, then the projection out."""

    def __init__(self, attrs, x):
        self.attrs, self.x = attrs, x
        self.embed, self.n_heads = attrs["embed_dim_to_check"], attrs["num_heads"]
        self.flat = x["query"].ndim == 2
        self.inputs = [x[n][:, None] if self.flat else x[n] for n in ("query", "key", "value")]
        if "in_proj_weight" in x:
            self.weights = np.split(x["in_proj_weight"], 3)
        else:
            self.weights = [x[n] for n in ("q_proj_weight", "k_proj_weight", "v_proj_weight")]
        biases = x.get("in_proj_bias")
        self.biases = np.split(biases, 3) if biases is not None else [0.0] * 3
        self.seq_q, self.batch = self.inputs[0].shape[:2]

    def heads(self, a):
        """(seq, batch, embed) seen as [batch, heads, seq, dim]."""
        return a.reshape(a.shape[0], self.batch, self.n_heads, -1).transpose(1, 2, 0, 3)

    def joined(self, a):
        """The way back."""
        return np.asarray(a).transpose(2, 0, 1, 3).reshape(a.shape[2], self.batch, self.embed)

    def forward(self):
        q, k, v = (i @ w.T + b for i, w, b in zip(self.inputs, self.weights, self.biases))
        self.seq_kv, self.extra = k.shape[0], 0
        if "bias_k" in self.x:
            row = (1, self.batch, self.embed)
            k = np.concatenate([k, np.broadcast_to(self.x["bias_k"].reshape(1, 1, -1), row)])
            v = np.concatenate([v, np.broadcast_to(self.x["bias_v"].reshape(1, 1, -1), row)])
            self.extra += 1
        if self.attrs.get("add_zero_attn"):
            zero = np.zeros((1, self.batch, self.embed), k.dtype)
            k, v = np.concatenate([k, zero]), np.concatenate([v, zero])
            self.extra += 1
        self.q, self.k, self.v = self.heads(q), self.heads(k), self.heads(v)
        self.rules = self._masks()
        self.out, self.lse = attn.attention(self.q, self.k, self.v, return_lse=True, **self.rules)
        self.mixed = self.joined(self.out)
        y = self.mixed @ self.x["out_proj_weight"].T
        if "out_proj_bias" in self.x:
            y = y + self.x["out_proj_bias"]
        w = weights_of(self.q, self.k, **self.rules)
        if self.attrs.get("average_attn_weights", True):
            w = w.mean(axis=1)
        return {"output": y[:, 0] if self.flat else y, "weights": w[0] if self.flat else w}

    def _masks(self):
        """Boolean masks (True hides) joined into one that admits; a float mask beside it."""
        allow = bias = None

        def with_extra(m, fill):
            return np.concatenate([m, np.full(m.shape[:-1] + (self.extra,), fill, m.dtype)], axis=-1)

        for name in ("attn_mask", "key_padding_mask"):
            m = self.x.get(name)
            if m is None:
                continue
            if name == "key_padding_mask":
                m = m.reshape(self.batch, 1, 1, -1)
            elif m.ndim == 3:
                m = m.reshape(self.batch, self.n_heads, self.seq_q, -1)
            if m.dtype == bool:
                m = with_extra(~m, True)
                allow = m if allow is None else allow & m
            else:
                m = with_extra(usable_mask(m, self.q), 0)
                bias = m if bias is None else bias + m
        return {"mask": allow, "bias": bias}

    def backward(self, d_y):
        if self.flat:
            d_y = d_y[:, None]
        rows = (-1, self.embed)
        found = {"grad_out_proj_weight": d_y.reshape(rows).T @ self.mixed.reshape(rows)}
        if "out_proj_bias" in self.x:
            found["grad_out_proj_bias"] = d_y.reshape(rows).sum(axis=0)
        d_out = self.heads(d_y @ self.x["out_proj_weight"])
        bias = self.rules["bias"]
        grads = attn.attention_backward(d_out, self.q, self.k, self.v, self.out, self.lse, want_bias=bias is not None,
                                        **self.rules)
        d_q, d_k, d_v = self.joined(grads.query), self.joined(grads.key), self.joined(grads.value)
        if "bias_k" in self.x:
            found["grad_bias_k"] = d_k[self.seq_kv].sum(axis=0).reshape(self.x["bias_k"].shape)
            found["grad_bias_v"] = d_v[self.seq_kv].sum(axis=0).reshape(self.x["bias_v"].shape)
        if bias is not None and "attn_mask" in self.x:
            found["grad_attn_mask"] = grads.bias[..., :self.seq_kv].reshape(self.x["attn_mask"].shape)
        projected = [d_q, d_k[:self.seq_kv], d_v[:self.seq_kv]]
        d_weights = [d.reshape(rows).T @ i.reshape(-1, i.shape[-1]) for d, i in zip(projected, self.inputs)]
        if "in_proj_weight" in self.x:
            found["grad_in_proj_weight"] = np.concatenate(d_weights)
        else:
            found.update(zip(("grad_q_proj_weight", "grad_k_proj_weight", "grad_v_proj_weight"), d_weights))
        if "in_proj_bias" in self.x:
            found["grad_in_proj_bias"] = np.concatenate([d.reshape(rows).sum(axis=0) for d in projected])
        for name, d, w in zip(("grad_query", "grad_key", "grad_value"), projected, self.weights):
            d_input = d @ w
            found[name] = d_input[:, 0] if self.flat else d_input
        return found


def torch_multi_head(attrs, x):
    if attrs.get("dropout_p") and attrs.get("training", True):
        raise NotImplementedError("dropout has a generator of its own")
    layer = MultiHead(attrs, x)
    result = layer.forward()
    if "grad_output" in x:
        result.update(layer.backward(x["grad_output"]))
    return result


OPERATORS = {"Attention": onnx_attention, "RotaryEmbedding": onnx_rotary, "sdpa": torch_sdpa,
             "multi_head_attention": torch_multi_head}


def models():
    """The module for checkpoints; it needs libattn_model, the rest of this one does not."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
    import hf_models
    return hf_models


def run(op, attrs, inputs, dtypes):
    """See the module's text."""
    if op in ("model_forward", "model_generate"):
        return models().run(op, attrs, inputs, dtypes)
    if op not in OPERATORS:
        raise NotImplementedError(op)
    if not math.isfinite(attrs.get("scale") or 0.0):
        raise NotImplementedError("scale %s" % attrs["scale"])
    return OPERATORS[op](attrs, typed(inputs, dtypes))
