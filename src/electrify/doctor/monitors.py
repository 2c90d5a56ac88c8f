"""Applies the monitors of training again to the end of the log."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..config.pretrain import PretrainConfig
from ..train.monitor import (
    GRACE_TOKENS,
    Trouble,
    is_about,
    monitor_of,
    silent_tokens,
    untaught,
)
from .files import amount
from .findings import Finding, as_sentence, note, ok, warning
from .records import about, as_number, at_chance, number


def troubles(
    records: list[dict[str, Any]], config: PretrainConfig, unigram_entropy: float | None
) -> list[Trouble]:
    """What the training monitors would warn of at the end of the log, with what is known now."""
    # Without the entropy, no loss can count as being on the unigram plateau.
    monitor = monitor_of(config, math.inf if unigram_entropy is None else unigram_entropy)
    last = [
        r for kind in ("train", "valid") for r in [r for r in records if r["kind"] == kind][-1:]
    ]
    return list(
        dict.fromkeys(
            trouble
            for r in last
            for trouble in monitor.watch({k: as_number(v) for k, v in r.items()})
        )
    )


def monitors(
    records: list[dict[str, Any]],
    config: PretrainConfig,
    lasting: list[Trouble],
    warnings: list[dict[str, Any]],
    unigram_entropy: float | None,
) -> Iterator[Finding]:
    for trouble in lasting:
        fact = f"at the end of the log{since(trouble, warnings)}: {trouble.fact}"
        yield warning("monitor", fact, as_sentence(trouble.advice))
    valid = next((r for r in reversed(records) if r["kind"] == "valid"), None)
    if valid is None:
        yield note("not-validated", "nothing was validated yet")
    elif not lasting:
        yield from untroubled(valid, config, unigram_entropy)


def since(trouble: Trouble, warnings: list[dict[str, Any]]) -> str:
    """The step at which the run first gave such a warning, if it did."""
    same = (r["step"] for r in warnings if about(r) == (trouble.topic, trouble.subject))
    step = next(same, None)
    return "" if step is None else f" (first said at step {step:,})"


def untroubled(
    valid: dict[str, Any], config: PretrainConfig, unigram_entropy: float | None
) -> Iterator[Finding]:
    """What the last validation shows about a run for which no monitor gives a warning."""
    early = (number(valid, "tokens") or 0) < silent_tokens(config) + GRACE_TOKENS
    near = at_chance(valid, config)
    if near:
        name, auc = near
        fact = f"validation at step {valid['step']:,}: {name} is {auc:.3f}, and .5 is chance"
        if early:  # later it is a warning
            yield note(
                "not-learning-yet",
                fact,
                f"Usual at the beginning: look again after {amount(GRACE_TOKENS)} tokens.",
            )
        return
    figures = ", ".join(
        f"{name} {x:.3f}"
        for name in sorted(valid)
        if shown(name, config) and (x := number(valid, name)) is not None
    )
    yield ok("learning", f"validation at step {valid['step']:,}: {figures}")
    if not early and unigram_entropy is None:
        fact = "the run does not say how well word frequencies alone would do"
        yield note("no-entropy", fact, "Name its DATA, too, and the loss is compared with that.")


def shown(name: str, config: PretrainConfig) -> bool:
    weights = config.objective.term_weights
    if name in weights:
        return weights[name] > 0
    return name.endswith(("_auc", "_recall")) and not is_about(name, untaught(config))
