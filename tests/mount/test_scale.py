"""A directory of very many chunks. CHUNKMOUNT_MANY sets how many; a million is the figure of the benchmark."""

import json
import os
import subprocess
import tempfile
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from support.reading import View
from test_s3 import double  # noqa: F401

MANY = int(os.environ.get("CHUNKMOUNT_MANY", "100000"))


def described_as(length):
    """The document of an array of bytes, each of which is a chunk."""
    return {
        "zarr_format": 2, "shape": [length], "chunks": [1], "dtype": "|u1", "compressor": None, "filters": None,
        "order": "C", "fill_value": 0,
    }  # fmt: skip


def write(root, count, length):
    """The first `count` chunks of an array of `length`."""
    (root / "s" / "a").mkdir(parents=True)
    (root / "s" / ".zgroup").write_text('{"zarr_format": 2}')
    (root / "s" / "a" / ".zarray").write_text(json.dumps(described_as(length)))
    chunks = str(root / "s" / "a")
    for number in range(count):
        if number < 251:
            Path(f"{chunks}/{number}").write_bytes(bytes([number]))
        else:
            os.link(f"{chunks}/{number % 251}", f"{chunks}/{number}")
    return chunks


@pytest.fixture(scope="module")
def sparse():
    """An array of `MANY` chunks of one byte; chunk n holds n modulo 251, and chunks that hold the same are the same file.

    In memory where there is a place for that: to make and to remove so many files takes minutes on a busy disk.
    """
    memory = "/dev/shm"
    root = Path(tempfile.mkdtemp(prefix="cm-many-", dir=memory if os.access(memory, os.W_OK) else None))
    try:
        write(root, MANY, MANY)
        yield root / "s"
    finally:
        subprocess.run(["rm", "-rf", root], check=True)


@pytest.fixture(scope="module")
def archive(sparse):
    path = sparse.parent / f"{sparse.name}.zip"
    with zipfile.ZipFile(path, "w") as out:
        for name in (".zgroup", "a/.zarray"):
            out.writestr(name, (sparse / name).read_bytes())
        for number in range(MANY):
            out.writestr(f"a/{number}", bytes([number % 251]))
    return path


@pytest.fixture(params=["directory", "zip"])
def view(request, sparse, mount):
    view = mount(sparse if request.param == "directory" else request.getfixturevalue("archive"))
    view.is_archive = request.param == "zip"
    return view


def test_listing(view):
    shell = lambda command: int(subprocess.run(command, shell=True, capture_output=True, timeout=90, check=True).stdout)
    before = view.status("VmRSS")
    assert shell(f"ls -f {view.where}/a | grep -c '^[0-9]'") == MANY
    assert shell(f"find {view.where}/a -type f -name '[0-9]*' | wc -l") == MANY
    assert shell(f"ls -f {view.where}/a | sort | uniq -d | wc -l") == 0
    assert view.status("VmRSS") - before < 200 * 1024


def described(view):
    return json.loads((view / ".chunkmount" / "stats.json").read_bytes())["listings"]["described"]


def test_attributes_come_with_the_listing_for_who_asks_for_them(view, sparse):
    """As the source's own file system tells them, or the archive: its names and no others, sizes, times."""
    wanted = {name: os.stat(sparse / "a" / name).st_mtime_ns for name in os.listdir(sparse / "a")}
    assert described(view) == 0
    with os.scandir(view / "a") as entries:
        found = [(entry.name, entry.is_file(), entry.stat()) for entry in entries]
    assert sorted(name for name, *_ in found) == sorted(wanted)
    for name, is_file, stat in found:
        assert is_file
        if name.isdigit():
            assert stat.st_size == 1 and stat.st_mode == 0o100444, name
            # An archive keeps no seconds of its own: the test is about who tells them, not what.
            assert stat.st_mtime_ns == os.stat(view / "a" / name).st_mtime_ns
            assert view.is_archive or stat.st_mtime_ns == wanted[name], name
    assert described(view) > MANY - 1000
    # The inode numbers told are those of lookups: what is opened by them is right.
    for name, _, stat in found[:: MANY // 50]:
        with open(view / "a" / name, "rb") as file:
            assert os.fstat(file.fileno()).st_ino == stat.st_ino
            assert name == ".zarray" or file.read() == bytes([int(name) % 251])


def test_names_alone_cost_few_attributes(view):
    os.listdir(view / "a")
    subprocess.run(["find", view / "a", "-name", "x"], check=True)
    assert described(view) <= 2 * 1024


def test_the_first_names_come_with_attributes(mount, room):
    """Those of a directory that is not very large, as its own file system tells them."""
    source = Path(write(room, 200, 200))
    view = mount(source.parent)
    names = [name for name in os.listdir(view / "a") if name.isdigit()]
    assert sorted(names) == sorted(str(number) for number in range(200))
    assert described(view) == 200
    for name in names:
        shown, own = os.stat(view / "a" / name), os.stat(source / name)
        assert (shown.st_size, shown.st_mtime_ns) == (own.st_size, own.st_mtime_ns), name
        assert (view / "a" / name).read_bytes() == (source / name).read_bytes(), name


def test_du_and_the_completion_of_names(sparse, mount):
    """What looks at every file, and what a shell does at each press of the tab key."""
    view = mount(sparse)
    start = time.monotonic()
    sizes = subprocess.run(["du", "-a", "-b", view / "a"], capture_output=True, text=True, timeout=90, check=True).stdout.splitlines()
    chunks = [line for line in sizes if line.rpartition("/")[2].isdigit()]
    assert len(chunks) == MANY and all(line.startswith("1\t") for line in chunks)
    told = time.monotonic() - start
    start = time.monotonic()
    begin = str(MANY - 1)[:-1]
    done = subprocess.run(["bash", "-c", 'compgen -f "$0"', view / "a" / begin], capture_output=True, text=True, timeout=60, check=True)
    assert sorted(done.stdout.split()) == sorted(str(view / "a" / name) for name in [begin, *(f"{begin}{digit}" for digit in range(10))])
    print(f"du {told:.2f} s, completion {time.monotonic() - start:.2f} s")


def test_first_listing_and_single_chunks_are_quick(view):
    start = time.monotonic()
    with os.scandir(view / "a") as entries:
        next(entries)
    assert time.monotonic() - start < 10
    start = time.monotonic()
    for number in range(0, MANY, MANY // 200):
        assert (view / "a" / str(number)).read_bytes() == bytes([number % 251])
    assert time.monotonic() - start < 10
    assert not (view / "a" / str(MANY)).exists()


def test_a_listing_goes_on_while_others_read(view):
    """Two listings and a reader at once; each listing is complete."""
    listings = [subprocess.Popen(["ls", "-f", view / "a"], stdout=subprocess.PIPE) for _ in range(2)]
    for number in range(0, MANY, MANY // 500):
        assert (view / "a" / str(number)).read_bytes() == bytes([number % 251])
    for listing in listings:
        names = listing.communicate(timeout=90)[0].split()
        assert len(set(names)) == len(names) >= MANY


def test_a_deep_and_wide_grid_of_directories(mount, room):
    """Chunk names with slashes: the directories between are made from the names."""
    import tensorstore

    shape, chunks = (40, 40, 4), (2, 2, 2)
    want = np.arange(np.prod(shape), dtype=np.uint16).reshape(shape)
    spec = {
        "driver": "n5",
        "kvstore": {"driver": "file", "path": str(room / "deep.n5" / "a")},
        "metadata": {"dimensions": shape, "blockSize": chunks, "dataType": "uint16", "compression": {"type": "gzip"}},
    }
    tensorstore.open(spec, create=True).result().write(want).result()
    view = mount(room / "deep.n5")
    shown = View(view / "a")
    assert len(shown.stored()) == 20 * 20 * 2
    from support.reading import disagreements

    assert not disagreements(view / "a", [want.T])


def test_a_group_of_very_many_arrays(mount, room):
    """Its names come while they are listed; the documents of the source that are not shown stay away."""
    source = room / "many.n5"
    for number in range(6000):
        (source / f"a{number}").mkdir(parents=True)
    (source / "attributes.json").write_text('{"n5": "4.0.0"}')
    (source / "a7" / "attributes.json").write_text(
        '{"dimensions": [3], "blockSize": [3], "dataType": "uint8", "compression": {"type": "raw"}}'
    )
    (source / "note.txt").write_text("beside them")
    view = mount(source)
    names = os.listdir(view.where)
    assert sorted(names) == sorted([f"a{number}" for number in range(6000)] + ["note.txt", ".zgroup", ".zattrs"])
    assert (view / "a7" / ".zarray").exists()
    assert (view / "note.txt").read_text() == "beside them"


# Processes that all wait for the end of the input, and then read the first byte of a chunk each; tells when they have begun.
AT_ONCE = """
exec 3<&0
for number in $(seq 0 "$2" "$3"); do
    (read line <&3; exec head -c 1 "$1/$number") &
done
echo >&2
wait
"""


def read_at_once(view, step, last, seconds):
    """Has every `step`th chunk read by a process of its own, all at once; the most threads of the daemon meanwhile."""
    command = ["sh", "-c", AT_ONCE, "sh", view / "a", str(step), str(last)]
    readers = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert readers.stderr.readline() == b"\n"
    threads, over = [view.status("Threads")], threading.Event()
    watcher = threading.Thread(target=lambda: [threads.append(view.status("Threads")) for _ in iter(lambda: over.wait(0.01), True)])
    watcher.start()
    start = time.monotonic()
    try:
        out, problems = readers.communicate(timeout=seconds)
    finally:
        over.set()
        watcher.join()
        readers.kill()
    print(f"{len(out)} readers at once, the slowest after {time.monotonic() - start:.2f} s; at most {max(threads)} threads")
    assert not problems, problems[-1000:]
    assert sorted(out) == sorted(number % 251 for number in range(0, last + 1, step))
    return max(threads)


def test_very_many_processes(view):
    """Each of 2,000 chunks is read by a process of its own, all at once; the daemon needs no thread for each."""
    (view / "a" / "0").read_bytes()
    before = view.status("Threads")
    # What serves the kernel (two more than the processors), what reads ahead (a thread for each), and a few that wait for signals.
    assert before <= 2 * (os.cpu_count() or 2) + 2 + 6
    assert read_at_once(view, MANY // 2000, MANY - 1, 60) <= before


def test_very_many_processes_and_a_bucket(double):  # noqa: F811
    """As many threads as wait for the network, 256 at most, whoever else waits for them."""
    for number in range(2000):
        double.put(f"s/a/{number}", bytes([number % 251]))
    double.put("s/a/.zarray", json.dumps(described_as(2000)).encode())
    view = double.mount("s3://b/s")
    (view / "a" / "0").read_bytes()
    before = view.status("Threads")
    most = read_at_once(view, 1, 1999, 90)
    assert most <= before + 256, before
    stats = view.stats()
    assert stats["open"]["files"] == 0 and stats["errors"] == 0
    assert not view.text()


class Names:
    """A directory, read by the C library."""

    def __init__(self, path):
        import ctypes

        class Entry(ctypes.Structure):
            _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("length", ctypes.c_ushort), ("kind", ctypes.c_ubyte),
                        ("name", ctypes.c_char * 256)]  # fmt: skip

        self.libc = ctypes.CDLL(None)
        self.libc.opendir.restype = ctypes.c_void_p
        self.libc.readdir.restype = ctypes.POINTER(Entry)
        self.libc.telldir.restype = ctypes.c_long
        for function in (self.libc.readdir, self.libc.rewinddir, self.libc.telldir, self.libc.closedir):
            function.argtypes = [ctypes.c_void_p]
        self.libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
        self.directory = self.libc.opendir(os.fsencode(path))
        assert self.directory

    def read(self, count=1 << 30):
        """(place after it, name) of the next entries."""
        entries = []
        while len(entries) < count and (entry := self.libc.readdir(self.directory)):
            entries.append((self.libc.telldir(self.directory), entry.contents.name))
        return entries

    def rewind(self):
        self.libc.rewinddir(self.directory)

    def seek(self, place):
        self.libc.seekdir(self.directory, place)

    def close(self):
        self.libc.closedir(self.directory)


def test_a_listing_goes_back_and_on_again(view):
    """seekdir, telldir and rewinddir of the C library."""
    listing = Names(view / "a")
    all_of_it = listing.read()
    names = [name for _, name in all_of_it]
    assert len(set(names)) == len(names) >= MANY
    listing.rewind()
    assert listing.read(1000) == all_of_it[:1000]
    for at in (len(all_of_it) // 2, 3, 0, len(all_of_it) - 5, 777):
        listing.seek(all_of_it[at][0])
        assert listing.read(50) == all_of_it[at + 1 : at + 51]
    listing.close()


MILLION = 1_000_000


def test_a_million_names_while_others_are_added(mount):
    """What was there before a listing is in it just once, whatever is added meanwhile, also after going back; memory stays small."""
    memory = "/dev/shm"
    root = Path(tempfile.mkdtemp(prefix="cm-million-", dir=memory if os.access(memory, os.W_OK) else None))
    over, added = threading.Event(), []
    try:
        chunks = write(root, MILLION, 2 * MILLION)
        view = mount(root / "s", "--refresh", "1")
        stable = {b"%d" % number for number in range(MILLION)}
        before = view.status("VmRSS")

        def add():
            for number in range(MILLION, 2 * MILLION):
                os.link(f"{chunks}/{number % 251}", f"{chunks}/{number}")
                added.append(number)
                if over.wait(0.0005):
                    return

        adding = threading.Thread(target=add)
        adding.start()
        listing = Names(view / "a")
        first = listing.read()
        names = [name for _, name in first]
        assert len(set(names)) == len(names) and stable <= set(names)
        listing.rewind()
        assert listing.read(1000) == first[:1000]
        listing.seek(first[MILLION // 2][0])
        rest = [name for _, name in listing.read()]
        assert rest == names[MILLION // 2 + 1 :]
        listing.close()
        again = os.listdir(view / "a")
        assert len(set(again)) == len(again) and stable <= {os.fsencode(name) for name in again}
        over.set()
        adding.join()
        for number in added[:: len(added) // 20 + 1]:
            assert (view / "a" / str(number)).read_bytes() == bytes([number % 251])
        time.sleep(1.1)
        assert len(os.listdir(view / "a")) == MILLION + len(added) + 1, "with the document"
        assert view.status("VmRSS") - before < 50 * 1024
        view.stop()
    finally:
        over.set()
        subprocess.run(["rm", "-rf", root], check=True)
