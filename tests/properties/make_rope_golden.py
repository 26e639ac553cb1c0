"""make_rope_golden.py > rope_golden.h: angles of rotary embeddings as Hugging Face Transformers computes them, for the settings
of published models. Needs torch and transformers (written with 2.15.0 and 5.24.0).

Each case: the arguments of attn_rope and, for every pair, the frequency (Transformers has it in float32) and the factor that
cos and sin are multiplied by. Dynamic NTK at length L is the NTK rescaling with the factor that its base has there."""
import torch
from transformers import PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

# name, kind, head_dim, rotated part, theta, longest position trained on, sequence length, parameters
CASES = [
    ("linear, factor 4", "linear", 64, 1.0, 10000.0, 2048, None, {"factor": 4.0}),
    ("linear over a quarter (partial)", "linear", 80, 0.4, 10000.0, 2048, None, {"factor": 2.5}),
    ("dynamic NTK at 8192 of 2048", "dynamic", 128, 1.0, 10000.0, 2048, 8192, {"factor": 2.0}),
    ("dynamic NTK, partial", "dynamic", 64, 0.5, 500000.0, 4096, 6000, {"factor": 4.0}),
    ("Llama 3.1", "llama3", 128, 1.0, 500000.0, 131072, None,
     {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
    ("Llama 3.2 1B", "llama3", 64, 1.0, 500000.0, 131072, None,
     {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}),
    ("Llama 3 with other limits", "llama3", 96, 1.0, 20000.0, 8192, None,
     {"factor": 3.0, "low_freq_factor": 0.5, "high_freq_factor": 9.0, "original_max_position_embeddings": 1024}),
    ("YaRN, Qwen 2.5", "yarn", 128, 1.0, 1000000.0, 32768, None, {"factor": 4.0, "original_max_position_embeddings": 32768}),
    ("YaRN, Llama 2 128k", "yarn", 128, 1.0, 10000.0, 131072, None,
     {"factor": 32.0, "original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0}),
    ("YaRN, gpt-oss (range not rounded)", "yarn", 64, 1.0, 150000.0, 131072, None,
     {"factor": 32.0, "original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}),
    ("YaRN, DeepSeek V2 (mscale)", "yarn", 64, 1.0, 10000.0, 163840, None,
     {"factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 0.5}),
    ("YaRN, partial, attention factor given", "yarn", 96, 0.5, 10000.0, 8192, None,
     {"factor": 8.0, "original_max_position_embeddings": 1024, "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.5}),
]
SCALING = {"linear": "ATTN_ROPE_LINEAR", "dynamic": "ATTN_ROPE_NTK", "llama3": "ATTN_ROPE_LLAMA3", "yarn": "ATTN_ROPE_YARN"}


def number(x):
    return repr(float(x))


print("/* rope_golden.h - made by make_rope_golden.py from Hugging Face Transformers; not to be edited. */")
print("typedef struct rope_golden {\n    const char *name;\n    int32_t scaling;\n    uint64_t flags;")
print("    int64_t head_dim, rotary_dim, original_length;")
print("    double base, factor, low, high, beta_fast, beta_slow, attention_factor; /* attention_factor 0: the default */")
print("    double amplitude, frequency[64];\n} rope_golden;\n")
print("static const rope_golden rope_goldens[] = {")
for name, kind, head_dim, part, theta, longest, length, more in CASES:
    config = PretrainedConfig(hidden_size=head_dim * 4, num_attention_heads=4, head_dim=head_dim, max_position_embeddings=longest)
    config.rope_parameters = {"rope_type": kind, "rope_theta": theta, "partial_rotary_factor": part, **more}
    frequency, amplitude = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=length)
    factor = more["factor"] if kind != "dynamic" else more["factor"] * length / longest - (more["factor"] - 1)
    given = amplitude if "mscale" in more or "attention_factor" in more else 0
    flags = "ATTN_ROPE_YARN_EXACT" if not more.get("truncate", True) else "0"
    print(f'    {{"{name}", {SCALING[kind]}, {flags}, {head_dim}, {int(head_dim * part)},', end=" ")
    print(f'{more.get("original_max_position_embeddings", 0)},')
    print("     " + ", ".join(number(x) for x in (theta, factor, more.get("low_freq_factor", 0), more.get("high_freq_factor", 0),
                                                  more.get("beta_fast", 0), more.get("beta_slow", 0), given, amplitude)) + ",")
    values = [f"{x:.9g}" for x in frequency.tolist()]
    lines, line = [], "     {"
    for n, value in enumerate(values):
        piece = value + ("}}," if n == len(values) - 1 else ", ")
        if len(line) + len(piece) > 120:
            lines.append(line.rstrip())
            line = "      "
        line += piece
    print("\n".join(lines + [line]))
print("};")
