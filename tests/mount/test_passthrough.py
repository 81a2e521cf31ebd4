"""Large chunks are read by the kernel itself, from files of memory, where the machine lets it; small ones it is given when they open.
All other tests run that way too; these are of what is special about it."""

import ctypes
import errno
import gzip
import json
import mmap
import os
import platform
import re
import subprocess
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
import zarr
from numcodecs import Zlib

from support.mounting import wait_for

CHUNKS = 6
SIDE = 512
BYTES = SIDE * SIDE * 4


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Chunks of 1 MiB, and small ones."""
    root = zarr.open_group(tmp_path_factory.mktemp("large") / "s.zarr", mode="w", zarr_format=2)
    values = np.random.default_rng(3).integers(0, 1 << 30, (SIDE * CHUNKS, SIDE), dtype="i4")
    for name, chunks in (("large", (SIDE, SIDE)), ("small", (64, 64))):
        array = root.create_array(name, shape=values.shape, chunks=chunks, dtype="i4", compressors=Zlib(level=1))
        array[:] = values
    return Path(root.store.root), values


@pytest.fixture
def view(source, mount):
    return mount(source[0])


def must_be_possible():
    """Whether root and this kernel can: passthrough came with Linux 6.9, and may be left out when it is built."""
    if os.geteuid() != 0 or tuple(map(int, re.match(r"(\d+)\.(\d+)", platform.release()).groups())) < (6, 9):
        return False
    try:
        with gzip.open("/proc/config.gz", "rt") as config:
            return "CONFIG_FUSE_PASSTHROUGH=y\n" in config
    except OSError:
        return True


def passed(view, opens):
    """As many opens as are passed through of `opens`: none where the kernel or the user cannot."""
    possible = view.stats()["passthrough"]["possible"]
    assert possible or not must_be_possible()
    return opens if possible else 0


def chunk(values, number):
    return values[number * SIDE : (number + 1) * SIDE].tobytes()


def nothing_is_held(view):
    """The kernel tells that a file is closed after who closed it has gone on."""
    wait_for(lambda: view.stats()["passthrough"]["held"] == 0, 10, "what is closed is held no longer")


def test_the_kernel_reads_large_chunks_by_itself(source, view):
    values = source[1]
    for number in range(CHUNKS):
        assert (view / f"large/{number}.0").read_bytes() == chunk(values, number)
    stats = view.stats()
    assert (stats["passthrough"]["opens"], stats["cache"]["misses"]) == (passed(view, CHUNKS), CHUNKS)
    nothing_is_held(view)
    assert np.array_equal(np.fromfile(view / "small/1.2", "i4").reshape(64, 64), values[64:128, 128:192])
    assert view.stats()["passthrough"]["opens"] == passed(view, CHUNKS)
    # Again, from the cache.
    for number in range(CHUNKS):
        assert np.fromfile(view / f"large/{number}.0", "i4").tobytes() == chunk(values, number)
    stats = view.stats()
    assert (stats["passthrough"]["opens"], stats["cache"]["misses"]) == (passed(view, 2 * CHUNKS), CHUNKS + 1)


def resident(file):
    """Whether the kernel has each page of a file in memory; of files of others it tells nothing but yes."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    size = os.fstat(file.fileno()).st_size
    address = libc.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), ctypes.c_long(0))
    assert address != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    done = libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages)
    libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
    assert done == 0, os.strerror(ctypes.get_errno())
    return [page & 1 == 1 for page in pages]


def test_a_small_chunk_is_in_the_kernels_memory_once_it_is_open(source, view):
    values = source[1]
    for column in range(3):
        wanted = values[64:128, column * 64 : column * 64 + 64].tobytes()
        with open(view / f"small/1.{column}", "rb", buffering=0) as first:
            assert resident(first) == [True] * 4
            with open(view / f"small/1.{column}", "rb", buffering=0) as second:
                assert resident(first) == resident(second) == [True] * 4
                assert first.read() == second.read() == wanted
        with open(view / f"small/1.{column}", "rb", buffering=0) as again:
            # The kernel asks for no page that it has.
            assert resident(again) == [True] * 4 and again.read() == wanted
    nothing_is_held(view)


def test_many_open_one_small_chunk_at_the_same_time(source, mount):
    """Each chunk is given to the kernel while others open, read and map it; all read the same, and nobody waits for ever."""
    where, values = source
    readers = 24
    view = mount(where, "--cache-size", "64K")
    gate = Barrier(readers)

    def read(number):
        for row in range(48):
            for column in range(8):
                gate.wait(60)
                with open(view / f"small/{row}.{column}", "rb", buffering=0) as file:
                    if number % 3:
                        found = file.read()
                    else:
                        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                            found = mapped[:]
                assert found == values[row * 64 : row * 64 + 64, column * 64 : column * 64 + 64].tobytes()

    with ThreadPoolExecutor(readers) as pool:
        for done in [pool.submit(read, number) for number in range(readers)]:
            done.result(120)


def test_what_the_kernel_has_need_not_be_kept_twice(room, mount):
    """400 MB of small chunks: the cache keeps some of them, and none is decoded again while the kernel has its pages. Where it has not,
    the chunk is decoded again, by who reads ahead too."""
    many, length = 1600, 250_000
    array = zarr.create_array(room / "source" / "a", shape=(many * length,), chunks=(length,), dtype="u1", compressors=Zlib(level=1), zarr_format=2)
    for start in range(0, many, 100):
        array[start * length : (start + 100) * length] = np.repeat(np.arange(start, start + 100) % 250 + 1, length).astype("u1")
    view = mount(room / "source")

    def read(numbers):
        for number in numbers:
            with open(view / "a" / str(number), "rb", buffering=0) as file:
                found = np.frombuffer(file.read(), "u1")
                assert len(found) == length and (found == number % 250 + 1).all()
                yield file

    def decoded():
        return view.stats()["arrays"]["a"]["misses"]

    for _ in read(range(many)):
        pass
    cache = view.stats()["cache"]
    # What has been read ahead is a part of the rest.
    assert decoded() == many and cache["bytes"] <= (256 << 20) + 64 * length and cache["evictions"] == 0
    in_kernel = [number for number, file in enumerate(read(range(many))) if all(resident(file))]
    assert decoded() - many <= many - len(in_kernel)
    for file in read(range(200)):
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    before = decoded()
    for file in read(range(200)):
        pass
    # And those after them, ahead of a reader who does not come.
    assert 0 < decoded() - before <= 200 + 64
    stats = view.stats()
    assert stats["errors"] == 0 and stats["cache"]["bytes"] <= stats["cache"]["capacity"]


def test_every_way_of_reading(source, view):
    values = source[1]
    path = view / "large/2.0"
    wanted = chunk(values, 2)
    with open(path, "rb") as first, open(path, "rb") as second:
        with mmap.mmap(first.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            assert second.read() == wanted
            assert mapped[4097:70000] == wanted[4097:70000]
            assert os.pread(first.fileno(), 10, BYTES - 4) == wanted[-4:]
            assert os.pread(first.fileno(), 10, BYTES) == b""
            assert view.stats()["passthrough"]["held"] == passed(view, BYTES)
    direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
    with os.fdopen(direct, "rb", buffering=0) as file, mmap.mmap(-1, BYTES) as room:
        assert file.readinto(room) == BYTES and room[:] == wanted
    done = subprocess.run(["dd", f"if={path}", "bs=1000", "skip=7", "count=3", "status=none"], capture_output=True, check=True)
    assert done.stdout == wanted[7000:10000]
    with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
        open(path, "r+b")
    nothing_is_held(view)


def test_what_is_open_stays_whole_when_the_cache_is_full(source, mount):
    """A cache of three chunks: one may be held, all others are read by requests and dropped."""
    where, values = source
    view = mount(where, "--cache-size", str(3 * BYTES))
    files = [open(view / f"large/{number}.0", "rb", buffering=0) for number in range(CHUNKS)]
    again = [open(view / f"large/{number}.0", "rb", buffering=0) for number in reversed(range(CHUNKS))]
    stats = view.stats()
    assert stats["passthrough"]["held"] <= 3 * BYTES / 2
    assert stats["cache"]["bytes"] <= 3 * BYTES
    for _ in range(2):
        for at in range(0, BYTES, BYTES // 4):
            for number, file in [*enumerate(files), *zip(reversed(range(CHUNKS)), again)]:
                assert os.pread(file.fileno(), BYTES // 4, at) == chunk(values, number)[at : at + BYTES // 4]
    assert view.stats()["cache"]["bytes"] <= 3 * BYTES
    for file in files + again:
        file.close()
    nothing_is_held(view)


def test_a_reader_keeps_its_bytes_when_the_source_changes(tmp_path, mount):
    root = zarr.open_group(tmp_path / "s.zarr", mode="w", zarr_format=2)
    array = root.create_array("a", shape=(SIDE, SIDE), chunks=(SIDE, SIDE), dtype="i4", compressors=Zlib(level=1))
    array[:] = 7
    view = mount(tmp_path / "s.zarr")
    with open(view / "a/0.0", "rb", buffering=0) as file:
        array[:] = 8
        assert set(file.read()[::4]) == {7}
        # The other bytes of the same file: the old ones as well.
        with open(view / "a/0.0", "rb") as other:
            assert set(other.read()[::4]) == {7}


def test_many_readers_of_few_chunks(source, mount):
    """Opens and closes that cross, in both modes: a small cache refuses to hold all."""
    where, values = source
    view = mount(where, "--cache-size", str(4 * BYTES))

    def read(number):
        return (view / f"large/{number % CHUNKS}.0").read_bytes() == chunk(values, number % CHUNKS)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(read, range(300)))
    nothing_is_held(view)


@pytest.mark.parametrize("who", ["root", "ordinary user"])
def test_more_readers_than_chunks_that_fit(who, mount, room, request):
    """40 readers of chunks of 16 MiB, a cache of four: each chunk is decoded a few times at most, and memory stays within its bounds."""
    count, side = 40, 1 << 24
    prefix = []
    if who != "root":
        user = request.getfixturevalue("ordinary_user")
        prefix, room = user.prefix, user.home
    root = zarr.open_group(room / "s.zarr", mode="w", zarr_format=2)
    array = root.create_array("a", shape=(count * side,), chunks=(side,), dtype="u1", compressors=Zlib(level=1))
    sums = []
    for number in range(count):
        values = np.arange(number, number + side, dtype="u4").astype("u1")
        array[number * side : (number + 1) * side] = values
        sums.append(zlib.crc32(values))
    view = mount(room / "s.zarr", "--cache-size", str(4 * side), where=room / "mnt", prefix=prefix)
    code = "import sys, zlib\nprint(zlib.crc32(open(sys.argv[1], 'rb', buffering=0).readall()))"

    def read(number):
        command = [*prefix, "/usr/bin/python3", "-c", code, view / f"a/{number}"]
        return int(subprocess.run(command, capture_output=True, timeout=100, check=True).stdout)

    with ThreadPoolExecutor(count) as pool:
        assert list(pool.map(read, range(count))) == sums
    stats = json.loads(subprocess.run([*prefix, "cat", view / ".chunkmount/stats.json"], capture_output=True, check=True).stdout)
    assert stats["cache"]["misses"] <= 2 * count
    assert stats["cache"]["bytes"] <= 4 * side
    assert (stats["passthrough"]["opens"] > 0) == stats["passthrough"]["possible"]
    assert who == "root" or not stats["passthrough"]["possible"]
    assert view.status("VmHWM") < (4 * side >> 10) + (128 << 10)
