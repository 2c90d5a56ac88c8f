"""What metrics.jsonl says about a run, looking back from its end."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..config.pretrain import PretrainConfig
from ..data.phases import phases_of
from ..oldfiles.run_folder import METRICS
from ..train import log
from ..train.monitor import GRACE_TOKENS, silent_tokens, untaught
from .files import amount, is_regular
from .findings import Finding, error, note, ok, warning
from .monitors import monitors, troubles
from .records import about, at_chance, not_finite, number

# How far a validation loss may be above its best value, as a share of it; the noise between two
# validations is smaller.
RISE = 0.02
SLOWER = 0.5
FEW_VALIDATIONS = 3
FEW_LINES = 6
ONE_ANSWER = ("all_original", "all_replaced")
UNSTABLE = ("non_finite", "went_back")
# A warning about a single update, and those that the monitors judge again at the end of the log.
# Nothing else in a log shows that a trouble has passed.
OVER = ("spike", "frequencies", *ONE_ANSWER, "epochs")


def history_findings(
    run: Path, config: PretrainConfig, *, unigram_entropy: float | None
) -> Iterator[Finding]:
    path = run / METRICS
    if not is_regular(path):
        yield warning(
            "no-log",
            f"{METRICS} is missing",
            "Nothing is known of how the run went; it is written anew when the run continues.",
        )
        return
    torn = log.torn(path)
    if torn:
        yield warning(
            "torn",
            f"{METRICS} has torn lines ({len(torn):,}, the first is line {torn[0]:,})",
            "A kill or a full disk leaves such; continuing the run drops them.",
        )
    records = [r for r in log.read(path) if r.get("kind") in log.KINDS]
    yield from order(records)
    if not records:
        yield note("empty-log", f"{METRICS} has no record yet")
        return
    warnings = [r for r in records if r["kind"] == "event" and isinstance(r.get("warning"), str)]
    lasting = troubles(records, config, unigram_entropy)
    yield from monitors(records, config, lasting, warnings, unigram_entropy)
    yield from not_numbers(records, config)
    if not any(trouble.topic in ONE_ANSWER for trouble in lasting):
        yield from chance(records, config)
    yield from overfitting(records, config)
    yield from throughput(records, config)
    said = {(trouble.topic, trouble.subject) for trouble in lasting}
    passed = [r for r in warnings if about(r) not in said]
    yield from events(passed, judged=unigram_entropy is not None)


def order(records: list[dict[str, Any]]) -> Iterator[Finding]:
    steps = [r["step"] for r in records if r["kind"] == "train"]
    back = sum(b <= a for a, b in pairwise(steps))
    if back:
        yield warning(
            "log-order",
            f"the steps in {METRICS} go back {back:,} times",
            "Two runs wrote there, or the file was joined by hand: its curves mislead.",
        )


def not_numbers(records: list[dict[str, Any]], config: PretrainConfig) -> Iterator[Finding]:
    bad = [
        r["step"]
        for r in records
        if any(not_finite(r.get(name)) for name in (*config.objective.term_weights, "grad_norm"))
    ]
    if not bad:
        return
    fact = f"losses or gradients of {len(bad):,} log lines are not finite, from step {bad[0]:,} on"
    lines = [r["step"] for r in records if r["kind"] != "event"]
    advice = (
        "Begin anew with a lower --learning-rate, a higher --warmup-steps or --bf16 false; "
        "--non-finite skip leaves single bad updates out."
    )
    yield (error if bad[-1] == lines[-1] else warning)("not-finite", fact, advice)


def chance(records: list[dict[str, Any]], config: PretrainConfig) -> Iterator[Finding]:
    """A discriminator that cannot distinguish anything, whatever the threshold."""
    valid = next((r for r in reversed(records) if r["kind"] == "valid"), {})
    near = at_chance(valid, config)
    if near and (number(valid, "tokens") or 0) >= silent_tokens(config) + GRACE_TOKENS:
        fact = (
            f"{near[0]} is {near[1]:.3f} after {amount(valid['tokens'])} tokens, and .5 is chance"
        )
        advice = (
            "The discriminator does not tell replaced tokens from original ones: look at the "
            "generator first, then lower --learning-rate."
        )
        yield warning("chance", fact, advice)


def judged_loss(config: PretrainConfig) -> str | None:
    """The loss that should fall. (The loss of a discriminator may rise while its generator gets
    better.)"""
    idle = untaught(config)
    if config.corruption.row.learned:
        return None if "generator" in idle else "generator"
    return next((loss for loss in config.objective.row.losses if loss not in idle), None)


def overfitting(records: list[dict[str, Any]], config: PretrainConfig) -> Iterator[Finding]:
    name = judged_loss(config)
    if name is None:
        return
    found = curve(records, "valid", name)
    if len(found) < FEW_VALIDATIONS:
        return
    at, best = min(found, key=lambda p: p[1])
    end, last = found[-1]
    if last <= best * (1 + RISE):
        return
    train = curve(records, "train", name)
    then = [x for step, x in train if step <= at][-1:]
    fact = (
        f"the validation loss of {name} rose from {best:.3f} at step {at:,} to {last:.3f} at step "
        f"{end:,}"
    )
    if then and train[-1][1] < then[0]:
        fact += f", while that of training fell from {then[0]:.3f} to {train[-1][1]:.3f}"
        yield warning(
            "overfitting",
            fact,
            "It learns the corpus by heart: use more text, --dropout 0.1, or the checkpoint "
            f"of step {at}.",
        )
    # Where the mask rate moves, the task gets harder or easier in training, too.
    elif config.corruption.mask_rate_end in (None, config.corruption.mask_rate):
        yield warning(
            "diverging",
            fact,
            "Training got worse, too: lower --learning-rate, or raise --warmup-steps.",
        )


def curve(records: list[dict[str, Any]], kind: str, name: str) -> list[tuple[int, float]]:
    """The finite values of a loss in the records of one kind, each with its step."""
    return [
        (r["step"], x) for r in records if r["kind"] == kind and (x := number(r, name)) is not None
    ]


def throughput(records: list[dict[str, Any]], config: PretrainConfig) -> Iterator[Finding]:
    rates = [x for r in records if r["kind"] == "train" and (x := number(r, "tokens_per_s"))]
    rates = rates[1:]  # the first line includes the warm-up of the machine
    if len(rates) < FEW_LINES:
        return
    third = len(rates) // 3
    first = statistics.median(rates[:third])
    last = statistics.median(rates[-third:])
    if last < SLOWER * first and len(phases_of(config).row_lengths) == 1:
        fact = f"the rate fell from {first:,.0f} to {last:,.0f} tokens a second"
        yield warning(
            "slower",
            fact,
            (
                "Another program used the machine, or it slows down because of heat: look at what "
                "else runs there."
            ),
        )
    else:
        yield ok("rate", f"{last:,.0f} tokens a second")


def events(warnings: list[dict[str, Any]], *, judged: bool) -> Iterator[Finding]:
    """Warnings that the run gave and that are not repeated above, one finding for each thing that
    they are about. judged: whether the loss was compared with word frequencies."""
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in warnings:
        grouped.setdefault(about(record), []).append(record)
    for (topic, _), same in grouped.items():
        text = same[-1]["warning"]
        steps = f"step {same[0]['step']:,}" + (f" to {same[-1]['step']:,}" if len(same) > 1 else "")
        fact = f"the run warned {len(same):,} time{'s' * (len(same) > 1)} ({steps}): {text}"
        if topic in UNSTABLE:
            advice = (
                "A few may be left out; if there are many, begin anew with a lower "
                "--learning-rate, a higher --warmup-steps or --bf16 false."
            )
            yield warning("event", fact, advice)
        elif topic == "frequencies" and not judged:
            yield warning(
                "event", fact, "Name its DATA, too, to see whether that still holds at the end."
            )
        elif topic == "data":
            yield warning("event", fact, "Look whether it is there again: it was said only once.")
        elif topic in OVER:
            yield note("event", fact, "It was over by the end of the log.")
        else:
            yield note("event", fact, "Look whether that still holds: it was said only once.")
