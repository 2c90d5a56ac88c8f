"""Runs of each architecture besides ELECTRA's by the real verbs: pre-training, going on, export,
doctor, and what reads the folders back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from short_runs import SHORT

from electrify import cli, detect
from electrify.build import Vocabulary, compose
from electrify.exporting.loading import quiet
from electrify.recipe import load
from electrify.text.corpus import Corpus
from electrify.tokens import from_sequences
from electrify.train import checkpoint
from small import (
    DROPOUT,
    electrify,
    parameters_sha256,
    pretrain_words,
    records,
    run,
    same_numbers,
    torchrun,
)

WIDE: dict[str, Any] = {"generator_size": 1.0, "generator_num_hidden_layers": 1}
SYSTEMS: dict[str, dict[str, Any]] = {
    "electra": {},
    "bert": {},
    "corrective": {"tie": "gdes"},
    "electric": {"generator_size": 1.0},
    "adversarial": {"tie": "none"},
    "teams": WIDE | {"tie_layers": 1},
    "amos": {"generator_size": 1.0, "generator_num_hidden_layers": 2, "read_outs": "1,2"},
    "electra-15": WIDE,
    "replace-mlm": WIDE,
    "all-tokens-mlm": WIDE,
    "two-stage": {"generator_size": 1.0, "generator_steps": 4},
    "unigram": {},
    "uniform": {},
    "coco-lm": WIDE | {"rtd_head": "dense", "contrast_rows": 2},
    "coco-lm-rtd": WIDE | {"rtd_head": "dense"},
    "metro": WIDE,
    "fast-electra": {"generator_num_hidden_layers": 1, "generator_steps": 4},
    "gdes": WIDE,
}


def each(*quick: str, but: tuple[str, ...] = ()) -> list[Any]:
    """Every system, all but the quick ones marked as slow."""
    marks = {name: [] if name in quick else [pytest.mark.slow] for name in SYSTEMS}
    return [pytest.param(name, marks=m, id=name) for name, m in marks.items() if name not in but]


@dataclass(frozen=True)
class Case:
    """An architecture. own: its options in these runs; config: what an exported folder says of
    them; blocks: how the names of its blocks' weights begin there."""

    name: str
    classes: str
    own: dict[str, Any]
    config: dict[str, Any]
    blocks: str
    model_type: str

    def cls(self, task: str) -> Any:
        return getattr(transformers, f"{self.classes}For{task}")

    @property
    def exported(self) -> dict[str, str]:
        return {
            "discriminator": f"{self.classes}ForTokenClassification",
            "generator": f"{self.classes}ForMaskedLM",
            "corrector": f"{self.classes}ForMaskedLM",
            "selector": f"{self.classes}ForMaskedLM",
        }


CASES = [
    Case(
        name="modernbert",
        classes="ModernBert",
        own={"global_attn_every_n_layers": 2, "local_attention": 4},
        config={
            "layer_types": ["full_attention", "sliding_attention"],
            "local_attention": 4,
            "global_attn_every_n_layers": 2,
            "embedding_dropout": 0.1,
            "attention_dropout": 0.1,
        },
        blocks="model.layers",
        model_type="modernbert",
    ),
    Case(
        name="deberta",
        classes="DebertaV2",
        own={"position_buckets": 8},
        config={
            "position_buckets": 8,
            "legacy": False,
            "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.1,
        },
        blocks="deberta.encoder.layer",
        model_type="deberta-v2",
    ),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def words(case: Case, data: Path, folder: Path, name: str, **fields: Any) -> list[str]:
    """The command of a recipe of this architecture, or of one for ELECTRA's with this one."""
    own = SHORT | case.own | SYSTEMS.get(name, {}) | fields
    if name in ("bert", "electra", "corrective"):
        name = f"{name}-{case.name}"
    else:
        own = {"architecture": case.name} | own
    return [str(w) for w in pretrain_words(data, folder, recipe=f"{name}-tiny", **own)]


@pytest.fixture(scope="module")
def electra(case: Case, small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed, with dropout."""
    folder = tmp_path_factory.mktemp(case.name) / "electra"
    assert cli.main(words(case, small_data, folder, "electra", **DROPOUT)) == 0
    return folder


@pytest.fixture(scope="module")
def bert(case: Case, small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(case.name) / "bert"
    assert cli.main(words(case, small_data, folder, "bert")) == 0
    return folder


def test_a_run_that_goes_on_to_the_bit(case, small_data, electra, tmp_path):
    line = words(case, small_data, tmp_path / "run", "electra", **DROPOUT)
    assert cli.main([*line, "--max-minutes", "1e-9"]) == 75, "stopped after an update"
    assert cli.main(line) == 0
    assert parameters_sha256(tmp_path / "run", 8) == parameters_sha256(electra, 8)
    assert records(tmp_path / "run") == records(electra)


@pytest.mark.parametrize(
    "name", each("corrective", "electric", "adversarial", "teams", but=("electra",))
)
def test_a_run_of_each(name, case, small_data, tmp_path, capsys):
    """Its export was compared with transformers; the doctor finds nothing."""
    folder = tmp_path / "run"
    assert cli.main(words(case, small_data, folder, name)) == 0
    assert records(folder, "train")[-1]["flops"] > 0
    there = [part for part in case.exported if (folder / part).is_dir()]
    assert "discriminator" in there
    left = {"corrector": ("corrective", "coco-lm", "coco-lm-rtd", "metro"), "selector": ("teams",)}
    assert all((part in there) == (name in names) for part, names in left.items())
    masked = name in ("bert", "replace-mlm", "all-tokens-mlm")
    classes = case.exported | ({"discriminator": case.exported["generator"]} if masked else {})
    for part in there:
        with quiet():
            _, info = transformers.AutoModel.from_pretrained(
                folder / part, output_loading_info=True
            )
        assert not info["missing_keys"]
        config = json.loads((folder / part / "config.json").read_text())
        assert config["architectures"] == [classes[part]]
    capsys.readouterr()
    status = run("doctor", str(folder), *(str(folder / part) for part in there))
    assert status == 0, capsys.readouterr().out


def test_detect_gives_the_numbers_of_the_network(small_data: Path, electra: Path) -> None:
    manifest = Corpus(small_data, "train").manifest
    built = compose(
        load(electra / "config.yaml"), Vocabulary(manifest.vocab_size, manifest.special_ids)
    )
    tensors, _ = checkpoint.load(electra / "checkpoint-8")
    built.objective.load_state_dict(tensors["model"], strict=False)
    folder = str(electra / "discriminator")
    (found,) = detect(folder, ["the chef ate a meal"])
    ids = transformers.AutoTokenizer.from_pretrained(folder)("the chef ate a meal")["input_ids"]
    tokens = from_sequences([ids], row_length=len(ids), pad=manifest.special_ids.pad)
    kept = built.discriminator
    kept.encoder.eval()
    with torch.no_grad():
        expected = kept.head(kept.encoder(tokens)).sigmoid()[1:-1]
    assert torch.allclose(torch.tensor([p.probability for p in found.tokens]), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("start", "says"),
    [
        ("electra/discriminator", "every weight found and used"),
        ("bert/discriminator", "has no weights of the head, which keeps its initial values"),
    ],
)
def test_a_run_starts_from_a_folder(start, says, case, small_data, electra, bert, tmp_path, capsys):
    """The folder decides the shape, with the options of its architecture, against the recipe's."""
    name, part = start.split("/")
    folder = {"electra": electra, "bert": bert}[name] / part
    name, value = list(case.own.items())[-1]
    fields = {"init_discriminator": folder, name: 4 * value, "max_steps": 1, "eval_steps": 0}
    line = words(case, small_data, tmp_path / "run", "electra", **fields)
    assert cli.main([*line, "--learning-rate", "1e-12", "--weight-decay", "0"]) == 0
    assert says in capsys.readouterr().err
    from safetensors.torch import load_file

    before, after = (
        load_file(one / "model.safetensors") for one in (folder, tmp_path / "run" / "discriminator")
    )
    layers = [n for n in after if n.startswith(case.blocks)]
    assert layers
    for n in layers:
        torch.testing.assert_close(after[n], before[n], atol=1e-6, rtol=0)
    config = json.loads((tmp_path / "run" / "discriminator" / "config.json").read_text())
    assert config[name] == value


@pytest.mark.parametrize("part", ["discriminator", "generator"])
def test_evaluate_scores_sentences(part: str, electra: Path) -> None:
    from electrify.scoring.pll import load_scorer

    scorer = load_scorer(str(electra / part))
    assert scorer.kind == {"discriminator": "rtd", "generator": "mlm"}[part]
    assert scorer.short == (part == "generator")
    both = scorer.scores(["the chef ate a meal", "a"])
    assert all(isinstance(x, float) and x < 0 for x in both)
    assert scorer.scores(["a"])[0] == pytest.approx(both[1], abs=1e-4)


# One of each class of objectives and corruptors; two of them also without sharding.
APART = [
    *((name, "no_shard") for name in ("electra", "corrective")),
    *((name, "full_shard") for name in ("electra", "corrective", "bert", "teams", "amos")),
    *((name, "full_shard") for name in ("all-tokens-mlm", "adversarial", "electric", "unigram")),
    *((name, "full_shard") for name in ("coco-lm", "two-stage")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fsdp"), APART)
def test_two_processes(name: str, fsdp: str, case: Case, small_data: Path, tmp_path: Path) -> None:
    electrify(words(case, small_data, tmp_path / "one", name), tmp_path)
    done = torchrun(words(case, small_data, tmp_path / "two", name, fsdp=fsdp), tmp_path).end()
    assert done.status == 0, done.err
    same_numbers(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "two" / "discriminator" / "model.safetensors").is_file()
