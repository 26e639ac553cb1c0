#!/usr/bin/env python3
"""Writes vectors.gguf beside this file: blocks of random bits in every block format that attn_dequant reads, and what
another implementation makes of them, together with one metadata value of every GGUF type.

    python3 -m venv VENV && VENV/bin/pip install gguf==0.19.0 numpy && VENV/bin/python make_vectors.py

The expected numbers are computed by gguf.quants of the PyPI package `gguf` (MIT licence; no part of it is copied here).
For each type T the file holds two tensors of shape [2, 512]: "T" and "T.f32".
"""
import os
import numpy as np
import gguf
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
# byte positions of the f16 scales in a block
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
ROWS, COLUMNS = 2, 512


def special_scales(n, rng):
    """Ordinary f16 scales, and now and then 0, -0, a subnormal, the largest number."""
    scales = (rng.standard_normal(n) * 0.05).astype(np.float16)
    for at, value in zip(rng.permutation(n)[: n // 4], [3e-5, 65504.0, 0.0, -0.0, 6e-8]):
        scales[at] = value
    return scales


def random_blocks(name, rng):
    block, size = GGML_QUANT_SIZES[T[name]]
    n = ROWS * COLUMNS // block
    data = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for at in SCALES[name]:
        data[:, at:at + 2] = special_scales(n, rng).view(np.uint8).reshape(n, 2)
    return data.reshape(ROWS, -1)


def random_plain(name, rng):
    numbers = (rng.standard_normal((ROWS, COLUMNS)) * 10.0 ** rng.integers(-6, 5, (ROWS, COLUMNS))).astype(np.float32)
    numbers[0, :6] = [0.0, -0.0, np.inf, -np.inf, 1e-7, 6e4]
    if name == "F32":
        return numbers
    if name == "F16":
        with np.errstate(over="ignore"):
            return numbers.astype(np.float16)
    return gguf.quants.quantize(numbers, T.BF16)


def add_metadata(writer):
    writer.add_uint8("test.u8", 200)
    writer.add_int8("test.i8", -100)
    writer.add_uint16("test.u16", 60000)
    writer.add_int16("test.i16", -30000)
    writer.add_uint32("test.u32", 4000000000)
    writer.add_int32("test.i32", -2000000000)
    writer.add_float32("test.f32", 0.15625)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "h\u00e9llo")
    writer.add_uint64("test.u64", 2**64 - 1)
    writer.add_int64("test.i64", -(2**63))
    writer.add_float64("test.f64", 0.1)
    writer.add_array("test.strings", ["", "a", "\u2581b"])
    writer.add_array("test.integers", [1, -2, 3])
    writer.add_array("test.floats", [0.5, -0.25])


def main():
    rng = np.random.default_rng(20261129)
    writer = gguf.GGUFWriter(os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors.gguf"), "test")
    add_metadata(writer)
    for name in TYPES:
        data = random_blocks(name, rng) if name in SCALES else random_plain(name, rng)
        expected = gguf.quants.dequantize(data, T[name])
        raw = None if name in ("F32", "F16") else T[name]
        writer.add_tensor(name, data, raw_dtype=raw)
        writer.add_tensor(name + ".f32", np.ascontiguousarray(expected, dtype=np.float32).reshape(ROWS, COLUMNS))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
