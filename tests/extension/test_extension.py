"""A new objective, new corruptors (without a network and with one) and a new architecture from this
folder alone: what the rest of the program has to do for them is nothing."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import with_toys

import own_objective
from electrify.build import Vocabulary, build
from electrify.draws import draws_for
from electrify.errors import UserError
from electrify.flops.count import recipe_flops
from electrify.objectives.objective import Step
from electrify.recipe import load, override
from electrify.tables import ARCHITECTURES, CORRUPTORS, OBJECTIVES
from electrify.tokens import SpecialIds, from_sequences
from electrify.train.run import split_batch
from small import (
    SMALL,
    TORCHRUN,
    Process,
    mistake,
    model_files,
    pretrain_words,
    records,
    run,
    same_ending,
    same_numbers,
    steps_of,
)

SCRIPT = str(Path(with_toys.__file__))
TOYS = {
    "objective": {"objective": "toy_margin", "margin": 0.25, "generator_size": 0.5},
    "corruptor": {
        "objective": "toy_margin",
        "corruptor": "toy_shift",
        "shift": 3,
        "term_weights": "margin=20,contrast=1,named=1",
    },
    "generator": {"objective": "toy_margin", "corruptor": "toy_guess", "generator_size": 0.5},
    "architecture": {"architecture": "toy_prenorm", "generator_size": 1.0, "init": "bert"},
}
STEPS = 12


@pytest.fixture(autouse=True)
def toys() -> Iterator[None]:
    tables = OBJECTIVES, CORRUPTORS, ARCHITECTURES
    before = [table.copy() for table in tables]  # type: ignore[attr-defined]
    with_toys.put_in()
    yield
    for table, rows in zip(tables, before, strict=True):
        table.clear()
        table.update(rows)  # type: ignore[arg-type]


def words(data: Path, folder: Path, toy: str, **more: object) -> list[str]:
    fields = (
        SMALL
        | TOYS[toy]
        | {"max_steps": STEPS, "logging_steps": 3, "save_steps": 4, "eval_steps": 6}
        | more
    )
    flags = [
        word
        for name, value in fields.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    return ["pretrain", str(data), "--recipe", "electra-tiny", "--output-dir", str(folder), *flags]


def in_a_process(line: list[str], folder: Path, *, prefix: tuple[str, ...] = ()) -> Process:
    return Process(line, folder / "stderr.txt", prefix=(*prefix, SCRIPT))


@pytest.mark.parametrize("toy", TOYS)
def test_a_run_its_export_and_what_is_said_of_them(
    toy: str, small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
        "generator": "in which tokens were guessed, to keep replaced tokens 0.5 apart",
        "architecture": "RobertaPreLayerNormForTokenClassification",
    }
    assert said[toy] in card
    namer = tmp_path / "run" / "namer"
    assert namer.is_dir() == (toy != "architecture")
    if toy == "objective":
        card = (namer / "README.md").read_text(encoding="utf-8")
        assert "# run: encoder that names the original" in card
        assert "ElectraForMaskedLM" in card
        out = str(tmp_path / "named")
        assert run("export", str(tmp_path / "run"), "--part", "namer", "--output-dir", out) == 0
    capsys.readouterr()
    assert run("doctor", str(tmp_path / "run"), str(tmp_path / "out")) == 0, capsys.readouterr().out
    assert run("detect", str(tmp_path / "out"), "a text", "--json") == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert all(0 <= token["probability"] <= 1 for token in found["tokens"])


def test_detect_gives_the_numbers_of_the_network(small_data: Path, tmp_path: Path) -> None:
    """The export of the toy architecture was compared with transformers; here the probabilities are
    compared with its own logits."""
    from electrify.build import Vocabulary, compose
    from electrify.recipe import load
    from electrify.scoring.detect import detect
    from electrify.text.shards import Corpus
    from electrify.tokens import from_sequences
    from electrify.train import checkpoint

    assert run(*words(small_data, tmp_path / "run", "architecture")) == 0
    manifest = Corpus(small_data, "train").manifest
    built = compose(
        load(tmp_path / "run" / "config.yaml"),
        Vocabulary(manifest.vocab_size, manifest.special_ids),
    )
    tensors, _ = checkpoint.load(tmp_path / "run" / f"checkpoint-{STEPS}")
    built.objective.load_state_dict(tensors["model"], strict=False)
    (found,) = detect(str(tmp_path / "run" / "discriminator"), ["the chef ate a meal"])
    ids = [
        manifest.special_ids.cls,
        *_ids(tmp_path / "run" / "discriminator", "the chef ate a meal"),
        manifest.special_ids.sep,
    ]
    tokens = from_sequences([ids], row_length=len(ids), pad=manifest.special_ids.pad)
    kept = built.kept
    kept.encoder.eval()
    with torch.no_grad():
        expected = kept.head(kept.encoder(tokens)).sigmoid()[1:-1]
    assert torch.allclose(torch.tensor([p.probability for p in found.tokens]), expected, atol=1e-5)


def _ids(folder: Path, text: str) -> list[int]:
    from tokenizers import Tokenizer

    return (
        Tokenizer.from_file(str(folder / "tokenizer.json"))
        .encode(text, add_special_tokens=False)
        .ids
    )


@pytest.mark.parametrize("toy", TOYS)
def test_accumulation_gives_the_same_numbers(toy: str, small_data: Path, tmp_path: Path) -> None:
    assert run(*words(small_data, tmp_path / "whole", toy, dropout=0, attention_dropout=0)) == 0
    assert (
        run(
            *words(
                small_data,
                tmp_path / "parts",
                toy,
                dropout=0,
                attention_dropout=0,
                per_device_train_batch_size=2,
            )
        )
        == 0
    )
    same_numbers(tmp_path / "whole", tmp_path / "parts")


def test_a_split_that_would_cut_a_group_is_refused(
    small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = mistake(
        capsys, *words(small_data, tmp_path / "run", "objective", per_device_train_batch_size=1)
    )
    assert (
        "objective toy_margin compares 2 rows with each other, and forward passes of 1 rows would "
        "cut such a group" in said
    )
    assert not (tmp_path / "run").exists()


def test_a_part_whose_cost_nobody_counts_is_refused() -> None:
    """Where costs are counted before a run, as in a comparison at equal FLOPs."""
    OBJECTIVES["own"] = own_objective.row("Recurrent")
    config = override(load("electra-tiny"), SMALL | {"objective": "own"})
    with pytest.raises(UserError, match="leaves out its gru, a GRU, which nobody has counted"):
        recipe_flops(config, vocab_size=100, convention="hardware")


BROKEN = [
    ({"cls": "own_objective:Detektor"}, "own_objective has no 'Detektor'; did you mean 'Detector'"),
    (
        {"cls": "own_objektive:Detector"},
        "there is no module own_objektive; correct the row, or put",
    ),
    ({"cls": "own_objective:Loose"}, "own_objective:Loose has no class method build(parts, **opt"),
    ({"options": own_objective.Plain}, "the options of its row are not a frozen dataclass; give"),
    ({"options": own_objective.Loose}, "the options of its row are not a frozen dataclass; give"),
    ({"options": own_objective.Alpha}, "does not take the options of its row (got an unexpected"),
    ({"options": own_objective.NoDefault}, "its option alpha has no default; give it one"),
    ({"options": own_objective.Seed}, "seed has the name of a field of the section train"),
    ({"options": own_objective.Resume}, "resume has the name of a flag or argument of"),
    ({"options": own_objective.ReadOuts}, "has the name of an option of corruptor mixture"),
    (
        {"options": own_objective.Candidates},
        "candidates is of another type than that of objective selective; give it the same type or",
    ),
]


@pytest.mark.parametrize(("fields", "says"), BROKEN, ids=str)
def test_a_mistake_in_a_row_is_one_sentence_before_there_is_a_folder(
    fields: dict[str, Any],
    says: str,
    small_data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    OBJECTIVES["own"] = replace(own_objective.row(), **fields)
    line = pretrain_words(small_data, tmp_path / "run", objective="own", max_steps=STEPS)
    said = mistake(capsys, *line)
    assert "objective own: " in said
    assert says in said
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_a_loss_that_is_counted_and_not_returned(
    small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    OBJECTIVES["own"] = own_objective.row("Misnamed")
    line = pretrain_words(small_data, tmp_path / "run", objective="own", max_steps=STEPS)
    assert "forward pass of the objective returns no loss rtd, which" in mistake(capsys, *line)
    OBJECTIVES["own"] = own_objective.row()
    assert run(*line) == 0


def test_two_rows_may_share_an_option_of_one_type(small_data: Path, tmp_path: Path) -> None:
    OBJECTIVES["other"] = replace(OBJECTIVES["toy_margin"])
    assert run(*words(small_data, tmp_path / "run", "objective", objective="other")) == 0


def test_a_small_batch_of_two_processes_cuts_no_group() -> None:
    """A share of a batch of the schedule may be smaller than a group though the batch is not."""
    own = {"group": 4, "train_batch_size": 16, "batch_size_schedule": "4=.2"}
    config = override(load("electra-tiny"), TOYS["objective"] | own)
    assert split_batch(config, 1)[1] == 16
    with pytest.raises(UserError, match="2 rows would cut such a group"):
        split_batch(config, 2)


def test_rows_without_text_count_in_no_loss() -> None:
    """The last batch of a validation may be part empty: its means are those of the rows that hold
    text."""
    config = override(load("electra-tiny"), TOYS["corruptor"] | {"dropout": 0})
    special = SpecialIds(0, 1, 2, 3, 4, others=())
    step = Step(build(config, Vocabulary(100, special)).objective).eval()
    rows = [[2, *range(10, 20), 3], [2, *range(30, 36), 3]]
    found = []
    for empty in (0, 2):
        tokens = from_sequences([*rows, *([[]] * empty)], row_length=16, pad=0)
        draws = draws_for(seed=1, step=0, num_rows=2 + empty, row_length=16)
        terms = step(tokens, step.objective.plan(tokens, draws))
        found.append(
            {
                name: (one.sum.item(), one.count.item())
                for name, one in terms.items()
                if one.kind == "mean"
            }
        )
    assert found[0].keys() >= {"margin", "contrast", "named"}
    for name, (total, number) in found[0].items():
        assert found[1][name] == pytest.approx((total, number), rel=1e-5), name


def test_own_options_are_flags_of_this_objective_only(
    small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "margin must be positive, not -1" in mistake(
        capsys, *words(small_data, tmp_path / "run", "objective", margin=-1)
    )
    assert "shift must not be 0" in mistake(
        capsys, *words(small_data, tmp_path / "run", "corruptor", shift=0)
    )
    line = words(small_data, tmp_path / "run", "architecture", shift=3)
    assert "--shift 3 is for corruptor toy_shift, not generator" in mistake(capsys, *line)
    line = words(small_data, tmp_path / "run", "architecture", margin=2)
    assert "--margin 2.0 is for objective toy_margin, not rtd" in mistake(capsys, *line)
    assert "init local is not known for architecture toy_prenorm" in mistake(
        capsys, *words(small_data, tmp_path / "run", "architecture", init="local")
    )


def test_a_mixture_reads_out_any_architecture() -> None:
    """Through its last norm at every depth, and with the way back through its word vectors."""
    fields = {"architecture": "toy_prenorm", "init": "bert", "tie": "none"}
    special = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)
    made = build(override(load("amos-tiny"), fields), Vocabulary(100, special))
    mixture = made.objective.corruptor
    norm = mixture.lm.encoder.norm
    tokens = from_sequences([[2, *range(5, 60), 3]] * 4, row_length=64, pad=0)
    draws = draws_for(seed=0, step=0, num_rows=4, row_length=64, first_row=0)
    plan = made.objective.plan(tokens, draws)
    for k in range(3):
        norm.zero_grad()
        mixture(tokens, plan).ce_KM[k].sum().backward()
        assert norm.weight.grad.any()
    mixture.zero_grad()
    made.objective(tokens, plan).losses["rtd"].values_N.sum().backward()
    assert mixture.vote.weight.grad.any()
    assert norm.weight.grad.any()


@pytest.mark.parametrize("toy", TOYS)
def test_flops(toy: str) -> None:
    config = override(
        load("electra-tiny"),
        TOYS[toy] | ({"embedding_size": 128} if toy == "architecture" else {}),
    )
    for convention in ("hardware", "paper"):
        assert recipe_flops(config, vocab_size=1000, convention=convention).train > 0  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("toy", ["objective", "architecture"])
def test_killed_and_resumed_to_the_bit(toy: str, small_data: Path, tmp_path: Path) -> None:
    assert (
        run(*words(small_data, tmp_path / "unbroken", toy, dropout=0.1, max_steps=40, save_steps=8))
        == 0
    )
    line = words(small_data, tmp_path / "killed", toy, dropout=0.1, max_steps=40, save_steps=8)
    process = in_a_process(line, tmp_path)
    assert process.wait_for(lambda: 16 in steps_of(tmp_path / "killed")), process.end().err
    process.signal(signal.SIGKILL)
    process.end()
    done = in_a_process(line, tmp_path).end()
    assert done.status == 0, done.err
    assert "continuing after step" in done.err
    same_ending(tmp_path / "unbroken", tmp_path / "killed", step=40)


@pytest.mark.slow
@pytest.mark.parametrize("toy", ["objective", "architecture"])
@pytest.mark.parametrize("fsdp", ["no_shard", "full_shard"])
def test_two_processes(toy: str, fsdp: str, small_data: Path, tmp_path: Path) -> None:
    exact = {"dropout": 0, "attention_dropout": 0}
    assert run(*words(small_data, tmp_path / "one", toy, **exact)) == 0
    done = in_a_process(
        words(small_data, tmp_path / "two", toy, fsdp=fsdp, **exact), tmp_path, prefix=TORCHRUN
    ).end()
    assert done.status == 0, done.err
    same_numbers(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "two" / "discriminator" / "model.safetensors").is_file()
