"""`electrify demo`: the whole path on the documentation of this Python installation. Nothing is
downloaded.

pydocs -> tokenizer -> corrective-tiny -> Hugging Face folders -> detection of wrong words -> "which
package is this docstring from?", from the pre-trained encoder, from random weights and by TF-IDF.
If it is run again, it continues.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

from .errors import Unfinished
from .exporting.places import RANDOM
from .files import claim
from .finetuning.baselines import TFIDF
from .finetuning.options import FinetuneConfig, FinetuneSettings
from .finetuning.run import finetune
from .finetuning.tasks import Example, TaskData
from .methods import DISCRIMINATOR
from .progress import duration, harmless
from .recipe import Recipe, load, override
from .rules import check
from .scoring.blimp import Pair
from .scoring.word_substitution import Verdict, judge, substitution_pairs, summary
from .text import pydocs
from .text.options import PrepareConfig
from .text.prepare import prepare
from .text.report import report
from .train.run import pretrain

VOCAB_SIZE = 8192
TOKENIZER_SAMPLE_MB = 10
RECIPE = "corrective-tiny"
MLM_SHARE = 0.4
"""The share of the run in which the encoder is a masked language model, before it detects."""
DOCUMENTS = "documents.jsonl"
"""It is written first, and says whose the folder is."""
PACKAGES = 8
EACH = 50  # to train on, and as many to validate
# Limits on the length of a docstring: shorter ones say too little, and the encoder truncates longer
# ones anyway.
MIN_CHARACTERS = 80
MAX_CHARACTERS = 400
SEEDS = 2
EPOCHS = 5
SPANS, PAIRS = 2000, 200
"""Of held-out text: looked at, and judged."""
PROSE = re.compile(r"[a-z ,.]+")
SHOWN = 6


def demo(folder: Path, *, max_steps: int, threads: str = "auto") -> None:
    """Runs everything below `folder` and prints what it finds. Raises UserError for a folder that
    holds something else, and Unfinished if a signal stopped the pre-training, which is then
    saved."""
    config, began = recipe(max_steps, threads=threads), time.monotonic()
    check(config)
    data, run = folder / "data", folder / "run"
    with claim(folder, DOCUMENTS):
        title(1, "The corpus: the documentation of this Python installation")
        texts = documents(folder / DOCUMENTS)
        prepare_corpus(folder / DOCUMENTS, data)
        discriminator = pretrain_discriminator(data, run, config)
        title(3, "Detection: which word does not belong?")
        show_detection(judge(discriminator, pairs_of(data)))
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
        print(finetune(asked, [task]).table())
    print(f"\n{duration(time.monotonic() - began)} in all. The curves: tensorboard --logdir {run}")


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
        pydocs.write(path, key="text")
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [(row["package"], row["text"]) for row in rows]


def prepare_corpus(texts: Path, data: Path) -> None:
    """Prepares the documentation in `data`."""
    asked = PrepareConfig(
        inputs=(str(texts),),
        output_dir=str(data),
        vocab_size=VOCAB_SIZE,
        tokenizer_sample_mb=TOKENIZER_SAMPLE_MB,
    )
    print(report(prepare(asked)))


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


def pairs_of(data: Path) -> list[Pair]:
    """Held-out texts with a substituted word: plain words first, because in code and numbers a
    substituted word is not surprising."""
    found = substitution_pairs(data, count=SPANS).pairs
    return sorted(found, key=lambda pair: not PROSE.fullmatch(pair.good))[:PAIRS]


def show_detection(verdicts: list[Verdict]) -> None:
    """Prints a few texts with the substituted word in brackets, and the summary of all."""
    print(
        "held-out texts with a substituted [word], and how likely it, and the most suspected other "
        "word, is to have been replaced:"
    )
    for v in verdicts[:SHOWN]:
        start, end = v.wrong.start, v.wrong.end
        marked = " ".join(f"{v.text[:start]}[{v.text[start:end]}]{v.text[end:]}".split())
        print(harmless(f"  {v.wrong.probability:4.0%} {max(v.others):4.0%}  {marked}"))
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
    largest = sorted(by_package, key=lambda p: (-len(by_package[p]), p))[:PACKAGES]
    labels = sorted(p for p in largest if len(by_package[p]) >= need)
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
