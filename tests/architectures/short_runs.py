"""What the runs of the architectures have in common: eight updates of two blocks, and what
fine-tuning makes of their folders."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from electrify import cli
from small import pretrain_words

SHORT: dict[str, Any] = {
    "num_hidden_layers": 2,
    "max_steps": 8,
    "logging_steps": 4,
    "save_steps": 8,
    "eval_steps": 4,
}
TEXTS = ["the chef ate a meal", "the", "a meal that the chef ate was a meal of the chef"]


def deberta_words(
    data: Path, folder: Path, name: str = "electra-deberta", **fields: Any
) -> list[str]:
    """The command of a short run of a tiny recipe with DeBERTa's blocks."""
    own = SHORT | {"position_buckets": 8} | fields
    return [str(w) for w in pretrain_words(data, folder, recipe=f"{name}-tiny", **own)]


def finetuned_folder(encoder: Path, tmp_path: Path, classes: str) -> None:
    """Fine-tunes the encoder of a folder in a few updates: the scores are numbers, and the model
    that is left is the library's, which says of every example what was scored."""
    out, file = tmp_path / "out", tmp_path / "examples.jsonl"
    rows = [{"text": a, "label": b} for a, b in (("good film", "yes"), ("bad film it is", "no"))]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows * 12))
    line = ["finetune", str(encoder), "--output-dir", str(out), "--baselines", "false"]
    line += ["--train-file", str(file), "--validation-file", str(file), "--num-train-epochs", "3"]
    line += ["--max-seq-length", "16", "--learning-rate", "1e-3", "--bf16", "false"]
    assert cli.main(line) == 0
    record = json.loads((out / "scores.jsonl").read_text())
    assert (record["updates"], record["validation_examples"]) == (3, 24)
    assert record["scores"]
    assert all(math.isfinite(score) for score in record["scores"].values()), record["scores"]
    (folder,) = (out / "models").iterdir()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    auto = transformers.AutoModelForSequenceClassification
    model, info = auto.from_pretrained(folder, output_loading_info=True)
    assert type(model).__name__ == f"{classes}ForSequenceClassification"
    assert not any(info.values()), info
    with torch.inference_mode():
        inputs = tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt")
        found = model.eval()(**inputs).logits.softmax(-1)
    (path,) = out.glob("predictions/*/*/*-validation.csv")
    with path.open(newline="") as f:
        scored = list(csv.DictReader(f))
    assert len(scored) == 24
    for row, number in zip(scored, [0, 1] * 12, strict=True):
        wanted = [float(row[f"probability of {model.config.id2label[k]}"]) for k in (0, 1)]
        assert found[number].tolist() == pytest.approx(wanted, abs=1e-5)
        assert row["prediction"] == model.config.id2label[int(found[number].argmax())]
