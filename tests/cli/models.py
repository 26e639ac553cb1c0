"""models.py: where the real models of the tests lie; a test that needs one that is absent is skipped, loudly."""
import os

import harness

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "attn")
DECODER = os.path.join(CACHE, "SmolLM2-135M-Instruct.Q4_1.gguf")
ENCODER = os.path.join(CACHE, "all-MiniLM-L6-v2")


def need(path):
    if not os.path.exists(path):
        raise harness.Skip("the model is not here: %s" % path)
