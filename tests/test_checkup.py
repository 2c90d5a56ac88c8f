"""`electrify doctor`: what it finds in a corpus, a run and a model, and that it finds nothing in
whole ones."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from electrify.checkup import Finding, Report, doctor, published_rate, recipe_traps
from electrify.errors import UserError
from electrify.recipe import load, override
from small import run

TOKENS = "tokens-train-00000.bin"


@pytest.fixture
def made(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture
def data(small_data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_data, tmp_path / "data"))


@pytest.fixture
def model(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished / "discriminator", tmp_path / "model"))


def edit(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def found(report: Report, level: str) -> set[str]:
    return {f.code for folder in report.folders for f in folder.findings if f.level == level}


def test_a_whole_corpus_and_what_its_size_means(data: Path) -> None:
    report = doctor(data)
    assert report.ok
    assert "whole" in found(report, "ok")
    assert found(report, "warning") == {"little-text"}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (TOKENS, flip),
        ("tokenizer/vocab.txt", Path.unlink),
        ("manifest.json", lambda path: path.write_text("{}")),
    ],
)
def test_damage_of_a_corpus(data: Path, name: str, change: Callable[..., Any]) -> None:
    change(data / name)
    report = doctor(data)
    assert found(report, "error") == {"refused"}
    assert name in report.text()


def test_published_rates() -> None:
    """2003.10555 table 6, and scaled to four times the batch."""
    assert published_rate(256, 128, 128) == (5e-4, 5e-4)
    assert published_rate(768, 256, 512) == (2e-4, 2e-4)
    assert published_rate(768, 1024, 512) == pytest.approx((4e-4, 8e-4))
    assert published_rate(128, 128, 128) == pytest.approx((1e-3, 1e-3))


@pytest.mark.parametrize(
    ("fields", "codes"),
    [
        ({}, set()),
        ({"learning_rate": 0.1}, {"learning-rate-high"}),
        ({"warmup_steps": 900_000, "mask_rate": 0.6}, {"warmup", "mask-rate"}),
    ],
)
def test_traps_in_a_recipe(fields: dict[str, Any], codes: set[str]) -> None:
    recipe = override(load("electra-small"), fields)
    assert {f.code for f in recipe_traps(recipe, None)} == codes


def test_a_finished_run_with_its_corpus(made: Path, small_data: Path) -> None:
    report = doctor(small_data, made)
    assert found(report, "error") == set()
    assert found(report, "ok") >= {"whole", "finished", "same-data", "loads"}
    assert [f.kind for f in report.folders] == ["DATA", "RUN", "MODEL", "MODEL"]
    assert "few-steps" in found(report, "warning")


def test_damage_of_a_run(made: Path) -> None:
    flip(made / "checkpoint-12" / "model.safetensors")
    flip(made / "tokenizer" / "tokenizer.json")
    edit(
        made / "run.json",
        recipe=json.loads((made / "run.json").read_text())["recipe"] | {"seed": 7},
    )
    report = doctor(made)
    assert found(report, "error") == {"checkpoint", "hash", "recipe"}
    assert "unfinished" in found(report, "note")
    assert "the newest whole checkpoint is of step 10 of 12\n" in report.text()


def log(made: Path, *records: dict[str, Any]) -> list[Finding]:
    """The findings about a run whose log ends with these records."""
    lines = [json.dumps({"kind": "valid", "epoch": 1.0, "tokens": 10**7} | r) for r in records]
    with (made / "metrics.jsonl").open("a") as file:
        file.writelines(f"{line}\n" for line in lines)
    return doctor(made).folders[0].findings


def test_what_the_log_says(made: Path) -> None:
    curve = [{"step": 12 + i, "generator": x} for i, x in enumerate((4.0, 3.0, 3.5))]
    dead = {"discriminator_detection_recall": 0.0, "discriminator_detection_replaced": 0.1}
    last = curve[2] | dead | {"discriminator_detection_auc": 0.5, "generator_loss_masked": 9.0}
    train = {"kind": "train", "step": 15, "generator": "nan", "epoch": 50.0}
    codes = {f.code: f.level for f in log(made, curve[0], curve[1], last, train)}
    expected = {"diverging", "frequencies", "all_original", "epochs"}
    assert {c for c in codes if codes[c] == "warning"} >= expected
    assert codes["not-finite"] == "error"


def test_a_model_with_code_and_pickles(model: Path) -> None:
    assert found(doctor(model), "ok") == {"loads"}
    (model / "pytorch_model.bin").write_bytes(b"")
    (model / "modeling.py").write_text("raise SystemExit")
    assert found(doctor(model), "warning") == {"pickle", "code"}


def test_an_onnx_model_is_whole(model: Path) -> None:
    (model / "model.safetensors").rename(model / "model.onnx")
    assert [f.code for f in doctor(model).folders[0].findings] == ["onnx"]


@pytest.mark.parametrize("code", ["missing", "shapes", "not-finite"])
def test_damaged_weights(model: Path, code: str) -> None:
    tensors = load_file(model / "model.safetensors")
    name = next(n for n in tensors if n.endswith("layer.0.output.dense.bias"))
    if code == "missing":
        del tensors[name]
    else:
        tensors[name] = torch.zeros(3) if code == "shapes" else tensors[name] * torch.nan
    save_file(tensors, model / "model.safetensors", {"format": "pt"})
    assert found(doctor(model), "error") == {"missing" if code == "missing" else "refused"}


def test_statuses_and_json(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(data / TOKENS)
    assert run("doctor", str(data), "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["counts"] == {"ok": 0, "note": 0, "warning": 0, "error": 1}
    assert report["folders"][0]["findings"][0]["code"] == "refused"
    assert run("doctor", str(tmp_path / "none")) == 2
    with pytest.raises(UserError, match="is neither a prepared corpus nor a run nor a model"):
        doctor(tmp_path)
