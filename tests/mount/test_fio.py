"""fio, which judges file systems: blocks that it has written, with their place and checksum in each, are read through a mount."""

import gzip
import json
import subprocess

import pytest

SIZE = 1 << 20


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Four chunks of bytes, as they are and compressed. Each block of 4 KiB says where in its file it lies, with a checksum."""
    root = tmp_path_factory.mktemp("fio")
    for number in range(4):
        written = root / f"written{number}"
        fio("--rw=write", "--do_verify=0", f"--filename={written}", f"--size={SIZE}", "--bs=4k", f"--randseed={number}")
        for name, compressor in (("plain", None), ("gzip", {"id": "gzip", "level": 1})):
            array = root / "source" / name
            array.mkdir(parents=True, exist_ok=True)
            document = {"zarr_format": 2, "shape": [4 * SIZE], "chunks": [SIZE], "dtype": "|u1", "fill_value": 0, "order": "C",
                        "filters": None, "compressor": compressor}  # fmt: skip
            (array / ".zarray").write_text(json.dumps(document))
            content = written.read_bytes()
            (array / str(number)).write_bytes(gzip.compress(content, 1) if compressor else content)
    return root / "source"


def fio(*options):
    command = ["fio", "--name=job", "--verify_state_save=0", "--verify=crc32c", "--verify_fatal=1", "--output-format=json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    return [job for job in json.loads(done.stdout[done.stdout.index("{") :])["jobs"]]


WAYS = {
    "in order": ["--rw=read", "--ioengine=psync"],
    "at random": ["--rw=randread", "--ioengine=psync"],
    "mapped": ["--rw=randread", "--ioengine=mmap"],
    "past the page cache": ["--rw=randread", "--ioengine=psync", "--direct=1"],
    "many at a time": ["--rw=randread", "--ioengine=libaio", "--direct=1", "--iodepth=16"],
    "in vectors": ["--rw=read", "--ioengine=pvsync2"],
}


@pytest.mark.parametrize("array", ["plain", "gzip"])
def test_blocks_are_where_fio_put_them(array, source, mount):
    view = mount(source)
    for way, options in WAYS.items():
        files = ":".join(str(view / array / str(number)) for number in range(4))
        jobs = fio("--readonly", f"--filename={files}", f"--size={4 * SIZE}", "--bs=4k", *options)
        assert all(job["error"] == 0 and job["read"]["io_bytes"] == 4 * SIZE for job in jobs), way


def test_fio_notices_a_damaged_block(source, mount, room):
    """The judge is awake."""
    import shutil

    shutil.copytree(source / "plain", room / "source")
    content = bytearray((room / "source" / "2").read_bytes())
    content[700_000] ^= 1
    (room / "source" / "2").write_bytes(content)
    view = mount(room / "source")
    with pytest.raises(AssertionError, match="verify|checksum|crc"):
        fio("--readonly", f"--filename={view / '2'}", f"--size={SIZE}", "--bs=4k", *WAYS["in order"])
