"""The machine and the programs: caches, memory, versions. Nothing here knows what is measured."""

import datetime
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "target" / "bench-peers" / "release" / "bench-peers"
WORKERS = Path(__file__).with_name("workers.py")

sys.path.insert(0, str(ROOT / "tests" / "mount"))
os.environ.setdefault("CHUNKMOUNT_BIN", str(ROOT / "target" / "release" / "chunkmount"))


# Whether caches are dropped at all: that slows down whatever else the machine does.
DROP = [True]


def output(*command):
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def peers(*arguments):
    """What a mode of scripts/bench-peers prints, split."""
    return output(PEERS, *arguments).split()


def worker(*arguments):
    """What a reader in Python prints, split."""
    return output(sys.executable, WORKERS, *arguments).split()


def drop_caches():
    """Empties the page cache and what is known of names, where the machine lets us; tells whether it did."""
    if not DROP[0]:
        return False
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
        return True
    except OSError:
        return False


def preload(path):
    """Reads a file, or all files below a directory, into the page cache."""
    subprocess.run(["sh", "-c", 'find "$0" -type f -print0 | xargs -0 cat > /dev/null', str(path)], check=True)


def size_of(path):
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def copied(source, target):
    """Copies the chunk files below a directory."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    return target


def memory_room(size):
    """A directory on a tmpfs that has room for `size` bytes, or None."""
    shared = Path("/dev/shm")
    if not shared.is_dir() or shutil.disk_usage(shared).free < size * 1.1:
        return None
    return Path(tempfile.mkdtemp(prefix="chunkmount-bench-", dir=shared))


def status(pid, field):
    """A field of /proc/PID/status, such as VmHWM, in MiB."""
    return int(Path(f"/proc/{pid}/status").read_text().split(f"{field}:")[1].split()[0]) / 1024


def shared_memory():
    """What all files of memory of the machine take, in MiB: a process that holds one has it in no count of its own."""
    return int(Path("/proc/meminfo").read_text().split("Shmem:")[1].split()[0]) / 1024


def versions():
    """What is measured, and on what."""
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "?")
    lock = (ROOT / "scripts" / "bench-peers" / "Cargo.lock").read_text()
    crates = {name: lock.split(f'name = "{name}"\nversion = "')[1].split('"')[0] for name in ("zarrs", "zarrs_zip", "n5", "zip")}
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {model}",
        "kernel": platform.release(),
        "chunkmount": output(os.environ["CHUNKMOUNT_BIN"], "--version").split()[1],
        **{name: version(name) for name in ("tensorstore", "zarr", "wkw", "ratarmount")},
        **{f"{name} (Rust)": number for name, number in crates.items()},
        "fuse-zip": output("dpkg-query", "-W", "-f", "${Version}", "fuse-zip"),
        "caches dropped": drop_caches(),
    }
