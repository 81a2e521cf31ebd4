"""What depends on the server: pages, ranges, versions, names and refusals, as a real one that checks signatures has them.

`scripts/test-s3` runs these and `test_s3.py` against Garage or s3s-fs in the place of moto.
"""

import errno
import os
import subprocess
import time

import numpy as np
import pytest

from support import data
from support.checks import check_groups, check_store
from support.mounting import binary
from support.reading import by_zarr
from support.s3 import SERVER
from test_s3 import CORPUS, bucket, fails, real, s3, small_array  # noqa: F401

# moto takes any region, is slow at taking many objects, and has fewer of the stores in test_s3.py.
OTHERS = pytest.mark.others


def write(room, name, files):
    """The files of an array as a directory."""
    folder = room / name
    for file, content in files.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


@pytest.fixture
def put(real, room):
    """Uploads the files of an array, and says where it is."""

    def upload(key, files):
        real.tell("upload", "bucket", key, write(room, f"up-{key.replace('/', '-')}", files))
        return f"s3://bucket/{key}"

    return upload


@OTHERS
@pytest.mark.parametrize("store", sorted(CORPUS.records))
def test_every_store(store, bucket, s3):
    view = s3(bucket(store))
    check_store(CORPUS, store, view)
    check_groups(CORPUS, store, view)


@OTHERS
def test_a_listing_of_several_pages(put, s3):
    values, files = small_array((1010,), (1,))
    view = s3(put("pages", files))
    assert set(os.listdir(view / "")) == set(files) - {".zattrs"}
    assert view.stats()["store"]["list"] == 2
    assert (np.fromfile(view / "1009", "<i4") == values[-1:]).all()


@OTHERS
def test_a_directory_of_several_pages(put, s3):
    values, files = small_array((1010, 1), (1, 1), "/")
    view = s3(put("folders", files))
    assert set(os.listdir(view / "")) == {".zarray"} | {str(i) for i in range(1010)}
    assert os.listdir(view / "1009") == ["0"]
    assert (np.fromfile(view / "1009/0", "<i4") == values[1009, 0]).all()


@pytest.mark.parametrize(
    "name", ["with space", "täst-ü-漢字", "a+b", "per%20cent", "sharp#x", "q?mark=1&b", "quote'\"<>&amp;", "~tilde!$(),;:@=*", "back\\slash"]
)
def test_names_of_every_kind(name, put, s3):
    values, files = small_array()
    put(f"odd/{name}", files)
    view = s3("s3://bucket/odd")
    assert name in os.listdir(view / "")
    assert (by_zarr(view / name) == values).all()
    # What follows a # is about the source, so that such a name is found in a directory only.
    if "#" not in name:
        with s3(f"s3://bucket/odd/{name}") as alone:
            assert (by_zarr(alone / "") == values).all()


def test_absent_is_absent(put, real, s3):
    values, files = small_array((40, 40), (10, 10), "/")
    address = put("holes", {name: content for name, content in files.items() if name != "1/2"})
    view = s3(address)
    assert not os.path.exists(view / "1/2")
    with pytest.raises(FileNotFoundError):
        open(view / "1/2", "rb")
    values[10:20, 20:30] = 0
    assert (by_zarr(view / "") == values).all()
    code, text = fails("s3://bucket/holes/no/such", "--endpoint-url", real.url, env=real.env("all"))
    assert code == 3, text
    code, text = fails("s3://no-such-bucket/x", "--endpoint-url", real.url, env=real.env("all"))
    assert code in (4, 7) and "no-such-bucket" in text


@pytest.mark.skipif(SERVER == "s3s", reason="its listings tell no entity tags, so that no version is known before it is read")
def test_a_replaced_object_is_new_for_who_had_not_opened_it(put, real, s3):
    _, files = small_array()
    address = put("changes", files)
    view, fresh = s3(address), s3(address, "--refresh", "0.2")
    assert "0.1" in os.listdir(view / "") and "0.1" in os.listdir(fresh / "")
    with open(view / "0.3", "rb") as file:
        for name in ("0.1", "0.3"):
            real.tell("put", "bucket", f"changes/{name}", "n" * 400)
        assert (view / "0.1").read_bytes() == b"n" * 400
        assert file.read() == files["0.3"]
    assert (view / "0.2").read_bytes() == files["0.2"]
    time.sleep(1)
    assert (fresh / "0.1").read_bytes() == b"n" * 400


def test_a_removed_object_is_stale_or_absent(put, real, s3):
    _, files = small_array()
    view = s3(put("removed", files))
    assert "0.1" in os.listdir(view / "")
    real.tell("delete", "bucket", "removed/0.1")
    with pytest.raises(OSError) as problem:
        (view / "0.1").read_bytes()
    assert problem.value.errno in (errno.ESTALE, errno.ENOENT, errno.EIO)


def test_an_empty_object_is_no_chunk(put, real, s3):
    _, files = small_array()
    view = s3(put("empty", {**files, "0.1": b""}))
    with pytest.raises(OSError) as problem:
        (view / "0.1").read_bytes()
    assert problem.value.errno == errno.EIO
    assert (view / "0.0").read_bytes() == files["0.0"]


@pytest.mark.skipif(SERVER == "s3s", reason="its objects are files, and markers would be directories")
def test_markers_of_directories(put, real, s3):
    values, files = small_array()
    put("marked/a", files)
    for key in ("marked/", "marked/a/", "marked/empty/"):
        real.tell("put", "bucket", key, "")
    real.tell("put", "bucket", "marked/.zgroup", '{"zarr_format": 2}')
    view = s3("s3://bucket/marked/")
    assert set(os.listdir(view / "")) - {".zattrs"} == {".zgroup", "a", "empty"}
    assert os.listdir(view / "empty") == [] and (by_zarr(view / "a") == values).all()


def test_an_archive_is_read_by_ranges(bucket, s3):
    store = "zip/many_entries.zip"
    view = s3(bucket(store))
    names = data.entries(view)
    assert len(names) > 100
    (view / names[-1]).read_bytes()
    assert view.stats()["store"]["bytes"] < max(CORPUS.path(store).stat().st_size / 2, 2 << 20)


def test_a_cache_on_disk(put, s3, room):
    values, files = small_array()
    address = put("kept", files)
    for hits in (0, 16):
        with s3(address, "--disk-cache", room / "cache") as view:
            assert (by_zarr(view / "") == values).all()
            assert view.stats()["disk"]["hits"] >= hits
    assert view.where


def test_refused_is_said(put, real):
    _, files = small_array()
    address = put("mine", files)
    good = real.users["all"]
    wrong = {**good, "AWS_SECRET_ACCESS_KEY": "0" * len(good["AWS_SECRET_ACCESS_KEY"])}
    unknown = {"AWS_ACCESS_KEY_ID": good["AWS_ACCESS_KEY_ID"][:-4] + "0000", "AWS_SECRET_ACCESS_KEY": "0" * 40}
    for keys in [wrong, unknown, *[user for name, user in real.users.items() if name == "stranger"]]:
        code, text = fails(address, "--endpoint-url", real.url, env=real.env(None, **keys))
        assert code == 4 and keys["AWS_SECRET_ACCESS_KEY"] not in text, text
    if SERVER != "moto":
        code, text = fails(address, "--endpoint-url", real.url, "--no-sign-request", env=real.env(None))
        assert code == 4, text


@OTHERS
def test_the_region_that_the_server_names_is_taken(put, real, mount):
    values, files = small_array()
    address = put("elsewhere", files)
    env = {key: value for key, value in real.env("all").items() if key != "AWS_REGION"}
    view = mount(address, "--endpoint-url", real.url, env=env)
    assert (by_zarr(view / "") == values).all()


def test_commands(put, real, room):
    values, files = small_array()
    address = put("commands/a", files)
    settings = {"env": real.env("all"), "capture_output": True, "timeout": 60}
    options = ["--endpoint-url", real.url]
    done = subprocess.run([binary(), "ls", "s3://bucket/commands", *options], text=True, **settings)
    assert done.returncode == 0 and done.stdout.split() == ["a/"], done.stderr
    done = subprocess.run([binary(), "cat", address, "1.2", *options], **settings)
    assert done.returncode == 0 and done.stdout == files["1.2"], done.stderr
    done = subprocess.run([binary(), "cp", address, room / "copy", *options], text=True, **settings)
    assert done.returncode == 0, done.stderr
    assert (by_zarr(room / "copy") == values).all()
    done = subprocess.run([binary(), "check", address, *options], text=True, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
