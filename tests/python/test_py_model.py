"""attn.Model on small committed checkpoints: logits, attention, generation, errors; and on the real model where it is there."""
import copy
import glob
import json
import os
import pickle
import shutil
import signal
import tempfile
import threading
import unittest

import numpy as np

import attn
from attn import model_library

HERE = os.path.dirname(os.path.abspath(__file__))
FAMILIES = os.path.join(HERE, "..", "data", "families")
REAL = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "attn", "SmolLM2-135M-Instruct.Q4_1.gguf")

ENCODER = os.path.join(os.path.dirname(REAL), "all-MiniLM-L6-v2")

try:
    model_library.load()
    missing = None
except attn.ModelLibraryMissing as error:
    missing = str(error)


class Folder:
    """A folder with one family's checkpoint, as Hugging Face lays it out."""

    def __init__(self, name):
        self.path = tempfile.mkdtemp()
        shutil.copy(os.path.join(FAMILIES, name + ".config.json"), os.path.join(self.path, "config.json"))
        shutil.copy(os.path.join(FAMILIES, name + ".safetensors"), os.path.join(self.path, "model.safetensors"))

    def __enter__(self):
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path)


def given(name, what):
    return np.load(os.path.join(FAMILIES, "%s_%s.npy" % (name, what)))


class Library(unittest.TestCase):
    def test_a_missing_library_names_the_remedy(self):
        kept, named = model_library._loaded[:], os.environ.get("ATTN_MODEL_LIBRARY")
        model_library._loaded.clear()
        try:
            for path in ("/nowhere/libattn_model.so", os.path.abspath(__file__)):
                os.environ["ATTN_MODEL_LIBRARY"] = path
                with self.assertRaisesRegex(attn.ModelLibraryMissing, "libjansson"):
                    attn.Model.load("model.gguf")
        finally:
            os.environ.pop("ATTN_MODEL_LIBRARY")
            if named is not None:
                os.environ["ATTN_MODEL_LIBRARY"] = named
            model_library._loaded[:] = kept


@unittest.skipIf(missing is not None, "libattn_model is not here")
class Small(unittest.TestCase):
    def test_logits_and_attention_are_the_committed_ones(self):
        for name in ("gpt2", "gemma2", "gpt_oss", "llama3_rope", "mistral_window", "qwen3"):
            with Folder(name) as path:
                model = attn.Model.load(path)
                self.assertIsNone(model.tokenizer)
                for b, ids in enumerate(given(name, "forward_in_input_ids")):
                    want = given(name, "forward_out_logits")[b]
                    np.testing.assert_allclose(model.logits(ids, all=True), want, rtol=1e-3, atol=3e-4, err_msg=name)
                    np.testing.assert_allclose(model.logits(ids), want[-1], rtol=1e-3, atol=3e-4, err_msg=name)
                    weights = given(name, "forward_out_attn_1")[b]
                    for head in range(model.info["n_heads"]):
                        np.testing.assert_allclose(model.attention(1, head), weights[head], rtol=1e-3, atol=1e-4)
                    np.testing.assert_allclose(model.attention(1, 0, query=-1), weights[0, -1], rtol=1e-3, atol=1e-4)

    def test_greedy_tokens(self):
        for name in ("gpt2", "mistral_window"):
            with Folder(name) as path:
                model = attn.Model.load(path)
                for ids, want in zip(given(name, "greedy_in_input_ids"), given(name, "greedy_out_tokens")):
                    found = model.generate(ids, len(want), ignore_eos=True)
                    np.testing.assert_array_equal(found.tokens, want)
                    self.assertEqual((found.text, found.reason), (None, "length"))
                    count = []
                    stopped = model.generate(ids, len(want), ignore_eos=True, on_text=lambda t: count.append(t) or len(count) == 3)
                    self.assertEqual((len(stopped.tokens), stopped.reason), (3, "callback"))
                with self.assertRaises(ZeroDivisionError):
                    model.generate(ids, 4, ignore_eos=True, on_text=lambda t: 1 / 0)

    def test_chat(self):
        austen = os.path.join(HERE, "..", "..", "models", "austen")
        with tempfile.TemporaryDirectory() as path:
            for name in ("config.json", "model.safetensors", "tokenizer.json"):
                os.symlink(os.path.join(os.path.abspath(austen), name), os.path.join(path, name))
            said = [{"role": "user", "content": "it wäs \n"}]
            with self.assertRaisesRegex(attn.Unsupported, "has no chat template"):
                attn.Model.load(path).chat(said)
            with open(os.path.join(path, "chat_template.jinja"), "w") as file:
                file.write("{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}{% endfor %}{% if add_generation_prompt %} >{% endif %}")
            model = attn.Model.load(path)
            np.testing.assert_array_equal(model.chat(said), model.tokenizer.encode("[user] it wäs >", special=False))
            np.testing.assert_array_equal(model.chat(said, prompt=False), model.tokenizer.encode("[user] it wäs", special=False))

    def test_encoder(self):
        with Folder("bert") as path:
            model = attn.Model.load(path)
            ids, keep = given("bert", "padded_in_input_ids"), given("bert", "padded_in_attention_mask").astype(bool)
            want = given("bert", "padded_out_last_hidden_state")
            vectors = model.embed([row[k] for row, k in zip(ids, keep)], pooling="mean", normalize=False)
            for b in range(len(ids)):
                np.testing.assert_allclose(model.hidden(ids[b][keep[b]]), want[b][keep[b]], rtol=1e-3, atol=1e-4)
                np.testing.assert_allclose(vectors[b], want[b][keep[b]].mean(axis=0), rtol=1e-3, atol=1e-4)
            self.assertEqual(model.embed([]).shape, (0, model.info["d_model"]))
            view = model.inspect(ids[0][keep[0]])
            self.assertEqual(view.weights.shape, (model.info["n_layers"], model.info["n_heads"], keep[0].sum()))
            self.assertIn('"outcome_kind":2', view.page())

    def test_encoder_decoder(self):
        with Folder("t5") as path:
            model = attn.Model.load(path)
            source, ids = list(range(4, 13)), [0, 7, 9]
            self.assertEqual(model.logits(ids, all=True, source=source).shape, (3, model.info["vocab_size"]))
            first = model.generate([0], 1, source=source, ignore_eos=True)
            self.assertEqual(first.tokens[0], model.logits([0], source=source).argmax())
            with self.assertRaisesRegex(attn.InvalidArgument, "source"):
                model.logits(ids)
            start = model.generate([], 6, source=source, ignore_eos=True).tokens
            np.testing.assert_array_equal(start, model.generate([0], 6, source=source, ignore_eos=True).tokens)

    def test_forced_and_forbidden_tokens(self):
        """As Transformers 5.24 generates with such a generation_config.json (checked on tiny BART, mBART, Marian and T5 models)."""
        with Folder("t5") as path:
            source = list(range(4, 13))
            usual = attn.Model.load(path).generate([0, 7], 5, source=source, ignore_eos=True).tokens
            never = sorted({int(usual[0]), int(usual[1])})
            with open(os.path.join(path, "generation_config.json"), "w") as file:
                json.dump({"forced_bos_token_id": 7, "suppress_tokens": never[:1], "bad_words_ids": [never[1:], [3, 4]]}, file)
            model = attn.Model.load(path)
            forced = model.generate([], 6, source=source, ignore_eos=True).tokens
            self.assertEqual(forced[0], 7)
            self.assertFalse(set(never) & set(forced[1:].tolist()))
            np.testing.assert_array_equal(forced[1:], model.generate([0, 7], 5, source=source, ignore_eos=True).tokens)
            logits = model.logits([0, 7], source=source)
            logits[never] = -np.inf
            self.assertEqual(forced[1], logits.argmax())

    def test_inspect(self):
        with Folder("gpt2") as path:
            model = attn.Model.load(path)
            ids = given("gpt2", "forward_in_input_ids")[0]
            view = model.inspect(ids, heads=3)
            np.testing.assert_allclose(view.weights[1], given("gpt2", "forward_out_attn_1")[0, :, -1], rtol=1e-3, atol=1e-4)
            self.assertEqual(len(view.readings), 3)
            page = view.page()
            for part in ("It is no cause", '"format":"attn-inspect-1"', '"at":%d,' % (len(ids) - 1), '"knockout":['):
                self.assertIn(part, page)
            self.assertTrue(view._repr_html_().startswith("<iframe") and "&lt;main&gt;" in view._repr_html_())
            # Each cut is what the forward pass with that edit says.
            a, b = view.answers
            r = view.readings[0]
            edit = model_library.Edit(layer=r.layer, head=r.head, query=len(ids) - 1, key=r.key, kind=model_library.EDIT_KNOCKOUT)
            logits = model._forward(np.asarray(ids, np.int32), logits=True, edits=[edit])["logits"][0]
            self.assertAlmostEqual(r.cut, float(logits[a]) - float(logits[b]) - view.difference, places=5)

    def test_errors(self):
        with self.assertRaisesRegex(attn.FileError, "nowhere"):
            attn.Model.load("/nowhere/model.gguf")
        with self.assertRaisesRegex(attn.InvalidArgument, "weights is 'q9'"):
            attn.Model.load("/nowhere/model.gguf", weights="q9")
        with Folder("gpt2") as path:
            model = attn.Model.load(path)
            with self.assertRaisesRegex(attn.InvalidArgument, "no text was given"):
                model.attention(0, 0)
            with self.assertRaisesRegex(attn.InvalidArgument, "layer is 9"):
                model.attention(9, 0, [1, 2])
            with self.assertRaisesRegex(attn.Unsupported, "no tokenizer"):
                model.logits("text")
            for bad in ([999999], [-1], [[1]], [1.5], [1 << 40]):
                with self.assertRaises(attn.InvalidArgument):
                    model.logits(bad)
            for bad in (lambda: model.generate([1], 0), lambda: model.generate([1], 1.5), lambda: model.generate([1], 2, stop="ab"),
                        lambda: model.logits([]), lambda: model.generate([], 3), lambda: model.attention(0.5, 0, [1]),
                        lambda: model.inspect([1, 2], answers=[1]), lambda: model.inspect([1, 2], answers=[10**7, 1]),
                        lambda: model.inspect([1, 2], heads=-1), lambda: model.inspect([]), lambda: attn.Model.load("a\0b")):
                self.assertRaises(attn.InvalidArgument, bad)

    def test_a_model_is_not_copied(self):  # two owners of one handle would free it twice
        with Folder("gpt2") as path:
            model = attn.Model.load(path)
            for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.assertRaisesRegex(TypeError, "cannot be copied"):
                    copied(model)

    def test_generation_can_be_interrupted(self):
        with Folder("gpt2") as path:
            model = attn.Model.load(path, threads=1)
            seen = []

            def on_text(text):
                seen.append(text)
                os.kill(os.getpid(), signal.SIGINT)
            # what started the tests may ignore Ctrl-C, as shells do for what they run in the background
            self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
            before = signal.getsignal(signal.SIGINT)
            with self.assertRaises(KeyboardInterrupt):
                model.generate([1], 8, ignore_eos=True, on_text=on_text)
            self.assertLessEqual(len(seen), 2)
            edge = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
            edge.start()  # within the C call, most likely; wherever it arrives it must not be lost
            with self.assertRaises(KeyboardInterrupt):
                while True:
                    model.logits([1, 2, 3], all=True)
            self.assertEqual(signal.getsignal(signal.SIGINT), before)
            self.assertEqual(len(model.generate([1], 3, ignore_eos=True).tokens), 3)

    @unittest.skipUnless(hasattr(os, "fork") and "ATTN_UNDER_QEMU" not in os.environ, "no fork here")
    def test_a_forked_child_is_told_to_load_again(self):
        with Folder("gpt2") as path:
            model = attn.Model.load(path)
            child = os.fork()
            if child == 0:
                try:
                    model.logits([1, 2])
                except attn.AttnError as error:
                    os._exit(0 if "load it again" in str(error) else 2)
                os._exit(1)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)


@unittest.skipIf(missing is not None or not os.path.exists(REAL), "the model file is not here")
class Real(unittest.TestCase):
    def test_the_running_sentence(self):
        model = attn.Model.load(REAL)
        text = "The bridge was closed because it"
        ids = model.tokens(text)
        self.assertEqual(model.tokenizer.decode(ids), text)
        self.assertEqual([text[a:b] for a, b in model.tokenizer.offsets(text)], ["The", " bridge", " was", " closed", " because", " it"])
        self.assertEqual(model.spell([model.logits(text).argmax()]), [" was"])
        self.assertEqual(model.attention(13, 8, query=-1).argmax(), 1)
        found = model.generate(text, 6, stop=["car"])
        self.assertEqual((found.text, found.reason), (" was a luxury ", "text"))
        self.assertIn("bridge", model.inspect(text, heads=2)._repr_html_())


@unittest.skipIf(missing is not None or not os.path.exists(ENCODER), "the encoder is not here")
class RealEncoder(unittest.TestCase):
    def test_long_texts_end_where_the_card_says(self):
        model = attn.Model.load(ENCODER)
        self.assertEqual((model.info["embed_tokens"], model.info["embed_prompt"]), (256, ""))
        long, card, ids = "word " * 900, model.embed(["word " * 254]), model.tokenizer.encode("word " * 900, max_length=256)
        np.testing.assert_array_equal(model.embed([long]), card)
        np.testing.assert_array_equal(model.embed([ids]), card)
        np.testing.assert_array_equal(model.embed([long], truncate=99), model.embed(["word " * 97]))
        np.testing.assert_array_equal(model.embed(["tea"], prompt="query: "), model.embed(["query: tea"]))
        with self.assertRaises(attn.InvalidArgument):
            model.embed([long], truncate=1)


if __name__ == "__main__":
    unittest.main()
