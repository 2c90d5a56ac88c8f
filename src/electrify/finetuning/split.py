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

from ..errors import UserError
from .tasks import Example, Kind, Question, Sentence, TaskData

BINS = 10
"""The values of a regression are kept in proportion by this many classes of equal size."""
FEW = 0.1
"""Share of distinct texts below which a note says so."""
VALIDATION = "--validation-fraction"


def split(task: TaskData, fraction: float, *, seed: int) -> TaskData:
    """The task with `fraction` of its training examples as validation examples, see `parted`."""
    parts = parted(task.kind, task.train, fraction, seed=seed, flag=VALIDATION)
    distinct = len(set(map(_belongs, task.train)))
    notes = task.notes
    if distinct < FEW * len(task.train) and task.kind != "answering":
        what = "sentences" if task.kind == "tagging" else "texts"
        only = f"the {len(task.train):,} examples have only {distinct:,} distinct {what}"
        notes += (f"{only}, and equal {what} stay in one part",)
    return replace(task, train=parts[0], validation=parts[1], notes=notes)


def missing_classes(task: TaskData) -> tuple[str, ...]:
    """A note on the classes of the training examples that no validation example has."""
    if task.kind not in ("classification", "multilabel"):
        return ()

    def classes(part: Any) -> set[int]:
        return {c for e in part for c in (e.label if isinstance(e.label, tuple) else (e.label,))}

    missing = [task.labels[int(c)] for c in sorted(classes(task.train) - classes(task.validation))]
    if not missing:
        return ()
    shown = ", ".join(missing[:10]) + (", ..." if len(missing) > 10 else "")
    return (f"no validation example has the class {shown}: no score shows how it is learnt",)


def parted(
    kind: Kind,
    examples: Sequence[Any],
    fraction: float,
    *,
    seed: int,
    flag: str,
    every_class: bool = False,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The examples that stay, and `fraction` of them that are held out, the same ones for the same
    examples and seed.

    Args:
        flag: The option that asked for it, for messages.
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
        _hold_every_class(strata, chosen, rng)
    if kind == "multilabel":
        _show_every_label(examples, groups, chosen)
    stay = tuple(e for k, e in enumerate(examples) if k not in chosen)
    held = tuple(e for k, e in enumerate(examples) if k in chosen)
    if not stay or not held:
        divisible = len(groups) > 1 and any(len(members) > stays for members in strata)
        raise _empty(kind, f"{flag} {fraction:g} of {len(examples):,} examples", divisible, flag)
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


def _empty(kind: Kind, asked: str, divisible: bool, flag: str) -> UserError:
    """What is wrong where a part is empty. divisible: whether another share would help."""
    if divisible:
        return UserError(f"{asked} leaves a part empty; give another share")
    own = flag == VALIDATION
    way = "give a --validation-file" if own else "omit --load-best-model-at-end"
    what = {"answering": "questions about one context", "tagging": "equal sentences"}
    why = f"{what.get(kind, 'equal texts')} stay in one part, and there are no two different ones"
    of = " of one class" if kind == "classification" else ""
    return UserError(f"{asked}: {why}{of}; add examples, or {way}")


def _hold_every_class(
    strata: Iterable[list[list[int]]], chosen: set[int], rng: random.Random
) -> None:
    """Adds one of each class that has two or more and is not among the chosen examples: without
    it, an area under a curve does not exist there."""
    for members in strata:
        if len(members) > 1 and not any(chosen.issuperset(group) for group in members):
            chosen.update(rng.choice(members))


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


def _strata(kind: Kind, examples: Sequence[Any]) -> list[Hashable]:
    """The class of each example that must keep its share."""
    if kind == "regression":
        order = sorted(range(len(examples)), key=lambda k: examples[k].label)
        rank = {k: place for place, k in enumerate(order)}
        return [rank[k] * BINS // len(examples) for k in range(len(examples))]
    if kind in ("tagging", "answering"):
        return [None] * len(examples)
    labels = [example.label for example in examples]
    return _pooled(labels) if kind == "multilabel" else labels


def _pooled(sets: Sequence[tuple[int, ...]]) -> list[Hashable]:
    """Sets of labels, where a set that occurs once is replaced by its rarest label, because it
    could not be cut."""
    often = Counter(sets)
    shown = Counter(label for labels in sets for label in labels)
    return [
        labels if often[labels] > 1 else min(labels, key=lambda label: shown[label], default=None)
        for labels in sets
    ]
