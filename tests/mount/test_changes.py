"""A source that changes under its mount: the old bytes or an error, never a mix, and the new ones when asked for."""

import errno
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from support.mounting import wait_for
from support.reading import View, by_zarr
from test_zarr3 import BYTES, GZIP, document, numbers, place, shard, write
from test_zarr3 import read as by_tensorstore


SHAPE, CHUNKS = (64, 1024, 64), (16, 1024, 64)


def written(path, value, compressor="gzip"):
    """An array of one value, by tensorstore, in chunks of 2 MiB."""
    import tensorstore

    spec = {
        "driver": "zarr",
        "kvstore": {"driver": "file", "path": str(path)},
        "metadata": {"shape": SHAPE, "chunks": CHUNKS, "dtype": "<u2", "compressor": {"id": compressor, "level": 1}},
    }
    array = tensorstore.open(spec, create=True, delete_existing=True).result()
    array.write(np.full(SHAPE, value, np.uint16)).result()


@pytest.fixture
def pair(room):
    """Two arrays of the same kind and other values: one in the source, one to replace it with."""
    written(room / "source" / "a", 1111)
    written(room / "new" / "a", 2222)
    return room / "source", room / "new"


def replace(pair, name, how):
    source, new = pair
    if how == "rename":
        shutil.copy(new / "a" / name, source / "a" / (name + ".tmp"))
        os.rename(source / "a" / (name + ".tmp"), source / "a" / name)
    else:
        (source / "a" / name).write_bytes((new / "a" / name).read_bytes())
    later = time.time() + 5  # clocks of file systems are coarse; a changed file has another time
    os.utime(source / "a" / name, (later, later))


def one_value(content):
    """The value that a whole block consists of; a mix fails."""
    values = np.unique(np.frombuffer(content, "<u2"))
    assert len(values) == 1, f"a mix of {values}"
    assert len(content) == int(np.prod(CHUNKS)) * 2
    return int(values[0])


@pytest.mark.parametrize("how", ["rename", "overwrite"])
@pytest.mark.parametrize("begun", [False, True])
def test_a_reader_sees_one_version(pair, how, begun, mount):
    view = mount(pair[0], "--cache-size", "4M")
    with open(view / "a" / "0.0.0", "rb", buffering=0) as file:
        first = file.read(100_000) if begun else b""
        replace(pair, "0.0.0", how)
        for other in ("1.0.0", "2.0.0", "3.0.0"):  # push the block out of the cache
            (view / "a" / other).read_bytes()
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            rest = b"".join(iter(lambda: file.read(1 << 16), b""))
        except OSError as error:
            assert error.errno in (errno.ESTALE, errno.EIO)
        else:
            one_value(first + rest)
    try:
        one_value((view / "a" / "0.0.0").read_bytes())
    except OSError as error:
        assert error.errno in (errno.ESTALE, errno.EIO)


@pytest.mark.parametrize("how", ["rename", "overwrite"])
def test_refresh_shows_new_bytes(pair, how, mount):
    view = mount(pair[0], "--refresh", "1")
    assert one_value((view / "a" / "0.0.0").read_bytes()) == 1111
    replace(pair, "0.0.0", how)

    def fresh():
        try:
            return one_value((view / "a" / "0.0.0").read_bytes()) == 2222
        except OSError as error:
            assert error.errno in (errno.ESTALE, errno.EIO)
            return False

    wait_for(fresh, 6, "the new bytes are shown")
    assert one_value((view / "a" / "1.0.0").read_bytes()) == 1111


def small(path, **kept):
    """An array of numbers in two chunks, by tensorstore; `kept` says how it is kept. What a mount shows of it is always the same."""
    import tensorstore

    metadata = {"shape": [8, 6], "chunks": [4, 6], "dtype": "<u2", "compressor": None, "order": "C"} | kept
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(path)}, "metadata": metadata}
    array = tensorstore.open(spec, create=True).result()
    array.write(np.arange(1000, 1048, dtype=np.uint16).reshape(8, 6)).result()
    return tensorstore.open(spec, open=True).result().read().result()


def exchange(source, new):
    """Puts all files of `new` over those of `source`, those that differ with another time."""
    later = time.time() + 5
    for file in new.rglob("*"):
        old = source / file.relative_to(new)
        if file.is_file() and (not old.exists() or old.read_bytes() != file.read_bytes()):
            shutil.copy(file, old.with_name(".new"))
            os.utime(old.with_name(".new"), (later, later))
            os.rename(old.with_name(".new"), old)


KEPT = {
    "codec": {"compressor": {"id": "zlib", "level": 1}},
    "byte order": {"dtype": ">u2"},
    "byte order of the same bytes": {"dtype": ">u2"},
    "order of axes": {"order": "F"},
}


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("place", [".", "a", "g/a"])
@pytest.mark.parametrize("held", [False, True])
def test_an_array_that_is_encoded_otherwise_is_another(kept, place, held, room, mount):
    """No document that is shown tells of it, and the chunks may be the same objects. Who holds a directory of the old array open
    gets no chunk that is decoded as the other's."""
    import tensorstore

    source, new = room / "source", room / "new"
    old = small(source / place)
    small(new / place, **KEPT[kept])
    if "same bytes" in kept:
        for file in (new / place).glob("[0-9]*"):
            file.unlink()
    view = mount(source, "--refresh", "0.3")
    directory = os.open(view / place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert np.array_equal(np.fromfile(view / place / "0.0", "<u2"), old[:4].ravel())
        exchange(source, new)
        spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(source / place)}}
        now = tensorstore.open(spec).result().read().result()[4:].astype("<u2").tobytes()
        if held:
            time.sleep(0.7)
            try:
                with open(os.open("1.0", os.O_RDONLY, dir_fd=directory), "rb") as file:
                    assert file.read() == (now if place == "." else old[4:].tobytes())
            except OSError as error:
                assert error.errno == errno.ESTALE and place != "."  # the root is one directory for ever
            return

        def fresh():
            try:
                return (view / place / "1.0").read_bytes() == now
            except OSError as error:
                assert error.errno in (errno.ESTALE, errno.EIO)
                return False

        wait_for(fresh, 6, "the chunk is decoded as the source has it")
    finally:
        os.close(directory)


@pytest.mark.parametrize("kept", [*KEPT, "shape"])
@pytest.mark.parametrize("options", [[], ["--refresh", "1000"]])
@pytest.mark.parametrize("attributes", [False, True])
def test_no_chunk_is_decoded_by_documents_of_before(kept, options, attributes, room, mount):
    """Nor before it is time to look again, or where that is never done, and though other documents stay as they were. An array that
    has only grown is read on."""
    import tensorstore

    source, new = room / "source", room / "new"
    old = small(source / "a")
    if attributes:
        (source / "a" / ".zattrs").write_text('{"unit": "m"}')
    small(new / "a", **KEPT.get(kept, {}))
    if kept == "shape":
        grown = (new / "a" / ".zarray").read_text().replace('"shape":[8,6]', '"shape":[16,6]')
        assert "16" in grown
        (new / "a" / ".zarray").write_text(grown)
    if "same bytes" in kept:
        for file in (new / "a").glob("[0-9]*"):
            file.unlink()
    view = mount(source, *options)
    assert np.array_equal(np.fromfile(view / "a" / "0.0", "<u2"), old[:4].ravel())
    exchange(source, new)
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(source / "a")}}
    now = tensorstore.open(spec).result().read().result()[4:8].astype("<u2").tobytes()
    try:
        assert (view / "a" / "1.0").read_bytes() == now
    except OSError as error:
        assert error.errno == errno.ESTALE and kept != "shape"


@pytest.mark.parametrize("gone", ["deleted", "emptied", "another"])
@pytest.mark.parametrize("options", [[], ["--refresh", "1000"], ["--fill-missing"]])
def test_no_chunk_is_absent_because_its_array_is_gone(gone, options, room, mount):
    """A reader would take fill values for what nobody has written. A chunk of the array that is there is absent as ever."""
    source = room / "source"
    small(source / "a", chunks=[4, 3])
    (source / "a" / "1.1").unlink()
    # With `--refresh` the path leads to what is there now: who holds the directory is told.
    directory = os.open(mount(source, *options) / "a", os.O_RDONLY | os.O_DIRECTORY)

    def read(name):
        with open(name, "rb", opener=lambda name, flags: os.open(name, flags, dir_fd=directory)) as file:
            return file.read()

    try:
        read("0.0")
        if "--fill-missing" not in options:
            with pytest.raises(FileNotFoundError):
                read("1.1")
        (source / "a").rename(room / "away")
        if gone != "deleted":
            (source / "a").mkdir()
        if gone == "another":
            small(source / "a", chunks=[4, 3], dtype="<u4")
            (source / "a" / "1.0").unlink()
        with pytest.raises(OSError) as error:
            read("1.0")
        assert error.value.errno == errno.ESTALE
    finally:
        os.close(directory)


def test_refresh_shows_new_chunks_and_hides_removed_ones(pair, mount):
    (pair[0] / "a" / "3.0.0").unlink()
    view = mount(pair[0], "--refresh", "1")
    assert sorted(name for name in os.listdir(view / "a") if name[0] != ".") == ["0.0.0", "1.0.0", "2.0.0"]
    assert not (view / "a" / "3.0.0").exists()
    replace(pair, "3.0.0", "rename")
    (pair[0] / "a" / "1.0.0").unlink()
    wait_for(lambda: (view / "a" / "3.0.0").exists(), 6, "the new chunk is there")
    wait_for(lambda: not (view / "a" / "1.0.0").exists(), 6, "the removed chunk is gone")
    wait_for(lambda: sorted(n for n in os.listdir(view / "a") if n[0] != ".") == ["0.0.0", "2.0.0", "3.0.0"], 6, "listed")
    assert one_value((view / "a" / "3.0.0").read_bytes()) == 2222


def test_readers_of_a_chunk_that_is_replaced_again_and_again(pair, mount):
    """Every whole read is of one version, while the file is renamed over."""
    view = mount(pair[0], "--refresh", "1", "--cache-size", "4M")
    stop, problems, reads = threading.Event(), [], [0]

    def read():
        while not stop.is_set():
            try:
                with open(view / "a" / "0.0.0", "rb") as file:
                    one_value(file.read())
                reads[0] += 1
            except OSError as error:
                if error.errno not in (errno.ESTALE, errno.EIO):
                    problems.append(repr(error))
            except AssertionError as mix:
                problems.append(str(mix))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        old = pair[0].parent / "old"
        shutil.copytree(pair[0], old)
        for turn in range(30):
            replace((pair[0], old if turn % 2 else pair[1]), "0.0.0", "rename")
            time.sleep(0.1)
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert not problems, problems[:3]
    assert reads[0]


def test_a_source_that_disappears(pair, mount):
    """What is gone is an error or what was read before; the daemon lives and ends in order."""
    view = mount(pair[0], "--cache-size", "2M")
    with open(view / "a" / "0.0.0", "rb", buffering=0) as file:
        first = file.read(1000)
        shutil.rmtree(pair[0])
        try:
            one_value(first + b"".join(iter(lambda: file.read(1 << 16), b"")))
        except OSError as error:
            assert error.errno in (errno.ESTALE, errno.EIO, errno.ENOENT)
    try:
        one_value((view / "a" / "2.0.0").read_bytes())
    except OSError as error:
        assert error.errno in (errno.ESTALE, errno.EIO, errno.ENOENT)
    assert view.process.poll() is None


def test_a_directory_that_is_renamed_is_read_on(pair, mount, room):
    """What is opened, and what nobody has looked at yet; another one in its place is another one."""
    source, new = pair
    view = mount(source, "--cache-size", "4M")
    with open(view / "a" / "0.0.0", "rb") as file:
        begun = file.read(100_000)
        source.rename(room / "elsewhere")
        assert one_value(begun + file.read()) == 1111
        new.rename(source)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for number in range(4):
            assert one_value((view / "a" / f"{number}.0.0").read_bytes()) == 1111
        file.seek(0)
        assert one_value(file.read()) == 1111
    assert not view.text()


@pytest.mark.parametrize("place", ["nothing", "another"])
def test_an_archive_that_is_renamed(place, pair, mount, room):
    """It is looked for by its path: what is not held is an error, and no chunk is absent."""
    source, new = (Path(shutil.make_archive(str(room / path.name), "zip", path)) for path in pair)
    view = mount(source, "--cache-size", "4M")
    with open(view / "a" / "0.0.0", "rb") as file:
        begun = file.read(100_000)
        source.rename(room / "elsewhere")
        if place == "another":
            new.rename(source)
        told = set()
        for read in (lambda: begun + file.read(), *((lambda n=n: (view / "a" / f"{n}.0.0").read_bytes()) for n in range(4))):
            try:
                assert one_value(read()) == 1111
            except OSError as error:
                told.add(error.errno)
    assert told and told <= {errno.ESTALE, errno.EIO}, told
    assert place == "nothing" or "another version than the one that was opened" in view.text()
    assert "again and again" not in view.text()  # it was once
    assert {f"{n}.0.0" for n in range(4)} <= set(os.listdir(view / "a"))


@pytest.mark.parametrize("closed", ["a", "a/1.0.0", "."])
@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_a_source_that_may_not_be_read_any_more(closed, pair, mount, room, ordinary_user):
    """What an ordinary user has begun to read goes on; the rest is refused, and never absent."""
    source, prefix = pair[0], ordinary_user.prefix
    subprocess.run(["chown", "-R", "65534:65534", source], check=True)
    view = mount(source, where=ordinary_user.home / "mnt", prefix=prefix)
    command = ["sh", "-c", 'head -c 100000; read line < "$0"; cat', room / "go"]
    os.mkfifo(room / "go")
    (room / "go").chmod(0o644)
    opened = [*prefix, "sh", "-c", 'exec "$@" < "$0"', view / "a" / "0.0.0", *command]
    reader = subprocess.Popen(opened, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    begun = reader.stdout.read(100_000)
    (source / closed).chmod(0)
    try:
        (room / "go").write_text("go\n")
        rest, problem = reader.communicate(timeout=30)
        assert "Permission denied" in problem.decode() or one_value(begun + rest) == 1111, problem
        for number in range(4):
            read = subprocess.run([*prefix, "cat", view / "a" / f"{number}.0.0"], capture_output=True, timeout=30)
            if read.returncode == 0:
                assert one_value(read.stdout) == 1111 and number != 1
            else:
                assert "Permission denied" in read.stderr.decode() and (number == 1 or closed != "a/1.0.0"), read.stderr
    finally:
        (source / closed).chmod(0o755)


def test_an_archive_that_is_replaced_under_its_mount(corpus, mount, room):
    """A reader of the mount gets the old bytes or an error: the index no longer fits the file."""
    source = room / "a.zip"
    shutil.copy(corpus.path("zip/nczarr_v492.zip"), source)
    view = mount(source)
    record = next(r for r in corpus.records["zip/nczarr_v492.zip"] if r.array == "v_i1")
    shown = View(view / "v_i1")
    want = {index: shown.chunk(index).tobytes() for index in shown.stored()[:2]}
    shutil.copy(corpus.path("zip/nczarr_v480.zip"), room / "b.zip")
    os.rename(room / "b.zip", source)
    truth = record.load(record.truth)
    for index in shown.stored():
        try:
            got = shown.chunk(index)
        except OSError as error:
            assert error.errno in (errno.ESTALE, errno.EIO, errno.ENOENT)
            continue
        part = truth[tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, shown.chunks))]
        assert (got[tuple(slice(0, n) for n in part.shape)] == part).all()
    assert want


def test_a_replaced_archive_fails_when_a_file_is_opened(pair, mount, room):
    """Not only when it is read: numpy.fromfile takes no notice of that. Chunks, documents' neighbours and stored entries alike."""
    import zipfile

    def archive(path, root, **options):
        with zipfile.ZipFile(path, "w", **options) as out:
            for name in ("0.0.0", "1.0.0", "2.0.0", "3.0.0", ".zarray"):
                out.write(root / "a" / name, f"a/{name}")
            out.writestr("a/notes", "text " * 1000)
            out.writestr("b", "x")

    archive(room / "s.zip", pair[0])
    view = mount(room / "s.zip", "--cache-size", "1M")
    assert one_value((view / "a" / "0.0.0").read_bytes()) == 1111
    (view / "a" / "1.0.0").read_bytes()  # the cache holds one block
    assert (view / "a" / "notes").exists()
    archive(room / "new.zip", pair[1])
    os.rename(room / "new.zip", room / "s.zip")
    for name in ("0.0.0", "2.0.0", "notes"):
        with pytest.raises(OSError) as gone:
            os.close(os.open(view / "a" / name, os.O_RDONLY))
        assert gone.value.errno == errno.ESTALE, name


def test_a_changed_file_of_no_format_fails_when_it_is_opened(pair, mount):
    note = pair[0] / "note"
    note.write_bytes(b"old" * 1000)
    view = mount(pair[0])
    assert (view / "note").stat().st_size == 3000
    note.write_bytes(b"newer" * 1000)
    with pytest.raises(OSError) as gone:
        os.close(os.open(view / "note", os.O_RDONLY))
    assert gone.value.errno == errno.ESTALE


def test_an_open_chunk_that_is_deleted_keeps_its_attributes(pair, mount):
    view = mount(pair[0], "--refresh", "0.2")
    with open(view / "a" / "0.0.0", "rb") as file:
        before = os.fstat(file.fileno())
        (pair[0] / "a" / "0.0.0").unlink()
        time.sleep(0.5)
        after = os.fstat(file.fileno())
        assert (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        assert one_value(file.read()) == 1111
    with pytest.raises(FileNotFoundError):
        os.stat(view / "a" / "0.0.0")


def test_consolidated_metadata_below_the_root_follows_its_arrays(pair, mount):
    import json

    group = pair[0] / "g"
    group.mkdir()
    (pair[0] / "a").rename(group / "a")
    (group / ".zgroup").write_text('{"zarr_format": 2}')
    array = json.loads((group / "a" / ".zarray").read_text())
    listed = {"zarr_consolidated_format": 1, "metadata": {".zgroup": {"zarr_format": 2}, "a/.zarray": array}}
    (group / ".zmetadata").write_text(json.dumps(listed))
    view = mount(pair[0], "--refresh", "0.2")
    shape = lambda: json.loads((view / "g" / ".zmetadata").read_text())["metadata"]["a/.zarray"]["shape"]
    assert shape() == list(SHAPE)
    (group / "a" / ".zarray").write_text(json.dumps(array | {"shape": [80, 1024, 64]}))
    wait_for(lambda: shape() == [80, 1024, 64], 5, "the consolidated metadata follows")


def test_a_chunk_that_stays_encoded_is_never_cut(mount, room):
    """Its size is the source's: what was told at the first look must not cut a longer one."""
    import json

    array = {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "|O", "compressor": None, "order": "C", "fill_value": None,
             "filters": [{"id": "vlen-utf8"}]}  # fmt: skip
    (room / "s").mkdir()
    (room / "s" / ".zarray").write_text(json.dumps(array))
    text = lambda *words: len(words).to_bytes(4, "little") + b"".join(len(w).to_bytes(4, "little") + w for w in words)
    (room / "s" / "0").write_bytes(text(b"a", b"b"))
    view = mount(room / "s")
    assert (view / "0").stat().st_size == len(text(b"a", b"b"))
    longer = text(b"a" * 100, b"b" * 100)
    (room / "s" / "0").write_bytes(longer)
    try:
        assert (view / "0").read_bytes() == longer
    except OSError as error:
        assert error.errno == errno.ESTALE


def test_what_was_not_read_of_a_shard_of_shards_that_changed_is_the_new(room, mount):
    made = document([64], [64], codecs=[shard([32], [shard([8], [BYTES, GZIP])])])
    old, new = np.full(64, 7, "<u2"), numbers([64])
    for name, values in (("source", old), ("new", new)):
        write(place(room / name / "a", made), values)
    view = mount(room / "source")
    assert np.array_equal(np.fromfile(view / "a" / "c" / "0", "<u2"), old[:8])
    replace((room / "source", room / "new"), "c/0", "rename")
    # Nobody has read of the second inner shard, whose place is told by the index of the outer one.
    for index in range(4, 8):
        got = np.fromfile(view / "a" / "c" / str(index), "<u2")
        assert np.array_equal(got, by_tensorstore(room / "new" / "a")[index * 8 : index * 8 + 8])
