"""The plot of the demo: the curves of its pre-training and of its fine-tuning."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .files import written
from .finetuning.one_run import Outcome
from .finetuning.plot import our_style
from .progress import say
from .recipe import load
from .text.corpus import Corpus
from .train import CONFIG, METRICS
from .train.monitor import unigram_entropy


def draw(run: Path, outcomes: Mapping[str, list[Outcome]], data: Path, path: Path) -> Path | None:
    """Draws the curves of pre-training and fine-tuning as an image. Returns None, and says so, if
    matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        say("no plot: install electrify[plot]")
        return None
    records = [
        json.loads(line) for line in (run / METRICS).read_text(encoding="utf-8").splitlines()
    ]
    train, valid = ([r for r in records if r["kind"] == kind] for kind in ("train", "valid"))
    by_frequency = unigram_entropy(
        Corpus(data, "train"), load(run / CONFIG, trusted=False).corruption
    )
    with our_style():
        figure = Figure(figsize=(15, 4.5), constrained_layout=True)
        left, middle, right = figure.subplots(1, 3)
        draw_generator(left, train, valid, by_frequency=by_frequency)
        draw_discriminator(middle, valid)
        draw_fine_tuning(right, outcomes)
        for axis in (left, middle, right):
            axis.grid(alpha=0.3)
            axis.legend()
        with written(path) as part:
            figure.savefig(part, dpi=110, format="png")
    return path


def draw_generator(
    axis: Any, train: list[dict[str, Any]], valid: list[dict[str, Any]], *, by_frequency: float
) -> None:
    """The loss at [MASK]. by_frequency: the loss of a model that predicts by word frequencies
    alone."""
    loss = "generator_loss_masked"
    axis.plot(tokens(train), [r[loss] for r in train], color="tab:orange", alpha=0.5, label="train")
    axis.plot(tokens(valid), [r[loss] for r in valid], "o-", color="tab:red", label="held out")
    axis.axhline(by_frequency, color="gray", linestyle="--", label="word frequencies alone")
    axis.set(title="Generator: loss on [MASK], nats", xlabel="million tokens")


def draw_discriminator(axis: Any, valid: list[dict[str, Any]]) -> None:
    """How well masked tokens are predicted first, and replaced ones detected then."""
    for name, marker, color, label in (
        ("mlm_accuracy_masked", "^-", "tab:purple", "words guessed at [MASK]"),
        ("rtd_detection_auc", "o-", "tab:blue", "replaced tokens: AUC"),
        ("rtd_detection_recall", "s-", "tab:green", "replaced tokens: recall"),
    ):
        there = [r for r in valid if name in r]
        axis.plot(tokens(there), [r[name] for r in there], marker, color=color, label=label)
    axis.set(title="The encoder, held out", xlabel="million tokens", ylim=(0, 1))


def draw_fine_tuning(axis: Any, outcomes: Mapping[str, list[Outcome]]) -> None:
    """Accuracy by epochs, one line for each seed."""
    for (name, runs), color in zip(outcomes.items(), ("tab:blue", "tab:gray"), strict=True):
        for k, outcome in enumerate(runs):
            points = outcome.curve
            axis.plot(
                [p.epoch for p in points],
                [100 * p.metrics["accuracy"] for p in points],
                "o-",
                color=color,
                alpha=0.7,
                label=None if k else name,
            )
    axis.set(
        title="Which package? accuracy, held out", xlabel="epochs of fine-tuning", ylim=(0, 100)
    )


def tokens(records: list[dict[str, Any]]) -> list[float]:
    """The millions of tokens trained on, for each record."""
    return [r["tokens"] / 1e6 for r in records]
