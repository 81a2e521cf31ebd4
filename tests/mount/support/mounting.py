"""A mount that a test owns: its own directory, log, process and time limit, and gone when the test ends.

Only the process that was started here is ever signalled, by its id, and only its own mount point is detached.
"""

import errno
import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

from .data import ROOT


# How the log of a daemon in the background is called that is looked at when its test ends.
BACKGROUND = ".background"


def hear_signals():
    """Signals of the keyboard end who does not handle them. A shell has what it starts in the background ignore them, and programs
    hand that on to those that they start."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def binary():
    """The program under test: CHUNKMOUNT_BIN, or what cargo built last for release, or for development."""
    named = os.environ.get("CHUNKMOUNT_BIN")
    if named:
        return Path(named).resolve()
    built = [ROOT / "target" / profile / "chunkmount" for profile in ("release", "debug")]
    return next((path for path in built if path.exists()), built[0])


def mounted(where):
    """The line of the kernel's table for what is mounted at `where`, split: (type, source, options), or None."""
    return dict(mounts()).get(os.path.abspath(where))


def mounts():
    """The kernel's table in its order, which is that of mounting: a mount point, and (type, source, options)."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        for line in table:
            before, _, after = line.partition(" - ")
            point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), before.split()[4])
            kind, source, options = after.split()[:3]
            yield point, (kind, source, before.split()[5] + "," + options)


def detach(where):
    """Takes a mount out of the tree, however busy or dead it is."""
    while mounted(where):
        if subprocess.run(["umount", "-l", where], capture_output=True).returncode != 0:
            subprocess.run(["fusermount3", "-u", "-z", where], capture_output=True, check=True)


def wait_for(condition, seconds, what):
    """Waits until `condition()` is true; fails with `what` after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def faults_of_the_program(log):
    """The lines of a log that tell of the program's own faults, whatever the source is like."""
    return [line for line in log.splitlines() if re.search(r'panic|leak|^\S+ error |"level":\s*"error"', line, re.I)]


class Mount:
    """`chunkmount -f SOURCE WHERE OPTIONS…`, answering by the time the constructor returns.

    `limit` is the life of the mount in seconds: then the daemon is killed, so that a reader that waits for it gets an
    error instead of waiting for ever, and the test fails.
    """

    def __init__(self, source, where, *options, log, limit=100, prefix=(), env=None):
        self.where = Path(where)
        self.log = Path(log)
        self.expired = False
        self.prefix = prefix
        command = [*prefix, str(binary()), str(source), str(where), "-f", *options]
        with open(self.log, "wb") as stderr:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, env=env, start_new_session=True
            )
        self.watchdog = threading.Timer(limit, self._expire)
        self.watchdog.daemon = True
        self.watchdog.start()
        try:
            wait_for(lambda: self._answers() or self.process.poll() is not None, 60, "the mount answers")
        except BaseException:
            self.kill()
            raise
        if self.process.poll() is not None:
            self.watchdog.cancel()
            raise RuntimeError(f"chunkmount ended with {self.process.returncode}: {self.text()}")

    def _answers(self):
        # Not stat: the kernel answers that from what it remembers, even for a mount whose daemon is dead.
        try:
            # Nor any mount: what lies below may be one as well.
            return (mounted(self.where) or "?")[0] == "fuse.chunkmount" and os.listdir(self.where) is not None
        except OSError as problem:
            # A source that may not or cannot be listed has answered so. It is the daemon that did, not the kernel for it: the
            # counters are never read from what the kernel remembers.
            return problem.errno in (errno.EACCES, errno.EOPNOTSUPP) and self._counts()

    def _counts(self):
        # Read as whoever mounted it: others, root among them, are kept out.
        path = self.where / ".chunkmount" / "stats.json"
        return subprocess.run([*self.prefix, "cat", path], capture_output=True, timeout=60).returncode == 0

    def _expire(self):
        self.expired = True
        self.kill()

    def __truediv__(self, name):
        return self.where / name

    def __fspath__(self):
        return str(self.where)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def text(self):
        """What the daemon has logged."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def stats(self):
        """The counters, as the control directory shows them."""
        return json.loads((self.where / ".chunkmount" / "stats.json").read_text(encoding="utf-8"))

    def status(self, field):
        """A field of the daemon's /proc/PID/status, such as VmHWM (in KiB) or Threads."""
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(re.search(rf"^{field}:\s+(\d+)", text, re.M)[1])

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """Ends the daemon without its help, and detaches the mount."""
        self.process.kill()
        self.process.wait(30)
        detach(self.where)

    def stop(self):
        """Ends the mount in order; returns the daemon's exit status. A daemon that does not end by itself fails."""
        self.watchdog.cancel()
        stuck = False
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                stuck = True
                self.process.kill()
                self.process.wait(30)
        left = mounted(self.where) is not None
        detach(self.where)
        assert not self.expired, f"the mount outlived its time limit\n{self.text()[-4000:]}"
        assert not stuck, f"the daemon did not end on SIGTERM\n{self.text()[-4000:]}"
        assert not faults_of_the_program(self.text()), self.text()[-8000:]
        return self.process.returncode, left
