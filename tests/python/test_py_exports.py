"""What attn train leaves gives the same logits in Hugging Face Transformers: every architecture that has a class there, and a model
trained further. Skipped without torch and transformers, or where the command is not built."""
import os
import subprocess
import sys
import tempfile
import unittest

try:
    import torch  # noqa: F401
    import transformers  # noqa: F401
except ImportError:
    torch = None

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.dirname(os.environ.get("ATTN_LIBRARY") or os.path.join(ROOT, "build", "libattn.so"))
ATTN = os.path.join(BUILD, "attn")
TEXT = os.path.join(ROOT, "docs", "operator.md")
SIZES = ["--layers", "2", "--heads", "4", "--width", "32", "--context", "32", "--batch", "4", "--vocab", "400", "--steps", "8",
         "--sample-every", "0"]


@unittest.skipUnless(torch and os.path.exists(ATTN), "torch, transformers or the attn command is missing")
class Exports(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def train(self, name, *more):
        to = os.path.join(self.folder.name, name)
        done = subprocess.run([ATTN, "train", TEXT, "-o", to, *more], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return to

    def agree(self, folder, *text):
        done = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "compare_transformers.py"), folder, *text],
                              capture_output=True, text=True, env=dict(os.environ, ATTN_BUILD=BUILD))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("missing []", done.stdout)

    def test_gpt2(self):
        self.agree(self.train("gpt2", *SIZES))

    def test_characters(self):
        self.agree(self.train("chars", "--chars", *SIZES), "It was the mother, 1812.")

    def test_bert(self):
        self.agree(self.train("bert", "--arch", "bert", *SIZES), "the [MASK] of a row")

    def test_llama_and_further(self):
        first = self.train("llama", "--arch", "llama", "--kv-heads", "2", *SIZES)
        self.agree(first)
        self.agree(self.train("more", "--from", first, "--context", "32", "--steps", "3", "--lr", "1e-3", "--sample-every", "0"))


if __name__ == "__main__":
    unittest.main()
