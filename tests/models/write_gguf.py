"""write_gguf.py FOLDER: the checkpoints of FOLDER (tests/data/families) of the architectures that GGUF files of others hold, written as
GGUF with f32 tensors, so that the expected arrays of the safetensors file serve both. Needs NumPy and safetensors.

What GGUF has otherwise than a checkpoint: shapes innermost first; GPT-2's matrices as [out, in]; Llama's rows of q and k in pairs;
Llama-3's RoPE scaling as a tensor of divisors."""
import json
import math
import os
import struct
import sys

import numpy as np
from safetensors.numpy import load_file

U32, F32, STRING = 4, 6, 8
LLAMA = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
GPT2 = {"transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm", "ln_1": "attn_norm",
        "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
BERT = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
        "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
        "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
        "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up",
        "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}
MODELS = {"llama3_rope": ("llama", LLAMA, "model.layers."), "mistral_window": ("llama", LLAMA, "model.layers."),
          "qwen2": ("qwen2", LLAMA, "model.layers."),
          "qwen3": ("qwen3", LLAMA, "model.layers."), "gpt2": ("gpt2", GPT2, "transformer.h."),
          "bert": ("bert", BERT, "encoder.layer.")}


def gguf_name(name, names, layers):
    stem, _, ending = name.rpartition(".")
    if stem.startswith(layers):
        layer, _, rest = stem[len(layers):].partition(".")
        return "blk.%s.%s.%s" % (layer, names[rest], ending) if rest in names else None
    return "%s.%s" % (names[stem], ending) if stem in names else None


def in_pairs(rows, heads):
    """Halves of a head's rows, one of each in turn."""
    shape = rows.shape
    return rows.reshape(heads, 2, shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(shape)


def rope_divisors(config, head_dim):
    r = config["rope_parameters"]
    found = []
    for i in range(head_dim // 2):
        turns = r["original_max_position_embeddings"] * r["rope_theta"] ** (-2 * i / head_dim) / (2 * math.pi)
        share = (turns - r["low_freq_factor"]) / (r["high_freq_factor"] - r["low_freq_factor"])
        share = min(max(share, 0.0), 1.0)
        found.append(1 / ((1 - share) / r["factor"] + share))
    return np.array(found, np.float32)


def tensors_of(kind, names, layers, config, tensors):
    heads = config.get("num_attention_heads") or config["n_head"]
    out = {}
    for name, array in sorted(tensors.items()):
        to = gguf_name(name, names, layers)
        if to is None or (name == "lm_head.weight" and config.get("tie_word_embeddings")):
            continue
        if kind == "gpt2" and array.ndim == 2 and to.startswith("blk."):
            array = array.T
        if kind == "llama" and ".attn_q." in to:
            array = in_pairs(array, heads)
        if kind == "llama" and ".attn_k." in to:
            array = in_pairs(array, config["num_key_value_heads"])
        out[to] = np.ascontiguousarray(array, np.float32)
    if kind == "llama" and config["rope_parameters"]["rope_type"] == "llama3":
        out["rope_freqs.weight"] = rope_divisors(config, config.get("head_dim") or config["hidden_size"] // heads)
    return out


def keys_of(kind, config):
    def get(*names):
        return next((config[n] for n in names if config.get(n) is not None), None)

    heads, width = get("num_attention_heads", "n_head"), get("hidden_size", "n_embd")
    yield "general.architecture", STRING, kind
    yield kind + ".context_length", U32, get("max_position_embeddings", "n_positions")
    yield kind + ".embedding_length", U32, width
    yield kind + ".block_count", U32, get("num_hidden_layers", "n_layer")
    yield kind + ".feed_forward_length", U32, get("intermediate_size", "n_inner") or 4 * width
    yield kind + ".attention.head_count", U32, heads
    if get("rms_norm_eps"):
        yield kind + ".attention.layer_norm_rms_epsilon", F32, config["rms_norm_eps"]
        yield kind + ".attention.head_count_kv", U32, config["num_key_value_heads"]
        yield kind + ".attention.key_length", U32, get("head_dim") or width // heads
        yield kind + ".attention.value_length", U32, get("head_dim") or width // heads
        yield kind + ".rope.freq_base", F32, config["rope_parameters"]["rope_theta"]
        if config["model_type"] == "mistral":
            yield kind + ".attention.sliding_window", U32, config["sliding_window"]
    else:
        yield kind + ".attention.layer_norm_epsilon", F32, get("layer_norm_eps", "layer_norm_epsilon")
    if kind == "bert":
        yield kind + ".pooling_type", U32, 2  # the first token


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def write(path, keys, tensors):
    keys = list(keys)
    data = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys))
    for key, kind, value in keys:
        data += text(key) + struct.pack("<I", kind)
        data += text(value) if kind == STRING else struct.pack("<I" if kind == U32 else "<f", value)
    offset, body = 0, b""
    for name, array in tensors.items():
        data += text(name) + struct.pack("<I", array.ndim) + struct.pack("<%dQ" % array.ndim, *array.shape[::-1])
        data += struct.pack("<IQ", 0, offset)
        body += array.tobytes() + b"\0" * (-array.nbytes % 32)
        offset = len(body)
    with open(path, "wb") as file:
        file.write(data + b"\0" * (-len(data) % 32) + body)


def main(folder):
    for name, (kind, names, layers) in MODELS.items():
        with open(os.path.join(folder, name + ".config.json")) as file:
            config = json.load(file)
        tensors = tensors_of(kind, names, layers, config, load_file(os.path.join(folder, name + ".safetensors")))
        write(os.path.join(folder, name + ".gguf"), keys_of(kind, config), tensors)


main(sys.argv[1])
