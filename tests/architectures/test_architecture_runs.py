"""Runs of each architecture besides ELECTRA's by the real verbs: pre-training, going on, export,
doctor, and what reads the folders back."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import transformers
from short_runs import SHORT, STILL, config_of, detects_as_the_run, same

from electrify import cli
from electrify.exporting.loading import quiet
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
# One of each class of objectives and corruptors. Some are quick, the others run with the slow ones.
QUICK: dict[str, dict[str, Any]] = {
    "corrective": {"tie": "gdes"},
    "teams": WIDE | {"tie_layers": 1},
}
SLOW: dict[str, dict[str, Any]] = {
    "bert": {},
    "electric": {"generator_size": 1.0},
    "adversarial": {"tie": "none"},
    "amos": {"generator_size": 1.0, "generator_num_hidden_layers": 2, "read_outs": "1,2"},
    "all-tokens-mlm": WIDE,
    "two-stage": {"generator_size": 1.0, "generator_steps": 4},
    "unigram": {},
    "coco-lm": WIDE | {"rtd_head": "dense", "contrast_rows": 2},
}
SYSTEMS = QUICK | SLOW
EACH = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


@dataclass(frozen=True)
class Case:
    """An architecture. own: its options in these runs; blocks: how the names of its blocks' weights
    begin in an exported folder."""

    name: str
    classes: str
    own: dict[str, Any]
    blocks: str

    @property
    def exported(self) -> dict[str, str]:
        masked = f"{self.classes}ForMaskedLM"
        beside = dict.fromkeys(("generator", "corrector", "selector"), masked)
        return {"discriminator": f"{self.classes}ForTokenClassification", **beside}


CASES = [
    Case(
        "modernbert",
        "ModernBert",
        {"global_attn_every_n_layers": 2, "local_attention": 4},
        "model.layers",
    ),
    Case("deberta", "DebertaV2", {"position_buckets": 8}, "deberta.encoder.layer"),
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


def test_a_run_that_goes_on_to_the_bit(case, small_data, electra, tmp_path, without_exports):
    line = words(case, small_data, tmp_path / "run", "electra", **DROPOUT)
    assert cli.main([*line, "--max-minutes", "1e-9"]) == 75, "stopped after an update"
    assert cli.main(line) == 0
    assert parameters_sha256(tmp_path / "run", 8) == parameters_sha256(electra, 8)
    assert records(tmp_path / "run") == records(electra)


@pytest.mark.parametrize("name", EACH)
def test_a_run_of_each(name, case, small_data, tmp_path, capsys):
    """Its export was compared with transformers; the doctor finds nothing."""
    folder = tmp_path / "run"
    assert cli.main(words(case, small_data, folder, name)) == 0
    assert records(folder, "train")[-1]["flops"] > 0
    there = [part for part in case.exported if (folder / part).is_dir()]
    assert "discriminator" in there
    left = {"corrector": ("corrective", "coco-lm"), "selector": ("teams",)}
    assert all((part in there) == (name in names) for part, names in left.items())
    masked = name in ("bert", "all-tokens-mlm")
    classes = case.exported | ({"discriminator": case.exported["generator"]} if masked else {})
    for part in there:
        with quiet():
            _, info = transformers.AutoModel.from_pretrained(
                folder / part, output_loading_info=True
            )
        assert not info["missing_keys"]
        assert config_of(folder / part)["architectures"] == [classes[part]]
    capsys.readouterr()
    status = run("doctor", str(folder), *(str(folder / part) for part in there))
    assert status == 0, capsys.readouterr().out


def test_detect_gives_the_numbers_of_the_network(small_data: Path, electra: Path) -> None:
    detects_as_the_run(small_data, electra)


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
    fields = {"init_discriminator": folder, name: 4 * value}
    assert cli.main(words(case, small_data, tmp_path / "run", "electra", **STILL | fields)) == 0
    assert says in capsys.readouterr().err
    same(folder, tmp_path / "run" / "discriminator", case.blocks)
    assert config_of(tmp_path / "run" / "discriminator")[name] == value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fsdp"),
    [("corrective", "no_shard"), *((name, "full_shard") for name in ("corrective", *SLOW))],
)
def test_two_processes(name: str, fsdp: str, case: Case, small_data: Path, tmp_path: Path) -> None:
    electrify(words(case, small_data, tmp_path / "one", name), tmp_path)
    done = torchrun(words(case, small_data, tmp_path / "two", name, fsdp=fsdp), tmp_path).end()
    assert done.status == 0, done.err
    same_numbers(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "two" / "discriminator" / "model.safetensors").is_file()
