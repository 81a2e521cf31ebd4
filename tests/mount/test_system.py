"""Mounting as the system does it: mount(8), fstab, service managers; and the package. Needs root, as mount(8) does."""

import gzip
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from support import data
from support.checks import check_store
from support.mounting import BACKGROUND, binary, detach, mounted

STORE = "zarr2/compressors.zarr"
HELPER = Path("/sbin/mount.chunkmount")
EXAMPLES = data.ROOT / "examples" / "systemd"


def run(*command, **settings):
    command = [str(part) for part in command]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, **settings)


@pytest.fixture
def helper():
    """The helper of mount(8), as a link to the program; the package's own, where that is installed, comes back."""
    kept = os.readlink(HELPER) if HELPER.is_symlink() else None
    if kept:
        HELPER.unlink()
    HELPER.symlink_to(binary())
    yield
    HELPER.unlink()
    if kept:
        HELPER.symlink_to(kept)


@pytest.fixture
def where(room):
    path = room / "mnt"
    path.mkdir()
    yield path
    detach(path)


def unmounted(where):
    assert run("umount", where).returncode == 0
    assert mounted(where) is None


def test_mount_by_type(helper, where, corpus):
    options = "ro,nosuid,nodev,noexec,noauto,_netdev,user,x-systemd.automount,x-y=z,comment=c,nofail,relatime,defaults"
    options += f",log_file={where}{BACKGROUND}"
    done = run("mount", "-t", "chunkmount", "-o", options, corpus.path(STORE), where)
    assert done.returncode == 0, done.stderr
    assert mounted(where)[0] == "fuse.chunkmount"
    check_store(corpus, STORE, where)
    unmounted(where)


def test_options_of_the_program_and_of_files(helper, where, corpus):
    options = f"allow_other,uid=1234,gid=2345,zarr=3,cache_size=64M,log_file={where}{BACKGROUND}"
    done = run("mount", "-t", "chunkmount", "-o", options, corpus.path(STORE), where)
    assert done.returncode == 0, done.stderr
    assert "allow_other" in mounted(where)[2]
    told = os.stat(where / "zarr.json")
    assert (told.st_uid, told.st_gid) == (1234, 2345)
    unmounted(where)


def test_fstab(helper, where, corpus, room):
    (room / "fstab").write_text(f"{corpus.path(STORE)} {where} chunkmount ro,noauto,fill_missing,x-systemd.idle-timeout=60 0 0\n")
    done = run("mount", "-T", room / "fstab", where)
    assert done.returncode == 0, done.stderr
    check_store(corpus, STORE, where)
    unmounted(where)


def test_mount_fuse_calls_the_program_by_name(where, corpus, room):
    (room / "chunkmount").symlink_to(binary())
    path = f"{room}:{os.environ['PATH']}"
    helper = shutil.which("mount.fuse3", path="/sbin:/usr/sbin")
    assert helper, "mount.fuse3 comes with fuse3"
    done = run(helper, f"chunkmount#{corpus.path(STORE)}", where, "-o", "ro,zarr=3", env={**os.environ, "PATH": path})
    assert done.returncode == 0, done.stderr
    assert (where / "zarr.json").exists()
    unmounted(where)


def test_the_helper_refuses_as_the_program_does(helper, where, corpus):
    for options, status in (("nothing", 2), ("zarr=4", 2), ("zarr", 2), ("allow_other=1", 2)):
        done = run(HELPER, corpus.path(STORE), where, "-o", options)
        assert done.returncode == status and options.split("=")[0] in done.stderr, (options, done.stderr)
    assert run(HELPER, "/nothing/there", where).returncode == 3
    assert run("mount", "-t", "chunkmount", "/nothing/there", where).returncode != 0
    assert run(HELPER, corpus.path(STORE), where, "-sf", "-o", "rw,nothing").returncode == 0
    assert mounted(where) is None


def test_options_after_o_are_the_flags(corpus, mount):
    by_flags = mount(corpus.path(STORE), "--zarr", "3", "--fill-missing")
    by_options = mount(corpus.path(STORE), "-o", "ro,zarr=3", "-o", "fill_missing,noatime")
    assert data.entries(by_flags) == data.entries(by_options)
    done = run(binary(), "-o", "daemon", corpus.path(STORE), "x")
    assert done.returncode == 2 and "daemon" in done.stderr


@pytest.mark.parametrize("abstract", [False, True])
def test_readiness_is_told_to_the_service_manager(abstract, corpus, mount, room):
    name = f"\0chunkmount-{os.getpid()}" if abstract else str(room / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name)
        manager.settimeout(30)
        view = mount(corpus.path(STORE), env={**os.environ, "NOTIFY_SOCKET": name.replace("\0", "@")})
        assert manager.recv(100) == b"READY=1"
        assert os.listdir(view)  # it answers
        view.stop()
        assert manager.recv(100) == b"STOPPING=1"


def test_units(helper, where, corpus, room):
    """The units are sound to systemd, and what the mount unit says mounts when mount(8) is told the same."""
    units = room / "units"
    units.mkdir()
    for unit in EXAMPLES.iterdir():
        text = unit.read_text().replace("/usr/bin/chunkmount", str(binary()))
        (units / unit.name.replace("@.", "@volume.")).write_text(text)
    if shutil.which("systemd-analyze"):
        done = run("systemd-analyze", "verify", "--man=no", *sorted(units.iterdir()))
        about = [line for line in done.stderr.splitlines() if "volume" in line]
        assert done.returncode == 0 and not about, done.stderr
    text = (EXAMPLES / "srv-volume.mount").read_text()
    say = dict(re.findall(r"^(\w+)=(.*)$", text, re.M))
    done = run("mount", "-t", say["Type"], "-o", say["Options"], corpus.path(STORE), where)
    assert done.returncode == 0, done.stderr
    unmounted(where)


def test_package(where, corpus, room):
    """The package is built, installed, used and removed."""
    if not shutil.which("dpkg-deb"):
        return
    installed = run("dpkg", "-s", "chunkmount").returncode == 0
    assert not installed and not HELPER.exists(), "a chunkmount is installed already"
    built = run(data.ROOT / "scripts" / "package", "--no-build", env={**os.environ, "CHUNKMOUNT_BIN": str(binary())})
    assert built.returncode == 0, built.stderr
    package = data.ROOT / built.stdout.strip()
    held = run("dpkg-deb", "-c", package).stdout
    for path in (
        "usr/bin/chunkmount",
        "usr/sbin/mount.chunkmount",
        "usr/share/man/man1/chunkmount.1.gz",
        "usr/share/bash-completion/completions/chunkmount",
        "usr/share/zsh/vendor-completions/_chunkmount",
        "usr/share/fish/vendor_completions.d/chunkmount.fish",
        "usr/lib/systemd/system/chunkmount@.service",
        "usr/share/doc/chunkmount/copyright",
        "usr/share/doc/chunkmount/licences.gz",
        "usr/share/doc/chunkmount/README.md",
    ):
        assert f" ./{path}" in held, path
    texts = gzip.decompress((data.ROOT / "target/package/root/usr/share/doc/chunkmount/licences.gz").read_bytes()).decode(errors="replace")
    for words in ("zstd", "Permission is hereby granted", "Redistributions in binary form", "Apache License"):
        assert words in texts, words
    done = run("dpkg", "--no-triggers", "-i", package)
    try:
        assert done.returncode == 0, done.stderr
        assert run("chunkmount", "-V").stdout.startswith("chunkmount ")
        done = run("mount", "-t", "chunkmount", corpus.path(STORE), where)
        assert done.returncode == 0, done.stderr
        check_store(corpus, STORE, where)
        unmounted(where)
    finally:
        assert run("dpkg", "--no-triggers", "-P", "chunkmount").returncode == 0
    assert not HELPER.exists() and not HELPER.is_symlink()


def test_the_manual_page_and_the_completions(room):
    page = run(binary(), "generate", "man")
    assert page.returncode == 0
    (room / "chunkmount.1").write_text(page.stdout)
    # An option is a tagged paragraph: its name, its text.
    tagged = re.findall(r"^\.TP\n(.*)\n(.*)$", page.stdout, re.M)
    options = [(name, text) for name, text in tagged if r"\-\-" in name]
    assert len(options) > 100
    assert all(re.match(r"[A-Z]", text) for _, text in options), [name for name, text in options if not re.match(r"[A-Z]", text)]
    if shutil.which("groff"):
        done = run("groff", "-man", "-ww", "-z", "-Tutf8", room / "chunkmount.1")
        assert done.returncode == 0 and not done.stderr, done.stderr
    if shutil.which("man"):
        shown = run("man", "-l", room / "chunkmount.1", env={**os.environ, "MANPAGER": "cat", "MANWIDTH": "100"}).stdout
        for word in ("--fill-missing", "--prometheus", "EXIT STATUS", "mount(8)", "chunkmount -u MOUNTPOINT"):
            assert word in shown, word
    completions = {shell: run(binary(), "generate", shell).stdout for shell in ("bash", "zsh", "fish")}
    for shell, check in (("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])):
        (room / shell).write_text(completions[shell])
        assert "fill-missing" in completions[shell]
        if shutil.which(check[0]):
            done = run(*check, room / shell)
            assert done.returncode == 0 and not done.stderr, done.stderr
    words = "COMP_WORDS=(chunkmount check --comp); COMP_CWORD=2; _chunkmount chunkmount --comp check; echo ${COMPREPLY[@]}"
    done = run("bash", "-c", f"source {room / 'bash'}; {words}")
    assert done.stdout.split() == ["--complete"], done
    words = "COMP_WORDS=(chunkmount ''); COMP_CWORD=1; _chunkmount chunkmount '' chunkmount; echo ${COMPREPLY[@]}"
    assert {"ls", "tree", "cat", "info", "cp", "check", "stats"} <= set(run("bash", "-c", f"source {room / 'bash'}; {words}").stdout.split())
