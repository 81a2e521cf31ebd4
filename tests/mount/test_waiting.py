"""Who waits for a source that says nothing is gone at once when it is killed, by Ctrl-C or otherwise; all others go on waiting."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import zarr

from support.mounting import mounted, wait_for
from support.s3 import clean_env, fault, status
from test_s3 import double, put, small_array  # noqa: F401

# Seconds in which who is killed is gone, and those in which it must be on a machine that has much else to do.
PROMISED, SOON = 0.2, 1

# Content of a file of no format, which is read by ranges.
FOREIGN = bytes(range(256)) * 4096


class Silence:
    """Has the server keep requests waiting, of some kinds and for one key, until it is over; then it answers them."""

    def __init__(self, double, kinds, key, after=0):
        self.is_over, self.count, self.after = threading.Event(), 0, after
        self.kinds, self.key = kinds.split(), key
        double.silences.append(self)
        double.faults.append(self)

    def __call__(self, request):
        if request.kind in self.kinds and request.key == self.key:
            self.count += 1
            if self.count > self.after:
                self.is_over.wait(90)
        return False

    def waits_for(self, count=1):
        wait_for(lambda: self.count >= self.after + count, 20, f"{self.kinds} of {self.key} is asked for")
        # Each has asked the daemon by then, and waits for a while.
        time.sleep(0.3)


@pytest.fixture
def bucket(double):
    """A bucket of an array of ten by ten chunks and of a file that belongs to no format."""
    double.silences = []
    double.values, files = small_array((100, 100), (10, 10), "/")
    put(double, "s/a", files)
    double.put("s/.zgroup", b'{"zarr_format": 2}')
    for name in ("file", *(f"file{n}" for n in TRIES)):
        double.put(f"s/{name}", FOREIGN)
    yield double
    for silence in double.silences:
        silence.is_over.set()


@pytest.fixture
def shown(bucket):
    bucket.view = bucket.mount("s3://b/s")
    assert os.path.exists(bucket.view / "a")
    return bucket


def start(*command, prefix=()):
    return subprocess.Popen([*prefix, *map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def python(text, *arguments, prefix=()):
    return start(sys.executable, "-c", text, *arguments, prefix=prefix)


def state(process):
    """The letter of its state."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def ended(process, number, record=None):
    """Sends a signal and waits for the end; the seconds that it took."""
    assert process.poll() is None and state(process) in "DS", process.communicate()
    began = time.monotonic()
    process.send_signal(number)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"{process.args} waits on")
    took = time.monotonic() - began
    if record:
        record("seconds", round(took, 3))
    print(f"{signal.Signals(number).name}: {took:.3f} s")
    assert process.returncode == -number, process.communicate()
    assert took < SOON
    return took


def threads(view, name):
    """The threads of the daemon that are called so."""
    tasks = Path(f"/proc/{view.process.pid}/task").iterdir()
    found = []
    for task in tasks:
        with contextlib.suppress(OSError):
            found += [task] if (task / "comm").read_text().strip() == name else []
    return found


def nothing_open(view):
    """Nor does what was opened in vain and came late stay open."""
    time.sleep(0.5)
    is_open = view.stats()["open"]
    assert (is_open["files"], is_open["directories"]) == (0, 0)


# What takes the place of `{n}` below when it is tried again; nothing is read ahead along them.
TRIES = (3, 5, 8)

# How to wait: what the server is silent about, how often it is asked for that before, and the command, in the mount.
WAYS = {
    "lookup": ("HEAD", "s/a/{n}/4", 0, "stat a/{n}/4"),
    "open": ("GET", "s/a/{n}/4", 0, "cat a/{n}/4"),
    "opendir": ("LIST", "s/a/{n}/", 0, "ls a/{n}"),
    "opendir of ls -l": ("LIST", "s/a/{n}/", 0, "ls -l a/{n}"),
    "direct read": ("GET", "s/file{n}", 1, "dd if=file{n} bs=64k iflag=direct status=none"),
    "read": ("GET", "s/file{n}", 1, "cat file{n}"),
}
CHUNK = ("GET", "s/a/3/4")


def way_to_wait(way, n=TRIES[0]):
    """What to be silent about, and the command."""
    kinds, key, after, command = WAYS[way]
    return (kinds, key.format(n=n), after), command.format(n=n)


def waiting(view, command, prefix=()):
    """Starts a command with paths in a mount."""
    in_mount = lambda word: f"{view.where}/{word}" if "a/" in word or word.startswith("file") else word  # noqa: E731
    paths = [in_mount(word).replace("if=", f"if={view.where}/") for word in command.split()]
    return start(*paths, prefix=prefix)


def best(attempt, record):
    """The best of three is what is promised: `attempt(n)` takes so many seconds."""
    took = []
    for n in TRIES:
        took.append(attempt(n))
        if took[-1] < PROMISED:
            break
    record("seconds", round(min(took), 3))
    assert min(took) < PROMISED, took


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["int", "kill"])
@pytest.mark.parametrize("way", WAYS)
def test_who_is_killed_is_gone(way, number, shown, record_property):
    def attempt(n):
        silent, command = way_to_wait(way, n)
        silence = Silence(shown, *silent)
        process = waiting(shown.view, command)
        silence.waits_for()
        # dd handles SIGINT.
        took = ended(process, signal.SIGTERM if command.startswith("dd") and number == signal.SIGINT else number)
        silence.is_over.set()
        return took

    best(attempt, record_property)
    nothing_open(shown.view)
    assert (shown.view / "a/3/4").read_bytes() == shown.values[30:40, 40:50].tobytes()
    assert (shown.view / "file").read_bytes() == FOREIGN
    assert not shown.view.text()


# Asks an open file for where it comes from, once a line comes.
ASKS = """
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
print(flush=True)
sys.stdin.readline()
os.getxattr(file, "user.chunkmount.source")
"""


@pytest.mark.parametrize("way", ["getattr", "getxattr"])
def test_who_is_killed_over_what_was_known_before(way, bucket, room, record_property):
    """What is asked of an inode itself reaches the store where names and versions are looked at again."""
    shard = zarr.create_array(room / "shards", shape=(8, 8), chunks=(4, 4), shards=(8, 8), dtype="<i4")
    shard[:] = 1
    bucket.upload("s/shards", room / "shards")
    view = bucket.mount("s3://b/s", "--refresh", "0.5")

    def attempt(_):
        if way == "getattr":
            time.sleep(0.6)
            silence = Silence(bucket, "LIST", "s/")
            process = start("stat", view.where)
        else:
            command = [sys.executable, "-c", ASKS, view / "shards/c/0/1"]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            assert process.stdout.readline()
            time.sleep(0.6)
            silence = Silence(bucket, "HEAD", "s/shards/c/0/0")
            process.stdin.write(b"\n")
            process.stdin.flush()
        silence.waits_for()
        # Python handles SIGINT.
        took = ended(process, signal.SIGTERM)
        silence.is_over.set()
        return took

    best(attempt, record_property)
    nothing_open(view)
    assert (view / "a/3/4").read_bytes() == bucket.values[30:40, 40:50].tobytes()
    assert not view.text()


@pytest.mark.parametrize("way", ["lookup", "open", "read", "direct read", "opendir"])
def test_others_wait_on(way, shown, record_property):
    silent, command = way_to_wait(way)
    silence = Silence(shown, *silent)
    one, other = waiting(shown.view, command), waiting(shown.view, command)
    silence.waits_for()
    if way == "lookup" and state(one) != "S":
        # Who comes second to look a name up waits for the first within the kernel, which keeps it even if it is killed.
        one, other = other, one
    # dd handles SIGINT.
    ended(one, signal.SIGTERM, record_property)
    time.sleep(0.3)
    assert other.poll() is None
    silence.is_over.set()
    out, problem = other.communicate(timeout=20)
    assert other.returncode == 0, problem
    want = {"open": shown.values[30:40, 40:50].tobytes(), "read": FOREIGN, "direct read": FOREIGN}
    assert out == want.get(way, out)
    nothing_open(shown.view)
    assert not shown.view.text()


def test_a_page_that_one_is_killed_over_is_right_for_the_other(shown, record_property):
    """After an error the kernel reads a page as one request of whoever came first, for whom it is a page that failed."""
    shown.faults.append(fault(status(403, "AccessDenied"), kinds="GET", key="s/file", after=1, times=1))
    silence = Silence(shown, "GET", "s/file", after=0)
    silence.after = 1
    command = "dd if=file bs=4k count=1 status=none"
    one = waiting(shown.view, command)
    silence.waits_for()
    assert state(one) in "DS"
    other = waiting(shown.view, command)
    time.sleep(0.5)
    ended(one, signal.SIGTERM, record_property)
    time.sleep(0.3)
    silence.is_over.set()
    out, problem = other.communicate(timeout=20)
    assert (other.returncode, out) == (0, FOREIGN[:4096]), problem
    assert (shown.view / "file").read_bytes() == FOREIGN


CAUGHT = """
import ctypes, os, signal, sys
caught = []
signal.signal(signal.SIGINT, lambda *_: caught.append(1))
libc = ctypes.CDLL(None, use_errno=True)
def checked(result):
    if result < 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    return result
path = os.fsencode(sys.argv[1])
file = checked(libc.open(path, os.O_RDONLY))
into = ctypes.create_string_buffer(1 << 21)
count = checked(libc.read(file, into, len(into)))
sys.stdout.buffer.write(into.raw[:count])
sys.exit(0 if caught else "no signal came")
"""


@pytest.mark.parametrize("name", ["a/3/4", "file"])
def test_a_signal_that_is_caught_does_no_harm(name, shown):
    """Few programs expect of a file that a call is interrupted."""
    silence = Silence(shown, "GET", f"s/{name}", after=int(name == "file"))
    process = python(CAUGHT, shown.view / name)
    silence.waits_for()
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None, process.communicate()
    silence.is_over.set()
    out, problem = process.communicate(timeout=20)
    assert process.returncode == 0, problem
    assert out == (FOREIGN if name == "file" else shown.values[30:40, 40:50].tobytes())


def test_a_program_that_handles_ctrl_c_can_be_ended_otherwise(shown, record_property):
    """By Ctrl-\\, whose signal leaves a core dump, which the kernel prepares for in another way."""
    silence = Silence(shown, *CHUNK)
    no_core = ["sh", "-c", 'ulimit -c 0; exec "$0" "$@"']
    process = python(CAUGHT, shown.view / "a/3/4", prefix=no_core)
    silence.waits_for()
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    ended(process, signal.SIGQUIT, record_property)
    silence.is_over.set()
    nothing_open(shown.view)


def test_a_signal_that_is_ignored_does_no_harm(shown):
    silence = Silence(shown, *CHUNK)
    process = start("sh", "-c", 'trap "" INT; exec cat "$0"', shown.view / "a/3/4")
    silence.waits_for()
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None
    silence.is_over.set()
    assert process.communicate(timeout=20)[0] == shown.values[30:40, 40:50].tobytes() and process.returncode == 0


THREADS = """
import sys, threading
def read(name):
    with open(name, "rb") as file:
        file.read()
threads = [threading.Thread(target=read, args=[name]) for name in sys.argv[1:]]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_all_threads_of_who_is_killed_are_gone(shown, record_property):
    silences = [Silence(shown, "GET", f"s/a/3/{i}") for i in range(8)]
    process = python(THREADS, *[shown.view / f"a/3/{i}" for i in range(8)])
    for silence in silences:
        silence.waits_for()
    # The main thread waits for the others.
    ended(process, signal.SIGTERM, record_property)
    for silence in silences:
        silence.is_over.set()
    nothing_open(shown.view)


def test_many_are_killed_and_nothing_is_left(shown, record_property):
    silences = [Silence(shown, "GET", f"s/a/{i}/{j}") for i in range(3, 7) for j in range(10)]
    processes = [waiting(shown.view, f"cat a/{i}/{j}") for i in range(3, 7) for j in range(10) for _ in range(2)]
    for silence in silences:
        wait_for(lambda silence=silence: silence.count, 30, "all are asked for")
    time.sleep(0.5)
    began = time.monotonic()
    for process in processes:
        process.send_signal(signal.SIGINT)
    assert [process.wait(30) for process in processes] == [-signal.SIGINT] * len(processes)
    took = time.monotonic() - began
    record_property("seconds", round(took, 3))
    print(f"{len(processes)}: {took:.3f} s")
    assert took < 2 * SOON
    for silence in silences:
        silence.is_over.set()
    nothing_open(shown.view)
    assert all((shown.view / f"a/5/{j}").read_bytes() == shown.values[50:60, j * 10 : j * 10 + 10].tobytes() for j in range(10))
    wait_for(lambda: not threads(shown.view, "request"), 30, "threads that served requests have ended")
    assert not shown.view.text()


def test_nothing_is_left_of_a_lookup(bucket, record_property):
    """What the kernel was never told of, it never gives back. Each version of a chunk has an inode in the table with --refresh."""
    view = bucket.mount("s3://b/s", "--refresh", "1000")
    assert os.path.exists(view / "a/3/5")
    before = view.stats()["open"]["inodes"]
    silence = Silence(bucket, "HEAD", "s/a/3/4")
    process = waiting(view, "stat a/3/4")
    silence.waits_for()
    ended(process, signal.SIGINT, record_property)
    silence.is_over.set()
    time.sleep(0.5)
    assert view.stats()["open"]["inodes"] == before
    assert os.path.exists(view / "a/3/4")
    assert view.stats()["open"]["inodes"] == before + 1


def test_the_mount_can_be_unmounted_then(shown, record_property):
    """Though the server still says nothing."""
    silence = Silence(shown, *CHUNK)
    process = waiting(shown.view, "cat a/3/4")
    silence.waits_for()
    ended(process, signal.SIGINT, record_property)
    assert subprocess.run(["umount", shown.view], capture_output=True).returncode == 0
    assert shown.view.process.wait(10) == 0 and mounted(shown.view) is None
    assert not shown.view.text()


@pytest.mark.parametrize("way", ["lookup", "open", "read", "opendir"])
def test_a_mount_of_an_ordinary_user(way, bucket, mount, ordinary_user, record_property):
    silent, command = way_to_wait(way)
    options = ["--endpoint-url", bucket.url, "--no-sign-request"]
    where, prefix = ordinary_user.home / "mnt", ordinary_user.prefix
    view = mount("s3://b/s", *options, where=where, prefix=prefix, env=clean_env())
    silence = Silence(bucket, *silent)
    process = waiting(view, command, prefix=prefix)
    silence.waits_for()
    ended(process, signal.SIGINT, record_property)
    silence.is_over.set()
    done = subprocess.run([*prefix, "cat", view / "a/3/4"], capture_output=True, timeout=30)
    assert done.stdout == bucket.values[30:40, 40:50].tobytes()
    assert subprocess.run([*prefix, "fusermount3", "-u", view], capture_output=True).returncode == 0
    assert view.process.wait(10) == 0
    assert not view.text()


@pytest.mark.parametrize("way", ["lookup", "open"])
def test_a_directory_that_hangs(way, shown, mount, record_property):
    """A source in a file system of a network that is gone: here another mount."""
    silent, command = way_to_wait(way)
    outer = mount(shown.view / "a", "--threads", "4")
    os.listdir(outer)
    silence = Silence(shown, *silent)
    process = start(*[outer / word[2:] if "a/" in word else word for word in command.split()])
    silence.waits_for()
    ended(process, signal.SIGINT, record_property)
    # Nor does its daemon wait when it is to end.
    began = time.monotonic()
    outer.stop()
    assert time.monotonic() - began < 5
    silence.is_over.set()


def test_nobody_is_looked_at_while_nobody_waits(shown):
    (watcher,) = threads(shown.view, "waiters")
    switches = lambda: (watcher / "status").read_text().partition("\nvoluntary_ctxt_switches:")[2]  # noqa: E731
    time.sleep(0.5)
    before = switches()
    time.sleep(1)
    assert switches() == before
