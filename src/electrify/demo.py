"""`electrify demo`: the whole path on the documentation of this Python installation. Nothing is
downloaded.

pydocs -> tokenizer -> electra-tiny -> Hugging Face folders -> detection of wrong words -> "which
package is this docstring from?", from the pre-trained encoder and from random weights, with a plot
of the curves beside the run. Run again, it continues where it was.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .config.checks import check
from .config.finetune_settings import FinetuneSettings
from .config.prepare import PrepareConfig
from .config.pretrain import load_recipe, override
from .console import harmless
from .downstream import loop
from .downstream.examples import Example
from .downstream.single import Outcome, finetune_one
from .downstream.tasks import TaskData
from .errors import Unfinished, UserError
from .files.folders import own_bytes
from .files.inside import must_stay_inside
from .files.lock import lock
from .files.whole import written
from .pretraining import pretrain
from .progress import Progress, duration, say
from .scoring.planted import Verdict, first_sentences, judge, plant, summary
from .text import pydocs
from .text.dedup import digest, fraction
from .text.pool import cores
from .text.prepare import prepare, report
from .train.device import pick_device
from .train.threads import choose, computing_with

VOCAB_SIZE = 8192
# which stands in the picture as the program that drew it
PICTURE = "curves.png"
OURS = b"electrify demo"
PACKAGES = 8
TRAIN_EACH = 50
VALID_EACH = 50
# of a docstring: shorter ones say too little, longer ones are cut by the encoder anyway
MIN_CHARACTERS = 80
MAX_CHARACTERS = 400
SEEDS = 3
EPOCHS = 8
SENTENCES = 200
SHOWN = 6


@dataclass(frozen=True)
class DemoResult:
    """What the demo found."""

    pretrained: list[Outcome]
    random: list[Outcome]
    verdicts: list[Verdict]
    """What the discriminator said of held-out sentences with a wrong word."""
    plot: Path | None


def demo(folder: Path, *, max_steps: int, threads: str = "auto") -> DemoResult:
    """Runs everything below `folder` and prints what it finds. Raises UserError where its data, run
    or picture are something else, and Unfinished where a signal stopped the pre-training, which is
    then saved."""
    picture = folder / PICTURE
    if os.path.lexists(picture) and OURS not in (own_bytes(picture) or b""):
        raise UserError(
            f"{picture} is not a picture that electrify demo drew; move it away, or choose another "
            "--output-dir"
        )
    with lock(folder):
        return _demo(folder, max_steps=max_steps, threads=threads)


def _demo(folder: Path, *, max_steps: int, threads: str) -> DemoResult:
    fields = {
        "max_steps": max_steps,
        "eval_steps": max(1, max_steps // 10),
        "logging_steps": 25,
        "threads": threads,
    }
    config = override(load_recipe("electra-tiny"), fields)
    check(config)
    began = time.monotonic()
    data = folder / "data"
    run = folder / "run"
    for path in (data, run):
        must_stay_inside(path, folder)
    title(1, "The corpus: the documentation of this Python installation")
    prepared = PrepareConfig(inputs=("pydocs",), output_dir=str(data), vocab_size=VOCAB_SIZE)
    print(report(prepare(prepared), folder=data))

    title(2, f"Pre-training: electra-tiny, {max_steps} steps")
    result = pretrain(data, output_dir=run, config=config)
    if not result.summary.finished:
        raise Unfinished(
            f"the demo was stopped after step {result.summary.step} and is saved; run the same "
            "command again to continue"
        )
    print(
        f"{result.summary.tokens / 1e6:.1f} M tokens in {duration(result.summary.seconds)}; "
        f"Hugging Face folders: {', '.join(map(str, result.exported.values()))}"
    )

    title(3, "Detection: which word does not belong?")
    discriminator = str(result.exported["discriminator"])
    say("reading the docstrings again")
    texts = list(pydocs.documents(workers=cores()))
    chosen = choose(
        threads,
        device=pick_device("auto"),
        width=config.model.hidden_size,
        tokens=loop.TOKENS["cpu"],
        bf16=config.train.bf16,
    )
    with computing_with(chosen):
        verdicts = judge(
            discriminator, plant(held_out(texts, prepared.valid_fraction), count=SENTENCES)
        )
    show_detection(verdicts)

    title(4, "Fine-tuning: which package does this docstring come from?")
    task = docstring_task(texts)
    print(
        f"{len(task.train)} training examples, {len(task.validation)} held out, {len(task.labels)} "
        f"packages: {', '.join(task.labels)}"
    )
    settings = FinetuneSettings(num_train_epochs=EPOCHS)
    outcomes = {}
    for name, model in (
        ("pre-trained", discriminator),
        ("random weights", f"random:{discriminator}"),
    ):
        updates = SEEDS * EPOCHS * -(-len(task.train) // settings.per_device_train_batch_size)
        with computing_with(chosen), Progress(updates, title=name, unit="updates") as bar:
            outcomes[name] = [
                finetune_one(model, task, seed=seed, settings=settings, progress=bar)
                for seed in range(SEEDS)
            ]
    show_scores(outcomes)
    plot = draw(run, outcomes, data, folder / PICTURE)
    print(
        f"\n{duration(time.monotonic() - began)} in all." + (f" The curves: {plot}" if plot else "")
    )
    return DemoResult(outcomes["pre-trained"], outcomes["random weights"], verdicts, plot)


def title(number: int, text: str) -> None:
    print(f"\n--- {number}. {text}", flush=True)


def held_out(texts: list[tuple[str, str]], valid_fraction: float) -> list[str]:
    """First sentences of the documents that pre-training did not see."""
    return first_sentences(
        text for _, text in texts if fraction(digest(text.encode()), stream=0) < valid_fraction
    )


def show_detection(verdicts: list[Verdict]) -> None:
    """Prints a few sentences with the planted word in brackets, and the summary of all."""
    if not verdicts:
        print("no held-out docstring begins with a sentence of plain words")
        return
    print(
        "held-out sentences with a planted [word], and how surely it, and the most suspected other "
        "word, counts as replaced:"
    )
    for v in verdicts[:SHOWN]:
        p = v.planted
        print(
            harmless(
                f"  {v.wrong:4.0%} {max(v.others):4.0%}  "
                f"{p.text[: p.start]}[{p.wrong}]{p.text[p.end :]}"
            )
        )
    print(summary(verdicts))


def docstring_task(documents: list[tuple[str, str]]) -> TaskData:
    """A few hundred docstrings of the packages with the most of them, the label being the package.
    """
    by_package: dict[str, list[str]] = defaultdict(list)
    seen: set[str] = set()
    for package, text in documents:
        text = " ".join(text.split())[:MAX_CHARACTERS]
        if len(text) >= MIN_CHARACTERS and text not in seen:
            seen.add(text)
            by_package[package].append(text)
    need = TRAIN_EACH + VALID_EACH
    labels = sorted(
        sorted(
            (p for p, texts in by_package.items() if len(texts) >= need),
            key=lambda p: (-len(by_package[p]), p),
        )[:PACKAGES]
    )
    if len(labels) < 2:
        raise UserError(
            f"fewer than two installed packages have {need} docstrings; install more packages into "
            "this environment"
        )
    parts: tuple[list[Example], list[Example]] = ([], [])
    for label, package in enumerate(labels):
        texts = by_package[package]
        chosen = texts[:: len(texts) // need][:need]  # spread over the package's files
        for k, text in enumerate(chosen):
            parts[k % 2 if VALID_EACH == TRAIN_EACH else int(k >= TRAIN_EACH)].append(
                Example(text, None, float(label))
            )
    return TaskData(
        "package",
        "classification",
        tuple(labels),
        ("accuracy",),
        EPOCHS,
        tuple(parts[0]),
        tuple(parts[1]),
    )


def show_scores(outcomes: dict[str, list[Outcome]]) -> None:
    print(
        f"\n  {'accuracy, held out':20s} {'median':>7s} {'lowest':>7s} {'highest':>7s}   ({SEEDS} "
        "seeds)"
    )
    for name, runs in outcomes.items():
        scores = [100 * r.scores["accuracy"] for r in runs]
        print(
            f"  {name:20s} {statistics.median(scores):7.1f} {min(scores):7.1f} {max(scores):7.1f}"
        )


def draw(run: Path, outcomes: dict[str, list[Outcome]], data: Path, path: Path) -> Path | None:
    """The curves of pre-training and fine-tuning as a picture; None, and a line that says so, where
    matplotlib is absent."""
    try:
        import matplotlib
    except ImportError:
        say("no plot: install electrify[plot]")
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    records = [
        json.loads(line)
        for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    train, valid = ([r for r in records if r["kind"] == kind] for kind in ("train", "valid"))
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4.5), constrained_layout=True)
    left.plot(
        tokens(train),
        [r["generator_loss_masked"] for r in train],
        color="tab:orange",
        alpha=0.5,
        label="train",
    )
    left.plot(
        tokens(valid),
        [r["generator_loss_masked"] for r in valid],
        "o-",
        color="tab:red",
        label="held out",
    )
    left.axhline(unigram_of(data), color="gray", linestyle="--", label="word frequencies alone")
    left.set(title="Generator: loss on [MASK], nats", xlabel="million tokens")
    middle.plot(
        tokens(valid), [r["rtd_detection_auc"] for r in valid], "o-", color="tab:blue", label="AUC"
    )
    middle.plot(
        tokens(valid),
        [r["rtd_detection_recall"] for r in valid],
        "s-",
        color="tab:green",
        label="recall",
    )
    middle.set(title="Discriminator, held out", xlabel="million tokens", ylim=(0, 1))
    for (name, runs), color in zip(outcomes.items(), ("tab:blue", "tab:gray"), strict=True):
        for k, outcome in enumerate(runs):
            points = outcome.curve
            right.plot(
                [p.epoch for p in points],
                [100 * p.metrics["accuracy"] for p in points],
                "o-",
                color=color,
                alpha=0.7,
                label=None if k else name,
            )
    right.set(
        title="Which package? accuracy, held out", xlabel="epochs of fine-tuning", ylim=(0, 100)
    )
    for axis in (left, middle, right):
        axis.grid(alpha=0.3)
        axis.legend()
    with written(path) as stream:
        figure.savefig(stream, dpi=110, format="png", metadata={"Software": OURS.decode()})
    return path


def tokens(records: list[dict[str, Any]]) -> list[float]:
    """Million tokens trained on, of each record."""
    return [r["tokens"] / 1e6 for r in records]


def unigram_of(data: Path) -> float:
    from .running import unigram_entropy
    from .text.shards import Corpus

    return unigram_entropy(Corpus(data, "train"))
