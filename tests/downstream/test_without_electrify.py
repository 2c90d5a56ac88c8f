"""Exported folders in a process that cannot import electrify: the features of the frozen probe, the
predictions of a fine-tuned model and both scores are those that electrify computes."""

from __future__ import annotations

import json
import random
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from electrify import cli, predict
from electrify.config.finetune_settings import FinetuneSettings
from electrify.downstream.encoder import load
from electrify.downstream.one_run import problem_of
from electrify.downstream.problems.frozen_texts import FrozenTexts
from electrify.downstream.read.own import read_own
from electrify.inference.predictions import Labelled
from small import environment, pretrain_words

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "without_electrify.py"
# Where electrify cannot be imported, as in a process of somebody who does not have it.
ALONE = "import runpy, sys; sys.modules['electrify'] = None; sys.argv = sys.argv[1:]; "
ALONE += "runpy.run_path(sys.argv[0], run_name='__main__')"
LENGTH = 24
RECIPES = {
    "electra": ("electra-tiny", {}),
    "modernbert": (
        "electra-modernbert-tiny",
        {"generator_size": 1.0, "generator_num_hidden_layers": 1, "local_attention": 4},
    ),
}


def texts(path: Path, *, number: int, seed: int) -> Path:
    """Texts of three classes, which words of their own tell; some are cut, and some have words of
    two classes."""
    rng = random.Random(seed)
    kinds = {"bread": ("bread", "meal", "salt"), "car": ("car", "road"), "sea": ("wave", "boat")}
    rows = []
    for k in range(number):
        label = list(kinds)[k % 3]
        chosen = [rng.choice(("the", "a", "is", "of", "it")) for _ in range(rng.randint(1, 12))]
        own = kinds[label] if rng.random() < 0.8 else kinds[rng.choice(list(kinds))]
        chosen.insert(rng.randint(0, len(chosen)), rng.choice(own))
        rows.append(json.dumps({"text": " ".join(chosen), "label": label}))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("name", list(RECIPES))
def test_scores_by_transformers_alone(name: str, small_data: Path, tmp_path: Path) -> None:
    recipe, own = RECIPES[name]
    run = tmp_path / "run"
    fields = own | {"num_hidden_layers": 2, "max_steps": 20, "logging_steps": 20}
    assert cli.main(list(pretrain_words(small_data, run, recipe=recipe, **fields))) == 0
    encoder = run / "discriminator"
    files = [
        str(texts(tmp_path / f"{part}.jsonl", number=size, seed=size))
        for part, size in (("train", 120), ("validation", 45))
    ]
    line = ["finetune", str(encoder), "--output-dir", str(tmp_path / "scores"), "--save-model"]
    line += ["--train-file", files[0], "--validation-file", files[1], "--seeds", "1"]
    line += ["--num-train-epochs", "12", "--learning-rate", "3e-3", "--max-seq-length", str(LENGTH)]
    assert cli.main([*line, "--bf16", "false"]) == 0
    (tuned,) = (tmp_path / "scores" / "models").iterdir()
    words = [str(encoder), str(tuned), *files, "--max-seq-length", str(LENGTH)]
    words += ["--features", str(tmp_path / "found.npz"), "--json", str(tmp_path / "found.json")]
    command = [sys.executable, "-I", "-c", ALONE, str(SCRIPT), *words]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    same_predictions(tmp_path / "scores", tuned, files[1], found)
    with np.load(tmp_path / "found.npz") as theirs:
        same_features(encoder, files, theirs["train"], theirs["validation"], found["scores"])


def same_predictions(scores: Path, tuned: Path, validation: str, found: dict[str, object]) -> None:
    """The score in the record of fine-tuning, and every probability."""
    record = json.loads((scores / "scores.jsonl").read_text())
    assert found["scores"]["fine_tuned"] == pytest.approx(record["scores"]["accuracy"], abs=1e-12)  # type: ignore
    held = [json.loads(line)["text"] for line in Path(validation).read_text().splitlines()]
    ours = [p for p in predict(str(tuned), held, bf16="false") if isinstance(p, Labelled)]
    assert len(ours) == len(held)
    assert len({p.label for p in ours}) > 1, "one label for all agrees about everything"
    for one, theirs in zip(ours, found["probabilities"], strict=True):  # type: ignore
        assert theirs == pytest.approx(one.probabilities, abs=1e-5)


def same_features(
    encoder: Path,
    files: list[str],
    train_ND: np.ndarray,
    held_ND: np.ndarray,
    scores: dict[str, float],
) -> None:
    """The mean states that the frozen probe learns on, and what a probe scores on them."""
    task = read_own(files[0], files[1])
    loaded = load(str(encoder), device=torch.device("cpu"))
    settings = FinetuneSettings(frozen_encoder="last", max_seq_length=LENGTH, bf16="false")
    cpu = torch.device("cpu")
    problem = problem_of(task, loaded, settings=settings, device=cpu, bf16=False, name="it")
    assert isinstance(problem, FrozenTexts)
    both = []
    for examples, theirs_ND in ((task.train, train_ND), (task.validation, held_ND)):
        ours_ND = problem._means(examples).numpy()  # type: ignore[arg-type]
        assert ours_ND.std(0).max() > 1e-2
        np.testing.assert_allclose(theirs_ND, ours_ND, atol=1e-5, rtol=1e-5)
        both.append(ours_ND)
    labels = [[json.loads(row)["label"] for row in Path(f).read_text().splitlines()] for f in files]
    score = runpy.run_path(str(SCRIPT))["probe_accuracy"](both[0], labels[0], both[1], labels[1])
    assert scores["probe"] == score
    assert score > 1 / 3
