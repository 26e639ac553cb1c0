"""Arrays of NumPy, PyTorch, DLPack (JAX and others) and the buffer protocol as views: address, dtype, shape, strides.

Nothing is copied. bfloat16 is ml_dtypes.bfloat16, torch.bfloat16 or, in NumPy alone, uint16 holding the bits.
"""
from __future__ import annotations

import ctypes
import operator
import struct
import sys
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from . import library
from .errors import InvalidArgument, Unsupported

_NUMPY_CODES = {np.dtype(np.float32): library.F32, np.dtype(np.float64): library.F64, np.dtype(np.uint16): library.BF16,
                np.dtype(np.float16): library.F16, np.dtype(np.int8): library.I8, np.dtype(np.bool_): library.BOOL,
                np.dtype(np.uint8): library.BOOL}
_ITEM_SIZES = {library.F32: 4, library.F64: 8, library.BF16: 2, library.F16: 2, library.I8: 1, library.BOOL: 1}
_TORCH_CODES = {"torch.float32": library.F32, "torch.float64": library.F64, "torch.bfloat16": library.BF16,
                "torch.float16": library.F16, "torch.int8": library.I8, "torch.bool": library.BOOL,
                "torch.uint8": library.BOOL}
_TORCH_NAMES = {library.F32: "float32", library.F64: "float64", library.BF16: "bfloat16", library.F16: "float16"}
_DLPACK_CODES = {(2, 32): library.F32, (2, 64): library.F64, (4, 16): library.BF16, (2, 16): library.F16,
                 (0, 8): library.I8, (6, 8): library.BOOL, (1, 8): library.BOOL}


ArrayLike = Any  # NumPy, PyTorch (CPU), JAX, anything with DLPack or the buffer protocol
Numpy = np.ndarray[Any, Any]
_VIEW = struct.Struct("=Qii8q")  # library.View: data, dtype, reserved, shape, stride


class Array:
    """A borrowed array. `owner` keeps it alive; `kind` is "numpy", "torch", "jax" or "dlpack"."""

    __slots__ = ("data", "code", "shape", "strides", "writable", "owner", "kind", "dtype")

    def __init__(self, data: Optional[int], code: int, shape: Tuple[int, ...], strides: Tuple[int, ...], writable: bool,
                 owner: Any, kind: str, dtype: Any = None) -> None:
        self.data, self.code, self.shape, self.strides = data, code, shape, strides
        self.writable, self.owner, self.kind, self.dtype = writable, owner, kind, dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def base_dtype(self) -> int:
        return library.F64 if self.code == library.F64 else library.F32

    def padded(self, ndim: int = 4) -> Array:
        """The same array with leading axes of extent 1."""
        missing = ndim - len(self.shape)
        if missing == 0:
            return self
        if missing < 0:
            raise InvalidArgument("an array of shape %s has more than %d axes" % (self.shape, ndim))
        return Array(self.data, self.code, (1,) * missing + self.shape, (0,) * missing + self.strides, self.writable,
                     self.owner, self.kind, self.dtype)

    def broadcast(self, shape: Sequence[int]) -> Array:
        """The same data seen with a larger shape: an axis of extent 1 repeats with stride 0."""
        array = self.padded(len(shape))
        strides = []
        for have, want, stride in zip(array.shape, shape, array.strides):
            if have != want and have != 1:
                raise InvalidArgument("shape %s does not broadcast to %s" % (self.shape, tuple(shape)))
            strides.append(stride if have == want else 0)
        return Array(array.data, array.code, tuple(shape), tuple(strides), False, array.owner, array.kind, array.dtype)

    def fill(self, view: library.View) -> None:
        """Writes this array (4 axes) into a ctypes View."""
        _VIEW.pack_into(view, 0, self.data or 0, self.code, 0, *self.shape, *self.strides)


def _bfloat16() -> Any:
    module = sys.modules.get("ml_dtypes")
    return np.dtype(module.bfloat16) if module else None


def _numpy_code(dtype: Any, name: str) -> int:
    code = _NUMPY_CODES.get(dtype)
    if code is None:
        if dtype.name == "bfloat16":
            _NUMPY_CODES[dtype] = library.BF16
            return library.BF16
        raise Unsupported("%s has dtype %s; float32, float64, float16, bfloat16, int8 and bool are known" % (name, dtype))
    return code


def _header_offset() -> Optional[int]:
    """Where a NumPy array object keeps its data pointer, or None where that cannot be confirmed.

    The pointer is the first field behind the object's header (PyArrayObject_fields.data, part of NumPy's C ABI). Reading
    it costs a tenth of what array.ctypes.data costs; it is checked here on arrays whose address is known otherwise."""
    if sys.implementation.name != "cpython":
        return None
    offset = object.__basicsize__
    probes: Tuple[Numpy, ...] = (np.zeros(3, np.float32), np.zeros((4, 5), np.float64)[1:, 2:], np.zeros((2, 2), np.int8).T)
    for probe in probes:
        if ctypes.c_void_p.from_address(id(probe) + offset).value != probe.ctypes.data:
            return None
    return offset


_OFFSET = _header_offset()
_pointer_at = ctypes.c_void_p.from_address


def _address_by_header(array: Numpy) -> int:
    return _pointer_at(id(array) + _OFFSET).value  # type: ignore[return-value, operator]


def _address_by_ctypes(array: Numpy) -> int:
    return array.ctypes.data


# The address of a NumPy array's first element.
address = _address_by_ctypes if _OFFSET is None else _address_by_header


def from_numpy(array: Numpy, name: str = "array") -> Array:
    """An Array over a NumPy array."""
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):
        raise Unsupported("%s is a masked array, whose mask would be ignored: give its data and a boolean mask" % name)
    code = _numpy_code(array.dtype, name)
    size = _ITEM_SIZES[code]
    strides = array.strides
    for stride in strides:
        if stride % size:
            raise InvalidArgument("%s has a stride of %d bytes, which is no multiple of its item size %d"
                                  % (name, stride, size))
    return Array(address(array), code, array.shape, tuple(s // size for s in strides), array.flags.writeable, array,
                 "numpy", array.dtype)


INSIDE = (" is inside torch.jit.trace, make_fx or torch.func, which see operators of PyTorch only: use attn.install() and "
          "torch.nn.functional.scaled_dot_product_attention")


def watched(torch: Any) -> bool:
    """Does something of PyTorch's look on that records or changes its operators?"""
    return torch._C._len_torch_dispatch_stack() > 0 or torch._C._get_tracing_state() is not None \
        or torch._C._functorch.peek_interpreter_stack() is not None


def _holds_no_numbers(tensor: Any, torch: Any) -> bool:
    """Where something looks on: is this tensor a stand-in, or would what is computed from its numbers not be recorded?"""
    proxies = sys.modules.get("torch.fx.experimental.proxy_tensor")
    return torch._C._get_tracing_state() is not None or (proxies is not None and proxies.get_proxy_mode() is not None) \
        or torch._C._functorch.is_functorch_wrapped_tensor(tensor) or type(tensor).__name__ == "FakeTensor"


def _from_torch(tensor: Any, name: str) -> Array:
    torch = sys.modules["torch"]
    if tensor.device.type != "cpu":
        raise Unsupported("%s is on %s; only CPU tensors are served" % (name, tensor.device))
    if tensor.layout != torch.strided:
        raise Unsupported("%s has layout %s; only strided tensors are served" % (name, tensor.layout))
    if watched(torch) and _holds_no_numbers(tensor, torch):
        raise Unsupported(name + INSIDE)
    if tensor.is_neg():  # the imaginary part of a conjugate: PyTorch keeps the sign apart from the numbers
        tensor = tensor.resolve_neg()
    code = _TORCH_CODES.get(str(tensor.dtype))
    if code is None:
        raise Unsupported("%s has dtype %s" % (name, tensor.dtype))
    return Array(tensor.data_ptr(), code, tuple(tensor.shape), tuple(tensor.stride()), True, tensor, "torch", tensor.dtype)


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _DLVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", _DLTensor)]


_DL_READ_ONLY = 1  # a flag of _DLVersioned
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
_capsule_is = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))


def _open_dlpack(source: Any, name: str) -> Tuple[Any, _DLTensor, bool]:
    """(capsule, what it holds, may it be written) of an object with __dlpack__; a capsule of version 1 where it makes those."""
    try:
        try:
            capsule = source.__dlpack__(max_version=(1, 0))
        except TypeError:  # written before version 1
            capsule = source.__dlpack__()
    except BufferError as error:  # a read-only array of such a source, a type that DLPack lacks, ...
        raise Unsupported("%s: %s" % (name, error)) from None
    if _capsule_is(capsule, b"dltensor_versioned"):
        versioned = _DLVersioned.from_address(_capsule_pointer(capsule, b"dltensor_versioned"))
        if versioned.major == 1:
            return capsule, versioned.tensor, not versioned.flags & _DL_READ_ONLY
        raise Unsupported("%s comes by DLPack %d, newer than version 1" % (name, versioned.major))
    return capsule, _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor")), True


def _from_dlpack(source: Any, name: str) -> Array:
    device = source.__dlpack_device__()
    if device[0] != 1:
        raise Unsupported("%s is on DLPack device %s; only the CPU is served" % (name, tuple(device)))
    capsule, tensor, may_write = _open_dlpack(source, name)
    code = _DLPACK_CODES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if code is None:
        raise Unsupported("%s has DLPack type (code %d, %d bits, %d lanes)" % (name, tensor.code, tensor.bits, tensor.lanes))
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[i] for i in range(tensor.ndim))
    else:
        strides = contiguous_strides(shape)
    kind = "jax" if type(source).__module__.split(".")[0] in ("jax", "jaxlib") else "dlpack"
    # The unconsumed capsule frees the tensor when it goes, so it is kept with the source.
    return Array((tensor.data or 0) + tensor.byte_offset, code, shape, strides, may_write and kind != "jax",
                 (source, capsule), kind)


def contiguous_strides(shape: Sequence[int]) -> Tuple[int, ...]:
    """Row-major strides in elements."""
    strides: List[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def borrow(source: ArrayLike, name: str = "array") -> Array:
    """An Array over anything array-like, without copying. name is used in messages."""
    if isinstance(source, np.ndarray):
        return from_numpy(source, name)
    if isinstance(source, Array):
        return source
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.Tensor):
        return _from_torch(source, name)
    if hasattr(source, "__dlpack__"):
        return _from_dlpack(source, name)
    if hasattr(source, "__array_interface__"):
        return from_numpy(np.asarray(source), name)
    try:
        return from_numpy(np.asarray(memoryview(source)), name)
    except TypeError:
        raise InvalidArgument("%s is a %s, which is no array (NumPy, PyTorch, DLPack or a buffer)"
                              % (name, type(source).__name__)) from None


def wants_gradients(*given: Any) -> bool:
    """Is any of these a PyTorch tensor whose gradient is to be recorded?"""
    torch = sys.modules.get("torch")
    return torch is not None and torch.is_grad_enabled() and any(getattr(a, "requires_grad", False) for a in given)


def refuse_gradients(function: str, *given: Any) -> None:
    """Raises Unsupported where gradients would be lost without a word."""
    if wants_gradients(*given):
        raise Unsupported("%s() has no gradient and was given a tensor that requires one: detach() it, or use torch.no_grad()"
                          % function)


def writable(source: ArrayLike, name: str) -> Array:
    """borrow() for an output."""
    array = borrow(source, name)
    if array.kind == "torch" and array is not source and array.owner is not source:
        raise InvalidArgument("%s is a negated view, which cannot be written in place" % name)
    if not array.writable:
        raise InvalidArgument("%s cannot be written to" % name)
    return array


def _numpy_dtype(like: Optional[Array], code: int) -> Any:
    """The NumPy dtype for a code; bfloat16 follows `like`, else ml_dtypes where it is there, else uint16 bits."""
    if like is not None and like.kind == "numpy" and like.code == code:
        return like.dtype
    if code == library.BF16:
        return _bfloat16() or np.dtype(np.uint16)
    return {library.F32: np.dtype(np.float32), library.F64: np.dtype(np.float64), library.F16: np.dtype(np.float16),
            library.I8: np.dtype(np.int8)}[code]


def empty(shape: Tuple[int, ...], like: Array, code: Optional[int] = None) -> Tuple[Any, Array]:
    """A new array of like's library and, unless code says otherwise, its dtype. Returns (array for the user, Array).

    A torch tensor of like's shape gets like's layout too, as PyTorch's own operator does it: where heads were split by a
    transpose, joining them again then costs no copy. Where vectors do not lie together it is contiguous, as PyTorch's is."""
    code = like.code if code is None else code
    if like.kind == "torch":
        torch = sys.modules["torch"]
        dtype = getattr(torch, _TORCH_NAMES[code])
        if like.owner.shape == shape and like.strides[-1] == 1:
            made = torch.empty_like(like.owner, dtype=dtype)
        else:
            made = torch.empty(shape, dtype=dtype)
        return made, _from_torch(made, "out")
    if like.kind == "jax":  # written before anyone else sees it
        made = sys.modules["jax"].numpy.empty(shape, _numpy_dtype(None, code)).block_until_ready()
        target = _from_dlpack(made, "out")
        target.writable = True
        return made, target
    made = np.empty(shape, _numpy_dtype(like, code))
    return made, from_numpy(made, "out")


def finish(made: Any, like: Array) -> Any:
    """Hands a result to the user: a jax array where the inputs were jax arrays."""
    if like.kind == "jax" and made is not None:
        return sys.modules["jax"].numpy.asarray(made)
    return made


def _detached(values: Any) -> Any:
    return values.detach() if hasattr(values, "detach") else values


def integer(value: Any, name: str, bits: int = 64) -> int:
    """An int of so many bits: Python's, NumPy's or a tensor of one."""
    try:
        found = operator.index(value)
    except TypeError:
        raise InvalidArgument("%s is %r; an integer is expected" % (name, value)) from None
    if not -1 << (bits - 1) <= found < 1 << (bits - 1):
        raise InvalidArgument("%s is %d, which does not fit %d bits" % (name, found, bits))
    return found


def number(value: Any, name: str) -> float:
    """A float of anything that is a number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument("%s is %r; a number is expected" % (name, value)) from None


def integers(values: Any, name: str, length: Optional[int] = None, ndim: int = 1, dtype: Any = np.int64) -> Numpy:
    """Contiguous int64 (or int32) array of integers, a copy unless it is one already; anything else is refused."""
    try:
        given = np.atleast_1d(_detached(values))
    except (TypeError, ValueError):
        raise InvalidArgument("%s is a %s; integers are expected" % (name, type(values).__name__)) from None
    if given.ndim != ndim or (length is not None and given.shape[0] != length):
        raise InvalidArgument("%s has shape %s, expected (%s)" % (
            name, given.shape, "%s," % ("n" if length is None else length) if ndim == 1 else ", ".join("mn"[:ndim])))
    if given.size and given.dtype.kind not in "iub":
        raise InvalidArgument("%s has dtype %s; integers are expected" % (name, given.dtype))
    array = np.ascontiguousarray(given, dtype)
    if not np.can_cast(given.dtype, dtype) and not np.array_equal(array, given):
        raise InvalidArgument("%s has values that do not fit %s" % (name, np.dtype(dtype)))
    return array


def floats(values: Any, name: str, shape: Optional[Tuple[int, ...]] = None, dtype: Any = np.float32) -> Numpy:
    """Contiguous float32 (or float64) array of a sequence (a copy unless it is one already)."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        values = values.detach().to(torch.float64 if dtype is np.float64 else torch.float32)
    try:
        given = np.asarray(values)
        array = np.ascontiguousarray(given, dtype) if given.dtype.kind in "fiub" or given.dtype.name == "bfloat16" else None
    except (TypeError, ValueError):
        array = None
    if array is None:
        raise InvalidArgument("%s is a %s; real numbers are expected" % (name, type(values).__name__))
    if shape is not None and array.shape != shape:
        raise InvalidArgument("%s has shape %s, expected %s" % (name, array.shape, shape))
    return array
