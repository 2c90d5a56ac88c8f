"""`predict`: a saved model predicts what was validated, models of the library what the library
computes, and files keep their columns."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from toy import task_of
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)
from zoo import predict

import electrify
from electrify.finetuning.embed import embed, load_embedder
from electrify.finetuning.one_run import finetune_one
from electrify.finetuning.options import FinetuneSettings, PredictConfig
from electrify.finetuning.predict import load_predictor, predict_files
from electrify.finetuning.predict import predict as predict_with
from electrify.finetuning.tasks import Answer, Example, Question, TaskData
from small import listing, mistake, run

GOOD = ("good", "great", "fine")
BAD = ("bad", "awful", "poor")
ROWS = [("1", "the film was good"), ("2", 'a "very, very" bad\nplot'), ("3", "")]


def trained(model: Path, task: TaskData, folder: Path, **more: Any) -> dict[str, str]:
    """Saves a model; the predictions for the validation examples, as the run writes them."""
    given: dict[str, Any] = {"num_train_epochs": 3, "max_seq_length": 16} | more
    settings = FinetuneSettings(per_device_train_batch_size=4, **given)
    return finetune_one(str(model), task, seed=0, settings=settings, save_to=folder).files


def texts_task(kind: Any, *, pairs: bool) -> TaskData:
    """The first text decides; every third is longer than 16 tokens."""
    examples = []
    for k, word in enumerate((*GOOD, *BAD) * 4):
        text = f"the film was {'very ' * (14 if k % 3 == 0 else k % 2)}{word}"
        label: Any = {
            "classification": float(word in GOOD),
            "multilabel": (0, 2) if word in GOOD else (1,) if k % 2 else (),
            "regression": (4.5 if word in GOOD else 1.0) + 0.01 * k,
        }[kind]
        examples.append(Example(text, "it is not very fine" if pairs else None, label))
    return task_of(kind, examples, validation=tuple(examples[:13]))


@pytest.mark.parametrize(
    ("name", "kind", "pairs", "bf16"),
    [
        ("electra", "classification", False, "false"),
        ("bert", "classification", True, "true"),
        ("roberta", "multilabel", False, "false"),
        ("modernbert", "regression", True, "false"),
        ("deberta", "regression", False, "true"),
    ],
)
def test_texts_are_predicted_as_validated(zoo, tmp_path, name, kind, pairs, bf16):
    task = texts_task(kind, pairs=pairs)
    files = trained(zoo / name, task, tmp_path / "saved", bf16=bf16)
    rows = list(csv.DictReader(next(iter(files.values())).splitlines()))
    held: Any = task.validation
    second = [e.pair for e in held] if pairs else None
    how: dict[str, Any] = {"bf16": bf16, "probabilities": kind != "regression"}
    found = predict(tmp_path / "saved", [e.text for e in held], pairs=second, **how)
    for row, one in zip(rows, found, strict=True):
        if kind == "regression":
            assert one["predicted_value"] == pytest.approx(float(row["prediction"]), rel=1e-5)
            continue
        sure = {label: float(row[f"probability of {label}"]) for label in task.labels}
        assert one["probabilities"] == pytest.approx(sure, abs=1e-6)
        label = one.get("predicted_label") or "|".join(one["predicted_labels"])
        assert row["prediction"] == label
    if pairs and kind == "classification":  # a tuple is one pair
        one = electrify.predict(tmp_path / "saved", (held[0].text, held[0].pair), bf16=bf16)
        assert one.label == rows[0]["prediction"]


@pytest.mark.parametrize("unanswerable", [False, True])
def test_answers_are_predicted_as_validated(zoo: Path, tmp_path: Path, unanswerable: bool) -> None:
    """Also from contexts that are read through windows, and with the best threshold."""
    made = []
    for k, word in enumerate((*GOOD, *BAD)):
        context = "it was not one " * (k + 1) + f"the film was {word}"
        answer = (Answer(word, len(context) - len(word)),)
        none = unanswerable and k % 2 == 0
        made.append(Question(f"q{k}", "it is ?", context, () if none else answer))
    task = task_of("answering", made, name="squad")
    saved = tmp_path / "saved"
    files = trained(zoo / "bert", task, saved, max_seq_length=24)
    asked = [{"context": q.context, "qas": [{"id": q.id, "question": q.question}]} for q in made]
    path = tmp_path / "new.json"  # without answers
    path.write_text(json.dumps({"data": [{"paragraphs": asked}]}))
    rows = map(json.loads, predicted(str(saved), path, ".jsonl").splitlines())
    wanted = json.loads(files["squad.predictions.json"])
    assert {row["id"]: row["predicted_answer"] for row in rows} == wanted
    questions, contexts = [q.question for q in made], [q.context for q in made]
    found = predict(saved, questions, pairs=contexts, no_answer_threshold=-1e20)
    assert [one["predicted_answer"] for one in found] == [""] * len(made)


@pytest.fixture(scope="module")
def models(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders that the library wrote, with heads whose weights are large enough to decide."""
    folders = {}
    for name, cls in (
        ("classes", AutoModelForSequenceClassification),
        ("tags", AutoModelForTokenClassification),
    ):
        folders[name] = str(tmp_path_factory.mktemp(name))
        model = cls.from_pretrained(zoo / "bert", num_labels=2)
        torch.nn.init.normal_(model.classifier.weight, std=0.5)
        model.save_pretrained(folders[name])
        AutoTokenizer.from_pretrained(zoo / "bert").save_pretrained(folders[name])
    return folders


def table(path: Path) -> Path:
    with path.open("w", encoding="utf-8", newline="") as f:
        csv.writer(f).writerows([("id", "text"), *ROWS])
    return path


def predicted(model: str, path: Path, ending: str, **more: Any) -> str:
    out = path.parent / f"out{ending}"
    given: dict[str, Any] = {"output_file": str(out), "overwrite": True} | more
    predict_files(PredictConfig(model=model, files=(str(path),), **given))
    assert not list(path.parent.glob(".out*"))
    return out.read_text("utf-8")


def test_columns_stay_in_every_format(models: dict[str, str], tmp_path: Path) -> None:
    from pyarrow import Table, parquet

    path = table(tmp_path / "new.csv")
    found = list(csv.reader(predicted(models["classes"], path, ".csv").splitlines(keepends=True)))
    assert found[0] == ["id", "text", "predicted_label", "probability"]
    assert [tuple(row[:2]) for row in found[1:]] == ROWS
    rows = [json.loads(x) for x in predicted(models["classes"], path, ".jsonl").splitlines()]
    assert [(row["id"], row["text"]) for row in rows] == ROWS
    assert [row["predicted_label"] for row in rows] == [row[2] for row in found[1:]]
    lines = predicted(models["classes"], path, ".tsv", probabilities=True).splitlines()
    tabs = [line.split("\t") for line in lines]
    assert tabs[0][4:] == ["probability_LABEL_0", "probability_LABEL_1"]
    assert {len(row) for row in tabs} == {6}
    assert tabs[2][1] == 'a "very, very" bad plot'  # a blank replaces the line break
    assert sum(map(float, tabs[1][4:])) == pytest.approx(1, abs=1e-6)
    path = tmp_path / "new.parquet"
    parquet.write_table(Table.from_pylist([{"text": t, "id": k} for k, t in ROWS]), path)
    rows = [json.loads(x) for x in predicted(models["classes"], path, ".jsonl").splitlines()]
    assert [(row["id"], row["text"]) for row in rows] == ROWS


def test_layouts_of_tags(models: dict[str, str], tmp_path: Path) -> None:
    columns = tmp_path / "new.txt"
    columns.write_text("the DT\nfilm NN\n\nbad JJ\n\n")
    rows = [x.split("\t") for x in predicted(models["tags"], columns, ".tsv").splitlines()]
    assert [row[:2] for row in rows] == [["the", "DT"], ["film", "NN"], [""], ["bad", "JJ"], [""]]
    said = list(csv.reader(predicted(models["tags"], columns, ".csv").splitlines()))
    assert said[0] == ["words", "1", "predicted_tags"]
    tags = "|".join(row[2] for row in rows[:2])
    assert said[1:] == [["the|film", "DT|NN", tags], ["bad", "JJ", rows[3][2]]]
    lone = tmp_path / "lone.tsv"
    lone.write_text("the\nfilm\n\nbad\n\n")
    rows = [x.split("\t") for x in predicted(models["tags"], lone, ".tsv").splitlines()]
    assert [row[0] for row in rows] == ["the", "film", "", "bad", ""]
    rows = [[row[0], "", *row[1:]] for row in rows]
    words = tmp_path / "words.jsonl"
    words.write_text('{"tokens": ["the", "film"], "n": 1}\n')
    (row,) = map(json.loads, predicted(models["tags"], words, ".jsonl").splitlines())
    assert row == {"tokens": ["the", "film"], "n": 1, "predicted_tags": [r[2] for r in rows[:2]]}


MISTAKES = [
    (["new.csv", "missing.csv"], "missing.csv"),
    (["new.csv", "--text-column", "txet"], "no column 'txet'"),
    (["new.csv", "--output-file", "there.csv"], "there.csv exists"),
    (["new.csv", "--output-file", "folder.csv", "--overwrite"], "folder.csv is a folder"),
    (["new.csv", "--threshold", "0.4"], "--threshold is for multilabel"),
    (["new.csv", "--max-seq-length", "400"], "reads at most 40 tokens"),
    (["half.csv", "--output-file", "out.csv"], "half.csv, line 3: 1 columns, expected 2"),
    (["semi.csv"], "by ';'. Save it with commas"),
    (["short.csv"], "none of its columns (x: '1'; y: '2')"),
]


@pytest.mark.parametrize(("words", "says"), MISTAKES, ids=lambda v: str(v)[:40])
def test_mistakes_leave_nothing(
    models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], words: list[str], says: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "new.csv")
    files = {"there.csv": "mine", "half.csv": "text,n\na,1\nb\n", "semi.csv": "x;text\n1;2\n"}
    for name, text in (files | {"short.csv": "x,y\n1,2\n"}).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "folder.csv").mkdir()
    before = listing(tmp_path)
    assert says in mistake(capsys, "predict", models["classes"], *words)
    assert listing(tmp_path) == before
    assert (tmp_path / "folder.csv").is_dir()


def test_each_call_reports_its_own_truncated_texts(models: dict[str, str]) -> None:
    how: dict[str, Any] = {"max_seq_length": 16, "bf16": "false"}
    predictor = load_predictor(models["classes"], **how)
    embedder = load_embedder(models["classes"], **how)
    for texts, noted in ((["very " * 20], True), (["good"], False)):
        predict_with(predictor, texts)
        embed(embedder, texts)
        notes = predictor.text_rows.note(), embedder.text_rows.note()
        assert tuple(map(bool, notes)) == (noted, noted)


def test_evaluate_a_labelled_file(models, tmp_path, capsys):
    path = tmp_path / "test.csv"
    lines = [f"the film was {word},LABEL_{int(word in GOOD)}" for word in GOOD + BAD]
    path.write_text("\n".join(["review,verdict", *lines]))
    words = ["evaluate", models["classes"], "--test-file", str(path)]
    columns = ["--text-column", "review", "--label-column", "verdict"]
    assert run(*words, *columns) == 0
    shown = dict(line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:])
    given = {"text_column": "review", "label_column": "verdict"}
    found = electrify.load(models["classes"]).evaluate(path, **given)
    assert shown["accuracy"] == f"{100 * found.accuracy:.1f}"
    path.write_text("\n".join(lines))
    assert run(*words, "--no-header", "--text-column", "0", "--label-column", "1") == 0
    assert dict(x.split()[:2] for x in capsys.readouterr().out.splitlines()[1:]) == shown
    assert "evaluate needs --data-dir" in mistake(capsys, *words[:2])
    assert "excludes --output-dir" in mistake(capsys, *words, "--output-dir", tmp_path / "out")
    assert "needs --test-file" in mistake(capsys, *words[:2], "--data-dir", "x", *columns)


def test_a_folder_of_finetune_and_standard_output(
    models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, scores = table(tmp_path / "new.csv"), tmp_path / "scores"
    (scores / "models").mkdir(parents=True)
    (scores / "scores.jsonl").touch()
    assert "holds scores and no model" in mistake(capsys, "predict", str(scores), str(path))
    shutil.copytree(models["classes"], scores / "models" / "one")
    assert run("predict", str(scores), str(path)) == 0
    shown = capsys.readouterr().out
    assert shown == predicted(models["classes"], path, ".tsv")
