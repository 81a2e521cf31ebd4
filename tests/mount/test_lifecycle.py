"""How a mount begins and ends: exit statuses, one line of error, and nothing left behind."""

import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from support import data
from support.checks import check_store
from support.mounting import BACKGROUND, binary, detach, mounted, mounts, wait_for

STORE = "zarr2/compressors.zarr"

USAGE, NOT_FOUND, DENIED, CORRUPT, UNSUPPORTED, UNAVAILABLE, MOUNT_FAILED = range(2, 9)


def chunkmount(*arguments, prefix=(), timeout=30, **settings):
    command = [*prefix, str(binary()), *(str(argument) for argument in arguments)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, **settings)


def background(source, where, **settings):
    """Mounts in the background, with a log that is looked at when the test ends."""
    log = Path(os.path.join(settings.get("cwd", ""), where)).parent / f"log{BACKGROUND}"
    return chunkmount(source, where, "--log-file", log, **settings)


def refused(run, status, about):
    """The program ended with `status` and one line that names what it is about."""
    lines = run.stderr.splitlines()
    assert run.returncode == status, (run.returncode, run.stderr)
    assert len(lines) == 1 and lines[0].startswith("chunkmount: "), run.stderr
    assert str(about) in lines[0], run.stderr


def first_chunk(view):
    return next(view / name for name in data.entries(view) if not Path(name).name.startswith(".") and os.stat(view / name).st_size)


def gone(view, seconds=10):
    wait_for(lambda: mounted(view.where) is None, seconds, "the mount is gone")
    return view.process.wait(seconds)


def test_in_the_background(corpus, room):
    where = room / "mnt"
    run = background(corpus.path(STORE), where)
    try:
        assert run.returncode == 0, run.stderr
        assert mounted(where)[0] == "fuse.chunkmount"
        check_store(corpus, STORE, where)  # it answers as soon as the command returns
        ended = chunkmount("-u", where)
        assert ended.returncode == 0, ended.stderr
        assert mounted(where) is None
    finally:
        detach(where)


@pytest.mark.parametrize("command", [["umount"], ["fusermount3", "-u"], [None, "-u"]])
def test_unmounting_ends_the_daemon(command, corpus, mount):
    view = mount(corpus.path(STORE))
    first_chunk(view).read_bytes()
    command = [str(binary()) if part is None else part for part in command]
    done = subprocess.run([*command, view.where], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert gone(view) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_unmounts(number, corpus, mount):
    # The tests may have been started below nohup(1).
    view = mount(corpus.path(STORE), prefix=("env", "--default-signal=HUP"))
    first_chunk(view).read_bytes()
    view.signal(number)
    assert gone(view) == 0


def test_a_hangup_that_is_ignored_ends_nothing(corpus, mount):
    view = mount(corpus.path(STORE), prefix=("nohup",))
    view.signal(signal.SIGHUP)
    # Signals of different kinds are told of in the order of their numbers: this one after the other.
    view.signal(signal.SIGUSR1)
    wait_for(lambda: '"capacity"' in view.text(), 10, "the counters are logged")
    assert mounted(view.where) and view.process.poll() is None
    assert first_chunk(view).read_bytes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_unmounts_though_files_are_open_and_a_shell_is_inside(number, corpus, mount):
    view = mount(corpus.path(STORE))
    file = open(first_chunk(view), "rb")
    shell = subprocess.Popen(["sleep", "60"], cwd=view.where)
    try:
        view.signal(number)
        wait_for(lambda: mounted(view.where) is None, 5, "a busy mount is detached")
    finally:
        shell.kill()
        shell.wait()
        file.close()
    assert view.process.wait(10) == 0


def test_a_second_signal_does_not_leave_half_a_mount(corpus, mount):
    view = mount(corpus.path(STORE))
    view.signal(signal.SIGTERM)
    try:
        view.signal(signal.SIGTERM)
    except ProcessLookupError:
        pass
    assert gone(view) == 0


@pytest.mark.parametrize("after", [0.0, 0.002, 0.005, 0.01, 0.02, 0.05])
def test_a_signal_during_the_start_leaves_no_half_mount(after, corpus, room):
    where = room / "mnt"
    process = subprocess.Popen([binary(), corpus.path(STORE), where, "-f"], stderr=subprocess.DEVNULL)
    time.sleep(after)
    process.terminate()
    assert process.wait(10) in (0, -signal.SIGTERM)
    assert mounted(where) is None and not where.exists()


def test_readers_while_the_mount_goes(corpus, mount):
    """Readers get an error soon, none hangs, and none gets wrong bytes."""
    view = mount(corpus.path(STORE))
    names = [name for name in data.entries(view) if os.stat(view / name).st_size]
    want = {name: (view / name).read_bytes() for name in names}
    stop, wrong, errors = threading.Event(), [], []

    def read():
        while not stop.is_set():
            for name in names:
                try:
                    if (view / name).read_bytes() != want[name]:
                        wrong.append(name)
                except OSError as error:
                    errors.append(error.errno)
                    return

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    view.signal(signal.SIGTERM)
    wait_for(lambda: mounted(view.where) is None, 5, "the mount is gone")
    stop.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert not wrong
    assert set(errors) <= {errno.ENOENT, errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.ESTALE, errno.ENOTDIR}, errors


def test_after_kill_9_the_next_mount_heals(corpus, room, mount):
    view = mount(corpus.path(STORE))
    path = first_chunk(view)
    want = path.read_bytes()
    view.process.kill()
    view.process.wait(10)
    with pytest.raises(OSError) as dead:
        os.listdir(view.where)
    assert dead.value.errno == errno.ENOTCONN
    again = mount(corpus.path(STORE), where=view.where)
    assert path.read_bytes() == want
    assert again.stop()[0] == 0
    assert mounted(view.where) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_start_where_a_daemon_hangs_is_ended_by_a_signal(number, corpus, mount):
    view = mount(corpus.path(STORE))
    state = lambda process, field: re.search(rf"^{field}:\s+(\S+)", Path(f"/proc/{process.pid}/status").read_text(), re.M)[1]  # noqa: E731
    view.signal(signal.SIGSTOP)
    try:
        wait_for(lambda: state(view.process, "State") == "T", 10, "the daemon is stopped")
        command = [str(binary()), corpus.path(STORE), view.where, "-f"]
        start = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            wait_for(lambda: int(state(start, "SigCgt"), 16) >> (number - 1) & 1, 10, "signals are heard")
            start.send_signal(number)
            said = start.communicate(timeout=10)[1]
        finally:
            start.kill()
            start.wait(10)
        refused(subprocess.CompletedProcess(command, start.returncode, "", said), MOUNT_FAILED, view.where)
    finally:
        view.signal(signal.SIGCONT)
    assert first_chunk(view).read_bytes()


def test_a_dead_mount_can_be_unmounted(corpus, mount):
    view = mount(corpus.path(STORE))
    view.process.kill()
    view.process.wait(10)
    done = chunkmount("-u", view.where)
    assert done.returncode == 0, done.stderr
    assert mounted(view.where) is None


def test_the_mount_point_is_made_and_removed(corpus, mount, room):
    view = mount(corpus.path(STORE), where=room / "new")
    assert view.stop()[0] == 0
    assert not (room / "new").exists()
    (room / "old").mkdir()
    view = mount(corpus.path(STORE), where=room / "old")
    assert view.stop()[0] == 0
    assert (room / "old").is_dir(), "a directory that was there before stays"


def test_what_lies_below_a_mount_comes_back(corpus, mount, room):
    (room / "full").mkdir()
    (room / "full" / "note").write_text("still here")
    view = mount(corpus.path(STORE), where=room / "full")
    assert "note" not in os.listdir(view)
    view.stop()
    assert (room / "full" / "note").read_text() == "still here"


@pytest.mark.parametrize("exists", [True, False])
def test_many_mount_in_one_place_at_once(exists, corpus, room):
    """As the tasks of a job do that begin together: one mount, and all others find it there."""
    for turn in range(8):
        where = room / f"mnt{turn}"
        if exists:
            where.mkdir()
        command = [str(binary()), str(corpus.path(STORE)), str(where), "--log-file", str(room / f"log{BACKGROUND}")]
        tasks = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(8)]
        try:
            told = [(task.communicate(timeout=60)[1], task.returncode) for task in tasks]
            assert sum(point == str(where) for point, _ in mounts()) == 1, told
            assert sorted(status for _, status in told) == [0] + 7 * [USAGE], told
        finally:
            detach(where)


def test_two_mounts_at_once(corpus, mount):
    """Of two sources, of one source twice, and one ends without the other."""
    one, other, same = mount(corpus.path(STORE)), mount(corpus.path("n5/java.n5")), mount(corpus.path(STORE))
    check_store(corpus, "n5/java.n5", other)
    one.stop()
    check_store(corpus, STORE, same)
    assert other.process.poll() is None


def test_relative_paths_in_the_background(corpus, room):
    """The daemon leaves the working directory; what was meant is what the caller meant."""
    shutil.copytree(corpus.path("n5/rust.n5"), room / "source.n5")
    run = background("source.n5", "mnt", cwd=room)
    try:
        assert run.returncode == 0, run.stderr
        check_store(corpus, "n5/rust.n5", room / "mnt")
        assert chunkmount("-u", "mnt", cwd=room).returncode == 0
    finally:
        detach(room / "mnt")


def test_the_background_daemon_lets_go_of_its_caller(corpus, room):
    """A pipe that a shell waits on is closed: `chunkmount a b | cat` ends."""
    where = room / "mnt"
    run = subprocess.run(f"'{binary()}' '{corpus.path(STORE)}' '{where}' 2>&1 | cat", shell=True, timeout=20, capture_output=True)
    try:
        assert run.returncode == 0 and mounted(where)
    finally:
        chunkmount("-u", where)
        detach(where)


class TestExitStatus:
    def test_usage(self, corpus, room):
        for arguments in ([], ["one"], ["a", "b", "--no-such-option"], [corpus.path(STORE), room / "m", "--zarr", "4"]):
            run = chunkmount(*arguments)
            assert run.returncode == USAGE, (arguments, run.stderr)
            assert run.stderr and not run.stdout

    def test_help_and_version(self):
        assert "SOURCE" in chunkmount("--help").stdout
        assert chunkmount("--version").stdout.startswith("chunkmount ")

    def test_source_not_found(self, room):
        refused(chunkmount(room / "nowhere", room / "mnt"), NOT_FOUND, "nowhere")
        assert not (room / "mnt").exists()

    def test_permission(self, corpus, room, ordinary_user):
        shutil.copytree(corpus.path("n5/rust.n5"), room / "closed")
        (room / "closed").chmod(0o700)
        run = chunkmount(room / "closed", ordinary_user.home / "mnt", prefix=ordinary_user.prefix)
        refused(run, DENIED, "closed")

    def test_corrupt(self, room):
        whole = data.SAMPLE_ZIP.read_bytes()
        (room / "cut.zip").write_bytes(whole[: len(whole) // 2])
        refused(chunkmount(room / "cut.zip", room / "mnt"), CORRUPT, "cut.zip")
        assert mounted(room / "mnt") is None

    def test_a_file_of_no_known_kind(self, room):
        (room / "text").write_text("no array here\n" * 100)
        run = chunkmount(room / "text", room / "mnt")
        assert run.returncode in (CORRUPT, UNSUPPORTED), run.stderr
        refused(run, run.returncode, "text")

    def test_a_device_is_not_opened(self, room):
        os.mkfifo(room / "fifo")
        run = chunkmount(room / "fifo", room / "mnt")
        assert run.returncode in (CORRUPT, UNSUPPORTED, USAGE), run.stderr
        refused(run, run.returncode, "fifo")

    def test_mount_point_is_a_file(self, corpus, room):
        (room / "file").write_text("x")
        run = chunkmount(corpus.path(STORE), room / "file")
        assert run.returncode in (USAGE, MOUNT_FAILED), run.stderr
        refused(run, run.returncode, "file")

    def test_mount_point_cannot_be_made(self, corpus, room):
        run = chunkmount(corpus.path(STORE), room / "a" / "b" / "c" / "\0".replace("\0", "d" * 300))
        assert run.returncode in (USAGE, MOUNT_FAILED), run.stderr

    def test_mount_point_inside_the_source_and_the_reverse(self, corpus, room):
        shutil.copytree(corpus.path("n5/rust.n5"), room / "outer" / "source")
        for where in ("outer/source/mnt", "outer/source", "outer"):
            run = chunkmount(room / "outer" / "source", room / where)
            assert run.returncode in (USAGE, MOUNT_FAILED), (where, run.returncode, run.stderr)
            assert mounted(room / where) is None
            assert len(run.stderr.splitlines()) == 1, run.stderr
        assert not (room / "outer" / "source" / "mnt").exists()

    def test_a_link_does_not_hide_that_the_mount_point_is_in_the_source(self, corpus, room):
        shutil.copytree(corpus.path("n5/rust.n5"), room / "source")
        (room / "link").symlink_to(room / "source")
        run = chunkmount(room / "link", room / "source" / "mnt")
        assert run.returncode in (USAGE, MOUNT_FAILED), run.stderr

    def test_unmounting_what_is_no_mount(self, room):
        (room / "plain").mkdir()
        run = chunkmount("-u", room / "plain")
        assert run.returncode not in (0, 1), run.stderr
        refused(run, run.returncode, "plain")

    def test_the_foreground_ends_with_the_same_status_and_line(self, room):
        refused(chunkmount(room / "nowhere", room / "mnt", "-f"), NOT_FOUND, "nowhere")


def test_an_ordinary_user(corpus, room, ordinary_user):
    """Mounts, reads and unmounts without privileges; others, root included, are kept out by the kernel."""
    where = ordinary_user.home / "mnt"
    source = room / "source.n5"
    shutil.copytree(corpus.path("n5/rust.n5"), source)
    try:
        run = background(source, where, prefix=ordinary_user.prefix)
        assert run.returncode == 0, run.stderr
        copy = subprocess.run([*ordinary_user.prefix, "cp", "-r", where, ordinary_user.home / "copy"], capture_output=True, timeout=60)
        assert copy.returncode == 0, copy.stderr
        check_store(corpus, "n5/rust.n5", ordinary_user.home / "copy")
        if os.getuid() == 0:
            with pytest.raises(PermissionError):
                os.listdir(where)
        done = chunkmount("-u", where, prefix=ordinary_user.prefix)
        assert done.returncode == 0, done.stderr
        assert mounted(where) is None
    finally:
        detach(where)


def test_a_user_who_may_start_no_more_processes(room, mount, ordinary_user):
    """A thread is a process to `ulimit -u`: where none can be started, what they would have done is done all the same."""
    array = room / "s" / "a"
    array.mkdir(parents=True)
    meta = {"zarr_format": 2, "shape": [3000], "chunks": [1], "dtype": "|u1", "compressor": None, "filters": None, "order": "C", "fill_value": 0}
    (array / ".zarray").write_text(json.dumps(meta))
    for number in range(3000):
        (array / str(number)).write_bytes(b"x")
    view = mount(room / "s", where=ordinary_user.home / "mnt", prefix=ordinary_user.prefix)
    subprocess.run([*ordinary_user.prefix, "prlimit", "--pid", str(view.process.pid), "--nproc=1:1"], check=True)
    listed = subprocess.run([*ordinary_user.prefix, "ls", "-l", view / "a"], capture_output=True, text=True)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert sorted(line.split()[-1] for line in listed.stdout.splitlines()[1:]) == sorted(map(str, range(3000)))


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes control groups")
def test_a_start_with_few_threads(corpus, room):
    """Where threads are too few for a mount, one line says so, nothing is left, and nobody waits for an answer that nobody gives."""
    second = Path("/sys/fs/cgroup/cgroup.controllers")
    root = Path("/sys/fs/cgroup") if second.exists() and "pids" in second.read_text().split() else Path("/sys/fs/cgroup/pids")
    if root.name == "cgroup" and "pids" not in (root / "cgroup.subtree_control").read_text().split():
        (root / "cgroup.subtree_control").write_text("+pids")
    group, where, ended = root / f"chunkmount-{os.getpid()}", room / "mnt", []
    group.mkdir()
    where.mkdir()
    prefix = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
    try:
        for most in range(2, 40):
            (group / "pids.max").write_text(str(most))
            run = background(corpus.path(STORE), where, prefix=prefix)
            ended.append(run.returncode)
            if run.returncode == 0:
                # The last thread may be missing after the first have answered.
                wait_for(lambda: chunkmount("-u", where).returncode == 0 or mounted(where) is None, 10, "it is unmounted")
            else:
                assert len(run.stderr.splitlines()) == 1 and "Resource temporarily unavailable" in run.stderr, (most, run.stderr)
                assert mounted(where) is None, (most, run.stderr)
            wait_for(lambda: not (group / "cgroup.procs").read_text(), 10, "all processes have ended")
        assert ended[0] != 0 and ended[-1] == 0
    finally:
        detach(where)
        wait_for(lambda: not (group / "cgroup.procs").read_text(), 10, "all processes have ended")
        group.rmdir()


def test_allow_other(corpus, mount, room):
    """Mounted by root with --allow-other, readable by an ordinary user."""
    if os.getuid() != 0:
        return
    view = mount(corpus.path("n5/rust.n5"), "--allow-other")
    path = first_chunk(view)
    read = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "cat", path], capture_output=True, timeout=30
    )
    assert read.returncode == 0 and read.stdout == path.read_bytes(), read.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user")
def test_others_see_nothing(corpus, mount):
    """What root has mounted without --allow-other is closed to all others, as far as it is looked at."""
    view = mount(corpus.path("n5/rust.n5"))
    path = first_chunk(view)
    assert path.read_bytes()
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "LC_ALL=C"]
    for command in (["ls", view], ["stat", view], ["stat", path], ["cat", path], ["getfattr", "-d", path]):
        run = subprocess.run([*other, *command], capture_output=True, text=True, timeout=30)
        assert run.returncode and "Permission denied" in run.stderr and not run.stdout, (command, run)


@pytest.mark.parametrize("name", ["a b", "a,b", "a\\b", "a\\,b", "ü→", "-a", "a%2Cb"])
@pytest.mark.parametrize("who", ["root", "ordinary"])
def test_the_table_names_the_source(name, who, corpus, room, ordinary_user):
    """`df` shows the source as it is called, mounted directly or by fusermount3."""
    source, where = room / name, ordinary_user.home / f"at {name}"
    shutil.copytree(corpus.path("n5/rust.n5"), source)
    prefix = ordinary_user.prefix if who == "ordinary" else ()
    run = background(source, where, prefix=prefix)
    try:
        assert run.returncode == 0, run.stderr
        kind, shown, _ = mounted(where)
        for code, char in (("\\040", " "), ("\\134", "\\")):
            shown = shown.replace(code, char)
        assert (kind, shown) == ("fuse.chunkmount", str(source))
        assert chunkmount("-u", where, prefix=prefix).returncode == 0
    finally:
        detach(where)


def test_a_source_whose_name_is_no_text(corpus, room):
    source = os.fsencode(room) + b"/a\xff"
    shutil.copytree(os.fsencode(corpus.path("n5/rust.n5")), source)
    command = [binary(), source, room / "mnt", "--log-file", room / f"log{BACKGROUND}"]
    run = subprocess.run([os.fsencode(word) for word in command], capture_output=True, timeout=30)
    try:
        assert run.returncode == 0, run.stderr
        check_store(corpus, "n5/rust.n5", room / "mnt")
    finally:
        chunkmount("-u", room / "mnt")
        detach(room / "mnt")


def test_what_the_helper_refuses_is_one_line(corpus, room, ordinary_user):
    if os.getuid() != 0:
        pytest.skip("needs a directory of somebody else")
    shutil.copytree(corpus.path("n5/rust.n5"), room / "source")
    (room / "closed").mkdir()
    refused(chunkmount(room / "source", room / "closed", prefix=ordinary_user.prefix), MOUNT_FAILED, "closed")
    os.chmod("/dev/fuse", 0o600)
    refused(chunkmount(room / "source", ordinary_user.home / "mnt", prefix=ordinary_user.prefix), MOUNT_FAILED, "/dev/fuse")


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("when", ["before it mounts", "after it has mounted"])
def test_a_helper_that_ends_without_a_word(when, exists, corpus, room, ordinary_user):
    """As by Ctrl-C, which it hears as well: nothing is left, also where it had mounted and not yet handed that over."""
    where = ordinary_user.home / "mnt"
    shutil.copytree(corpus.path("n5/rust.n5"), room / "source")
    if exists:
        subprocess.run([*ordinary_user.prefix, "mkdir", where], check=True)
    # The mount is handed to the standard input, where nobody takes it.
    ends = "exit 1" if when == "before it mounts" else f"_FUSE_COMMFD=0 exec {shutil.which('fusermount3')} \"$@\""
    helper = room / "helper" / "fusermount3"
    helper.parent.mkdir()
    helper.write_text(f'#!/bin/sh\ncase $1 in -o) {ends};; esac\nexec {shutil.which("fusermount3")} "$@"\n')
    helper.chmod(0o755)
    path = f"PATH={helper.parent}:{os.environ['PATH']}"
    command = [*(ordinary_user.prefix or ["env"]), path, str(binary()), room / "source", where, "-f"]
    ours, its = socket.socketpair()
    with ours, its:
        # A byte without the descriptor that came with it: that is closed.
        taker = threading.Thread(target=ours.recv, args=[1])
        taker.start()
        run = subprocess.run(command, stdin=its, capture_output=True, text=True, timeout=30)
        its.shutdown(socket.SHUT_WR)
        taker.join(10)
    try:
        refused(run, MOUNT_FAILED, "fusermount3 has ended")
        assert mounted(where) is None and where.exists() == exists
    finally:
        detach(where)


def test_a_daemon_whose_starter_is_gone(corpus, room):
    reading, writing = os.pipe()
    os.close(reading)
    command = [binary(), "--daemon", corpus.path(STORE), room / "mnt"]
    try:
        run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=30)
    finally:
        os.close(writing)
    refused(run, MOUNT_FAILED, f"{room / 'mnt'}: is unmounted, as who has started this is gone")
    assert mounted(room / "mnt") is None and not (room / "mnt").exists()


def test_a_log_that_cannot_be_written(corpus, room):
    refused(chunkmount(corpus.path(STORE), room / "mnt", "--log-file", room / "no" / "log"), USAGE, "log")
