"""A pre-trained encoder of each architecture besides ELECTRA's downstream, by the real verbs: every
kind of task is fine-tuned, saved, loaded by the library's classes, which compute the same, and
predicted as it was validated."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from electrify import cli, embed
from electrify.finetuning.model import load_finetuned
from small import pretrain_words, run

GOOD = ("chef", "meal", "bread")
BAD = ("car", "road", "wheel")
WIDE = {"generator_size": 1.0, "generator_num_hidden_layers": 1}
CLASSES = {
    "classification": "SequenceClassification",
    "multilabel": "SequenceClassification",
    "regression": "SequenceClassification",
    "tagging": "TokenClassification",
    "answering": "QuestionAnswering",
}
TEXTS = ["the chef ate a meal", "a road", "the bread is of the wheel and of the car"]


@dataclass(frozen=True)
class Case:
    """An architecture. own: its options; classes: how the library's are called; block: a weight of
    the last one; rate: at which it learns the examples."""

    name: str
    classes: str
    own: dict[str, Any]
    block: str
    rate: str


CASES = [
    Case(
        name="modernbert",
        classes="ModernBert",
        own={"local_attention": 4},
        block="model.layers.3.attn.Wqkv.weight",
        rate="3e-3",
    ),
    Case(
        name="deberta",
        classes="DebertaV2",
        own={"position_buckets": 8},
        block="deberta.encoder.layer.3.attention.self.query_proj.weight",
        rate="1e-2",
    ),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(scope="module")
def exported(case: Case, small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that pre-trained the encoder."""
    folder = tmp_path_factory.mktemp(case.name) / "run"
    fields = WIDE | case.own | {"num_hidden_layers": 4, "max_steps": 20, "save_steps": 10}
    line = pretrain_words(small_data, folder, recipe=f"electra-{case.name}-tiny", **fields)
    assert cli.main(list(line)) == 0
    return folder


def test_a_run_starts_from_a_fine_tuned_encoder(
    case: Case,
    exported: Path,
    small_data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What its head computes is not what the encoder computes."""
    from electrify.exporting.loading import quiet

    start = tmp_path / "start"
    with quiet():
        transformers.AutoModelForSequenceClassification.from_pretrained(
            exported / "discriminator", ignore_mismatched_sizes=True, num_labels=3
        ).save_pretrained(start)
    fields = {"init_discriminator": start, "max_steps": 1, "eval_steps": 0}
    line = pretrain_words(small_data, tmp_path / "run", recipe=f"bert-{case.name}-tiny", **fields)
    assert cli.main(list(map(str, line))) == 0
    assert "has no weights of the head, which keeps its initial values" in capsys.readouterr().err


def sentences() -> list[tuple[str, str]]:
    """Texts, and the word that decides."""
    words = [w for pair in zip(GOOD, BAD, strict=True) for w in pair] * 6
    return [(f"the {'old ' * (k % 3)}{word} was of it", word) for k, word in enumerate(words)]


def examples(kind: str) -> str:
    """A file of examples that a model can learn."""
    rows: list[dict[str, Any]] = []
    for k, (text, word) in enumerate(sentences()):
        label: Any = {
            "classification": "good" if word in GOOD else "bad",
            "multilabel": ["a", "b"] if word in GOOD else ["c"] if k % 4 else [],
            "regression": (4.5 if word in GOOD else 1.25) + k / 100,
        }[kind]
        rows.append({"text": text, "label": label})
    return "".join(json.dumps(row) + "\n" for row in rows)


def columns() -> str:
    lines = []
    for text, word in sentences():
        tag = "X" if word in GOOD else "Y"
        lines += [f"{w} {tag if w == word else 'O'}\n" for w in text.split()] + ["\n"]
    return "".join(lines)


def questions() -> str:
    paragraphs = []
    for k, (text, word) in enumerate(sentences()):
        answer = [{"text": word, "answer_start": text.index(word)}] if k % 3 else []
        asked = {"id": str(k), "question": "what", "answers": answer, "is_impossible": not answer}
        paragraphs.append({"context": text, "qas": [asked]})
    return json.dumps({"version": "v2.0", "data": [{"title": "a", "paragraphs": paragraphs}]})


def written(folder: Path, kind: str) -> Path:
    made = {"tagging": ("x.conll", columns), "answering": ("x.json", questions)}
    name, content = made.get(kind, ("x.jsonl", lambda: examples(kind)))
    (folder / name).write_text(content(), encoding="utf-8")
    return folder / name


@pytest.mark.parametrize("kind", list(CLASSES))
def test_fine_tuned_and_predicted(
    kind: str, case: Case, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, kind)
    out = tmp_path / "out"
    line = ["finetune", str(exported / "discriminator"), "--output-dir", str(out)]
    line += ["--baselines", "false"]
    line += ["--train-file", str(file), "--validation-file", str(file), "--save-model"]
    line += ["--num-train-epochs", "12", "--learning-rate", case.rate, "--bf16", "false"]
    assert cli.main([*line, "--max-seq-length", "24"]) == 0
    (folder,) = (out / "models").iterdir()
    assert run("doctor", str(folder)) == 0, capsys.readouterr().out
    same_logits(kind, case, folder)
    again = tmp_path / ("again.tsv" if kind == "tagging" else "again.jsonl")
    words = ["predict", str(out), str(file), "--output-file", str(again), "--bf16", "false"]
    assert cli.main(words) == 0
    same_answers(kind, out, again)


def same_logits(kind: str, case: Case, folder: Path) -> None:
    """The library's class, which finds every weight, with the library's attention, and the net that
    predicts."""
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == [f"{case.classes}For{CLASSES[kind]}"]
    auto = f"AutoModelFor{CLASSES[kind]}"
    model, info = getattr(transformers, auto).from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    loaded = load_finetuned(str(folder), device=torch.device("cpu"))
    assert loaded.kind == kind
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(
        TEXTS, padding=True, return_tensors="pt"
    )
    with torch.inference_mode():
        output = model.eval()(**inputs)
        ours = loaded.net(dict(inputs))
    if kind == "answering":
        theirs = torch.stack([output.start_logits, output.end_logits], -1)
    else:
        theirs = output.logits
    real = inputs["attention_mask"].bool() if theirs.ndim == 3 else slice(None)
    assert float(theirs[real].std()) > 0.05, "outputs that say nothing agree about everything"
    largest = max(1.0, float(ours[real].abs().max()))
    assert float((ours[real] - theirs[real]).abs().max()) <= 1e-5 * largest


def same_answers(kind: str, out: Path, again: Path) -> None:
    """What `predict` wrote is what fine-tuning wrote of its validation examples, digit by digit."""
    if kind == "tagging":
        (path,) = out.glob("predictions/**/*.txt")
        tags = [line.split(" ")[-1] for line in path.read_text().splitlines() if line]
        found = [line.split("\t")[-1] for line in again.read_text().splitlines() if line]
        assert found == tags
        assert len(set(tags)) > 1
        return
    rows = [json.loads(line) for line in again.read_text().splitlines()]
    if kind == "answering":
        (path,) = out.glob("predictions/**/*.predictions.json")
        found = {row["id"]: row["predicted_answer"] for row in rows}
        assert found == json.loads(path.read_text())
        assert len(set(found.values())) > 2
        return
    (path,) = out.glob("predictions/**/*-validation.csv")
    with path.open(newline="") as f:
        scored = list(csv.DictReader(f))
    assert len(rows) == len(scored) == len(sentences())
    assert len({row["prediction"] for row in scored}) > 1
    for row, was in zip(rows, scored, strict=True):
        if kind == "regression":
            assert row["predicted_value"] == pytest.approx(float(was["prediction"]), rel=1e-6)
        elif kind == "multilabel":
            assert "|".join(row["predicted_labels"]) == was["prediction"]
            sure = [float(f"{float(was[f'probability of {c}']):.7g}") for c in "abc"]
            assert row["probability"] == [p for p in sure if p > 0.5]
        else:
            name = f"probability of {row['predicted_label']}"
            assert row["predicted_label"] == was["prediction"]
            assert row["probability"] == float(f"{float(was[name]):.7g}")


@pytest.mark.parametrize("layers", ["last", "last4", "all"])
@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_probes_of_the_frozen_encoder(
    kind: str, layers: str, exported: Path, tmp_path: Path
) -> None:
    file = written(tmp_path, kind)
    line = ["finetune", str(exported / "discriminator"), "--output-dir", str(tmp_path / "out")]
    line += ["--baselines", "false"]
    line += ["--train-file", str(file), "--validation-file", str(file), "--seeds", "1"]
    line += ["--frozen-encoder", layers, "--num-train-epochs", "120", "--max-seq-length", "24"]
    assert cli.main([*line, "--bf16", "false"]) == 0
    record = json.loads((tmp_path / "out" / "scores.jsonl").read_text())
    assert record["scores"]["accuracy"] > 0.95, record["scores"]


@pytest.mark.parametrize("part", ["discriminator", "generator"])
def test_vectors_of_texts(part: str, exported: Path) -> None:
    folder = str(exported / part)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        states = [model(**tokenizer(t, return_tensors="pt")).last_hidden_state[0] for t in TEXTS]
    for pooling in ("mean", "cls"):
        found = embed(folder, TEXTS, pooling=pooling, bf16="false")  # type: ignore[arg-type]
        for states_LD, vector in zip(states, found, strict=True):
            wanted_D = states_LD.mean(0) if pooling == "mean" else states_LD[0]
            np.testing.assert_allclose(vector, wanted_D.numpy(), atol=1e-5)


def test_an_earlier_checkpoint_is_exported(case: Case, exported: Path, tmp_path: Path) -> None:
    out = tmp_path / "early"
    assert run("export", str(exported), "--output-dir", str(out), "--step", "10") == 0
    early, late = (
        transformers.AutoModelForTokenClassification.from_pretrained(folder).state_dict()
        for folder in (out, exported / "discriminator")
    )
    assert early.keys() == late.keys()
    assert not torch.equal(early[case.block], late[case.block])
