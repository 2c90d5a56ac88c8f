"""What kind of network a folder claims to hold: its class, and the head that its weights belong
to."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from ..architectures import exported_as
from ..architectures.architecture import Architecture
from .findings import Finding, warning
from .weights import Header

CONFIG = "config.json"
SAVE_HEAD = (
    "Save it from the class that it was trained in (`electrify export`), or the head is silently "
    "drawn at random whenever it is loaded."
)
PARTS = {
    "binary": "discriminator",
    "token": "generator",
}  # the name that a run gives to a network with such a head


def architecture(config: dict[str, Any]) -> str:
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""


def part_of(config: dict[str, Any]) -> str | None:
    """`discriminator` or `generator`, judged by the class; None if it cannot be told."""
    said = architecture(config)
    known = exported_as(str(config.get("model_type")))
    classes = known.for_classes([said]).classes if known else {}
    kinds = [kind for kind, name in classes.items() if name == said]
    return PARTS[kinds[0]] if kinds else None


def class_with_head(config: dict[str, Any], have: Header) -> Any:
    """Our own class that reads the weights, if the library has none for their head and the
    configuration says which head it is: a head that detects by its class, a mask decoder by its
    name; else None.
    """
    said = architecture(config)
    known = exported_as(str(config.get("model_type")))
    if known and said == known.classes["token"]:
        decoding = known.for_config(config)
        return decoding.network_class(said)
    known = known and known.for_classes([said])
    if known is None or said != known.classes["binary"]:
        return None
    prefix = known.head_prefixes["binary"]
    return known.network_class(said) if any(n.startswith(prefix) for n in have) else None


def prefixes_of(known: Architecture, said: str) -> dict[str, str]:
    """How the names of a head's weights begin in each class of an architecture."""
    return {
        one.classes[kind]: prefix
        for one in (known, known.for_classes([said]))
        for kind, prefix in one.head_prefixes.items()
    }


def heads(said: str, model_type: str, have: Header, wanted: Collection[str]) -> Iterator[Finding]:
    """Which of an architecture's networks it is, by its head. wanted: the names of the weights of
    the class `said`, which may be those of one of our heads."""
    known = exported_as(model_type)
    if known is None:
        return
    there = [
        name
        for name, prefix in prefixes_of(known, said).items()
        if any(n.startswith(prefix) for n in have)
        and (name == said or not any(n.startswith(prefix) for n in wanted))
    ]
    family = known.classes["token"].partition("For")[0]
    if there and said and said not in there and said.startswith(family):
        fact = f"the weights have the head of {there[0]} and {CONFIG} says {said}"
        yield warning(
            "architecture",
            fact,
            (
                f'Set "architectures": ["{there[0]}"] in {CONFIG}: a program that loads it by that '
                "name would leave the head out, or draw one at random."
            ),
        )
    elif said == f"{family}Model" and said not in there:
        without = " or ".join(
            prefix.rstrip(".") for prefix in reversed(known.head_prefixes.values())
        )
        fact = f"the folder holds a bare encoder ({said}), without {without}"
        yield warning(
            "no-head",
            fact,
            (
                "Enough to fine-tune. For detecting, or for going on with replaced token "
                f"detection: {SAVE_HEAD[0].lower()}{SAVE_HEAD[1:]}"
            ),
        )
