"""Fine-tuning and probes on an exported folder by transformers and torch alone, beside the numbers
that electrify wrote for the same examples.

    electrify finetune ENCODER --train-file TRAIN.jsonl --validation-file VALIDATION.jsonl \\
        --seeds 1 --bf16 false --dropout 0 --learning-rate 1e-3 --num-train-epochs 3 \\
        --save-model --output-dir TUNED
    electrify finetune ENCODER --train-file TRAIN.jsonl --validation-file VALIDATION.jsonl \\
        --seeds 1 --bf16 false --dropout 0 --frozen-encoder last --output-dir PROBED
    python benchmarks/without_electrify.py ENCODER TRAIN.jsonl VALIDATION.jsonl \\
        --learning-rate 1e-3 --num-train-epochs 3 --fine-tuned TUNED --probed PROBED

ENCODER is a folder of `electrify pretrain` or `export` whose config.json has no dropout (pretrain
--dropout 0 --attention-dropout 0, or edit it), because two programs do not draw the same. A line of
the files is {"text": ..., "label": ...}, a pair of texts with "sentence2" too, or {"tokens": [...],
"tags": [...]}. This process never imports electrify, and nothing is handed over but ENCODER: what
follows is the protocol of docs/finetuning.md written a second time, for texts with classes and for
tags.

- fine-tuning: AutoModelForSequenceClassification or AutoModelForTokenClassification of ENCODER. A
  seed decides the first weights of its head (`with_new_head`) and the order of the examples
  (`batches`).
- saved: the folder in TUNED/models, as the library's classes load it, without training.
- probe: the states of the last layer, computed once, and a linear layer trained on them.

TUNED and PROBED are only read, for the column "electrify". The default lengths are those of
electrify, but a sentence that is longer is an error here (electrify reads it through windows).

Shape suffixes: N examples, B those of a batch, L tokens, W words, D width, C classes.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

BATCH = 32
DECAY = 0.8
"""The rate of a layer as a share of that of the layer above (up to a width of 1,023)."""
PROBE_EPOCHS, PROBE_RATE = 20, 2e-3
ORDER, BATCHES = 2, 3  # what random numbers are for
AT_ONCE = 32


# ------------------------------------------------------------------ the examples


@dataclass(frozen=True)
class Examples:
    """Texts, pairs or sentences as rows of tokens. words: for each token of a row the number of its
    word, -1 for special tokens; None for texts. labels: one for each text, or for each word."""

    rows: list[dict[str, list[int]]]
    words: list[list[int]] | None
    labels: list[list[str]]

    def lengths(self) -> list[int]:
        return [len(row["input_ids"]) for row in self.rows]

    def flat(self) -> list[str]:
        return [label for row in self.labels for label in row]

    def classes(self) -> list[str]:
        """By name; those of texts that are whole numbers come first, by value."""
        numbers = self.words is None
        return sorted(
            set(self.flat()),
            key=lambda c: (0, int(c), c) if numbers and c.isdecimal() else (1, 0, c),
        )


def read(path: str, tokenizer: Any, length: int | None) -> Examples:
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    given = [json.loads(line) for line in lines]
    if "tokens" in given[0]:
        return sentences(given, tokenizer, length or 256)
    pairs = [one["sentence2"] for one in given] if "sentence2" in given[0] else None
    texts = [one["text"] for one in given]
    found = tokenizer(texts, pairs, truncation=True, max_length=length or 128)
    rows = [{name: found[name][k] for name in found} for k in range(len(given))]
    return Examples(rows, None, [[str(one["label"])] for one in given])


def sentences(given: list[dict[str, Any]], tokenizer: Any, length: int) -> Examples:
    rows, words = [], []
    for number, one in enumerate(given, 1):
        found = tokenizer([" " + word for word in one["tokens"]], is_split_into_words=True)
        place = [-1 if word is None else word for word in found.word_ids()]
        if len(place) > length or set(place) != {-1, *range(len(one["tokens"]))}:
            raise SystemExit(
                f"sentence {number} has {len(place)} tokens, at most {length} are read here, or a "
                "word without any token: leave it out"
            )
        rows.append(dict(found))
        words.append(place)
    return Examples(rows, words, [one["tags"] for one in given])


def inputs_of(examples: Examples, index: Sequence[int], tokenizer: Any) -> tuple[Any, Tensor]:
    """The inputs of a model, and for each token the number of its word in its row, [B, L]; all
    tokens of a text, special ones included, are one word."""
    inputs = tokenizer.pad([examples.rows[k] for k in index], return_tensors="pt")
    if examples.words is None:
        return inputs, inputs["attention_mask"] - 1
    longest = inputs["input_ids"].shape[1]
    rows = [examples.words[k] for k in index]
    return inputs, torch.tensor([row + [-1] * (longest - len(row)) for row in rows])


def means(x_BLD: Tensor, word_BL: Tensor) -> Tensor:
    """[W, D]: the mean over the tokens of each word of a batch."""
    real_BL = word_BL >= 0
    count_B = word_BL.max(1).values + 1
    word_P = (word_BL + (count_B.cumsum(0) - count_B)[:, None])[real_BL]
    sums_WD = x_BLD.new_zeros(int(count_B.sum()), x_BLD.shape[-1])
    return sums_WD.index_add(0, word_P, x_BLD[real_BL]) / word_P.bincount()[:, None]


# ------------------------------------------------------------------ what a seed decides


def mixed(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64."""
    x = (x ^ (x >> 30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> 27)) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> 31)


def shuffled(n: int, *coordinates: int) -> np.ndarray:
    """0 .. n-1 in the order of a hash of (coordinates, number)."""
    state = np.zeros(n, np.uint64)
    golden, a = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
    for c in (*(np.full(n, c, np.uint64) for c in coordinates), np.arange(n, dtype=np.uint64)):
        state = mixed(state * golden + c * a + golden)
    return np.argsort(state.view(np.int64), kind="stable")


def batches(lengths: list[int], *, seed: int, epoch: int) -> list[list[int]]:
    """Every example once. Up to 16 batches, but at most a quarter of all, are sorted by length
    together; then the order of the batches is shuffled. What is left over is a batch as drawn."""
    drawn, long = shuffled(len(lengths), seed, ORDER, epoch), np.array(lengths)
    whole = len(drawn) - len(drawn) % BATCH
    found = [drawn[whole:]] if whole < len(drawn) else []
    pool = max(1, min(16, whole // BATCH // 4)) * BATCH
    for begin in range(0, whole, pool):
        some = drawn[begin : min(begin + pool, whole)]
        some = some[np.argsort(long[some], kind="stable")]
        found += [some[k : k + BATCH] for k in range(0, len(some), BATCH)]
    return [found[k].tolist() for k in shuffled(len(found), seed, BATCHES, epoch)]


def linear_layer(inputs: int, outputs: int, *, std: float, seed: int) -> nn.Linear:
    torch.manual_seed(seed)
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=std)
    nn.init.zeros_(layer.bias)
    return layer


# ------------------------------------------------------------------ training


def train(
    loss_of: Callable[[list[int]], Tensor],
    rates: dict[float, list[nn.Parameter]],
    lengths: list[int],
    *,
    epochs: float,
    seed: int,
) -> list[float]:
    """All updates: AdamW, a warm-up over a tenth of them, then down to 0, gradients clipped to norm
    1. rates: parameters by their peak rate. Returns the loss of every update."""
    groups = [{"params": parameters, "lr": rate} for rate, parameters in rates.items()]
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0)
    total = max(1, math.ceil(math.ceil(len(lengths) / BATCH) * epochs))
    schedule = transformers.get_linear_schedule_with_warmup(adam, round(total / 10), total + 1)
    adam.step()  # there are no gradients yet; one step ahead, no update has a rate of 0
    schedule.step()
    losses: list[float] = []
    for epoch in range(math.ceil(epochs)):
        for index in batches(lengths, seed=seed, epoch=epoch)[: total - len(losses)]:
            adam.zero_grad()
            loss = loss_of(index)
            loss.backward()
            nn.utils.clip_grad_norm_([p for group in rates.values() for p in group], 1.0)
            adam.step()
            schedule.step()
            losses.append(loss.item())
    return losses


def without_dropout(folder: str, **options: Any) -> Any:
    config = transformers.AutoConfig.from_pretrained(folder, **options)
    for name, value in config.to_dict().items():
        if "dropout" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    return config


def with_new_head(folder: str, *, classes: int, words: bool, seed: int) -> Any:
    """The library's class with the encoder of the folder. Its other weights are those that the
    class draws from torch's generator."""
    config = without_dropout(folder, num_labels=classes, problem_type="single_label_classification")
    kind = "TokenClassification" if words else "SequenceClassification"
    torch.manual_seed(seed)
    model = getattr(transformers, f"AutoModelFor{kind}").from_config(config)
    encoder, info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    lacking = [name for name in info["missing_keys"] if "pooler" not in name]
    if lacking:
        raise SystemExit(f"{folder} lacks weights of the encoder: {', '.join(lacking)}")
    state = {name: x for name, x in encoder.state_dict().items() if "pooler" not in name}
    model.base_model.load_state_dict(state, strict=False)
    return model


def rates_of(model: Any, peak: float) -> dict[float, list[nn.Parameter]]:
    """Parameters by rate: the head's, and a factor for every layer below it."""
    depth, found = model.config.num_hidden_layers, defaultdict(list)
    for name, parameter in model.named_parameters():
        layer = re.search(r"\.layers?\.(\d+)\.", name)
        if not name.startswith(model.base_model_prefix + ".") or "pooler" in name:
            below = 0
        elif layer:
            below = depth - int(layer[1])
        else:  # tables of words and distances, and their norms, are below all layers
            below = 1 if "final_norm" in name else depth + 1
        found[peak * DECAY**below].append(parameter)
    return found


def logits_of(model: Any, examples: Examples, index: Sequence[int], tokenizer: Any) -> Tensor:
    """[B, C], or for sentences [W, C]: the mean of the logits of a word's tokens."""
    inputs, word_BL = inputs_of(examples, index, tokenizer)
    logits = model(**inputs).logits
    return logits if examples.words is None else means(logits, word_BL)


def targets_of(examples: Examples, index: Sequence[int], classes: list[str]) -> Tensor:
    return torch.tensor([classes.index(label) for k in index for label in examples.labels[k]])


# ------------------------------------------------------------------ answers and scores


@dataclass
class Part:
    """What one way gives: its losses, its probabilities [N or W, C], and its scores; beside them
    what electrify wrote."""

    classes: list[str]
    probabilities: np.ndarray
    losses: list[float] = field(default_factory=list)
    predicted: list[str] = field(default_factory=list)
    rows: list[tuple[str, float | None, float | None, float | None]] = field(default_factory=list)
    """Name, value here, value of electrify, difference."""

    def add(self, name: str, here: float, there: float | None) -> None:
        self.rows.append((name, here, there, None if there is None else abs(here - there)))

    def compare(self, held: Examples, out: Path | None, seed: int) -> None:
        self.predicted = [self.classes[k] for k in self.probabilities.argmax(1)]
        record: dict[str, Any] = {"curve": [], "scores": {}}
        if out is not None:
            lines = (out / "scores.jsonl").read_text(encoding="utf-8").splitlines()
            (record,) = (r for r in map(json.loads, lines) if r["seed"] == seed)
        before = 0
        for point in record["curve"] if self.losses else ():
            mean = float(np.mean(self.losses[before : point["step"]]))
            self.add(f"loss, updates {before + 1}-{point['step']}", mean, point["loss"])
            before = point["step"]
        if self.losses and not record["curve"]:
            self.add("loss, last update", self.losses[-1], None)
        for name, value in scores_of(held, self.predicted).items():
            self.add(name, value, record["scores"].get(name))
        if out is not None:
            self._answers(held, out, seed)

    def _answers(self, held: Examples, out: Path, seed: int) -> None:
        """Every prediction and, for texts, every probability that electrify wrote."""
        ending = "csv" if held.words is None else "txt"
        (path,) = out.glob(f"predictions/*/*-seed{seed}/*.{ending}")
        if held.words is None:
            with path.open(newline="", encoding="utf-8") as f:
                table = list(csv.DictReader(f))
            theirs = [row["prediction"] for row in table]
            columns = [f"probability of {name}" for name in self.classes]
            wanted = np.array([[float(row[name]) for name in columns] for row in table])
            largest = float(np.abs(self.probabilities - wanted).max())
            self.rows.append((f"{wanted.size} probabilities, at most", None, None, largest))
        else:
            lines = path.read_text(encoding="utf-8").splitlines()
            theirs = [line.split(" ")[2] for line in lines if line]
        same = [a == b for a, b in zip(self.predicted, theirs, strict=True)]
        self.add("equal predictions, all", sum(same), len(same))

    def show(self, title: str) -> None:
        print(f"\n| {title} | transformers | electrify | difference |\n|---|---|---|---|")
        for name, *numbers in self.rows:
            shown = zip(numbers, (".7g", ".7g", ".1e"), strict=True)
            cells = ["" if x is None else format(x, how) for x, how in shown]
            print("|", " | ".join([name, *cells]), "|")


def scores_of(held: Examples, predicted: list[str]) -> dict[str, float]:
    """The accuracy and, where tags are chunks (IOB2), the F1 of chunks."""
    labels = held.flat()
    right = sum(a == b for a, b in zip(predicted, labels, strict=True))
    scores = {"accuracy": right / len(labels)}
    if held.words is not None and any(label.startswith("B-") for label in labels):
        found, wanted = chunks(held, predicted), chunks(held, labels)
        scores["f1"] = 2 * len(found & wanted) / max(1, len(found) + len(wanted))
    return scores


def chunks(held: Examples, tags: list[str]) -> set[tuple[int, int, str]]:
    """(first word, the word after the last, type), the words counted over all sentences."""
    found = set()
    begin = 0
    for row in held.labels:
        first, last = begin, begin + len(row)
        for end in range(first + 1, last + 1):
            if end == last or tags[end] != f"I-{tags[first][2:]}":
                if tags[first] != "O":
                    found.add((first, end, tags[first][2:]))
                first = end
        begin = last
    return found


@torch.inference_mode()
def answered(model: Any, classes: list[str], held: Examples, tokenizer: Any) -> Part:
    model.eval()
    numbers = range(len(held.rows))
    logits = [
        logits_of(model, held, numbers[k : k + AT_ONCE], tokenizer)
        for k in range(0, len(numbers), AT_ONCE)
    ]
    return Part(classes, torch.cat(logits).double().softmax(-1).numpy())


# ------------------------------------------------------------------ the three ways


def fine_tuning(a: argparse.Namespace, both: list[Examples], tokenizer: Any) -> Part:
    shown, held = both
    classes = shown.classes()
    words = shown.words is not None
    model = with_new_head(a.encoder, classes=len(classes), words=words, seed=a.seed).train()

    def loss_of(index: list[int]) -> Tensor:
        logits = logits_of(model, shown, index, tokenizer)
        return F.cross_entropy(logits, targets_of(shown, index, classes))

    rates = rates_of(model, a.learning_rate)
    how: dict[str, Any] = {"epochs": a.num_train_epochs, "seed": a.seed}
    losses = train(loss_of, rates, shown.lengths(), **how)
    part = answered(model, classes, held, tokenizer)
    part.losses = losses
    part.compare(held, a.fine_tuned, a.seed)
    return part


def saved(a: argparse.Namespace, held: Examples) -> Part:
    """With the tokenizer of the saved folder."""
    (folder,) = (a.fine_tuned / "models").iterdir()
    kind = "SequenceClassification" if held.words is None else "TokenClassification"
    model, info = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(
        folder, output_loading_info=True
    )
    if any(info.values()):
        raise SystemExit(f"{folder} does not fit the library's class: {info}")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    again = read(a.validation, tokenizer, a.max_seq_length)
    names = model.config.id2label
    part = answered(model, [names[k] for k in range(len(names))], again, tokenizer)
    part.compare(again, a.fine_tuned, a.seed)
    return part


@torch.inference_mode()
def features(encoder: Any, examples: Examples, tokenizer: Any) -> Tensor:
    """The mean state of each text or of each word, [N or W, D]."""
    found = []
    for k in range(0, len(examples.rows), AT_ONCE):
        index = range(len(examples.rows))[k : k + AT_ONCE]
        inputs, word_BL = inputs_of(examples, index, tokenizer)
        found.append(means(encoder(**inputs).last_hidden_state, word_BL))
    return torch.cat(found)


def features_of(a: argparse.Namespace, path: str, examples: Examples, tokenizer: Any) -> Tensor:
    """For a pair of texts u and v: u, v, |u - v| and u * v."""
    encoder = transformers.AutoModel.from_pretrained(a.encoder).eval()
    given = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    if "sentence2" not in given[0]:
        return features(encoder, examples, tokenizer)
    sides = [
        tokenizer([one[name] for one in given], truncation=True, max_length=a.max_seq_length or 128)
        for name in ("text", "sentence2")
    ]
    rows = [[{n: side[n][k] for n in side} for k in range(len(given))] for side in sides]
    u, v = (features(encoder, Examples(side, None, []), tokenizer) for side in rows)
    return torch.cat([u, v, (u - v).abs(), u * v], -1)


def probe(a: argparse.Namespace, both: list[Examples], tokenizer: Any) -> Part:
    shown, held = both
    classes = shown.classes()
    x_ND = features_of(a, a.train, shown, tokenizer)
    y_ND = features_of(a, a.validation, held, tokenizer)
    mean_D, std_D = x_ND.mean(0), x_ND.std(0, correction=0).clamp(min=1e-6)
    x_ND, y_ND = (x_ND - mean_D) / std_D, (y_ND - mean_D) / std_D
    std = transformers.AutoConfig.from_pretrained(a.encoder).initializer_range
    layer = linear_layer(x_ND.shape[1], len(classes), std=std, seed=a.seed)
    lengths = [len(row) for row in shown.labels]
    of_example = x_ND.split(lengths)

    def loss_of(index: list[int]) -> Tensor:
        logits = layer(torch.cat([of_example[k] for k in index]))
        return F.cross_entropy(logits, targets_of(shown, index, classes))

    rates = {PROBE_RATE: list(layer.parameters())}
    losses = train(loss_of, rates, lengths, epochs=PROBE_EPOCHS, seed=a.seed)
    part = Part(classes, layer(y_ND).detach().double().softmax(-1).numpy(), losses)
    part.compare(held, a.probed, a.seed)
    return part


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("encoder", "train", "validation"):
        p.add_argument(name)
    p.add_argument("--learning-rate", type=float, default=1e-3)
    p.add_argument("--num-train-epochs", type=float, default=3)
    p.add_argument("--max-seq-length", type=int, help="default: 128, of sentences 256")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--fine-tuned", type=Path, help="output folder of finetune --save-model")
    p.add_argument("--probed", type=Path, help="output folder of finetune --frozen-encoder last")
    p.add_argument("--json", type=Path, help="write every number here")
    a = p.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(a.encoder)
    both = [read(path, tokenizer, a.max_seq_length) for path in (a.train, a.validation)]
    parts = {"fine-tuning": fine_tuning(a, both, tokenizer)}
    if a.fine_tuned:
        parts["saved"] = saved(a, both[1])
    parts["probe"] = probe(a, both, tokenizer)
    for title, part in parts.items():
        part.show(title)
    if a.json:
        found = {
            title: {"rows": part.rows, "losses": part.losses, "predicted": part.predicted}
            for title, part in parts.items()
        }
        a.json.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
