"""Links and mounts in a source: out of it, to other file systems, and into the mount itself."""

import errno
import os
import shutil
import subprocess

import pytest

from support.checks import check_array, check_store


def test_a_link_out_of_the_source_is_followed_only_on_request(corpus, mount, room):
    shutil.copytree(corpus.path("n5/rust.n5"), room / "elsewhere" / "inner.n5")
    shutil.copytree(corpus.path("zarr2/fills.zarr"), room / "source")
    (room / "secret").write_text("secret")
    (room / "source" / "secret").symlink_to(room / "secret")
    (room / "source" / "linked").symlink_to(room / "elsewhere" / "inner.n5")
    closed = mount(room / "source")
    with pytest.raises(OSError):
        (closed / "secret").read_bytes()
    check_store(corpus, "zarr2/fills.zarr", closed)
    opened = mount(room / "source", "--follow-symlinks")
    assert (opened / "secret").read_text() == "secret"
    for record in corpus.records["n5/rust.n5"]:
        if record.has_values:
            assert not check_array(record, opened / "linked" / record.array)


@pytest.mark.parametrize("options", [(), ("--follow-symlinks",)])
def test_links_into_the_mount_itself(options, corpus, mount, room):
    """Whoever looks one up would wait for a lookup that waits for the first, in the kernel, where no signal ends it."""
    source, where = room / "source", room / "view"
    shutil.copytree(corpus.path("zarr2/fills.zarr"), source / "data")
    where.mkdir()
    places = [source / "g" / str(i) for i in range(20)]
    for i, place in enumerate(places):
        place.mkdir(parents=True)
        (place / "link").symlink_to(where / "g" / str((i + 1) % len(places)))
        (place / "way").symlink_to("link/link")
        (place / "up").symlink_to(os.path.relpath(where, place) + "/data")
    view = mount(source, *options, where=where)
    readers = [subprocess.Popen(["ls", "-lL", view / "g" / place.name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
               for place in places]
    for reader in readers:
        out, err = reader.communicate(timeout=60)
        assert reader.returncode and err.count("Input/output error") == 3, (out, err)
    assert sorted(os.listdir(view / "g" / "7")) == ["link", "up", "way"]
    for path in ("link", "way", "link/link", "up/.zgroup"):
        with pytest.raises(OSError) as e:
            (view / "g" / "7" / path).read_bytes()
        assert e.value.errno in (errno.EIO, errno.ENOTDIR), path
    check_store(corpus, "zarr2/fills.zarr", view / "data")


@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts a file system")
def test_other_file_systems_in_the_source(corpus, mount, room):
    other, source = room / "other", room / "source"
    other.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "other", other], check=True)
    try:
        for name in ("a", "b", "c"):
            shutil.copytree(corpus.path("n5/rust.n5"), other / name)
        shutil.copytree(corpus.path("zarr2/fills.zarr"), source)
        (source / "mounted").mkdir()
        subprocess.run(["mount", "--bind", other / "a", source / "mounted"], check=True)
        (source / "linked").symlink_to(other / "b")
        (source / "up").symlink_to("../other/c")
        view = mount(source, "--follow-symlinks")
        for record in corpus.records["n5/rust.n5"]:
            if record.has_values:
                for name in ("mounted", "linked", "up"):
                    assert not check_array(record, view / name / record.array)
        view.stop()
    finally:
        subprocess.run(["umount", source / "mounted"], check=False)
        subprocess.run(["umount", "-l", other], check=True)
