"""A mount that somebody else has made: `chunkmount SOURCE /dev/fd/N` serves it, as in a container without privileges."""

import ctypes
import os
import subprocess

import pytest

from support import data
from support.mounting import binary, detach
from support.reading import by_zarr

CORPUS = data.stores()


def mounted_device(where):
    """An open /dev/fuse that is mounted at `where`."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    libc = ctypes.CDLL(None, use_errno=True)
    read_only, no_suid, no_dev = 1, 2, 4
    failed = libc.mount(b"source", os.fsencode(where), b"fuse.chunkmount", read_only | no_suid | no_dev, options.encode())
    assert failed == 0, os.strerror(ctypes.get_errno())
    return device


@pytest.mark.parametrize("number", ["0", "as it is"])
def test_a_device_is_served(room, number):
    where = room / "here"
    where.mkdir()
    source = CORPUS.path("zarr2/rootarray.zarr")
    device = mounted_device(where)
    if number == "0":
        passed = {"stdin": device, "args": [binary(), source, "/dev/fd/0", "-f"]}
    else:
        passed = {"pass_fds": [device], "args": [binary(), source, f"/dev/fd/{device}", "-f"]}
    process = subprocess.Popen(**passed)
    os.close(device)
    try:
        assert (by_zarr(where) == by_zarr(source)).all()
        process.terminate()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait(10)
        detach(where)


def test_what_is_no_device_is_refused(room):
    for name in ["/dev/fd/0", "/dev/fd/77", "/dev/fd/x"]:
        command = [binary(), CORPUS.path("zarr2/rootarray.zarr"), name, "-f"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
        assert done.returncode == 2 and name in done.stderr and done.stderr.count("\n") == 1, done.stderr
