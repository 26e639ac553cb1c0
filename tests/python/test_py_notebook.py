"""docs/*.ipynb run from the first cell to the last, and give what they show. Skipped without nbclient or the model file."""
import glob
import os
import unittest

import attn
from attn import model_library

try:
    import nbclient
    import nbformat
except ImportError:
    nbclient = None

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MODEL = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "attn", "SmolLM2-135M-Instruct.Q4_1.gguf")


def texts(cell):
    """What a cell prints and shows, as text."""
    return [o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.get("outputs", [])]


@unittest.skipIf(nbclient is None, "nbclient is not installed")
class Notebooks(unittest.TestCase):
    def setUp(self):
        try:
            model_library.load()
        except attn.ModelLibraryMissing:
            self.skipTest("libattn_model is not here")
        if not os.path.exists(MODEL):
            self.skipTest("the model file is not here (./dev model fetches it)")

    def test_notebooks_run_and_show_what_they_say(self):
        files = glob.glob(os.path.join(ROOT, "docs", "*.ipynb"))
        self.assertTrue(files)
        for path in files:
            shown = nbformat.read(path, as_version=4)
            ran = nbformat.read(path, as_version=4)
            for cell in ran.cells:
                if cell.cell_type == "code":
                    cell.outputs = []
            nbclient.NotebookClient(ran, timeout=300, kernel_name="python3", resources={"metadata": {"path": ROOT}}).execute()
            for old, new in zip(shown.cells, ran.cells):
                if old.cell_type != "code" or "__version__" in old.source:
                    continue  # the version cell names this machine's instruction set
                self.assertEqual([t.split("cut")[0] for t in texts(new)], [t.split("cut")[0] for t in texts(old)], old.source)
            pictures = [o for c in ran.cells for o in c.get("outputs", []) if "text/html" in o.get("data", {})]
            self.assertEqual(len(pictures), 1)
            self.assertIn("bridge", pictures[0]["data"]["text/html"])


if __name__ == "__main__":
    unittest.main()
