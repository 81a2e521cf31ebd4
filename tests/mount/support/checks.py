"""What must hold for an array, and for a whole store, under a mount."""

import json

import numpy as np

from . import data
from .reading import View, attributes, by_numpy, by_zarr, difference, disagreements, tensorstore_of


def check_array(record, directory, axes="zarr"):
    """What is wrong with the array that is shown at `directory`; a list of sentences."""
    if record.region:
        return _check_region(record, directory, axes)
    return disagreements(directory, record.accepted(axes), _without(record))


def _without(record):
    """Leaves out the part of an array whose content no specification defines."""
    if not record.undefined_region:
        return None
    hole = tuple(slice(o, o + n) for o, n in zip(record.undefined_region["origin"], record.undefined_region["shape"]))

    def cut(values):
        values = np.array(values)
        values[hole] = np.zeros((), values.dtype)
        return values

    return cut


def _check_region(record, directory, axes):
    """An array that is too large to read whole is read where it has values."""
    origin, shape = record.region["origin"], record.region["shape"]
    reverse = record.axes != "C" and (record.axes == "n5-native") == (axes == "zarr")
    where = [slice(o, o + n) for o, n in zip(origin, shape)]
    got = np.asarray(tensorstore_of(directory)[tuple(where[::-1] if reverse else where)].read().result())
    text = difference(got, record.accepted(axes)[0])
    return [f"tensorstore: {text}"] if text else []


def check_store(corpus, store, view):
    """Every array of a store that has values is right; fails with everything that is wrong."""
    problems = []
    for record in corpus.records[store]:
        if record.has_values:
            problems += [f"{record.id}: {text}" for text in check_array(record, inside(view, record))]
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems[:40])


def root(view, records):
    """Where the hierarchy of a store begins in its mount.

    One folder that holds a whole archive is entered. Of two, one in the other, the inner one may be left.
    """
    folders = (records[0].zip_prefix or "").split("/")
    for skipped in range(len(folders)):
        left = view / "/".join(folders[skipped:])
        if left.is_dir():
            return left if len(folders) > 1 else view / ""
    return view / ""


def inside(view, record):
    """Where an array is in its mount. A folder that is all of an archive is entered, an array too."""
    where = root(view, [record]) / record.array
    only_folder = record.container == "zip" and record.array and "/" not in record.array
    return view / "" if only_folder and not where.is_dir() else where


def check_objects(record, directory):
    """An array of objects, decoded by the library that defines their encoding."""

    def plain(value):
        if isinstance(value, bytes):
            return {"bytes_hex": value.hex()}
        if isinstance(value, np.ndarray):
            return {"array": value.tolist(), "dtype": value.dtype.str}
        return value

    shown = by_numpy(directory)
    assert [plain(value) for value in shown.ravel()] == record.items, record.id
    if View(directory).filters[-1]["id"] == "vlen-utf8":
        assert by_zarr(directory).ravel().tolist() == record.items, record.id


def check_variable_length(record, directory):
    """Blocks of variable length have no place in a grid of equal blocks: refused, or the payload as it is.

    What must not happen is a file that looks like a block of numbers.
    """
    try:
        view = View(directory)
    except OSError:
        return
    for name, payload in (record.varlength_chunks or {}).items():
        index = [int(part) for part in name.split("/")][::-1]
        try:
            with open(view.path(index), "rb") as file:
                shown = file.read()
        except OSError:
            continue
        items = np.frombuffer(bytes.fromhex(payload), np.dtype(record.dtype).newbyteorder(">"))
        assert items.astype(np.dtype(record.dtype)).tobytes() in shown, f"{record.id} block {name}"


def check_groups(corpus, store, view):
    """The attributes of every group and array that the manifest knows are shown."""
    problems = []
    groups = corpus.stores[store].get("groups") or {}
    nodes = [("group " + name, root(view, corpus.records[store]) / name, attrs, False) for name, attrs in groups.items()]
    nodes += [
        (record.id, inside(view, record), record.attrs or {}, record.format == "nczarr" or "netcdf" in record.writer)
        for record in corpus.records[store]
        if record.has_values
    ]
    for name, directory, want, through_netcdf in nodes:
        shown = attributes(directory)
        for key, value in data.with_floats(want).items():
            if key.lower().startswith("_nc") or (key == "n5" and name.startswith("group")):
                continue  # the format's own words, not the user's
            if key not in shown:
                problems.append(f"{name}: no attribute {key!r}")
            elif not _same(shown[key], value, through_netcdf or store.startswith(("nczarr", "zip/nczarr"))):
                problems.append(f"{name}: {key!r} is {shown[key]!r}, truth {value!r}")
    assert not problems, "\n".join(problems[:40])


def _same(got, want, loosely):
    """Equality of JSON values, NaN equal to itself.

    `loosely` allows what netcdf-c does when it writes: six digits, text that is JSON becomes that JSON, and a list of
    one element may be the element.
    """
    if json.dumps(got, sort_keys=True) == json.dumps(want, sort_keys=True):
        return True
    if not loosely:
        return False
    if isinstance(want, str):
        try:
            return _same(got, json.loads(want), False) or str(got) == want
        except ValueError:
            return got == want
    got, want = (value if isinstance(value, list) else [value] for value in (got, want))
    try:
        return np.allclose(np.array(got, float), np.array(want, float), rtol=1e-5, equal_nan=True)
    except (TypeError, ValueError):
        return got == want
