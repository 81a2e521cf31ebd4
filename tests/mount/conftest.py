"""Fixtures of the mount tests: the data, a factory of mounts, and the rule that nothing is skipped in silence."""

import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from support import data
from support.mounting import BACKGROUND, Mount, binary, detach, faults_of_the_program, hear_signals, mounts
from support.s3 import SERVER


@pytest.fixture(scope="session", autouse=True)
def program():
    """The program under test. Without it, or without FUSE, there is nothing to test."""
    assert binary().exists(), f"{binary()} is not built; run `cargo build --release` or set CHUNKMOUNT_BIN"
    if not os.path.exists("/dev/fuse"):
        pytest.skip("no /dev/fuse on this machine")
    return binary()


@pytest.fixture(scope="session")
def corpus():
    return data.stores()


@pytest.fixture
def room():
    """A directory that every user may enter, with a short name; pytest's own is closed to other users."""
    path = Path(tempfile.mkdtemp(prefix="cm-"))
    path.chmod(0o755)
    yield path
    for point in reversed([point for point, _ in mounts() if Path(point).is_relative_to(path)]):
        detach(point)
    # What daemons in the background have logged, as `Mount` looks at the log of each in the foreground.
    logs = [*path.glob(f"*{BACKGROUND}"), *path.glob(f"home/*{BACKGROUND}")]
    faults = {log.name: faults_of_the_program(log.read_text(encoding="utf-8", errors="replace")) for log in logs}
    # Some hold very many files.
    subprocess.run(["rm", "-rf", "--one-file-system", path])
    assert not any(faults.values()), faults


@pytest.fixture
def mount(room):
    """Makes mounts: `mount(source, *options)`. All of them end with the test, whatever happens in it."""
    made = []

    def make(source, *options, where=None, **settings):
        where = where or room / f"mnt{len(made)}"
        made.append(Mount(source, where, *options, log=room / f"log{len(made)}", **settings))
        return made[-1]

    yield make
    problems = []
    for one in reversed(made):
        try:
            one.stop()
        except AssertionError as problem:
            problems.append(str(problem))
    assert not problems, "\n".join(problems)


class User:
    """An ordinary user with a directory of its own and a copy of the program."""

    def __init__(self, home):
        self.home = home
        self.prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", f"HOME={home}"] if os.getuid() == 0 else []


@pytest.fixture
def ordinary_user(room, monkeypatch):
    """Without privileges a mount goes through fusermount3, and /dev/fuse must be open to all, as distributions have it."""
    home = room / "home"
    home.mkdir()
    program = room / "bin" / "chunkmount"
    program.parent.mkdir()
    shutil.copy(binary(), program)
    monkeypatch.setenv("CHUNKMOUNT_BIN", str(program))
    mode = None
    if os.getuid() == 0:
        os.chown(home, 65534, 65534)
        mode = stat.S_IMODE(os.stat("/dev/fuse").st_mode)
        os.chmod("/dev/fuse", 0o666)
    yield User(home)
    if mode is not None:
        os.chmod("/dev/fuse", mode)


def pytest_configure(config):
    """The tests may have been started in the background."""
    hear_signals()


def pytest_collection_modifyitems(config, items):
    """What only another server can tell is no test of the everyday one, and so is not skipped with it."""
    if SERVER == "moto":
        left_out = [item for item in items if item.get_closest_marker("others")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def pytest_sessionfinish(session, exitstatus):
    """CHUNKMOUNT_NO_SKIPS=1, which the gate sets, makes a skipped test a failure: a missing tool must be noticed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = len(reporter.stats.get("skipped", []))
    if skipped and os.environ.get("CHUNKMOUNT_NO_SKIPS") == "1" and exitstatus == 0:
        reporter.write_line(f"{skipped} skipped, and nothing may be skipped here", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
