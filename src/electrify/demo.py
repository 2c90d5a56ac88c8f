"""`electrify demo`: the whole path on the documentation of this Python installation. Nothing is
downloaded.

pydocs -> tokenizer -> corrective-tiny -> Hugging Face folders -> detection of wrong words -> "which
package is this docstring from?", from the pre-trained encoder, from random weights and by TF-IDF,
with a plot of the curves beside the run. If it is run again, it continues.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .console import harmless
from .errors import Unfinished, UserError
from .exporting.places import RANDOM
from .files import claim, write
from .finetuning import loop
from .finetuning.baselines import TFIDF
from .finetuning.options import FinetuneConfig, FinetuneSettings
from .finetuning.report import Report, picture
from .finetuning.run import finetune
from .finetuning.tasks import Example, TaskData
from .process import cores
from .progress import duration
from .recipe import Recipe, load, override
from .rules import check
from .scoring.word_substitution import Verdict, first_sentences, judge, plant, summary
from .tables import DISCRIMINATOR
from .text import pydocs
from .text.corpus import MANIFEST, STATE, Corpus
from .text.dedup import digest, is_held_out
from .text.options import PrepareConfig
from .text.prepare import prepare
from .text.report import report
from .train import CONFIG, METRICS
from .train.log import read
from .train.machine import choose, computing_with, pick_device, supports_bf16
from .train.monitor import unigram_entropy
from .train.run import pretrain

VOCAB_SIZE = 8192
TOKENIZER_SAMPLE_MB = 10
RECIPE = "corrective-tiny"
MLM_SHARE = 0.4
"""The share of the run in which the encoder is a masked language model, before it detects."""
PICTURE = "curves.png"
DOCUMENTS = "documents.jsonl"
OURS = (DOCUMENTS, f"data/{STATE}", f"data/{MANIFEST}")
"""The files that say whose the folder is."""
PACKAGES = 8
EACH = 50  # to train on, and as many to validate
# Limits on the length of a docstring: shorter ones say too little, and the encoder truncates longer
# ones anyway.
MIN_CHARACTERS = 80
MAX_CHARACTERS = 400
SEEDS = 2
EPOCHS = 5
SENTENCES = 200
SHOWN = 6


def demo(folder: Path, *, max_steps: int, threads: str = "auto") -> None:
    """Runs everything below `folder` and prints what it finds. Raises UserError for a folder that
    holds something else, and Unfinished if a signal stopped the pre-training, which is then
    saved."""
    with claim(folder, *OURS):
        _demo(folder, max_steps=max_steps, threads=threads)


def _demo(folder: Path, *, max_steps: int, threads: str) -> None:
    config = recipe(max_steps, threads=threads)
    check(config)
    began = time.monotonic()
    data = folder / "data"
    run = folder / "run"
    title(1, "The corpus: the documentation of this Python installation")
    texts = documents(folder / DOCUMENTS)
    valid_fraction = prepare_corpus(folder / DOCUMENTS, data)
    discriminator = pretrain_discriminator(data, run, config)
    title(3, "Detection: which word does not belong?")
    device = pick_device("auto")
    chosen = choose(
        threads,
        device=device,
        width=config.model.hidden_size,
        tokens=loop.TOKENS["cpu"],
        bf16=supports_bf16(device),
    )
    with computing_with(chosen):
        sentences = plant(held_out(texts, valid_fraction), count=SENTENCES)
        verdicts = judge(discriminator, sentences)
    show_detection(verdicts)
    title(4, "Fine-tuning: which package does this docstring come from?")
    task = docstring_task(texts)
    print(f"{len(task.labels)} packages: {', '.join(task.labels)}")
    compared = [TFIDF] if find_spec("sklearn") is not None else []
    asked = FinetuneConfig(
        models=(discriminator, RANDOM + discriminator, *compared),
        train_file=str(folder / DOCUMENTS),
        output_dir=str(folder / "finetuned"),
        seeds=SEEDS,
        baselines=False,
        threads=threads,
        settings=FinetuneSettings(num_train_epochs=EPOCHS),
    )
    scores = finetune(asked, [task])
    print(scores.table())
    plot = draw(run, scores, data, folder / PICTURE)
    print(
        f"\n{duration(time.monotonic() - began)} in all." + (f" The curves: {plot}" if plot else "")
    )


def recipe(max_steps: int, *, threads: str) -> Recipe:
    """The demo's recipe for a number of updates; however few, its warm-up ends."""
    config = load(RECIPE)
    fields = {
        "max_steps": max_steps,
        "warmup_steps": min(config.train.warmup_steps, max_steps // 10),
        "eval_steps": max(1, max_steps // 10),
        "logging_steps": 25,
        "threads": threads,
        "torch_compile": False,  # it would take longer than the demo's updates
    }
    # A run of a single update has no second part.
    return override(config, fields | {"mlm_share": MLM_SHARE * (max_steps > 1)})


def documents(path: Path) -> list[tuple[str, str]]:
    """Pairs (package, text), which are written to a file that `prepare` reads."""
    if not path.exists():
        pydocs.write(path, key="text", workers=cores())
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [(row["package"], row["text"]) for row in rows]


def prepare_corpus(texts: Path, data: Path) -> float:
    """Prepares the documentation in `data` and returns the share that is held out."""
    prepared = PrepareConfig(
        inputs=(str(texts),),
        output_dir=str(data),
        vocab_size=VOCAB_SIZE,
        tokenizer_sample_mb=TOKENIZER_SAMPLE_MB,
    )
    print(report(prepare(prepared), folder=data))
    return prepared.valid_fraction


def pretrain_discriminator(data: Path, run: Path, config: Recipe) -> str:
    """Pre-trains, or continues, and returns the folder of the discriminator."""
    title(2, f"Pre-training: {RECIPE}, {config.train.max_steps} steps")
    result = pretrain(data, output_dir=run, recipe=config)
    if result.signalled or not result.finished:
        raise Unfinished(
            f"the demo was stopped after step {result.step} and is saved. Run the same "
            "command again to continue"
        )
    print(
        f"{result.tokens / 1e6:.1f} M tokens in {duration(result.seconds)}; "
        f"Hugging Face folders: {', '.join(map(str, result.exported.values()))}"
    )
    return str(result.exported[DISCRIMINATOR])


def title(number: int, text: str) -> None:
    print(f"\n--- {number}. {text}", flush=True)


def held_out(texts: list[tuple[str, str]], valid_fraction: float) -> list[str]:
    """First sentences of the documents that pre-training did not see."""
    return first_sentences(
        text for _, text in texts if is_held_out(digest(text.encode()), valid_fraction)
    )


def show_detection(verdicts: list[Verdict]) -> None:
    """Prints a few sentences with the substituted word in brackets, and the summary of all."""
    if not verdicts:
        print("no held-out docstring begins with a sentence of plain words")
        return
    print(
        "held-out sentences with a substituted [word], and how likely it, and the most suspected "
        "other word, is to have been replaced:"
    )
    for v in verdicts[:SHOWN]:
        p = v.planted
        marked = f"{p.text[: p.start]}[{p.wrong}]{p.text[p.end :]}"
        print(harmless(f"  {v.wrong:4.0%} {max(v.others):4.0%}  {marked}"))
    print(summary(verdicts))


def docstring_task(documents: list[tuple[str, str]]) -> TaskData:
    """A few hundred docstrings of the packages that have the most of them, labelled by package."""
    by_package: dict[str, list[str]] = defaultdict(list)
    seen: set[str] = set()
    for package, text in documents:
        text = " ".join(text.split())[:MAX_CHARACTERS]
        if len(text) >= MIN_CHARACTERS and text not in seen:
            seen.add(text)
            by_package[package].append(text)
    need = 2 * EACH
    enough = (p for p, texts in by_package.items() if len(texts) >= need)
    labels = sorted(sorted(enough, key=lambda p: (-len(by_package[p]), p))[:PACKAGES])
    if len(labels) < 2:
        raise UserError(
            f"fewer than two installed packages have {need} docstrings. Install more packages into "
            "this environment"
        )
    examples = []
    for label, package in enumerate(labels):
        texts = by_package[package]
        chosen = texts[:: len(texts) // need][:need]  # spread over the package's files
        examples += [Example(text, None, float(label)) for text in chosen]
    return TaskData(
        name="package",
        kind="classification",
        labels=tuple(labels),
        metrics=("accuracy",),
        epochs=EPOCHS,
        train=tuple(examples[::2]),
        validation=tuple(examples[1::2]),
    )


# ------------------------------------------------------------------ the plot


def draw(run: Path, scores: Report, data: Path, path: Path) -> Path | None:
    """Draws the curves of pre-training and fine-tuning as an image. Returns None if matplotlib is
    not installed."""
    corruption = load(run / CONFIG, trusted=False).corruption
    by_frequency = unigram_entropy(Corpus(data, "train"), corruption)

    def draw_both(figure: Any) -> None:
        figure.set_size_inches(15, 4.5)
        axes = figure.subplots(1, 3)
        draw_run(axes[0], axes[1], read(run / METRICS), by_frequency=by_frequency)
        draw_fine_tuning(axes[2], scores)
        for axis in axes:
            axis.grid(alpha=0.3)
            axis.legend()

    if png := picture(draw_both):
        write(path, png)
    return path if png else None


def draw_run(left: Any, right: Any, records: list[dict[str, Any]], *, by_frequency: float) -> None:
    """The loss at [MASK], and how well masked tokens are predicted first and replaced ones detected
    then, by tokens trained on. by_frequency: the loss of a model that predicts by word frequencies
    alone."""
    loss = "generator_loss_masked"
    for axis, kind, name, style, color, label in (
        (left, "train", loss, "-", "tab:orange", "train"),
        (left, "valid", loss, "o-", "tab:red", "held out"),
        (right, "valid", "mlm_accuracy_masked", "^-", "tab:purple", "words guessed at [MASK]"),
        (right, "valid", "rtd_detection_auc", "o-", "tab:blue", "replaced tokens: AUC"),
        (right, "valid", "rtd_detection_recall", "s-", "tab:green", "replaced tokens: recall"),
    ):
        there = [r for r in records if r["kind"] == kind and name in r]
        millions = [r["tokens"] / 1e6 for r in there]
        axis.plot(millions, [r[name] for r in there], style, color=color, label=label)
    left.axhline(by_frequency, color="gray", linestyle="--", label="word frequencies alone")
    left.set(title="Generator: loss on [MASK], nats", xlabel="million tokens")
    right.set(title="The encoder, held out", xlabel="million tokens", ylim=(0, 1))


def draw_fine_tuning(axis: Any, scores: Report) -> None:
    """Accuracy by epochs, one line for each seed."""
    shown = dict[str, None]()
    for record in (record for record in scores.records if record["curve"]):
        random = record["model"].startswith(RANDOM)
        name = "random weights" if random else "pre-trained"
        epochs = [point["epoch"] for point in record["curve"]]
        accuracy = [100 * point["metrics"]["accuracy"] for point in record["curve"]]
        style = {"color": "tab:gray" if random else "tab:blue", "alpha": 0.7}
        axis.plot(epochs, accuracy, "o-", label=None if name in shown else name, **style)
        shown[name] = None
    title = "Which package? accuracy, held out"
    axis.set(title=title, xlabel="epochs of fine-tuning", ylim=(0, 100))
