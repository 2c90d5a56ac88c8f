"""Exported folders in a process that cannot import electrify: fine-tuning and the frozen probe by
transformers alone give the losses, predictions and scores of `electrify finetune`, and a saved
folder predicts there as it was scored."""

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from electrify import cli
from small import environment, pretrain_words

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "without_electrify.py"
# Where electrify cannot be imported, as in a process of somebody who does not have it.
ALONE = "import runpy, sys; sys.modules['electrify'] = None; sys.argv = sys.argv[1:]; "
ALONE += "runpy.run_path(sys.argv[0], run_name='__main__')"
LENGTH = 24
WIDE = {"generator_size": 1.0, "generator_num_hidden_layers": 1}
RECIPES: dict[str, dict[str, Any]] = {
    "electra-tiny": {},
    "electra-modernbert-tiny": WIDE | {"local_attention": 4},
    "electra-deberta-tiny": {"position_buckets": 8},
}
KINDS = {"bread": ("bread", "meal", "salt"), "car": ("car", "road"), "sea": ("wave", "boat")}
# At rates at which training is hardly stable (8e-3 for DeBERTa's blocks), rounding grows until the
# losses of float32 differ from those of float64 by 1e-3, on either side.
RATE, EPOCHS = "5e-3", "6"
QUICK = [("electra-tiny", "pair")]
CASES = [
    pytest.param(recipe, kind, marks=[] if (recipe, kind) in QUICK else pytest.mark.slow)
    for recipe in RECIPES
    for kind in ("text", "pair", "tags")
]


def examples(path: Path, kind: str, *, number: int, seed: int) -> str:
    """Texts of three classes that words of their own tell, alone or with a second text; or chunks
    of such words and the word before. Some texts are cut, and some have words of two classes."""
    rng = random.Random(seed)
    rows = []
    for k in range(number):
        label = list(KINDS)[k % 3]
        long = rng.randint(2, 6 if kind == "tags" else 12)
        words = [rng.choice(("the", "a", "is", "of", "it")) for _ in range(long)]
        own = KINDS[label] if rng.random() < 0.8 else KINDS[rng.choice(list(KINDS))]
        at = rng.randint(1, long)
        words.insert(at, rng.choice(own))
        tags = ["O"] * len(words)
        tags[at - 1], tags[at] = f"B-{label}", f"I-{label}"
        row: dict[str, Any] = {"text": " ".join(words), "label": label}
        if kind == "tags":
            row = {"tokens": words, "tags": tags}
        elif kind == "pair":
            row |= {"text": "it is " + " ".join(words[:at]), "sentence2": " ".join(words[at:])}
        rows.append(json.dumps(row))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def pretrained(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """An encoder of a recipe, pre-trained when it is asked for."""

    @cache
    def encoder(recipe: str) -> Path:
        run = tmp_path_factory.mktemp(recipe) / "run"
        fields = RECIPES[recipe] | {"num_hidden_layers": 2, "max_steps": 20, "logging_steps": 20}
        fields |= {"dropout": 0.0, "attention_dropout": 0.0}
        assert cli.main(pretrain_words(small_data, run, recipe=recipe, **fields)) == 0
        return run / "discriminator"

    return encoder


def alone(tmp_path: Path, *words: str) -> dict[str, Any]:
    """What the script writes in a process without electrify."""
    command = [sys.executable, "-I", "-c", ALONE, str(SCRIPT), *words, "--json", "found.json"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((tmp_path / "found.json").read_text())


@pytest.mark.parametrize(("recipe", "kind"), CASES)
def test_transformers_alone_gives_the_same_scores(recipe, kind, pretrained, tmp_path):
    encoder = str(pretrained(recipe))
    files = [
        examples(tmp_path / f"{part}.jsonl", kind, number=size, seed=size)
        for part, size in (("train", 230), ("held", 45))
    ]
    tuned, probed = (str(tmp_path / name) for name in ("tuned", "probed"))
    common = ["--max-seq-length", str(LENGTH)]
    metrics = [] if kind == "tags" else ["--metrics", "accuracy"]  # tags have their own
    line = ["finetune", encoder, "--train-file", files[0], "--validation-file", files[1]]
    line += ["--baselines", "false", "--bf16", "false", "--dropout", "0", *common, *metrics]
    rate = ["--learning-rate", RATE, "--num-train-epochs", EPOCHS]
    own = ["--eval-steps", "1", "--save-model", *rate]
    assert cli.main([*line, *own, "--output-dir", tuned]) == 0
    assert cli.main([*line, "--frozen-encoder", "last", "--output-dir", probed]) == 0
    words = [*rate, *common, "--fine-tuned", tuned, "--probed", probed]
    found = alone(tmp_path, encoder, *files, *words)
    assert len(found["fine-tuning"]["losses"]) == 8 * int(EPOCHS), "every update is compared"
    same_numbers(found, Path(tuned), Path(probed), tags=kind == "tags")
    said_something(found, files[1])


def same_numbers(found: dict[str, Any], tuned: Path, probed: Path, *, tags: bool) -> None:
    """Every loss, score, probability and prediction. The script's column of electrify is what the
    records say."""
    folders = {"fine-tuning": tuned, "saved": tuned, "probe": probed}
    for title, folder in folders.items():
        rows = {name: (here, there, off) for name, here, there, off in found[title]["rows"]}
        record = json.loads((folder / "scores.jsonl").read_text())
        for name in ("accuracy", "f1") if tags else ("accuracy",):
            here, there, _ = rows.pop(name)
            assert there == record["scores"][name]
            assert here == pytest.approx(there, abs=1e-12), (title, name)
        same, whole, _ = rows.pop("equal predictions, all")
        assert same == whole == len(found[title]["predicted"]), title
        losses = [rows[name] for name in rows if name.startswith("loss")]
        if title != "saved":
            assert [there for _, there, _ in losses] == [p["loss"] for p in record["curve"]]
        # The losses and, for texts, the probabilities.
        assert len(rows) == len(losses) + (not tags)
        for name, (_, _, off) in rows.items():
            assert off < 1e-4, (title, name, off)


def said_something(found: dict[str, Any], held: str) -> None:
    """Numbers that say nothing would agree, too."""
    rows = [json.loads(line) for line in Path(held).read_text().splitlines()]
    labels = Counter(label for row in rows for label in row.get("tags") or [row["label"]])
    chance = max(labels.values()) / labels.total()
    losses = found["fine-tuning"]["losses"]
    assert sum(losses[-8:]) < 0.9 * sum(losses[:8])
    for title in ("fine-tuning", "saved", "probe"):
        scores = {name: here for name, here, *_ in found[title]["rows"]}
        assert scores["accuracy"] > chance, title
        assert len(set(found[title]["predicted"])) > 2, title
