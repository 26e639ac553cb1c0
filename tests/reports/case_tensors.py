"""Reads the tensors of case files (tests/data/cases/README.md) and places arrays where an overrun is noticed."""
import ctypes
import mmap

import numpy as np

try:
    import ml_dtypes
    BF16 = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    BF16 = None

SPELLED = {"inf": np.inf, "-inf": -np.inf, "nan": np.nan}


def number(x):
    return SPELLED[x] if isinstance(x, str) else x


def unit_sequence(seed, n):
    """The generator of the cases: n values in [-1, 1), splitmix64 of seed."""
    mask = (1 << 64) - 1
    z = np.uint64(seed & mask) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(40)).astype(np.float64) - 2.0 ** 23) * 2.0 ** -23


def values(spec):
    """A tensor without strides as float64 or bool."""
    shape = tuple(spec["shape"])
    n = int(np.prod(shape, dtype=np.int64))
    if "fill" in spec:
        flat = np.full(n, float(number(spec["fill"])))
    elif "gen" in spec:
        gen = spec["gen"]
        flat = unit_sequence(gen["seed"], n)
        kind = gen.get("round", "q7")
        if kind == "q7":
            flat = np.rint(flat * 128) / 128
        elif kind != "f32":
            raise ValueError("unknown rounding %r" % kind)
        flat = flat * gen.get("amp", 1.0) + gen.get("offset", 0.0)
    else:
        flat = np.array([number(x) for x in spec["data"]], np.float64).reshape(n)
    for index, value in spec.get("set", []):
        flat[index] = number(value)
    flat = flat.reshape(shape)
    return flat.astype(bool) if spec.get("dtype") == "bool" else flat


def convert(array, dtype):
    """float64 to "f64", "f32", "f16" or "bf16" (uint16 bits where ml_dtypes is absent)."""
    if array.dtype == bool:
        return array
    with np.errstate(over="ignore"):
        if dtype != "bf16":
            return array.astype({"f64": np.float64, "f32": np.float32, "f16": np.float16}[dtype])
        if BF16 is not None:
            return array.astype(BF16)
        bits = np.ascontiguousarray(array, np.float32).view(np.uint32).astype(np.uint64)
        rounded = ((bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)
        return np.where(np.isnan(array), np.uint16(0x7FC0), rounded)


def widen(array):
    """A result as float64."""
    array = np.asarray(array)
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def tensor(spec, dtype):
    """A case's tensor in a dtype; one with a buffer is a real strided view."""
    if "buffer" not in spec:
        return convert(values(spec), dtype)
    base = convert(values(spec["buffer"]), dtype)
    size = base.dtype.itemsize
    # as_strided cannot start in the middle, so the view begins at base[offset:].
    start = base[spec.get("offset", 0):]
    return np.lib.stride_tricks.as_strided(start, tuple(spec["shape"]), [s * size for s in spec["strides"]])


class Guarded:
    """Arrays that end right before a page that cannot be touched: one byte too far stops the program."""

    def __init__(self):
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self._maps = []

    def copy(self, array):
        """A contiguous copy of array with a guard page right behind its last byte."""
        made = self.empty(array.shape, array.dtype)
        made[...] = array
        return made

    def empty(self, shape, dtype):
        page = mmap.PAGESIZE
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        pages = -(-size // page)
        area = mmap.mmap(-1, (pages + 1) * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(area))
        if self._libc.mprotect(start + pages * page, page, 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")
        self._maps.append(area)
        return np.frombuffer(area, dtype, count=int(np.prod(shape, dtype=np.int64)),
                             offset=pages * page - size).reshape(shape)


def spread(array):
    """The same values in an awkward layout: axes stored in another order, padding between rows, last stride 2."""
    if array.ndim != 4:
        return array
    b, h, n, d = array.shape
    store = np.zeros((b, n, h + 1, 2 * d + 3), array.dtype)
    view = store[:, :, :h, 1:1 + 2 * d:2].transpose(0, 2, 1, 3)
    view[...] = array
    return view


def disagreement(got, want, tolerance):
    """None where every element is within tolerance of want (or the same infinity, or both NaN), else what is wrong."""
    got, want = widen(got), np.asarray(want, np.float64)
    if got.shape != want.shape:
        return "shape %s, expected %s" % (got.shape, want.shape)
    with np.errstate(invalid="ignore"):
        good = (got == want) | (np.isnan(got) & np.isnan(want)) \
            | (np.abs(got - want) <= tolerance["abs"] + tolerance["rel"] * np.abs(want))
    if good.all():
        return None
    index = tuple(int(i) for i in np.argwhere(~good)[0])
    return "%d of %d elements differ, the first at %s: got %.9g, expected %.9g" % (
        (~good).sum(), good.size, index, got[index], want[index])
