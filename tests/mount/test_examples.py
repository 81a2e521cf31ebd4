"""The examples of `docs/examples.md` are run as they are written, and say what is written below them."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from support import data
from support.mounting import binary

TEXT = (data.ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"\*\*([^*]+)\.\*\*[^`]*(?:`[^`\n]+`[^`]*)*```(\w+)\n((?:(?!```).)*)```\n+```text\n(.*?)```", TEXT, re.S)
PROGRAMS = {
    "sh": ["bash", "-euc"],
    "python": [sys.executable, "-W", "ignore", "-c"],
    "r": ["Rscript", "-e"],
    "matlab": ["octave-cli", "--no-init-file", "--eval"],
}
# Octave takes a quarter of a gigabyte, so that scripts/setup does not install it; the page says so.
HERE = [e for e in EXAMPLES if e[1] != "matlab" or shutil.which("octave-cli")]


def test_all_examples_are_found():
    assert len(EXAMPLES) == TEXT.count("```text") >= 10


@pytest.mark.parametrize("name,language,code,want", HERE, ids=[e[0] for e in HERE])
def test_example(name, language, code, want, mount, room):
    mount(data.SAMPLE_ZIP, where=room / "mnt")
    (room / "tests").symlink_to(data.ROOT / "tests")
    (room / "chunkmount").symlink_to(binary())
    environment = {**os.environ, "PATH": f"{room}:{os.environ['PATH']}"}
    done = subprocess.run([*PROGRAMS[language], code], cwd=room, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout == want
