"""Broken and hostile stores: what is damaged fails alone, with an error, soon, and in little memory."""

import bz2
import ctypes
import errno
import gzip
import json
import lzma
import os
import shutil
import socket
import stat
import struct
import subprocess
import time
import zipfile
import zlib
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import tensorstore
import zarr

from support import data
from support.checks import check_array
from support.mounting import binary
from support.reading import View, by_numpy, by_tensorstore, by_zarr, difference

BASE, CASES = data.broken()
CASES = [(BASE, case) for case in CASES] + [(base, case) for base, cases in [data.broken("bad-zarr3.tar.xz")] for case in cases]
MEMORY_KIB = 1 << 20
# What is claimed takes no memory; documents that are large themselves take up to forty times their text.
LIES_KIB = 128 << 10
LARGE = {"n5_attrs_million"}
# Damaged, or too large.
BROKEN = (errno.EIO, errno.EFBIG)
SECONDS = 30

# What the mount shows as it is, and readers refuse: no array, or elements in an encoding that stays.
SHOWN = {
    "n5_attrs_bom", "n5_attrs_million", "n5_attrs_long_string", "n5_attrs_names", "z2_unknown_codec", "z3_dtype_unknown", "z3_vlen_lie",
}  # fmt: skip


@pytest.mark.parametrize("base, case", CASES, ids=[case["id"] for _, case in CASES])
def test_broken_store(base, case, mount):
    start = time.monotonic()
    whole = case["must_fail"] == ["<mount>"]
    try:
        view = mount(base / case["path"], limit=2 * SECONDS)
    except RuntimeError as refusal:
        assert whole or case.get("either") and not case["must_work"], str(refusal)
        lines = [line for line in str(refusal).splitlines() if "chunkmount: " in line]
        assert lines, "a mount is refused with a line that says why"
        assert "panic" not in str(refusal)
        return
    assert not whole or case.get("either"), "the mount must be refused"
    walk(view)
    for name in case["must_fail"]:
        if not case.get("either"):
            must_fail(base, view, name)
            if " shard " in name:
                must_fail_in_part(base, view, next(e for e in case["must_work"] if e["array"] == name.split()[0]))
    for expected in case["must_work"]:
        try:
            must_work(base, view, expected)
        except (OSError, ValueError):  # wrong values are an AssertionError, and are never acceptable
            if not case.get("either"):
                raise
    # Who wonders what is missing finds it by name.
    for name in case["must_fail"]:
        array = name.partition(" chunk ")[0].split(" (")[0].split(" ")[0].strip("/")
        is_refused = case["id"] not in SHOWN
        assert case.get("either") or (array in view.text()) == is_refused, f"{name} and the log:\n{view.text()}"
    assert view.status("VmHWM") < (MEMORY_KIB if case["id"] in LARGE else LIES_KIB)
    assert time.monotonic() - start < 2 * SECONDS
    assert view.process.poll() is None, "the daemon lives on"


def walk(view, below=""):
    """Visits and reads everything, as a backup would. Errors are allowed, an endless tree is not."""
    start, seen = time.monotonic(), 0
    for here, directories, files in os.walk(view / below):
        for name in files:
            try:
                with open(os.path.join(here, name), "rb") as file:
                    while file.read(1 << 20):
                        pass
            except OSError:
                pass
        seen += len(directories) + len(files)
        assert seen < 200_000 and time.monotonic() - start < SECONDS, here


def must_fail(base, view, name):
    """An object of `must_fail`: 'array chunk KEY', 'array', 'array (remark)', or a path.

    A chunk exists and cannot be read; an array cannot be opened; a path is not there or cannot be read.
    """
    array, _, chunk = name.partition(" chunk ")
    if chunk:
        directory = view / array
        index = [int(part) for part in chunk.replace(".", "/").split("/")]
        path = View(directory).path(index[::-1] if (base / array).suffix == ".n5" else index)
        # A missing file would mean fill values to every reader: the damage must show as an error of reading.
        assert os.path.lexists(path), f"{name} reads as absent"
        with pytest.raises(OSError):
            with open(path, "rb") as file:
                file.read()
        return
    array = name.split(" (")[0].split(" attributes")[0].lstrip("/")
    directory = view / array
    if "(all chunks" in name:
        for index in View(directory).stored():
            with pytest.raises(OSError), open(View(directory).path(index), "rb") as file:
                file.read()
        return
    try:
        shown = directory.is_dir()
    except OSError:
        return
    if shown:
        for reader in (by_zarr, by_tensorstore, by_numpy):
            with pytest.raises(Exception):
                values = reader(directory)
                assert values.size == 0, f"{name} was read as {values!r}"
    else:
        with pytest.raises(OSError):
            directory.read_bytes()


def must_fail_in_part(base, view, expected):
    """A damaged shard: some of its chunks cannot be read; what can be read is right, and nothing reads as absent."""
    truth, shown = np.load(base / expected["truth"]), View(view / expected["array"])
    (region,) = expected["except_regions"]
    failed = 0
    for index in np.ndindex(*[len(axis) for axis in shown.grid]):
        place = tuple(slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(index, shown.chunks, shown.shape))
        if not all(o <= s.start < o + n for s, o, n in zip(place, region["origin"], region["shape"])):
            continue
        try:
            with open(shown.path(index), "rb") as file:
                got = np.frombuffer(file.read(), shown.dtype).reshape(shown.chunks)
        except FileNotFoundError:
            assert not (truth[place] != shown.fill).any(), f"chunk {index} reads as absent"
        except OSError:
            failed += 1
        else:
            assert not difference(got[tuple(slice(0, s.stop - s.start) for s in place)], truth[place]), index
    assert failed


def must_work(base, view, expected):
    """An array that is right outside of its damaged regions."""
    truth = np.load(base / expected["truth"])
    truth = truth.T if expected["axes"] == "n5-native" else truth
    shown = View(view / expected["array"])
    damaged = np.zeros(truth.shape, bool)
    for region in expected.get("except_regions", []):
        place = tuple(slice(o, o + n) for o, n in zip(region["origin"], region["shape"]))
        damaged[place[::-1] if expected["axes"] == "n5-native" else place] = True
    if not damaged.any():
        for reader in (by_zarr, by_tensorstore, by_numpy):
            assert not difference(reader(view / expected["array"]), truth), f"{reader.__name__}: {expected}"
        return
    compared = 0
    for index in np.ndindex(*[len(axis) for axis in shown.grid]):
        place = tuple(slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(index, shown.chunks, shown.shape))
        if damaged[place].any():
            continue
        got = shown.chunk(index)[tuple(slice(0, s.stop - s.start) for s in place)]
        assert not difference(got, truth[place]), f"{expected['array']} chunk {index}"
        compared += 1
    assert compared


class Opened:
    """Whether anybody opens these files, by the kernel's word (inotify)."""

    def __init__(self, *paths):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        in_open = 0x20
        self.names = {self.libc.inotify_add_watch(self.fd, os.fsencode(path), in_open): path for path in paths}
        assert self.fd >= 0 and min(self.names) > 0, os.strerror(ctypes.get_errno())

    def now(self):
        """Those that were opened since the last time."""
        found = set()
        try:
            while events := os.read(self.fd, 1 << 16):
                while events:
                    watch, _, _, length = struct.unpack_from("iIII", events)
                    found.add(self.names[watch])
                    events = events[16 + length :]
        except BlockingIOError:
            return found


def test_special_files_in_a_source_are_never_opened(corpus, mount, room):
    """A FIFO would block whoever opens it, and a device is not ours to read."""
    shutil.copytree(corpus.path("zarr2/fills.zarr"), room / "source")
    record = next(r for r in corpus.records["zarr2/fills.zarr"] if r.has_values and not r.undefined_region)
    array = Path(record.array)
    names = [Path("pipe"), array / "9.9.9", Path("socket")]
    os.mkfifo(room / "source" / names[0])
    os.mkfifo(room / "source" / names[1])
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(room / "source" / names[2]))
    if os.getuid() == 0:
        # Without end, empty, and a disk; the first is at the place of a chunk and of a document as well.
        loop = (stat.S_IFBLK, os.makedev(7, 0))
        zero, null = (stat.S_IFCHR, os.makedev(1, 5)), (stat.S_IFCHR, os.makedev(1, 3))
        devices = {"zero": zero, "null": null, "disk": loop, array / "8.8.8": zero, "group/.zgroup": zero, "group/.zattrs": null}
        (room / "source" / "group").mkdir()
        for name, (kind, device) in devices.items():
            os.mknod(room / "source" / name, kind | 0o444, device)
            names.append(Path(name))
    watched = [name for name in names if name.name != "socket"]
    opened = Opened(*[room / "source" / name for name in watched])
    os.close(os.open(room / "source" / "pipe", os.O_RDONLY | os.O_NONBLOCK))
    assert opened.now() == {room / "source" / "pipe"}
    view = mount(room / "source", limit=40)
    walk(view)
    walk(view, ".chunkmount/source")
    for name in names:
        for path in (view / name, view / ".chunkmount/source" / name):
            with pytest.raises(OSError):
                path.read_bytes()
    assert not check_array(record, view / record.array)
    assert opened.now() == set()


def test_a_chunk_that_is_cut_short_is_an_error_for_every_codec(corpus, mount, room):
    """Each chunk cut at some length: an error, or the right bytes where only a trailer that is not needed is gone."""
    for store in ("zarr2/compressors.zarr", "n5/java.n5", "n5/rust.n5", "n5/z5py.n5"):
        # Of a thousand chunks only those that are cut are copied.
        chunks = lambda _, names: {name for name in names if name.replace(".", "").isdigit()}  # noqa: E731
        shutil.copytree(corpus.path(store), room / store, ignore=chunks)
        want = {}
        with_whole = mount(corpus.path(store))
        for record in corpus.records[store]:
            if record.has_values and not record.region:
                shown = View(with_whole / record.array)
                if index := shown.stored():
                    want[record.array] = (index[0], open(shown.path(index[0]), "rb").read(), record)
        for array, (index, _, record) in want.items():
            key = View(with_whole / array).key(index)
            chunk = Path(array) / ("/".join(map(str, index[::-1])) if record.format == "n5" else key)
            whole = (corpus.path(store) / chunk).read_bytes()
            (room / store / chunk).parent.mkdir(parents=True, exist_ok=True)
            (room / store / chunk).write_bytes(whole[: len(whole) * 2 // 3])
        view = mount(room / store)
        for array, (index, right, _) in want.items():
            path = View(view / array).path(index)
            assert os.path.exists(path), f"{store}/{array}: a damaged chunk reads as absent"
            try:
                got = open(path, "rb").read()
            except OSError:
                continue
            assert got == right, f"{store}/{array}: wrong bytes from a chunk that is cut short"


def test_programs_that_ignore_errors_of_reading_get_no_numbers(mount, room):
    """numpy.fromfile returns whatever was in memory when a read fails, without an error; it does notice when `open` fails.

    So do C programs that do not look at what fread says. A chunk that cannot be decoded must not open.
    """
    shutil.copytree(BASE / "z2_zlib_short", room / "source")
    view = mount(room / "source")
    for _ in range(3):
        with pytest.raises(OSError):
            np.fromfile(View(view / "broken").path((0, 0)), np.uint16)


def test_an_archive_cut_anywhere_in_its_directory_is_refused(room):
    """Whatever is missing of the end of a zip, the mount is refused, soon and with one line."""
    import subprocess

    whole = data.SAMPLE_ZIP.read_bytes()
    with zipfile.ZipFile(data.SAMPLE_ZIP) as archive:
        directory = archive.start_dir
    for length in [0, 1, 21, 22, directory, directory + 1, directory + 46, len(whole) - 100, len(whole) - 22, len(whole) - 1]:
        (room / "cut.zip").write_bytes(whole[:length])
        run = subprocess.run([binary(), room / "cut.zip", room / "mnt"], capture_output=True, text=True, timeout=SECONDS)
        assert run.returncode in (5, 6), (length, run.returncode, run.stderr)
        assert len(run.stderr.splitlines()) == 1 and "cut.zip" in run.stderr, run.stderr


def test_groups_that_list_each_other_do_not_keep_a_reader_waiting(room, mount):
    """Names listed twice at each of many levels would be looked at more often than there is time."""
    below = room / "deep"
    for _ in range(32):
        below.mkdir()
        (below / ".zgroup").write_text('{"zarr_format": 2}')
        mark = {"dimensions": {}, "arrays": [], "groups": ["a", "a", "./a", "b"]}
        (below / ".zattrs").write_text(json.dumps({"_nczarr_group": mark, "_nczarr_superblock": {"version": "2.0.0"}}))
        below = below / "a"
    view = mount(room / "deep", limit=20)
    assert json.loads((view / ".zgroup").read_text())["zarr_format"] == 2


def test_a_damaged_dataset_does_not_take_the_group_above_it(room, mount):
    for name, document in (("a", None), ("b", "{bad"), ("c", None)):
        (room / "x" / name).mkdir(parents=True)
        good = {"dimensions": [4], "blockSize": [4], "dataType": "uint8", "compression": {"type": "raw"}}
        (room / "x" / name / "attributes.json").write_text(document or json.dumps(good))
    view = mount(room / "x")
    assert (view / ".zgroup").exists()
    with pytest.raises(OSError):
        (view / "b" / ".zarray").read_text()


def test_a_document_of_a_gigabyte_and_one_with_a_mark_of_byte_order(room, mount):
    """The first fails alone and is not read; the second is read as what it is."""
    good = json.dumps({"dimensions": [4], "blockSize": [4], "dataType": "uint8", "compression": {"type": "raw"}})
    for name, document in (("large", b" "), ("marked", b"\xef\xbb\xbf" + good.encode()), ("plain", good.encode())):
        (room / "x" / name).mkdir(parents=True)
        (room / "x" / name / "attributes.json").write_bytes(document)
    os.truncate(room / "x" / "large" / "attributes.json", 1 << 30)
    view = mount(room / "x")
    for _ in range(3):
        with pytest.raises(OSError) as refused:
            (view / "large" / ".zarray").read_bytes()
        assert refused.value.errno == errno.EFBIG
    assert json.loads((view / "marked" / ".zarray").read_text()) == json.loads((view / "plain" / ".zarray").read_text())
    assert view.status("VmHWM") < 200 << 10
    assert "large" in view.text()


def test_groups_deeper_than_any_path(room, mount):
    """Ten times as deep as any path: what can be named is shown, below that is an error, and whoever walks comes to an end."""
    deep = 20_000
    here = os.open(room, os.O_RDONLY)
    try:
        for _ in range(deep):
            os.mkdir("g", dir_fd=here)
            below = os.open("g", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
            with open(os.open(".zgroup", os.O_CREAT | os.O_WRONLY, dir_fd=here), "w") as file:
                file.write('{"zarr_format": 2}')
    finally:
        os.close(here)
    # Each level is found by its whole path, so that two thousand of them take a while on a busy machine.
    view = mount(room / "g", limit=300)
    start = time.monotonic()
    here, levels = os.open(view.where, os.O_RDONLY), 0
    try:
        while levels < deep:
            # Where a document's own path is too long, the directory cannot be understood any more.
            assert ".zgroup" in os.listdir(here) or levels > 2000
            below = os.open("g", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here, levels = below, levels + 1
    except OSError as problem:
        assert problem.errno in (errno.EFBIG, errno.ENAMETOOLONG)
    finally:
        os.close(here)
    assert 1000 < levels < 10_000 and time.monotonic() - start < 8 * SECONDS
    assert view.status("VmHWM") < MEMORY_KIB and view.process.poll() is None


SMALL = bytes(range(256)) * 4
ZEROS = bytes(16 << 20)
TIMES = 640  # 10 GiB of them


def deflated(times=TIMES):
    """Raw deflate of 10 GiB of zeros, without compressing them all: a block that ends at a byte can be repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(ZEROS) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * times + b"\x03\0"


def again(pack, bomb):
    """Packed again and again, until it is small enough to be taken for a chunk."""
    times = 1
    while len(bomb) > 4000:
        bomb, times = pack(bomb), times + 1
    return bomb, times


def bombs():
    """Name, codecs in the order of writing (ids of numcodecs), and the bytes: of 10 GiB, or of as much as the format can claim."""
    inner = b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + deflated() + bytes(8)
    bomb, times = again(gzip.compress, inner)
    yield "gzip in gzip", ["gzip"] * times, bomb
    yield "gzip in gzip, for ever", ["gzip"] * 60, bomb
    yield "gzip", ["gzip"], gzip.compress(ZEROS) * 60
    bomb, times = again(zlib.compress, b"\x78\x9c" + deflated() + bytes(4))
    yield "zlib in zlib", ["zlib"] * times, bomb
    yield "zlib", ["zlib"], b"\x78\x9c" + deflated(60) + bytes(4)
    block = bz2.compress(ZEROS)
    yield "bz2", ["bz2"], block * TIMES
    bomb, times = again(bz2.compress, block * TIMES)
    yield "bz2 in bz2", ["bz2"] * times, bomb
    block = lzma.compress(ZEROS)
    yield "xz", ["lzma"], block * 300
    bomb, times = again(lzma.compress, block * TIMES)
    yield "xz in xz", ["lzma"] * times, bomb
    # A frame of blocks that each say "this byte, 128 KiB times".
    block = (128 << 10 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    frame = b"\x28\xb5\x2f\xfd\0\x58" + block * (TIMES << 7) + b"\x01\0\0"
    yield "zstd", ["zstd"], frame
    bomb, times = again(numcodecs.Zstd().encode, frame)
    yield "zstd in zstd", ["zstd"] * times, bomb
    yield "lz4", ["lz4"], (2**31 - 1).to_bytes(4, "little") + b"\x1f\0\x01\0" + b"\xff" * 1_000_000 + b"\0\x50aaaaa"
    bomb = numcodecs.Blosc("zstd", shuffle=0, blocksize=0).encode(ZEROS * 8)
    yield "blosc", ["blosc"], bomb
    yield "blosc that claims more", ["blosc"], bomb[:4] + (2**31 - 1).to_bytes(4, "little") + bomb[8:]
    yield "blosc in gzip in zstd", ["blosc", "gzip", "zstd"], numcodecs.Zstd().encode(gzip.compress(bomb))
    widen = {"id": "astype", "decode_dtype": "|u1", "encode_dtype": "<f8"}
    yield "elements made wider without end", [widen] * 40 + ["gzip"], gzip.compress(ZEROS)


def test_a_bomb_ends_at_the_length_of_its_chunk(room, mount):
    """What a few bytes unpack to is never unpacked: soon an error, in little memory; the chunk beside it is read."""
    names, here = [], room / "all"
    for name, codecs, bomb in bombs():
        codecs = [codec if isinstance(codec, dict) else {"id": codec} for codec in codecs]
        assert len(bomb) < 1 << 20, (name, len(bomb))
        (here / "s" / name).mkdir(parents=True)
        document = {"zarr_format": 2, "shape": [2048], "chunks": [1024], "dtype": "|u1", "fill_value": 0, "order": "C"}
        document |= {"filters": codecs[:-1] or None, "compressor": codecs[-1]}
        (here / "s" / name / ".zarray").write_text(json.dumps(document))
        (here / "s" / name / "0").write_bytes(bomb)
        names.append(name)
        if "wider" not in name:
            whole = SMALL
            for codec in codecs:
                whole = numcodecs.get_codec(codec).encode(whole)
            (here / "s" / name / "1").write_bytes(whole)
    v3 = {"zarr_format": 3, "node_type": "array", "shape": [1024], "data_type": "uint8", "fill_value": 0}
    v3 |= {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1024]}}, "chunk_key_encoding": {"name": "default"}}
    n5 = {"dimensions": [1024], "blockSize": [1024], "dataType": "uint8"}
    header = b"\0\0\0\1" + (1024).to_bytes(4, "big")
    singles = {name: bomb for name, codecs, bomb in bombs() if len(codecs) == 1}
    nested = {name: (codecs, bomb) for name, codecs, bomb in bombs() if name.startswith("gzip in")}
    for name, (codecs, bomb) in nested.items():
        (here / "three" / name / "c").mkdir(parents=True)
        gzips = [{"name": "gzip", "configuration": {"level": 5}}] * len(codecs)
        (here / "three" / name / "zarr.json").write_text(json.dumps(v3 | {"attributes": {}, "codecs": [{"name": "bytes"}, *gzips]}))
        (here / "three" / name / "c" / "0").write_bytes(bomb)
    for name, compression in [("gzip", "gzip"), ("bz2", "bzip2"), ("xz", "xz"), ("blosc", "blosc"), ("zstd", "zstd")]:
        (here / "n5" / name).mkdir(parents=True)
        (here / "n5" / name / "attributes.json").write_text(json.dumps(n5 | {"compression": {"type": compression}}))
        (here / "n5" / name / "0").write_bytes(header + singles[name])
    view = mount(here, limit=60)
    broken = [view / "s" / name / "0" for name in names] + [view / "three" / name / "c" / "0" for name in nested]
    broken += [view / "n5" / name / "0" for name in os.listdir(here / "n5")]
    before = view.status("VmHWM")
    for path in broken:
        start = time.monotonic()
        assert os.path.exists(path), path
        with pytest.raises(OSError) as refused:
            open(path, "rb").close()
        assert refused.value.errno in BROKEN, (path, refused.value)
        assert time.monotonic() - start < 2, path
        assert view.status("VmHWM") < before + (160 << 10), path
    for name in names:
        if (here / "s" / name / "1").exists():
            assert (view / "s" / name / "1").read_bytes() == SMALL, name


def chunked(path, kind):
    """An array with each chunk in directories, and two of these: the outermost, and one within."""
    by_zarr_2 = {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}}
    if kind.startswith("zarr"):
        options = {"zarr2": by_zarr_2, "zarr3": {}, "shards": {"shards": (2, 4, 2)}}[kind.split()[-1]]
        zarr.create_array(str(path), shape=(4, 4, 4), chunks=(2, 2, 2), dtype="u2", fill_value=9, **options)[...] = 1
        if kind == "zarr left-out zarr2":
            members = json.loads((path / ".zarray").read_text())
            del members["dimension_separator"]
            (path / ".zarray").write_text(json.dumps(members))
        return ("0", "0/1") if "zarr2" in kind else ("c", "c/1/0")
    if kind == "n5":
        metadata = {"dimensions": [4, 4, 4], "blockSize": [2, 2, 2], "dataType": "uint16", "compression": {"type": "raw"}}
        store = {"driver": "n5", "kvstore": {"driver": "file", "path": f"{path}/"}, "metadata": metadata, "create": True}
        tensorstore.open(store).result()[...] = 1
        return "0", "0/1"
    shutil.copytree(data.stores("wkw.tar.xz").path("wkw/every_lz4_uint32_1ch_b4_f2"), path)
    return "z1", "z1/y1"


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("kind", ["zarr zarr2", "zarr left-out zarr2", "zarr zarr3", "zarr shards", "n5", "wkw"])
def test_what_stands_in_the_place_of_a_directory_is_not_absent(kind, depth, room, mount):
    """To a reader an absent chunk is one of fill values."""
    source = room / "source"
    place = source / "a" / chunked(source / "a", kind)[depth]
    (source / "file").write_text("x")
    chunks = {}
    with mount(source) as view:
        for here, _, files in os.walk(view / "a"):
            names = [os.path.join(here, name) for name in files if name[0] != "." and name != "zarr.json"]
            chunks.update((os.path.relpath(name, view.where), Path(name).read_bytes()) for name in names)
    assert len(chunks) == 8 or kind == "wkw"
    place.rename(room / "moved")
    for made, code in {
        "link to a directory outside": (lambda: place.symlink_to(room / "moved"), errno.EACCES),
        "link to a file outside": (lambda: place.symlink_to("/etc/hostname"), errno.EACCES),
        "link to nothing": (lambda: place.symlink_to("nothing"), errno.EIO),
        "link to a file": (lambda: place.symlink_to(os.path.relpath(source / "file", place.parent)), errno.EIO),
        "FIFO": (lambda: os.mkfifo(place), errno.EIO),
    }.values():
        made()
        failed = 0
        with mount(source) as view:
            for name, content in chunks.items():
                try:
                    assert (view / name).read_bytes() == content, name
                except OSError as error:
                    assert error.errno == code, (name, error)
                    failed += 1
            errors = []
            for here, directories, _ in os.walk(view / "a", onerror=errors.append):
                errors += [name for name in directories if not os.access(os.path.join(here, name), os.X_OK)]
            if kind == "wkw" and failed:
                # Its files alone tell how large it is.
                with pytest.raises(OSError):
                    (view / "a" / ".zarray").read_bytes()
            else:
                assert failed and errors
        for command in (["check", "-q", source], ["cp", "-q", source, room / f"out{code}-{failed}-{len(os.listdir(room))}"]):
            run = subprocess.run([binary(), *command], capture_output=True, text=True)
            assert run.returncode in (4, 5, 7), run
        place.unlink()
