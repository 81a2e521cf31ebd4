"""Scale pyramids of N5 as OME-Zarr.

The truth is in the data: tensorstore writes elements that are their own positions, and levels that are means of blocks, so each
element of each level holds the position of its own centre. Attributes are written beside them as each dialect's writers do. What
a mount says of positions must then be what the elements are; ome-zarr-models judges the metadata.
"""

import json
import os

import numpy as np
import pytest
import tensorstore
import zarr
from ome_zarr_models import v04, v05

from support.data import entries

# Of the finest level, x first as in N5.
SHAPE, SPACING, OFFSET = (24, 16, 8), (4.0, 5.0, 30.0), (100.0, 0.0, 60.0)
FACTORS = [(1, 1, 1), (2, 2, 1), (4, 4, 2)]
# A position as one number.
PLACES = (1.0, 1e4, 1e8)


def attributes(path, value):
    """Adds attributes to those that are there."""
    path.mkdir(parents=True, exist_ok=True)
    file = path / "attributes.json"
    before = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(before | value))


def pyramid(group, levels=None, factors=FACTORS, offset=(0, 0, 0), dtype="float64"):
    """Levels of N5, and for each its attributes, made from its number and factors."""
    axes = [o + s * np.arange(n) for o, s, n in zip(offset, SPACING, SHAPE)]
    finest = sum(p * a for p, a in zip(PLACES, np.meshgrid(*axes, indexing="ij")))
    for level, factor in enumerate(factors):
        blocks = finest.reshape([m for n, f in zip(SHAPE, factor) for m in (n // f, f)])
        values = blocks.mean(axis=(1, 3, 5))
        tensorstore.open(
            {
                "driver": "n5",
                "kvstore": {"driver": "file", "path": str(group / f"s{level}") + "/"},
                "metadata": {
                    "dimensions": list(values.shape),
                    "blockSize": [8, 8, 4],
                    "dataType": dtype,
                    "compression": {"type": "gzip"},
                },
                "create": True,
            }
        ).result().write(values.astype(dtype)).result()
        if levels:
            attributes(group / f"s{level}", levels(level, factor))


def scaled(factor):
    return [s * f for s, f in zip(SPACING, factor)]


def shifted(factor, offset=(0, 0, 0)):
    return [o + s * (f - 1) / 2 for o, s, f in zip(offset, SPACING, factor)]


def n5_viewer(root):
    """Factors and the finest resolution on each level; no attributes on the group."""
    attributes(root, {"n5": "2.5.1"})
    resolution = {"unit": "nm", "dimensions": SPACING}
    pyramid(root / "c0", lambda _, f: {"downsamplingFactors": f, "pixelResolution": resolution})
    return "c0", "nanometer"


def n5_spark(root):
    """No attributes on the finest level."""
    attributes(root, {"n5": "2.5.1", "pixelResolution": {"unit": "um", "dimensions": SPACING}})
    pyramid(root / "c0", lambda level, f: {"downsamplingFactors": f} if level else {})
    return "c0", "micrometer"


def n5_viewer_old(root):
    """All on the container, with a bare list."""
    attributes(root, {"n5": "1.0.0", "name": "some data", "scales": FACTORS, "pixelResolution": SPACING})
    pyramid(root / "c0")
    pyramid(root / "c1")
    return "c1", None


def neuroglancer(root):
    pyramid(root)
    units = {"axes": ["x", "y", "z"], "units": ["nm", "nm", "nm"], "resolution": SPACING}
    attributes(root, {"n5": "2.0.0", "downsamplingFactors": FACTORS} | units)
    return "", "nanometer"


def cosem(root):
    """As OpenOrganelle's: everything is said again on the group, and last axis first in transforms."""

    def transform(factor):
        scale, translate = scaled(factor)[::-1], shifted(factor, OFFSET)[::-1]
        return {"axes": ["z", "y", "x"], "units": ["nm"] * 3, "scale": scale, "translate": translate}

    resolution = {"unit": "nm", "dimensions": SPACING}
    levels = [{"path": f"s{i}", "transform": transform(f)} for i, f in enumerate(FACTORS)]
    attributes(root, {"n5": "2.0.0"})
    group = {"axes": ["x", "y", "z"], "units": ["nm"] * 3, "scales": FACTORS, "pixelResolution": resolution}
    attributes(root / "em" / "fibsem", group | {"multiscales": [{"name": "fibsem", "datasets": levels}]})
    own = lambda _, f: {"transform": transform(f), "pixelResolution": {"unit": "nm", "dimensions": scaled(f)}}  # noqa: E731
    pyramid(root / "em" / "fibsem", own, offset=OFFSET)
    return "em/fibsem", "nanometer"


def paintera(root):
    attributes(root, {"n5": "2.0.0"})
    attributes(root / "raw", {"painteraData": {"type": "raw"}})
    attributes(root / "raw" / "data", {"multiScale": True, "resolution": SPACING, "offset": OFFSET})
    pyramid(root / "raw" / "data", lambda level, f: {"downsamplingFactors": f} if level else {}, offset=OFFSET)
    return "raw/data", None


def big_data_viewer(root):
    attributes(root, {"n5": "2.0.0"})
    attributes(root / "setup0", {"downsamplingFactors": FACTORS, "dataType": "float64"})
    attributes(root / "setup0" / "timepoint0", {"multiScale": True, "resolution": SPACING})
    pyramid(root / "setup0" / "timepoint0", lambda _, f: {"downsamplingFactors": f})
    return "setup0/timepoint0", None


def canonical(root):
    def level(_, factor):
        scale, shift = scaled(factor), shifted(factor, OFFSET)
        affine = [[scale[i] if i == j else 0 for j in range(3)] + [shift[i]] for i in range(3)]
        transform = {"type": "affine", "affine": sum(affine, [])}
        return {"spatialTransform": {"transform": transform, "unit": "µm"}}

    attributes(root, {"n5": "2.0.0"})
    pyramid(root / "g", level, offset=OFFSET)
    return "g", "micrometer"


def ome(order):
    def make(root):
        """OME-Zarr's own metadata: in its own order as Python writes it, or in N5's as n5-universe once did."""
        turn = slice(None, None, -1 if order == "zyx" else 1)
        axes = [{"name": n, "type": "space", "unit": "nanometer"} for n in "xyz"[turn]]
        levels = [
            {
                "path": f"s{i}",
                "coordinateTransformations": [
                    {"type": "scale", "scale": scaled(f)[turn]},
                    {"type": "translation", "translation": shifted(f)[turn]},
                ],
            }
            for i, f in enumerate(FACTORS)
        ]
        attributes(root, {"n5": "2.0.0"})
        attributes(root / "g", {"multiscales": [{"version": "0.4", "axes": axes, "datasets": levels}]})
        pyramid(root / "g")
        return "g", "nanometer"

    make.__name__ = f"ome_{order}"
    return make


DIALECTS = [
    n5_viewer,
    n5_spark,
    n5_viewer_old,
    neuroglancer,
    cosem,
    paintera,
    big_data_viewer,
    canonical,
    ome("zyx"),
    ome("xyz"),
]


def image(path):
    """The image that ome-zarr-models sees, after its checks."""
    model = v05 if os.path.exists(path / "zarr.json") else v04
    group = zarr.open_group(str(path), mode="r")
    found = model.Image.from_zarr(group)
    (only,) = (found.ome_attributes if model is v05 else found.attributes).multiscales
    return group, only


def check_positions(path):
    """Whether each element of each level is where it says it is; gives the axes."""
    group, found = image(path)
    names = [axis.name for axis in found.axes]
    for level in found.datasets:
        scale, translation = (list(getattr(t, t.type)) for t in level.coordinateTransformations)
        values = group[level.path][...]
        positions = np.meshgrid(*(t + s * np.arange(n) for s, t, n in zip(scale, translation, values.shape)), indexing="ij")
        expected = sum(PLACES["xyz".index(name)] * p for name, p in zip(names, positions))
        np.testing.assert_allclose(values, expected, rtol=1e-12)
    assert [level.path for level in found.datasets] == [f"s{i}" for i in range(len(FACTORS))]
    return found.axes


@pytest.mark.parametrize("axes", ["c", "source"])
@pytest.mark.parametrize("flavour", ["2", "3"])
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.__name__)
def test_elements_are_where_the_metadata_says(dialect, flavour, axes, room, mount):
    path, unit = dialect(room / "a.n5")
    view = mount(room / "a.n5", "--zarr", flavour, "--axes", axes)
    shown = check_positions(view / path)
    assert [axis.name for axis in shown] == list("zyx" if axes == "c" else "xyz")
    assert {axis.type for axis in shown} == {"space"} and {axis.unit for axis in shown} == {unit}
    assert "without multiscales" not in view.text()


def test_units_are_those_that_tensorstore_reads(room, mount):
    """Of the finest level, whose `resolution` and `units` tensorstore knows."""
    root = room / "a.n5"
    known = {"axes": ["x", "y", "z"], "units": ["nm", "um", "mm"], "resolution": SPACING}
    pyramid(root / "g", lambda level, f: {"downsamplingFactors": f} | known)
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(root / "g" / "s0") + "/"}}
    units = tensorstore.open(spec).result().dimension_units
    _, found = image(mount(root) / "g")
    symbols = {"nanometer": "nm", "micrometer": "um", "millimeter": "mm"}
    scale = found.datasets[0].coordinateTransformations[0].scale
    shown = [tensorstore.Unit(s, symbols[axis.unit]) for s, axis in zip(scale, found.axes)]
    assert shown[::-1] == list(units)


def test_stores_of_java_and_z5py(corpus, mount):
    """The Java library writes COSEM's transform, whose translation is 0 at all levels; z5py writes BigDataViewer's layout."""
    for name, path, scales, translations in [
        ("n5/java.n5", "index_ms", [[40, 4, 4], [40, 8, 8], [80, 16, 16]], [[0, 0, 0]] * 3),
        (
            "n5/bdv_z5py.n5",
            "setup1/timepoint0",
            [[1.5, 0.4, 0.4], [1.5, 0.8, 0.8], [3, 1.6, 1.6]],
            [[0, 0, 0], [0, 0.2, 0.2], [0.75, 0.6, 0.6]],
        ),
    ]:
        for flavour in ("2", "3"):
            _, found = image(mount(corpus.path(name), "--zarr", flavour) / path)
            shown = [[list(getattr(t, t.type)) for t in level.coordinateTransformations] for level in found.datasets]
            np.testing.assert_allclose(shown, list(zip(scales, translations)))


def test_groups_that_are_no_pyramids(room, mount):
    """Nothing is invented for samples that are called s0, for groups of such names, or for single arrays."""
    root = room / "a.n5"
    attributes(root, {"n5": "2.0.0"})
    pyramid(root / "samples", factors=FACTORS[:2])
    attributes(root / "groups" / "s0" / "inner", {"note": 1})
    attributes(root / "groups", {"scales": FACTORS})
    pyramid(root / "single", lambda *_: {"resolution": SPACING, "offset": OFFSET}, factors=FACTORS[:1])
    for flavour in ("2", "3"):
        view = mount(root, "--zarr", flavour)
        for path in ("", "samples", "groups"):
            group = zarr.open_group(str(view / path), mode="r")
            assert not {"multiscales", "ome"} & set(group.attrs)
        assert zarr.open_array(str(view / "single" / "s0"), mode="r").attrs["offset"] == list(OFFSET)
        assert "without multiscales" not in view.text()
        assert ("groups/.zattrs" in entries(view)) is (flavour == "2")


@pytest.mark.parametrize("flavour", ["2", "3"])
@pytest.mark.parametrize("damage", ["text", "refused", "gone", "group", "factors"])
def test_a_level_that_cannot_be_understood_leaves_no_pyramid(damage, flavour, room, mount):
    path, _ = n5_viewer(room / "a.n5")
    document = room / "a.n5" / path / "s1" / "attributes.json"
    if damage == "text":
        document.write_text("{")
    elif damage == "refused":
        document.unlink()
        document.symlink_to("/etc/hostname")
    elif damage == "gone":
        for level in ("s1", "s2"):
            os.rename(document.parents[1] / level, room / level)
    elif damage == "group":
        document.unlink()
    else:
        attributes(document.parent, {"downsamplingFactors": [2, 2]})
    view = mount(room / "a.n5", "--zarr", flavour)
    name = ".zattrs" if flavour == "2" else "zarr.json"
    for _ in range(3):
        shown = json.loads((view / path / name).read_text())
        shown = shown.get("attributes", shown)
    # A level that is positively absent is none.
    kept = damage == "gone"
    assert bool({"multiscales", "ome"} & set(shown)) is kept
    assert view.text().count("without multiscales") == (0 if kept else 1)
    finest = zarr.open_array(str(view / path / "s0"), mode="r")
    assert finest.shape == SHAPE[::-1] and finest[0, 0, 1] == SPACING[0]


def test_what_ome_zarr_has_no_words_for(room, mount):
    """Channels as the fastest axis, a sheared image: shown as arrays, with the source's own attributes."""
    root = room / "a.n5"
    pyramid(root / "c", lambda _, f: {"downsamplingFactors": f})
    attributes(root / "c", {"axes": ["c", "x", "y"]})
    pyramid(root / "s", lambda _, f: {"downsamplingFactors": f})
    attributes(root / "s", {"affineTransform": [[1, -0.3, 0, 0], [0, 1.25, 0, 0], [0, 0, 0.85, 0]]})
    view = mount(root)
    assert json.loads((view / "c" / ".zattrs").read_text()) == {"axes": ["c", "x", "y"]}
    assert set(json.loads((view / "s" / ".zattrs").read_text())) == {"affineTransform"}
    assert view.text().count("without multiscales") == 2


def written_ome(path):
    """An image of OME-Zarr 0.4 in Zarr v2, as zarr-python writes it, with labels and consolidated metadata."""
    group = zarr.open_group(str(path), mode="w", zarr_format=2)
    axes = [{"name": n, "type": "space", "unit": "nanometer"} for n in "yx"]
    levels = []
    for i in range(2):
        group.create_array(str(i), shape=(8 >> i, 8 >> i), dtype="u1", chunks=(4, 4))[...] = i
        steps = [{"type": "scale", "scale": [2.0**i, 2.0**i]}, {"type": "translation", "translation": [0.5 * i, 0.5 * i]}]
        levels.append({"path": str(i), "coordinateTransformations": steps})
    channel = {"color": "FFFFFF", "window": {"min": 0, "max": 255, "start": 0, "end": 255}, "active": True}
    group.attrs.update(
        {
            "multiscales": [{"version": "0.4", "name": "i", "axes": axes, "datasets": levels}],
            "omero": {"version": "0.4", "channels": [channel]},
            "mine": {"a": [1, 2.5]},
        }
    )
    labels = group.create_group("labels")
    labels.attrs["labels"] = ["cells"]
    cells = labels.create_group("cells")
    for i in range(2):
        cells.create_array(str(i), shape=(8 >> i, 8 >> i), dtype="u1", chunks=(4, 4))
    cells.attrs["multiscales"] = group.attrs["multiscales"]
    cells.attrs["image-label"] = {"version": "0.4", "colors": [{"label-value": 1, "rgba": [0, 0, 0, 255]}]}
    zarr.consolidate_metadata(str(path), zarr_format=2)
    return dict(group.attrs)


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_ome_zarr_of_zarr_2_travels_and_becomes_0_5_in_zarr_3(room, mount):
    before = written_ome(room / "a.zarr")
    model = v04.Image.from_zarr(zarr.open_group(str(room / "a.zarr"), mode="r"))
    view = mount(room / "a.zarr")
    assert json.loads((view / ".zattrs").read_text()) == before
    assert v04.Image.from_zarr(zarr.open_group(str(view.where), mode="r")).attributes == model.attributes
    view = mount(room / "a.zarr", "--zarr", "3")
    for consolidated in (False, True):
        group = zarr.open_group(str(view.where), mode="r", use_consolidated=consolidated)
        found = v05.Image.from_zarr(group)
        (new,), (old,) = found.ome_attributes.multiscales, model.attributes.multiscales
        assert (new.name, new.datasets[1].path) == ("i", "1")
        assert [a.model_dump() for a in new.axes] == [a.model_dump() for a in old.axes]
        for a, b in zip(new.datasets, old.datasets):
            assert a.model_dump() == b.model_dump()
        assert group.attrs["mine"] == before["mine"] and "multiscales" not in group.attrs
        assert group.attrs["ome"]["omero"]["channels"] == before["omero"]["channels"]
        assert found.labels.label_paths == ["cells"]
        v05.ImageLabel.from_zarr(group["labels/cells"])


def test_ome_zarr_0_5_with_versions_in_its_members_is_0_4_in_zarr_2(room, mount):
    """ome-zarr-py and iohub write the version of `ome` into its members, too."""
    before = written_ome(room / "a.zarr")
    group = zarr.open_group(str(room / "s" / "b.zarr"), mode="w", zarr_format=3)
    for i in range(2):
        group.create_array(str(i), shape=(8 >> i, 8 >> i), dtype="u1", chunks=(4, 4))
    new = {"multiscales": [{**before["multiscales"][0], "version": "0.5"}], "omero": {**before["omero"], "version": "0.5"}}
    group.attrs["ome"] = {"version": "0.5", **new}
    plate = {"version": "0.5", "rows": [{"name": "A"}], "columns": [{"name": "1"}], "wells": [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}]}
    well = {"version": "0.5", "images": [{"path": "0"}]}
    hcs = zarr.open_group(str(room / "s" / "hcs.zarr"), mode="w", zarr_format=3)
    hcs.attrs["ome"] = {"version": "0.5", "plate": plate}
    hcs.create_group("A/1").attrs["ome"] = {"version": "0.5", "well": well}
    view = mount(room / "s", "--zarr", "2")
    found = zarr.open_group(str(view / "b.zarr"), mode="r")
    same = v04.Image.from_zarr(zarr.open_group(str(room / "a.zarr"), mode="r")).attributes
    assert v04.Image.from_zarr(found).attributes.multiscales == same.multiscales
    assert found.attrs["omero"] == before["omero"] and "ome" not in found.attrs
    hcs = zarr.open_group(str(view / "hcs.zarr"), mode="r")
    assert dict(hcs.attrs) == {"plate": {**plate, "version": "0.4"}}
    assert dict(hcs["A/1"].attrs) == {"well": {**well, "version": "0.4"}}


def test_older_ome_zarr_stays_where_it_is(room, mount):
    """0.3 has no scales: to say that it is 0.5 would be wrong."""
    group = zarr.open_group(str(room / "a.zarr"), mode="w", zarr_format=2)
    old = {"multiscales": [{"version": "0.3", "axes": ["y", "x"], "datasets": [{"path": "0"}]}]}
    group.attrs.update(old)
    for flavour in ("2", "3"):
        assert dict(zarr.open_group(str(mount(room / "a.zarr", "--zarr", flavour).where), mode="r").attrs) == old


def test_other_groups_cost_nothing(room, mount):
    """To look at a group of N5 and to list it asks the store for as much as with a group of Zarr."""
    attributes(room / "n5", {"n5": "2.0.0"})
    zarr.open_group(str(room / "zarr"), mode="w", zarr_format=2)
    for i in range(20):
        attributes(room / "n5" / f"g{i}", {"note": i})
        zarr.open_group(str(room / "zarr" / f"g{i}"), mode="w", zarr_format=2)
    costs = []
    for source in ("n5", "zarr"):
        view = mount(room / source)
        before = view.stats()["store"]
        for i in range(20):
            os.stat(view / f"g{i}")
            os.listdir(view / f"g{i}")
        after = view.stats()["store"]
        costs.append([after[kind] - before[kind] for kind in ("get", "head", "list")])
    assert costs[0] == costs[1]
