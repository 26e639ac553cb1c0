"""make_gguf.py: a GPT-2 of 124M parameters with random weights as a GGUF file: for timing, which does not depend on them.

    python3 bench/make_gguf.py FILE f32|f16|bf16|q8_0|q4_0 [LAYERS]

Matrices have the type given, norms, biases and positions f32. No tokenizer. Blocks of Q8_0 are an f16 scale and 32 int8, of
Q4_0 an f16 scale and 16 bytes of two numbers.
"""
import array
import random
import struct
import sys

TYPES = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q8_0": (8, 32, 34), "bf16": (30, 1, 2)}  # id, block, bytes
WIDTH, HEADS, CONTEXT, VOCAB = 768, 12, 1024, 50257
ALIGNMENT = 32
UINT32, FLOAT32, STRING = 4, 6, 8


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def pattern(kind, count):
    """Bytes of about `count` random numbers with deviation 0.02, whole blocks."""
    draw = random.Random(1)
    if kind == "f32":
        return array.array("f", [draw.gauss(0, 0.02) for _ in range(count)]).tobytes()
    if kind == "f16":
        return struct.pack("<%de" % count, *[draw.gauss(0, 0.02) for _ in range(count)])
    if kind == "bf16":
        return b"".join(struct.pack("<f", draw.gauss(0, 0.02))[2:] for _ in range(count))
    size, scale = (32, 0.02 / 64) if kind == "q8_0" else (16, 0.02 / 4)
    return b"".join(struct.pack("<e", scale) + draw.randbytes(size) for _ in range(count // 32))


def tensors(layers, kind):
    """(name, shape with the innermost first, type)"""
    yield "token_embd.weight", (WIDTH, VOCAB), kind
    yield "position_embd.weight", (WIDTH, CONTEXT), "f32"
    for n in range(layers):
        for name, inner, outer in (("attn_qkv", WIDTH, 3 * WIDTH), ("attn_output", WIDTH, WIDTH), ("ffn_up", WIDTH, 4 * WIDTH),
                                   ("ffn_down", 4 * WIDTH, WIDTH)):
            yield "blk.%d.%s.weight" % (n, name), (inner, outer), kind
            yield "blk.%d.%s.bias" % (n, name), (outer,), "f32"
        for name in ("attn_norm", "ffn_norm"):
            yield "blk.%d.%s.weight" % (n, name), (WIDTH,), "ones"
            yield "blk.%d.%s.bias" % (n, name), (WIDTH,), "f32"
    yield "output_norm.weight", (WIDTH,), "ones"
    yield "output_norm.bias", (WIDTH,), "f32"


def write(path, kind, layers=12):
    facts = [("general.architecture", STRING, "gpt2"), ("general.name", STRING, "GPT-2 124M, random weights"),
             ("gpt2.context_length", UINT32, CONTEXT), ("gpt2.embedding_length", UINT32, WIDTH), ("gpt2.block_count", UINT32, layers),
             ("gpt2.feed_forward_length", UINT32, 4 * WIDTH), ("gpt2.attention.head_count", UINT32, HEADS),
             ("gpt2.attention.layer_norm_epsilon", FLOAT32, 1e-5)]
    listed = list(tensors(layers, kind))
    head = [b"GGUF", struct.pack("<IQQ", 3, len(listed), len(facts))]
    for name, code, value in facts:
        packed = text(value) if code == STRING else struct.pack("<I" if code == UINT32 else "<f", value)
        head.append(text(name) + struct.pack("<I", code) + packed)
    at, sizes = 0, []
    for name, shape, stored in listed:
        number, block, size = TYPES["f32" if stored == "ones" else stored]
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        head.append(text(name) + struct.pack("<I%dQIQ" % len(shape), len(shape), *shape, number, at))
        sizes.append(count // block * size)
        at += (sizes[-1] + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    head = b"".join(head)
    patterns = {kind: pattern(kind, 1 << 18), "f32": pattern("f32", 1 << 18), "ones": array.array("f", [1.0] * 4096).tobytes()}
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for (name, shape, stored), size in zip(listed, sizes):
            data = patterns[stored]
            file.write((data * (size // len(data) + 1))[:size] + bytes(-size % ALIGNMENT))


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 12)
