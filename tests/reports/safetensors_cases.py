"""Runs one safetensors case: the file is refused with a text that names the faulty field, or gives the tensors and metadata."""
import ctypes
import math
import os
from ctypes import byref, c_char_p, c_float, c_void_p

import numpy as np

from case_tensors import number
from model_binding import TensorInfo, function
from op_cases import Failed

# The field that an error must name, by the case's kind; of a kind that is not here any one of them.
FIELDS = {"overlap": "data_offsets", "coverage": "data_offsets", "truncated": "data_offsets", "offsets": "data_offsets",
          "size mismatch": "data_offsets", "header length": "header length", "header json": "header", "shape overflow": "shape",
          "dtype": "dtype", "names": "duplicate", "metadata": "__metadata__"}


def read(path):
    """({name: (shape, values)}, {key: text}), or the text of the refusal."""
    handle = c_void_p()
    if function("attn_tensor_file_open")(os.fsencode(path), byref(handle)):
        return function("attn_model_error")(None).decode()
    try:
        tensors, metadata, key = {}, {}, c_char_p()
        for i in range(function("attn_tensor_file_count")(handle)):
            info = TensorInfo()
            assert function("attn_tensor_file_get")(handle, i, byref(info)) == 0
            shape = list(info.shape[:info.n_dims])
            values = (c_float * math.prod(shape))()
            if function("attn_tensor_file_read")(handle, i, 0, len(values), values):
                raise Failed("%s: %s" % (info.name.decode(), function("attn_model_error")(None).decode()))
            tensors[info.name.decode()] = (shape, list(values))
        while (text := function("attn_tensor_file_metadata")(handle, len(metadata), byref(key))) is not None:
            metadata[key.value.decode()] = text.decode()
        return tensors, metadata
    finally:
        function("attn_tensor_file_close")(handle)


def run(case, path):
    expect, found = case["expect"], read(os.path.join(os.path.dirname(path), case["file"]))
    if "error" in expect:
        if not isinstance(found, str):
            raise Failed("it loads; expected %s" % expect["error"])
        fields = [FIELDS[case["kind"]]] if case["kind"] in FIELDS else set(FIELDS.values())
        if not any(field in found for field in fields):
            raise Failed("%r names none of %s" % (found, sorted(fields)))
        return
    if isinstance(found, str):
        raise Failed(found)
    tensors, metadata = found
    if set(tensors) != set(expect["tensors"]):
        raise Failed("tensors %s, expected %s" % (sorted(tensors), sorted(expect["tensors"])))
    for name, want in expect["tensors"].items():
        values = [float(np.float32(number(x))) for x in want["data"]]
        if tensors[name][0] != want["shape"] or not np.array_equal(tensors[name][1], values, equal_nan=True):
            raise Failed("%s is %s, expected %s" % (name, tensors[name], want))
    if metadata != (expect.get("metadata") or {}):
        raise Failed("metadata %s, expected %s" % (metadata, expect.get("metadata")))
