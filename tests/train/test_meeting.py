"""Processes that meet over a store full of what earlier attempts have left."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch.distributed as td

from electrify.train.rendezvous import agree


@pytest.fixture
def store() -> td.Store:
    return td.HashStore()


@pytest.mark.parametrize("size", [1, 2, 5])
def test_all_agree_on_a_new_name_every_time(store: td.Store, size: int) -> None:
    names = []
    with ThreadPoolExecutor(size) as threads:
        for _ in range(4):
            found = set(
                threads.map(
                    lambda rank: agree(store, rank=rank, size=size, timeout_s=30), range(size)
                )
            )
            assert len(found) == 1
            names += found
    assert len(set(names)) == 4


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_whoever_does_not_come_is_not_waited_for_for_ever(store: td.Store, missing: int) -> None:
    """What it left in an earlier attempt is not taken for it; and the next attempt works."""
    with ThreadPoolExecutor(3) as threads:
        first = set(
            threads.map(lambda rank: agree(store, rank=rank, size=3, timeout_s=30), range(3))
        )
        waiting = [
            threads.submit(agree, store, rank=rank, size=3, timeout_s=0.5)
            for rank in range(3)
            if rank != missing
        ]
        for future in waiting:
            with pytest.raises(RuntimeError, match="not all 3 processes came within"):
                future.result()
        again = set(
            threads.map(lambda rank: agree(store, rank=rank, size=3, timeout_s=30), range(3))
        )
    assert len(again) == 1
    assert again != first
