"""make_families.py FOLDER [NAME...]: tiny checkpoints with random weights and what Hugging Face Transformers computes from them, in the
layout of tests/data/families, for families that came without a checkpoint. Needs torch and transformers (written with
2.15.0 and 5.24.0).

Expected values are computed in float64 (attention in eager mode) and stored as float32. tolerances.txt gets a line for each:
the larger of 2e-5 and five times the worst error of Transformers' own float32 run."""
import json
import os
import shutil
import sys
import tempfile

import numpy as np
import torch
import transformers as hf
from safetensors.torch import save_file

import sweep_families

COMMON = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
          "initializer_range": 0.15}
DECODER = {"num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 2,
           "eos_token_id": 1}


# Unusual options, of those that sweep_families.py tries.
UNUSUAL = ["bert_decoder", "bert_mish", "bert_untied", "gemma3_both_scaled", "gemma3_both_ways", "gpt2_inverse_unscaled",
           "llama_dynamic_long", "llama_longrope", "llama_yarn_mscale", "marian", "mbart", "opt_post", "opt_projection", "qwen2_windows"]
GREEDY = ["bert_decoder", "gemma", "gemma3", "gemma3_both_scaled"]


def models():
    torch.manual_seed(7)
    yield "roberta", hf.RobertaForMaskedLM(hf.RobertaConfig(**COMMON, max_position_embeddings=40, type_vocab_size=1,
                                                            pad_token_id=1))
    yield "bert_mlm", hf.BertForMaskedLM(hf.BertConfig(**COMMON, max_position_embeddings=40))
    yield "gemma", hf.GemmaForCausalLM(hf.GemmaConfig(**COMMON, **DECODER))
    yield "gemma3", hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(
        **COMMON, **DECODER, sliding_window=4, layer_types=["sliding_attention", "full_attention"],
        query_pre_attn_scalar=12))
    yield "modernbert", hf.ModernBertForMaskedLM(hf.ModernBertConfig(
        vocab_size=97, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=48,
        initializer_range=0.15, max_position_embeddings=64, local_attention=6, pad_token_id=0, bos_token_id=2,
        eos_token_id=1, cls_token_id=2, sep_token_id=1))
    for name in UNUSUAL:
        yield name, sweep_families.MODELS[name]()


def outputs(model, ids, **target):
    if target:
        with torch.no_grad():
            out = model(input_ids=ids, output_attentions=True, **target)
        return {"logits": out.logits, "cross_attn_1": out.cross_attentions[1]}
    with torch.no_grad():
        out = model(input_ids=ids, output_hidden_states=True, output_attentions=True)
    found = {"logits": out.logits, "hidden_1": out.hidden_states[1], "attn_1": out.attentions[1]}
    if out.hidden_states[-1].shape == out.hidden_states[1].shape:
        found["last_hidden_state"] = out.hidden_states[-1]
    return found


def vision(folder, save):
    """ViT: images in, classes out."""
    torch.manual_seed(8)
    model = hf.ViTForImageClassification(hf.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=24, patch_size=8,
        num_channels=3, num_labels=5, qkv_bias=False, initializer_range=0.15, hidden_act="gelu_new"))
    noise(model)
    store(model.eval(), "vit", folder)
    pixels = torch.randn(2, 3, 24, 24)
    model.set_attn_implementation("eager")

    def run(m, x):
        with torch.no_grad():
            out = m(pixel_values=x, output_hidden_states=True, output_attentions=True)
        return {"logits": out.logits, "hidden_1": out.hidden_states[1], "attn_1": out.attentions[1]}

    save("vit", {"pixel_values": pixels}, run(model, pixels), run(model.double(), pixels.double()))


def transformer(folder, save, norm_first):
    """torch.nn.Transformer, rows in and rows out, the last keys of one source hidden."""
    torch.manual_seed(9)
    options = {"d_model": 32, "nhead": 4, "num_encoder_layers": 2, "num_decoder_layers": 3, "dim_feedforward": 40,
               "activation": "gelu" if norm_first else "relu", "norm_first": norm_first, "layer_norm_eps": 1e-4}
    name = "torch_pre_norm" if norm_first else "torch_post_norm"
    model = torch.nn.Transformer(batch_first=True, dropout=0.0, **options).eval()
    noise(model)
    save_file(model.state_dict(), os.path.join(folder, name + ".safetensors"))
    with open(os.path.join(folder, name + ".config.json"), "w") as file:
        json.dump({"model_type": "torch_transformer", **options}, file, indent=1)
    src, tgt, keep = torch.randn(2, 9, 32), torch.randn(2, 7, 32), torch.ones(2, 9, dtype=torch.int64)
    keep[1, 6:] = 0
    causal = torch.triu(torch.ones(7, 7, dtype=torch.bool), 1)

    def run(m, x, y):
        with torch.no_grad():
            memory = m.encoder(x, src_key_padding_mask=keep == 0) * keep[:, :, None]
            return {"memory": memory, "output": m.decoder(y, memory, tgt_mask=causal, memory_key_padding_mask=keep == 0)}

    save(name, {"src": src, "tgt": tgt, "keep": keep}, run(model, src, tgt), run(model.double(), src.double(), tgt.double()))


def noise(model):
    for parameter in model.parameters():  # biases and norms that are not all 0 and 1
        if parameter.dim() == 1:
            parameter.data += 0.1 * torch.randn_like(parameter)


def store(model, name, folder):
    with tempfile.TemporaryDirectory() as work:
        model.save_pretrained(work)
        for file, ending in (("config.json", ".config.json"), ("model.safetensors", ".safetensors")):
            shutil.copyfile(os.path.join(work, file), os.path.join(folder, name + ending))


def main(folder, only):
    lines = []

    def save_run(name, inputs, single, double):
        for what, array in inputs.items():
            np.save(os.path.join(folder, "%s_forward_in_%s.npy" % (name, what)), array.numpy())
        for what, exact in double.items():
            worst = (single[what].double() - exact).abs().max().item()
            lines.append("%s_forward_out_%s %.3g" % (name, what, max(2e-5, 5 * worst)))
            np.save(os.path.join(folder, "%s_forward_out_%s.npy" % (name, what)), exact.float().numpy())

    vision(folder, save_run)
    transformer(folder, save_run, False)
    transformer(folder, save_run, True)
    for seed, (name, model) in enumerate(models()):
        if only and name not in only:
            continue
        noise(model)
        model.eval().set_attn_implementation("eager")
        store(model, name, folder)
        ids = torch.randint(3, model.config.vocab_size, (2, 13), generator=torch.Generator().manual_seed(seed))
        target = {}
        if model.config.is_encoder_decoder:
            target = {"decoder_input_ids": ids[:, 4:11], "attention_mask": (torch.arange(13) < torch.tensor([[13], [9]])).long()}
        single = outputs(model, ids, **target)
        double = outputs(model.double(), ids, **target)

        def save(what, array):
            np.save(os.path.join(folder, "%s_%s.npy" % (name, what)), array)

        save_run(name, {"input_ids": ids, **target}, single, double)
        if name in GREEDY:
            found = ids
            for _ in range(8):
                with torch.no_grad():
                    logits = model(input_ids=found).logits[:, -1]
                best = logits.topk(2).values
                assert (best[:, 0] - best[:, 1]).min() > 1e-3, name
                found = torch.cat([found, logits.argmax(-1)[:, None]], 1)
            save("greedy_in_input_ids", ids.numpy())
            save("greedy_out_tokens", found[:, 13:].numpy())
    path = os.path.join(folder, "tolerances.txt")
    made = {line.split()[0] for line in lines}
    with open(path) as file:
        kept = [line.strip() for line in file if line.split()[0] not in made]
    with open(path, "w") as file:
        file.write("".join(line + "\n" for line in kept + lines))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
