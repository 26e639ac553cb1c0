"""The ctypes structs of the package have the sizes and offsets that the C compiler gives those of attn.h."""
import ctypes
import os
import shutil
import subprocess
import tempfile
import unittest

import attn
from attn import inspection, library, model_library

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
STRUCTS = {"attn_view": library.View, "attn_cview": library.View, "attn_mask": library.Mask,
           "attn_kv_layout": library.KvLayout, "attn_ctx_options": library.CtxOptions, "attn_sdpa_args": library.SdpaArgs,
           "attn_sdpa_backward_args": library.SdpaBackwardArgs, "attn_sdpa_plan": library.SdpaPlan,
           "attn_decode_args": library.DecodeArgs, "attn_row": library.Row, "attn_row_stat": library.RowStat,
           "attn_rope_args": library.RopeArgs, "attn_inspect_args": inspection.InspectArgs, **model_library.STRUCTS}
# A struct that grew at its end after the package was written: the package's is a version of it.
SHORTER = {"attn_forward_args": model_library.ForwardArgs}


class Layout(unittest.TestCase):
    @unittest.skipUnless(shutil.which("cc"), "needs a C compiler")
    def test_struct_layouts(self):
        lines = ["#include <attn/inspect.h>", "#include <stdio.h>", "int main(void) {"]
        for name, struct in {**STRUCTS, **SHORTER}.items():
            lines.append('printf("%s %%zu\\n", sizeof(%s));' % (name, name))
            lines += ['printf("%s.%s %%zu\\n", offsetof(%s, %s));' % (name, f[0], name, f[0]) for f in struct._fields_]
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
            with open(source, "w", encoding="ascii") as file:
                file.write("\n".join(lines + ["return 0; }"]))
            subprocess.run(["cc", "-I", os.path.join(ROOT, "include"), source, "-o", program], check=True)
            told = dict(line.split() for line in subprocess.check_output([program], text=True).splitlines())
        for name, struct in STRUCTS.items():
            self.assertEqual(int(told[name]), ctypes.sizeof(struct), name)
        for name, struct in {**STRUCTS, **SHORTER}.items():
            for field in struct._fields_:
                self.assertEqual(int(told["%s.%s" % (name, field[0])]), getattr(struct, field[0]).offset, (name, field[0]))

    def test_every_function_of_the_list_exists(self):
        for name in library._FUNCTIONS:
            self.assertTrue(hasattr(library.lib, name), name)
        try:
            found = model_library.load()
        except attn.ModelLibraryMissing:
            self.skipTest("libattn_model is not here")
        for name in model_library._FUNCTIONS:
            self.assertTrue(hasattr(found, name), name)


if __name__ == "__main__":
    unittest.main()
