"""`electrify export --format onnx`, and `detect` and `predict` on what it writes, without torch."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runs import ENCODERS, RTD, exports, write_run

import electrify
from electrify.cli import main
from electrify.exporting import onnx
from electrify.exporting.agreement import ExportError
from electrify.exporting.folder import export_as
from electrify.exporting.options import Export
from electrify.finetuning.model import load_encoder, save, with_fresh_head
from electrify.onnx_models import OnnxModel
from electrify.recipe import override
from small import mistake

# Not imported here, which takes a second of every process that collects tests.
absent = [name for name in ("onnxruntime", "onnxscript") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(absent), reason=f"{absent} is not installed")
TEXTS = ["the chef cooked a meal", "a cat", "the dog sat on the mat very fast and ran . " * 5]
KINDS = {
    "classification": ("bad", "good", "fair"),
    "multilabel": ("x", "y", "z"),
    "regression": (),
    "tagging": ("O", "B", "I"),
    "answering": (),
}


def discriminator(folder: Path, encoder: str = "electra", **fields: Any) -> Path:
    """That of a run with random weights."""
    return exports(folder / "run", RTD, **ENCODERS[encoder] | fields)["discriminator"]


def tuned(start: Path, kind: Any, folder: Path) -> Path:
    """A fine-tuned model with random weights that tell texts apart."""
    reader = load_encoder(str(start), device=torch.device("cpu"))
    torch.manual_seed(0)
    net = with_fresh_head(reader, kind, KINDS[kind])
    inside = {id(p) for p in net.encoder.parameters()}
    for p in net.parameters():
        if id(p) not in inside:
            p.data.normal_(std=0.5)
    save(net, reader, "toy", folder, reading={"max_seq_length": 12, "pairs": False})
    return folder


def exported(model: Path, *flags: str) -> Path:
    target = model.with_name(f"{model.name}-onnx{len(flags)}")
    words = ["export", str(model), "--format", "onnx", "--output-dir", str(target), *flags]
    assert main(words) == 0
    return target


def mark_in(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "electrify.json").read_text())


def without_torch(*words: Any) -> str:
    """What a command prints. The process must not have imported torch."""
    code = (
        "import sys; from electrify.cli import main; status = main(sys.argv[1:]); "
        "sys.exit(status or 99 * ('torch' in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


def must_detect_alike(model: Path, graph: Path) -> None:
    for a, b in zip(electrify.detect(model, TEXTS), electrify.detect(graph, TEXTS), strict=True):
        assert [t.token for t in a.tokens] == [t.token for t in b.tokens]
        assert [(w.start, w.end) for w in a.words] == [(w.start, w.end) for w in b.words]
        wanted, found = ([t.probability for t in d.tokens] for d in (a, b))
        assert np.allclose(wanted, found, atol=1e-4)
        assert len(wanted) == 1 or np.std(wanted) > 1e-3


def must_predict_alike(model: Path, graph: Path, kind: str) -> None:
    texts: list[Any] = [text.split() for text in TEXTS] if kind == "tagging" else TEXTS
    how: dict[str, Any] = {}
    if kind == "answering":  # the last context is read through many windows
        texts, how = ["who", "what", "where"], {"pairs": TEXTS}
    wanted, found = (electrify.predict(place, texts, **how) for place in (model, graph))
    for a, b in zip(wanted, found, strict=True):
        assert (a.label, a.labels, a.tags, a.answer) == (b.label, b.labels, b.tags, b.answer)
        for name in ("value", "probabilities", "answer_score", "no_answer_score"):
            assert getattr(b, name) == pytest.approx(getattr(a, name), abs=1e-4)
    if kind == "answering":
        assert len({a.answer for a in wanted}) > 1
        best = max(a.no_answer_score for a in wanted)
        silent = electrify.predict(graph, texts, **how, no_answer_threshold=best - 1e-3)
        assert "" in [a.answer for a in silent], "none above a threshold"


def test_a_discriminator_detects_the_same_without_torch(tmp_path, capsys):
    folder = discriminator(tmp_path)
    graph = exported(folder)
    capsys.readouterr()
    assert {p.name for p in graph.iterdir()} == {
        *("model.onnx", "config.json", "tokenizer.json", "tokenizer_config.json"),
        *("README.md", "electrify.json"),
    }
    mark = mark_in(graph)
    assert mark["part"] == "discriminator"
    assert mark["difference"] <= 1e-5
    assert {"1x1", "33x16", "2x20"} <= {*mark["compared"]}  # it reads 20 tokens
    assert b"site-packages" not in (graph / "model.onnx").read_bytes()
    must_detect_alike(folder, graph)
    assert main(["detect", str(folder), TEXTS[2]]) == 0
    assert without_torch("detect", graph, TEXTS[2]) == capsys.readouterr().out
    assert main(["predict", str(graph), __file__]) == 2
    assert "is the discriminator of a run" in capsys.readouterr().err
    assert main(["score", str(graph), __file__]) == 2
    assert "ONNX model, which detect and predict run" in capsys.readouterr().err


@pytest.mark.slow
def test_a_wrong_graph_is_not_written(tmp_path, monkeypatch):
    folder = discriminator(tmp_path)
    outputs = OnnxModel.outputs
    monkeypatch.setattr(
        OnnxModel, "outputs", lambda *given: [x + 2e-3 * abs(x) for x in outputs(*given)]
    )
    with pytest.raises(ExportError, match="computes other numbers than torch"):
        export_as(Export(model=str(folder), output_dir=str(tmp_path / "out"), format="onnx"))
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_exported(tmp_path, capsys, monkeypatch):
    from transformers import ElectraModel

    source = discriminator(tmp_path)
    folder = tmp_path / "encoder"
    ElectraModel.from_pretrained(source).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    words = ["export", folder, "--output-dir", tmp_path / "out", "--format", "onnx"]
    assert "--part and --step are for runs" in mistake(capsys, *words, "--part", "generator")
    assert "ElectraModel has no head" in mistake(capsys, *words)
    monkeypatch.setattr(onnx, "PACKAGES", ("onnx", "no_such_package"))
    says = "needs no_such_package: pip install 'electrify[onnx]'"
    assert says in mistake(capsys, *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoder", "head"),
    [
        *(("electra", "dense"), ("electra", "linear"), ("modernbert", "dense")),
        *(("deberta", "dense"), ("deberta", "linear"), ("deberta", "v3")),
    ],
)
def test_detection_of_every_encoder(tmp_path, encoder: str, head: str):
    folder = discriminator(tmp_path, encoder, rtd_head=head)
    must_detect_alike(folder, exported(folder))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_predictions_of_every_encoder(tmp_path, encoder: str, kind: str):
    folder = tuned(discriminator(tmp_path, encoder), kind, tmp_path / "tuned")
    must_predict_alike(folder, exported(folder), kind)


@pytest.mark.slow
def test_files_have_the_columns_of_torch(tmp_path, capsys):
    folder = tuned(discriminator(tmp_path), "multilabel", tmp_path / "tuned")
    graph = exported(folder)
    files = {
        "txt": "a cat\nthe chef cooked a meal\n",
        "csv": 'id,text\n1,"a cat, the dog"\n2,the mat\n',
        "jsonl": '{"id": 1, "text": "a cat"}\n{"id": 2, "text": "the mat"}\n',
    }
    for ending, content in files.items():
        file = tmp_path / f"new.{ending}"
        file.write_text(content)
        capsys.readouterr()
        assert main(["predict", str(folder), str(file), "--json"]) == 0
        wanted = capsys.readouterr().out.splitlines()
        found = without_torch("predict", graph, file, "--json").splitlines()
        for a, b in zip(map(json.loads, wanted), map(json.loads, found), strict=True):
            assert a.pop("probability") == pytest.approx(b.pop("probability"), abs=1e-4)
            assert a == b


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ENCODERS)
def test_language_models(tmp_path, encoder: str):
    """The generator of a checkpoint."""
    run = tmp_path / "run"
    write_run(run, override(RTD, ENCODERS[encoder]), steps=(10,))
    graph = exported(run, "--part", "generator")
    assert mark_in(graph)["logits"] == "token"
    assert mark_in(graph)["difference"] <= 1e-5
    assert main(["detect", str(graph), "a cat"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ENCODERS)
def test_int8_and_what_it_costs(tmp_path, encoder: str):
    folder = discriminator(tmp_path, encoder)
    quantized = exported(folder, "--quantize", "int8")
    mark = mark_in(quantized)
    assert 0 < mark["mean_loss"] < mark["largest_loss"] < 0.1
    a, b = (electrify.detect(place, TEXTS[0]).tokens for place in (folder, quantized))
    differences = [abs(x.probability - y.probability) for x, y in zip(a, b, strict=True)]
    assert 1e-4 < max(differences) < 0.1
