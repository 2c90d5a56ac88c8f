"""Worker processes: order, errors, and that nothing hangs when one of them dies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from electrify.errors import UserError
from electrify.text.pool import Workers


def test_results_come_in_the_order_of_the_tasks_and_tasks_are_drawn_late() -> None:
    drawn = [0]

    def tasks() -> Iterator[int]:
        for i in range(40):
            drawn[0] += 1
            yield i if i not in (13, 14, 15) else 0

    with Workers(2, module="pool_jobs", argument=10) as pool:
        results = pool.map(tasks())
        assert next(results) == 0
        assert drawn[0] <= 2 * pool.count + 1
        assert list(results) == [10 * i if i not in (13, 14, 15) else 0 for i in range(1, 40)]


@pytest.mark.parametrize(
    ("task", "kind", "message"),
    [(13, UserError, "thirteen is bad"), (14, RuntimeError, "ZeroDivisionError: our fault"), (15, UserError, r"ended by itself \(status -9\)")],
)
@pytest.mark.timeout(60)
def test_an_error_ends_the_map(task: int, kind: type[Exception], message: str) -> None:
    pool = Workers(1, module="pool_jobs", argument=10)
    with pytest.raises(kind, match=message), pool:
        list(pool.map([1, 2, task, 3, 4, 5]))
    assert all(process.poll() is not None for process in pool._processes)
