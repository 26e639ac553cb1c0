"""Writes public-domain English as text files, out of Debian packages that hold it for R, without R.

    apt-get download r-cran-janeaustenr r-cran-tokenizers && for f in *.deb; do dpkg-deb -x "$f" root; done
    python3 tools/debian_texts.py root/usr/lib/R/site-library OUT

Gives OUT/austen-1.txt ... in the order of the package's file, and OUT/moby-dick.txt. An .rdb file is a row of objects, each
4 bytes of length (big-endian) and a zlib stream of R's XDR serialisation; read here are vectors of character strings."""
import os
import struct
import sys
import zlib


def objects(path):
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at + 4 < len(data):
        stream = zlib.decompressobj()
        text = stream.decompress(data[at + 4:])
        if len(text) != struct.unpack(">I", data[at:at + 4])[0]:
            raise SystemExit("%s: the object at byte %d has another length than it says" % (path, at))
        at = len(data) - len(stream.unused_data)
        yield text


def strings(data):
    """The first character vector of a serialised object: a list of str; [] when it holds none."""
    if data[:2] != b"X\n":
        return []
    version = struct.unpack(">i", data[2:6])[0]
    at = 14
    if version == 3:
        at += 4 + struct.unpack(">i", data[at:at + 4])[0]
    flags, count = struct.unpack(">ii", data[at:at + 8])
    at += 8
    if flags & 0xFF != 16:  # STRSXP
        return []
    lines = []
    for _ in range(count):
        size = struct.unpack(">i", data[at + 4:at + 8])[0]  # after the flags of a CHARSXP; -1 is NA
        at += 8
        lines.append(data[at:at + max(size, 0)].decode("utf-8", "replace"))
        at += max(size, 0)
    return lines


def without_frame(lines):
    """The lines between Project Gutenberg's marks of start and end, where there are such."""
    marks = [i for i, line in enumerate(lines) if line.startswith(("*** START", "*** END"))]
    return lines[marks[0] + 1:marks[1]] if len(marks) >= 2 else lines


def main():
    library, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    number = 0
    for package, name in (("janeaustenr", "austen"), ("tokenizers", "moby-dick")):
        for data in objects(os.path.join(library, package, "data", "Rdata.rdb")):
            lines = strings(data)
            if sum(map(len, lines)) < 100000:
                continue
            number += 1
            lines = without_frame("\n".join(lines).split("\n"))
            path = os.path.join(out, "austen-%d.txt" % number if name == "austen" else name + ".txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
            print(path, os.path.getsize(path), "|", " ".join(" ".join(lines[:6]).split())[:60])


main()
