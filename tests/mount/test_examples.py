"""The examples of `docs/examples.md` are run as they are written, and say what is written below them."""

import os
import re
import subprocess
import sys

import pytest

from support import data
from support.mounting import binary

TEXT = (data.ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"\*\*(.+?)\.\*\*.*?```(sh|python)\n(.*?)```\n+```text\n(.*?)```", TEXT, re.S)


def test_all_examples_are_found():
    assert len(EXAMPLES) == TEXT.count("```text") >= 7


@pytest.mark.parametrize("name,language,code,want", EXAMPLES, ids=[e[0] for e in EXAMPLES])
def test_example(name, language, code, want, mount, room):
    mount(data.SAMPLE_ZIP, where=room / "mnt")
    (room / "tests").symlink_to(data.ROOT / "tests")
    (room / "chunkmount").symlink_to(binary())
    command = [sys.executable, "-W", "ignore", "-c", code] if language == "python" else ["bash", "-euc", code]
    environment = {**os.environ, "PATH": f"{room}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=room, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout == want
