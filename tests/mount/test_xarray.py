"""`_FillValue`, which xarray spells otherwise in either version of Zarr. xarray writes, and decodes what is shown."""

import json
import shutil
import warnings

import netCDF4
import numpy as np
import pytest
import xarray
import zarr
from xarray.conventions import decode_cf_variable

from support import data

FILLS = {
    "<f2": [0.1],
    "<f4": [-9999.5, 1e20, np.nan, np.inf],
    "<f8": [-1e300, 0.1, -np.inf, np.nan, -0.0],
    "|u1": [255],
    "<i2": [-32768, 0],
    "<u4": [7],
    "<i8": [-9223372036854775808],
}
CASES = {f"{dtype[1:]}_{i}": np.dtype(dtype).type(fill) for dtype, fills in FILLS.items() for i, fill in enumerate(fills)}


def values(fill):
    """Numbers, among them a chunk that has the fill value alone, and 0, which Zarr takes for absent."""
    found = np.arange(24, dtype=np.dtype(fill.dtype)).reshape(4, 6)
    found[1, 2] = fill
    found[2:, :3] = fill
    return found


def raw(path):
    return xarray.open_dataset(str(path), engine="zarr", consolidated=False, mask_and_scale=False)


def masked(path):
    return xarray.open_dataset(str(path), engine="zarr", consolidated=False)


def same(got, want, name):
    assert got.dtype == want.dtype, name
    assert got.isnull().sum() == want.isnull().sum() >= 1, name
    np.testing.assert_array_equal(got.values, want.values, err_msg=name)


def written(path, version, encoded):
    """A group by xarray with fill values, and with what more of its encoding `encoded` says for each."""
    found = xarray.Dataset({name: (("y", "x"), values(fill), {"_FillValue": fill}) for name, fill in CASES.items()})
    encoding = {name: {"chunks": (2, 3), **encoded(fill)} for name, fill in CASES.items()}
    found.to_zarr(path, zarr_format=version, consolidated=False, encoding=encoding)


def test_an_attribute_of_zarr_3_in_zarr_2(room, mount):
    """xarray takes the `fill_value` of Zarr v2 for the mask; the attribute is decoded as in any file of netCDF."""
    written(room / "a.zarr", 3, lambda fill: {"fill_value": fill.dtype.type(1)})
    want = masked(room / "a.zarr")
    group = zarr.open_group(str(mount(room / "a.zarr", "--zarr", "2").where), mode="r", zarr_format=2)
    for name in CASES:
        array = group[name]
        assert array.fill_value == 1
        variable = xarray.Variable(("y", "x"), array[...], {"_FillValue": array.attrs["_FillValue"]})
        same(decode_cf_variable(name, variable), want[name], name)


def test_what_zarr_3_masks_is_masked_in_zarr_2(room, mount):
    """Beside what Zarr v2 says of absent chunks, which xarray masks there in any case. netCDF-C reads it as well."""
    written(room / "a.zarr", 3, lambda fill: {"fill_value": fill.dtype.type(1)})
    group = zarr.open_group(str(room / "a.zarr"), mode="a", zarr_format=3)
    group["u1_0"].attrs.update({"missing_value": 3})
    want = masked(room / "a.zarr")
    view = mount(room / "a.zarr", "--zarr", "2").where
    with warnings.catch_warnings():
        # xarray says that there are several.
        warnings.simplefilter("ignore", xarray.SerializationWarning)
        got = masked(view).load()
    plain = raw(view)
    for name in CASES:
        wanted = want[name].isnull() | (plain[name] == 1).values
        # What an array says itself stays alone.
        if name == "u1_0":
            wanted = (plain[name] == 1) | (plain[name] == 3)
        np.testing.assert_array_equal(got[name].isnull(), wanted, err_msg=name)
    # It has no type for half precision.
    for name in CASES:
        if not name.startswith("f2"):
            shutil.copytree(room / "a.zarr" / name, room / "b" / name)
    shutil.copy(room / "a.zarr" / "zarr.json", room / "b")
    with netCDF4.Dataset(f"file://{mount(room / 'b', '--zarr', '2').where}#mode=zarr,file") as read:
        assert read["i2_0"].missing_value == -32768 and read["u1_0"].missing_value == 3


def test_where_zarr_3_says_the_same_of_absent_chunks(room, mount):
    written(room / "a.zarr", 3, lambda fill: {"fill_value": fill})
    want = masked(room / "a.zarr")
    got = masked(mount(room / "a.zarr", "--zarr", "2").where)
    for name in CASES:
        same(got[name], want[name], name)


def test_an_attribute_of_zarr_2_in_zarr_3(room, mount):
    """A list of one number is how netcdf-c 4.8.0 writes it."""
    group = zarr.open_group(str(room / "a.zarr"), mode="w", zarr_format=2)
    for name, fill in CASES.items():
        # Without a `fill_value`, xarray takes the attribute.
        array = group.create_array(name, shape=(4, 6), chunks=(2, 3), dtype=fill.dtype, fill_value=None)
        array[...] = values(fill)
        array.attrs.update({"_ARRAY_DIMENSIONS": ["y", "x"], "_FillValue": fill.item()})
    want = masked(room / "a.zarr")
    view = mount(room / "a.zarr", "--zarr", "3")
    got, plain = masked(view.where), raw(view.where)
    for name, fill in CASES.items():
        same(got[name], want[name], name)
        assert np.array_equal(plain[name].attrs["_FillValue"], fill.item(), equal_nan=True), name
    for name in ("f4_0", "f8_1"):
        group[name].attrs["_FillValue"] = [CASES[name].item()]
    got = masked(mount(room / "a.zarr", "--zarr", "3").where)
    for name in ("f4_0", "f8_1"):
        same(got[name], want[name], name)


SPELLINGS = [("<f4", "NaN"), ("<f8", ["NaN"]), ("<i2", [7]), ("|u1", [7]), ("<c8", 7), ("<c16", [7.0]), ("|b1", [0]), ("|b1", 1)]


@pytest.mark.parametrize("dtype, spelled", SPELLINGS)
def test_spellings_of_zarr_2_in_zarr_3(dtype, spelled, room, mount):
    """Lists of one are netcdf-c's; the words are zarr-python's where it consolidates. In Zarr v3 xarray refuses the whole group for them."""
    group = zarr.open_group(str(room / "a.zarr"), mode="w", zarr_format=2)
    array = group.create_array("a", shape=(9,), chunks=(3,), dtype=dtype, fill_value=None)
    array[...] = np.where(np.arange(9) == 5, np.nan, np.arange(9)).astype(dtype) if "f" in dtype else np.arange(9).astype(dtype)
    array.attrs.update({"_ARRAY_DIMENSIONS": ["x"], "_FillValue": spelled})
    want = masked(room / "a.zarr")
    for flavour in "23":
        got = masked(mount(room / "a.zarr", "--zarr", flavour).where)
        if dtype == "|b1":  # objects, in which nothing equals what is masked
            assert [str(value) for value in got["a"].values] == [str(value) for value in want["a"].values], flavour
        else:
            same(got["a"], want["a"], flavour)


OTHERS = [
    ("<U3", "ab"), ("<U3", ["é"]), ("|S3", "ab"), ("<M8[ns]", 1), ("<m8[s]", "NaT"), ("<c8", [1, 2]), ("<c16", ["NaN", 1.0]),
    ("<f4", [1, 2]), ("<f8", None), ("<f4", "abc"), ("<i2", 1.5), ("<i4", [1, 2]), ("<i4", "1"), ("|b1", "x"), ("|V3", 1),
]  # fmt: skip


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("dtype, spelled", OTHERS)
def test_what_xarray_has_no_words_for_in_zarr_3(dtype, spelled, more, room, mount):
    """There it refuses the whole group for it, or masks what it does not mask in Zarr v2."""
    group = zarr.open_group(str(room / "a.zarr"), mode="w", zarr_format=2)
    array = group.create_array("a", shape=(4,), chunks=(3,), dtype=dtype, fill_value=None)
    if dtype[1] in "US":
        array[...] = np.array(["a", "ab", "é" if dtype[1] == "U" else "", "abc"], dtype)
    elif dtype[1] != "V":
        array[...] = np.arange(4).astype(dtype)
    array.attrs.update({"_ARRAY_DIMENSIONS": ["x"], "_FillValue": spelled, **({"missing_value": spelled} if more else {})})
    want = masked(room / "a.zarr")["a"]
    got = masked(mount(room / "a.zarr", "--zarr", "3").where)["a"]
    assert got.dtype == want.dtype and str(got.values.tolist()) == str(want.values.tolist())


NAN, INF, BIG = float("nan"), float("inf"), 2**53 + 1
# Data type, values, `_FillValue` and `missing_value`.
TOGETHER = [
    ("<i8", [BIG, 0], NAN, None), ("<i8", [BIG, 0], [NAN], None), ("<i8", [BIG, 0], None, NAN), ("<i4", [0, 1, 2, -1], 1, [NAN, 2]),
    ("<U3", ["NaN", "a", "ab"], NAN, None), ("<U3", ["NaN", "a", "ab"], "a", NAN), ("<U3", ["NaN", "a", "ab"], 7, "a"),
    ("<U3", ["NaN", "a", "ab"], ["a", NAN], ["a", NAN]), ("<U3", ["NaN", "a", "ab"], "a", ["ab"]), ("|S3", ["NaN", "a"], NAN, None),
    *[("|b1", [0, 1, 1, 0], fill, missing) for fill in (-1, 255, 1.5, NAN, "1", [], True, 1.0) for missing in (None, 2)],
    ("|b1", [0, 1, 1, 0], [0, 7], None), ("|b1", [0, 1, 1, 0], "0", 1),
    ("<i4", [0, 1, 2, -1], 1.5, -1), ("<i4", [0, 1, 2, -1], [1, 2], -1), ("<i4", [0, 1, 2, -1], "1", 2),
    ("<i4", [0, 1, 2, -1], ["a", 1], 2),
    ("<i4", [0, 1, 2, -1], [[1], [2]], ["a", -1]), ("<i4", [0, 1, 2, -1], [1, 2], None), ("<i4", [0, 1, 2, -1], [INF, 1], 2),
    *[(f"<f{size}", [0, 1, INF, 7], fill, missing) for size in (2, 4, 8) for fill in ("AAAAAAAA8D8=", "Infinity", [1, 2], INF, None)
      for missing in (None, 7, [0, NAN], NAN)],
    # With a `null` numpy makes objects of a list, else texts where it has one.
    ("<i4", [0, 1, 2, 3], None, [None, NAN, 1, "a"]), ("<i4", [0, 1, 2, 3], [None, 1, "a"], 2), ("<i4", [0, 1, 2, 3], [1, 3], [None, 2, "a"]),
    ("<f4", [0, 1, 2, 3], [None, 1, "a"], 2),
    ("<U3", ["NaN", "a", "1"], ["a", None, 1], ["b", None, NAN]),
    *[(dtype, ["NaN", "nan", "inf", "-inf", "a", "1", "b"], fill, missing) for dtype in ("<U4", str) for fill, missing in (
        ([NAN, "a"], None), (None, [NAN, "a"]), (None, [NAN, "a", 1]), (None, [INF, "a"]), ([[-INF], ["a"]], None), ("b", [NAN, "a"]),
        (None, [None, NAN, "a"]))],
    ("<i4", [0, 1, 2, 3], None, [NAN, 1, "1"]), ("<i4", [0, 1, 2, 3], [NAN, 1, "1"], 2), ("<f4", [0, 1, INF, 3], [INF, "a"], 1),
    # `_FillValue` alone has a word for an infinity in Zarr v3.
    *[(dtype, [0, 1, INF, 7, -INF], fill, missing) for dtype in ("<f2", "<f4", "<f8", "<c16") for fill, missing in (
        (None, INF), (None, [-INF]), (None, [7, INF]), (NAN, INF), (None, [None, INF, "a"]), ([INF, 1], None), ([1, 7], -INF), (7, INF),
        (INF, INF), (-INF, [0, -INF]), ([INF, INF], [INF]), ("AAAAAAAA8D8=", INF))],
    ("<c8", [0, 1, 2, 3], [1, 0], 3), ("<c16", [0, 1, 2, 3], "Infinity", 3),
]  # fmt: skip


def test_fill_values_beside_others_of_zarr_2_in_zarr_3(room, mount):
    """What `_FillValue` cannot say in Zarr v3 joins `missing_value`; what equals no element masks none, and changes no integer."""
    group = zarr.open_group(str(room / "a.zarr"), mode="w", zarr_format=2)
    for i, (dtype, found, fill, missing) in enumerate(TOGETHER):
        array = group.create_array(f"a{i}", shape=(len(found),), chunks=(2,), dtype=dtype, fill_value=None)
        array[...] = np.array(found).astype(object if dtype is str else dtype)
        named = {name: value for name, value in (("_FillValue", fill), ("missing_value", missing)) if value is not None}
        array.attrs.update({"_ARRAY_DIMENSIONS": [f"x{i}"], **named})
    want, got = masked(room / "a.zarr"), masked(mount(room / "a.zarr", "--zarr", "3").where)
    for i, case in enumerate(TOGETHER):
        assert str(got[f"a{i}"].values.tolist()) == str(want[f"a{i}"].values.tolist()), case


TWO = [INF, -INF]
UNSAID = [("<f4", TWO, None), ("<f8", None, TWO), ("<f8", INF, -INF), ("<f2", [1, INF], -INF), ("<f4", "AAAAAAAA8D8=", TWO), ("<U3", "a", ["b", 1])]


@pytest.mark.parametrize("dtype, spelled, missing", UNSAID)
def test_what_zarr_3_cannot_say_is_refused_by_xarray(dtype, spelled, missing, room, mount):
    """There is a word for one infinity, and numpy spells numbers in its own way that stand among texts."""
    group = zarr.open_group(str(room / "a.zarr"), mode="w", zarr_format=2)
    array = group.create_array("a", shape=(4,), chunks=(3,), dtype=dtype, fill_value=None)
    named = {name: value for name, value in (("_FillValue", spelled), ("missing_value", missing)) if value is not None}
    array.attrs.update({"_ARRAY_DIMENSIONS": ["x"], **named})
    with pytest.raises((TypeError, ValueError), match="fill_value"):
        masked(mount(room / "a.zarr", "--zarr", "3").where)


def test_scalars_of_zarr_3_in_zarr_2(room, mount):
    """In Zarr v2 xarray refuses the whole group for an array that does not name its axes, were it none."""
    found = xarray.Dataset({"point": ((), 2.5), "line": (("x",), np.arange(3.0))})
    found.to_zarr(room / "a.zarr", zarr_format=3, consolidated=False, encoding={"line": {"chunks": (2,)}})
    view = mount(room / "a.zarr", "--zarr", "2")
    assert raw(view.where).drop_attrs().identical(raw(room / "a.zarr").drop_attrs())
    # One of netCDF has one axis.
    got = raw(mount(room / "a.zarr", "--nczarr").where)
    assert got.point.dims == ("_scalar_",) and got.point.values == [2.5] and got.line.values.tolist() == [0, 1, 2]


@pytest.mark.parametrize("version", [2, 3])
def test_what_xarray_wrote_is_shown_as_it_is(version, room, mount):
    written(room / "a.zarr", version, lambda fill: {"fill_value": fill} if version == 3 else {})
    want, got = masked(room / "a.zarr"), masked(mount(room / "a.zarr").where)
    for name in CASES:
        same(got[name], want[name], name)
        assert got[name].encoding["_FillValue"] == want[name].encoding["_FillValue"] or np.isnan(CASES[name])


def test_characters_of_netcdf_in_zarr_3(mount):
    """netCDF writes `>S1`, which zarr-python does not know in Zarr v2; the truth is netcdf-c's."""
    with pytest.raises(ValueError, match=">S1"):
        raw(mount(data.SAMPLE_ZIP).where)
    truth = json.loads(data.SAMPLE_ZIP.with_suffix(".json").read_text())["chunk_char"]
    got = masked(mount(data.SAMPLE_ZIP, "--zarr", "3").where).chunk_char
    assert got.values.tobytes().hex() == truth["values"] and got.dtype == f"S{truth['shape'][1]}"
