"""Finds and loads libattn, and spells out its structs and functions (include/attn/attn.h) for ctypes."""
from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, List, Tuple, Type, TypeVar

F32, F64, BF16, F16, I8, BOOL = range(6)
MASK_CAUSAL, MASK_WINDOW, MASK_OFFSET = 1, 2, 4
SCALE_GIVEN = 1
GRAD_ACCUMULATE = 1
ROPE_INTERLEAVED, ROPE_INVERSE = 1, 2
ROPE_SCALING = {"plain": 0, "linear": 1, "ntk": 2, "llama3": 3, "yarn": 4}
ISA_LEVELS = {"best": 0, "scalar": 1, "avx2": 2, "avx512": 3, "avx512bf16": 4, "neon": 5,
              "neondot": 6, "neonbf16": 7}


class View(Structure):
    """attn_view and attn_cview: data, dtype, shape and strides in elements."""

    _fields_ = [("data", c_void_p), ("dtype", c_int32), ("reserved", c_int32), ("shape", c_int64 * 4),
                ("stride", c_int64 * 4)]


class Mask(Structure):
    _fields_ = [("flags", c_uint32), ("reserved", c_uint32), ("left", c_int64), ("right", c_int64),
                ("query_offset", c_int64), ("query_offsets", c_void_p), ("kv_len", c_void_p), ("q_len", c_void_p),
                ("cu_seqlens_q", c_void_p), ("cu_seqlens_k", c_void_p), ("n_segments", c_int64), ("allow", View),
                ("bias", View), ("alibi_slopes", c_void_p), ("relative", c_void_p), ("relative_stride", c_int64),
                ("rel_left", c_int64), ("rel_right", c_int64), ("bias_offset", c_int64), ("bias_offsets", c_void_p)]


class KvLayout(Structure):
    _fields_ = [("block_table", c_void_p), ("block_table_stride", c_int64), ("ring", c_int64), ("seq_kv", c_int64)]


class CtxOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("n_threads", c_int32), ("max_isa", c_int32), ("allocator", c_void_p),
                ("parallel_for", c_void_p), ("parallel_for_user", c_void_p)]


class SdpaArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("query", View), ("key", View), ("value", View), ("out", View),
                ("lse", c_void_p), ("mask", Mask), ("scale", c_double), ("softcap", c_double), ("flags", c_uint64),
                ("sinks", c_void_p), ("layout", KvLayout), ("key_scale", View), ("value_scale", View),
                ("dropout_p", c_double), ("dropout_seed", c_uint64), ("keep", View)]


class SdpaBackwardArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("forward", POINTER(SdpaArgs)), ("d_out", View), ("d_lse", c_void_p),
                ("d_query", View), ("d_key", View), ("d_value", View), ("d_bias", View), ("d_relative", c_void_p),
                ("d_sinks", c_void_p), ("flags", c_uint64)]


class SdpaPlan(Structure):
    _fields_ = [("struct_size", c_size_t), ("isa", c_char_p), ("kernel", c_char_p), ("tile_rows", c_int64),
                ("tile_keys", c_int64), ("query_block", c_int64), ("key_block", c_int64), ("n_tasks", c_int64),
                ("n_splits", c_int64), ("n_threads", c_int32), ("reserved", c_int32), ("workspace_bytes", c_size_t)]


class DecodeArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("query", View), ("new_key", View), ("new_value", View),
                ("cache_key", View), ("cache_value", View), ("cache_key_scale", View), ("cache_value_scale", View),
                ("layout", KvLayout), ("cache_len", c_void_p), ("new_len", c_void_p), ("prefix_key", View),
                ("prefix_value", View), ("out", View), ("lse", c_void_p), ("mask", Mask), ("scale", c_double),
                ("softcap", c_double), ("flags", c_uint64), ("sinks", c_void_p)]


class Row(Structure):
    _fields_ = [("batch", c_int64), ("head", c_int64), ("query", c_int64)]


class RowStat(Structure):
    _fields_ = [("entropy", c_double), ("mean_distance", c_double), ("max_weight", c_double), ("max_key", c_int64),
                ("key_weight", c_double)]


class RopeArgs(Structure):
    _fields_ = [("struct_size", c_size_t), ("x", View), ("out", View), ("rotary_dim", c_int64), ("flags", c_uint64),
                ("base", c_double), ("position_offset", c_int64), ("positions", c_void_p),
                ("positions_stride", c_int64), ("scaling", c_int32), ("reserved", c_int32), ("factor", c_double),
                ("low_freq_factor", c_double), ("high_freq_factor", c_double), ("beta_fast", c_double),
                ("beta_slow", c_double), ("attention_factor", c_double), ("original_length", c_int64),
                ("cos_table", c_void_p), ("sin_table", c_void_p), ("table_rows", c_int64)]


Args = TypeVar("Args", bound=Structure)


def args_init(kind: Type[Args]) -> Args:
    """A zeroed argument struct with its size filled in (ATTN_ARGS_INIT)."""
    args = kind()
    setattr(args, "struct_size", ctypes.sizeof(kind))
    return args


# name: (result, argument types). A function that an older library lacks is left out and reported where it is used.
_FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "attn_version": (c_char_p, []),
    "attn_status_string": (c_char_p, [ctypes.c_int]),
    "attn_ctx_create": (ctypes.c_int, [POINTER(CtxOptions), POINTER(c_void_p)]),
    "attn_ctx_destroy": (None, [c_void_p]),
    "attn_ctx_error": (c_char_p, [c_void_p]),
    "attn_ctx_isa": (c_char_p, [c_void_p]),
    "attn_ctx_threads": (c_int32, [c_void_p]),
    "attn_sdpa_forward": (ctypes.c_int, [c_void_p, POINTER(SdpaArgs), c_void_p, c_size_t]),
    "attn_sdpa_workspace": (ctypes.c_int, [c_void_p, POINTER(SdpaArgs), POINTER(c_size_t)]),
    "attn_sdpa_describe": (ctypes.c_int, [c_void_p, POINTER(SdpaArgs), POINTER(SdpaPlan)]),
    "attn_sdpa_backward": (ctypes.c_int, [c_void_p, POINTER(SdpaBackwardArgs), c_void_p, c_size_t]),
    "attn_sdpa_decode": (ctypes.c_int, [c_void_p, POINTER(DecodeArgs), c_void_p, c_size_t]),
    "attn_sdpa_rows": (ctypes.c_int, [c_void_p, POINTER(SdpaArgs), POINTER(Row), c_int64, POINTER(View)]),
    "attn_sdpa_topk": (ctypes.c_int, [c_void_p, POINTER(SdpaArgs), POINTER(Row), c_int64, c_int64, c_void_p, c_void_p]),
    "attn_sdpa_key_mass": (ctypes.c_int, [c_void_p, POINTER(SdpaArgs), POINTER(View)]),
    "attn_sdpa_row_stats": (ctypes.c_int, [c_void_p, POINTER(SdpaArgs), POINTER(Row), c_int64, POINTER(RowStat)]),
    "attn_sdpa_merge": (ctypes.c_int, [c_void_p, POINTER(View), POINTER(c_void_p), c_int64, POINTER(View), c_void_p]),
    "attn_rope": (ctypes.c_int, [c_void_p, POINTER(RopeArgs)]),
}


def _candidates() -> List[str]:
    """Where libattn may be: ATTN_LIBRARY alone where it is set; else beside this file, else the repository's build."""
    given = os.environ.get("ATTN_LIBRARY")
    if given:
        return [given]
    here = os.path.dirname(os.path.abspath(__file__))
    return [os.path.join(here, "libattn.so"), os.path.join(here, "..", "..", "build", "libattn.so")]


def _load() -> Tuple[str, ctypes.CDLL]:
    for path in _candidates():
        if os.path.exists(path):
            library = ctypes.CDLL(os.path.abspath(path))
            for name, (result, arguments) in _FUNCTIONS.items():
                function = getattr(library, name, None)
                if function is not None:
                    function.restype, function.argtypes = result, arguments
            return os.path.abspath(path), library
    raise ImportError("libattn.so is not at %s; build it (./dev build) or set ATTN_LIBRARY" % " or ".join(_candidates()))


PATH, lib = _load()
