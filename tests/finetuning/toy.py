"""Toy tasks that a tiny random model learns, and short ways to readers and forward passes."""

from pathlib import Path
from typing import Any

import torch

from electrify.finetuning.model import Reader, load_encoder
from electrify.finetuning.options import FinetuneSettings
from electrify.finetuning.tasks import Answer, Example, Question, Sentence, TaskData

CPU = torch.device("cpu")
ADJECTIVES = ("good", "great", "fine", "bad", "awful", "poor")
NOUNS = ("film", "plot")
QUICK = FinetuneSettings(
    num_train_epochs=1,
    max_seq_length=16,
    bf16="false",
    max_train_samples=24,
    per_device_train_batch_size=8,
    device="cpu",
)
THOROUGH = FinetuneSettings(
    learning_rate=3e-3,
    layerwise_lr_decay=1.0,
    num_train_epochs=24,
    per_device_train_batch_size=8,
    bf16="false",
    dropout=0.0,
    device="cpu",
)


def reader_of(folder: Path | str, **options: Any) -> Reader:
    return load_encoder(str(folder), device=CPU, **options)


def sharpened(net: Any, *, std: float = 0.5) -> Any:
    """The net with larger weights, in evaluation mode: fresh weights of 0.02 give all texts almost
    the same logits."""
    torch.manual_seed(3)
    inside = {id(p) for p in net.encoder.parameters()}
    with torch.no_grad():
        for parameter in net.parameters():
            if id(parameter) not in inside:
                parameter.normal_(std=std)
            elif parameter.ndim > 1:
                parameter.normal_(std=0.2)
    return net.eval()


class Given(torch.nn.Module):
    """A net with these logits."""

    def __init__(self, logits_BLC: torch.Tensor) -> None:
        super().__init__()
        self.logits_BLC = torch.nn.Parameter(logits_BLC)

    def forward(self, inputs: object) -> torch.Tensor:
        return self.logits_BLC


def logits_of(net: Any, rows: Any) -> torch.Tensor:
    """All rows in one batch."""
    with torch.inference_mode():
        return net(rows.batch(torch.arange(len(rows.lengths_N))).inputs)


def alone(net: Any, rows: Any) -> torch.Tensor:
    """The logits of each row, in a batch of its own."""
    with torch.inference_mode():
        batches = (rows.batch(torch.tensor([k])) for k in range(len(rows.lengths_N)))
        return torch.cat([net(batch.inputs) for batch in batches])


def task_of(kind: Any, train: Any, **fields: Any) -> TaskData:
    """A task with the same training and validation examples."""
    usual = {
        "classification": {"labels": ("a", "b"), "metrics": ("accuracy",)},
        "multilabel": {"labels": ("a", "b", "c"), "metrics": ("micro_f1", "accuracy")},
        "regression": {"labels": (), "metrics": ("pearson", "spearman")},
        "tagging": {
            "labels": tuple(dict.fromkeys(t for s in train for t in getattr(s, "tags", ()))),
            "metrics": ("f1", "accuracy"),
        },
        "answering": {"labels": (), "metrics": ("exact", "f1")},
    }[kind]
    given = {"name": "toy", "kind": kind, "epochs": 1, "train": tuple(train)}
    given |= {"validation": tuple(train)}
    return TaskData(**given | usual | fields)  # type: ignore[arg-type]


def reviews_task() -> TaskData:
    """Texts of two classes: which word occurs."""
    texts = [
        f"the {thing} was {more}{word}"
        for word in ADJECTIVES
        for thing in ("film", "plot", "one")
        for more in ("", "very ", "not very ")
    ]
    made = [Example(text, None, k // 27) for k, text in enumerate(texts)]
    return task_of("classification", made[::2] + made[1::2], validation=tuple(made[::3]))


def values(*, pairs: bool = True) -> TaskData:
    """A value that counts a word."""
    texts = [
        Example(f"the film was {'very ' * n}good", ("one film" if n % 2 else "it") * pairs or None)
        for n in range(6)
    ]
    made = [Example(e.text, e.pair, 100.0 + 10 * n) for n, e in enumerate(texts)]
    return task_of("regression", made * 6, validation=tuple(made), symmetric=True)


def sentence(*words: str) -> Sentence:
    """B-X on an adjective before a noun, I-X on that noun, O elsewhere: the tag of a noun needs the
    word before it."""
    tags = []
    for k, word in enumerate(words):
        before, after = words[k - 1] if k else "", words[k + 1] if k + 1 < len(words) else ""
        chunk = (word in ADJECTIVES and after in NOUNS) or (word in NOUNS and before in ADJECTIVES)
        tags.append("O" if not chunk else "I-X" if word in NOUNS else "B-X")
    return Sentence(words, tuple(tags))


def chunks() -> TaskData:
    frames = ["the {a} {n} was not {a}", "{a} and {a} {n}", "it is a {n}", "{n} {a} {n} very {a}"]
    made = [
        sentence(*frame.format(a=a, n=n).split())
        for frame in frames
        for a in ADJECTIVES
        for n in NOUNS
    ]
    return task_of("tagging", made, name="chunks", validation=tuple(made[::3]))


def questions(*, impossible: bool) -> tuple[Question, ...]:
    """What the film was: the adjective and the `very` before it. impossible: also contexts that do
    not tell."""
    found = []
    for k, a in enumerate(ADJECTIVES):
        for n, thing in enumerate(("film", "plot", "one")):
            told = [
                (f"It is a {thing} and the {thing} was very {a}.", f"very {a}"),
                (f"Very {a} was the {thing}, and it was one.", f"Very {a}"),
                (f"It is {'not ' * (k + n)}the {thing} and it was one.", None),
            ]
            for context, answer in told[: 3 if impossible else 2]:
                answers = (Answer(answer, context.index(answer)),) if answer else ()
                found.append(Question(f"q{len(found)}", f"The {thing}?", context, answers))
    return tuple(found)


def answering(*, impossible: bool) -> TaskData:
    every = questions(impossible=impossible)
    more = {"metrics": ("best_exact", "best_f1", "exact", "f1", "no_answer_exact")}
    return task_of(
        "answering", every, name="squad", validation=every[::2], **more if impossible else {}
    )
