"""sweep_families.py [--only TEXT] [--keep FOLDER]: unusual combinations of each family's options, made with Transformers and run
on libattn_model. Every model gets random weights; logits, all hidden states and the attention weights of every layer are
compared with Transformers' float64 results, padded batches and greedy tokens too. A combination that is not served must be
refused at loading with the field's name. Ends with 'N agree, N refused, N differ'. Needs torch and transformers (written with
2.15.0 and 5.24.0); ATTN_BUILD names the build folder."""
import argparse
import json
import os
import sys
import tempfile

import numpy as np
import torch
import transformers as hf

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hf_models  # noqa: E402

SMALL = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40,
         "initializer_range": 0.15, "max_position_embeddings": 48, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 12, "rope_theta": 5000.0}
SLIDE, FULL = "sliding_attention", "full_attention"


def llama(kind="Llama", **options):
    config = getattr(hf, kind + "Config")(**{**SMALL, "num_key_value_heads": 2, **options})
    return getattr(hf, kind + "ForCausalLM")(config)


def rope(**options):
    return {"rope_parameters": {"rope_theta": 10000.0, **options}}


def gpt2(**options):
    return hf.GPT2LMHeadModel(hf.GPT2Config(**{"vocab_size": 61, "n_positions": 48, "n_embd": 32, "n_layer": 3, "n_head": 4,
                                               "initializer_range": 0.15, "bos_token_id": 1, "eos_token_id": 2, **options}))


def neox(**options):
    return hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**{**SMALL, **options}))


def opt(**options):
    return hf.OPTForCausalLM(hf.OPTConfig(**{"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
                                             "ffn_dim": 40, "init_std": 0.15, "max_position_embeddings": 48, "word_embed_proj_dim": 32,
                                             "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **options}))


def gemma(kind, **options):
    return llama(kind, **{"head_dim": 12, **options})


def gemma3(**options):
    config = hf.Gemma3TextConfig(**{**SMALL, "num_key_value_heads": 2, "head_dim": 12, "sliding_window": 5, "query_pre_attn_scalar": 20,
                                    "layer_types": [SLIDE, FULL, SLIDE], **options})
    return hf.Gemma3ForCausalLM(config)


def gpt_oss(**options):
    return llama("GptOss", **{"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5,
                              "layer_types": [SLIDE, FULL, SLIDE], **options})


def bert(kind="Bert", head="MaskedLM", **options):
    return getattr(hf, "%s%s" % (kind, "Model" if not head else "For" + head))(getattr(hf, kind + "Config")(**{**SMALL, **options}))


def distilbert(head="MaskedLM", **options):
    config = hf.DistilBertConfig(**{"vocab_size": 61, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 40, "initializer_range": 0.15,
                                    "max_position_embeddings": 48, "pad_token_id": 0, **options})
    return hf.DistilBertForMaskedLM(config) if head else hf.DistilBertModel(config)


def t5(kind="T5", **options):
    config = getattr(hf, kind + "Config")(**{"vocab_size": 61, "d_model": 32, "d_kv": 12, "d_ff": 40, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 4,
                            "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "initializer_factor": 0.7,
                            "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0, **options})
    return getattr(hf, kind + "ForConditionalGeneration")(config)


def bart(kind="Bart", head="ForConditionalGeneration", **options):
    config = getattr(hf, kind + "Config")(**{
        "vocab_size": 61, "d_model": 32, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "max_position_embeddings": 48, "init_std": 0.15, "pad_token_id": 0, "eos_token_id": 2,
        "decoder_start_token_id": 0, **options})
    model = getattr(hf, kind + head)(config)
    model.final_logits_bias += 0.3 * torch.randn(model.final_logits_bias.shape)
    return model


MODELS = {
    "llama_biases": lambda: llama(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "llama_wide_heads": lambda: llama(head_dim=24, num_key_value_heads=1, rms_norm_eps=1e-3),
    "llama_narrow_heads": lambda: llama(head_dim=4, num_key_value_heads=4, hidden_act="gelu"),
    "llama_odd_gqa": lambda: llama(hidden_size=36, num_attention_heads=6, head_dim=10, num_key_value_heads=3, hidden_act="relu"),
    "llama_linear": lambda: llama(**rope(rope_type="linear", factor=3.0), hidden_act="gelu_pytorch_tanh"),
    "llama_dynamic_short": lambda: llama(**rope(rope_type="dynamic", factor=3.0), max_position_embeddings=48),
    "llama_dynamic_long": lambda: llama(**rope(rope_type="dynamic", factor=3.0), max_position_embeddings=10),
    "llama_model": lambda: hf.LlamaModel(hf.LlamaConfig(**{**SMALL, "num_key_value_heads": 2})),
    "llama_yarn": lambda: llama(rope_parameters=YARN),
    "llama_yarn_betas": lambda: llama(rope_parameters={**YARN, "beta_fast": 8.0, "beta_slow": 2.0, "attention_factor": 0.7}),
    "llama_yarn_mscale": lambda: llama(rope_parameters={**YARN, "mscale": 0.9, "mscale_all_dim": 0.6}),
    "llama_yarn_untruncated": lambda: llama(rope_parameters={**YARN, "truncate": False}),
    "llama_llama3": lambda: llama(**rope(rope_type="llama3", factor=8.0, low_freq_factor=1.5, high_freq_factor=3.0,
                                         original_max_position_embeddings=16)),
    "llama_longrope": lambda: llama(**rope(rope_type="longrope", factor=4.0, original_max_position_embeddings=12,
                                           short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[2.0, 3.0, 4.0, 5.0]), hidden_act="relu2"),
    "llama_longrope_short": lambda: llama(**rope(rope_type="longrope", original_max_position_embeddings=24, short_factor=[1.0, 1.1, 1.2, 1.3],
                                                 long_factor=[2.0, 3.0, 4.0, 5.0])),
    "llama_longrope_phi": lambda: llama(original_max_position_embeddings=13, head_dim=6,
                                        **rope(rope_type="longrope", short_factor=[1.0, 1.4, 1.2], long_factor=[2.0, 3.0, 4.0])),
    "llama_yarn_no_factor": lambda: llama(rope_parameters={"rope_type": "yarn", "factor": None, "rope_theta": 5000.0,
                                                           "original_max_position_embeddings": 12}),
    "llama_partial": lambda: llama(**rope(rope_type="default", partial_rotary_factor=0.5)),
    "llama_partial_odd": lambda: llama(head_dim=10, **rope(rope_type="default", partial_rotary_factor=0.5)),
    "llama_quick_gelu": lambda: llama(hidden_act="quick_gelu"),
    "llama_gelu_fast": lambda: llama(hidden_act="gelu_fast"),
    "llama_gelu_python": lambda: llama(hidden_act="gelu_python"),
    "llama_relu2": lambda: llama(hidden_act="relu2"),
    "llama_mish": lambda: llama(hidden_act="mish"),
    "llama_sigmoid": lambda: llama(hidden_act="sigmoid"),
    "llama_tanh": lambda: llama(hidden_act="tanh"),
    "llama_leaky": lambda: llama(hidden_act="leaky_relu"),
    "llama_gelu_10": lambda: llama(hidden_act="gelu_10"),
    "llama_relu6": lambda: llama(hidden_act="relu6"),
    "llama_laplace": lambda: llama(hidden_act="laplace", mlp_bias=True),
    "mistral_no_window": lambda: llama("Mistral", sliding_window=None, tie_word_embeddings=True),
    "mistral_window": lambda: llama("Mistral", sliding_window=1, head_dim=20),
    "qwen2_windows": lambda: llama("Qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=1),
    "qwen2_window_off": lambda: llama("Qwen2", use_sliding_window=False, sliding_window=4, max_window_layers=0, tie_word_embeddings=True),
    "qwen2_layer_types": lambda: llama("Qwen2", use_sliding_window=True, sliding_window=3, layer_types=[SLIDE, FULL, SLIDE]),
    "qwen2_old_windows": lambda: llama("Qwen2", use_sliding_window=True, sliding_window=3),
    "qwen3_biases": lambda: llama("Qwen3", head_dim=12, attention_bias=True, tie_word_embeddings=True),
    "qwen3_windows": lambda: llama("Qwen3", head_dim=16, use_sliding_window=True, sliding_window=4, max_window_layers=2, rope_parameters=YARN),
    "gpt2_options": lambda: gpt2(n_inner=52, activation_function="relu", layer_norm_epsilon=1e-3),
    "gpt2_inverse_layer": lambda: gpt2(scale_attn_by_inverse_layer_idx=True),
    "gpt2_inverse_unscaled": lambda: gpt2(scale_attn_by_inverse_layer_idx=True, scale_attn_weights=False, activation_function="silu"),
    "gpt2_unscaled": lambda: gpt2(scale_attn_weights=False, activation_function="gelu"),
    "gpt2_leaky": lambda: gpt2(activation_function="leaky_relu", scale_attn_by_inverse_layer_idx=True),
    "gpt2_untied": lambda: gpt2(tie_word_embeddings=False),
    "neox_serial": lambda: neox(use_parallel_residual=False, **rope(rope_type="default", partial_rotary_factor=1.0)),
    "neox_half": lambda: neox(attention_bias=False, hidden_act="gelu_new", **rope(rope_type="linear", factor=2.0, partial_rotary_factor=0.5)),
    "neox_tied": lambda: neox(tie_word_embeddings=True, layer_norm_eps=1e-3, hidden_act="relu"),
    "neox_rotary_pct": lambda: neox(rotary_pct=0.75, rotary_emb_base=500),
    "opt_post": lambda: opt(do_layer_norm_before=False),
    "opt_no_bias": lambda: opt(enable_bias=False, layer_norm_elementwise_affine=False, activation_function="gelu"),
    "opt_projection": lambda: opt(word_embed_proj_dim=16),
    "opt_no_final": lambda: opt(_remove_final_layer_norm=True, tie_word_embeddings=False),
    "gemma_bias": lambda: gemma("Gemma", attention_bias=True, num_key_value_heads=1, hidden_act="gelu"),
    "gemma_relu": lambda: gemma("Gemma", hidden_act="relu", **rope(rope_type="dynamic", factor=4.0)),
    "gemma_untied": lambda: gemma("Gemma", tie_word_embeddings=False, num_key_value_heads=4),
    "gemma2_no_caps": lambda: gemma("Gemma2", attn_logit_softcapping=None, final_logit_softcapping=None, sliding_window=5),
    "gemma2_caps": lambda: gemma("Gemma2", attn_logit_softcapping=3.0, final_logit_softcapping=2.0, sliding_window=3,
                                 query_pre_attn_scalar=30, attention_bias=True, hidden_activation="gelu"),
    "gemma2_all_full": lambda: gemma("Gemma2", layer_types=[FULL] * 3, sliding_window=3),
    "gemma3_scaled": lambda: gemma3(rope_parameters={FULL: {"rope_type": "linear", "factor": 4.0, "rope_theta": 90000.0},
                                                     SLIDE: {"rope_type": "default", "rope_theta": 700.0}}),
    "gemma3_both_scaled": lambda: gemma3(rope_parameters={FULL: {"rope_type": "linear", "factor": 4.0, "rope_theta": 90000.0},
                                                          SLIDE: {"rope_type": "linear", "factor": 2.0, "rope_theta": 700.0}}),
    "gemma3_caps": lambda: gemma3(attn_logit_softcapping=4.0, final_logit_softcapping=3.0, attention_bias=True),
    "gemma3_both_ways": lambda: gemma3(use_bidirectional_attention=True),
    "gemma3_embedding": lambda: hf.Gemma3TextModel(gemma3(use_bidirectional_attention=True, sliding_window=8).config),
    "gemma3_untied": lambda: gemma3(tie_word_embeddings=False, num_key_value_heads=1),
    "gpt_oss_plain_rope": lambda: gpt_oss(**rope(rope_type="default")),
    "gpt_oss_truncated": lambda: gpt_oss(rope_parameters={**YARN, "truncate": True}, num_experts_per_tok=1, attention_bias=False),
    "gpt_oss_all_full": lambda: gpt_oss(layer_types=[FULL] * 3, rope_parameters={**YARN, "truncate": False}, tie_word_embeddings=True,
                                        num_experts_per_tok=4),
    "bert_new_gelu": lambda: bert(hidden_act="gelu_new", layer_norm_eps=1e-5, type_vocab_size=3),
    "bert_relu_model": lambda: bert(head=None, hidden_act="relu"),
    "bert_mish": lambda: bert(hidden_act="mish"),
    "bert_untied": lambda: bert(tie_word_embeddings=False),
    "bert_decoder": lambda: hf.BertLMHeadModel(hf.BertConfig(**{**SMALL, "is_decoder": True})),
    "roberta_decoder": lambda: hf.RobertaForCausalLM(hf.RobertaConfig(**{**SMALL, "is_decoder": True, "pad_token_id": 1})),
    "gpt_neox_model": lambda: hf.GPTNeoXModel(hf.GPTNeoXConfig(**SMALL)),
    "roberta_pad0": lambda: bert("Roberta", type_vocab_size=2),
    "roberta_model": lambda: bert("Roberta", head=None, pad_token_id=1, hidden_act="relu"),
    "xlm_roberta": lambda: bert("XLMRoberta", pad_token_id=1, type_vocab_size=1, hidden_act="gelu_new"),
    "camembert": lambda: bert("Camembert", pad_token_id=1, type_vocab_size=1, tie_word_embeddings=False),
    "distilbert_sinusoidal": lambda: distilbert(sinusoidal_pos_embds=True, activation="relu"),
    "distilbert_untied": lambda: distilbert(tie_word_embeddings=False),
    "distilbert_model": lambda: distilbert(head=None),
    "modernbert_biases": lambda: bert("ModernBert", attention_bias=True, mlp_bias=True, norm_bias=True, local_attention=4, cls_token_id=1, sep_token_id=2),
    "modernbert_every2": lambda: bert("ModernBert", global_attn_every_n_layers=2, local_attention=6, decoder_bias=False, classifier_bias=True,
                                      hidden_activation="silu", classifier_activation="relu", cls_token_id=1, sep_token_id=2),
    "modernbert_model": lambda: bert("ModernBert", head=None, local_attention=2, norm_eps=1e-3, cls_token_id=1, sep_token_id=2),
    "modernbert_untied": lambda: bert("ModernBert", tie_word_embeddings=False, cls_token_id=1, sep_token_id=2),
    "t5_gated": lambda: t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "t5_gated_silu": lambda: t5(feed_forward_proj="gated-silu", num_heads=5, layer_norm_epsilon=1e-4),
    "t5_plain_gelu": lambda: t5(feed_forward_proj="gelu", num_decoder_layers=4, relative_attention_num_buckets=32,
                                relative_attention_max_distance=128),
    "bart": lambda: bart(),
    "bart_scaled": lambda: bart(scale_embedding=True, activation_function="relu", decoder_layers=4),
    "bart_untied": lambda: bart(tie_word_embeddings=False),
    "mbart": lambda: bart("MBart", scale_embedding=True, activation_function="gelu_new"),
    "pegasus_half": lambda: bart("Pegasus", activation_function="relu").half().float(),  # sines as the file rounds them
    "pegasus": lambda: bart("Pegasus", activation_function="relu"),
    "marian": lambda: bart("Marian", "MTModel", scale_embedding=True, activation_function="swish"),
    "t5_encoder": lambda: hf.T5EncoderModel(t5(feed_forward_proj="gated-silu").config),
    "mt5": lambda: t5("MT5", feed_forward_proj="gated-gelu", tie_word_embeddings=False),
}
OLDER = {"qwen2_old_windows": ["layer_types", "max_window_layers"]}  # fields that files from before them do not have
ONE_PASS = ["llama_dynamic_long"]  # frequencies depend on the length, and cached keys keep theirs
N, BATCH = 14, 2


def randomise(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1 or parameter.std() < 0.05:  # norms, biases, sinks; small matrices
            parameter.data += 0.15 * torch.randn(parameter.shape, generator=generator)


def padding(batch):
    mask = np.ones((batch, N), np.int64)
    mask[0, 9:], mask[1, 12:] = 0, 0
    return mask


def expected(model, ids, mask):
    """Transformers' outputs in float64 and how far its float32 run is from them. Padded sequences of an encoder run alone:
    Transformers lets the NaN of a padded row that sees no key reach others."""
    if mask is not None and not model.config.is_encoder_decoder:
        found = {}
        for b, n in enumerate(mask.sum(1)):
            for key, (exact, off) in expected(model, ids[b:b + 1, :n], None).items():
                whole, worst = found.get(key, (np.zeros((BATCH,) + tuple(N if s == n and i else s for i, s in enumerate(exact.shape[1:], 1))), 0))
                whole[b][tuple(slice(s) for s in exact.shape[1:])] = exact[0]
                found[key] = (whole, max(worst, off))
        return found
    kwargs = {"input_ids": torch.from_numpy(ids), "output_hidden_states": True, "output_attentions": True}
    if mask is not None:
        kwargs["attention_mask"] = torch.from_numpy(mask)
    if model.config.is_encoder_decoder:
        kwargs["decoder_input_ids"] = torch.from_numpy(ids[:, :11])
    runs = []
    for dtype in (torch.float32, torch.float64):
        with torch.no_grad():
            runs.append(model.to(dtype)(**kwargs))
    found = {}

    def add(name, pick):
        values = [pick(run) for run in runs]
        if values[1] is not None:
            found[name] = (values[1].numpy(), np.nanmax((values[0].double() - values[1]).abs().numpy()))

    add("logits", lambda r: getattr(r, "logits", None))
    if model.config.is_encoder_decoder:
        add("enc_hidden", lambda r: r.encoder_last_hidden_state)
        for kind, name in (("encoder_attentions", "enc_attn"), ("decoder_attentions", "dec_attn"), ("cross_attentions", "cross_attn")):
            for i in range(len(runs[1][kind])):
                add("%s_%d" % (name, i), lambda r: r[kind][i])
        return found
    for i in range(len(runs[1].hidden_states)):
        if runs[1].hidden_states[i].shape[-1] == model.config.hidden_size:  # OPT's last one may be projected
            add("hidden_%d" % i, lambda r: r.hidden_states[i])
    for i in range(len(runs[1].attentions)):
        add("attn_%d" % i, lambda r: r.attentions[i])
    return found


def compare(name, got, want, mask):
    for key, (exact, off) in want.items():
        mine = got.get(key)
        if mine is None:
            return "%s is missing" % key
        if exact.shape != mine.shape:
            return "%s has shape %s, not %s" % (key, mine.shape, exact.shape)
        if mask is not None and exact.shape[-2] == N:  # rows of padding are whatever each library leaves there
            real = mask[:, :, None] if exact.ndim == 3 else mask[:, None, :, None]
            exact, mine = np.where(real, exact, 0), np.where(real, mine, 0)
        worst = np.abs(exact - mine).max()
        allowed = max(2e-5, 6 * off) + 1e-4 * np.abs(exact).max()
        if not worst <= allowed:
            return "%s is off by %.3g (allowed %.3g, largest value %.3g)" % (key, worst, allowed, np.abs(exact).max())
    return None


def greedy_of(model, ids, new):
    found = ids
    for _ in range(new):
        with torch.no_grad():
            best = model(input_ids=torch.from_numpy(found)).logits[:, -1]
        top = best.topk(2).values
        if (top[:, 0] - top[:, 1]).min() < 1e-3:
            break
        found = np.concatenate([found, best.argmax(-1)[:, None].numpy()], 1)
    return found[:, ids.shape[1]:]


def check(name, folder, seed):
    torch.manual_seed(seed)
    model = MODELS[name]().eval()
    model.set_attn_implementation("eager")
    if hasattr(model.config, "num_local_experts"):
        model.set_experts_implementation("eager")
    randomise(model, seed)
    model.save_pretrained(folder)
    if name in OLDER:
        with open(os.path.join(folder, "config.json")) as file:
            config = {k: v for k, v in json.load(file).items() if k not in OLDER[name]}
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
    ids = np.random.default_rng(seed).integers(3, 61, (BATCH, N))
    causal = "CausalLM" in type(model).__name__ or "LMHead" in type(model).__name__
    decoder = causal and not getattr(model.config, "use_bidirectional_attention", False)
    for mask in [None] if decoder else [None, padding(BATCH)]:
        inputs = {"input_ids": ids}
        if mask is not None:
            inputs["attention_mask"] = mask
        if model.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = ids[:, :11]
        problem = compare(name, hf_models.run_forward(folder, inputs), expected(model, ids, mask), mask)
        if problem:
            return problem + (" (padded)" if mask is not None else "")
    if decoder and name not in ONE_PASS:
        want = greedy_of(model, ids, 8)
        got = hf_models.run_generate(folder, {"new_tokens": want.shape[1]}, {"input_ids": ids})["tokens"] if want.shape[1] else want
        if not (got == want).all():
            return "greedy tokens %s, not %s" % (got.tolist(), want.tolist())
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", help="where the checkpoints stay")
    options = parser.parse_args()
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    torch.set_num_threads(1)
    agree, refused, differ = 0, 0, 0
    with tempfile.TemporaryDirectory() as work:
        for seed, name in enumerate(MODELS):
            if options.only not in name:
                continue
            folder = os.path.join(options.keep or work, name)
            try:
                problem = check(name, folder, seed)
            except NotImplementedError as reason:
                refused += 1
                print("refused %s: %s" % (name, reason))
                continue
            except Exception as reason:
                problem = "%s: %s" % (type(reason).__name__, reason)
            agree, differ = agree + (problem is None), differ + (problem is not None)
            if problem:
                print("DIFFERS %s: %s" % (name, problem))
    print("%d agree, %d refused, %d differ" % (agree, refused, differ))
    return 1 if differ or not agree else 0


if __name__ == "__main__":
    sys.exit(main())
