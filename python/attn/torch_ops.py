"""The operator on PyTorch tensors: differentiable, for torch.compile, vmap and autocast.

differentiable() is what attn.attention() becomes on tensors that require gradients, with all of its keywords. attention(), for
attn.install() and Transformers, knows the rules that those need, and takes the ordinary road for ordinary tensors (one
autograd.Function, little overhead). Inside torch.compile, torch.func and dispatch modes the same computation goes through the
custom operators libattn::attention and libattn::attention_backward, which have fake implementations and a vmap rule. A second
derivative is refused.
"""
import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import numpy as np
import torch
from torch import Tensor

from . import operator
from .arrays import INSIDE, refuse_gradients
from .context import Context, default_context
from .errors import InvalidArgument, Unsupported

_HALF = (torch.float16, torch.bfloat16)
_BF16_LEVELS = ("avx512bf16", "neonbf16")


class Rules(NamedTuple):
    """What admits pairs and how scores are made; tensors that get no gradient are here too."""

    allow: Optional[Tensor] = None     # bool, broadcasts to [batch, n_heads, seq_q, seq_kv]
    lengths: Any = None                # [batch] int64, NumPy or tensor: keys that count
    starts_q: Any = None               # [segments + 1] int64: packed sequences (batch 1)
    starts_k: Any = None
    seed: Union[int, Tensor, None] = 0
    dropout_p: float = 0.0
    causal: bool = False
    left: int = -1                     # the window; -1 is open
    right: int = -1
    offset: Optional[int] = None       # query i stands at key position i + offset
    scale: Optional[float] = None
    softcap: float = 0.0

    def keywords(self, bias: Optional[Tensor], sinks: Optional[Tensor]) -> Dict[str, Any]:
        """These rules as keywords of operator.attention."""
        found: Dict[str, Any] = {"causal": self.causal, "scale": self.scale, "query_offset": self.offset}
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
            found.update(dropout_p=self.dropout_p, dropout_seed=int(self.seed or 0))
        if sinks is not None:
            found["sinks"] = sinks.detach().float().numpy()
        return found


def _numpy(tensor: Any) -> Any:
    return tensor if isinstance(tensor, np.ndarray) else tensor.numpy()


def lse_type(query: Tensor) -> torch.dtype:
    return torch.float64 if query.dtype == torch.float64 else torch.float32


def keeps_exact(query: Tensor, dropout_p: float, context: Optional[Context] = None) -> bool:
    """Does forward keep an unrounded output for backward? For 16-bit tensors, but where the CPU multiplies pairs of bf16 numbers:
    products in bf16, forward and backward, need all arrays in it, and round more than an output's rounding changes."""
    if query.dtype != torch.bfloat16 or dropout_p:
        return query.dtype in _HALF
    return not (multiplies_bf16() if context is None else context.isa in _BF16_LEVELS)


@torch.compiler.assume_constant_result  # type: ignore
def multiplies_bf16() -> bool:
    """Does this thread's own context multiply pairs of bf16 numbers? A compiled program asks once, when it is made."""
    return default_context().isa in _BF16_LEVELS


def exact_out(query: Tensor, value: Tensor) -> Tensor:
    """What forward keeps for backward: 16-bit outputs unrounded, so that <d_out, out> does not carry their rounding."""
    return like_query(query, value, lse_type(query))


def like_query(query: Tensor, value: Tensor, dtype: torch.dtype) -> Tensor:
    """An empty output, laid out as PyTorch's operator does it."""
    if query.shape[3] == value.shape[3] and query.stride(3) == 1:
        return torch.empty_like(query, dtype=dtype)
    return query.new_empty(query.shape[:3] + value.shape[3:], dtype=dtype)


def lengths_of(keep: Tensor) -> Any:
    """How many keys count in each row of keep [batch, seq_kv] where these are the first ones (NumPy, int64); else None."""
    lengths = keep.sum(-1)
    first = torch.arange(keep.shape[1]) < lengths[:, None]
    return lengths.to(torch.int64).numpy() if bool((keep == first).all()) else None


def usable_bias(bias: Optional[Tensor], query: Tensor) -> Optional[Tensor]:
    """The library takes a float mask in float32 or the query's type."""
    return bias if bias is None or bias.dtype in (torch.float32, query.dtype) else bias.to(lse_type(query))


@torch.no_grad()  # type: ignore
def forward(query: Tensor, key: Tensor, value: Tensor, bias: Optional[Tensor], sinks: Optional[Tensor], rules: Rules,
            exact: bool) -> Tuple[Tensor, Tensor]:
    """(out, lse) without gradients; exact: out is float32 for 16-bit inputs."""
    out = exact_out(query, value) if exact else None
    found: Tuple[Tensor, Tensor] = operator.attention(query, key, value, out=out, return_lse=True, **rules.keywords(bias, sinks))
    return found


@torch.no_grad()  # type: ignore
def backward(d_out: Tensor, d_lse: Optional[Tensor], query: Tensor, key: Tensor, value: Tensor, bias: Optional[Tensor],
             sinks: Optional[Tensor], out: Tensor, lse: Tensor, rules: Rules, want_bias: bool,
             want_sinks: bool) -> Tuple[Tensor, Tensor, Tensor, Optional[Tensor], Optional[Tensor]]:
    """Gradients of query, key, value, and of bias and sinks where wanted (else None)."""
    found = operator.attention_backward(d_out.to(out.dtype), query, key, value, out, lse, d_lse=d_lse, want_bias=want_bias,
                                        want_sinks=want_sinks, **rules.keywords(bias, sinks))
    d_bias = found.bias.to(bias.dtype) if want_bias and bias is not None else None
    d_sinks = torch.from_numpy(found.sinks).to(sinks.dtype) if want_sinks and sinks is not None else None
    return found.query, found.key, found.value, d_bias, d_sinks


# ---- Ordinary tensors ------------------------------------------------------------------------------
class _Attention(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Optional[Tensor], sinks: Optional[Tensor],
                rules: Rules) -> Tensor:
        exact = keeps_exact(query, rules.dropout_p)
        out, lse = forward(query, key, value, bias, sinks, rules, exact)
        ctx.rules = rules
        ctx.save_for_backward(query, key, value, bias, sinks, out, lse)
        return out.to(query.dtype) if exact else out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> Any:
        saved = ctx.saved_tensors
        wanted = ctx.needs_input_grad[3], ctx.needs_input_grad[4]
        return *_once(lambda: backward(d_out, None, *saved, ctx.rules, *wanted), d_out, *saved), None


class _Once(torch.autograd.Function):  # type: ignore[misc]
    """Gradients as a function of tensors whose own gradient is refused."""

    @staticmethod
    def forward(ctx: Any, compute: Any, *tensors: Any) -> Any:
        return compute()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        refuse()


def _once(compute: Any, *tensors: Any) -> Any:
    """compute(); where create_graph=True announces a second derivative, one that refuses to give it."""
    return _Once.apply(compute, *tensors) if torch.is_grad_enabled() else compute()


def refuse(*_: Any) -> Any:
    raise RuntimeError("libattn has no second derivative of attention; use attn.uninstall() around double backward")


# ---- torch.compile, torch.func and dispatch modes ---------------------------------------------------
@torch.library.custom_op("libattn::attention", mutates_args=(), device_types="cpu")  # type: ignore
def attention_op(query: Tensor, key: Tensor, value: Tensor, bias: Optional[Tensor], sinks: Optional[Tensor],
                 allow: Optional[Tensor], lengths: Optional[Tensor], starts_q: Optional[Tensor], starts_k: Optional[Tensor],
                 seed: Optional[Tensor], dropout_p: float, causal: bool, left: int, right: int, offset: Optional[int],
                 scale: Optional[float], softcap: float, exact: bool) -> Tuple[Tensor, Tensor]:
    """(out, lse) of [batch, heads, seq, dim] tensors. exact: out is float32 for 16-bit inputs."""
    rules = Rules(allow, lengths, starts_q, starts_k, seed, dropout_p, causal, left, right, offset, scale, softcap)
    out, lse = forward(query, key, value, bias, sinks, rules, exact)
    return out, lse


@attention_op.register_fake  # type: ignore
def _(query: Tensor, key: Tensor, value: Tensor, bias: Optional[Tensor], sinks: Optional[Tensor], *rest: Any) -> Any:
    out = like_query(query, value, lse_type(query) if rest[-1] else query.dtype)
    return out, query.new_empty(query.shape[:3], dtype=lse_type(query))


@torch.library.custom_op("libattn::attention_backward", mutates_args=(), device_types="cpu")  # type: ignore
def backward_op(d_out: Tensor, d_lse: Optional[Tensor], query: Tensor, key: Tensor, value: Tensor, bias: Optional[Tensor],
                sinks: Optional[Tensor], out: Tensor, lse: Tensor, allow: Optional[Tensor], lengths: Optional[Tensor],
                starts_q: Optional[Tensor], starts_k: Optional[Tensor], seed: Optional[Tensor], dropout_p: float, causal: bool,
                left: int, right: int, offset: Optional[int], scale: Optional[float], softcap: float, want_bias: bool,
                want_sinks: bool) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value, bias and sinks; the last two are empty where they are not wanted."""
    rules = Rules(allow, lengths, starts_q, starts_k, seed, dropout_p, causal, left, right, offset, scale, softcap)
    found = backward(d_out, d_lse, query, key, value, bias, sinks, out, lse, rules, want_bias, want_sinks)
    return tuple(query.new_empty(0) if g is None else g for g in found)


@backward_op.register_fake  # type: ignore
def _(d_out: Tensor, d_lse: Optional[Tensor], query: Tensor, key: Tensor, value: Tensor, bias: Optional[Tensor],
      sinks: Optional[Tensor], out: Tensor, lse: Tensor, *rest: Any) -> Any:
    def like(tensor: Any, wanted: bool = True) -> Tensor:
        return torch.empty_like(tensor) if wanted else query.new_empty(0)
    return like(query), like(key), like(value), like(bias, rest[-2]), like(sinks, rest[-1])


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.rest = inputs[10:-1]
    ctx.save_for_backward(*inputs[:10], *output)


def _backward(ctx: Any, d_out: Tensor, d_lse: Tensor) -> Any:
    query, key, value, bias, sinks, allow, lengths, starts_q, starts_k, seed, out, lse = ctx.saved_tensors
    want_bias, want_sinks = ctx.needs_input_grad[3], ctx.needs_input_grad[4]
    found = backward_op(d_out.to(out.dtype), d_lse, query, key, value, bias, sinks, out, lse, allow, lengths, starts_q,
                        starts_k, seed, *ctx.rest, want_bias, want_sinks)
    return (*found[:3], found[3] if want_bias else None, found[4] if want_sinks else None) + (None,) * 13


attention_op.register_autograd(_backward, setup_context=_setup)
backward_op.register_autograd(refuse, setup_context=lambda ctx, inputs, output: None)


def _vmap(info: Any, in_dims: Any, query: Tensor, key: Tensor, value: Tensor, bias: Optional[Tensor], sinks: Optional[Tensor],
          allow: Optional[Tensor], lengths: Optional[Tensor], starts_q: Optional[Tensor], starts_k: Optional[Tensor],
          *rest: Any) -> Any:
    """A mapped axis becomes part of the batch."""
    if any(axis is not None for axis in in_dims[6:10]) or in_dims[4] is not None or lengths is not None or starts_q is not None:
        raise NotImplementedError("vmap over attention with sinks, lengths or packed sequences of its own")
    size = info.batch_size

    def fold(tensor: Tensor, axis: Optional[int]) -> Tensor:
        tensor = tensor.movedim(axis, 0) if axis is not None else tensor.unsqueeze(0).expand(size, *tensor.shape)
        return tensor.reshape(size * tensor.shape[1], *tensor.shape[2:])

    query, key, value = (fold(t, axis) for t, axis in zip((query, key, value), in_dims))

    def fold_mask(mask: Optional[Tensor], axis: Optional[int]) -> Optional[Tensor]:
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


def recorded() -> bool:
    """Do torch.compile, torch.export or torch.jit.trace look on? What Python does beside operators of PyTorch is lost on them."""
    return bool(torch.compiler.is_compiling()) or torch._C._get_tracing_state() is not None


def plain(*tensors: Any) -> bool:
    """Ordinary tensors outside compile, torch.func and dispatch modes: no operator of PyTorch's is needed around the call."""
    for tensor in tensors:
        if tensor is not None and type(tensor) is not Tensor and type(tensor) is not torch.nn.Parameter:
            return False
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is None \
        and torch._C._len_torch_dispatch_stack() == 0


def attention(query: Tensor, key: Tensor, value: Tensor, *, bias: Optional[Tensor] = None, sinks: Optional[Tensor] = None,
              rules: Rules = Rules()) -> Tensor:
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
    exact = wanted and keeps_exact(query, rules.dropout_p)
    rules = rules._replace(**{name: torch.from_numpy(array) for name, array in zip(rules._fields, rules)
                              if isinstance(array, np.ndarray)})
    if not isinstance(rules.seed, Tensor):
        rules = rules._replace(seed=torch.tensor(rules.seed) if rules.dropout_p else None)
    out, _ = attention_op(query, key, value, bias, sinks, *rules, exact)
    return out.to(query.dtype) if exact else out


# ---- attn.attention() and attn.rope() on tensors that require gradients -------------------------------
_DIFFERENTIABLE = ("mask", "bias", "sinks", "relative")


class _AnyRules(torch.autograd.Function):  # type: ignore[misc]
    """operator.attention with any keywords; names are those of `more`."""

    @staticmethod
    def forward(ctx: Any, rules: Dict[str, Any], names: List[str], query: Tensor, key: Tensor, value: Tensor,
                *more: Tensor) -> Tuple[Tensor, Tensor]:
        exact = keeps_exact(query, rules.get("dropout_p") or 0.0, rules.get("context"))
        rules = {**rules, **{name: tensor.detach() for name, tensor in zip(names, more)}}
        out, lse = operator.attention(query, key, value, out=exact_out(query, value) if exact else None, return_lse=True, **rules)
        ctx.rules, ctx.names = rules, names
        ctx.save_for_backward(query, key, value, out, lse, *more)
        return out.to(query.dtype) if exact else out, lse

    @staticmethod
    def backward(ctx: Any, d_out: Tensor, d_lse: Tensor) -> Any:
        query, key, value, out, lse, *more = ctx.saved_tensors
        wanted = dict(zip(ctx.names, ctx.needs_input_grad[5:]))

        def compute() -> Any:
            found = operator.attention_backward(
                d_out.to(out.dtype), query, key, value, out, lse, d_lse=d_lse, want_sinks=wanted.get("sinks", False),
                want_bias=wanted.get("mask", False) or wanted.get("bias", False), want_relative=wanted.get("relative", False),
                **ctx.rules)
            of = {"mask": found.bias, "bias": found.bias, "sinks": found.sinks, "relative": found.relative}
            extra = (torch.as_tensor(of[name]).to(tensor.dtype) if wanted[name] else None for name, tensor in zip(ctx.names, more))
            return (found.query, found.key, found.value, *extra)
        return (None, None, *_once(compute, d_out, d_lse, *ctx.saved_tensors))


def differentiable(query: Any, key: Any, value: Any, return_lse: bool, context: Optional[Context], rules: Dict[str, Any]) -> Any:
    """operator.attention() with gradients of query, key, value, a float mask or bias, sinks and relative."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise Unsupported("query" + INSIDE)
    if not all(isinstance(tensor, Tensor) for tensor in (query, key, value)):
        refuse_gradients("attention of arrays that are no tensors", *rules.values())
    rules = dict(rules, context=context)
    if rules.pop("out", None) is not None:
        raise InvalidArgument("out is given and gradients are to be recorded: leave it out, or use torch.no_grad()")
    names = [name for name in _DIFFERENTIABLE if isinstance(rules.get(name), Tensor) and rules[name].is_floating_point()]
    out, lse = _AnyRules.apply(rules, names, query, key, value, *(rules.pop(name) for name in names))
    return (out, lse) if return_lse else out


def differentiable_sdpa(query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor], is_causal: bool, enable_gqa: bool,
                        return_lse: bool, context: Optional[Context], rules: Dict[str, Any]) -> Any:
    """operator.scaled_dot_product_attention() with gradients: batch axes are broadcast and folded by PyTorch."""
    operator.check_sdpa_mask(is_causal, mask)
    lead, n_heads, n_kv_heads = operator.leading_axes(query.shape, key.shape, value.shape, enable_gqa)
    ndim = max(query.dim(), key.dim(), value.dim())

    def fold(tensor: Tensor, heads: int) -> Tensor:
        return tensor.expand(*lead, heads, *tensor.shape[-2:]).reshape(math.prod(lead), heads, *tensor.shape[-2:])

    four = fold(query, n_heads), fold(key, n_kv_heads), fold(value, n_kv_heads)
    if mask is not None and mask.dim() > 3:
        mask = mask.expand(*lead, *mask.shape[-3:]).reshape(math.prod(lead), *mask.shape[-3:])
    out, lse = differentiable(*four, True, context, {**rules, **operator.top_left(is_causal, rules), "mask": mask})
    shape = (*lead, n_heads, query.shape[-2], value.shape[-1])[-max(ndim, 2):]
    out, lse = out.reshape(shape), lse.reshape(shape[:-1])
    return (out, lse) if return_lse else out


class _Rope(torch.autograd.Function):  # type: ignore[misc]
    """attn.rope, whose gradient is the rotation back."""

    @staticmethod
    def forward(ctx: Any, rope: Any, x: Tensor, rules: Dict[str, Any]) -> Tensor:
        ctx.rope, ctx.rules = rope, rules
        return rope(x, **rules)

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> Any:
        return None, _Rope.apply(ctx.rope, d_out, {**ctx.rules, "inverse": not ctx.rules["inverse"]}), None


def differentiable_rope(rope: Any, x: Tensor, rules: Dict[str, Any]) -> Tensor:
    """attn.rope(x, **rules) with its gradient, of any order."""
    return _Rope.apply(rope, x, rules)
