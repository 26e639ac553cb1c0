"""attn.install(): PyTorch's scaled_dot_product_attention on CPU tensors through libattn, forward and backward.

What libattn does not cover goes to PyTorch unchanged: other devices and types, nested tensors, more than four axes, masks of
another type, forward-mode derivatives, subclasses of tensors, torch.export, torch.jit and torch.fx, and calls so small that
PyTorch's own path costs less.
"""
from __future__ import annotations

import contextlib
from typing import Any, Iterator, Optional, Tuple, Union

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad

from . import operator, plans, torch_ops
from .context import default_context

_MASK_TYPES = (type(None), Tensor)
_ORDINARY = (torch.nn.Parameter, FakeTensor, FunctionalTensor)
_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_exporting = getattr(torch.compiler, "is_exporting", lambda: False)  # PyTorch 2.7
_tracing = torch._C._get_tracing_state
_NO_RULES: plans.Rules = {}
_original = functional.scaled_dot_product_attention

# Calls with a smaller product of query elements and keys go to PyTorch. Measured with causal f32 problems of 4, 12 and 24 heads,
# 16 to 512 tokens, one thread of a busy AMD Zen 3: forward 0.98x to 0.99x at 2^20 to 2^21.6 and 1.25x at 2^22.6; with gradients
# 0.97x at 2^22.6 and 1.12x at 2^23.6. bench/python.py shows single rows.
SMALLEST_CALL = 1 << 22
SMALLEST_CALL_WITH_GRADIENTS = 1 << 23
SMALLEST_KEY = 1 << 12  # in elements: 16 keys of 4 heads of 64


# torch.jit.script compiles the sources of Python functions; of this one it takes PyTorch's operator instead.
_JIT_BUILTIN = "aten::scaled_dot_product_attention"


def _foreign(*given: Any) -> bool:
    """Is any of these no ordinary tensor: a class that decides for itself what operators do (DTensor, jagged nested tensors),
    a proxy of torch.fx, or no tensor at all? What torch.compile traces with is ordinary."""
    return any(tensor is not None and type(tensor) is not Tensor and not isinstance(tensor, _ORDINARY) for tensor in given)


def covered(query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor], dropout_p: float, is_causal: bool,
            enable_gqa: bool) -> bool:
    """Does libattn take this call?"""
    for tensor in (query, key, value):
        if not isinstance(tensor, torch.Tensor) or tensor.is_nested or tensor.device.type != "cpu" or tensor.dtype not in _TYPES \
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
    return torch.compiler.is_compiling() or (forward_ad._current_level < 0 and _only_vmap(dropout_p))


def _only_vmap(dropout_p: float) -> bool:
    """Custom operators know torch.func.vmap, and not torch.func.grad, jvp and the like, nor the seeds of mapped dropout."""
    stack = torch._C._functorch.get_interpreter_stack()
    return not stack or (dropout_p == 0.0 and all(level.key() == torch._C._functorch.TransformType.Vmap for level in stack))


def _pytorch(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], dropout_p: float, is_causal: bool,
             scale: Optional[float], enable_gqa: bool) -> Tensor:
    if scale is None and not enable_gqa:
        return _original(query, key, value, attn_mask, dropout_p, is_causal)
    return _original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


def dropout_seed(dropout_p: float) -> Union[int, Tensor]:
    """A seed from PyTorch's generator, so that torch.manual_seed repeats the pattern; a tensor while torch.compile looks on."""
    if dropout_p == 0.0:
        return 0
    seed = torch.randint(1 << 62, ())
    return seed if torch.compiler.is_compiling() else int(seed.item())


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: Optional[float] = None,
                                 enable_gqa: bool = False) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention, served by libattn where it covers the call."""
    try:
        # First of all, with one look, the calls that take PyTorch some ten microseconds: a second look costs 2 % of them.
        if type(key) is Tensor and key.numel() < SMALLEST_KEY and scale is None and not enable_gqa:
            return _original(query, key, value, attn_mask, dropout_p, is_causal)
        if _exporting() or _tracing() is not None:  # what is recorded runs elsewhere: the program stays PyTorch's
            return _pytorch(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        if (type(query) is not Tensor or type(key) is not Tensor or type(value) is not Tensor
                or type(attn_mask) not in _MASK_TYPES) and _foreign(query, key, value, attn_mask):
            return _pytorch(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        size = query.numel() * key.size(-2)
    except (AttributeError, IndexError, RuntimeError):  # no tensor, or a nested one
        size = -1
    # PyTorch's own kernel gives NaN for causal rows with a scale of 0 or below: such calls stay here, however small.
    small = scale is None or scale > 0 or not is_causal
    if small and size < SMALLEST_CALL:
        return _pytorch(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    wanted = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad
                                          or (attn_mask is not None and attn_mask.requires_grad))
    if small and wanted and size < SMALLEST_CALL_WITH_GRADIENTS:
        return _pytorch(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    signature = None
    if not wanted and attn_mask is None and dropout_p == 0.0 and not torch.is_autocast_enabled("cpu") \
            and torch_ops.plain(query, key, value):
        signature = plans.signature(query, key, value, _NO_RULES)
        if signature is not None:
            signature += ("torch", is_causal, scale, enable_gqa)
            found: Optional[Tensor] = plans.run(signature, query, key, value, _NO_RULES)
            if found is not None:
                return found
    if torch.is_autocast_enabled("cpu") and query.is_floating_point():
        to = torch.get_autocast_dtype("cpu")
        query, key, value = query.to(to), key.to(to), value.to(to)
        attn_mask = attn_mask.to(to) if attn_mask is not None and attn_mask.is_floating_point() else attn_mask
    if not covered(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa):
        return _pytorch(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    four = [t.unsqueeze(0) if t.dim() == 3 else t for t in (query, key, value)]
    offset = 0 if is_causal else None
    if signature is not None:
        call = operator.Call(*four, return_lse=False, causal=is_causal, query_offset=offset, scale=scale)
        out = call()
    else:
        allow, bias = (attn_mask, None) if attn_mask is not None and attn_mask.dtype == torch.bool else (None, attn_mask)
        lengths = None
        if allow is not None and allow.shape == (four[0].shape[0], 1, 1, four[1].shape[2]) and torch_ops.plain(allow, *four):
            lengths = torch_ops.lengths_of(allow[:, 0, 0])  # padding at the end is skipped, not masked
            allow = allow if lengths is None else None
        rules = torch_ops.Rules(allow=allow, lengths=lengths, dropout_p=dropout_p, seed=dropout_seed(dropout_p),
                                causal=is_causal, offset=offset, scale=scale)
        out = torch_ops.attention(*four, bias=bias, rules=rules)
    out = out.squeeze(0) if query.dim() == 3 else out
    if signature is not None:
        plans.keep(signature, call, query, out, None, _NO_RULES)
    return out


# ---- Below PyTorch: the two ATen operators of its CPU flash attention -------------------------------
_FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"
_dispatcher: Any = None
_kernels: Tuple[Any, Any] = (None, None)  # PyTorch's own, forward and backward, where it lets them be kept (2.9)


def _aten_rules(dropout_p: float, is_causal: bool, scale: Optional[float]) -> torch_ops.Rules:
    if dropout_p:  # PyTorch's kernel has no dropout, and its choice of kernels knows that
        raise NotImplementedError("%s with dropout_p %g" % (_FLASH, dropout_p))
    return torch_ops.Rules(causal=is_causal, offset=0 if is_causal else None, scale=scale)


def _aten_small(kernel: Any, query: Tensor, key: Tensor, is_causal: bool, scale: Optional[float], least: int) -> bool:
    """Whether a call goes back to PyTorch's kernel, by the limits of scaled_dot_product_attention() above."""
    return kernel is not None and (scale is None or scale > 0 or not is_causal) and query.numel() * key.size(-2) < least


def _aten_forward(keys: Any, query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
                  attn_mask: Optional[Tensor] = None, scale: Optional[float] = None) -> Tuple[Tensor, Tensor]:
    if _aten_small(_kernels[0], query, key, is_causal, scale, SMALLEST_CALL):
        found: Tuple[Tensor, Tensor] = _kernels[0].call_boxed(keys, query, key, value, dropout_p, is_causal,
                                                              attn_mask=attn_mask, scale=scale)
        return found
    out, lse = torch_ops.forward(query, key, value, torch_ops.usable_bias(attn_mask, query), None,
                                 _aten_rules(dropout_p, is_causal, scale), False)
    return out, lse


def _aten_backward(keys: Any, d_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor,
                   dropout_p: float, is_causal: bool, *, attn_mask: Optional[Tensor] = None,
                   scale: Optional[float] = None) -> Tuple[Tensor, Tensor, Tensor]:
    if _aten_small(_kernels[1], query, key, is_causal, scale, SMALLEST_CALL_WITH_GRADIENTS):
        given: Tuple[Tensor, Tensor, Tensor] = _kernels[1].call_boxed(keys, d_out, query, key, value, out, lse, dropout_p,
                                                                      is_causal, attn_mask=attn_mask, scale=scale)
        return given
    bias, rules = torch_ops.usable_bias(attn_mask, query), _aten_rules(dropout_p, is_causal, scale)
    if torch_ops.keeps_exact(query, dropout_p):  # the forward operator could not return it: it must be computed again
        out, lse = torch_ops.forward(query, key, value, bias, None, rules, True)
    found = torch_ops.backward(d_out, None, query, key, value, bias, None, out, lse.contiguous(), rules, False, False)
    return found[0], found[1], found[2]


def install(dispatcher: bool = False) -> None:
    """Makes torch.nn.functional.scaled_dot_product_attention use libattn on CPU tensors.

    dispatcher: also replace aten::_scaled_dot_product_flash_attention_for_cpu and its backward, which catches callers that
    hold the original function (nn.MultiheadAttention, compiled code). Installing twice is fine.
    """
    global _dispatcher, _kernels
    default_context()  # fails here, with the reason, rather than inside a model
    functional.scaled_dot_product_attention = scaled_dot_product_attention
    torch.jit._builtins._register_builtin(scaled_dot_product_attention, _JIT_BUILTIN)
    if dispatcher and _dispatcher is None:
        if hasattr(torch.library, "get_kernel"):
            _kernels = torch.library.get_kernel(_FLASH, "CPU"), torch.library.get_kernel(_FLASH + "_backward", "CPU")
        _dispatcher = torch.library.Library("aten", "IMPL")
        for name, function in ((_FLASH, _aten_forward), (_FLASH + "_backward", _aten_backward)):
            _dispatcher.impl(name.split("::")[1], function, "CPU", with_keyset=True, allow_override=True)


def uninstall() -> None:
    """Puts PyTorch's own operators back."""
    global _dispatcher
    functional.scaled_dot_product_attention = _original
    if _dispatcher is not None:
        _dispatcher._destroy()
        _dispatcher = None


@contextlib.contextmanager
def installed(dispatcher: bool = False) -> Iterator[None]:
    """with attn.installed(): ... - install() for a block; what was installed before stays so."""
    was, had = functional.scaled_dot_product_attention, _dispatcher
    install(dispatcher)
    try:
        yield
    finally:
        if was is _original:
            uninstall()
        elif had is None and _dispatcher is not None:
            uninstall()
            install()
