"""The end of a mount where others have mounted as well: below it, over it, over a directory above, or it once more."""

import os
import signal
import subprocess

import pytest

from support.mounting import mounted
from test_lifecycle import STORE, USAGE, chunkmount, first_chunk, refused


@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts a tmpfs")
@pytest.mark.parametrize("how", ["umount", "signal"])
def test_what_was_mounted_below_stays(how, corpus, mount, room):
    """The end of a mount must not take the one that it covered with it."""
    where = room / "both"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "below", where], check=True)
    upper = mount(corpus.path(STORE), where=where)
    if how == "umount":
        subprocess.run(["umount", where], check=True)
    else:
        upper.signal(signal.SIGTERM)
    assert upper.process.wait(10) == 0
    assert mounted(where)[:2] == ("tmpfs", "below")


def test_what_is_mounted_above_stays(corpus, mount, room):
    """Nor the one that covers it, which is somebody else's."""
    lower = mount(corpus.path(STORE))
    subprocess.run(["mount", "-t", "tmpfs", "above", lower.where], check=True)
    lower.signal(signal.SIGTERM)
    assert lower.process.wait(10) == 0
    assert mounted(lower.where)[:2] == ("tmpfs", "above") and str(lower.where) in lower.text()
    subprocess.run(["umount", lower.where], check=True)
    # What is dead below is healed as any.
    assert first_chunk(mount(corpus.path(STORE), where=lower.where)).read_bytes()


@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts a tmpfs")
@pytest.mark.parametrize("cover", ["an earlier mount", "a directory above"])
def test_what_hides_a_mount_stays(cover, corpus, mount, room):
    """A mount that was made before ours and moved over it, and one over the directory that ours is in."""
    base = room / "base"
    (base / "mnt").mkdir(parents=True)
    # Only a private mount can be moved.
    subprocess.run(["mount", "--bind", base, base], check=True)
    subprocess.run(["mount", "--make-private", base], check=True)
    (base / "else").mkdir()
    above = base / "mnt" if cover == "an earlier mount" else base
    if above != base:
        subprocess.run(["mount", "-t", "tmpfs", "else", base / "else"], check=True)
        (base / "else" / "precious").write_text("still here")
    lower = mount(corpus.path(STORE), where=base / "mnt")
    if above != base:
        subprocess.run(["mount", "--move", base / "else", above], check=True)
    else:
        subprocess.run(["mount", "-t", "tmpfs", "else", above], check=True)
        (above / "precious").write_text("still here")
    try:
        refused(chunkmount("-u", base / "mnt"), USAGE, "mnt")
        lower.signal(signal.SIGTERM)
        assert lower.process.wait(10) == 0
        assert (above / "precious").read_text() == "still here"
        assert f"{lower.where}: something else is mounted over" in lower.text()
    finally:
        subprocess.run(["umount", above])
    # What is dead below is healed as any.
    assert first_chunk(mount(corpus.path(STORE), where=base / "mnt")).read_bytes()


@pytest.mark.skipif(os.getuid() != 0, reason="only root binds a mount")
def test_a_mount_that_is_bound_over_itself_ends_whole(corpus, mount):
    view = mount(corpus.path(STORE))
    subprocess.run(["mount", "--bind", view, view], check=True)
    view.signal(signal.SIGTERM)
    assert view.process.wait(10) == 0
    assert mounted(view.where) is None and not view.text()


def test_a_mount_whose_place_was_renamed(corpus, mount, room):
    (room / "old").mkdir()
    view = mount(corpus.path(STORE), where=room / "old" / "mnt")
    (room / "old").rename(room / "new")
    assert mounted(room / "new" / "mnt")
    view.signal(signal.SIGTERM)
    assert view.process.wait(10) == 0
    assert not mounted(room / "new" / "mnt") and not mounted(room / "old" / "mnt")
