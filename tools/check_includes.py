"""Checks which room includes which: dependencies point down only, the command line and the examples see public headers
only, and no two files in the tree have the same name. Prints each offence; exit status 1 when there is one."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# room -> rooms whose headers it may include (its own is always allowed).
MODEL_ROOMS = ["core", "io", "text", "kernels/nn", "ops/nn", "layers"]
ALLOWED = {
    "core": [],
    "kernels": ["core"],
    "ops": ["core", "kernels"],
    # The rooms of libattn_model share core with libattn and call the operator through the public header alone.
    "kernels/nn": ["core", "kernels/simd"],
    "ops/nn": ["core", "kernels/nn"],
    "io": ["core"],
    "text": ["core", "io"],
    "dist": ["core"],
    "layers": ["core", "kernels/nn", "ops/nn"],
    "models": MODEL_ROOMS,
    "train": MODEL_ROOMS + ["models", "dist"],
    "inspect": MODEL_ROOMS + ["models"],
    "viz": MODEL_ROOMS + ["models", "inspect"],
    "lab": [],  # public headers only; linked into the command, not into a library
}
PUBLIC_ONLY = ["cli", "examples", "python"]  # may include <attn/...> and their own headers only
SAME_NAME_ALLOWED = {"CMakeLists.txt", "README.md", "__init__.py", "meta.json", "LICENSE", "config.json"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def files_of_the_tree():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True,
                            capture_output=True)
    if listed.returncode == 0:
        return [f for f in listed.stdout.split("\n") if f and os.path.exists(os.path.join(ROOT, f))]
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [d for d in folders if not d.startswith((".", "build"))]
        found += [os.path.relpath(os.path.join(folder, f), ROOT) for f in files]
    return found


def room_of(path):
    """The room of a path below src/ ("kernels/nn/x.c" is in kernels/nn), or None."""
    parts = path.split("/")
    if parts[:2] in (["kernels", "nn"], ["ops", "nn"]):
        return "/".join(parts[:2])
    return parts[0] if parts[0] in ALLOWED else None


def target_of(name, path):
    """What an include line names: "public", a path below src/, "own" (beside the file), or None (a system header)."""
    if name.startswith("attn/"):
        return "public"
    if os.path.exists(os.path.join(ROOT, "src", name)):
        return name
    beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
    if beside.startswith("include/attn/") and os.path.exists(os.path.join(ROOT, beside)):
        return "public"
    if os.path.exists(os.path.join(ROOT, beside)):
        return beside[4:] if beside.startswith("src/") else "own"
    return None


def may_include(room, target):
    target_room = room_of(target)
    if target_room == room:
        return True
    for allowed in ALLOWED[room]:
        if target_room == allowed or (target.startswith(allowed + "/") and target_room not in ("kernels/nn", "ops/nn")):
            return True
    return False


def offences_in(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as file:
        text = file.read()
    for match in INCLUDE.finditer(text):
        name, line = match.group(2), text.count("\n", 0, match.start(2)) + 1
        target = target_of(name, path)
        place = "%s:%d: " % (path, line)
        if path.startswith("src/"):
            room = room_of(path[4:])
            if room is None:
                yield place + "this folder of src/ is no room that tools/check_includes.py knows"
                return
            if target is None and match.group(1) == '"':
                yield place + 'cannot find "%s"' % name
            elif target not in (None, "public", "own") and not may_include(room, target):
                yield place + "%s may not include %s" % (room, name)
        elif path.startswith("cli/") and target is not None and target.startswith("lab/"):
            continue
        elif path.split("/")[0] in PUBLIC_ONLY and target not in (None, "public", "own"):
            yield place + "only public headers may be included here, not %s" % name
        elif path.startswith("include/attn/") and target not in (None, "public"):
            yield place + "a public header may not include %s" % name


def same_names(paths):
    seen = {}
    for path in paths:
        if path.endswith((".c", ".h", ".inc", ".py", ".sh")) and os.path.basename(path) not in SAME_NAME_ALLOWED:
            seen.setdefault(os.path.basename(path), []).append(path)
    for name, places in sorted(seen.items()):
        if len(places) > 1:
            yield "%s: this name is used more than once: %s" % (name, ", ".join(places))


def main():
    paths = files_of_the_tree()
    sources = [p for p in paths if p.endswith((".c", ".h", ".inc"))]
    offences = [o for path in sources for o in offences_in(path)] + list(same_names(paths))
    for offence in offences:
        print(offence)
    print("%d files, %d offences" % (len(sources), len(offences)))
    return 1 if offences or not sources else 0


sys.exit(main())
