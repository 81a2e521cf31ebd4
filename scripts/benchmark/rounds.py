"""Interleaved rounds: each round measures every contender once, so that what else the machine does falls on all of them.

Figures are medians. The first contender is chunkmount; the ratio to another one is how many times as fast it is, or, of amounts
such as memory, how many times as much it takes.
"""

import itertools
import statistics

from machine import drop_caches, peers, preload

from support.mounting import Mount

OURS = "chunkmount"

# A mount whose cache is soon full, as that of a mount which is long in use: new chunks get memory that others had. Memory that a
# virtual machine has not used for a while comes from its host, and 2 MiB of it in milliseconds.
RECYCLED = ("--cache-size", "64M")


class Bench:
    """Measures, prints what comes out, and keeps it in `results`."""

    def __init__(self, sizes, rounds, room, without_slow_peers=False):
        self.sizes, self.rounds, self.room, self.without_slow_peers = sizes, rounds, room, without_slow_peers
        self.results, self.numbers, self.group = [], itertools.count(1), None

    def mount(self, source, *options):
        number = next(self.numbers)
        return Mount(source, self.room / f"mnt{number}", *options, log=self.room / f"log{number}", limit=3600)

    def compare(self, what, contenders, unit, *, more, notes=None, rounds=None):
        """Runs each contender once a round; one that is None is left out. `more` tells that more of the unit is faster."""
        contenders = {name: run for name, run in contenders.items() if run}
        samples = {name: [] for name in contenders}
        for number in range(rounds or self.rounds):
            names = list(contenders)
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                samples[name].append(contenders[name]())
        self.add(what, samples, unit, more=more, notes=notes)

    def add(self, what, samples, unit, *, more, notes=None, amount=False):
        """Keeps the figures of one comparison. `notes` is a dictionary, or a function that gives it from the medians."""
        medians = {name: statistics.median(values) for name, values in samples.items()}
        ratios = {name: ratio(medians[OURS], middle, more or amount) for name, middle in medians.items() if name != OURS}
        ranges = {}
        for name in ratios:
            each = [ratio(a, b, more or amount) for a, b in zip(samples[OURS], samples[name])]
            ranges[name] = [min(each), max(each)] if None not in each else None
        row = {
            "group": self.group,
            "what": what,
            "unit": unit,
            "measure": "amount" if amount else "speed",
            "medians": medians,
            "ratios": ratios,
            "ratio_ranges": ranges,
            "samples": samples,
            "notes": (notes(medians) if callable(notes) else notes) or {},
        }
        self.results.append(row)
        print("  " + sentence(row), flush=True)

    def same(self, what, wanted, found):
        """Ends the run if a contender read other bytes than were written."""
        if wanted != found:
            raise SystemExit(f"{what}: other bytes were read: {found}, not {wanted}")


def ratio(ours, theirs, direct):
    above, below = (ours, theirs) if direct else (theirs, ours)
    return above / below if below else None


def sentence(row):
    """A comparison in words."""
    figures = ", ".join(f"{name} {value:.4g}" for name, value in row["medians"].items())
    ratios = ", ".join(f"{value:.2f} of {name}" for name, value in row["ratios"].items() if value is not None)
    notes = "; ".join(f"{name} {shown(value)}" for name, value in row["notes"].items())
    return f"{row['what']}: {ratios or 'no ratio'} ({figures} {row['unit']}{'; ' + notes if notes else ''})"


def shown(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def plural(readers):
    return f"{readers} reader{'s'[: readers - 1]}"


def fresh(path, work):
    """`work` with empty caches but for the source, which is in the page cache."""

    def run():
        drop_caches()
        preload(path)
        return work()

    return run


def files(directory, readers, *, sum=False):
    """Seconds, bytes and digest of reading all chunk files of a directory."""
    seconds, size, digest = peers("files", directory, readers, *(["sum"] if sum else []))
    return float(seconds), int(size), int(digest)
