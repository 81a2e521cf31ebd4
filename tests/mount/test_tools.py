"""Ordinary tools read a mount: nothing in it needs to know what a chunk is."""

import errno
import hashlib
import mmap
import os
import shutil
import stat
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

from support import data
from support.checks import check_array, check_store
from support.reading import View

SOURCES = ["n5/rust.n5", "zarr2/compressors.zarr", "nczarr/head_lemon.zarr", "zip/nczarr_v492.zip"]


def run(*command, **settings):
    """The standard output of a command that must succeed."""
    done = subprocess.run([str(part) for part in command], capture_output=True, timeout=60, **settings)
    assert done.returncode == 0, f"{command}: {done.stderr.decode(errors='replace')[-1000:]}"
    return done.stdout


def whole_chunks(corpus, store, view):
    """(path, bytes) of chunks that lie wholly inside their arrays; the bytes come from the truth."""
    for record in corpus.records[store]:
        if not record.has_values or record.region or record.ambiguous or record.undefined_region:
            continue
        shown, truth = View(view / record.array), record.in_view(record.load(record.truth))
        if shown.dtype.kind not in "iuf" or truth.shape != shown.shape or not truth.size:
            continue
        index = next((i for i in shown.stored() if all((n + 1) * c <= s for n, c, s in zip(i, shown.chunks, shown.shape))), None)
        if index is not None:
            block = truth[tuple(slice(n * c, (n + 1) * c) for n, c in zip(index, shown.chunks))]
            yield Path(shown.path(index)), np.ascontiguousarray(block, shown.dtype).tobytes()


@pytest.fixture(params=SOURCES)
def mounted(request, corpus, mount):
    view = mount(corpus.path(request.param))
    view.store = request.param
    return view


def test_reading_at_any_offset(mounted, corpus):
    chunks = list(whole_chunks(corpus, mounted.store, mounted))
    assert len(chunks) > 5
    for path, want in chunks[:12]:
        assert run("cat", path) == want
        assert run("dd", f"if={path}", "bs=7", "skip=3", "count=5", "status=none") == want[21:56]
        assert run("dd", f"if={path}", "bs=4097", "status=none") == want
        assert run("dd", f"if={path}", "bs=1", "skip=13", "count=31", "status=none") == want[13:44]
        assert run("dd", f"if={path}", "iflag=skip_bytes,count_bytes", "bs=64k", "skip=5", "count=100", "status=none") == want[5:105]
        assert run("tail", "-c", "13", path) == want[-13:]
        assert run("head", "-c", "11", path) == want[:11]
        assert bytes(int(b) for b in run("od", "-A", "n", "-v", "-t", "u1", path).split()) == want
        with open(path, "rb") as file:
            assert file.seek(0, os.SEEK_END) == len(want)
            assert os.pread(file.fileno(), 10, len(want) - 1) == want[-1:]
            assert os.pread(file.fileno(), 10, len(want)) == b""
            assert os.pread(file.fileno(), 10, len(want) + 1) == b""
            assert os.pread(file.fileno(), 10, 1 << 40) == b""
            assert os.pread(file.fileno(), 1 << 30, 0) == want
            assert os.pread(file.fileno(), 0, 0) == b""


def test_mmap(mounted, corpus):
    for path, want in list(whole_chunks(corpus, mounted.store, mounted))[:12]:
        with open(path, "rb") as file:
            for flags in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
                with mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ) as mapped:
                    assert mapped[:] == want
                    assert mapped[-1] == want[-1]
        assert bytes(np.memmap(path, np.uint8, "r")) == want


def test_sendfile_and_direct_reads(mounted, corpus, room):
    for path, want in list(whole_chunks(corpus, mounted.store, mounted))[:12]:
        shutil.copyfile(path, room / "copy")  # sendfile or copy_file_range
        assert (room / "copy").read_bytes() == want
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            with mmap.mmap(-1, (len(want) // 4096 + 1) * 4096) as aligned:
                assert os.readv(fd, [aligned]) == len(want)
                assert aligned[: len(want)] == want
        finally:
            os.close(fd)


def test_a_copy_of_the_tree_opens_like_the_tree(mounted, corpus, room):
    run("cp", "-r", mounted.where, room / "copy")
    assert not (room / "copy" / ".chunkmount").exists()
    problems = []
    for record in corpus.records[mounted.store]:
        if record.has_values:
            problems += check_array(record, room / "copy" / record.array)
    assert not problems, problems[:10]
    run("cp", "-a", mounted.where, room / "archive")
    assert data.entries(room / "archive") == data.entries(mounted.where)


def test_find_du_and_ls_agree_with_what_is_there(mounted):
    names = data.entries(mounted)
    assert len(names) > 20 and not any(name.startswith(".chunkmount") for name in names)
    found = run("find", mounted.where, "-type", "f", "-printf", "%P\\n").decode().splitlines()
    assert sorted(found) == names
    sizes = sum(len((mounted / name).read_bytes()) for name in names)
    counted = run("find", mounted.where, "-type", "f", "-printf", "%s\\n").split()
    assert sum(map(int, counted)) == sizes
    directories = run("find", mounted.where, "-type", "d", "-printf", "%s\\n").split()
    assert int(run("du", "-b", "-s", mounted.where).split()[0]) == sizes + sum(map(int, directories))
    listed = run("ls", "-1AR", mounted.where).decode().splitlines()
    assert set(name.split("/")[-1] for name in names) <= set(listed)


def test_stat_is_exact_and_never_changes_by_reading(mounted):
    for name in data.entries(mounted):
        before = os.stat(mounted / name)
        content = (mounted / name).read_bytes()
        after = os.stat(mounted / name)
        assert before.st_size == after.st_size == len(content), name
        assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns), name
        assert stat.S_IMODE(before.st_mode) == 0o444 and stat.S_ISREG(before.st_mode), name
        assert (before.st_uid, before.st_gid) == (os.getuid(), os.getgid()), name
    for here, _, _ in os.walk(mounted):
        mode = os.stat(here).st_mode
        assert stat.S_ISDIR(mode) and stat.S_IMODE(mode) == 0o555, here


def test_times_are_those_of_the_source(corpus, mount):
    store = "zarr2/compressors.zarr"
    view, source = mount(corpus.path(store)), corpus.path(store)
    same = [name for name in data.entries(view) if (source / name).is_file()]
    assert len(same) > 20
    for name in same:
        assert int(os.stat(view / name).st_mtime) == int(os.stat(source / name).st_mtime), name
    shown = run("ls", "-l", "--time-style=+%s", view / same[0]).split()[5]
    assert int(shown) == int(os.stat(source / same[0]).st_mtime)


def test_extended_attributes_say_where_a_chunk_came_from(corpus, mount):
    for store, container in (("zarr2/compressors.zarr", "dir"), ("n5/rust.n5", "dir"), ("zip/zarrpy2_zip_deflated.zip", "zip")):
        view = mount(corpus.path(store))
        record = next(r for r in corpus.records[store] if r.has_values and len(r.shape) > 1)
        shown = View(view / record.array)
        index = shown.stored()[-1]
        lines = run("getfattr", "-d", "-m", "-", "--absolute-names", shown.path(index)).decode().splitlines()
        found = dict(line.split("=", 1) for line in lines if "=" in line)
        found = {name.removeprefix("user.chunkmount."): value.strip('"') for name, value in found.items()}
        assert set(found) >= {"source", "codecs", "dtype", "shape", "origin"}, found
        digits = lambda text: [int(word) for word in text.strip("[]").replace("x", ",").split(",") if word.strip()]
        assert found["dtype"] == shown.dtype.str, found
        assert digits(found["shape"]) == list(shown.chunks), found
        assert digits(found["origin"]) in (list(index), [i * c for i, c in zip(index, shown.chunks)]), found
        name = "/".join(map(str, index[::-1])) if record.format == "n5" else shown.key(index)
        if container == "dir":
            assert f"{record.array}/{name}" in found["source"], found
        else:
            with zipfile.ZipFile(corpus.path(store)) as archive:
                info = archive.getinfo(f"{record.array}/{name}")
            start, length = map(int, found["source"].rsplit("[", 1)[1].rstrip("]").split("+"))
            assert length == info.compress_size and start >= info.header_offset + 30 + len(info.filename), found
        assert os.getxattr(shown.path(index), "user.chunkmount.dtype").decode() == shown.dtype.str
        with pytest.raises(OSError) as refused:
            os.getxattr(shown.path(index), "user.chunkmount.nothing")
        assert refused.value.errno == errno.ENODATA


def test_df_names_the_source_and_the_type(corpus, mount):
    source = corpus.path("n5/java.n5")
    view = mount(source)
    kind = run("df", "--output=fstype", view.where).decode().split()[-1]
    name = run("df", "--output=source", view.where).decode().split()[-1]
    assert kind == "fuse.chunkmount"
    assert name == str(source)
    assert b"chunkmount" in run("df", "-T", view.where)


def test_the_control_directory_has_the_source_as_it_is(mounted, corpus):
    assert ".chunkmount" not in os.listdir(mounted)
    source, shown = corpus.path(mounted.store), mounted / ".chunkmount" / "source"
    if source.is_dir():
        names = data.entries(source)
        assert data.entries(shown) == names
        for name in names:
            assert (shown / name).read_bytes() == (source / name).read_bytes(), name
        one = shown / names[0]
        assert run("sha256sum", one).split()[0].decode() == hashlib.sha256((source / names[0]).read_bytes()).hexdigest()
    else:
        with zipfile.ZipFile(source) as archive:
            files = {info.filename: archive.read(info) for info in archive.infolist() if not info.is_dir()}
        shown_names = data.entries(shown)
        assert len(shown_names) == len(files)
        for name, content in files.items():
            where = shown / name
            where = where if where.exists() else shown / name.split("/", 1)[1]
            assert where.read_bytes() == content, name


def attempts_to_write(view):
    """A file of a mount, a name that is not there, and what must not be done with them."""
    path = next(view / name for name in data.entries(view) if not Path(name).name.startswith("."))
    new = view / "new"
    return path, new, {
        "open for writing": lambda: os.open(path, os.O_RDWR),
        "open to append": lambda: os.open(path, os.O_WRONLY | os.O_APPEND),
        "open to write anew": lambda: os.open(path, os.O_WRONLY | os.O_TRUNC),
        "open to read, cut": lambda: os.open(path, os.O_RDONLY | os.O_TRUNC),
        "create": lambda: os.open(new, os.O_CREAT | os.O_WRONLY),
        "create anew": lambda: os.open(new, os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_RDWR),
        "without a name": lambda: os.open(view, os.O_TMPFILE | os.O_RDWR),
        "truncate": lambda: os.truncate(path, 0),
        "unlink": lambda: os.unlink(path),
        "mkdir": lambda: os.mkdir(new),
        "rmdir": lambda: os.rmdir(path.parent),
        "rename": lambda: os.rename(path, new),
        "link": lambda: os.link(path, new),
        "symlink": lambda: os.symlink("x", new),
        "mknod": lambda: os.mkfifo(new),
        "chmod": lambda: os.chmod(path, 0o600),
        "chown": lambda: os.chown(path, 1, 1),
        "touch": lambda: os.utime(path),
        "setxattr": lambda: os.setxattr(path, "user.x", b"x"),
        "removexattr": lambda: os.removexattr(path, "user.chunkmount.dtype"),
    }  # fmt: skip


def refused_as_read_only(attempts):
    for name, attempt in attempts.items():
        with pytest.raises(OSError) as refused:
            attempt()
        assert refused.value.errno == errno.EROFS, f"{name}: {refused.value}"


def test_writing_is_refused_by_the_kernel(mounted):
    refused_as_read_only(attempts_to_write(mounted)[2])


def test_no_attempt_to_write_reaches_the_daemon(corpus, mount):
    """It may be asked again whether a name is there that shall be new, and for nothing else."""
    view = mount(corpus.path("n5/rust.n5"), "--log-level", "fuser=debug")
    path, new, attempts = attempts_to_write(view)
    assert os.stat(path).st_size and not new.exists()
    # What was opened to find them is given back by itself, some time.
    requests = lambda: [line for line in view.text().splitlines() if "FUSE(" in line and " RELEASE" not in line]  # noqa: E731
    before = requests()
    assert any("LOOKUP" in line for line in before) and os.stat(path).st_size
    refused_as_read_only(attempts)
    after = requests()[len(before) :]
    assert all('LOOKUP name "new"' in line for line in after), after
    os.statvfs(view)
    assert len(requests()) == len(before) + len(after) + 1, "requests are in the log as they come"


def test_names_that_are_not_there(mounted, corpus):
    record = next(r for r in corpus.records[mounted.store] if r.has_values and len(r.shape) > 1)
    shown = View(mounted / record.array)
    good = shown.key(shown.stored()[0])
    beyond = shown.key([len(axis) for axis in shown.grid])
    for name in ("nothing", "0" + good, good + "x", good + ".0", beyond, "-" + good, "+" + good, " " + good, "1e0", "c/" + good):
        with pytest.raises((FileNotFoundError, NotADirectoryError)):
            os.stat(os.path.join(shown.directory, name))
    with pytest.raises(OSError) as refused:
        os.stat(mounted / ("n" * 300))
    assert refused.value.errno in (errno.ENAMETOOLONG, errno.ENOENT)
    with pytest.raises(NotADirectoryError):
        os.stat(os.path.join(shown.path(shown.stored()[0]), "below"))


def test_a_listing_can_be_read_in_pieces_and_again(mounted):
    """telldir, seekdir and rewinddir, as programs with small buffers use them."""
    for here, directories, files in os.walk(mounted):
        names = sorted(directories + files)
        assert len(set(names)) == len(names)
        with os.scandir(here) as listing:
            again = {entry.name: entry.inode() for entry in listing}
        assert sorted(again) == names
        for name, inode in list(again.items())[:50]:
            # A listing may leave the number out, which the kernel shows as this.
            assert inode in (os.stat(os.path.join(here, name)).st_ino, 0xFFFFFFFF)


def test_a_foreign_file_passes_through(corpus, mount, room):
    shutil.copytree(corpus.path("zarr2/fills.zarr"), room / "source")
    (room / "source" / "README").write_bytes(b"plain\n" * 5000)
    (room / "source" / "OME").mkdir()
    (room / "source" / "OME" / "METADATA.ome.xml").write_bytes(b"<OME/>")
    view = mount(room / "source")
    assert (view / "README").read_bytes() == b"plain\n" * 5000
    assert (view / "OME" / "METADATA.ome.xml").read_bytes() == b"<OME/>"
    assert {"README", "OME"} <= set(os.listdir(view))
    check_store(corpus, "zarr2/fills.zarr", view)
