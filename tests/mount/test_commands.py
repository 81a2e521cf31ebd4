"""The commands that need no mount show the same tree as a mount does, and third-party readers read a copy."""

import errno
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tensorstore
import zarr

from support import data
from support.commands import CORRUPT, DENIED, NOT_FOUND, STORES, UNAVAILABLE, USAGE, output, run
from support.mounting import binary


@pytest.fixture(params=STORES)
def store(request):
    return request.param


def test_ls_lists_what_find_lists_in_a_mount(store, corpus, mount):
    view = mount(corpus.path(store))
    find = subprocess.run(["find", ".", "-mindepth", "1", "-printf", "%P%y\n"], cwd=view.where, capture_output=True, text=True)
    want = sorted(line[:-1] + ("/" if line[-1] == "d" else "") for line in find.stdout.splitlines())
    assert sorted(output("ls", "-R", corpus.path(store)).splitlines()) == want
    top = sorted(name + "/" * (view / name).is_dir() for name in os.listdir(view))
    assert output("ls", corpus.path(store)).splitlines() == sorted(top, key=lambda name: name.rstrip("/").encode())


def test_ls_long_tells_what_stat_tells(store, corpus, mount):
    view = mount(corpus.path(store))
    for line in output("ls", "-lR", corpus.path(store)).splitlines():
        mode, size, when, name = line.split(None, 3)
        told = os.stat(view / name)
        assert mode == ("dr-xr-xr-x" if name.endswith("/") else "-r--r--r--")
        assert when == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(told.st_mtime))), name
        assert name.endswith("/") or int(size) == told.st_size, name


def test_ls_goes_on_after_what_it_cannot_look_at(room, mount):
    """As the ls of coreutils does: each such name is told of, and all others are listed."""
    source = room / "source"
    zarr.create_array(source / "sub" / "array", shape=(2,), chunks=(1,), dtype="<i4", zarr_format=2)[:] = 1
    for directory in (source, source / "sub"):
        (directory / "a_link").symlink_to("nothing")
    view = mount(source)
    for options in (["-l"], ["-l", "-R"]):
        told = subprocess.run(["ls", "-A", *options, view.where], capture_output=True, text=True)
        found = [name for _, directories, files in os.walk(view) for name in directories + files]
        done = run("ls", *options, source)
        names = [Path(line.split(None, 3)[3]).name for line in done.stdout.splitlines()]
        assert sorted(names) == sorted(found if "-R" in options else os.listdir(view)), done
        lost = [line for line in told.stderr.splitlines() if "a_link" in line]
        assert sum(line.startswith("unavailable  ") for line in done.stderr.splitlines()) == len(lost) > 0, (done.stderr, told.stderr)
        assert told.returncode != 0 and done.returncode == UNAVAILABLE, done.stderr


def test_cat_writes_what_the_mount_reads(store, corpus, mount):
    view = mount(corpus.path(store))
    names = data.entries(view)[:60]
    assert output("cat", corpus.path(store), *names, text=False) == b"".join((view / name).read_bytes() for name in names)
    untouched = ".chunkmount/source"
    for name in output("ls", corpus.path(store), untouched).splitlines()[:3]:
        if not name.endswith("/"):
            want = (view / untouched / name).read_bytes()
            assert output("cat", corpus.path(store), f"{untouched}/{name}", text=False) == want


def test_errors_have_a_line_and_a_status(corpus, room):
    source = corpus.path(STORES[1])
    for arguments, status in [
        (["ls", room / "nothing"], NOT_FOUND),
        (["ls", source, "nothing/at/all"], NOT_FOUND),
        (["ls", source, ".."], USAGE),
        (["ls", ""], USAGE),
        (["cat", source, ""], USAGE),
        (["info", source, ".zgroup"], USAGE),
        (["cp", source, source / "inside"], USAGE),
        (["stats", room], USAGE),
    ]:
        done = run(*arguments)
        assert done.returncode == status, (arguments, done.stderr)
        assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("chunkmount: "), done.stderr
        assert ": : " not in done.stderr, done.stderr
    assert not (source / "inside").exists()


def test_a_reader_that_leaves_is_no_error(corpus):
    shell = f"{binary()} ls -R {corpus.path(STORES[0])} | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.parametrize(
    "command",
    ["cat .zgroup", "cat f_raw/0.0", "ls", "ls -lR", "tree -a", "info", "info --json", "check", "generate man", "generate bash",
     "--help", "-h", "-V", "ls --help", "stats", "stats --prometheus"],
)  # fmt: skip
def test_output_that_is_lost_is_an_error(command, corpus, mount):
    """Of a full device, as every tool of coreutils has it; where there is nothing to say, the status is all there is."""
    source = corpus.path("zarr2/compressors.zarr")
    name, *rest = command.split()
    if name == "cat" and not (source / rest[0]).exists():
        rest = [next(str(p.relative_to(source)) for p in sorted(source.rglob("0.0")))]
    at = {"generate": [], "stats": [mount(source).where] if name == "stats" else []}.get(name, [source])
    arguments = [name, *at, *rest] if not command.endswith(("-h", "-V", "-help")) else [name, *rest]
    with open("/dev/full", "w") as full:
        done = subprocess.run([binary(), *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == USAGE, done.stderr
        assert done.stderr == f"chunkmount: standard output: cannot be written: {os.strerror(errno.ENOSPC)} (os error 28)\n"
        assert subprocess.run([binary(), *arguments], stdout=full, stderr=full, timeout=60).returncode == USAGE


def test_problems_that_cannot_be_listed_are_counted(room):
    array = zarr.create_array(room / "a.zarr", shape=(4, 64), chunks=(1, 64), dtype="<i4", zarr_format=2)
    array[:] = 1
    (room / "a.zarr" / "1.0").write_bytes(b"nonsense")
    with open("/dev/full", "w") as full:
        done = subprocess.run([binary(), "check", room / "a.zarr"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == CORRUPT and len(done.stderr.splitlines()) == 1, done.stderr
    assert "1 problem; standard output: cannot be written" in done.stderr


def test_a_source_that_is_called_like_a_command(corpus, room):
    shutil.copytree(corpus.path(STORES[1]), room / "ls")
    assert output("ls", "./ls", cwd=room) == output("ls", corpus.path(STORES[1]))
    done = run("./ls", room / "mnt", cwd=room)
    try:
        assert done.returncode == 0, done.stderr
        assert sorted(data.entries(room / "mnt"))
    finally:
        assert run("-u", room / "mnt").returncode == 0


def test_info_tells_what_zarr_python_tells(corpus):
    source = corpus.path("zarr2/compressors.zarr")
    nodes = {node["path"]: node for node in json.loads(output("info", "--json", source))["nodes"]}
    group = zarr.open_group(source, mode="r", zarr_format=2)
    arrays = dict(group.members(max_depth=None))
    seen = 0
    for path, array in arrays.items():
        if not isinstance(array, zarr.Array):
            continue
        node = nodes[path]
        assert node["kind"] == "array" and node["format"] == "zarr2"
        assert (tuple(node["shape"]), tuple(node["chunks"])) == (array.shape, array.chunks), path
        assert np.dtype(node["dtype"]) == array.dtype.newbyteorder("<"), path
        assert node["decoded_bytes"] == array.nbytes, path
        assert node["chunks_total"] == array.nchunks and node["chunks_stored"] == array.nchunks_initialized, path
        stored = [p for p in (source / path).rglob("*") if p.is_file() and not p.name.startswith(".")]
        assert node["stored_bytes"] == sum(p.stat().st_size for p in stored), path
        compressor = json.loads((source / path / ".zarray").read_text())["compressor"]
        assert compressor is None or compressor["id"] in node["codecs"] + node["codecs_kept"], path
        table = output("info", source, path)
        assert " x ".join(map(str, array.shape)) in table and node["dtype"] in table
        seen += 1
    assert seen > 10
    quick = json.loads(output("info", "--json", "--quick", source))["nodes"]
    assert all("stored_bytes" not in node for node in quick)
    assert len(output("info", source).splitlines()) == len(nodes) + 1


def test_info_tells_the_scale_that_ome_zarr_tells(room):
    group = zarr.create_group(room / "image.zarr", zarr_format=2)
    for level in range(2):
        group.create_array(f"s{level}", shape=(8 >> level, 8 >> level), chunks=(4, 4), dtype="u1")[:] = 1
    group.attrs["multiscales"] = [
        {
            "version": "0.4",
            "axes": [{"name": n, "type": "space", "unit": "nanometer"} for n in "yx"],
            "datasets": [
                {"path": f"s{i}", "coordinateTransformations": [{"type": "scale", "scale": [4.0 * 2**i, 3.0 * 2**i]}]}
                for i in range(2)
            ],
        }
    ]
    for path, scale in (("s0", [4, 3]), ("s1", [8, 6])):
        (node,) = json.loads(output("info", "--json", room / "image.zarr", path))["nodes"]
        assert (node["scale"], node["units"]) == (scale, ["nanometer"] * 2)
        assert "nanometer" in output("info", room / "image.zarr", path)


def test_info_names_the_dialect_of_an_array(corpus):
    source = corpus.path("nczarr/head_lemon.zarr")
    told = {line.split()[0]: line.split()[1] for line in output("info", source).splitlines()}
    assert any(line.split()[1:3] == ["v_f4", "nczarr"] for line in output("tree", source).splitlines())
    assert told["/v_f4"] == "nczarr" and "format         nczarr" in output("info", source, "v_f4")


def test_tree_draws_arrays_and_with_all_everything(store, corpus, mount):
    view = mount(corpus.path(store))
    drawn = output("tree", corpus.path(store)).splitlines()
    want = [r for r in corpus.records[store] if r.has_values and (view / r.array / ".zarray").exists()]
    for record in want:
        name = Path(record.array).name
        assert any(line.lstrip(" │├└─").split("  ")[0] == name for line in drawn[1:]) or not name, (record.array, drawn)
    entries = sum(len(directories) + len(files) for _, directories, files in os.walk(view))
    assert len(output("tree", "-a", corpus.path(store)).splitlines()) == entries + 1
    assert len(output("tree", "-a", "-L", "1", corpus.path(store)).splitlines()) == len(os.listdir(view)) + 1


@pytest.mark.parametrize("name", STORES)
def test_check_finds_nothing_in_what_is_sound(name, corpus):
    if name == "n5/rust.n5":
        pytest.importorskip("zarr")
    done = run("check", corpus.path(name))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 1 and "\r" not in done.stderr


def test_check_finds_what_cannot_be_read_in_a_mount(mount):
    base, cases = data.broken()
    for store in sorted({case["store"] for case in cases if "store" in case} or {p.name for p in base.iterdir() if p.is_dir()}):
        source = base / store
        if not source.is_dir():
            continue
        view = mount(source)
        failing = False
        for here, directories, files in os.walk(view, onerror=lambda e: None):
            for name in files:
                try:
                    Path(here, name).read_bytes()
                except OSError as e:
                    failing |= e.errno != errno.ENOENT
        done = run("check", source)
        assert (done.returncode != 0) == failing, (store, done.stdout, done.stderr)
        view.stop()


def test_check_names_the_damaged_chunk_and_the_missing_ones(room):
    array = zarr.create_array(room / "a.zarr", shape=(4, 64), chunks=(1, 64), dtype="<i4", zarr_format=2)
    array[:3] = np.arange(3 * 64).reshape(3, 64) + 1
    damaged = room / "a.zarr" / "1.0"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    done = run("check", room / "a.zarr")
    assert done.returncode == CORRUPT
    lines = done.stdout.splitlines()
    assert lines[0].startswith("corrupt  ") and "1.0" in lines[0] and len(lines) == 2, lines
    assert "3 chunks" in lines[1] and "1 absent chunk stands" in lines[1], lines
    assert output("check", room / "a.zarr", "0.0").splitlines() == ["256 B in 1 file"]
    damaged.unlink()
    assert run("check", room / "a.zarr").returncode == 0
    done = run("check", "--complete", room / "a.zarr")
    assert done.returncode == NOT_FOUND
    assert [line.split()[:2] for line in done.stdout.splitlines()[:2]] == [["missing", "1.0:"], ["missing", "3.0:"]]


def test_each_chunk_of_a_damaged_shard_is_named_up_to_a_hundred(room):
    source = room / "a.zarr"
    group = zarr.create_group(source)
    for name, size in (("few", 5), ("many", 130)):
        array = group.create_array(name, shape=(2 * size, 8), chunks=(1, 8), shards=(size, 8), dtype="<i4")
        array[:] = np.arange(2 * size * 8).reshape(2 * size, 8) + 1
        shard = source / name / "c" / "1" / "0"
        content = bytearray(shard.read_bytes())
        content[-1] ^= 0xFF  # of the index's checksum
        shard.write_bytes(content)
    for done in (run("check", source), run("cp", source, room / "copy")):
        assert done.returncode == CORRUPT and "135 problems" in done.stderr
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("corrupt")]
        named = {line.split()[1].rstrip(":") for line in lines if "more files" not in line}
        assert {name for name in named if "few" in name} == {f"few/c/{i}/0" for i in range(5, 10)}
        assert len(named) == 105 and named < {f"{name}/c/{i}/0" for name in ("few", "many") for i in range(260)}
        (more,) = [line for line in lines if "more files" in line]
        assert "many/c/1/0: " in more and more.endswith("; 30 more files") and all("checksum" in line for line in lines)
    assert "few/c/6/0: few/c/1/0: " in run("cat", source, "few/c/6/0").stderr


@pytest.mark.parametrize("dialect", ["zarr2", "zarr3", "n5"])
@pytest.mark.parametrize("mode", [0o000, 0o444], ids=oct)
def test_check_does_not_take_chunks_for_absent_that_it_may_not_look_for(room, dialect, mode):
    source, values = room / "a", np.arange(16, dtype="<i4").reshape(4, 4) + 1
    if dialect == "n5":
        metadata = {"dimensions": [4, 4], "blockSize": [1, 1], "dataType": "int32", "compression": {"type": "raw"}}
        spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(source)}, "metadata": metadata}
        tensorstore.open(spec, create=True).result()[...] = values
    else:
        names = {"name": "v2", "separator": "/"} if dialect == "zarr2" else None
        array = zarr.create_array(source, shape=(4, 4), chunks=(1, 1), dtype="<i4", zarr_format=int(dialect[-1]),
                                  chunk_key_encoding=names)  # fmt: skip
        array[:] = values
    refused = source / ("c/2" if dialect == "zarr3" else "2")
    (source / ("c/0/1" if dialect == "zarr3" else "0/1")).unlink()
    room.chmod(0o755)
    refused.chmod(mode)
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.getuid() == 0 else []
    # Where an array is listed by a walk over all of it, nothing of it is known.
    may_be = (16 if dialect == "n5" else 4) if mode == 0 else 0
    absent = int(may_be < 16)
    for complete in ([], ["--complete"]):
        done = subprocess.run([*other, binary(), "check", *complete, source], capture_output=True, text=True, timeout=60)
        assert done.returncode == DENIED, (done.stdout, done.stderr)
        *lines, last = done.stdout.splitlines()
        assert any(line.startswith("denied") for line in lines), lines
        assert [int(n) for n in re.findall(r"; (\d+) absent", last)] == [1] * absent, last
        assert [int(n) for n in re.findall(r"; (\d+) may be", last)] == [may_be] * (may_be > 0), last
        assert len([line for line in lines if line.startswith("missing")]) == len(complete) * absent, lines


@pytest.mark.parametrize("place", ["", "group/a"])
def test_a_damaged_document_is_named_by_its_place(place, room):
    array = zarr.create_array(room / "s" / place, shape=(4,), chunks=(2,), dtype="<i4", zarr_format=2)
    array[:] = 1
    (room / "s" / place / ".zattrs").write_text("{")
    done = run("check", room / "s")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("corrupt")]
    assert done.returncode == CORRUPT and line.startswith(f"corrupt  {Path(place) / '.zattrs'}: .zattrs: not JSON"), line


def test_check_of_a_zip(room):
    with zipfile.ZipFile(data.SAMPLE_ZIP) as archive:
        entry = archive.getinfo(next(n for n in archive.namelist() if n.endswith("f_deflate/0.0")))
    content = bytearray(data.SAMPLE_ZIP.read_bytes())
    content[entry.header_offset + 30 + len(entry.filename) + entry.compress_size // 2] ^= 0xFF
    (room / "bad.zip").write_bytes(content)
    done = run("check", room / "bad.zip")
    assert done.returncode == CORRUPT and "f_deflate/0.0" in done.stdout, done.stdout
    assert run("check", data.SAMPLE_ZIP).returncode == 0


def test_progress_and_colour_are_for_terminals_only(corpus):
    source = corpus.path(STORES[1])
    plain = output("ls", source)
    assert "\x1b" not in plain

    def on_terminal(*arguments, **env):
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            [binary(), *arguments], stdin=follower, stdout=follower, stderr=follower, env={**os.environ, "TERM": "xterm", **env}
        )
        os.close(follower)
        seen = b""
        try:
            while part := os.read(leader, 65536):
                seen += part
        except OSError:  # the last one has closed it
            pass
        os.close(leader)
        return process.wait(60), seen

    assert on_terminal("ls", source)[1].count(b"\x1b[1;34m") == plain.count("/")
    assert b"\x1b" not in on_terminal("ls", source, NO_COLOR="1")[1]
    status, seen = on_terminal("check", source)
    assert status == 0 and b"files" in seen and b"\x1b[" in seen
    assert "\x1b" not in run("check", source).stderr


def test_stats(corpus, mount):
    view = mount(corpus.path(STORES[1]))
    for name in data.entries(view):
        (view / name).read_bytes()
    page = output("stats", view.where)
    told = view.stats()
    assert str(corpus.path(STORES[1])) in page
    assert f"{told['store']['get']} reads" in page and "errors         0" in page
    for name in told["arrays"]:
        assert name in page
    text = output("stats", "--prometheus", view.where)
    from prometheus_client.parser import text_string_to_metric_families

    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["chunkmount_decode_output_bytes"].samples[0].value == told["decode"]["bytes_out"]
    assert families["chunkmount_decode_output_bytes"].type == "counter"
    assert families["chunkmount_cache_capacity_bytes"].type == "gauge"
    for name, key in (("chunkmount_passthrough_opens", "opens"), ("chunkmount_passthrough_possible", "possible")):
        assert families[name].samples[0].value == told["passthrough"][key]
    assert families["chunkmount_passthrough_held_bytes"].type == "gauge" and "by the kernel" in page
    arrays = {sample.labels["array"]: sample.value for sample in families["chunkmount_array_output_bytes"].samples}
    assert arrays == {name: array["bytes_out"] for name, array in told["arrays"].items()}
    watching = subprocess.Popen([binary(), "stats", "--watch=0.1", view.where], stdout=subprocess.PIPE, text=True)
    assert watching.stdout.readline().strip() == ""
    assert watching.stdout.readline().startswith("source")
    view.stop()
    assert watching.wait(10) == 0
    assert watching.stdout.read().count("\nsource") >= 1


def test_sigusr1_logs_statistics(corpus, mount):
    view = mount(corpus.path(STORES[1]))
    names = [name for name in data.entries(view) if not Path(name).name.startswith(".")]
    (view / names[0]).read_bytes()
    view.signal(signal.SIGUSR1)
    end = time.monotonic() + 10
    while "errors: 0" not in view.text():
        assert time.monotonic() < end, view.text()
        time.sleep(0.02)
    assert '"misses":1' in view.text() and (view / names[0]).read_bytes()


def test_the_log_as_json(corpus, mount, room):
    source = room / "a.zarr"
    shutil.copytree(corpus.path("zarr2/compressors.zarr"), source)
    chunk = next(p for p in sorted(source.rglob("*")) if p.is_file() and not p.name.startswith("."))
    chunk.write_bytes(b"nonsense")
    view = mount(source, "--log-format", "json", "--log-file", room / "log.json", "--log-level", "warn,chunkmount::mount=info")
    with pytest.raises(OSError):
        (view / chunk.relative_to(source)).read_bytes()
    view.signal(signal.SIGUSR1)
    end = time.monotonic() + 10
    while "errors: 1" not in (room / "log.json").read_text():
        assert time.monotonic() < end
        time.sleep(0.02)
    events = [json.loads(line) for line in (room / "log.json").read_text().splitlines()]
    assert all(set(event) == {"time", "level", "target", "message"} for event in events)
    assert any(e["level"] == "warn" and str(chunk.relative_to(source)) in e["message"] for e in events)
    assert any(e["level"] == "info" and e["target"] == "chunkmount::mount" for e in events)
    assert any(e["target"] == "chunkmount::statistics" for e in events)


@pytest.mark.parametrize("archive", ["zarr3.tar.xz", "n5.tar.xz", "wkw.tar.xz"])
def test_shards_cubes_and_dialects(archive, mount, room):
    """Of each store: what `cp` writes is what the mount shows; what it cannot write is what `check` lists and a mount refuses."""
    corpus = data.stores(archive)
    listed = (corpus.base / "manifest.json").exists()
    stores = sorted(corpus.stores) if listed else sorted(p.name for p in corpus.base.iterdir() if p.is_dir())
    assert stores
    for number, store in enumerate(stores):
        view = mount(corpus.path(store))
        copy = room / f"copy{number}"
        done, checked = run("cp", corpus.path(store), copy), run("check", corpus.path(store))
        assert done.returncode == checked.returncode, (store, done.stderr, checked.stdout)
        shutil.rmtree(copy / ".chunkmount-cp", ignore_errors=True)
        for name in set(data.entries(view)) | set(data.entries(copy)):
            try:
                want = (view / name).read_bytes()
            except OSError:
                want = None
            assert (copy / name).exists() == (want is not None), (store, name)
            assert want is None or (copy / name).read_bytes() == want, (store, name)
        assert run("info", corpus.path(store)).returncode in (0, done.returncode), store
        assert run("tree", corpus.path(store)).returncode == 0, store
        view.stop()


def test_a_name_neither_commands_a_terminal_nor_forges_a_line(room, mount):
    """What is told of a damaged array whose name has control characters: one line for each problem, with the name escaped."""
    where = room / "source" / "a\x1b[31m\nforged: line"
    where.mkdir(parents=True)
    (where / ".zarray").write_text("{")
    told = [run(command, room / "source") for command in ("tree", "info", "check")]
    view = mount(room / "source")
    with pytest.raises(OSError):
        (view / where.name / ".zarray").read_bytes()
    for text in [done.stdout + done.stderr for done in told] + [view.text()]:
        assert r"a\u{1b}[31m\nforged: line" in text
        assert "\x1b" not in text and "\nforged" not in text
