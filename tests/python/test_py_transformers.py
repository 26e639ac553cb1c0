"""attn_implementation="attn" against "eager" on small checkpoints of every family: forward with padding, generation with a
cache, one training step, packed sequences; and no matrix of seq_q x seq_kv is made. Skipped without torch and transformers.

Checkpoints: tests/data/families, and every folder with config.json and model.safetensors in ATTN_HF_MODELS where it is set."""
import glob
import os
import shutil
import tempfile
import unittest
import unittest.mock

try:
    import torch
    import transformers
    import attn.transformers as adapter
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
except ImportError:
    torch = None

HERE = os.path.dirname(os.path.abspath(__file__))
FAMILIES = os.path.join(HERE, "..", "data", "families")


def checkpoints():
    """{name: (config file, weights file)}."""
    found = {os.path.basename(f)[:-len(".config.json")]: (f, f.replace(".config.json", ".safetensors"))
             for f in glob.glob(os.path.join(FAMILIES, "*.config.json"))}
    for folder in glob.glob(os.path.join(os.environ.get("ATTN_HF_MODELS", ""), "*", "")) if "ATTN_HF_MODELS" in os.environ else ():
        files = os.path.join(folder, "config.json"), os.path.join(folder, "model.safetensors")
        if all(map(os.path.exists, files)):
            found[os.path.basename(folder.rstrip("/"))] = files
    return {name: files for name, files in found.items() if all(map(os.path.exists, files)) and "torch_" not in name}


class _Checkpoint:
    """One checkpoint, loaded with either implementation."""

    def __init__(self, name, files):
        self.name, self.folder = name, tempfile.mkdtemp()
        if isinstance(files, tuple):
            shutil.copy(files[0], os.path.join(self.folder, "config.json"))
            shutil.copy(files[1], os.path.join(self.folder, "model.safetensors"))
        else:
            files.save_pretrained(self.folder)
        self.config = transformers.AutoConfig.from_pretrained(self.folder)
        self.kind = getattr(transformers, self.config.architectures[0])
        self.decoder = "CausalLM" in self.kind.__name__ or "LMHead" in self.kind.__name__

    def load(self, implementation, dtype=None):
        return self.kind.from_pretrained(self.folder, attn_implementation=implementation, dtype=dtype or torch.float32).eval()

    def inputs(self, padding=None, batch=3, length=21, seed=0):
        generator = torch.Generator().manual_seed(seed)
        if "pixel" in self.kind.main_input_name:
            size = self.config.image_size
            return {"pixel_values": torch.randn(batch, self.config.num_channels, size, size, generator=generator)}
        given = {"input_ids": torch.randint(3, self.config.vocab_size, (batch, length), generator=generator)}
        if padding:
            lengths = torch.tensor([length, length - 5, length // 2])[:batch, None]
            positions = torch.arange(length)[None]
            mask = positions < lengths if padding == "right" else positions >= length - lengths
            given["attention_mask"] = mask.long()
        if self.config.is_encoder_decoder:
            given["decoder_input_ids"] = torch.randint(3, self.config.vocab_size, (batch, 13), generator=generator)
        return given


def main_output(result):
    return result.logits if "logits" in result else result.last_hidden_state


@unittest.skipIf(torch is None, "torch and transformers are not installed")
class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.manual_seed(0)
        found = checkpoints()
        small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
        found.setdefault("vit", transformers.ViTForImageClassification(transformers.ViTConfig(
            image_size=32, patch_size=8, num_labels=5, **small)))
        found.setdefault("modernbert", transformers.ModernBertModel(transformers.ModernBertConfig(
            vocab_size=160, local_attention=8, global_attn_every_n_layers=2, pad_token_id=0, **small)))
        cls.checkpoints = [_Checkpoint(name, files) for name, files in sorted(found.items())]

    @classmethod
    def tearDownClass(cls):
        for checkpoint in cls.checkpoints:
            shutil.rmtree(checkpoint.folder, ignore_errors=True)

    def setUp(self):
        # Whatever reads a mask as a matrix fails the test.
        def refuse(value):
            if isinstance(value, adapter.RuleMask):
                raise AssertionError("a mask of seq_q x seq_kv was made")
            return tuple(map(refuse, value)) if isinstance(value, (tuple, list)) else value
        patch = unittest.mock.patch.object(adapter, "_dense", refuse)
        patch.start()
        self.addCleanup(patch.stop)

    def close(self, got, want, name, bound=2e-5):
        scale = max(1.0, want.abs().max().item())
        error = (got - want).abs().max().item() / scale
        self.assertLess(error, bound, name)

    def test_all_families_are_here(self):
        self.assertGreaterEqual(len(self.checkpoints), 14)
        self.assertTrue({"gpt2", "gemma2", "gpt_oss", "mistral_window", "bert", "t5", "vit"} <= {c.name for c in self.checkpoints})

    def test_forward(self):
        for checkpoint in self.checkpoints:
            eager, ours = checkpoint.load("eager"), checkpoint.load("attn")
            self.assertEqual(ours.config._attn_implementation, "attn")
            for padding in (None, "right", "left"):
                given = checkpoint.inputs(padding)
                with torch.no_grad():
                    want, got = main_output(eager(**given)), main_output(ours(**given))
                if padding and not checkpoint.config.is_encoder_decoder and "input_ids" in given:
                    real = given["attention_mask"].bool()
                    want, got = want[real], got[real]
                self.close(got, want, "%s, padding %s" % (checkpoint.name, padding))

    def test_generate(self):
        for checkpoint in self.checkpoints:
            if not (checkpoint.decoder or checkpoint.config.is_encoder_decoder):
                continue
            eager, ours = checkpoint.load("eager"), checkpoint.load("attn")
            for padding, options in ((None, {}), ("left", {}), (None, {"cache_implementation": "static"})):
                if checkpoint.config.is_encoder_decoder and options:
                    continue
                given = checkpoint.inputs(padding, length=9)
                given.pop("decoder_input_ids", None)
                options = dict(options, max_new_tokens=16, do_sample=False, pad_token_id=0, eos_token_id=-1,
                               return_dict_in_generate=True, output_logits=True, disable_compile=True)
                want, got = eager.generate(**given, **options), ours.generate(**given, **options)
                label = "%s, padding %s" % (checkpoint.name, padding)
                self.assertTrue(torch.equal(got.sequences, want.sequences), label)
                self.close(torch.stack(got.logits), torch.stack(want.logits), label, 5e-5)

    def one_step(self, checkpoint, implementation):
        """(loss, parameters after a step, with their gradients), every position that is not padding counted."""
        model = checkpoint.load(implementation).train()
        for module in model.modules():
            for name in ("p", "dropout", "attention_dropout", "activation_dropout", "layerdrop"):
                if isinstance(getattr(module, name, None), float):
                    setattr(module, name, 0.0)
        given = checkpoint.inputs("right")
        out = main_output(model(**given))
        if "attention_mask" in given and not checkpoint.config.is_encoder_decoder:
            out = out[given["attention_mask"].bool()]
        loss = (out * torch.linspace(-1, 1, out.shape[-1])).square().mean()
        loss.backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
        return loss, dict(model.named_parameters())

    def test_training_step(self):
        for checkpoint in self.checkpoints:
            (want_loss, want), (got_loss, got) = (self.one_step(checkpoint, kind) for kind in ("eager", "attn"))
            self.close(got_loss, want_loss, checkpoint.name)
            largest = max(p.grad.abs().max() for p in want.values() if p.grad is not None)
            for name, parameter in want.items():
                self.close(got[name], parameter, "%s %s" % (checkpoint.name, name))
                self.assertEqual(got[name].grad is None, parameter.grad is None)
                if parameter.grad is not None:
                    self.close(got[name].grad / largest, parameter.grad / largest, "gradient of %s %s" % (checkpoint.name, name))

    def test_packed_sequences(self):
        for checkpoint in self.checkpoints:
            if not checkpoint.decoder:
                continue
            eager, model = checkpoint.load("eager"), checkpoint.load("attn")
            ids = checkpoint.inputs(batch=2, length=24)["input_ids"]
            lengths = [[7, 12, 5], [24]]
            positions = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in lengths])
            with torch.no_grad():
                got = model(input_ids=ids, position_ids=positions, use_cache=False).logits
                self.close(got, eager(input_ids=ids, position_ids=positions, use_cache=False).logits, checkpoint.name)
                if checkpoint.name not in ("gpt2", "llama3_rope", "mistral_window", "qwen2"):
                    continue  # the others do not separate packed sequences in Transformers' eager form either
                for b, row in enumerate(lengths):
                    start = 0
                    for n in row:
                        alone = model(input_ids=ids[b:b + 1, start:start + n], use_cache=False).logits
                        self.close(got[b:b + 1, start:start + n], alone, "%s, sequence at %d" % (checkpoint.name, start))
                        start += n

    def test_sixteen_bits_and_autocast(self):
        checkpoint = next(c for c in self.checkpoints if c.name == "gpt2")
        given = checkpoint.inputs("right")
        real = given["attention_mask"].bool()
        with torch.no_grad():
            want = checkpoint.load("eager")(**given).logits[real]
            got = checkpoint.load("attn", torch.bfloat16)(**given).logits[real]
            self.close(got.float(), want, "bfloat16", 5e-2)
            with torch.autocast("cpu", torch.bfloat16):
                got = checkpoint.load("attn")(**given).logits[real]
            self.close(got.float(), want, "autocast", 5e-2)

    def test_dropout_repeats_with_the_seed(self):
        checkpoint = next(c for c in self.checkpoints if c.name == "gpt2")
        model = checkpoint.load("attn").train()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.3
        given = checkpoint.inputs()
        found = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            found.append(model(**given).logits)
        self.assertTrue(torch.equal(found[0], found[1]))
        self.assertFalse(torch.allclose(found[0], found[2]))


@unittest.skipIf(torch is None, "torch and transformers are not installed")
class Masks(unittest.TestCase):
    """The mask that Transformers would have made, against the rules that were read from it."""

    def rule_and_dense(self, **given):
        mask = adapter.attn_mask(2, device="cpu", **given)
        self.assertIsInstance(mask, adapter.RuleMask)
        return mask, mask & True

    def test_rules_are_the_matrix(self):
        from transformers import masking_utils as m
        keep = torch.arange(12)[None] < torch.tensor([[12], [7]])
        holes = torch.rand(2, 12, generator=torch.Generator().manual_seed(0)) < 0.6
        functions = [m.causal_mask_function, m.bidirectional_mask_function, m.sliding_window_causal_mask_function(4),
                     m.sliding_window_bidirectional_mask_function(3)]
        q, k, v = (torch.randn(2, 3, n, 8, generator=torch.Generator().manual_seed(n)) for n in (5, 12, 12))
        for function in functions:
            for attention_mask in (None, keep, keep.flip(1), holes):
                mask, dense = self.rule_and_dense(q_length=5, kv_length=12, q_offset=7, mask_function=function,
                                                  attention_mask=attention_mask)
                self.assertEqual(dense.shape, (2, 1, 5, 12))
                self.assertIs(type(dense), torch.Tensor)
                want = torch.nn.functional.scaled_dot_product_attention(q, k, v, dense)
                want = want.masked_fill(~dense.any(-1, keepdim=True), 0)
                got, _ = adapter.attn_attention_forward(torch.nn.Module(), q, k, v, mask)
                self.assertTrue(torch.allclose(got.transpose(1, 2), want, atol=1e-5), str(function))

    def test_what_is_not_understood_becomes_the_matrix(self):
        from transformers import masking_utils as m
        own = m.and_masks(m.causal_mask_function, lambda b, h, q, k: (q + k) % 3 != 1)
        for function in (own, m.chunked_causal_mask_function(4, torch.zeros(2, dtype=torch.long)),
                         m.or_masks(m.causal_mask_function, m.bidirectional_mask_function)):
            mask = adapter.attn_mask(2, 6, 6, mask_function=function)
            self.assertIs(type(mask), torch.Tensor)
            self.assertEqual(mask.dtype, torch.bool)
            self.assertTrue(torch.equal(mask, m.sdpa_mask(2, 6, 6, mask_function=function, allow_is_causal_skip=False)))

    def test_a_mask_that_is_read_is_real(self):
        mask, dense = self.rule_and_dense(q_length=4, kv_length=4)
        self.assertEqual((mask.shape, mask.dtype, mask.dim()), ((2, 1, 4, 4), torch.bool, 4))
        self.assertTrue(torch.equal(mask[..., :2], torch.ones(4, 4, dtype=torch.bool).tril()[:, :2].expand(2, 1, 4, 2)))
        self.assertTrue(torch.equal(torch.where(mask, 0.0, 1.0), 1 - dense.float()))


VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + list("abcdefghijklmnopqrstuvwxyz") + ["##" + c for c in "aeionrst"]


@unittest.skipIf(torch is None, "torch and transformers are not installed")
class SentenceTransformers(unittest.TestCase):
    def test_embeddings(self):
        try:
            import sentence_transformers
        except ImportError:
            self.skipTest("sentence-transformers is not installed")
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8") as file:
                file.write("\n".join(VOCABULARY))
            torch.manual_seed(0)
            config = transformers.BertConfig(vocab_size=len(VOCABULARY), hidden_size=32, num_hidden_layers=2,
                                             num_attention_heads=4, intermediate_size=64, max_position_embeddings=64)
            transformers.BertModel(config).save_pretrained(folder)
            transformers.BertTokenizer(os.path.join(folder, "vocab.txt")).save_pretrained(folder)
            texts = ["a tin is on a seat", "rest", "no one is at sea in a storm or a train"]
            found = [sentence_transformers.SentenceTransformer(folder, model_kwargs={"attn_implementation": kind}, device="cpu")
                     for kind in ("eager", "attn")]
            self.assertEqual(found[1][0].auto_model.config._attn_implementation, "attn")
            want, got = (torch.from_numpy(model.encode(texts)) for model in found)
            self.assertLess((got - want).abs().max().item(), 1e-5)


if __name__ == "__main__":
    unittest.main()
