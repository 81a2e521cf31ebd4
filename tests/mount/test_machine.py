"""What the machine does to a mount: clocks that jump, a network that goes away, no privileges, no helper."""

import errno
import glob
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from support import data
from support.checks import check_store
from support.mounting import binary, detach, mounted, wait_for
from support.reading import by_zarr
from support.s3 import clean_env, fault, silent
from test_s3 import double, put, small_array  # noqa: F401

DAY = 86_400
TIMEOUT = 3


class Clock:
    """A clock for a daemon that can be set while it runs; the monotonic one goes on, as it does when a system's clock is set."""

    def __init__(self, room):
        found = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
        assert found, "libfaketime is not installed: scripts/setup does that"
        self.file = room / "clock"
        self.set(0)
        self.env = {
            "LD_PRELOAD": found[0], "FAKETIME_TIMESTAMP_FILE": str(self.file), "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }  # fmt: skip

    def set(self, days):
        fresh = self.file.with_suffix(".new")
        fresh.write_text(f"{days * DAY:+d}\n")
        os.rename(fresh, self.file)


@pytest.mark.parametrize("days", [1, -1])
def test_a_clock_that_jumps(days, double, room, mount):
    """Deadlines, pauses after failures and `--refresh` go by a clock that does not jump."""
    values, files = small_array()
    put(double, "a", files)
    clock = Clock(room)
    view = mount(
        "s3://b/a", "--endpoint-url", double.url, "--no-sign-request", "--timeout", str(TIMEOUT), "--refresh", "0.5",
        env=clean_env(**clock.env),
    )  # fmt: skip
    assert (by_zarr(view / "") == values).all()
    told = lambda: os.stat(view / ".chunkmount" / "stats.json").st_mtime  # noqa: E731
    assert abs(told() - time.time()) < 60
    # While a request waits for a server that says nothing.
    double.faults.append(fault(silent, kinds="GET", key="a/1.1"))
    jump = threading.Timer(1, clock.set, [days])
    jump.start()
    start = time.monotonic()
    double.objects["a/1.1"] = np.full((10, 10), 6, "<i4").tobytes()
    time.sleep(0.7)
    with pytest.raises(OSError) as problem:
        (view / "1.1").read_bytes()
    assert problem.value.errno == errno.ETIMEDOUT
    assert TIMEOUT - 0.5 < time.monotonic() - start - 0.7 < TIMEOUT + 3
    jump.join()
    assert abs(told() - time.time() - days * DAY) < 60, "the clock has not jumped"
    double.faults.clear()
    # A failure is not remembered for a day, and changes are seen.
    time.sleep(1.1)
    assert set(np.fromfile(view / "1.1", "<i4")) == {6}
    double.objects["a/2.2"] = np.full((10, 10), 7, "<i4").tobytes()
    wait_for(lambda: set(np.fromfile(view / "2.2", "<i4")) == {7}, 10, "a changed object is seen")
    view.signal(signal.SIGTERM)
    assert view.process.wait(10) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes network namespaces")
def test_a_network_that_goes_away_and_comes_back(room, mount):
    """A server and a daemon in a network of their own: while it is down reads fail by the deadline, and afterwards all is well."""
    values, files = small_array()
    for name, content in files.items():
        (room / "files").mkdir(exist_ok=True)
        (room / "files" / name).write_bytes(content)
    holder = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    inside = ["nsenter", "--net", "--target", str(holder.pid)]
    own = os.stat("/proc/self/ns/net").st_ino
    server = None
    try:
        wait_for(lambda: os.stat(f"/proc/{holder.pid}/ns/net").st_ino != own, 10, "there is a network")
        loopback = lambda state: subprocess.run([*inside, "ip", "link", "set", "lo", state], check=True)  # noqa: E731
        loopback("up")
        server = subprocess.Popen(
            [*inside, sys.executable, "-m", "support.double_server", room / "files"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=data.ROOT / "tests" / "mount",
        )  # fmt: skip
        url = server.stdout.readline().strip()
        view = mount(
            "s3://b/a", "--endpoint-url", url, "--no-sign-request", "--timeout", str(TIMEOUT), "--cache-size", "1K", prefix=inside, env=clean_env(),
        )  # fmt: skip
        assert (view / "0.0").read_bytes() == files["0.0"]
        for name in ("1.1", "2.2"):
            loopback("down")
            start = time.monotonic()
            with pytest.raises(OSError) as problem:
                (view / name).read_bytes()
            assert problem.value.errno in (errno.EIO, errno.ETIMEDOUT)
            assert time.monotonic() - start < TIMEOUT + 2
            loopback("up")

            def back():
                try:
                    return (view / name).read_bytes() == files[name]  # noqa: B023
                except OSError:
                    return False

            wait_for(back, 10, "it recovers")
        assert (by_zarr(view / "") == values).all()
        view.stop()
    finally:
        for process in filter(None, (server, holder)):
            process.kill()
            process.wait()


def nobody(*command):
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *map(str, command)] if os.getuid() == 0 else list(map(str, command))


def test_in_a_container_without_root(corpus, room, ordinary_user):
    """In a user namespace of its own an ordinary user mounts without the helper, and ends the mount; nothing of it is seen outside."""
    source, where = room / "source.n5", ordinary_user.home / "mnt"
    shutil.copytree(corpus.path("n5/rust.n5"), source)
    program = binary()
    script = f"""set -e
        PATH=/nowhere {program} {source} {where}
        /bin/cp -r {where} {ordinary_user.home}/copy
        PATH=/nowhere {program} -u {where}
        ! /bin/grep -q " {where} " /proc/self/mountinfo"""
    done = subprocess.run(
        nobody("unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", script), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert mounted(where) is None
    check_store(corpus, "n5/rust.n5", ordinary_user.home / "copy")


def test_without_the_helper_a_user_is_told_what_is_missing(corpus, room, ordinary_user):
    """One line, and the status of a mount that was refused."""
    if os.getuid() != 0:
        pytest.skip("needs a root file system in which the helper can be hidden")
    source, where = room / "source.n5", ordinary_user.home / "mnt"
    shutil.copytree(corpus.path("n5/rust.n5"), source)
    # Another file system in the place of each directory that the helper may be in, with all else that was there.
    script = """set -e
        mkdir "$1/bin" && cp -a /usr/bin/setpriv /usr/bin/env "$1/bin"
        mount --bind "$1/bin" /usr/bin
        if [ ! -L /bin ]; then mount --bind "$1/bin" /bin; fi
        shift; exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@" """
    (room / "few").mkdir()
    command = ["unshare", "--mount", "sh", "-c", script, "sh", room / "few", binary(), source, where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 8, done.stderr
    assert done.stderr.count("\n") == 1 and "fusermount3" in done.stderr, done.stderr
    assert mounted(where) is None and not where.exists()
