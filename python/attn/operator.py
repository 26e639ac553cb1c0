"""The attention operator: forward, backward, and what attention read.

Arrays are [batch, heads, seq, dim]; the rules (masks, offsets, windows, types) are those of include/attn/attn.h.
attention() and scaled_dot_product_attention() of PyTorch tensors are differentiable; the functions that look in return NumPy
arrays, and the others refuse tensors that require gradients.
"""
from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from . import arrays, library, plans
from .arrays import (Array, ArrayLike, borrow, empty, finish, floats, integer, integers, number, refuse_gradients, wants_gradients,
                     writable)
from .context import Context, chosen
from .errors import InvalidArgument
from .library import lib


def _pointer(array: np.ndarray[Any, Any]) -> Optional[int]:
    return array.ctypes.data if array.size else None


def _four(source: ArrayLike, name: str) -> Array:
    array = borrow(source, name)
    if array.ndim != 4:
        raise InvalidArgument("%s has shape %s; [batch, heads, seq, dim] is expected" % (name, array.shape))
    return array


def _one_or_each(value: Any, name: str, length: int) -> Any:
    """An int, or an array of one for each batch entry."""
    return integer(value, name) if np.ndim(value) == 0 else integers(value, name, length)


def _fill_mask(mask: library.Mask, kept: List[Any], n_heads: int, n_groups: int, *, causal: bool = False,
               window: Optional[Sequence[int]] = None, query_offset: Any = None, kv_len: Any = None, q_len: Any = None,
               cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, allow: Optional[ArrayLike] = None,
               bias: Optional[ArrayLike] = None, alibi_slopes: Any = None, bias_offset: Any = 0, relative: Any = None,
               relative_left: int = 0, **unknown: Any) -> None:
    """Fills an attn_mask. kept collects the arrays that must outlive the call."""
    if unknown:
        raise TypeError("%s is no keyword of attention; its keywords are in help(attn.attention)" % ", ".join(unknown))

    def keep(array: np.ndarray[Any, Any]) -> Optional[int]:
        kept.append(array)
        return _pointer(array)

    if cu_seqlens_q is not None or cu_seqlens_k is not None:
        if cu_seqlens_q is None or cu_seqlens_k is None:
            raise InvalidArgument("cu_seqlens_q and cu_seqlens_k go together")
        starts_q, starts_k = integers(cu_seqlens_q, "cu_seqlens_q"), integers(cu_seqlens_k, "cu_seqlens_k")
        if len(starts_q) != len(starts_k) or len(starts_q) == 0:
            raise InvalidArgument("cu_seqlens_q has %d entries, cu_seqlens_k %d" % (len(starts_q), len(starts_k)))
        mask.cu_seqlens_q, mask.cu_seqlens_k = keep(starts_q), keep(starts_k)
        mask.n_segments = n_groups = len(starts_q) - 1
    if causal:
        mask.flags |= library.MASK_CAUSAL
    if window is not None:
        mask.flags |= library.MASK_WINDOW
        if isinstance(window, str) or not hasattr(window, "__len__") or len(window) != 2:
            raise InvalidArgument("window is %r; (left, right) is expected" % (window,))
        mask.left, mask.right = integer(window[0], "window[0]"), integer(window[1], "window[1]")
    if query_offset is not None:
        mask.flags |= library.MASK_OFFSET
        offset = _one_or_each(query_offset, "query_offset", n_groups)
        if isinstance(offset, int):
            mask.query_offset = offset
        else:
            mask.query_offsets = keep(offset)
    if kv_len is not None:
        mask.kv_len = keep(integers(kv_len, "kv_len", n_groups))
    if q_len is not None:
        mask.q_len = keep(integers(q_len, "q_len", n_groups))
    for name, given, view in (("allow", allow, mask.allow), ("bias", bias, mask.bias)):
        if given is not None:
            array = borrow(given, name)
            kept.append(array)
            array.padded().fill(view)
    if alibi_slopes is not None:
        mask.alibi_slopes = keep(floats(alibi_slopes, "alibi_slopes", (n_heads,)))
    if relative is not None:
        table, relative_left = floats(relative, "relative"), integer(relative_left, "relative_left")
        if table.ndim != 2 or table.shape[0] not in (1, n_heads) or not 0 <= relative_left < table.shape[1]:
            raise InvalidArgument("relative has shape %s and relative_left is %d; [%d or 1, left + right + 1] is expected"
                                  % (table.shape, relative_left, n_heads))
        mask.relative = keep(table)
        mask.relative_stride = table.shape[1] if table.shape[0] > 1 else 0
        mask.rel_left, mask.rel_right = relative_left, table.shape[1] - 1 - relative_left
    offset = _one_or_each(bias_offset, "bias_offset", n_groups)
    if isinstance(offset, int):
        mask.bias_offset = offset
    else:
        mask.bias_offsets = keep(offset)


def _fill_common(args: Any, kept: List[Any], n_heads: int, scale: Optional[float], softcap: float, sinks: Any) -> None:
    if scale is not None:
        args.scale = number(scale, "scale")
        args.flags |= library.SCALE_GIVEN
    args.softcap = number(softcap, "softcap")
    if sinks is not None:
        array = floats(sinks, "sinks", (n_heads,))
        kept.append(array)
        args.sinks = _pointer(array)


def split_mask(mask: Optional[ArrayLike]) -> Tuple[Optional[Array], Optional[Array]]:
    """A boolean mask as (mask, None), a float mask as (None, mask)."""
    if mask is None:
        return None, None
    array = borrow(mask, "mask")
    return (array, None) if array.code == library.BOOL else (None, array)


class Call:
    """One forward call, prepared: calling it again runs it on the arrays as they then are.

    out and lse are the arrays that it writes. Made by prepare(); running it costs one C call.
    """

    __slots__ = ("args", "context", "out", "lse", "query", "lse_array", "_kept", "_reference")

    def __init__(self, query: ArrayLike, key: ArrayLike, value: ArrayLike, *, mask: Optional[ArrayLike] = None,
                 bias: Optional[ArrayLike] = None, scale: Optional[float] = None, softcap: float = 0.0, sinks: Any = None,
                 block_table: Any = None, ring: bool = False, seq_kv: Optional[int] = None,
                 key_scale: Optional[ArrayLike] = None, value_scale: Optional[ArrayLike] = None, dropout_p: float = 0.0,
                 dropout_seed: int = 0, keep: Optional[ArrayLike] = None, out: Optional[ArrayLike] = None,
                 return_lse: bool = True, context: Optional[Context] = None, **rules: Any) -> None:
        self.args = args = library.args_init(library.SdpaArgs)
        kept: List[Any] = []
        self._kept = kept
        self._reference = byref(args)
        self.context = chosen(context)
        q, k, v = _four(query, "query"), _four(key, "key"), _four(value, "value")
        self.query = q
        allow, float_mask = split_mask(mask)
        if float_mask is not None and bias is not None:
            raise InvalidArgument("mask is a float mask and bias is given too; add them")
        if out is None:
            made, target = empty(q.shape[:3] + v.shape[3:], q)
        else:
            made, target = out, writable(out, "out")
        for array, view in ((q, args.query), (k, args.key), (v, args.value), (target.padded(), args.out)):
            kept.append(array)
            array.fill(view)
        self.out = made
        self.lse: Any = None
        self.lse_array: Optional[Array] = None
        if return_lse:
            self.lse, self.lse_array = empty(q.shape[:3], q, q.base_dtype)
            args.lse = self.lse_array.data
        _fill_mask(args.mask, kept, q.shape[1], q.shape[0], allow=allow, bias=float_mask if bias is None else bias, **rules)
        _fill_common(args, kept, q.shape[1], scale, softcap, sinks)
        self._fill_layout(block_table, ring, seq_kv, key_scale, value_scale)
        args.dropout_p, args.dropout_seed = number(dropout_p, "dropout_p"), integer(dropout_seed, "dropout_seed")
        if keep is not None:
            array = borrow(keep, "keep")
            kept.append(array)
            array.padded().fill(args.keep)

    def _fill_layout(self, block_table: Any, ring: bool, seq_kv: Optional[int], key_scale: Optional[ArrayLike],
                     value_scale: Optional[ArrayLike]) -> None:
        layout = self.args.layout
        if block_table is not None:
            table = integers(block_table, "block_table", ndim=2, dtype=np.int32)
            self._kept.append(table)
            layout.block_table, layout.block_table_stride = _pointer(table), table.shape[1]
        layout.ring = 1 if ring else 0
        layout.seq_kv = integer(seq_kv or 0, "seq_kv")
        for name, given, view in (("key_scale", key_scale, self.args.key_scale),
                                  ("value_scale", value_scale, self.args.value_scale)):
            if given is not None:
                array = borrow(given, name)
                self._kept.append(array)
                array.padded().fill(view)

    def __call__(self) -> Any:
        """Runs the call; returns out, or (out, lse) where lse was asked for."""
        self.context.forward(self._reference)
        return self.out if self.lse is None else (self.out, self.lse)

    def __reduce__(self) -> Any:
        raise TypeError("a Call cannot be copied or pickled: it points at arrays; prepare it where it is needed")

    def describe(self) -> Dict[str, Any]:
        """What the library will do: a dict of kernel, tile, tasks, splits, threads and workspace."""
        plan = library.args_init(library.SdpaPlan)
        self.context.call(lib.attn_sdpa_describe, self._reference, byref(plan))
        found = {field[0]: getattr(plan, field[0]) for field in plan._fields_ if field[0] not in ("struct_size", "reserved")}
        return {name: v.decode() if isinstance(v, bytes) else v for name, v in found.items()}


def prepare(query: ArrayLike, key: ArrayLike, value: ArrayLike, **rules: Any) -> Call:
    """A Call for attention() with these arguments: run it many times at the cost of one C call each.

    Its lse is there unless return_lse=False. It has no gradient, and refuses tensors that require one."""
    refuse_gradients("prepare", query, key, value, *rules.values())
    like = borrow(query, "query")
    if like.kind == "jax":  # whose arrays never change: out is NumPy's
        like.kind = "dlpack"
    return Call(like if like.kind == "dlpack" else query, key, value, **rules)


def attention(query: ArrayLike, key: ArrayLike, value: ArrayLike, *, return_lse: bool = False,
              context: Optional[Context] = None, **rules: Any) -> Any:
    """out = softmax(scale * query key^T + mask) value, [batch, n_heads, seq_q, value_dim].

    query [batch, n_heads, seq_q, head_dim]; key [batch, n_kv_heads, seq_kv, head_dim]; value [.., value_dim]; n_heads is a
    multiple of n_kv_heads. float32, float64, float16 or bfloat16, any strides. Keywords, all of which intersect:

    causal, window=(left, right), query_offset (an int or one per batch entry; needed for causal and window where
    seq_q != seq_kv), kv_len, q_len, cu_seqlens_q and cu_seqlens_k (packed), mask (boolean: True admits; float: added),
    bias (a float mask beside a boolean one), alibi_slopes [n_heads], bias_offset, relative [n_heads or 1, left + right + 1]
    with relative_left, scale (None: 1/sqrt(head_dim)), softcap, sinks [n_heads], dropout_p with dropout_seed or keep,
    block_table or ring with seq_kv, key_scale and value_scale (int8 keys and values), out (written in place), context.

    return_lse: also the log-sum-exp of each row, [batch, n_heads, seq_q]. A row that sees no key is 0, its lse -inf.
    Of PyTorch tensors gradients are recorded as usual: of query, key, value, a float mask or bias, relative and sinks, also
    through the log-sum-exp; a second derivative is refused. Raises InvalidArgument (naming field and value), Unsupported,
    OutOfMemory.
    """
    signature = plans.signature(query, key, value, rules)
    if signature is not None:
        signature += (return_lse,)
        found = plans.run(signature, query, key, value, rules, context)
        if found is not None:
            return found
    elif wants_gradients(query, key, value, *rules.values()):
        from . import torch_ops
        return torch_ops.differentiable(query, key, value, return_lse, context, rules)
    call = Call(query, key, value, return_lse=return_lse, context=context, **rules)
    call()
    like = call.query
    out, lse = finish(call.out, like), finish(call.lse, like)
    if signature is not None:
        plans.keep(signature, call, query, out, lse, rules)
    return (out, lse) if return_lse else out


def _known_lse(lse: ArrayLike, query: Array) -> Array:
    """The log-sum-exp that a forward pass returned, as C takes it."""
    array = borrow(lse, "lse")
    if array.shape != query.shape[:3] or array.code != query.base_dtype \
            or (array.strides != arrays.contiguous_strides(array.shape) and 0 not in array.shape):
        raise InvalidArgument("lse must be contiguous, of shape %s and float32 (float64 with a float64 query)" % (query.shape[:3],))
    return array


class Gradients(NamedTuple):
    """What attention_backward returns; None where not asked for."""

    query: Any
    key: Any
    value: Any
    bias: Any = None
    relative: Any = None
    sinks: Any = None


def attention_backward(d_out: ArrayLike, query: ArrayLike, key: ArrayLike, value: ArrayLike, out: ArrayLike, lse: ArrayLike, *,
                       d_lse: Any = None, want_bias: bool = False, want_relative: bool = False, want_sinks: bool = False,
                       context: Optional[Context] = None, **rules: Any) -> Gradients:
    """Gradients of attention() for a loss with d(loss)/d(out) = d_out (and d(loss)/d(lse) = d_lse).

    out and lse are what attention(..., return_lse=True) returned for the same arguments. The gradients of key and value
    are summed over the query heads that share them, that of bias over the axes in which it was broadcast. They have the
    shapes and types of what they belong to, that of bias float32 (float64 with a float64 query). A second derivative is refused.
    """
    refuse_gradients("attention_backward", d_out, query, key, value, out, lse, *rules.values())
    output = borrow(out, "out")
    output.writable = True  # it is only read here
    call = Call(query, key, value, out=output, return_lse=False, context=context, **rules)
    q = call.query
    lse_array = _known_lse(lse, q)
    call.args.lse = lse_array.data
    args = library.args_init(library.SdpaBackwardArgs)
    args.forward = ctypes.pointer(call.args)
    kept = [lse_array]

    def gradient(array: Array, view: library.View, code: Optional[int] = None) -> Any:
        made, target = empty(array.shape, array, code)
        kept.append(target)
        target.padded().fill(view)
        return made

    incoming = _four(d_out, "d_out")
    kept.append(incoming)
    incoming.fill(args.d_out)
    if d_lse is not None:
        d_lse = floats(d_lse, "d_lse", q.shape[:3], np.float64 if q.code == library.F64 else np.float32)
        kept.append(d_lse)
        args.d_lse = _pointer(d_lse)
    d_query = gradient(q, args.d_query)
    d_key = gradient(_four(key, "key"), args.d_key)
    d_value = gradient(_four(value, "value"), args.d_value)
    d_bias = d_relative = d_sinks = None
    if want_bias:
        bias = rules.get("bias")
        bias_array = borrow(bias, "bias") if bias is not None else split_mask(rules.get("mask"))[1]
        if bias_array is None:
            raise InvalidArgument("want_bias: there is no float mask")
        d_bias = gradient(bias_array, args.d_bias, q.base_dtype)
    if want_relative:
        if rules.get("relative") is None:
            raise InvalidArgument("want_relative: there is no relative table")
        d_relative = np.empty_like(floats(rules.get("relative"), "relative"))
        args.d_relative = _pointer(d_relative)
    if want_sinks:
        d_sinks = np.empty(q.shape[1], np.float32)
        args.d_sinks = _pointer(d_sinks)
    call.context.call(lib.attn_sdpa_backward, byref(args), None, 0)
    return Gradients(finish(d_query, q), finish(d_key, q), finish(d_value, q), finish(d_bias, q), d_relative, d_sinks)


# ---- PyTorch's operator ----------------------------------------------------------------------------
def scaled_dot_product_attention(query: ArrayLike, key: ArrayLike, value: ArrayLike, attn_mask: Optional[ArrayLike] = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: Optional[float] = None,
                                 enable_gqa: bool = False, *, return_lse: bool = False, out: Optional[ArrayLike] = None,
                                 context: Optional[Context] = None, **rules: Any) -> Any:
    """torch.nn.functional.scaled_dot_product_attention: its names and its rules.

    query (..., heads, seq_q, head_dim), key and value (..., heads, seq_kv, ...); leading axes broadcast. attn_mask is
    boolean (True admits) or float (added) and broadcasts to (..., heads, seq_q, seq_kv). is_causal is aligned top-left
    whatever the lengths, and excludes attn_mask. Different numbers of heads need enable_gqa. A row that sees no key is 0.
    Further keywords are those of attention(): query_offset (replaces top-left), window, softcap, sinks, alibi_slopes,
    kv_len, q_len, cu_seqlens_q, cu_seqlens_k, dropout_seed, ... Gradients as attention() has them.
    """
    if rules and ("causal" in rules or "mask" in rules):
        raise InvalidArgument("causal and mask are attention()'s; here they are is_causal and attn_mask")
    given = rules
    if attn_mask is not None or out is not None:
        given = {**rules, "mask": attn_mask, "out": out}
    signature = plans.signature(query, key, value, given)
    if signature is not None:
        signature += ("sdpa", dropout_p, is_causal, scale, enable_gqa, return_lse)
        found = plans.run(signature, query, key, value, given, context)
        if found is not None:
            return found
    elif wants_gradients(query, key, value, attn_mask, out, *rules.values()):
        from . import torch_ops
        return torch_ops.differentiable_sdpa(query, key, value, attn_mask, is_causal, enable_gqa, return_lse, context,
                                             {"out": out, "dropout_p": dropout_p, "scale": scale, **rules})
    q, k, v = borrow(query, "query"), borrow(key, "key"), borrow(value, "value")
    for name, array in (("query", q), ("key", k), ("value", v)):
        if array.ndim < 2:
            raise InvalidArgument("%s has shape %s; at least (seq, dim) is expected" % (name, array.shape))
    check_sdpa_mask(is_causal, attn_mask)
    mask = borrow(attn_mask, "attn_mask") if attn_mask is not None else None
    lead, n_heads, n_kv_heads = leading_axes(q.shape, k.shape, v.shape, enable_gqa)
    rules = {**rules, **top_left(is_causal, rules), "scale": scale, "dropout_p": dropout_p, "context": context}
    # Where no input has a heads axis, neither has the output.
    ndim = max(q.ndim, k.ndim, v.ndim)
    shape = (lead + (n_heads,) + (q.shape[-2], v.shape[-1]))[-max(ndim, 2):]
    made, target = (out, writable(out, "out")) if out is not None else empty(shape, q)
    if target.shape != shape:
        raise InvalidArgument("out has shape %s, expected %s" % (target.shape, shape))
    lse_made, lse_target = empty(shape[:-1], q, q.base_dtype) if return_lse else (None, None)
    lead = lead or (1,)
    q = q.broadcast(lead + (n_heads,) + q.shape[-2:])
    k = k.broadcast(lead + (n_kv_heads,) + k.shape[-2:])
    v = v.broadcast(lead + (n_kv_heads,) + v.shape[-2:])
    if mask is not None:
        mask = mask.padded(max(mask.ndim, len(lead) + 3))
        mask = mask.broadcast(lead + mask.shape[-3:]) if len(lead) > 1 else mask
    target = target.padded(len(lead) + 3)
    if lse_target is not None:
        lse_target = lse_target.padded(len(lead) + 2)
    for index in np.ndindex(*lead[:-1]):
        call = Call(_slice(q, index), _slice(k, index), _slice(v, index), mask=None if mask is None else _slice(mask, index),
                    out=_slice(target, index), return_lse=False, **rules)
        if lse_target is not None:
            call.args.lse = _slice(lse_target, index, 3).data
        call()
    made, lse_made = finish(made, borrow(query)), finish(lse_made, borrow(query))
    if signature is not None and len(lead) == 1:
        plans.keep(signature, call, query, made, lse_made, given)
    return (made, lse_made) if return_lse else made


def check_sdpa_mask(is_causal: bool, attn_mask: Optional[ArrayLike]) -> None:
    """PyTorch's rule about the two."""
    if is_causal and attn_mask is not None:
        raise InvalidArgument("attn_mask and is_causal exclude each other, as in PyTorch; attention() takes both")


def top_left(is_causal: bool, rules: Dict[str, Any]) -> Dict[str, Any]:
    """is_causal as a rule of attention(): aligned top-left unless an offset or packed sequences are given."""
    aligned = (is_causal or "window" in rules) and "query_offset" not in rules and "cu_seqlens_q" not in rules
    return {"causal": is_causal, "query_offset": 0} if aligned else {"causal": is_causal}


def leading_axes(q: Sequence[int], k: Sequence[int], v: Sequence[int], enable_gqa: bool) -> Tuple[Tuple[int, ...], int, int]:
    """(the broadcast batch axes, query heads, kv heads) of three shapes."""
    def heads(shape: Sequence[int]) -> int:
        return shape[-3] if len(shape) > 2 else 1

    try:
        lead = np.broadcast_shapes(*(tuple(shape[:-3]) for shape in (q, k, v)))
        if enable_gqa:
            kv_heads = np.broadcast_shapes((heads(k),), (heads(v),))[0]
            q_heads = heads(q)
        else:
            q_heads = kv_heads = np.broadcast_shapes((heads(q),), (heads(k),), (heads(v),))[0]
    except ValueError:
        raise InvalidArgument("shapes %s, %s, %s do not go together%s" % (
            tuple(q), tuple(k), tuple(v),
            "" if enable_gqa else " (different numbers of heads need enable_gqa)")) from None
    return tuple(lead), int(q_heads), int(kv_heads)


def _slice(array: Array, index: Tuple[int, ...], ndim: int = 4) -> Array:
    """array[index] as an Array of ndim axes."""
    offset = sum(i * s for i, s in zip(index, array.strides))
    size = arrays._ITEM_SIZES[array.code]
    rest = arrays.Array((array.data or 0) + offset * size, array.code, array.shape[len(index):], array.strides[len(index):],
                        array.writable, array.owner, array.kind, array.dtype)
    return rest.padded(ndim)


Floats = np.ndarray[Any, np.dtype[Any]]
Ints = np.ndarray[Any, np.dtype[np.int64]]


# ---- Looking in ------------------------------------------------------------------------------------
def _look(query: ArrayLike, key: ArrayLike, value: Optional[ArrayLike], lse: Optional[ArrayLike], rules: Dict[str, Any]) -> Call:
    """A Call whose value and out may be absent; lse, where given, saves a pass over the keys."""
    stand_in = value
    if value is None:
        k = _four(key, "key")
        stand_in = arrays.Array(0, k.code, k.shape[:3] + (0,), (0, 0, 0, 1), False, None, k.kind, k.dtype)
    call = Call(query, key, stand_in, return_lse=False, **rules)
    call.args.out.data = None
    if value is None:
        call.args.value = library.View()
    if lse is not None:
        array = _known_lse(lse, call.query)
        call._kept.append(array)
        call.args.lse = array.data
    return call


def _row_array(which: Any) -> Tuple[Any, Any, int]:
    """[(batch, head, query), ...] as a contiguous int64 array that is an attn_row array too, and its length."""
    if isinstance(which, str) or np.ndim(which) != 2 and not (hasattr(which, "__len__") and len(which) == 0):
        raise InvalidArgument("rows is %.80r; a list of (batch, head, query) is expected" % (which,))
    array = integers(which if len(which) else np.zeros((0, 3), np.int64), "rows", ndim=2)
    if array.shape[1] != 3:
        raise InvalidArgument("rows has shape %s; [n, 3] (batch, head, query) is expected" % (array.shape,))
    return array, ctypes.cast(array.ctypes.data, ctypes.POINTER(library.Row)), array.shape[0]


def _all_or_some(which: Any, call: Call) -> Tuple[Any, Any, int]:
    if which is None:
        b, h, n, _ = call.query.shape
        return None, None, b * h * n
    return _row_array(which)


def rows(query: ArrayLike, key: ArrayLike, which: Any, *, value: Optional[ArrayLike] = None, lse: Optional[ArrayLike] = None,
         out: Optional[ArrayLike] = None, **rules: Any) -> Any:
    """Attention weights of chosen rows: [n, seq_kv] for which = [(batch, head, query), ...]; no N x N matrix is made.

    float32 (float64 with a float64 query). Weights are those before dropout; excluded pairs are 0. lse, where known from
    attention(), saves a pass.
    """
    call = _look(query, key, value, lse, rules)
    kept, pointer, n = _row_array(which)
    n_keys = rules.get("seq_kv") or int(call.args.key.shape[2])
    if out is None:
        out = np.empty((n, n_keys), np.float64 if call.query.code == library.F64 else np.float32)
    view = library.View()
    writable(out, "out").padded().fill(view)
    call.context.call(lib.attn_sdpa_rows, call._reference, pointer, n, byref(view))
    return out


def topk(query: ArrayLike, key: ArrayLike, k: int, *, rows: Any = None, value: Optional[ArrayLike] = None,
         lse: Optional[ArrayLike] = None, **rules: Any) -> Tuple[Ints, Floats]:
    """The k most-weighted keys of chosen rows, descending: (indices [n, k] int64, weights [n, k] float32).

    rows: [(batch, head, query), ...]; None: every row, and the results are [batch, heads, seq_q, k]. Rows with fewer than k
    admitted keys end with index -1, weight 0.
    """
    k = integer(k, "k")
    if k < 0:
        raise InvalidArgument("k is %d, must be 0 or more" % k)
    call = _look(query, key, value, lse, rules)
    kept, pointer, n = _all_or_some(rows, call)
    shape = (n, k) if rows is not None else call.query.shape[:3] + (k,)
    indices, weights = np.empty(shape, np.int64), np.empty(shape, np.float32)
    call.context.call(lib.attn_sdpa_topk, call._reference, pointer, n, k, _pointer(indices), _pointer(weights))
    return indices, weights


def key_mass(query: ArrayLike, key: ArrayLike, *, value: Optional[ArrayLike] = None, lse: Optional[ArrayLike] = None,
             **rules: Any) -> Floats:
    """How much weight each key receives, summed over queries: [batch, heads, seq_kv]."""
    call = _look(query, key, value, lse, rules)
    b, h = call.query.shape[:2]
    n_keys = rules.get("seq_kv") or int(call.args.key.shape[2])
    mass = np.empty((b, h, n_keys, 1), np.float64 if call.query.code == library.F64 else np.float32)
    view = library.View()
    arrays.from_numpy(mass).fill(view)
    call.context.call(lib.attn_sdpa_key_mass, call._reference, byref(view))
    return mass[..., 0]


ROW_STAT = np.dtype([("entropy", np.float64), ("mean_distance", np.float64), ("max_weight", np.float64),
                     ("max_key", np.int64), ("key_weight", np.float64)])


def row_stats(query: ArrayLike, key: ArrayLike, *, rows: Any = None, value: Optional[ArrayLike] = None,
              lse: Optional[ArrayLike] = None, **rules: Any) -> np.ndarray[Any, Any]:
    """Statistics of chosen rows (None: every row, [batch, heads, seq_q]): a structured array with the fields entropy (nats),
    mean_distance, max_weight, max_key (-1: no key) and key_weight (1 without a sink)."""
    call = _look(query, key, value, lse, rules)
    kept, pointer, n = _all_or_some(rows, call)
    stats = np.empty((n,) if rows is not None else call.query.shape[:3], ROW_STAT)
    call.context.call(lib.attn_sdpa_row_stats, call._reference, pointer, n,
                      ctypes.cast(stats.ctypes.data, ctypes.POINTER(library.RowStat)))
    return stats


def merge(outs: Sequence[ArrayLike], lses: Sequence[ArrayLike], *, context: Optional[Context] = None) -> Tuple[Any, Floats]:
    """Combines partial results over disjoint key sets: (out, lse).

    outs: arrays [batch, heads, seq, dim] of one shape and dtype; lses: arrays [batch, heads, seq]. A part with lse -inf is
    neutral; all of them -inf gives 0 and -inf. out is in the library of outs[0], lse a NumPy array (float64 for float64 outs).
    """
    refuse_gradients("merge", *outs, *lses)
    parts = [_four(o, "outs[%d]" % p) for p, o in enumerate(outs)]
    if not parts or len(parts) != len(lses):
        raise InvalidArgument("merge needs as many lses as outs, and at least one: %d, %d" % (len(parts), len(lses)))
    dtype = np.float64 if parts[0].code == library.F64 else np.float32
    shape = parts[0].shape
    flat = [floats(l, "lses[%d]" % p, shape[:3], dtype) for p, l in enumerate(lses)]
    views = (library.View * len(parts))()
    for part, view in zip(parts, views):
        part.fill(view)
    pointers = (ctypes.c_void_p * len(parts))(*[_pointer(l) for l in flat])
    made, target = empty(shape, parts[0])
    lse = np.empty(shape[:3], dtype)
    out_view = library.View()
    target.fill(out_view)
    chosen(context).call(lib.attn_sdpa_merge, views, pointers, len(parts), byref(out_view), _pointer(lse))
    return finish(made, parts[0]), lse
