"""The operator on PyTorch tensors: differentiable, for torch.compile, vmap and autocast.

attention() takes the ordinary road for ordinary tensors (one autograd.Function, little overhead). Inside torch.compile,
torch.func and dispatch modes the same computation goes through the custom operators libattn::attention and
libattn::attention_backward, which have fake implementations and a vmap rule. A second derivative is refused.
"""
from typing import NamedTuple, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from . import operator

_HALF = (torch.float16, torch.bfloat16)


class Rules(NamedTuple):
    """What admits pairs and how scores are made; tensors that get no gradient are here too."""

    allow: Optional[Tensor] = None     # bool, broadcasts to [batch, n_heads, seq_q, seq_kv]
    lengths: Optional[Tensor] = None   # [batch] int64: keys that count
    starts_q: Optional[Tensor] = None  # [segments + 1] int64: packed sequences (batch 1)
    starts_k: Optional[Tensor] = None
    dropout_p: float = 0.0
    seed: int = 0
    causal: bool = False
    left: int = -1                     # the window; -1 is open
    right: int = -1
    offset: Optional[int] = None       # query i stands at key position i + offset
    scale: Optional[float] = None
    softcap: float = 0.0

    def keywords(self, bias, sinks):
        """These rules as keywords of operator.attention."""
        found = {"causal": self.causal, "scale": self.scale, "query_offset": self.offset}
        if self.left >= 0 or self.right >= 0:
            found["window"] = (self.left, self.right)
        if self.softcap:
            found["softcap"] = self.softcap
        if self.allow is not None and bias is None:
            found["mask"] = self.allow
        elif bias is not None:
            found.update(mask=self.allow, bias=bias) if self.allow is not None else found.update(mask=bias)
        if self.lengths is not None:
            found["kv_len"] = _numpy(self.lengths)
        if self.starts_q is not None:
            found.update(cu_seqlens_q=_numpy(self.starts_q), cu_seqlens_k=_numpy(self.starts_k))
        if self.dropout_p:
            found.update(dropout_p=self.dropout_p, dropout_seed=self.seed)
        if sinks is not None:
            found["sinks"] = sinks.detach().float().numpy()
        return found


def _numpy(tensor):
    return tensor if isinstance(tensor, np.ndarray) else tensor.numpy()


def lse_type(query):
    return torch.float64 if query.dtype == torch.float64 else torch.float32


def exact_out(query, value):
    """What forward keeps for backward: 16-bit outputs unrounded, so that <d_out, out> does not carry their rounding."""
    return like_query(query, value, lse_type(query))


def like_query(query, value, dtype):
    """An empty output, laid out as PyTorch's operator does it."""
    if query.shape[3] == value.shape[3]:
        return torch.empty_like(query, dtype=dtype)
    return query.new_empty(query.shape[:3] + value.shape[3:], dtype=dtype)


def usable_bias(bias, query):
    """The library takes a float mask in float32 or the query's type."""
    return bias if bias is None or bias.dtype in (torch.float32, query.dtype) else bias.to(lse_type(query))


def forward(query, key, value, bias, sinks, rules, exact):
    """(out, lse) without gradients; exact: out is float32 for 16-bit inputs."""
    out = exact_out(query, value) if exact else None
    return operator.attention(query, key, value, out=out, return_lse=True, **rules.keywords(bias, sinks))


def backward(d_out, d_lse, query, key, value, bias, sinks, out, lse, rules, want_bias, want_sinks):
    """Gradients of query, key, value, and of bias and sinks where wanted (else None)."""
    d_lse = None if d_lse is None else d_lse.contiguous().numpy()
    found = operator.attention_backward(d_out.to(out.dtype), query, key, value, out, lse, d_lse=d_lse, want_bias=want_bias,
                                        want_sinks=want_sinks, **rules.keywords(bias, sinks))
    d_bias = found.bias.to(bias.dtype) if want_bias else None
    d_sinks = torch.from_numpy(found.sinks).to(sinks.dtype) if want_sinks else None
    return found.query, found.key, found.value, d_bias, d_sinks


# ---- Ordinary tensors ------------------------------------------------------------------------------
class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, bias, sinks, rules):
        exact = query.dtype in _HALF
        out, lse = forward(query, key, value, bias, sinks, rules, exact)
        ctx.rules = rules
        ctx.save_for_backward(query, key, value, bias, sinks, out, lse)
        return out.to(query.dtype) if exact else out

    @staticmethod
    def backward(ctx, d_out):
        query, key, value, bias, sinks, out, lse = ctx.saved_tensors
        wanted = ctx.needs_input_grad[3], ctx.needs_input_grad[4]
        if torch.is_grad_enabled():  # create_graph=True: a second derivative may be asked for
            return *_Backward.apply(d_out, query, key, value, bias, sinks, out, lse, ctx.rules, *wanted), None
        return *backward(d_out, None, query, key, value, bias, sinks, out, lse, ctx.rules, *wanted), None


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, d_out, query, key, value, bias, sinks, out, lse, rules, want_bias, want_sinks):
        return backward(d_out, None, query, key, value, bias, sinks, out, lse, rules, want_bias, want_sinks)

    @staticmethod
    def backward(ctx, *gradients):
        refuse()


def refuse(*_):
    raise RuntimeError("libattn has no second derivative of attention; use attn.uninstall() around double backward")


# ---- torch.compile, torch.func and dispatch modes ---------------------------------------------------
@torch.library.custom_op("libattn::attention", mutates_args=(), device_types="cpu")
def attention_op(query: Tensor, key: Tensor, value: Tensor, bias: Optional[Tensor], sinks: Optional[Tensor],
                 allow: Optional[Tensor], lengths: Optional[Tensor], starts_q: Optional[Tensor], starts_k: Optional[Tensor],
                 dropout_p: float, seed: int, causal: bool, left: int, right: int, offset: Optional[int],
                 scale: Optional[float], softcap: float, exact: bool) -> Tuple[Tensor, Tensor]:
    """(out, lse) of [batch, heads, seq, dim] tensors. exact: out is float32 for 16-bit inputs."""
    rules = Rules(allow, lengths, starts_q, starts_k, dropout_p, seed, causal, left, right, offset, scale, softcap)
    return forward(query, key, value, bias, sinks, rules, exact)


@attention_op.register_fake
def _(query, key, value, bias, sinks, *rest):
    out = like_query(query, value, lse_type(query) if rest[-1] else query.dtype)
    return out, query.new_empty(query.shape[:3], dtype=lse_type(query))


@torch.library.custom_op("libattn::attention_backward", mutates_args=(), device_types="cpu")
def backward_op(d_out: Tensor, d_lse: Optional[Tensor], query: Tensor, key: Tensor, value: Tensor, bias: Optional[Tensor],
                sinks: Optional[Tensor], out: Tensor, lse: Tensor, allow: Optional[Tensor], lengths: Optional[Tensor],
                starts_q: Optional[Tensor], starts_k: Optional[Tensor], dropout_p: float, seed: int, causal: bool, left: int,
                right: int, offset: Optional[int], scale: Optional[float], softcap: float, want_bias: bool,
                want_sinks: bool) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value, bias and sinks; the last two are empty where they are not wanted."""
    rules = Rules(allow, lengths, starts_q, starts_k, dropout_p, seed, causal, left, right, offset, scale, softcap)
    found = backward(d_out, d_lse, query, key, value, bias, sinks, out, lse, rules, want_bias, want_sinks)
    return tuple(query.new_empty(0) if g is None else g for g in found)


@backward_op.register_fake
def _(d_out, d_lse, query, key, value, bias, sinks, out, lse, *rest):
    def like(tensor, wanted=True):
        return torch.empty_like(tensor) if wanted else query.new_empty(0)
    return like(query), like(key), like(value), like(bias, rest[-2]), like(sinks, rest[-1])


def _setup(ctx, inputs, output):
    ctx.rest = inputs[9:-1]
    ctx.save_for_backward(*inputs[:9], *output)


def _backward(ctx, d_out, d_lse):
    query, key, value, bias, sinks, allow, lengths, starts_q, starts_k, out, lse = ctx.saved_tensors
    want_bias, want_sinks = ctx.needs_input_grad[3], ctx.needs_input_grad[4]
    found = backward_op(d_out.to(out.dtype), d_lse, query, key, value, bias, sinks, out, lse, allow, lengths, starts_q,
                        starts_k, *ctx.rest, want_bias, want_sinks)
    return (*found[:3], found[3] if want_bias else None, found[4] if want_sinks else None) + (None,) * 13


attention_op.register_autograd(_backward, setup_context=_setup)
backward_op.register_autograd(refuse, setup_context=lambda ctx, inputs, output: None)


def _vmap(info, in_dims, query, key, value, bias, sinks, allow, lengths, starts_q, starts_k, *rest):
    """A mapped axis becomes part of the batch."""
    if any(axis is not None for axis in in_dims[6:9]) or in_dims[4] is not None or lengths is not None or starts_q is not None:
        raise NotImplementedError("vmap over attention with sinks, lengths or packed sequences of its own")
    size = info.batch_size

    def fold(tensor, axis):
        tensor = tensor.movedim(axis, 0) if axis is not None else tensor.unsqueeze(0).expand(size, *tensor.shape)
        return tensor.reshape(size * tensor.shape[1], *tensor.shape[2:])

    query, key, value = (fold(t, axis) for t, axis in zip((query, key, value), in_dims))

    def fold_mask(mask, axis):
        if mask is None:
            return None
        mask = mask.movedim(axis, 0) if axis is not None else mask.unsqueeze(0)
        mask = mask.reshape(mask.shape[:1] + (1,) * (5 - mask.dim()) + mask.shape[1:])
        if mask.shape[0] == 1 and mask.shape[1] == 1:
            return mask[0]
        return mask.expand(size, query.shape[0] // size, *mask.shape[2:]).reshape(query.shape[:1] + mask.shape[2:])

    out, lse = attention_op(query, key, value, fold_mask(bias, in_dims[3]), sinks, fold_mask(allow, in_dims[5]), lengths,
                            starts_q, starts_k, *rest)
    return (out.unflatten(0, (size, -1)), lse.unflatten(0, (size, -1))), (0, 0)


if hasattr(torch.library, "register_vmap"):
    torch.library.register_vmap("libattn::attention", _vmap)


def plain(*tensors):
    """Ordinary tensors outside compile, torch.func and dispatch modes: no operator of PyTorch's is needed around the call."""
    for tensor in tensors:
        if tensor is not None and type(tensor) is not Tensor and type(tensor) is not torch.nn.Parameter:
            return False
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is None \
        and torch._C._len_torch_dispatch_stack() == 0


def attention(query, key, value, *, bias=None, sinks=None, rules=Rules()):
    """out of [batch, heads, seq, dim] CPU tensors; gradients flow to query, key, value, bias and sinks.

    bias (a float mask, float32 or the query's type) broadcasts to [batch, n_heads, seq_q, seq_kv]; sinks is [n_heads].
    Raises attn's exceptions; RuntimeError where a second derivative is asked for.
    """
    wanted = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad
                                          or (bias is not None and bias.requires_grad)
                                          or (sinks is not None and sinks.requires_grad))
    if plain(query, key, value, bias, sinks):
        if wanted:
            return _Attention.apply(query, key, value, bias, sinks, rules)
        return operator.attention(query, key, value, **rules.keywords(bias, sinks))
    exact = wanted and query.dtype in _HALF
    rules = rules._replace(**{name: torch.from_numpy(array) for name, array in zip(rules._fields, rules)
                              if isinstance(array, np.ndarray)})
    out, _ = attention_op(query, key, value, bias, sinks, *rules, exact)
    return out.to(query.dtype) if exact else out
