#!/usr/bin/env python3
"""Write tests/data/zips: one small tree, and archives of it by other people's software.

Needs python 3, Info-ZIP zip, 7z, bsdtar and jar; xz and zstd entries need numcodecs. Run it from the root of the project.
The archives differ between runs in their times only.
"""
import io, os, shutil, struct, subprocess, sys, tempfile, zipfile, zlib, lzma
from pathlib import Path

OUT = Path("tests/data/zips").resolve()
TREE = OUT / "tree"


def tree():
    shutil.rmtree(OUT, ignore_errors=True)
    files = {
        ".zgroup": b'{"zarr_format": 2}\n',
        "a/.zarray": b'{"zarr_format": 2, "shape": [4], "chunks": [2]}\n',
        "a/0": bytes(range(256)),
        "a/1": b"\x07" * 3000,
        "a/10": b"".join(struct.pack("<I", i * i) for i in range(300)),
        "a.b/empty": b"",
        "b/c/d/0.0": b"deep",
        "b/c/0": b"x" * 9000 + b"end",
        "\u00e9/\u4e2d": b"names beyond ASCII",
    }
    for name, data in files.items():
        path = TREE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def names():
    return sorted(p.relative_to(TREE).as_posix() for p in TREE.rglob("*") if p.is_file())


def python(out, method=zipfile.ZIP_STORED, prefix="", comment=b"", order=None, zip64=False, stream=False):
    class Pipe(io.RawIOBase):
        """A target that cannot seek: sizes then follow the data."""
        def __init__(self):
            self.data = bytearray()
        def writable(self):
            return True
        def write(self, b):
            self.data += bytes(b)
            return len(b)
    target = Pipe() if stream else io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as z:
        for name in order or names():
            info = zipfile.ZipInfo(prefix + name, (2021, 3, 4, 5, 6, 8))
            info.compress_type = method
            info.external_attr = 0o100644 << 16
            with z.open(info, "w", force_zip64=zip64) as f:
                f.write((TREE / name).read_bytes())
        z.comment = comment
    data = bytes(target.data) if stream else target.getvalue()
    if out:
        (OUT / out).write_bytes(data)
    return data


def by_hand(out, method, encode):
    """Entries encoded by another library: stored by zipfile, then method, size and checksum are those of the content."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as z:
        for name in names():
            z.writestr(zipfile.ZipInfo(name, (2021, 3, 4, 5, 6, 8)), encode((TREE / name).read_bytes()))
    data = bytearray(buffer.getvalue())
    for info in zipfile.ZipFile(buffer).infolist():
        content = (TREE / info.filename).read_bytes()
        struct.pack_into("<H", data, info.header_offset + 8, method)
        struct.pack_into("<I", data, info.header_offset + 14, zlib.crc32(content))
        struct.pack_into("<I", data, info.header_offset + 22, len(content))
    at = data.index(b"PK\x01\x02", zipfile.ZipFile(buffer).start_dir)
    while data[at:at + 4] == b"PK\x01\x02":
        n, m, k = struct.unpack_from("<HHH", data, at + 28)
        content = (TREE / data[at + 46:at + 46 + n].decode()).read_bytes()
        struct.pack_into("<H", data, at + 10, method)
        struct.pack_into("<I", data, at + 16, zlib.crc32(content))
        struct.pack_into("<I", data, at + 24, len(content))
        at += 46 + n + m + k
    (OUT / out).write_bytes(data)


def tool(out, *command, cwd=TREE, stdout=False):
    path = OUT / out
    with open(path, "wb") if stdout else tempfile.TemporaryFile() as f:
        subprocess.run([str(path) if c == "OUT" else c for c in command], cwd=cwd, check=True,
                       stdout=f if stdout else subprocess.DEVNULL)


def main():
    tree()
    python("python-stored.zip")
    python("python-deflated.zip", zipfile.ZIP_DEFLATED)
    python("python-bzip2.zip", zipfile.ZIP_BZIP2)
    python("python-lzma.zip", zipfile.ZIP_LZMA)
    python("python-stream.zip", zipfile.ZIP_DEFLATED, stream=True)
    python("python-stream-stored.zip", stream=True)
    python("python-zip64.zip", zip64=True)
    python("python-folder.zip", prefix="store.zarr/")
    python("python-dot.zip", prefix="./")
    python("python-reversed.zip", order=names()[::-1])
    # A comment that ends in the end record of an empty archive, and one that holds a whole other end record.
    empty = b"PK\x05\x06" + bytes(18)
    other = python(None)
    python("python-comment-empty.zip", comment=b"comment " + empty)
    python("python-comment-end.zip", comment=b"comment " + other[other.rindex(b"PK\x05\x06"):])
    python("python-comment-max.zip", zipfile.ZIP_DEFLATED, comment=(b"PK\x05\x06" + b"c" * 18) * 2978)
    (OUT / "python-sfx.zip").write_bytes(b"#!/bin/sh\nexit 1\n" + python(None, zipfile.ZIP_DEFLATED))
    # Every zip64 field in use: limits of zipfile lowered, so that a small archive takes them.
    saved = zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT
    zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT = 200, 2
    data = python("python-zip64-end.zip", zip64=True)
    (OUT / "python-zip64-sfx.zip").write_bytes(b"#!/bin/sh\nexit 1\n" + data)
    zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT = saved
    tool("infozip.zip", "zip", "-q", "-r", "OUT", ".")
    tool("infozip-stored.zip", "zip", "-q", "-r", "-0", "-D", "OUT", ".")
    tool("infozip-pipe.zip", "zip", "-q", "-r", "-", ".", stdout=True)
    tool("infozip-zip64.zip", "zip", "-q", "-r", "-fz", "-", ".", stdout=True)
    tool("7z.zip", "7z", "a", "-bd", "-tzip", "OUT", ".")
    tool("7z-lzma.zip", "7z", "a", "-bd", "-tzip", "-mm=LZMA", "OUT", ".")
    tool("bsdtar.zip", "bsdtar", "-a", "-cf", "OUT", ".")
    tool("bsdtar-pipe.zip", "bsdtar", "--format", "zip", "-cf", "-", ".", stdout=True)
    tool("jar.zip", "jar", "-c", "-M", "-f", "OUT", "-C", str(TREE), ".")
    from numcodecs import Zstd
    by_hand("zstd.zip", 93, Zstd(level=3).encode)
    by_hand("xz.zip", 95, lambda b: lzma.compress(b, lzma.FORMAT_XZ))
    with zipfile.ZipFile(OUT / "empty.zip", "w"):
        pass


if __name__ == "__main__":
    sys.exit(main())
