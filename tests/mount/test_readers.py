"""What other people's readers make of a mount: zarrs, GDAL and xarray read every array that they have a type for, bit for bit.

That some reader reads every array is in `test_values.py`; here a reader may pass, for a reason that is listed.
"""

import re

import numpy as np
import pytest

from support import data
from support.checks import inside
from support.readers import Reader
from support.reading import difference

CORPUS = data.stores()
STORES = sorted(name for name in CORPUS.stores if CORPUS.stores[name]["container"] == "dir")

# What a reader may say of an array that it has no type or no place for.
PASSES = {
    "zarrs": r"Errno 95|UnsupportedMetadataError|UnsupportedDataTypeError|No Zarr data type found|TypeError: objects",
    # 3.6 has no 0-dimensional arrays with a name of a directory, no dates, no raw bytes; its Python has no strings.
    "gdal": r"String buffer data type|unsupported format for dtype|Invalid fill_value|Invalid content for shape|Unsupported zarr|objects",
    # Without names, or with names that other arrays in the group use for other lengths, xarray has no dimensions.
    "xarray": r"Errno 95|no names|conflicting sizes|No Zarr data type found|GroupNotFoundError|missing the .dimension_names|missing the attribute|objects",
}
# GDAL keeps fill values as numbers of 64 bits with a sign, and pads structures within structures.
WRONG = {("gdal", "zarr2/fills/bigu8"), ("gdal", "zarr2/dtypes/struct_nested")}


@pytest.fixture(scope="module")
def readers():
    made = {name: Reader(name) for name in PASSES}
    yield made
    for reader in made.values():
        reader.stop()


def widened(got, want):
    """GDAL has no numbers of 8 bits with a sign and none of 16 bits with a point, and reads wider ones. Structures are bytes."""
    if want.dtype.names:
        return got.dtype.kind == "V" and got.tobytes() == want.tobytes()
    wider = {"i1": "i2", "f2": "f4"}.get(want.dtype.str[1:])
    if not wider or got.dtype.str[1:] != wider or got.shape != want.shape:
        return False
    return np.array_equal(got.astype(want.dtype), want, equal_nan=want.dtype.kind == "f")


@pytest.mark.parametrize("options", [[], ["--zarr", "3"]], ids=["own", "v3"])
@pytest.mark.parametrize("store", STORES)
def test_readers(store, options, corpus, mount, readers):
    view = mount(corpus.path(store), *options)
    problems, verdicts = [], 0
    for record in corpus.records[store]:
        if not record.has_values or record.region or record.undefined_region:
            continue
        directory = inside(view, record)
        for name, reader in readers.items():
            # The GDAL of the distributions reads Zarr v3 as it was before it was final.
            if (name, record.id) in WRONG or (name == "gdal" and not (directory / ".zarray").exists()):
                continue
            try:
                got = reader(directory)
            except RuntimeError as error:
                if not re.search(PASSES[name], str(error)) or "[Errno 5]" in str(error):
                    problems.append(f"{record.id}: {name}: {error}")
                continue
            verdicts += 1
            texts = [difference(got, want) for want in record.accepted("zarr")]
            if all(texts) and not any(widened(got, want) for want in record.accepted("zarr")):
                problems.append(f"{record.id}: {name}: {texts[0]}")
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems[:40])
    assert verdicts or all(record.region or not record.has_values for record in corpus.records[store])
