"""Stores that third-party writers write during the test: other shapes, types, codecs and values in each run.

The seed is printed; CHUNKMOUNT_SEED repeats a run.
"""

import os
import random

import pytest

from support import data
from support.checks import check_groups, check_store

SEED = int(os.environ.get("CHUNKMOUNT_SEED") or random.SystemRandom().randrange(1 << 31))


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    return data.freshly_written(tmp_path_factory.mktemp("fresh") / "stores", SEED)


def test_values_and_attributes_of_fresh_stores(fresh, mount, record_property):
    record_property("seed", SEED)
    problems = []
    assert len(fresh.stores) > 8
    for store in fresh.stores:
        view = mount(fresh.path(store))
        for check in (check_store, check_groups):
            try:
                check(fresh, store, view)
            except AssertionError as problem:
                problems.append(str(problem))
    assert not problems, f"CHUNKMOUNT_SEED={SEED}\n" + "\n".join(problems)
