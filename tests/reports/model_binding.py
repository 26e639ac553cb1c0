"""libattn_model through ctypes, as far as the case runner needs it."""
import ctypes
import os
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

from op_cases import Skipped

HERE = os.path.dirname(os.path.abspath(__file__))


def _load():
    """libattn_model.so beside libattn.so (ATTN_LIBRARY), else in build/; None where it is not built."""
    beside = os.environ.get("ATTN_LIBRARY")
    folder = os.path.dirname(beside) if beside else os.path.join(HERE, "..", "..", "build")
    path = os.path.join(folder, "libattn_model.so")
    return ctypes.CDLL(os.path.abspath(path)) if os.path.exists(path) else None


_library = _load()


class EncodeOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("flags", c_uint32), ("reserved", c_int32), ("max_length", c_int64)]


class Sampling(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("temperature", c_double), ("top_k", c_int64), ("top_p", c_double),
                ("min_p", c_double), ("repetition_penalty", c_double), ("seed", c_uint64), ("flags", c_uint32),
                ("reserved", c_uint32)]


class TensorInfo(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_char_p), ("n_dims", c_int32), ("reserved", c_int32), ("shape", c_int64 * 4),
                ("n_bytes", c_int64)]


TEXT = POINTER(ctypes.c_char)  # bytes that need not end in a zero byte
SIGNATURES = {
    "attn_tokenizer_error": (c_char_p, []),
    "attn_tokenizer_load": (c_int, [c_char_p, POINTER(c_void_p)]),
    "attn_tokenizer_destroy": (None, [c_void_p]),
    "attn_encoding_create": (c_int, [POINTER(c_void_p)]),
    "attn_encoding_destroy": (None, [c_void_p]),
    "attn_tokenizer_encode": (c_int, [c_void_p, c_char_p, c_size_t, c_char_p, c_size_t, POINTER(EncodeOptions), c_void_p]),
    "attn_encoding_length": (c_int64, [c_void_p]),
    "attn_encoding_ids": (POINTER(c_int32), [c_void_p]),
    "attn_encoding_type_ids": (POINTER(c_int32), [c_void_p]),
    "attn_encoding_byte_offsets": (POINTER(c_int64), [c_void_p]),
    "attn_encoding_token": (TEXT, [c_void_p, c_int64, POINTER(c_size_t)]),
    "attn_tokenizer_decode": (c_int, [c_void_p, POINTER(c_int32), c_int64, c_uint32, c_void_p, c_size_t, POINTER(c_size_t)]),
    "attn_decode_stream_create": (c_int, [c_void_p, c_uint32, POINTER(c_void_p)]),
    "attn_decode_stream_destroy": (None, [c_void_p]),
    "attn_decode_stream_push": (c_int, [c_void_p, c_int32, POINTER(TEXT), POINTER(c_size_t)]),
    "attn_decode_stream_finish": (c_int, [c_void_p, POINTER(TEXT), POINTER(c_size_t)]),
    "attn_model_error": (c_char_p, [c_void_p]),
    "attn_tensor_file_open": (c_int, [c_char_p, POINTER(c_void_p)]),
    "attn_tensor_file_close": (None, [c_void_p]),
    "attn_tensor_file_count": (c_int64, [c_void_p]),
    "attn_tensor_file_get": (c_int, [c_void_p, c_int64, POINTER(TensorInfo)]),
    "attn_tensor_file_read": (c_int, [c_void_p, c_int64, c_int64, c_int64, POINTER(c_float)]),
    "attn_tensor_file_metadata": (c_char_p, [c_void_p, c_int64, POINTER(c_char_p)]),
    "attn_sampling_distribution": (c_int, [POINTER(Sampling), POINTER(c_float), c_int64, POINTER(c_int32), c_int64,
                                           POINTER(c_double)]),
    "attn_sampling_draw": (c_int, [POINTER(Sampling), POINTER(c_float), c_int64, POINTER(c_int32), c_int64, c_uint64,
                                   POINTER(c_int32)]),
}


def function(name):
    """A function of libattn_model; Skipped where this build does not have it."""
    if _library is None:
        raise Skipped("libattn_model is not built")
    try:
        found = getattr(_library, name)
    except AttributeError:
        raise Skipped(name) from None
    found.restype, found.argtypes = SIGNATURES[name]
    return found
