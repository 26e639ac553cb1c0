"""attn.install(): PyTorch's scaled_dot_product_attention on CPU tensors through libattn, forward and backward.

Two custom operators, libattn::sdpa and libattn::sdpa_backward, carry autograd, torch.compile (fake implementations) and vmap.
What libattn does not cover goes to PyTorch unchanged: other devices and types, nested tensors, more than four axes, masks of
another type, and calls so small that PyTorch's own path costs less.
"""
import contextlib
from typing import Optional, Tuple

import torch
import torch.nn.functional as functional

from . import arrays, library, operator
from .context import default_context
from .library import lib

_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_original = functional.scaled_dot_product_attention


def _rules(mask, dropout_p, seed, is_causal, scale):
    return {"mask": mask, "dropout_p": dropout_p, "dropout_seed": seed, "causal": is_causal, "scale": scale,
            "query_offset": 0 if is_causal else None}


def _lse_type(query):
    return torch.float64 if query.dtype == torch.float64 else torch.float32


def _exact_out(query, value):
    """What forward keeps for backward: 16-bit outputs unrounded, so that <d_out, out> does not carry their rounding."""
    return torch.empty(query.shape[:3] + value.shape[3:], dtype=_lse_type(query))


@torch.library.custom_op("libattn::sdpa", mutates_args=(), device_types="cpu")
def sdpa(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Optional[torch.Tensor], dropout_p: float,
         seed: int, is_causal: bool, scale: Optional[float], exact: bool) -> Tuple[torch.Tensor, torch.Tensor]:
    """(out, lse) of [batch, heads, seq, dim] tensors. exact: out is float32 for 16-bit inputs."""
    out = _exact_out(query, value) if exact else None
    return operator.attention(query, key, value, out=out, return_lse=True, **_rules(mask, dropout_p, seed, is_causal, scale))


@sdpa.register_fake
def _(query, key, value, mask, dropout_p, seed, is_causal, scale, exact):
    shape = query.shape[:3] + value.shape[3:]
    return query.new_empty(shape, dtype=_lse_type(query) if exact else query.dtype), \
        query.new_empty(query.shape[:3], dtype=_lse_type(query))


@torch.library.custom_op("libattn::sdpa_backward", mutates_args=(), device_types="cpu")
def sdpa_backward(d_out: torch.Tensor, d_lse: Optional[torch.Tensor], query: torch.Tensor, key: torch.Tensor,
                  value: torch.Tensor, mask: Optional[torch.Tensor], out: torch.Tensor, lse: torch.Tensor, dropout_p: float,
                  seed: int, is_causal: bool, scale: Optional[float],
                  want_mask: bool) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of query, key, value and (where wanted; else empty) the float mask."""
    found = operator.attention_backward(d_out, query, key, value, out, lse, d_lse=None if d_lse is None else d_lse.numpy(),
                                        want_bias=want_mask, **_rules(mask, dropout_p, seed, is_causal, scale))
    return found.query, found.key, found.value, found.bias.to(mask.dtype) if want_mask else query.new_empty(0)


@sdpa_backward.register_fake
def _(d_out, d_lse, query, key, value, mask, out, lse, dropout_p, seed, is_causal, scale, want_mask):
    return torch.empty_like(query, memory_format=torch.contiguous_format), \
        torch.empty_like(key, memory_format=torch.contiguous_format), \
        torch.empty_like(value, memory_format=torch.contiguous_format), \
        torch.empty_like(mask, memory_format=torch.contiguous_format) if want_mask else query.new_empty(0)


def _setup(ctx, inputs, output):
    query, key, value, mask, ctx.dropout_p, ctx.seed, ctx.is_causal, ctx.scale, _ = inputs
    ctx.save_for_backward(query, key, value, mask, *output)


def _backward(ctx, d_out, d_lse):
    query, key, value, mask, out, lse = ctx.saved_tensors
    want_mask = mask is not None and ctx.needs_input_grad[3]
    found = sdpa_backward(d_out.to(out.dtype), d_lse, query, key, value, mask, out, lse, ctx.dropout_p, ctx.seed,
                          ctx.is_causal, ctx.scale, want_mask)
    return found[0], found[1], found[2], found[3] if want_mask else None, None, None, None, None, None


sdpa.register_autograd(_backward, setup_context=_setup)


def _refuse(ctx, *gradients):
    raise RuntimeError("libattn has no second derivative of attention; use attn.uninstall() around double backward")


sdpa_backward.register_autograd(_refuse, setup_context=lambda ctx, inputs, output: None)


def _vmap(info, in_dims, query, key, value, mask, dropout_p, seed, is_causal, scale, exact):
    """A mapped axis becomes part of the batch."""
    size = info.batch_size

    def fold(tensor, axis):
        tensor = tensor.movedim(axis, 0) if axis is not None else tensor.unsqueeze(0).expand(size, *tensor.shape)
        return tensor.reshape(size * tensor.shape[1], *tensor.shape[2:])

    if mask is not None:
        while mask.dim() - (in_dims[3] is not None) < 4:
            mask = mask.unsqueeze(0 if in_dims[3] is None else in_dims[3] + 1)
        if in_dims[3] is not None or mask.shape[0] > 1:
            mask = fold(mask, in_dims[3])
            if mask.shape[0] == size and query.dim() and fold(query, in_dims[0]).shape[0] != size:
                mask = mask.repeat_interleave(fold(query, in_dims[0]).shape[0] // size, 0)
    out, lse = sdpa(fold(query, in_dims[0]), fold(key, in_dims[1]), fold(value, in_dims[2]), mask, dropout_p, seed, is_causal,
                    scale, exact)
    return (out.unflatten(0, (size, -1)), lse.unflatten(0, (size, -1))), (0, 0)


if hasattr(torch.library, "register_vmap"):
    torch.library.register_vmap("libattn::sdpa", _vmap)


# Calls with fewer multiply-adds go to PyTorch: below it the custom operator's own cost shows. On a busy AMD Zen 3, one
# thread, float32, head_dim 64, 8 heads, the two were equal at 256 x 256 (2^25) and this one 1.4 times faster at 1024 x 1024.
SMALLEST_CALL = 1 << 25


def covered(query, key, value, mask, is_causal, enable_gqa):
    """Does libattn take this call?"""
    for tensor in (query, key, value):
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cpu" or tensor.dtype not in _TYPES \
                or tensor.dtype != query.dtype or tensor.layout != torch.strided or tensor.dim() not in (3, 4) \
                or tensor.dim() != query.dim():
            return False
    batch, heads = query.shape[0], query.shape[-3]
    if key.shape[:-1] != value.shape[:-1] or key.shape[-1] != query.shape[-1] or query.shape[-1] == 0:
        return False
    if query.dim() == 4 and key.shape[0] != batch:
        return False
    if heads != key.shape[-3] and not (enable_gqa and key.shape[-3] and heads % key.shape[-3] == 0):
        return False
    if mask is not None:
        if is_causal or mask.device.type != "cpu" or mask.layout != torch.strided or mask.dim() > 4 \
                or mask.dtype not in (torch.bool, query.dtype, torch.float32):
            return False
        full = (batch if query.dim() == 4 else 1, heads, query.shape[-2], key.shape[-2])
        if any(extent not in (1, want) for extent, want in zip(mask.shape[::-1], full[::-1])):
            return False
    return True


def large(query, key, value):
    """Is the call large enough to gain from libattn?"""
    return query.numel() * key.shape[-2] >= SMALLEST_CALL


def _plain(*tensors):
    """Ordinary tensors outside compile, vmap and dispatch modes: no operator of PyTorch's is needed around the call."""
    return all(type(t) in (torch.Tensor, torch.nn.Parameter) for t in tensors) and not torch.compiler.is_compiling() \
        and torch._C._functorch.peek_interpreter_stack() is None and torch._C._len_torch_dispatch_stack() == 0


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """torch.nn.functional.scaled_dot_product_attention, served by libattn where it covers the call."""
    if torch.is_autocast_enabled("cpu") and isinstance(query, torch.Tensor) and query.is_floating_point():
        to = torch.get_autocast_dtype("cpu")
        query, key, value = query.to(to), key.to(to), value.to(to)
        attn_mask = attn_mask.to(to) if attn_mask is not None and attn_mask.is_floating_point() else attn_mask
    if not covered(query, key, value, attn_mask, is_causal, enable_gqa) or not large(query, key, value):
        return _original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
                         enable_gqa=enable_gqa)
    flat = query.dim() == 3
    if flat:
        query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
    mask_grad = attn_mask is not None and attn_mask.requires_grad
    grad = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad or mask_grad)
    seed = int(torch.randint(1 << 62, ()).item()) if dropout_p > 0.0 else 0
    if not grad and _plain(query, key, value):
        out = operator.attention(query, key, value, **_rules(attn_mask, dropout_p, seed, is_causal, scale))
        return out.squeeze(0) if flat else out
    exact = grad and query.dtype in (torch.float16, torch.bfloat16)
    out, _ = sdpa(query, key, value, attn_mask, dropout_p, seed, is_causal, scale, exact)
    out = out.to(query.dtype) if exact else out
    return out.squeeze(0) if flat else out


# ---- Below PyTorch: the two ATen operators of its CPU flash attention -------------------------------
_dispatcher = None


def _aten_forward(query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    mask = attn_mask if attn_mask is None or attn_mask.dtype in (query.dtype, torch.float32) else attn_mask.to(_lse_type(query))
    return operator.attention(query, key, value, return_lse=True, **_rules(mask, 0.0, 0, is_causal, scale))


def _aten_backward(d_out, query, key, value, out, lse, dropout_p, is_causal, *, attn_mask=None, scale=None):
    mask = attn_mask if attn_mask is None or attn_mask.dtype in (query.dtype, torch.float32) else attn_mask.to(_lse_type(query))
    rules = _rules(mask, 0.0, 0, is_causal, scale)
    if out.dtype in (torch.float16, torch.bfloat16):  # see _exact_out; here it must be computed again
        out = operator.attention(query, key, value, out=_exact_out(query, value), **rules)
    found = operator.attention_backward(d_out.to(out.dtype), query, key, value, out, lse.contiguous(), **rules)
    return found.query, found.key, found.value


def install(dispatcher=False):
    """Makes torch.nn.functional.scaled_dot_product_attention use libattn on CPU tensors.

    dispatcher: also replace aten::_scaled_dot_product_flash_attention_for_cpu and its backward, which catches callers that
    hold the original function (nn.MultiheadAttention, compiled code). Installing twice is fine.
    """
    global _dispatcher
    default_context()  # fails here, with the reason, rather than inside a model
    functional.scaled_dot_product_attention = scaled_dot_product_attention
    if dispatcher and _dispatcher is None:
        _dispatcher = torch.library.Library("aten", "IMPL")
        _dispatcher.impl("_scaled_dot_product_flash_attention_for_cpu", _aten_forward, "CPU", allow_override=True)
        _dispatcher.impl("_scaled_dot_product_flash_attention_for_cpu_backward", _aten_backward, "CPU", allow_override=True)


def uninstall():
    """Puts PyTorch's own operators back."""
    global _dispatcher
    functional.scaled_dot_product_attention = _original
    if _dispatcher is not None:
        _dispatcher._destroy()
        _dispatcher = None


@contextlib.contextmanager
def installed(dispatcher=False):
    """with attn.installed(): ... - install() for a block; what was installed before stays so."""
    was, had = functional.scaled_dot_product_attention, _dispatcher
    install(dispatcher)
    try:
        yield
    finally:
        if was is _original:
            uninstall()
