"""Calls that were made before, kept so that the next one like it costs little.

Building the arguments costs several times the C call of a small problem. Calls on plain NumPy arrays and plain PyTorch
tensors are therefore kept per thread by everything that they depend on but the addresses (and the lengths of sequences,
which are arrays too); these are written into the kept struct each time.
"""
import ctypes
import functools
import sys
import threading

import numpy as np

from . import library
from .arrays import address
from .context import context_version
from .errors import InvalidArgument
from .library import lib

_PLANS_KEPT = 256


class _Plans(threading.local):
    def __init__(self):
        self.kept = {}


_plans = _Plans()


class _Plan:
    __slots__ = ("call", "version", "slots", "make_out", "lse_slot", "make_lse", "where", "numpy")

    def __init__(self, call, arrays, out, lse):
        """arrays: (name of the field, array) of each input that the call was made with."""
        self.call, self.version = call, context_version()
        self.slots = [_slot(call.args, _OFFSETS[name]) for name, _ in arrays]
        self.numpy = type(out) is np.ndarray
        self.where = address if self.numpy else sys.modules["torch"].Tensor.data_ptr
        self.make_out, self.make_lse = _maker(out), None
        self.slots.append(_slot(call.args, _OFFSETS["out"]))
        self.lse_slot = None
        if lse is not None:
            self.lse_slot = _slot(call.args, _OFFSETS["lse"])
            self.make_lse = _maker(lse)
        call._kept.clear()  # addresses are written anew each time
        call.out = call.lse = call.lse_array = call.query = None


_OFFSETS = {name: getattr(library.SdpaArgs, name).offset for name in ("query", "key", "value", "out", "lse")}
_OFFSETS.update({name: library.SdpaArgs.mask.offset + getattr(library.Mask, name).offset for name in ("allow", "bias", "kv_len")})


def _slot(args, offset):
    """The pointer at an offset of an argument struct, as something that can be assigned."""
    return ctypes.c_uint64.from_buffer(args, offset)


def _maker(array):
    """A function that makes another array like this one."""
    if type(array) is np.ndarray:
        return functools.partial(np.empty, array.shape, array.dtype)
    torch = sys.modules["torch"]
    return functools.partial(torch.empty_strided, tuple(array.shape), array.stride(), dtype=array.dtype)


def signature(query, key, value, out, mask, kv_len, *rest):
    """What a call depends on but for the addresses; None where it is no call on plain arrays of one library."""
    kind = type(query)
    if kind is np.ndarray:
        if type(key) is not kind or type(value) is not kind:
            return None
        if out is not None:
            if type(out) is not kind:
                return None
            rest += (out.shape, out.strides, out.dtype)
        if mask is not None:
            if type(mask) is not kind or mask.dtype == np.uint8:
                return None
            rest += (mask.shape, mask.strides, mask.dtype, True)
        if kv_len is not None:
            if type(kv_len) is not kind or kv_len.dtype != np.int64 or not kv_len.flags.c_contiguous:
                return None
            rest += (kv_len.shape, "kv_len")
        return (query.shape, query.strides, query.dtype, key.shape, key.strides, key.dtype, value.shape, value.strides,
                value.dtype, rest)
    torch = sys.modules.get("torch")
    if torch is None or kind is not torch.Tensor or type(key) is not kind or type(value) is not kind:
        return None
    for tensor in (query, key, value, out, mask):
        if tensor is not None:
            if type(tensor) is not kind or not tensor.is_cpu or tensor.layout is not torch.strided or tensor.is_neg():
                return None
            rest += (tensor.shape, tensor.stride(), tensor.dtype)
    if kv_len is not None:
        if type(kv_len) is not np.ndarray or kv_len.dtype != np.int64 or not kv_len.flags.c_contiguous:
            return None
        rest += (kv_len.shape, "kv_len")
    return (out is None, mask is None, rest)


def run(sign, query, key, value, out, mask, kv_len, return_lse):
    """Runs the kept call of this signature, or returns None where there is none."""
    # It is taken out while it runs, so that a signal handler which calls attention too cannot change it.
    kept = _plans.kept
    plan = kept.pop(sign, None)
    if plan is None or plan.version != context_version():
        return None
    where, slots = plan.where, plan.slots
    if out is None:
        out = plan.make_out()
    elif plan.numpy and not out.flags.writeable:
        raise InvalidArgument("out cannot be written to")
    slots[0].value, slots[1].value, slots[2].value, slots[-1].value = where(query), where(key), where(value), where(out)
    if mask is not None:
        slots[3].value = where(mask)
    if kv_len is not None:
        slots[-2].value = address(kv_len)
    lse = None
    if return_lse:
        lse = plan.make_lse()
        plan.lse_slot.value = where(lse)
    plan.call.context.call(lib.attn_sdpa_forward, plan.call._reference, None, 0)
    kept[sign] = plan
    return (out, lse) if return_lse else out


def keep(sign, call, query, key, value, out, lse, mask, kv_len):
    """Keeps a call that has been made for run()."""
    used = [("query", query), ("key", key), ("value", value)]
    if mask is not None:
        used.append(("allow" if str(mask.dtype) in ("bool", "torch.bool") else "bias", mask))
    if kv_len is not None:
        used.append(("kv_len", kv_len))
    kept = _plans.kept
    if len(kept) >= _PLANS_KEPT:
        kept.clear()
    kept[sign] = _Plan(call, used, out, lse)
