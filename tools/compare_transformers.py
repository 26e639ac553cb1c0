"""Compares a folder that attn train left with Hugging Face Transformers: ids of a text, and logits.

    ATTN_BUILD=build python3 tools/compare_transformers.py FOLDER [TEXT]        needs torch and transformers"""
import os
import sys

import numpy as np
import torch
import transformers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "models"))
import hf_models  # noqa: E402


def main():
    folder = sys.argv[1]
    text = sys.argv[2] if len(sys.argv) > 2 else "It was the other mother who said so, in the year 1812."
    ids = np.array([transformers.AutoTokenizer.from_pretrained(folder)(text)["input_ids"]], np.int64)
    plain = transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"))(text)["input_ids"]
    if ids[0].tolist() != plain:
        sys.exit("AutoTokenizer gives %s, tokenizer.json %s" % (ids[0].tolist(), plain))
    masked = "ForMaskedLM" in open(os.path.join(folder, "config.json"), encoding="utf-8").read()
    kind = transformers.AutoModelForMaskedLM if masked else transformers.AutoModelForCausalLM
    model, report = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    with torch.no_grad():
        theirs = model.eval()(torch.from_numpy(ids)).logits.numpy()
    with hf_models.Session(folder, 1) as session:
        ours = session.forward(ids)["logits"]
    print("%s: %d ids, largest logit %.3f, largest difference %.2e; missing %s, unexpected %s" % (
        type(model).__name__, ids.size, np.abs(theirs).max(), np.abs(ours - theirs).max(), list(report["missing_keys"]),
        list(report["unexpected_keys"])))
    return 0 if np.abs(ours - theirs).max() < 1e-4 * max(1.0, np.abs(theirs).max()) else 1


sys.exit(main())
