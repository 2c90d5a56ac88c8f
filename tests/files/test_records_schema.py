"""The checker: a value as its dataclass, or the place and what is needed there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from electrify.oldfiles.schema import Count, SchemaError, check


@dataclass(frozen=True)
class Inner:
    size: Count
    hash: str = ""


@dataclass(frozen=True)
class Outer:
    name: str
    kind: Literal["a", "b"]
    inner: Inner
    counts: dict[str, float] = field(default_factory=dict)
    rows: list[Inner] = field(default_factory=list)
    ids: tuple[int, ...] = ()
    pair: tuple[float, float] | None = None
    number: Count = 0
    flag: bool = False
    anything: Any = None


GOOD: dict[str, Any] = {"name": "a.bin", "kind": "a", "inner": {"size": 3}}


def test_values_of_their_kind() -> None:
    found = check(
        Outer,
        GOOD
        | {
            "ids": [1, 2],
            "pair": [1, 2.5],
            "counts": {"x": 1},
            "rows": [{"size": 1}],
            "flag": True,
        },
        "f.json",
    )
    assert found == Outer("a.bin", "a", Inner(3), {"x": 1}, [Inner(1)], (1, 2), (1, 2.5), flag=True)


ODD = [
    ({"counts": {"train": "x"}}, "f.json: counts.train is 'x', a number is needed"),
    ({"counts": {"train": True}}, "counts.train is True, a number is needed"),
    ({"counts": {"train": float("nan")}}, "counts.train is nan, a number is needed"),
    ({"counts": []}, "counts is [], an object is needed"),
    (
        {"inner": {"size": 10**30}},
        "inner.size is 1000000000000000000000000000000, an integer from 0 is needed",
    ),
    ({"inner": {}}, "inner.size is missing"),
    ({"rows": [{"size": 1}, 5]}, "rows[1] is 5, an object is needed"),
    ({"ids": [1, "2"]}, "ids[1] is '2', an integer is needed"),
    ({"pair": [1]}, "pair is [1], a list of 2 is needed"),
    ({"number": -1}, "number is -1, an integer from 0 is needed"),
    ({"number": 1.5}, "number is 1.5, an integer from 0 is needed"),
    ({"flag": 1}, "flag is 1, true or false is needed"),
    ({"kind": "c"}, "kind is 'c', 'a' or 'b' is needed"),
    ({"new": 1}, "new is not known here"),
]


@pytest.mark.parametrize(("fields", "says"), ODD, ids=[says for _, says in ODD])
def test_values_of_another_kind(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(SchemaError) as e:
        check(Outer, GOOD | fields, "f.json")
    assert says in str(e.value)


def test_further_fields_and_other_things() -> None:
    assert check(Outer, GOOD | {"new": 1}, "f.json", more=True).name == "a.bin"
    for value in (None, 5, "x", []):
        with pytest.raises(SchemaError, match="the whole is"):
            check(Outer, value, "f.json", more=True)
    with pytest.raises(SchemaError) as e:
        check(Outer, GOOD | {"x" * 10**5: 1}, "f.json")
    assert len(str(e.value)) < 300
