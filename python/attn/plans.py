"""Calls that were made before, kept so that the next one like it costs little.

Building the arguments costs several times the C call of a small problem. Calls on plain NumPy arrays and plain PyTorch
tensors are therefore kept per thread by everything that they depend on but the addresses of arrays, which are written into the
kept struct each time. All keywords take part: arrays by their shape, strides and type; numbers and short lists by value.
"""
from __future__ import annotations

import ctypes
import functools
import sys
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np

from . import arrays, library
from .arrays import address, borrow
from .context import Context, chosen, context_version, default_context
from .errors import InvalidArgument

Rules = Dict[str, Any]
Signature = Tuple[Any, ...]

_PLANS_KEPT = 256
_LONGEST_LIST = 64
_NUMBERS = frozenset({type(None), bool, int, float})
# Keywords that take arrays of any strides, and those whose arrays are taken as they are in one type only, when contiguous.
_VIEWS = frozenset({"out", "mask", "bias", "keep", "key_scale", "value_scale"})
_INT64, _FLOAT32, _INT32 = np.dtype(np.int64), np.dtype(np.float32), np.dtype(np.int32)
_FLAT = {"kv_len": _INT64, "q_len": _INT64, "cu_seqlens_q": _INT64, "cu_seqlens_k": _INT64, "query_offset": _INT64,
         "bias_offset": _INT64, "alibi_slopes": _FLOAT32, "relative": _FLOAT32, "sinks": _FLOAT32, "block_table": _INT32}


class _Plans(threading.local):
    def __init__(self) -> None:
        self.kept: Dict[Signature, _Plan] = {}


_plans = _Plans()


# ---- Where addresses stand in the arguments ----------------------------------------------------------
def _offsets() -> Dict[str, int]:
    args, mask, layout = library.SdpaArgs, library.SdpaArgs.mask.offset, library.SdpaArgs.layout.offset
    found = {name: getattr(args, name).offset
             for name in ("query", "key", "value", "out", "lse", "keep", "key_scale", "value_scale", "sinks", "dropout_seed")}
    for name in ("allow", "bias", "kv_len", "q_len", "cu_seqlens_q", "cu_seqlens_k", "alibi_slopes", "relative"):
        found[name] = mask + getattr(library.Mask, name).offset
    found["query_offset"] = mask + library.Mask.query_offsets.offset
    found["bias_offset"] = mask + library.Mask.bias_offsets.offset
    found["block_table"] = layout + library.KvLayout.block_table.offset
    return found


_OFFSETS = _offsets()


def _slot(args: library.SdpaArgs, name: str) -> ctypes.c_uint64:
    """The pointer (or the seed) of a field of the arguments, as something that can be assigned."""
    return ctypes.c_uint64.from_buffer(args, _OFFSETS[name])


def _tensor_address(tensor: Any) -> int:
    return tensor.data_ptr()  # type: ignore[no-any-return]


def _itself(number: int) -> int:
    return number


def _maker(array: Any) -> Callable[[], Any]:
    """A function that makes another array like this one."""
    if type(array) is np.ndarray:
        return functools.partial(np.empty, array.shape, array.dtype)
    torch = sys.modules["torch"]
    return functools.partial(torch.empty_strided, tuple(array.shape), array.stride(), dtype=array.dtype)


class _Plan:
    __slots__ = ("call", "context", "version", "query", "key", "value", "out", "lse", "more", "make_out", "make_lse", "where")

    def __init__(self, call: Any, query: Any, out: Any, lse: Any, rules: Rules) -> None:
        args = call.args
        self.call, self.context, self.version = call, default_context(), context_version()
        self.query, self.key, self.value, self.out, self.lse = (
            _slot(args, name) for name in ("query", "key", "value", "out", "lse"))
        self.where: Callable[[Any], int] = address if type(query) is np.ndarray else _tensor_address
        self.make_out = None if rules.get("out") is not None else _maker(out)
        self.make_lse = None if lse is None else _maker(lse)
        self.more: List[Tuple[str, ctypes.c_uint64, Callable[[Any], int]]] = []
        for name, given in rules.items():
            if name == "dropout_seed":
                self.more.append((name, _slot(args, name), _itself))
            elif name != "out" and type(given) not in _NUMBERS and type(given) not in (list, tuple):
                field = name if name != "mask" else "allow" if borrow(given).code == library.BOOL else "bias"
                find = address if type(given) is np.ndarray else _tensor_address
                self.more.append((name, _slot(args, field), find))
        # Addresses are written anew each time; what was made of lists stays.
        users = [a for a in rules.values() if type(a) is np.ndarray]
        call._kept[:] = [a for a in call._kept if type(a) is np.ndarray and not any(np.may_share_memory(a, u) for u in users)]
        call.out = call.lse = call.lse_array = call.query = call.context = None


# ---- What a call depends on -------------------------------------------------------------------------
def _is_plain_tensor(array: Any, torch: Any) -> bool:
    return type(array) is torch.Tensor and array.is_cpu and array.layout is torch.strided and not array.is_neg() \
        and not (array.requires_grad and torch.is_grad_enabled())


def _part(name: str, given: Any) -> Optional[Signature]:
    """What a keyword that is no number adds to the signature; None where such a call is not kept."""
    kind = type(given)
    if name == "dropout_seed":
        return (name,) if kind is int and -2**63 <= given < 2**63 else None
    if kind is list or kind is tuple:
        kinds = tuple(map(type, given))  # 1, 1.0 and True are equal, and not all of them are integers
        return (name, kinds, tuple(given)) if len(given) <= _LONGEST_LIST and _NUMBERS.issuperset(kinds) else None
    if kind is np.ndarray:
        if name in _VIEWS:
            return (name, given.shape, given.strides, given.dtype)
        wanted = _FLAT.get(name)
        return (name, given.shape, kind) if wanted is not None and given.dtype == wanted and given.flags.c_contiguous else None
    torch = sys.modules.get("torch")
    if name in _VIEWS and torch is not None and _is_plain_tensor(given, torch):
        return (name, given.shape, given.stride(), given.dtype)
    return None


def signature(query: Any, key: Any, value: Any, rules: Rules) -> Optional[Signature]:
    """What a call depends on but for the addresses; None where it is no call on plain arrays of one library.

    A tensor that requires gradients has no signature while gradients are recorded."""
    kind = type(query)
    if kind is np.ndarray:
        if type(key) is not kind or type(value) is not kind:
            return None
        found: Signature = (query.shape, query.strides, query.dtype, key.shape, key.strides, key.dtype, value.shape,
                            value.strides, value.dtype)
    else:
        torch = sys.modules.get("torch")
        if torch is None or not (_is_plain_tensor(query, torch) and _is_plain_tensor(key, torch)
                                 and _is_plain_tensor(value, torch)) or arrays.watched(torch):
            return None
        found = (query.shape, query.stride(), query.dtype, key.shape, key.stride(), key.dtype, value.shape, value.stride(),
                 value.dtype)
    for name, given in rules.items():
        if type(given) in _NUMBERS and name != "dropout_seed":
            found += (name, type(given), given)
            continue
        part = _part(name, given)
        if part is None:
            return None
        found += part
    return found


# ---- Keeping and running ----------------------------------------------------------------------------
def run(sign: Signature, query: Any, key: Any, value: Any, rules: Rules, context: Optional[Context] = None) -> Any:
    """Runs the kept call of this signature: out, or (out, lse); None where there is none."""
    # It is taken out while it runs, so that a signal handler which calls attention too cannot change it.
    kept = _plans.kept
    plan = kept.pop(sign, None)
    if plan is None or plan.version != context_version():
        return None
    where, using = plan.where, plan.context if context is None else chosen(context)
    if plan.make_out is not None:
        out = plan.make_out()
    else:
        out = rules["out"]
        if type(out) is np.ndarray and not out.flags.writeable:
            raise InvalidArgument("out cannot be written to")
    plan.query.value, plan.key.value, plan.value.value = where(query), where(key), where(value)
    plan.out.value = where(out) if type(out) is type(query) else _address_of(out)
    for name, slot, find in plan.more:
        slot.value = find(rules[name])
    make_lse = plan.make_lse
    if make_lse is None:
        using.forward(plan.call._reference)
        kept[sign] = plan
        return out
    lse = make_lse()
    plan.lse.value = where(lse)
    using.forward(plan.call._reference)
    kept[sign] = plan
    return out, lse


def _address_of(array: Any) -> int:
    return address(array) if type(array) is np.ndarray else _tensor_address(array)


def keep(sign: Signature, call: Any, query: Any, out: Any, lse: Any, rules: Rules) -> None:
    """Keeps a call that has been made for run()."""
    kept = _plans.kept
    if len(kept) >= _PLANS_KEPT:
        kept.clear()
    kept[sign] = _Plan(call, query, out, lse, rules)
