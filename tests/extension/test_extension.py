"""A class of one's own as objective, corruptor and architecture, from this folder alone: nothing
else in the program knows of it."""

import json
import re
from pathlib import Path

import pytest

from electrify import cli
from electrify.build import Vocabulary, build
from electrify.recipe import load, override
from electrify.tokens import SpecialIds
from small import mistake, model_files, pretrain_words, records, run

HERE = Path(__file__).parent
MARGIN = {"objective": "toy_objective:Margin"}
TOYS = {
    "objective": MARGIN | {"objective_options": "margin=0.25", "generator_size": 0.5},
    "corruptor": MARGIN
    | {"corruptor": "toy_corruptor:Shift", "corruptor_options": "shift=3"}
    | {"term_weights": "margin=20,contrast=1,named=1"},
    "architecture": {"architecture": "toy_architecture:Roberta"}
    | {"generator_size": 1.0, "init": "bert"},
}
STEPS = 12


def words(data: Path, folder: Path, toy: str, **more: object) -> list[str]:
    often = {"max_steps": STEPS, "logging_steps": 3, "save_steps": 4, "eval_steps": 6}
    return pretrain_words(data, folder, **TOYS[toy] | often | more)


@pytest.mark.parametrize("toy", TOYS)
def test_a_run_its_export_and_what_is_said_of_them(toy, small_data, tmp_path, capsys):
    assert run(*words(small_data, tmp_path / "run", toy)) == 0
    last = records(tmp_path / "run", "train")[-1]
    own = {"rtd"} if toy == "architecture" else {"margin", "contrast", "named"}
    # What the monitor looks at is there for any masked language model that is trained.
    generator = {"generator", "generator_accuracy", "generator_loss_masked"}
    generator = set() if toy == "corruptor" else generator
    assert own | generator | {"replaced"} <= last.keys()
    assert any(name.endswith("_detection_auc") for name in records(tmp_path / "run", "valid")[-1])
    assert run("export", str(tmp_path / "run"), "--output-dir", str(tmp_path / "out")) == 0
    assert (
        model_files(tmp_path / "out")["model.safetensors"]
        == model_files(tmp_path / "run" / "discriminator")["model.safetensors"]
    )
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    said = {
        "objective": "to keep replaced tokens 0.25 apart",
        "corruptor": "in which tokens were shifted, to keep replaced tokens 0.5 apart",
        "architecture": "RobertaPreLayerNormForTokenClassification",
    }
    assert said[toy] in card
    assert (tmp_path / "run" / "namer").is_dir() == (toy != "architecture")
    if toy == "objective":
        named = tmp_path / "named"
        export = ("export", tmp_path / "run", "--part", "namer", "--output-dir", named)
        assert run(*map(str, export)) == 0
        assert "ElectraForMaskedLM" in (named / "README.md").read_text(encoding="utf-8")
    capsys.readouterr()
    assert run("doctor", str(tmp_path / "run"), str(tmp_path / "out")) == 0, capsys.readouterr().out
    assert run("detect", str(tmp_path / "out"), "a text", "--json") == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert all(0 <= token["probability"] <= 1 for token in found["tokens"])


OWN = "own_objective:"
BROKEN = [
    ({"objective": OWN + "Detektor"}, "own_objective:Detektor"),
    ({"objective": "own_objektive:Detector"}, "Put the folder of the module on PYTHONPATH"),
    ({"objective": OWN + "ScaledHead"}, "the class lacks attributes of its row"),
    ({"objective": OWN + "Detector", "objective_options": "alpha=1"}, "'alpha'"),
    (MARGIN | {"objective_options": "margin=-1"}, "margin must be positive, not -1"),
    (TOYS["architecture"] | {"init": "local"}, "init must be bert in toy_architecture:Roberta"),
    ({"objective": OWN + "Misnamed"}, "forward pass of the objective returns no loss rtd"),
]


@pytest.mark.parametrize(("fields", "says"), BROKEN, ids=str)
def test_a_mistake_is_one_sentence(fields, says, small_data, tmp_path, capsys):
    line = pretrain_words(small_data, tmp_path / "run", max_steps=STEPS, **fields)
    assert says in mistake(capsys, *line)
    assert not (tmp_path / "run" / "discriminator").exists()


def test_options_reach_an_architecture() -> None:
    """Sizes of its shape, and what else its constructor takes."""
    options = {"architecture_options": "type_vocab_size=3,other=0.5"}
    config = override(load("electra-tiny"), TOYS["architecture"] | options)
    kept = build(config, Vocabulary(100, SpecialIds(0, 1, 2, 3, 4))).discriminator
    assert kept.architecture.options == {"type_vocab_size": 3, "other": 0.5}
    assert kept.encoder.embeddings.segments.num_embeddings == 3


def test_the_example_of_the_docs_runs(small_data, tmp_path, monkeypatch):
    """docs/objectives.md: the file focal.py and the recipe that names its class."""
    page = (HERE.parents[1] / "docs" / "objectives.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"`focal.py`:\n\n```python\n(.*?)^```", page, re.M | re.S)
    (recipe,) = re.findall(r"`focal.yaml`:\n\n```yaml\n(.*?)^```", page, re.M | re.S)
    (tmp_path / "focal.py").write_text(code, encoding="utf-8")
    (tmp_path / "focal.yaml").write_text(recipe, encoding="utf-8")
    line = pretrain_words(
        small_data, tmp_path / "run", recipe=str(tmp_path / "focal.yaml"), max_steps=4
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert cli.main(line) == 0
    assert "focal" in records(tmp_path / "run", "train")[-1]
    card = (tmp_path / "run" / "discriminator" / "README.md").read_text(encoding="utf-8")
    assert "focal loss with gamma 1" in card
