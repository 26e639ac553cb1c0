"""make_families.py FOLDER: tiny checkpoints with random weights and what Hugging Face Transformers computes from them, in the
layout of tests/data/families, for families that came without a checkpoint. Needs torch and transformers (written with
2.15.0 and 5.24.0).

Expected values are computed in float64 (attention in eager mode) and stored as float32. tolerances.txt gets a line for each:
the larger of 2e-5 and five times the worst error of Transformers' own float32 run."""
import os
import shutil
import sys
import tempfile

import numpy as np
import torch
import transformers as hf

COMMON = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
          "initializer_range": 0.15}
DECODER = {"num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 2,
           "eos_token_id": 1}


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


def outputs(model, ids):
    with torch.no_grad():
        out = model(input_ids=ids, output_hidden_states=True, output_attentions=True)
    return {"logits": out.logits, "hidden_1": out.hidden_states[1], "last_hidden_state": out.hidden_states[-1],
            "attn_1": out.attentions[1]}


def main(folder):
    lines = []
    for seed, (name, model) in enumerate(models()):
        for parameter in model.parameters():  # biases and norms that are not all 0 and 1
            if parameter.dim() == 1:
                parameter.data += 0.1 * torch.randn_like(parameter)
        model.eval().set_attn_implementation("eager")
        with tempfile.TemporaryDirectory() as work:
            model.save_pretrained(work)
            for file, ending in (("config.json", ".config.json"), ("model.safetensors", ".safetensors")):
                shutil.copyfile(os.path.join(work, file), os.path.join(folder, name + ending))
        ids = torch.randint(3, 97, (2, 13), generator=torch.Generator().manual_seed(seed))
        single = outputs(model, ids)
        double = outputs(model.double(), ids)

        def save(what, array):
            np.save(os.path.join(folder, "%s_%s.npy" % (name, what)), array)

        save("forward_in_input_ids", ids.numpy())
        for what, exact in double.items():
            worst = (single[what].double() - exact).abs().max().item()
            lines.append("%s_forward_out_%s %.3g" % (name, what, max(2e-5, 5 * worst)))
            save("forward_out_" + what, exact.float().numpy())
        if name.startswith("gemma"):
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


main(sys.argv[1])
