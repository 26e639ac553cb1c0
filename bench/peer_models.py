"""peer_models.py: what PyTorch, Hugging Face's libraries and ONNX Runtime take for the rows of `./dev bench models` and `train`.

    python3 bench/peer_models.py embed FOLDER TEXTS f32|bf16 THREADS
    python3 bench/peer_models.py embed_onnx FOLDER TEXTS f32|int8 THREADS  ONNX Runtime: exported by PyTorch, int8: dynamic, by channel
    python3 bench/peer_models.py decode gpt2|smollm2 f32|bf16 THREADS          random weights of the published shape
    python3 bench/peer_models.py train nano|baby|124m f32|bf16 THREADS SECONDS one step as bench_train makes it
    python3 bench/peer_models.py tokens TOKENIZER.json TEXT

Each prints one line of JSON.
"""
import json
import os
import statistics
import sys
import time

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")


def best(run, runs):
    taken = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken)


def peak_mb():
    import resource
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024e-6, 1)


def embed(folder, texts, dtype, threads):
    import sentence_transformers
    import torch
    torch.set_num_threads(int(threads))
    with open(texts, encoding="utf-8") as file:
        lines = file.read().splitlines()
    model = sentence_transformers.SentenceTransformer(folder, device="cpu", model_kwargs={"torch_dtype": getattr(torch, "bfloat16" if dtype == "bf16" else "float32")})
    model.encode(lines[:64], batch_size=32, convert_to_tensor=True)
    took = best(lambda: model.encode(lines, batch_size=32, convert_to_tensor=True), 2)
    return {"who": "sentence-transformers", "per_s": round(len(lines) / took, 1), "memory_mb": peak_mb()}


def export_onnx(folder, path):
    """The encoder's last hidden states as ONNX, f32."""
    import torch
    import transformers

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

        def forward(self, ids, mask, types):
            return self.model(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state

    ids = torch.randint(1000, 20000, (2, 16))
    names = ["input_ids", "attention_mask", "token_type_ids"]
    free = {name: {0: "batch", 1: "length"} for name in names + ["hidden"]}
    torch.onnx.export(Encoder(), (ids, torch.ones_like(ids), torch.zeros_like(ids)), path, input_names=names, output_names=["hidden"],
                      dynamic_axes=free, opset_version=17, dynamo=False)


def embed_onnx(folder, texts, dtype, threads):
    """Batches of 32 by length, truncated to 256, mean pooling: what sentence-transformers does, over ONNX Runtime."""
    import numpy as np
    import onnxruntime
    import onnxruntime.quantization as quantization
    import tempfile
    import tokenizers
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "model.onnx")
        export_onnx(folder, path)
        if dtype == "int8":
            exact, path = path, os.path.join(scratch, "int8.onnx")
            quantization.quantize_dynamic(exact, path, weight_type=quantization.QuantType.QInt8, per_channel=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = int(threads), 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    coder = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    coder.enable_truncation(256)
    coder.enable_padding()
    with open(texts, encoding="utf-8") as file:
        lines = file.read().splitlines()

    def run(lines):
        found = [None] * len(lines)
        order = sorted(range(len(lines)), key=lambda i: -len(lines[i]))
        for start in range(0, len(order), 32):
            batch = coder.encode_batch([lines[i] for i in order[start:start + 32]])
            ids, mask = (np.array([getattr(one, part) for one in batch], dtype=np.int64) for part in ("ids", "attention_mask"))
            hidden = session.run(None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})[0]
            weights = mask[:, :, None].astype(np.float32)
            mean = (hidden * weights).sum(1) / weights.sum(1)
            for i, row in zip(order[start:start + 32], mean / np.linalg.norm(mean, axis=1, keepdims=True)):
                found[i] = row
        return np.array(found)

    run(lines[:64])
    took = best(lambda: run(lines), 2)
    return {"who": "onnxruntime", "per_s": round(len(lines) / took, 1), "memory_mb": peak_mb()}


def decode(shape, dtype, threads):
    import torch
    import transformers
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    config = transformers.GPT2Config() if shape == "gpt2" else transformers.LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=2048, tie_word_embeddings=True)
    model = transformers.AutoModelForCausalLM.from_config(config).to(getattr(torch, "bfloat16" if dtype == "bf16" else "float32")).eval()
    ids = torch.randint(0, config.vocab_size - 1, (1, 512))

    def steps(count):
        out = model(ids[:, :1], use_cache=True)
        for _ in range(count - 1):
            out = model(out.logits[:, -1:].argmax(-1), past_key_values=out.past_key_values, use_cache=True)

    with torch.inference_mode():
        model(ids, use_cache=True, logits_to_keep=1)
        prefill = best(lambda: model(ids, use_cache=True, logits_to_keep=1), 3)
        steps(4)
        one_by_one = best(lambda: steps(64), 2)
    return {"who": "transformers", "prefill_per_s": round(512 / prefill, 1), "decode_per_s": round(64 / one_by_one, 1), "memory_mb": peak_mb()}


def train(name, dtype, threads, seconds):
    import torch
    from torch import nn
    from torch.nn import functional
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    layers, heads, width, length, batch, vocab, context = {
        "nano": (4, 4, 128, 64, 12, 65, 64), "baby": (6, 6, 384, 256, 12, 65, 256), "124m": (12, 12, 768, 64, 4, 50257, 1024)}[name]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            parts = self.qkv(self.norm_1(x)).view(*x.shape[:2], 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
            return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(context, width)
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(layers)), nn.LayerNorm(width)
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)

        def forward(self, ids, targets):
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
            for block in self.blocks:
                x = block(x)
            return functional.cross_entropy(functional.linear(self.norm(x), self.tokens.weight).view(-1, vocab), targets.reshape(-1))

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    ids = torch.randint(0, vocab, (batch, length + 1))

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    step(), step()
    taken, start = [], time.perf_counter()
    while len(taken) < 5 or time.perf_counter() - start < float(seconds):
        begun = time.perf_counter()
        step()
        taken.append(time.perf_counter() - begun)
    return {"who": "PyTorch", "per_s": round(batch * length / statistics.median(taken), 1), "memory_mb": peak_mb()}


def tokens(tokenizer, path):
    import tokenizers
    coder = tokenizers.Tokenizer.from_file(tokenizer)
    coder.no_truncation()
    coder.no_padding()
    with open(path, encoding="utf-8") as file:
        data = file.read()
    lines = data.split("\n")
    took = best(lambda: coder.encode_batch(lines), 3)
    return {"who": "tokenizers", "per_s": round(len(data.encode()) / took / 1e6, 2)}


if __name__ == "__main__":
    print(json.dumps({"embed": embed, "embed_onnx": embed_onnx, "decode": decode, "train": train, "tokens": tokens}[sys.argv[1]](*sys.argv[2:])))
