"""Programs that mount an archive, started and ended for one measurement."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from support.mounting import detach, mounted


def archive_tools():
    """How each is started in the foreground, without the archive and the mount point."""
    return {
        "chunkmount": [os.environ["CHUNKMOUNT_BIN"], "-f"],
        "fuse-zip": ["fuse-zip", "-r", "-f"],
        "ratarmount": [str(Path(sys.executable).parent / "ratarmount"), "-f", "--index-file", ":memory:"],
    }


@contextmanager
def mounting(command, source, where, log):
    """Starts a program that mounts `source`; gives the process and the moment at which it was started, as soon as the mount point is
    listed. Its end is the end of this process alone."""
    where.mkdir()
    with open(log, "wb") as lines:
        start = time.perf_counter()
        process = subprocess.Popen([*command, str(source), str(where)], stdin=subprocess.DEVNULL, stdout=lines, stderr=lines)
    try:
        while not (mounted(where) and listed(where)):
            if process.poll() is not None or time.perf_counter() - start > 3600:
                raise SystemExit(f"{command[0]} does not mount {source}: {Path(log).read_text()[-1000:]}")
            time.sleep(0.001)
        yield process, start
    finally:
        detach(where)
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if where.exists():
            where.rmdir()


def listed(where):
    try:
        with os.scandir(where) as names:
            return next(names, None) is not None
    except OSError:
        return False
