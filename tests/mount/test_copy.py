"""`chunkmount cp`: a copy is the mounted tree, and one that was interrupted goes on as one of what the source is now."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
import zipfile

import numpy as np
import pytest
import zarr

from support import data
from support.checks import check_store
from support.commands import CORRUPT, STORES, USAGE, run
from support.mounting import binary


@pytest.fixture(params=STORES)
def store(request):
    return request.param


def differences(one, other):
    done = subprocess.run(["diff", "-r", one, other], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def test_a_copy_is_the_mounted_tree(store, corpus, mount, room):
    view = mount(corpus.path(store))
    done = run("cp", corpus.path(store), room / "copy")
    assert done.returncode == 0, done.stderr
    assert differences(view.where, room / "copy") == ""
    check_store(corpus, store, room / "copy")  # zarr-python, tensorstore and numpy read it
    for name in data.entries(view):
        assert os.stat(view / name).st_mtime_ns == os.stat(room / "copy" / name).st_mtime_ns, name


def test_a_copy_with_options_is_the_tree_mounted_with_them(corpus, mount, room):
    source = corpus.path("zarr2/compressors.zarr")
    for i, options in enumerate((["--zarr", "3"], ["--fill-missing"])):
        view = mount(source, *options)
        assert run("cp", *options, source, room / f"copy{i}").returncode == 0
        assert differences(view.where, room / f"copy{i}") == ""


def test_a_copy_goes_on_where_it_was_killed(room):
    array = zarr.create_array(room / "a.zarr", shape=(400, 64), chunks=(1, 64), dtype="<i4", zarr_format=2)
    array[:] = np.arange(400 * 64).reshape(400, 64)
    source, copy = room / "a.zarr", room / "copy"
    for pause in (0.05, 0.02, 0.08):
        process = subprocess.Popen([binary(), "cp", source, copy, "-q", "-j", "1"], stderr=subprocess.DEVNULL)
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if copy.exists() and not (copy / ".chunkmount-cp" / "begun.json").exists():
            # It had not begun, or was done already: nothing is interrupted.
            names = {path.name for path in copy.iterdir()} - {".chunkmount-cp"}
            chunks = {name for name in names if not name.startswith(".")}
            assert not names or chunks == {f"{i}.0" for i in range(400)}, (len(chunks), names - chunks)
            shutil.rmtree(copy)
        if not copy.exists():
            continue
        # What has its name is whole, however it was interrupted.
        for name in data.entries(copy):
            assert name.startswith(".") or (copy / name).stat().st_size == 256, name
    done = run("cp", source, copy)
    assert done.returncode == 0, done.stderr
    assert not (copy / ".chunkmount-cp").exists()
    assert np.array_equal(zarr.open_array(copy, mode="r")[:], array[:])


def test_a_copy_goes_on_that_was_killed_before_it_began(room):
    """What an attempt leaves that could not say yet what it copies: its own directory."""
    array = zarr.create_array(room / "a.zarr", shape=(4, 64), chunks=(1, 64), dtype="<i4", zarr_format=2)
    array[:] = np.arange(4 * 64).reshape(4, 64)
    (room / "copy" / ".chunkmount-cp").mkdir(parents=True)
    (room / "copy" / ".chunkmount-cp" / "new").write_bytes(b'{"chunk')
    done = run("cp", room / "a.zarr", room / "copy")
    assert done.returncode == 0, done.stderr
    assert np.array_equal(zarr.open_array(room / "copy", mode="r")[:], array[:])


def unfinished(source, copy):
    """A copy that stopped over a damaged chunk."""
    damaged = source / "3.0"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-3])
    done = run("cp", source, copy)
    assert done.returncode == CORRUPT, done.stderr
    assert "3.0" in done.stderr and (copy / ".chunkmount-cp").exists() and not (copy / "3.0").exists()
    damaged.write_bytes(whole)


def test_an_unfinished_copy_skips_what_is_whole_and_nothing_else(room):
    array = zarr.create_array(room / "a.zarr", shape=(8, 64), chunks=(1, 64), dtype="<i4", zarr_format=2)
    array[:] = np.arange(8 * 64).reshape(8, 64)
    source, copy = room / "a.zarr", room / "copy"
    unfinished(source, copy)
    inode = (copy / "0.0").stat().st_ino
    (copy / "1.0").write_bytes(b"short")
    later = (copy / "2.0").stat().st_mtime + 5
    os.utime(copy / "2.0", (later, later))
    refused = run("cp", "--zarr", "3", source, copy)
    assert refused.returncode == USAGE and "other options" in refused.stderr
    done = run("cp", source, copy)
    assert done.returncode == 0, done.stderr
    assert "5 of them there already" in done.stderr  # not the damaged one, the short one and the one of another time
    assert (copy / "0.0").stat().st_ino == inode
    assert np.array_equal(zarr.open_array(copy, mode="r")[:], array[:])
    again = run("cp", source, copy)
    assert again.returncode == USAGE and "not empty" in again.stderr
    assert run("cp", "--force", source, copy).returncode == 0
    assert np.array_equal(zarr.open_array(copy, mode="r")[:], array[:])


CHANGES = {
    "type": ({"dtype": "<f4"}, {"data_type": "float32"}),
    "byte order": ({"dtype": ">i4"}, {"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]}),
    "order": ({"order": "F"}, {"codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}}, {"name": "bytes"}]}),
    "chunks": ({"chunks": [4, 32]}, {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 32]}}}),
    "shape": ({"shape": [9, 64]}, {"shape": [9, 64]}),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("version", [2, 3])
def test_an_unfinished_copy_goes_on_as_a_copy_of_what_the_source_is_now(room, version, change):
    """Chunks that nobody touched mean something else once their array is described in another way: zarr-python tells what."""
    source, copy = room / "a.zarr", room / "copy"
    group = zarr.create_group(source, zarr_format=version)
    for name in ("a", "b", "c"):
        array = group.create_array(name, shape=(16, 64), chunks=(2, 64), dtype="<i4", fill_value=1, compressors=None)
        array[:] = np.arange(16 * 64).reshape(16, 64)
    damaged = source / "c" / ("3.0" if version == 2 else "c/3/0")
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-3])
    assert run("cp", source, copy).returncode == CORRUPT
    damaged.write_bytes(whole)
    document = source / "a" / (".zarray" if version == 2 else "zarr.json")
    described = {**json.loads(document.read_text()), **CHANGES[change][version - 2]}
    document.write_text(json.dumps(described))
    shutil.rmtree(source / "b")
    done = run("cp", source, copy)
    assert done.returncode == 0 and "7 of them there already" in done.stderr, done.stderr
    want, got = zarr.open_group(source, mode="r"), zarr.open_group(copy, mode="r")
    assert set(want.array_keys()) == set(got.array_keys()) == {"a", "c"}
    for name, array in want.arrays():
        np.testing.assert_array_equal(got[name][:], array[:])
    assert run("cp", source, room / "fresh").returncode == 0
    assert differences(room / "fresh", copy) == ""


def test_an_unfinished_copy_does_not_trust_times_that_were_set_back(room):
    """What a restored backup or `rsync -t` leaves: other bytes, of the same length and with the time of before."""
    array = zarr.create_array(room / "a.zarr", shape=(8, 64), chunks=(1, 64), dtype="<i4", zarr_format=2, compressors=None)
    array[:] = np.arange(8 * 64).reshape(8, 64)
    source, copy = room / "a.zarr", room / "copy"
    unfinished(source, copy)
    told = os.stat(source / "0.0")
    array[0] = 17
    os.utime(source / "0.0", ns=(told.st_atime_ns, told.st_mtime_ns))
    done = run("cp", source, copy)
    assert done.returncode == 0 and "6 of them there already" in done.stderr, done.stderr
    assert np.array_equal(zarr.open_array(copy, mode="r")[:], array[:])


def test_an_unfinished_copy_loses_chunks_that_the_source_lost_and_nothing_of_others(room):
    array = zarr.create_array(room / "a.zarr", shape=(8, 64), chunks=(1, 64), dtype="<i4", zarr_format=2, fill_value=9)
    array[:] = np.arange(8 * 64).reshape(8, 64)
    source, copy = room / "a.zarr", room / "copy"
    unfinished(source, copy)
    (copy / "notes.txt").write_text("mine")
    for name in ("0.0", "5.0"):
        (source / name).unlink()
    done = run("cp", source, copy)
    assert done.returncode == 0 and "2 removed" in done.stderr, done.stderr
    assert np.array_equal(zarr.open_array(copy, mode="r")[:], array[:])
    assert (array[0] == 9).all() and (copy / "notes.txt").read_text() == "mine"
    # Into what somebody else has written: its files stay, and a chunk among them that is not the source's is no secret.
    (copy / "0.0").write_bytes(bytes(256))
    done = run("cp", "--force", source, copy)
    assert done.returncode == USAGE and str(copy / "0.0") in done.stderr, done.stderr
    assert (copy / "0.0").exists() and (copy / "notes.txt").exists()
    (copy / "0.0").unlink()
    assert run("cp", source, copy).returncode == 0
    assert np.array_equal(zarr.open_array(copy, mode="r")[:], array[:])


def test_a_file_that_an_interruption_left_between_two_states_is_written_again(room):
    array = zarr.create_array(room / "a.zarr", shape=(8, 64), chunks=(1, 64), dtype="<i4", zarr_format=2)
    array[:] = np.arange(8 * 64).reshape(8, 64)
    source, copy = room / "a.zarr", room / "copy"
    unfinished(source, copy)
    record = copy / ".chunkmount-cp" / "written"
    told = record.read_bytes()
    record.write_bytes(told + b"0.0\x000\x00" + b"1.0\x00ab")  # killed at 0.0, and out of room within the entry of 1.0
    inode = (copy / "0.0").stat().st_ino
    done = run("cp", source, copy)
    assert done.returncode == 0 and "6 of them there already" in done.stderr, done.stderr
    assert (copy / "0.0").stat().st_ino != inode
    assert np.array_equal(zarr.open_array(copy, mode="r")[:], array[:])


def test_what_can_be_read_no_more_is_not_left_of_an_earlier_copy(room):
    array = zarr.create_array(room / "a.zarr", shape=(8, 64), chunks=(1, 64), dtype="<i4", zarr_format=2)
    array[:] = np.arange(8 * 64).reshape(8, 64)
    source, copy = room / "a.zarr", room / "copy"
    unfinished(source, copy)
    (source / "6.0").write_bytes(b"nonsense")
    done = run("cp", source, copy)
    assert done.returncode == CORRUPT and "6.0" in done.stderr, done.stderr
    assert not (copy / "6.0").exists() and (copy / "5.0").exists()


def test_two_copies_to_the_same_place(room):
    array = zarr.create_array(room / "a.zarr", shape=(8, 64), chunks=(1, 64), dtype="<i4", zarr_format=2)
    array[:] = np.arange(8 * 64).reshape(8, 64)
    source, copy = room / "a.zarr", room / "copy"
    unfinished(source, copy)
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    with open(copy / ".chunkmount-cp" / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for force in ([], ["--force"]):
            done = run("cp", *force, source, copy)
            assert done.returncode == USAGE and "another copy" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
        after = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
        lock_file = copy / ".chunkmount-cp" / "lock"
        assert {**after, lock_file: 0} == {**before, lock_file: 0}
    assert run("cp", source, copy).returncode == 0
    at_once = [subprocess.Popen([binary(), "cp", "-q", source, room / "other"], stderr=subprocess.PIPE, text=True) for _ in range(4)]
    told = [process.communicate(timeout=60)[1] for process in at_once]
    assert 0 in [process.returncode for process in at_once], told
    assert {process.returncode for process in at_once} <= {0, USAGE}, told
    assert differences(copy, room / "other") == ""


def test_a_copy_that_runs_out_of_room_goes_on(room):
    array = zarr.create_array(room / "a.zarr", shape=(8, 4096), chunks=(1, 4096), dtype="<i4", zarr_format=2)
    array[:] = np.arange(8 * 4096).reshape(8, 4096)
    copy = room / "copy"
    limited = f"ulimit -f 8; trap '' XFSZ; exec {binary()} cp -q {room / 'a.zarr'} {copy}"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, timeout=60)
    assert done.returncode == USAGE and len(done.stderr.splitlines()) == 1 and "cannot be written" in done.stderr, done.stderr
    assert not [name for name in data.entries(copy) if name.endswith(".0")]
    assert run("cp", room / "a.zarr", copy).returncode == 0
    assert np.array_equal(zarr.open_array(copy, mode="r")[:], array[:])


def test_an_unfinished_copy_of_an_archive_that_was_replaced_does_not_go_on(room):
    source, copy = room / "a.zip", room / "copy"
    content = bytearray(data.SAMPLE_ZIP.read_bytes())
    with zipfile.ZipFile(data.SAMPLE_ZIP) as archive:
        entry = archive.getinfo(next(n for n in archive.namelist() if n.endswith("f_deflate/0.0")))
    content[entry.header_offset + 30 + len(entry.filename) + entry.compress_size // 2] ^= 0xFF
    source.write_bytes(content)
    assert run("cp", source, copy).returncode == CORRUPT
    source.write_bytes(data.SAMPLE_ZIP.read_bytes())
    os.utime(source, (1, 1))
    again = run("cp", source, copy)
    assert again.returncode == USAGE and "something else" in again.stderr
    assert run("cp", "--force", source, copy).returncode == 0
    assert not (copy / ".chunkmount-cp").exists()


def rows(path):
    array = zarr.create_array(path, shape=(8, 64), chunks=(1, 64), dtype="<i4", zarr_format=2)
    array[:] = np.arange(8 * 64).reshape(8, 64)
    return array[:]


def test_an_unfinished_copy_of_something_else_is_not_removed(room):
    rows(room / "a.zarr" / "one")
    rows(room / "b.zarr" / "other")
    (room / "a.zarr" / "one" / "3.0").write_bytes(b"junk")
    assert run("cp", room / "a.zarr", room / "copy").returncode == CORRUPT
    before = sorted(data.entries(room / "copy" / "one"))
    assert run("cp", room / "b.zarr", room / "copy").returncode == USAGE
    assert run("cp", "--force", room / "b.zarr", room / "copy").returncode == 0
    assert sorted(data.entries(room / "copy" / "one")) == before


@pytest.mark.parametrize("group", [True, False])
def test_a_source_that_is_not_there_any_more_takes_no_copy_with_it(group, room):
    """As where nothing is mounted any more on the directory that was copied."""
    source, copy = room / "a.zarr", room / "copy"
    if group:
        zarr.create_group(source, zarr_format=2)
        rows(source / "a")
        (source / "a" / "3.0").write_bytes(b"junk")
        assert run("cp", source, copy).returncode == CORRUPT
    else:
        rows(source)
        unfinished(source, copy)
    before = sorted(data.entries(copy))
    source.rename(room / "elsewhere")
    source.mkdir()
    done = run("cp", source, copy)
    assert done.returncode == USAGE and "--force" in done.stderr
    assert sorted(data.entries(copy)) == before


def test_files_of_others_are_not_written_over(room):
    source, copy = room / "a.zarr", room / "copy"
    values = rows(source)
    unfinished(source, copy)
    (copy / "notes").write_text("mine")
    (source / "notes").write_text("theirs")
    done = run("cp", source, copy)
    assert done.returncode == USAGE and "notes" in done.stderr
    assert (copy / "notes").read_text() == "mine"
    assert run("cp", "--force", source, copy).returncode == 0
    assert (copy / "notes").read_text() == "theirs"
    assert np.array_equal(zarr.open_array(copy, mode="r")[:], values)


def test_what_was_to_be_written_over_and_was_not_stays_its_owner_s(room):
    source, copy = room / "a.zarr", room / "copy"
    rows(source)
    (source / "README").write_text("theirs")
    (copy / "README").mkdir(parents=True)
    (copy / "README" / "inside").write_text("mine")
    assert run("cp", "--force", source, copy).returncode == USAGE
    shutil.rmtree(copy / "README")
    (copy / "README").write_text("mine")
    (source / "README").unlink()
    assert run("cp", source, copy).returncode == 0
    assert (copy / "README").read_text() == "mine"


@pytest.mark.parametrize("turned", [False, True])
def test_a_name_that_was_a_file_and_is_a_directory(turned, room):
    source, copy = room / "a.zarr", room / "copy"
    rows(source)
    one, other = source / "extra", room / "extra"
    one.write_text("file")
    (other / "below").mkdir(parents=True)
    (other / "below" / "file").write_text("deeper")
    if turned:
        other.rename(room / "kept")
        one.rename(other)
        (room / "kept").rename(one)
    unfinished(source, copy)
    one.rename(room / "gone")
    other.rename(one)
    assert run("cp", source, copy).returncode == 0
    assert differences(source / "extra", copy / "extra") == ""


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_a_directory_of_others_that_cannot_be_listed_is_left_alone(room, ordinary_user):
    source, copy = room / "a.zarr", ordinary_user.home / "copy"
    values = rows(source)
    (copy / "lost+found").mkdir(parents=True, mode=0o700)
    os.chown(copy, 65534, 65534)
    done = subprocess.run([*ordinary_user.prefix, binary(), "cp", "--force", source, copy], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 or "lost+found" in done.stderr and "0.0" in os.listdir(copy), done.stderr
    assert np.array_equal(zarr.open_array(copy, mode="r")[:], values)
