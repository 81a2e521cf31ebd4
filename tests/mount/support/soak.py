"""A soak: mounts under readers, faults and signals for as long as one likes, with a watchdog over every operation.

Five mounts are read at once: a directory, a zip of it, a directory whose chunks are replaced, a bucket of a server that misbehaves,
and one whose daemon is ended and started again. Readers are processes (`soak_reader.py`), and are killed while they read. What must
hold:

* no operation takes longer than `WATCHDOG` seconds, and no killed reader longer to die;
* every byte is right. Errors are those that a mount promises: of the directory and the zip none, of replaced chunks `ESTALE`, of the
  bucket `EIO` and `ETIMEDOUT`; only while a daemon is gone those of a mount that is gone;
* each daemon is flat: of its resident memory, its descriptors and its threads, sampled twice a second, the median of the last third is
  not above that of the first third by more than `SLACK` says. What comes before `WARM` of the time (caches fill) does not count;
* in the end nothing is open or held, and no log has an error of the program itself.
"""

import collections
import errno
import json
import os
import random
import selectors
import signal
import statistics
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import numpy as np

from .mounting import Mount, detach, faults_of_the_program, hear_signals, mounted
from .s3 import Double, clean_env, cut, drip, silent, status

WATCHDOG = 30
READERS = 8
# The part of the time in which caches fill.
WARM = 0.25
# What the last third may have more than the first: MiB, descriptors, threads. Threads come and go with the requests that wait for a
# network, and arenas of memory with them.
SLACK = {"rss": 16, "fds": 16, "threads": 12}
# Seconds that a request to the bucket may take.
TIMEOUT = 3
# Seconds after which a replaced chunk must be seen: --refresh, the kernel's own belief, and a busy machine.
LAG = 15

# What is said of a mount that is just gone, or of the directory below it.
GONE = {errno.ENOTCONN, errno.ENOENT, errno.ECONNABORTED, errno.EIO, errno.ENOTDIR, errno.ESTALE}
# Chunks that are replaced, and the bytes of each: some large enough for the kernel to read them by itself.
REPLACED = [1 << 16] * 12 + [1 << 20] * 4


def write_store(root, truth):
    """Arrays of both versions of Zarr by zarr-python, and the bytes of each chunk file as they must be shown."""
    import zarr
    from numcodecs import Zlib

    numbers = np.random.default_rng(5)

    def array(name, shape, chunks, **settings):
        stored = zarr.create_array(str(root / name), shape=shape, chunks=chunks, dtype="<i4", fill_value=7, **settings)
        values = numbers.integers(0, 1 << 20, shape, dtype="<i4")
        values[-chunks[0] :] = 7  # absent: all of it is the fill value
        stored[:] = values
        separator, prefix = (".", "") if settings["zarr_format"] == 2 else ("/", "c/")
        for index in np.ndindex(*[-(-n // c) for n, c in zip(shape, chunks)]):
            block = np.full(chunks, 7, "<i4")
            part = values[tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, chunks))]
            block[tuple(slice(0, n) for n in part.shape)] = part
            path = truth / name / (prefix + separator.join(map(str, index)))
            path.parent.mkdir(parents=True, exist_ok=True)
            if (part != 7).any():
                path.write_bytes(block.tobytes())

    array("large", (8 * 512, 512), (512, 512), zarr_format=2, compressors=Zlib(level=1))
    array("small", (250, 250), (32, 32), zarr_format=2, compressors=Zlib(level=1))
    array("sharded", (256, 256), (32, 32), shards=(128, 128), zarr_format=3)
    for here, directories, files in os.walk(truth, topdown=False):
        if not directories and not files:
            os.rmdir(here)


def files(root):
    return [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]


class Replaced:
    """A directory whose chunks are replaced all the time, by renaming, and some removed and written again."""

    def __init__(self, root):
        import zarr
        from numcodecs import Zlib

        self.root, self.codec = root, Zlib(level=1)
        self.written = collections.defaultdict(list)  # path: (time, version)
        self.paths, self.lengths, self.numbers = [], {}, {}
        for name, length in (("medium", 1 << 16), ("big", 1 << 20)):
            count = REPLACED.count(length)
            zarr.create_array(
                str(root / name), shape=(count * length // 8,), chunks=(length // 8,), dtype="<u8", compressors=self.codec, zarr_format=2
            )
            for number in range(count):
                path = f"{name}/{number}"
                self.paths.append(path)
                self.lengths[path], self.numbers[path] = length, number
                self.write(path)
        # Comes and goes.
        self.flicker = "medium/3"

    def write(self, path):
        version = len(self.written[path]) + 1
        record = version.to_bytes(8, "little") + self.numbers[path].to_bytes(8, "little")
        fresh = self.root / ".fresh"
        fresh.write_bytes(self.codec.encode(record * (self.lengths[path] // len(record))))
        # Before anybody can have read it.
        self.written[path].append((time.monotonic(), version))
        os.rename(fresh, self.root / path)

    def change(self, chance):
        path = chance.choice(self.paths)
        if path == self.flicker and (self.root / path).exists():
            (self.root / path).unlink()
        else:
            self.write(path)

    def judge(self, path, version, begun):
        """What is wrong with having read `version` in an operation begun then."""
        known = self.written[path]
        if version > len(known):
            return f"version {version} was never written"
        # It must not have been replaced for long.
        if version < len(known) and known[version][0] < begun - LAG:
            return f"version {version} was replaced {begun - known[version][0]:.0f} s before it was read"
        return None


class Weather:
    """Faults of the bucket: few when it is fair, many in storms of some seconds."""

    def __init__(self, seed):
        self.random, self.lock = random.Random(seed), threading.Lock()
        self.seen = collections.Counter()
        self.slow = threading.Semaphore(100)

    def answers(self, request):
        request.double.log.clear()
        with self.lock:
            stormy = time.monotonic() % 15 > 10
            if self.random.random() > (0.4 if stormy else 0.03):
                return False
            kind = self.random.choice(["500", "503", "429", "late", "late", "cut", "cut open", "silent", "drip"])
            at = self.random.choice([0, 1, 100, -1])
            self.seen[kind] += 1
        if kind == "late":
            time.sleep(0.3)
            return False
        known = request.kind == "GET" and request.key in request.double.objects
        if kind in ("cut", "cut open", "drip") and not known:
            kind = "503"
        if kind in ("silent", "drip"):
            if not self.slow.acquire(blocking=False):
                return False
            try:
                (silent if kind == "silent" else drip)(request)
            finally:
                self.slow.release()
        elif kind.startswith("cut"):
            cut(at, kind == "cut")(request)
        else:
            status(int(kind), "SlowDown")(request)
        return True


class Place:
    """A mount that is read."""

    def __init__(self, name, mount, kinds, allowed=(), **told):
        self.name, self.mount, self.allowed = name, mount, set(allowed)
        self.told = {"name": name, "where": str(mount.where), "kinds": kinds, **told}
        self.windows = []  # [from, to] in which the daemon is gone
        self.samples = []
        # With those that read ahead of a network's readers.
        self.threads = mount.status("Threads")
        self.logs = [mount.log]

    def is_gone(self, begun, ended):
        return any(start <= ended and begun <= end for start, end in self.windows)

    def sample(self, now):
        pid = self.mount.process.pid
        try:
            sample = {"rss": self.mount.status("VmRSS") / 1024, "threads": self.mount.status("Threads")}
            self.samples.append((now, sample | {"fds": len(os.listdir(f"/proc/{pid}/fd"))}))
        except (OSError, TypeError):
            pass  # it is just ending

    def flat(self, slack):
        """Why this daemon is not flat; the medians of the thirds are told in any case."""
        start, end = self.samples[0][0], self.samples[-1][0]
        counted = [sample for when, sample in self.samples if when >= start + (end - start) * WARM]
        third = len(counted) // 3
        told, problems = [], []
        for what, more in slack.items():
            first, last = (statistics.median(sample[what] for sample in part) for part in (counted[:third], counted[-third:]))
            told.append(f"{what} {first:.0f} -> {last:.0f}")
            if last > first + more:
                problems.append(f"{self.name}: {what} grew from {first:.0f} to {last:.0f}")
        return ", ".join(told), problems


class Reading:
    """A reader process, and what it does now."""

    def __init__(self, places, seed):
        script = Path(__file__).with_name("soak_reader.py")
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-E", script, places, str(seed)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        self.text, self.now, self.killed = b"", None, None

    def state(self, now):
        """The process, and where it is in the kernel."""
        here = Path(f"/proc/{self.process.pid}")
        text = [f"process {self.process.pid}", f"ended with {self.process.poll()}", f"killed {self.killed and now - self.killed} s ago"]
        for name in ("wchan", "syscall", "stack", "status"):
            try:
                text.append((here / name).read_text())
            except OSError as problem:
                text.append(str(problem))
        return "\n".join(text)

    def kill(self, number):
        """The whole group: what it has started as well."""
        self.killed = self.killed or time.monotonic()
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass


class Soak:
    def __init__(self, room, minutes, seed=1, say=lambda text: None):
        self.room, self.seconds, self.say = Path(room), minutes * 60, say
        self.random = random.Random(seed)
        # It takes minutes until the many threads of a network have all the buffers and arenas they will have.
        self.slack = SLACK | ({"rss": 32} if minutes < 10 else {})
        self.problems, self.done, self.errors = [], collections.Counter(), collections.Counter()
        self.slowest, self.killed, self.restarts = collections.Counter(), collections.Counter(), collections.Counter()
        self.over = threading.Event()
        self.mounts = 0

    def problem(self, text):
        self.problems.append(text)
        self.say(f"PROBLEM: {text}")
        if len(self.problems) > 20:
            self.over.set()

    def mount(self, source, where, *options, **more):
        self.mounts += 1
        log = self.room / f"log-{self.mounts}"
        return Mount(source, where, *options, log=log, limit=self.seconds + 300, **more)

    def set_up(self):
        source, truth = self.room / "source", self.room / "truth"
        write_store(source, truth)
        archive = self.room / "archive.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
            for name in files(source):
                out.write(source / name, name)
        self.replaced = Replaced(self.room / "replaced")
        self.double, self.weather = Double(), Weather(self.random.random())
        self.double.upload("a", source)
        (self.room / "again").mkdir()
        whole = ["whole", "offsets", "stat", "listing", "absent", "document", "copy"]
        told = {"truth": str(truth), "files": files(truth), "room": str(self.room)}
        # Caches that are too small for all: blocks come and go.
        self.places = [
            Place("directory", self.mount(source, self.room / "d", "--cache-size", "8M"), whole + ["mapped"], **told),
            Place("zip", self.mount(archive, self.room / "z", "--cache-size", "8M"), whole + ["mapped"], **told),
            Place("again", self.mount(source, self.room / "again"), whole, **told),
            Place(
                "replaced", self.mount(self.room / "replaced", self.room / "r", "--refresh", "1", "--cache-size", "4M"), ["versioned"],
                allowed={errno.ESTALE}, files=self.replaced.paths, lengths=self.replaced.lengths, numbers=self.replaced.numbers,
            ),
            Place(
                "bucket",
                self.mount(
                    "s3://b/a", self.room / "b", "--endpoint-url", self.double.url, "--no-sign-request", "--timeout", str(TIMEOUT),
                    "--cache-size", "2M", "--refresh", "2", env=clean_env(),
                ),
                # Not `copy`: that is as many operations as there are files, each of which may take until the deadline.
                [kind for kind in whole if kind != "copy"], allowed={errno.EIO, errno.ETIMEDOUT}, **told,
            ),
        ]  # fmt: skip
        self.by_name = {place.name: place for place in self.places}
        self.told = self.room / "places.json"
        self.told.write_text(json.dumps([place.told for place in self.places]))
        self.double.faults.append(self.weather.answers)

    # Readers

    def start(self):
        reading = Reading(self.told, self.random.randrange(1 << 30))
        self.readers.append(reading)
        self.selector.register(reading.process.stdout, selectors.EVENT_READ, reading)

    def hear(self, reading):
        text = os.read(reading.process.stdout.fileno(), 1 << 16)
        if not text:
            self.selector.unregister(reading.process.stdout)
            reading.process.stdout.close()
            reading.now = None
            if reading.killed is None:
                self.problem(f"a reader ended by itself with {reading.process.wait()}")
            return
        *lines, reading.text = (reading.text + text).split(b"\n")
        for line in lines:
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "B":
                reading.now = (time.monotonic(), rest)
            else:
                (begun, what), reading.now = reading.now, None
                self.judge(what, rest, begun, time.monotonic())

    def judge(self, what, said, begun, ended):
        kind, name, path = what.split(" ", 2)
        place = self.by_name[name]
        self.done[kind, name] += 1
        self.slowest[name] = max(self.slowest[name], ended - begun)
        word, _, rest = said.partition(" ")
        if word == "ok":
            text = self.replaced.judge(path, int(rest), begun) if rest else None
        elif word == "errno":
            number = int(rest)
            self.errors[name, errno.errorcode.get(number, rest)] += 1
            allowed = number in place.allowed or number in GONE and place.is_gone(begun, ended)
            allowed = allowed or name == "replaced" and number == errno.ENOENT and path == self.replaced.flicker
            text = None if allowed else f"errno {number}"
        elif word == "names":
            # Of the empty directory that is there while the mount is not.
            text = None if place.is_gone(begun, ended) else said
        else:
            text = said
        if text:
            self.problem(f"{what}: {text} (after {ended - begun:.1f} s)")

    def watch(self):
        """The watchdog: an operation that hangs, a reader that does not die."""
        now = time.monotonic()
        for reading in list(self.readers):
            if reading.process.poll() is not None and reading.process.stdout.closed:
                if reading.killed:
                    self.slowest["death of a reader"] = max(self.slowest["death of a reader"], now - reading.killed)
                self.readers.remove(reading)
                if not self.over.is_set():
                    self.start()
            elif reading.now and now - reading.now[0] > WATCHDOG or reading.killed and now - reading.killed > WATCHDOG:
                self.problem(f"hangs for {WATCHDOG} s: {reading.now} in {reading.state(now)}\n{self.stacks()}")
                self.over.set()
                break

    def stacks(self):
        """Where the threads of the daemons are, in the kernel."""
        text = []
        for place in self.places:
            for thread in Path(f"/proc/{place.mount.process.pid}/task").glob("*"):
                try:
                    where = [(thread / name).read_text().strip() for name in ("comm", "wchan", "syscall")]
                    text.append(f"{place.name} {thread.name}: {' '.join(where)}")
                except OSError:
                    pass
        return "\n".join(text)

    # What happens to the mounts

    def disturb(self):
        """Replaces chunks until the end."""
        chance = random.Random(self.random.random())
        while not self.over.wait(0.1):
            try:
                self.replaced.change(chance)
            except OSError as problem:
                self.problem(f"the source cannot be changed: {problem}")

    def restart(self):
        """Ends the daemon of `again` and starts another one, until the end."""
        place = self.by_name["again"]
        chance = random.Random(self.random.random())
        while not self.over.wait(chance.uniform(2, 6)):
            number = chance.choice([signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
            window = [time.monotonic(), float("inf")]
            place.windows.append(window)
            self.restarts[number.name] += 1
            old = place.mount
            old.signal(number)
            try:
                code = old.process.wait(10)
                if number != signal.SIGKILL and (code != 0 or mounted(old.where)):
                    self.problem(f"after {number.name} the daemon ended with {code}, mounted: {mounted(old.where)}")
            except subprocess.TimeoutExpired:
                self.problem(f"the daemon has not ended 10 s after {number.name}\n{self.stacks()}")
                old.kill()
            old.watchdog.cancel()
            try:
                # The next mount heals what a killed one has left.
                place.mount = self.mount(place.told["truth"].replace("truth", "source"), old.where)
            except (AssertionError, RuntimeError) as problem:
                self.problem(f"it cannot be mounted again after {number.name}: {problem}")
                self.over.set()
                return
            place.logs.append(place.mount.log)
            # What was looked up before may still be gone for a moment.
            window[1] = time.monotonic() + 0.2

    def run(self):
        """Runs to the end; returns the problems."""
        hear_signals()
        try:
            self.set_up()
            self.soak()
            self.finish()
        finally:
            self.over.set()
            self.tear_down()
        return self.problems

    def soak(self):
        self.readers, self.selector = [], selectors.DefaultSelector()
        threads = [threading.Thread(target=target, daemon=True) for target in (self.disturb, self.restart)]
        for thread in threads:
            thread.start()
        for _ in range(READERS):
            self.start()
        start = time.monotonic()
        next_kill = next_sample = next_word = start
        while (now := time.monotonic()) < start + self.seconds and not self.over.is_set():
            for key, _ in self.selector.select(0.1):
                self.hear(key.data)
            self.watch()
            if now > next_kill:
                next_kill = now + self.random.uniform(0.3, 1.5)
                victims = [one for one in self.readers if one.killed is None]
                if victims:
                    number = self.random.choice([signal.SIGINT, signal.SIGKILL])
                    self.killed[number.name] += 1
                    self.random.choice(victims).kill(number)
            if now > next_sample:
                next_sample = now + 0.5
                for place in self.places:
                    if place.name != "again":
                        place.sample(now)
            if now > next_word:
                next_word = now + 60
                self.say(f"{now - start:5.0f} s: {sum(self.done.values())} operations, {dict(self.errors)}")
        self.over.set()
        for reading in self.readers:
            reading.kill(signal.SIGKILL)
        end = time.monotonic() + WATCHDOG
        while any(one.process.poll() is None for one in self.readers) and time.monotonic() < end:
            time.sleep(0.05)
        for reading in self.readers:
            if reading.process.poll() is None:
                self.problem(f"cannot be killed: {reading.now}\n{self.stacks()}")
        for thread in threads:
            thread.join(60)

    def finish(self):
        """After the storm: nothing is open or held any more, and all is right and flat."""
        self.double.faults.clear()
        for place in self.places:
            end = time.monotonic() + 20
            while True:
                stats = place.mount.stats()
                left = stats["open"]["files"], stats["open"]["directories"], stats["passthrough"]["held"]
                # One for each request that waited is kept for a while.
                threads = place.mount.status("Threads") - place.threads
                if left == (0, 0, 0) and threads <= self.slack["threads"]:
                    break
                if time.monotonic() > end:
                    self.problem(f"{place.name}: open files, directories, held bytes: {left}; more threads: {threads}")
                    break
                time.sleep(0.2)
            if place.name != "again":
                told, problems = place.flat(self.slack)
                self.say(f"{place.name}: {told}; slowest operation {self.slowest[place.name]:.1f} s")
                for text in problems:
                    self.problem(text)
        for place in self.places:
            for log in place.logs:
                for line in faults_of_the_program(log.read_text(errors="replace")):
                    self.problem(f"{place.name}: {line}")
        for what, name in ((self.killed, "readers killed"), (self.restarts, "daemons ended"), (self.weather.seen, "faults of the bucket")):
            self.say(f"{name}: {dict(what)}")
        self.say(f"operations: {dict(self.done)}")
        self.say(f"errors: {dict(self.errors)}; slowest: { {name: round(took, 1) for name, took in self.slowest.items()} }")
        # A soak that has not done what it is for proves nothing.
        for place in self.places:
            for kind in place.told["kinds"]:
                if not self.done[kind, place.name]:
                    self.problem(f"no {kind} in {place.name}")
        if not (self.killed and self.restarts and self.weather.seen):
            self.problem("nothing was disturbed")

    def tear_down(self):
        for reading in getattr(self, "readers", []):
            reading.kill(signal.SIGKILL)
        for place in getattr(self, "places", []):
            try:
                place.mount.stop()
            except AssertionError as problem:
                self.problem(str(problem))
            detach(place.mount.where)
        if hasattr(self, "double"):
            self.double.stop()


def main():
    import argparse
    import tempfile

    options = argparse.ArgumentParser(prog="scripts/soak")
    options.add_argument("--minutes", type=float, default=60)
    options.add_argument("--seed", type=int, default=1)
    options = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="cm-soak-", ignore_cleanup_errors=True) as room:
        problems = Soak(room, options.minutes, options.seed, lambda text: print(text, flush=True)).run()
    print(f"{len(problems)} problems")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
