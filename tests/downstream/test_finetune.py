from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from electrify.downstream.epochs import training_examples
from electrify.downstream.examples import Example
from electrify.downstream.finetune import _held, _kept, finetune
from electrify.downstream.one_run import finetune_one
from electrify.downstream.options import (
    FinetuneConfig,
    FinetuneSettings,
)
from electrify.downstream.read.own import read_own
from electrify.downstream.records import settings_text
from electrify.downstream.report import Report
from electrify.downstream.tasks import TaskData
from electrify.errors import UserError

QUICK = FinetuneSettings(
    num_train_epochs=1,
    max_seq_length=16,
    bf16="false",
    max_train_samples=24,
    per_device_train_batch_size=8,
)
THOROUGH = FinetuneSettings(
    num_train_epochs=12,
    max_seq_length=16,
    bf16="false",
    learning_rate=5e-3,
    layerwise_lr_decay=1.0,
    per_device_train_batch_size=8,
)


def read(reviews: tuple[str, str]) -> TaskData:
    return read_own(*reviews)


def options(zoo: Path, reviews: tuple[str, str], out: Path, **more: object) -> FinetuneConfig:
    given = {
        "models": (str(zoo / "electra"),),
        "output_dir": str(out),
        "train_file": reviews[0],
        "validation_file": reviews[1],
        "seeds": 2,
        "settings": QUICK,
    }
    return FinetuneConfig(**given | more)  # type: ignore[arg-type]


def values() -> TaskData:
    """A value that counts a word: regression."""
    texts = [
        Example(f"the film was {'very ' * n}good", "one film" if n % 2 else "it", 100.0 + 10 * n)
        for n in (0, 1, 2, 3, 4, 5)
    ]
    return TaskData(
        "very",
        "regression",
        (),
        ("pearson", "spearman"),
        12,
        tuple(texts * 6),
        tuple(texts),
        symmetric=True,
    )


@pytest.mark.parametrize("name", ["electra", "bert", "roberta"])
def test_it_learns_a_class(zoo: Path, reviews: tuple[str, str], name: str):
    found = finetune_one(str(zoo / name), read(reviews), seed=0, settings=THOROUGH)
    assert found.scores["accuracy"] == 1.0
    assert [p.step for p in found.curve] == [
        21,
        42,
        63,
        84,
    ]  # 7 updates an epoch, every third of 12 epochs
    assert found.curve[0].loss > found.curve[-1].loss
    assert found.curve[-1].metrics == found.scores
    assert (found.train_examples, found.updates) == (54, 84)


def test_it_learns_a_value_far_from_zero(zoo: Path):
    found = finetune_one(str(zoo / "bert"), values(), seed=0, settings=THOROUGH)
    assert found.scores["pearson"] > 0.9


def test_a_run_is_a_function_of_its_seed_and_leaves_torch_alone(
    zoo: Path, reviews: tuple[str, str]
):
    task, model = read(reviews), f"random:{zoo / 'electra'}"
    torch.manual_seed(5)
    first = finetune_one(model, task, seed=3, settings=QUICK)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))
    again, other = (
        finetune_one(model, task, seed=3, settings=QUICK),
        finetune_one(model, task, seed=4, settings=QUICK),
    )
    assert again.curve == first.curve
    assert other.curve[0].loss != first.curve[0].loss


def test_the_subset_is_of_the_seed_and_a_smaller_one_is_inside_a_larger_one(
    reviews: tuple[str, str],
):
    task = read(reviews)
    drawn = {
        n: training_examples(task, seed=1, settings=FinetuneSettings(max_train_samples=n))
        for n in (10, 20)
    }
    assert drawn[10] == drawn[20][:10]
    assert len(set(drawn[20])) == 20
    assert drawn[10] != training_examples(
        task, seed=2, settings=FinetuneSettings(max_train_samples=10)
    )
    assert training_examples(
        task, seed=1, settings=FinetuneSettings(max_train_samples=999)
    ) == list(task.train)


def test_pairs_in_both_orders():
    task = values()
    doubled = training_examples(task, seed=0, settings=FinetuneSettings(double_unordered=True))
    assert len(doubled) == 72
    assert doubled[36] == Example(task.train[0].pair or "", task.train[0].text, task.train[0].label)


def test_the_whole_grid_its_files_and_going_on(zoo: Path, reviews: tuple[str, str], tmp_path: Path):
    out = tmp_path / "out"
    report = finetune(options(zoo, reviews, out, random_baseline=True))
    shown = [(r.metric, r.model.partition(":")[0] == "random", r.seeds) for r in report.rows]
    assert shown[:4] == [
        ("accuracy", False, 2), ("accuracy", True, 2), ("macro_f1", False, 2),
        ("macro_f1", True, 2),
    ]  # fmt: skip
    before = [json.loads(line) for line in (out / "scores.jsonl").read_text().splitlines()]
    assert [(r["seed"], r["train_examples"], r["validation_examples"]) for r in before] == [
        (0, 24, 18),
        (1, 24, 18),
    ] * 2
    assert str(tmp_path) not in "".join(
        p.read_text() for p in out.rglob("*.*") if p.suffix != ".png"
    ), "relative paths only"
    # a run that was cut off between two of its scores ends with what it had, and what was missing
    lines = (out / "scores.jsonl").read_text().splitlines(keepends=True)
    (out / "scores.jsonl").write_text("".join(lines[:3]))
    report = finetune(options(zoo, reviews, out, random_baseline=True, seeds=3))
    after = [json.loads(line) for line in (out / "scores.jsonl").read_text().splitlines()]
    assert after[:3] == before[:3]
    assert {(r["model"], r["seed"]) for r in after} == {
        (r["model"], s) for r in before for s in range(3)
    }
    again = next(r for r in after if (r["model"], r["seed"]) == (before[3]["model"], 1))
    assert again["curve"] == before[3]["curve"]
    check_report(report, out)
    assert (out / "report.png").stat().st_size > 5000


def check_report(report: Report, out: Path) -> None:
    whole = json.loads((out / "report.json").read_text())
    assert whole["rows"][0]["median"] == report.rows[0].median
    assert len(whole["runs"]) == 6
    rows = list(csv.DictReader((out / "report.csv").read_text().splitlines()))
    assert [float(r["median"]) for r in rows] == [r.median for r in report.rows]
    assert (out / "report.md").read_text().count("| accuracy |") == 2
    assert not list(out.glob("*.part"))


def test_folders_of_other_runs_are_refused(zoo: Path, reviews: tuple[str, str], tmp_path: Path):
    model = tmp_path / "model"
    shutil.copytree(zoo / "electra", model)
    out = tmp_path / "out"
    first = options(zoo, reviews, out, models=(str(model),), seeds=1)
    finetune(first)
    with pytest.raises(
        UserError,
        match=r"out holds runs with --max-train-samples 24, not none; choose another --out",
    ):
        finetune(
            options(
                zoo,
                reviews,
                out,
                settings=FinetuneSettings(
                    num_train_epochs=1,
                    max_seq_length=16,
                    bf16="false",
                    per_device_train_batch_size=8,
                ),
            )
        )
    shutil.copy(zoo / "bert" / "model.safetensors", model / "model.safetensors")
    with pytest.raises(UserError, match=r"holds scores of model .* from before it changed"):
        finetune(first)
    shutil.copy(zoo / "electra" / "model.safetensors", model / "model.safetensors")
    Path(reviews[1]).write_text(Path(reviews[0]).read_text())
    with pytest.raises(
        UserError, match=r"holds scores of other examples of task 'reviews': a file has changed"
    ):
        finetune(first)
    with pytest.raises(UserError, match=r"holds no finetune\.json, so it is not ours"):
        finetune(options(zoo, reviews, model))


def test_a_broken_second_model_is_found_before_the_first_one_trains(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path
):
    with pytest.raises(UserError, match="no such folder"):
        finetune(
            options(
                zoo,
                reviews,
                tmp_path / "out",
                models=(str(zoo / "electra"), str(tmp_path / "none")),
            )
        )
    assert not (tmp_path / "out").exists(), "nothing half-written"


def test_sequences_longer_than_the_model_reads(zoo: Path, reviews: tuple[str, str]):
    with pytest.raises(UserError, match=r"reads 39 tokens at most; give --max-seq-length 39"):
        finetune_one(
            str(zoo / "roberta"),
            read(reviews),
            seed=0,
            settings=FinetuneSettings(max_seq_length=64),
        )


@pytest.mark.parametrize("name", ["electra", "bert", "roberta"])
@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_a_saved_model_says_what_the_run_said(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path, name: str, kind: str
):
    task = read(reviews) if kind == "classification" else values()
    found = finetune_one(
        str(zoo / name), task, seed=0, settings=THOROUGH, save_to=tmp_path / "saved"
    )
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    inputs = tokenizer(
        [e.text for e in task.validation],
        None if kind == "classification" else [e.pair for e in task.validation],
        padding=True,
        return_tensors="pt",
    )
    with torch.no_grad():
        logits = model(**inputs).logits
    if kind == "classification":
        said = [model.config.id2label[int(i)] for i in logits.argmax(-1)]
        assert (
            sum(a == task.labels[int(e.label)] for a, e in zip(said, task.validation, strict=True))
            / len(said)
            == found.scores["accuracy"]
        )
    else:
        labels = torch.tensor([e.label for e in task.validation])
        assert float(torch.corrcoef(torch.stack([labels, logits[:, 0]]))[0, 1]) == pytest.approx(
            found.scores["pearson"], abs=1e-3
        )
        assert abs(float(logits.mean()) - 125) < 20, "on the scale of the labels"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "task is missing"),
        ({"train_file": "a.csv"}, "validation_file is missing"),
        (
            {"task": ("cola",), "data_dir": "d", "train_file": "a.csv", "validation_file": "b.csv"},
            "exclude each other",
        ),
        ({"task": ("cola",), "data_dir": "d", "seeds": 0}, "seeds "),
        ({"task": ("cola",), "data_dir": "d", "models": ()}, "models "),
    ],
)
def test_options_are_checked(given: dict[str, object], said: str):
    with pytest.raises(UserError, match=said):
        FinetuneConfig(**{"models": ("m",), "output_dir": "o"} | given)  # type: ignore[arg-type]


def test_the_first_seeds_model_is_kept_on_request(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path
):
    wanted = options(zoo, reviews, tmp_path / "out", save_model=True)
    finetune(wanted)
    (kept,) = (tmp_path / "out" / "models").iterdir()
    assert AutoModelForSequenceClassification.from_pretrained(kept).config.id2label == {
        0: "negative",
        1: "positive",
    }
    shutil.rmtree(kept)
    finetune(wanted)  # the score is there, the model is not: the first seed runs again
    assert kept.is_dir()
    (tmp_path / "distil").mkdir()
    (tmp_path / "distil" / "config.json").write_text('{"model_type": "distilbert"}')
    with pytest.raises(
        UserError, match=r"--save-model knows .*modernbert, deberta-v2, not 'distilbert'"
    ):
        finetune(
            options(
                zoo,
                reviews,
                tmp_path / "other",
                save_model=True,
                models=(str(tmp_path / "distil"),),
            )
        )


def test_it_learns_several_labels_at_once_and_keeps_them(zoo: Path, tmp_path: Path):
    """`film` or `plot` is one label, how it was another, and a text without either has none."""
    rows = [
        {"text": f"{opening} {thing} {word}",
         "label": [thing] * (thing in ("film", "plot")) + ["good"] * (word == "good")}
        for opening in ("it is the", "not a", "one", "the very")
        for thing in ("film", "plot", "one") for word in ("good", "bad", "was")
    ]  # fmt: skip
    path = tmp_path / "several.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    task = read_own(str(path), str(path))
    longer = dataclasses.replace(THOROUGH, num_train_epochs=60.0, dropout=0.0)
    found = finetune_one(
        str(zoo / "electra"), task, seed=1, settings=longer, save_to=tmp_path / "saved"
    )
    assert (list(found.scores), task.labels) == (
        ["micro_f1", "macro_f1", "accuracy", "roc_auc", "pr_auc"],
        ("film", "good", "plot"),
    )
    assert found.scores["accuracy"] > 0.9, found.curve
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").eval()
    assert model.config.problem_type == "multi_label_classification"
    inputs = AutoTokenizer.from_pretrained(tmp_path / "saved")(rows[0]["text"], return_tensors="pt")
    with torch.no_grad():
        said = [
            model.config.id2label[k]
            for k, x in enumerate(model(**inputs).logits[0].tolist())
            if x > 0
        ]
    assert said == ["film", "good"]


@pytest.mark.slow
def test_a_compiled_run_says_the_same(zoo: Path, reviews: tuple[str, str]):
    """The encoder is compiled once for all lengths; without dropout the curve is the same up to
    rounding."""
    short = dataclasses.replace(THOROUGH, dropout=0.0, num_train_epochs=2.0)
    plain, compiled = (
        finetune_one(
            str(zoo / "electra"),
            read(reviews),
            seed=0,
            settings=dataclasses.replace(short, torch_compile=c),
        )
        for c in (False, True)
    )
    assert [p.step for p in plain.curve] == [p.step for p in compiled.curve]
    assert compiled.curve[0].loss == pytest.approx(plain.curve[0].loss, rel=0.05), (
        "its own dropout is drawn otherwise when compiled"
    )


def test_an_option_that_one_of_two_commands_lacks(tmp_path: Path):
    """It is shown as the command line has it."""
    given = FinetuneSettings(max_train_samples=24)
    for held, asked, says in (
        (FinetuneSettings(), given, "runs with --max-train-samples none, not 24"),
        (given, FinetuneSettings(), "runs with --max-train-samples 24, not none"),
    ):
        (tmp_path / "finetune.json").write_text(settings_text(_kept(held)))
        with pytest.raises(UserError, match=says):
            _held(tmp_path, asked)


def test_threads_are_chosen_once_and_kept_by_a_rerun(
    zoo: Path, reviews: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Written down with every run; a rerun takes those of the runs that are done, and torch has its
    own number back."""
    from electrify.train import machine

    asked: list[object] = []

    def chosen(given: str, *, earlier: object, **_: object) -> machine.Threads:
        asked.append((given, earlier))
        return machine.Threads(2, "user")

    monkeypatch.setattr("electrify.downstream.finetune.choose", chosen)
    before = torch.get_num_threads()
    finetune(options(zoo, reviews, tmp_path / "out", seeds=1))
    finetune(options(zoo, reviews, tmp_path / "out", seeds=2, threads="2"))
    finetune(
        options(zoo, reviews, tmp_path / "out", seeds=2)
    )  # nothing is left to run, so nothing is measured
    assert asked == [("auto", None), ("2", 2)]
    assert [
        json.loads(line)["threads"]
        for line in (tmp_path / "out" / "scores.jsonl").read_text().splitlines()
    ] == [2, 2]
    assert torch.get_num_threads() == before
