"""Names of entries in a zip, as programs write them and extractors read them."""

import errno
import os
import subprocess
import zipfile

import numpy as np
import pytest
import zarr

from support.reading import disagreements
from test_dialects import NESTED, written


def packed(path, tree, named=lambda name: name, host=3):
    """An archive of a directory by Python's zipfile, whose entries have other names."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(file for file in tree.rglob("*") if file.is_file()):
            entry = zipfile.ZipInfo(named(str(file.relative_to(tree))))
            entry.create_system = host
            archive.writestr(entry, file.read_bytes())
    return path


@pytest.mark.parametrize(
    "named, host",
    [
        (lambda name: name.replace("/", "\\"), 0),
        (lambda name: name.replace("/", "\\"), 3),
        (lambda name: "x.zarr\\" + name.replace("/", "\\"), 10),
        (lambda name: "/" + name, 3),
        (lambda name: "//x.zarr/./" + name, 3),
        (lambda name: name.replace("/", "//"), 3),
        (lambda name: "C:/" + name, 0),
    ],
)
def test_names_of_a_zip_that_mean_a_plain_one(named, host, room, mount):
    """As unzip and bsdtar extract them."""
    group = room / "a.zarr"
    zarr.open_group(str(group), zarr_format=2)
    values = [written(group / "x"), written(group / "g" / "y", chunk_key_encoding=NESTED)]
    view = mount(packed(room / "a.zip", group, named, host))
    for name, expected in zip(["x", "g/y"], values):
        assert not disagreements(view / name, [expected])
    assert sorted(os.listdir(view.where)) == [".zgroup", "g", "x"]


def test_names_of_a_zip_that_become_one_are_errors(room, mount):
    values = written(room / "a.zarr" / "x")
    source = packed(room / "a.zip", room / "a.zarr")
    with zipfile.ZipFile(source, "a") as archive:
        archive.writestr("x//0.1", (room / "a.zarr" / "x" / "0.0").read_bytes())
    view = mount(source)
    with pytest.raises(OSError) as refused:
        (view / "x" / "0.1").read_bytes()
    assert refused.value.errno == errno.EIO
    assert "0.1" in os.listdir(view / "x")
    assert (view / "x" / "0.0").read_bytes() == values[:2, :3].tobytes()


def test_names_of_a_zip_from_the_directory_above(room, mount):
    """`zip -r a.zip ../a.zarr` writes such; who extracts them leaves the dots out."""
    values = written(room / "a.zarr" / "x")
    source = room / "here" / "a.zip"
    source.parent.mkdir()
    subprocess.run(["zip", "-q", "-r", source, "../a.zarr"], cwd=source.parent, check=True)
    with zipfile.ZipFile(source) as archive:
        archive.extractall(room / "out")
    assert np.array_equal(zarr.open_array(str(room / "out" / "a.zarr" / "x"), mode="r")[...], values)
    view = mount(source)
    assert not disagreements(view / "x", [values])
    assert "../" in view.text()


def test_names_of_a_zip_that_go_up_are_no_absence(room, mount):
    values = written(room / "a.zarr" / "x")
    view = mount(packed(room / "a.zip", room / "a.zarr", lambda name: name.replace("0.1", "../x/0.1")))
    with pytest.raises(OSError) as refused:
        (view / "x" / "0.1").read_bytes()
    assert refused.value.errno == errno.EIO and "goes up" in view.text()
    assert "0.1" in os.listdir(view / "x")
    assert (view / "x" / "0.0").read_bytes() == values[:2, :3].tobytes()


@pytest.mark.parametrize("program", ["zip", "python", "old"])
def test_names_of_a_zip_in_other_letters(program, room, mount):
    """Names are those that zarr-python's ZipStore lists; Info-ZIP writes UTF-8 without saying so, which unzip reads."""
    name, source = "Größe", room / "a.zip"
    zarr.open_group(str(room / "a.zarr"), zarr_format=2)
    values = written(room / "a.zarr" / name)
    if program == "zip":
        subprocess.run(["zip", "-q", "-r", source, "."], cwd=room / "a.zarr", check=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    elif program == "python":
        packed(source, room / "a.zarr")
    else:
        packed(source, room / "a.zarr", lambda entry: entry.replace(name, "Gr__e"), 0)
        source.write_bytes(source.read_bytes().replace(b"Gr__e", name.encode("cp437")))
    if program != "zip":
        listed = {member for member, _ in zarr.open_group(zarr.storage.ZipStore(source, mode="r"), mode="r", zarr_format=2).members()}
        assert listed == {name}
    view = mount(source)
    assert sorted(os.listdir(view.where)) == [".zgroup", name]
    assert not disagreements(view / name, [values])
