"""A mount that ends while it is busy: by a signal, by `fusermount3 -u`, or because its daemon is killed."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import data
from support.mounting import BACKGROUND, binary, detach, mounted, wait_for
from support.s3 import clean_env
from test_s3 import double  # noqa: F401
from test_waiting import CHUNK, Silence, bucket, shown, start, waiting  # noqa: F401

# What is told to who waits for a daemon that is gone.
GONE = {os.strerror(errno.ENOTCONN), os.strerror(errno.ECONNABORTED)}

# Reads the files again and again until an error, and tells when that was.
READER = """while cat "$@" > /dev/null; do echo read; done; date +%s.%N"""

# Is in a directory, and asks it for something once a line comes.
INSIDE = """
import os, sys
print("inside", flush=True)
sys.stdin.readline()
for ask in (lambda: os.listdir("."), lambda: os.stat("nothing"), lambda: open("3/5")):
    try:
        ask()
        print("answered")
    except OSError as problem:
        print(problem.errno)
"""


def processes(holds):
    """Those that are not about to be gone, of which `holds` is true: of their fields in /proc/PID/stat, and their arguments."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                arguments = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if fields[0] not in "ZX" and holds(fields, arguments):
                found.append((int(process.name), arguments))
    return found


def reader(*paths, prefix=()):
    return start("env", "LC_ALL=C", "sh", "-c", READER, "sh", *paths, prefix=prefix)


def ended(process):
    """When a reader had its error, in seconds."""
    out, problems = process.communicate(timeout=20)
    told = {line.rpartition(": ")[2] for line in problems.decode().splitlines()}
    assert told and told <= GONE, problems
    return float(out.split()[-1])


def family(view):
    """The daemon and what it has started, also once that has no parent any more."""
    return processes(lambda fields, _: int(fields[3]) == view.process.pid)


@pytest.fixture(params=["root", "ordinary"])
def bucket_of(request, bucket, mount, ordinary_user):  # noqa: F811
    """Mounts the bucket as root or as an ordinary user, always at the same place."""
    bucket.prefix = ordinary_user.prefix if request.param == "ordinary" else ()
    options = ["--endpoint-url", bucket.url, "--no-sign-request"]
    where = ordinary_user.home / "mnt"
    bucket.again = lambda: mount("s3://b/s", *options, where=where, prefix=bucket.prefix, env=clean_env())
    return bucket


def test_readers_of_a_daemon_that_is_killed(bucket_of, record_property):
    """Each has its error within a second, nothing of the daemon is left, and the next mount needs no help."""
    view = bucket_of.again()
    silence = Silence(bucket_of, *CHUNK)
    blocked = reader(view / "a/3/4", prefix=bucket_of.prefix)
    busy = [reader(*[view / f"a/{i}/{j}" for j in range(10)], prefix=bucket_of.prefix) for i in (0, 1, 2, 4, 5, 6, 7)]
    for one in busy:
        assert one.stdout.readline() == b"read\n", one.communicate()
    silence.waits_for()
    assert family(view) and all(one.poll() is None for one in [blocked, *busy])
    killed = time.time()
    view.process.kill()
    took = [ended(one) - killed for one in [blocked, *busy]]
    assert view.process.wait(10) == -signal.SIGKILL
    print(f"{max(took):.3f} s")
    record_property("seconds", round(max(took), 3))
    assert max(took) < 1
    wait_for(lambda: not family(view), 5, "what the daemon has started is gone")
    silence.is_over.set()
    assert mounted(view.where), "a dead mount"
    again = bucket_of.again()
    read = subprocess.run([*bucket_of.prefix, "cat", again / "a/3/4"], capture_output=True, timeout=30)
    assert read.stdout == bucket_of.values[30:40, 40:50].tobytes(), read.stderr
    assert again.stop() == (0, False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_though_somebody_reads_waits_and_is_inside(number, shown):  # noqa: F811
    view = shown.view
    silence = Silence(shown, *CHUNK)
    holder = subprocess.Popen(["tail", "-f", view / "a/3/5"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    inside = subprocess.Popen(
        [sys.executable, "-c", INSIDE], cwd=view / "a", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    blocked = reader(view / "a/3/4")
    try:
        assert holder.stdout.read(4) and inside.stdout.readline() == b"inside\n"
        silence.waits_for()
        assert blocked.poll() is None and view.stats()["open"]["files"] >= 1
        began = time.monotonic()
        view.signal(number)
        assert view.process.wait(20) == 0
        assert time.monotonic() - began < 5
        assert mounted(view.where) is None
        # None of them hangs.
        ended(blocked)
        answers = inside.communicate(b"\n", timeout=5)[0].split()
        assert answers == [str(errno.ENOTCONN).encode()] * 3
    finally:
        for process in (holder, inside, blocked):
            process.kill()
            process.wait()
        silence.is_over.set()
    assert not view.text()


@pytest.mark.parametrize("busy", ["lookup", "read-ahead"])
def test_unmounting_while_requests_are_under_way(busy, bucket_of):
    """Nothing is open, so that it is not refused; what the daemon waits for is of no account."""
    view, prefix = bucket_of.again(), bucket_of.prefix
    if busy == "lookup":
        silence = Silence(bucket_of, "HEAD", "s/a/3/4")
        process = waiting(view, "stat a/3/4", prefix=prefix)
        silence.waits_for()
        process.kill()
        process.wait(10)
    else:
        silences = [Silence(bucket_of, "GET", f"s/a/3/{i}") for i in range(4, 10)]
        subprocess.run([*prefix, "cat", *[view / f"a/3/{i}" for i in range(4)]], stdout=subprocess.DEVNULL, check=True, timeout=30)
        wait_for(lambda: any(silence.count for silence in silences), 20, "chunks are read ahead")
    done = subprocess.run([*prefix, "fusermount3", "-u", view], capture_output=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert view.process.wait(10) == 0 and mounted(view.where) is None
    assert not view.text()


def test_a_second_signal_ends_at_once(shown):  # noqa: F811
    """Who holds a file open keeps a mount that was detached alive for two seconds, unless there is a second signal."""
    with open(shown.view / "a/3/5", "rb"):
        shown.view.signal(signal.SIGTERM)
        wait_for(lambda: mounted(shown.view.where) is None, 5, "the mount is gone")
        began = time.monotonic()
        shown.view.signal(signal.SIGTERM)
        assert shown.view.process.wait(10) == 0
        assert time.monotonic() - began < 1.8


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("whom", ["who was called", "both"])
def test_a_signal_during_the_start_in_the_background(whom, number, room):
    """Whatever has begun by then: a whole mount, or nothing at all, no process and no mount point that was made for it."""
    where = room / "mnt"
    of_mount = lambda: processes(lambda _, arguments: os.fsencode(where) in arguments)  # noqa: E731

    def answers():
        try:
            return mounted(where) and (where / ".chunkmount" / "stats.json").read_bytes()
        except OSError:  # it is just ending
            return False

    log = room / f"log{BACKGROUND}"
    for after in (0.0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1):
        process = subprocess.Popen(
            [binary(), data.SAMPLE_ZIP, where, "--log-file", log], stderr=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(after)
        if whom == "both":
            # As Ctrl-C does in a terminal.
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        assert process.wait(10) in (0, -number)
        try:
            wait_for(lambda: not of_mount() or answers(), 10, "it is mounted, or ends")
            # It may be about to end, as it cannot tell anybody.
            subprocess.run([binary(), "-u", where], stderr=subprocess.DEVNULL, timeout=30)
            wait_for(lambda: not of_mount(), 10, "nothing runs any more")
            assert mounted(where) is None and not where.exists()
        finally:
            detach(where)
