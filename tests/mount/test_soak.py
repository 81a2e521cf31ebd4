"""Two minutes of the soak (`scripts/soak` runs it for an hour): readers, faults and signals at once, and daemons that stay flat."""

import pytest

from support.soak import Soak


@pytest.mark.timeout(400)
def test_soak(room):
    said = []
    problems = Soak(room, minutes=2, say=said.append).run()
    print("\n".join(said))
    assert not problems, "\n".join(problems)
