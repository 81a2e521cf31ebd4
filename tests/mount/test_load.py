"""Load: more memory, more files and more readers than there is room for."""

import concurrent.futures
import json
import os
import resource
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numcodecs import Zlib, Zstd

from support.mounting import wait_for

MIB = 1 << 20


class Group:
    """A control group with a limit of memory, in either version of them. All that is written to a tmpfs in it counts.

    Where there are none (in a container that may not make them) there is no limit, and only the daemon's own count tells; where
    nothing may be skipped, that is a failure.
    """

    def __init__(self, limit):
        try:
            self._make(limit)
        except OSError as problem:
            assert os.environ.get("CHUNKMOUNT_NO_SKIPS") != "1", f"no control group: {problem}"
            print(f"no control group: {problem}")
            self.path = None

    def _make(self, limit):
        controllers = Path("/sys/fs/cgroup/cgroup.controllers")
        self.is_second = controllers.exists() and "memory" in controllers.read_text().split()
        root = Path("/sys/fs/cgroup" if self.is_second else "/sys/fs/cgroup/memory")
        if self.is_second and "memory" not in (root / "cgroup.subtree_control").read_text().split():
            (root / "cgroup.subtree_control").write_text("+memory")
        self.path = root / f"chunkmount-{os.getpid()}-{limit}"
        self.path.mkdir()
        for name in ("memory.max", "memory.swap.max") if self.is_second else ("memory.limit_in_bytes",):
            if (self.path / name).exists():
                (self.path / name).write_text("0" if "swap" in name else str(limit))

    @property
    def prefix(self):
        return () if self.path is None else ("sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh")

    def processes(self):
        """Who is limited."""
        return [int(line) for line in (self.path / "cgroup.procs").read_text().split()]

    def killed(self):
        """How many processes were killed for want of memory."""
        if self.path is None:
            return 0
        text = (self.path / ("memory.events" if self.is_second else "memory.oom_control")).read_text()
        return int(dict(line.split() for line in text.splitlines())["oom_kill"])

    def stop(self):
        # What has just ended is still leaving.
        for _ in range(0 if self.path is None else 100):
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.05)


def array(where, count, size, codec, content):
    """An array of `count` chunks of `size` bytes; chunk n holds `content(n)`. Encoded by numcodecs."""
    meta = {
        "zarr_format": 2, "shape": [count * size], "chunks": [size], "dtype": "|u1", "compressor": codec.get_config(), "filters": None,
        "order": "C", "fill_value": 0,
    }  # fmt: skip
    where.mkdir(parents=True)
    (where / ".zarray").write_text(json.dumps(meta))
    for number in range(count):
        (where / str(number)).write_bytes(codec.encode(content(number)))


# Tells what it has read by a checksum, and the longest that it has waited for an open or a read.
READER = """
import os, sys, time, zlib
slowest, check, start = 0, 0, time.monotonic()
file = os.open(sys.argv[1], os.O_RDONLY)
while True:
    slowest = max(slowest, time.monotonic() - start)
    start = time.monotonic()
    part = os.read(file, 1 << 20)
    slowest = max(slowest, time.monotonic() - start)
    if not part:
        break
    check = zlib.crc32(part, check)
    start = time.monotonic()
print(check, slowest)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes control groups")
@pytest.mark.parametrize("readers, cache, limit", [(64, 512, 768), (24, 256, 256 + 128)])
def test_readers_of_large_chunks_in_little_memory(readers, cache, limit, mount, room):
    """64 readers of chunks of 64 MiB each, a cache of 512 MiB and 768 MiB for all; and never more than the cache and 128 MiB."""
    import zlib

    size = 64 * MIB
    block = lambda number: np.resize(np.arange(number, number + 251).astype("u1"), size)  # noqa: E731
    array(room / "s" / "a", readers, size, Zstd(level=1), block)
    sums = [zlib.crc32(block(number)) for number in range(readers)]
    group, running = Group(limit * MIB), []
    try:
        view = mount(room / "s", "--cache-size", f"{cache}M", prefix=group.prefix)
        assert group.path is None or view.process.pid in group.processes()
        command = [sys.executable, "-S", "-E", "-c", READER]
        running += [subprocess.Popen([*command, view / "a" / str(n)], stdout=subprocess.PIPE, text=True) for n in range(readers)]
        told = [process.communicate(timeout=120)[0].split() for process in running]
        assert [int(check) for check, _ in told] == sums
        assert max(float(slowest) for _, slowest in told) < 30, "a reader starves"
        wait_for(lambda: view.stats()["passthrough"]["held"] == 0, 10, "what is closed is held no longer")
        stats = view.stats()
        assert (stats["open"]["files"], stats["open"]["directories"], stats["errors"]) == (0, 0, 0)
        assert stats["cache"]["bytes"] <= cache * MIB
        assert group.killed() == 0 and view.process.poll() is None
        assert view.status("VmHWM") < limit * 1024
        view.stop()
    finally:
        for process in running:
            process.kill()
            process.wait()
        view.kill()
        group.stop()


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes control groups")
def test_the_cache_is_a_part_of_the_memory_of_the_group(corpus, mount):
    """A job of a cluster or a unit of systemd has a group of its own, somewhere below the one at the top."""
    group, limit = Group(1024 * MIB), 1024 * MIB
    try:
        view = mount(corpus.path("zarr2/compressors.zarr"), prefix=group.prefix)
        assert group.path is None or view.stats()["cache"]["capacity"] == limit // 8
        view.stop()
    finally:
        group.stop()


def test_a_block_longer_than_a_file_may_be(mount, room):
    """`ulimit -f` is an error of one write (setrlimit(2)), which SIGXFSZ makes the end of who does not handle it."""
    array(room / "s" / "a", 4, MIB, Zlib(level=1), lambda number: bytes([number]) * MIB)
    view = mount(room / "s", prefix=("prlimit", "--fsize=102400"))
    for number in range(4):
        assert (view / "a" / str(number)).read_bytes() == bytes([number]) * MIB
    assert view.process.poll() is None


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """2,000 chunks of one KiB in a directory and in an archive: chunk n holds n modulo 251."""
    root = tmp_path_factory.mktemp("small")
    array(root / "s" / "a", 2000, 1024, Zlib(level=1), lambda number: bytes([number % 251]) * 1024)
    with zipfile.ZipFile(root / "s.zip", "w") as out:
        for path in (root / "s" / "a").iterdir():
            out.write(path, f"a/{path.name}")
    return root


@pytest.fixture
def many_files():
    """As many open files as this process may have."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    assert before[1] >= 11_000, "the tests of many handles need a limit of more open files (ulimit -Hn)"
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def links(view):
    """What the daemon's descriptors lead to."""
    found = []
    for name in os.listdir(f"/proc/{view.process.pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{view.process.pid}/fd/{name}"))
        except FileNotFoundError:
            pass
    return found


@pytest.mark.parametrize("source", ["s", "s.zip"])
def test_ten_thousand_handles_and_a_hundred_thousand_opens(source, small, many_files, mount):
    """A daemon that may have 1024 descriptors: none for a handle, one of the source for an operation, and none is left behind."""
    view = mount(small / source, "--cache-size", "1M", prefix=("prlimit", "--nofile=1024"))
    of_source = lambda: sum(str(small / source) in link for link in links(view))  # noqa: E731
    (view / "a" / "0").read_bytes()
    before, idle = len(links(view)), of_source()
    assert idle <= 1
    handles = [os.open(view / "a" / str(number % 2000), os.O_RDONLY) for number in range(10_000)]
    try:
        assert view.stats()["open"]["files"] == 10_000
        assert len(links(view)) <= before + 4 and of_source() == idle
        for number in range(0, 10_000, 7):
            assert os.pread(handles[number], 10, 1020) == bytes([number % 2000 % 251]) * 4
        # Read by 16 at a time from cold: as many operations have as many descriptors at most.
        seen, over = [], threading.Event()
        watcher = threading.Thread(target=lambda: [seen.append(of_source()) for _ in iter(over.is_set, True)])
        watcher.start()

        def read(number):
            os.posix_fadvise(handles[number], 0, 0, os.POSIX_FADV_DONTNEED)
            return os.pread(handles[number], 1024, 0) == bytes([number % 2000 % 251]) * 1024

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            assert all(pool.map(read, range(2000)))
        over.set()
        watcher.join()
        assert max(seen) <= idle + 16 + 2 * (os.cpu_count() or 2)
    finally:
        for handle in handles:
            os.close(handle)
    for number in range(100_000):
        os.close(os.open(view / "a" / str(number % 500), os.O_RDONLY))
    wait_for(lambda: view.stats()["open"]["files"] == 0, 10, "all files are closed")
    wait_for(lambda: len(links(view)) <= before + 4, 15, "no descriptor is left behind")
    assert of_source() == idle


def test_more_large_blocks_than_descriptors(mount, room, many_files):
    """Blocks that the kernel reads by itself are files; there are fewer of them than the daemon may have, and the source can be read."""
    count, size = 1500, 256 << 10
    array(room / "s" / "a", count, size, Zlib(level=1), lambda number: bytes([number % 251]) * size)
    view = mount(room / "s", "--cache-size", "1G", prefix=("prlimit", "--nofile=1024"))
    handles = []
    try:
        for number in range(count):
            handles.append(os.open(view / "a" / str(number), os.O_RDONLY))
            assert os.pread(handles[-1], 10, size - 4) == bytes([number % 251]) * 4
        for number in range(0, count, 50):
            assert os.pread(handles[number], size, 0) == bytes([number % 251]) * size
    finally:
        for handle in handles:
            os.close(handle)
    for number in reversed(range(count)):
        assert (view / "a" / str(number)).read_bytes() == bytes([number % 251]) * size
    assert len(links(view)) < 1024
