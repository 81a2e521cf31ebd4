"""Every codec and data type that a store of the test data uses is on the page that says what is read."""

import json
import re
from pathlib import Path

from support.data import DATA, unpacked

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")


def documents(base, name):
    for path in base.rglob(name):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        if isinstance(document, dict):
            yield path, document


def names(value, key):
    """The values of `key` in all objects within `value`."""
    if isinstance(value, dict):
        if isinstance(value.get(key), str):
            yield value[key]
        value = list(value.values())
    if isinstance(value, list):
        for member in value:
            yield from names(member, key)


def test_codecs_of_zarr_version_2(corpus):
    missing = set()
    for path, document in documents(corpus.base, ".zarray"):
        used = names([document.get("compressor"), document.get("filters")], "id")
        missing.update((name, str(path)) for name in used if f'"id": "{name.removeprefix("numcodecs.")}"' not in PAGE)
    assert not missing


def test_compressions_and_types_of_n5(corpus):
    missing = set()
    for path, document in documents(corpus.base, "attributes.json"):
        if "dimensions" not in document or not isinstance(document.get("dataType"), str):
            continue
        compression = document.get("compression", document.get("compressionType"))
        name = compression.get("type") if isinstance(compression, dict) else compression
        if name is not None and f'"type": "{name}"' not in PAGE and f'`"{name}"`' not in PAGE:
            missing.add((name, str(path)))
        if f'`"{document["dataType"]}"`' not in PAGE:
            missing.add((document["dataType"], str(path)))
    assert not missing


def test_marks_of_nczarr(corpus):
    """Where marks are, what they are called, what is in them, and the types of attributes that they name."""
    text = PAGE.split("## NCZarr")[1].split("\n## ")[0]
    documented = {"maxstrlen"}  # an attribute of netcdf-c's own that is no mark
    missing, seen = set(), set()
    for place in (".nczvar", ".nczgroup", ".nczattr", ".zarray", ".zgroup", ".zattrs", "zarr.json"):
        for path, document in documents(corpus.base, place):
            members = document.get("attributes", {}) if place == "zarr.json" else document
            if place.startswith(".ncz"):
                marks = {place: members}
            else:
                marks = {name: mark for name, mark in members.items() if name.lower().startswith("_nczarr_")}
            for name, mark in marks.items():
                seen.add(name)
                if name.lower().removeprefix("_nczarr_") in documented or name.lower() == "_nczarr_superblock":
                    continue
                if name not in text:
                    missing.add((name, str(path)))
                types = mark.get("types", {}) if isinstance(mark, dict) else {}
                missing.update((kind, str(path)) for kind in types.values() if f"`{json.dumps(kind)}`" not in text and not kind.isdigit())
                missing.update((kind, str(path)) for kind in types.values() if str(kind).isdigit() and f"| `{kind}` |" not in text)
                if not types and isinstance(mark, dict):
                    missing.update((key, str(path)) for key in mark if f'"{key}"' not in text and key not in ("scalar", "types"))
    assert not missing
    assert {".nczvar", ".nczgroup", "_NCZARR_ARRAY", "_NCZARR_GROUP", "_nczarr_array", "_nczarr_group"} <= seen


def test_codecs_types_keys_and_grids_of_zarr_version_3():
    base, missing = unpacked(DATA / "zarr3.tar.xz"), set()
    for path, document in documents(base, "zarr.json"):
        if document.get("node_type") != "array":
            continue
        used = {name for key in ("codecs", "data_type", "chunk_key_encoding", "chunk_grid") for name in names([document.get(key)], "name")}
        bare = [document["data_type"], *document.get("codecs", [])]
        used |= {name for name in bare if isinstance(name, str)}
        for name in used:
            known = name.removeprefix("numcodecs.")
            raw = re.fullmatch(r"r\d+", name)  # any number of bits
            if not raw and not any(word in PAGE for word in (f'"{name}"', f'"name": "{name}"', f'{{"id": "{known}"')):
                missing.add((name, str(path)))
    assert not missing
