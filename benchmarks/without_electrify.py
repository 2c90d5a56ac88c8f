"""What exported folders give to somebody who has transformers and not electrify: a linear probe on
the frozen encoder, and the predictions of a fine-tuned model.

    python benchmarks/without_electrify.py ENCODER FINE_TUNED TRAIN.jsonl VALIDATION.jsonl
        [--max-seq-length 128] [--features FILE.npz] [--json FILE]

ENCODER is a folder of `electrify pretrain` or `export`, FINE_TUNED one of `electrify finetune
--save-model` on classes; lines of the files are {"text": ..., "label": ...}. The features of a text
are those of `electrify finetune --frozen-encoder last`: the mean state of its tokens, [CLS] and
[SEP] included. The probe is a ridge regression on standardised features, one output a class.

Shape suffixes: N texts, D width, C classes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

AT_ONCE = 16
RIDGE = 1.0


def read(path: str) -> tuple[list[str], list[str]]:
    """The texts of a file, and their labels."""
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return [row["text"] for row in rows], [row["label"] for row in rows]


def batches(folder: str, texts: list[str], length: int) -> Iterator[Any]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for k in range(0, len(texts), AT_ONCE):
        some = texts[k : k + AT_ONCE]
        yield tokenizer(some, padding=True, truncation=True, max_length=length, return_tensors="pt")


@torch.inference_mode()
def features(folder: str, texts: list[str], *, length: int) -> np.ndarray:
    """The mean state of each text, [N, D]."""
    encoder = AutoModel.from_pretrained(folder).eval()
    found = []
    for inputs in batches(folder, texts, length):
        states_BLD = encoder(**inputs).last_hidden_state
        mask_BL1 = inputs["attention_mask"][..., None]
        found.append((states_BLD * mask_BL1).sum(1) / mask_BL1.sum(1))
    return torch.cat(found).numpy()


def probe_accuracy(
    train_ND: np.ndarray, labels: list[str], held_ND: np.ndarray, held_labels: list[str]
) -> float:
    """The share of held-out texts of which a linear probe says the label."""
    classes = sorted(set(labels))
    mean_D, std_D = train_ND.mean(0), np.maximum(train_ND.std(0), 1e-6)
    x_ND, y_ND = (train_ND - mean_D) / std_D, (held_ND - mean_D) / std_D
    wanted_NC = np.array([[float(label == c) for c in classes] for label in labels])
    products_DD = x_ND.T @ x_ND + RIDGE * np.eye(x_ND.shape[1])
    weights_DC = np.linalg.solve(products_DD, x_ND.T @ (wanted_NC - wanted_NC.mean(0)))
    chosen_N = (y_ND @ weights_DC + wanted_NC.mean(0)).argmax(1)
    pairs = zip(chosen_N, held_labels, strict=True)
    return float(np.mean([classes[k] == label for k, label in pairs]))


@torch.inference_mode()
def predictions(folder: str, texts: list[str], *, length: int) -> list[dict[str, float]]:
    """For each text the probability of every class."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    names = model.config.id2label
    found = []
    for inputs in batches(folder, texts, length):
        rows_BC = model(**inputs).logits.softmax(-1).tolist()
        found += [{names[k]: p for k, p in enumerate(row)} for row in rows_BC]
    return found


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("encoder")
    p.add_argument("fine_tuned")
    p.add_argument("train")
    p.add_argument("validation")
    p.add_argument("--max-seq-length", type=int, default=128)
    p.add_argument("--features", help="write the features of both files here")
    p.add_argument("--json", help="write scores and probabilities here")
    a = p.parse_args()
    (texts, labels), (held, held_labels) = read(a.train), read(a.validation)
    train_ND = features(a.encoder, texts, length=a.max_seq_length)
    held_ND = features(a.encoder, held, length=a.max_seq_length)
    found = predictions(a.fine_tuned, held, length=a.max_seq_length)
    said = [max(row, key=row.__getitem__) for row in found]
    right = [name == label for name, label in zip(said, held_labels, strict=True)]
    scores = {
        "probe": probe_accuracy(train_ND, labels, held_ND, held_labels),
        "fine_tuned": sum(right) / len(right),
    }
    for name, score in scores.items():
        print(f"{name}: accuracy {score:.4f}")
    if a.features:
        np.savez(a.features, train=train_ND, validation=held_ND)
    if a.json:
        Path(a.json).write_text(json.dumps({"scores": scores, "probabilities": found}))


if __name__ == "__main__":
    main()
