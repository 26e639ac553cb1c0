"""The Python example of README.md runs as it stands; the wheel's version is the library's."""
import os
import re
import unittest

import numpy as np

import attn

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def text_of(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


class Readme(unittest.TestCase):
    def test_example(self):
        names = {}
        exec(re.search(r"```python\n(.*?)```", text_of("README.md"), re.S).group(1), names)
        self.assertEqual(names["weights"].shape, (1, 1024))
        np.testing.assert_allclose(names["weights"].sum(), 1, rtol=1e-5)
        # The row that it looks at is the one that made that output.
        np.testing.assert_allclose(names["weights"][0] @ names["v"][0, 3], names["out"][0, 3, 1023], atol=1e-5)

    def test_versions_agree(self):
        stated = re.search(r'^version = "(.*)"', text_of("pyproject.toml"), re.M).group(1)
        self.assertEqual(stated, attn.__version__)


if __name__ == "__main__":
    unittest.main()
