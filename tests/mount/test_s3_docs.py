"""The examples of `docs/s3.md` for clusters do what they are for."""

import os
import re
import signal
import subprocess

import pytest
import yaml

from support import data
from support.mounting import binary, detach, mounted, wait_for
from support.reading import by_zarr
from test_s3 import real, small_array  # noqa: F401
from test_s3_servers import put  # noqa: F401

TEXT = (data.ROOT / "docs" / "s3.md").read_text(encoding="utf-8")


def blocks(language, word):
    """The examples in a language that have a word."""
    found = re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.M | re.S)
    return [block for block in found if word in block]


@pytest.fixture
def there(put, room, real):
    """The store of the examples, and an environment in which they find the server, and the program under test."""
    values, files = small_array()
    put("data.zarr", files)
    programs = room / "bin"
    programs.mkdir()
    (programs / "chunkmount").symlink_to(binary())
    path = f"{programs}:{os.environ['PATH']}"
    env = real.env("all", AWS_ENDPOINT_URL=real.url, TMPDIR=str(room), PATH=path, USER="somebody")
    return values, env


JOB = """
import os, pathlib, sys, time
files = sorted(pathlib.Path(sys.argv[1]).glob("[0-9]*"))
pathlib.Path("sum").write_text(str(sum(sum(memoryview(f.read_bytes()).cast("i")) for f in files)))
pathlib.Path("where").write_text(sys.argv[1])
if "WAIT" in os.environ:
    time.sleep(60)
sys.exit(int(os.environ.get("FAIL", 0)))
"""


@pytest.mark.parametrize("end", ["well", "failure", "time is up", "no mount"])
def test_the_job_of_slurm(end, there, room):
    values, env = there
    (script,) = blocks("sh", "#SBATCH --job-name")
    (room / "job.sh").write_text(script)
    (room / "analysis.py").write_text(JOB)
    env |= {"failure": {"FAIL": "3"}, "time is up": {"WAIT": "1"}, "no mount": {"AWS_SECRET_ACCESS_KEY": "wrong"}}.get(end, {})
    job = subprocess.Popen(["bash", "job.sh"], cwd=room, env=env, stderr=subprocess.PIPE, text=True)
    try:
        if end == "time is up":
            wait_for((room / "where").exists, 60, "the work is under way")
            where = (room / "where").read_text()
            assert mounted(where)
            job.send_signal(signal.SIGTERM)
        _, said = job.communicate(timeout=60)
    finally:
        job.kill()
        job.wait(10)
    if end == "no mount":
        assert job.returncode != 0 and not (room / "where").exists(), said
    else:
        assert job.returncode == {"well": 0, "failure": 3, "time is up": 143}[end], said
        assert (room / "sum").read_text() == str(values.sum())
        assert not mounted((room / "where").read_text())
    # Neither the mount point nor what uses it is left.
    assert not list(room.glob("mnt.*"))
    assert (room / "chunkmount-somebody").exists() or end == "no mount"


def test_what_is_left_of_a_job_is_cleared_away(there, room):
    values, env = there
    (script,) = blocks("sh", "findmnt")
    dead, alive = room / "dead", room / "alive"
    for where in (dead, alive):
        where.mkdir()
    ends = subprocess.Popen([binary(), "s3://bucket/data.zarr", dead, "-f"], env=env)
    stays = subprocess.Popen([binary(), "s3://bucket/data.zarr", alive, "-f"], env=env)
    try:
        wait_for(lambda: mounted(dead) and mounted(alive), 30, "both are mounted")
        ends.kill()
        ends.wait(10)
        # Only those of this test are looked at: others on this machine are not its business.
        named = script.replace("findmnt -rn -t fuse.chunkmount -o TARGET", f"findmnt -rn -t fuse.chunkmount -o TARGET | grep -F '{room}/'")
        assert named != script
        subprocess.run(["sh", "-c", named], check=True, timeout=30)
        assert not mounted(dead) and (by_zarr(alive) == values).all()
    finally:
        for process in (ends, stays):
            process.terminate()
            process.wait(20)
        detach(dead)
        detach(alive)


def containers(spec):
    return [*spec.get("initContainers", []), *spec["containers"]]


def test_the_pods_of_kubernetes(there, room):
    values, env = there
    pod, daemons = [yaml.safe_load(text) for text in blocks("yaml", "apiVersion")]
    assert (pod["kind"], daemons["kind"]) == ("Pod", "DaemonSet")
    labels = daemons["spec"]["template"]["metadata"]["labels"]
    assert daemons["spec"]["selector"]["matchLabels"] == labels
    for number, spec in enumerate([pod["spec"], daemons["spec"]["template"]["spec"]]):
        volumes = {volume["name"] for volume in spec["volumes"]}
        for container in containers(spec):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        (container,) = [one for one in containers(spec) if one["name"] == "mount"]
        assert container["securityContext"]["privileged"] and container["volumeMounts"][0]["mountPropagation"] == "Bidirectional"
        probe = (container.get("startupProbe") or container["readinessProbe"])["exec"]["command"]
        # The volume is a directory of the test.
        here = room / f"volume{number}"
        here.mkdir()

        def inside(words, here=here):
            return [re.sub(r"(?<!\w)/data\b", str(here), word) for word in words]

        command = inside(container.get("command", ["chunkmount"])) + inside(container["args"])
        for _ in range(2):
            process = subprocess.Popen(command, env=env)
            try:
                wait_for(lambda: subprocess.run(inside(probe), capture_output=True).returncode == 0, 30, "it is ready")
                assert (by_zarr(here / "mnt") == values).all()
                if "command" in container:
                    # It crashes, and is started again.
                    process.kill()
                    process.wait(10)
                    continue
                process.terminate()
                assert process.wait(20) == 0
            finally:
                process.kill()
                process.wait(10)
                if "command" not in container:
                    detach(here / "mnt")
        detach(here / "mnt")
