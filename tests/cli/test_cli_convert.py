"""`attn convert`: what it writes is loaded again and gives the same numbers."""
import json
import os
import shutil
import struct
import tempfile

import harness
import models

TINY = os.path.join(os.path.dirname(__file__), "..", "data", "models")


def tempfile_folder(function):
    def with_folder(attn):
        with tempfile.TemporaryDirectory() as parent:
            function(attn, parent)
    return with_folder


def header(folder):
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length))


def folder_of(name, parent):
    """A model of the test data in the layout of a folder."""
    folder = os.path.join(parent, name)
    os.mkdir(folder)
    for ending, to in ((".safetensors", "model.safetensors"), (".config.json", "config.json")):
        shutil.copy(os.path.join(TINY, name + ending), os.path.join(folder, to))
    return folder


@tempfile_folder
def test_types_and_counts(attn, parent):
    for name in ("tiny-llama", "tiny-gpt2"):
        source = folder_of(name, parent)
        before = json.loads(attn("info", "--json", "--tensors", source)[0])
        for dtype, word in (("f32", "F32"), ("bf16", "BF16"), ("f16", "F16")):
            with tempfile.TemporaryDirectory() as target:
                folder = os.path.join(target, "out")
                told = json.loads(attn("convert", "--json", "--dtype", dtype, source, folder)[0])
                written = {k: v for k, v in header(folder).items() if k != "__metadata__"}
                assert {t["dtype"] for t in written.values()} == {word}
                assert {k: v["shape"] for k, v in written.items()} == {t["name"]: t["shape"] for t in before["tensors"]}
                assert told["tensors"] == len(written) and told["dtype"] == dtype and told["has_config"]
                after = json.loads(attn("info", "--json", folder)[0])
                for key in ("family", "parameters", "layers", "heads", "d_model", "vocab_size"):
                    assert after[key] == before[key], key


@tempfile_folder
def test_scaled_rope_of_gguf(attn, parent):
    """Divisors of frequencies become the rule that made them."""
    families = os.path.join(TINY, "..", "families")
    attn("convert", os.path.join(families, "llama3_rope.gguf"), os.path.join(parent, "out"))
    with open(os.path.join(parent, "out", "config.json")) as got, open(os.path.join(families, "llama3_rope.config.json")) as want:
        got, want = json.load(got), json.load(want)
    rule = want.get("rope_parameters") or want["rope_scaling"]
    assert got["rope_scaling"] == {key: rule[key] for key in got["rope_scaling"]} and len(got["rope_scaling"]) == 5


@tempfile_folder
def test_one_file_with_its_own_configuration(attn, parent):
    told = json.loads(attn("convert", "--json", os.path.join(TINY, "tiny-llama.safetensors"), os.path.join(parent, "out"))[0])
    assert told["has_config"] and json.loads(attn("info", "--json", os.path.join(parent, "out"))[0])["family"] == "llama"


def test_tensors_without_a_configuration(attn):
    """Safetensors alone are listed; a bad file is refused with its field, whatever lies beside it."""
    cases = os.path.join(TINY, "..", "cases", "safetensors")
    listed = json.loads(attn("info", "--json", os.path.join(cases, "sf-ok-08.safetensors"))[0])
    assert {t["dtype"] for t in listed["tensors"]} == {"F16", "BF16", "I64", "BOOL"}
    assert "1 tensors" in attn("info", os.path.join(cases, "sf-ok-02.safetensors"))[0]
    for command in (["info"], ["generate", "-n1", "x", "--model"], ["embed", "--model"]):
        said = attn(*command, os.path.join(cases, "sf-bad-16.safetensors"), stdin="x\n", code=1)[1]
        assert "tensor 't': data_offsets" in said, said


@tempfile_folder
def test_models_that_are_not_served(attn, parent):
    """The reason, and the tensors where they are asked for; a folder with PyTorch's own file alone is told apart."""
    folder = folder_of("tiny-llama", parent)
    for config, word in (({"model_type": "nonesuch"}, "nonesuch"),
                         ({"model_type": "llama", "quantization_config": {"quant_method": "gptq"}}, 'quant_method "gptq"')):
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
        assert word in attn("info", folder, code=1)[1]
        listed, said = attn("info", "--tensors", folder, code=1)[:2]
        assert word in said and "model.embed_tokens.weight" in listed
    os.rename(os.path.join(folder, "model.safetensors"), os.path.join(folder, "pytorch_model.bin"))
    assert "pytorch_model.bin is not read" in attn("info", folder, code=1)[1]


def test_memory_of_both_stacks(attn):
    """An encoder-decoder keeps keys and values of its own tokens and of the encoder's, these as f32."""
    model = os.path.join(TINY, "..", "families", "mbart.safetensors")
    told = json.loads(attn("info", "--json", "--ctx", "10", "--kv-type", "bf16", model)[0])
    token = 2 * told["layers"] * told["kv_heads"] * told["head_dim"]
    assert told["cache_bytes"] == 10 * token * (2 + 4)
    assert "10 tokens in and out" in attn("info", "--ctx", "10", model)[0]


def test_real_encoder_keeps_its_bits(attn):
    models.need(models.ENCODER)
    with tempfile.TemporaryDirectory() as parent:
        folder = os.path.join(parent, "out")
        attn("convert", models.ENCODER, folder)
        assert os.path.exists(os.path.join(folder, "1_Pooling", "config.json"))  # modules.json names it
        for text in ("a cup of tea\n", "Die Brücke war gesperrt\n"):
            assert attn("embed", "--model", folder, stdin=text)[0] == attn("embed", stdin=text)[0]


@tempfile_folder
def test_pooling_of_gguf(attn, parent):
    attn("convert", os.path.join(TINY, "..", "families", "bert.gguf"), os.path.join(parent, "out"))
    with open(os.path.join(parent, "out", "1_Pooling", "config.json")) as file:
        assert json.load(file) == {"word_embedding_dimension": 64, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    with open(os.path.join(parent, "out", "modules.json")) as file:
        assert [m["path"] for m in json.load(file)] == ["", "1_Pooling"]


@tempfile_folder
def test_refusals(attn, parent):
    source = folder_of("tiny-llama", parent)
    assert "a model and a folder" in attn("convert", source, code=2)[1]
    assert "--dtype" in attn("convert", "--dtype", "f8", source, "x", code=2)[1]
    assert "no model" in attn("convert", "/nowhere/m.gguf", "x", code=3)[1]
    assert "/nowhere" in attn("convert", source, "/nowhere/deep/out", code=1)[1]
    size = os.path.getsize(os.path.join(source, "model.safetensors"))
    assert attn("convert", source, source, code=1)[1]
    broken, new = os.path.join(parent, "broken.safetensors"), os.path.join(parent, "never")
    open(broken, "wb").close()
    assert "header length" in attn("convert", broken, new, code=1)[1] and not os.path.exists(new)
    assert os.path.getsize(os.path.join(source, "model.safetensors")) == size


harness.run(globals())
