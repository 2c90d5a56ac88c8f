"""One file of examples -> a training part and a validation part.

Every class keeps its share, and so does every set of labels, where a set that occurs once counts
towards the rarest of its labels. What belongs together (equal texts, the questions about a context)
stays in one part, so that no validation example has been seen in training.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..errors import need
from .tasks import Example, Kind, Question, Sentence, TaskData

BINS = 10
"""The values of a regression are kept in proportion by this many classes of equal size."""
SHOWN = 10
"""Classes or tags that a note names."""


def split(task: TaskData, fraction: float, *, seed: int) -> TaskData:
    """The task with `fraction` of its training examples as validation examples, see `parted`."""
    train, validation = parted(task.kind, task.train, fraction, seed=seed)
    return replace(task, train=train, validation=validation)


def validated(task: TaskData) -> TaskData:
    """The task with notes on what its parts have in common, and on classes or tags that only one of
    them has."""
    notes, known = list(task.notes), set(map(_belongs, task.train))
    if shared := sum(_belongs(example) in known for example in task.validation):
        what = "contexts of questions" if task.kind == "answering" else "examples"
        count = f"{shared:,} of {len(task.validation):,} validation {what}"
        notes.append(f"{count} also occur in the training set. Scores are optimistic.")
    learnt = Counter(label for example in task.train for label in _labels(example))
    scored = Counter(label for example in task.validation for label in _labels(example))
    if task.kind == "tagging" and (odd := sorted(scored.keys() - learnt.keys())):
        count = sum(scored[tag] for tag in odd)
        note = f"{count:,} validation words have tags that no training word has ({first(odd)})"
        notes.append(f"{note}. They count as wrong.")
    elif task.kind in ("classification", "multilabel") and (odd := learnt.keys() - scored.keys()):
        names = [task.labels[int(label)] for label in sorted(odd)]
        note = f"no validation example has the class {first(names)}"
        notes.append(f"{note}: no score shows how it is learnt")
    return replace(task, notes=tuple(notes))


def _labels(example: Any) -> tuple[Any, ...]:
    labels = example.tags if isinstance(example, Sentence) else getattr(example, "label", ())
    return labels if isinstance(labels, tuple) else (labels,)


def first(names: Sequence[str], most: int = SHOWN) -> str:
    """The first of many names."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def parted(
    kind: Kind, examples: Sequence[Any], fraction: float, *, seed: int, every_class: bool = False
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The examples that stay, and `fraction` of them that are held out, the same ones for the same
    examples and seed.

    Args:
        every_class: Whether each class is to be held out, as far as the examples suffice.

    Raises:
        UserError: A part would be empty.
    """
    strata = _grouped(kind, examples)
    groups = sorted(itertools.chain.from_iterable(strata))  # in the order of the examples
    # A class that training does not show cannot be learnt; a set of labels that others show, or a
    # range of values, can be.
    stays = int(kind not in ("multilabel", "regression"))
    rng = random.Random(seed)
    chosen: set[int] = set()
    spare = 0.0  # the remainders of rounding, so that many small classes give their share together
    for members in strata:
        wanted = fraction * len(members) + spare
        count = min(max(round(wanted), 0), len(members) - stays)
        # A class that is too small to be cut does not make others give more than their share.
        spare = min(wanted - count, 0.5)
        for group in rng.sample(members, count):
            chosen.update(group)
    # With more classes than there is room for, the part would become much larger than was asked.
    if every_class and len(strata) <= fraction * len(groups):
        # Without one of each class, an area under a curve does not exist.
        for members in strata:
            if len(members) > 1 and not any(chosen.issuperset(group) for group in members):
                chosen.update(rng.choice(members))
    if kind == "multilabel":
        _show_every_label(examples, groups, chosen)
    stay = tuple(e for k, e in enumerate(examples) if k not in chosen)
    held = tuple(e for k, e in enumerate(examples) if k in chosen)
    fact = f"a share of {fraction:g} of {len(examples):,} examples leaves a part empty: equal texts"
    need(bool(stay and held), f"{fact} and contexts stay together", "give more different ones")
    return stay, held


def _grouped(kind: Kind, examples: Sequence[Any]) -> list[list[list[int]]]:
    """The numbers of the examples: classes of groups that belong together."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for number, example in enumerate(examples):
        groups[_belongs(example)].append(number)
    strata: dict[Hashable, list[list[int]]] = defaultdict(list)
    stratum = _strata(kind, examples)
    for group in groups.values():
        strata[stratum[group[0]]].append(group)
    return list(strata.values())


def _show_every_label(
    examples: Sequence[Any], groups: Iterable[list[int]], chosen: set[int]
) -> None:
    """Takes out of the chosen examples those with a label that no other example shows in
    training."""
    shown = {label for k, e in enumerate(examples) if k not in chosen for label in e.label}
    for group in groups:
        labels = {label for k in group for label in examples[k].label}
        if chosen.issuperset(group) and not labels <= shown:
            chosen.difference_update(group)
            shown |= labels


def _belongs(example: Example | Sentence | Question) -> Hashable:
    match example:
        case Example():
            return example.text, example.pair
        case Sentence():
            return example.words
        case _:
            return example.context


def _strata(kind: Kind, examples: Sequence[Any]) -> Sequence[Hashable]:
    """The class of each example that must keep its share. A set of labels that occurs once counts
    as its rarest label, because it could not be cut."""
    if kind in ("tagging", "answering"):
        return [None] * len(examples)
    labels = [example.label for example in examples]
    if kind == "regression":
        order = sorted(range(len(labels)), key=labels.__getitem__)
        rank = {k: place for place, k in enumerate(order)}
        return [rank[k] * BINS // len(labels) for k in range(len(labels))]
    if kind == "classification":
        return labels
    often = Counter(labels)
    shown = Counter(itertools.chain.from_iterable(labels))
    return [
        each if often[each] > 1 else min(each, key=shown.__getitem__, default=None)
        for each in labels
    ]
