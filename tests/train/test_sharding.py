"""A model cut over two processes: the numbers, the files and the failures of one process, in half
of the room."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from spoiled import spoil

from electrify import cli
from electrify.train import METRICS, log
from small import TORCHRUN, Process, pretrain_words, records, same_ending, same_numbers, steps_of

MANY = Path(__file__).with_name("many_runs.py")
SHARDED = {"fsdp": "full_shard"}
SIZE: dict[str, Any] = {
    "num_hidden_layers": 2,
    "max_steps": 50,
    "logging_steps": 1,
    "eval_steps": 25,
    "save_steps": 1000,
}
CLOSE = 1e-5  # of parameters and the optimiser's state
# Every system of the study, and every way of sharing. Both optimisers, and both ways to cut a
# batch, are among them.
SYSTEMS: dict[str, dict[str, Any]] = {
    "electra": {"optim": "electra_adam", "per_device_train_batch_size": 1},
    "bert": {"optim": "adamw"},
    "electra-15": {},
    "replace-mlm": {"optim": "adamw", "per_device_train_batch_size": 1},
    "all-tokens-mlm": {},
    "corrective": {"per_device_train_batch_size": 1},
    "teams": {"per_device_train_batch_size": 1},
    "amos": {"per_device_train_batch_size": 1},
    "two-stage": {"generator_steps": 8},
    "adversarial": {},
    "electric": {"optim": "adamw"},
    "unigram": {},
    "uniform": {"max_grad_norm": 0},
    "fast-electra": {"generator_steps": 8},
    "gdes": {"per_device_train_batch_size": 1},
    "metro": {"optim": "adamw"},
    "coco-lm": {"contrast_rows": 2, "train_batch_size": 8, "per_device_train_batch_size": 2},
    "coco-lm-rtd": {"per_device_train_batch_size": 1},
    "tie-none": {"tie": "none"},
    "tie-tokens": {"tie": "tokens"},
    "tie-gdes": {"tie": "gdes"},
    "tie-lower": {"tie": "lower", "tie_layers": 1, "generator_size": 1}
    | {"generator_num_hidden_layers": 1, "clip": "apart", "per_device_train_batch_size": 1},
    "tie-all": {"tie": "all", "generator_size": 1, "per_device_train_batch_size": 1},
}

pytestmark = [pytest.mark.timeout(1800), pytest.mark.usefixtures("exports")]


def words(system: str, data: Path, run: Path, **fields: Any) -> list[str]:
    recipe = f"{'electra' if system.startswith('tie-') else system}-tiny"
    return pretrain_words(data, run, recipe=recipe, **SIZE | SYSTEMS[system] | fields)


def in_two(folder: Path, jobs: list[list[str]], **variables: str) -> None:
    """The command lines, one after the other, in two processes."""
    asked = [{"words": one, "variables": variables} for one in jobs]
    (folder / "jobs.json").write_text(json.dumps(asked), encoding="utf-8")
    given = [str(MANY), str(folder / "jobs.json")]
    done = Process(given, folder / "stderr.txt", prefix=TORCHRUN).end(seconds=1700)
    assert done.status == 0, done.err


def room(run: Path) -> list[dict[str, Any]]:
    """What many_runs.py wrote of it, by rank."""
    files = [run.with_name(f"{run.name}.room.{rank}") for rank in (0, 1)]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def same_tensors(a: Path, b: Path, *, step: int) -> None:
    """Fails where the checkpoints of two runs hold other names, or values that differ by more than
    rounding.

    But for the biases of keys: they add the same to all scores of a token, so their gradient is
    rounding alone, and Adam divides it by its own size.
    """
    for group in ("model", "optimizer"):
        files = [run / f"checkpoint-{step}" / f"{group}.safetensors" for run in (a, b)]
        one, other = map(load_file, files)
        assert {n: t.shape for n, t in one.items()} == {n: t.shape for n, t in other.items()}
        for name, t in one.items():
            found = other[name]
            if group == "model" and name.endswith(".qkv.bias"):
                t, found = (torch.cat(x.chunk(3)[::2]) for x in (t, found))
            torch.testing.assert_close(found, t, rtol=CLOSE, atol=CLOSE, msg=f"{group} {name}")


def test_one_process_holds_the_whole(small_data: Path, tmp_path: Path) -> None:
    """The option changes nothing there, so a run may lose its other processes and go on."""
    for run, fsdp in (("plain", "no_shard"), ("sharded", "full_shard")):
        assert cli.main(words("electra", small_data, tmp_path / run, fsdp=fsdp, max_steps=4)) == 0
    same_ending(tmp_path / "plain", tmp_path / "sharded", step=4)


@pytest.fixture(scope="module")
def sharded(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sharded run of every system."""
    folder = tmp_path_factory.mktemp("sharded")
    in_two(folder, [words(system, small_data, folder / system, **SHARDED) for system in SYSTEMS])
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_same_numbers(system: str, small_data: Path, sharded: Path, tmp_path: Path) -> None:
    """Losses, norms, validation, parameters, optimiser state and exported folders are those of one
    process. A block is whole while it runs, and no other: before the next update everything is cut
    again."""
    assert cli.main(words(system, small_data, tmp_path / "run")) == 0
    # Measured: 3.6e-6 and 1.2e-5 in these two, at most 1e-7 in all other fields.
    rounding = {"contrast": 1e-5, "grad_norm": 2e-5} if system == "coco-lm" else {}
    same_numbers(tmp_path / "run", sharded / system, **rounding)
    same_tensors(tmp_path / "run", sharded / system, step=50)
    for half in ("discriminator", "generator"):
        files = [run / half / "model.safetensors" for run in (sharded / system, tmp_path / "run")]
        assert files[0].is_file() == files[1].is_file()
        if files[0].is_file():
            theirs, mine = (  # see same_tensors
                {n: t for n, t in load_file(file).items() if not n.endswith("key.bias")}
                for file in files
            )
            torch.testing.assert_close(theirs, mine, rtol=CLOSE, atol=CLOSE)
    for facts in room(sharded / system):
        assert facts["whole_blocks"] == 1
        assert facts["whole_between"] == []


@pytest.mark.slow
def test_half_of_the_room(small_data: Path, tmp_path: Path) -> None:
    """Four layers of width 128 and a vocabulary of 512. Without sharding a process holds four
    numbers for every parameter; with it half of that, and what is gathered for the moment."""
    wide = {
        "num_hidden_layers": 4,
        "hidden_size": 128,
        "intermediate_size": 512,
        "per_device_train_batch_size": 1,
        "max_steps": 3,
    }
    jobs = {
        "none": {},
        "full": SHARDED,
        "none16": {"bf16": True},
        "full16": SHARDED | {"bf16": True},
    }
    in_two(
        tmp_path,
        [
            words("electra", small_data, tmp_path / run, **wide | fields)
            for run, fields in jobs.items()
        ],
    )
    none, full, _, full16 = (room(tmp_path / run) for run in jobs)
    for before, now, now16 in zip(none, full, full16, strict=True):
        assert before["peak"] == pytest.approx(4 * before["parameters"], rel=0.01)
        assert now["parameters"] == pytest.approx(before["parameters"] / 2, rel=0.02)
        assert now["state"] == pytest.approx(before["state"] / 2, rel=0.02)
        assert now["peak"] < 0.7 * before["peak"]
        assert now16["peak"] < now["peak"]
    one, other = (records(tmp_path / run, "train") for run in ("none16", "full16"))
    assert other[0]["rtd"] == pytest.approx(one[0]["rtd"], rel=1e-6), (
        "gathered in bfloat16 is what autocast makes of the matrices"
    )
    assert other[0]["grad_norm"] == pytest.approx(one[0]["grad_norm"], rel=1e-3)


def beginning(run: Path, copy: Path, *, step: int) -> Path:
    """A run as it was when the checkpoint of `step` was its newest."""
    shutil.copytree(
        run,
        copy,
        ignore=shutil.ignore_patterns(
            "discriminator", "generator", *(f"checkpoint-{n}" for n in steps_of(run) if n != step)
        ),
    )
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("optim", ["adamw", "electra_adam"])
def test_from_one_process_to_shards_and_back(small_data: Path, tmp_path: Path, optim: str) -> None:
    """One process, two with shards, two without, one: the files are the same."""
    fields = {
        "optim": optim,
        "max_steps": 52,
        "save_steps": 13,
        "save_total_limit": 10,
        "init_words": "cooccurrence",
    }
    alone = tmp_path / "alone"
    assert cli.main(words("electra", small_data, alone, **fields)) == 0
    cut = beginning(alone, tmp_path / "cut", step=13)
    in_two(
        tmp_path,
        [words("electra", small_data, run, **fields | SHARDED) for run in (cut, tmp_path / "new")],
    )
    for run in (cut, tmp_path / "new"):
        same_numbers(alone, run)
        same_tensors(alone, run, step=52)
    uncut = beginning(cut, tmp_path / "uncut", step=26)
    in_two(tmp_path, [words("electra", small_data, uncut, **fields)])
    again = beginning(uncut, tmp_path / "again", step=39)
    assert cli.main(words("electra", small_data, again, **fields)) == 0
    same_numbers(alone, again)
    same_tensors(alone, again, step=52)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["skip", "rollback"])
def test_losses_that_are_no_numbers(small_data: Path, tmp_path: Path, policy: str) -> None:
    """On one rank of two, right after a validation and between two checkpoints: all ranks leave the
    update out, as one process does."""
    fields = {"non_finite": policy, "save_steps": 5, "eval_steps": 6, "optim": "adamw"}
    with pytest.MonkeyPatch.context() as patch:
        spoil(patch, {7: math.nan})
        assert cli.main(words("bert", small_data, tmp_path / "one", **fields)) == 0
    in_two(
        tmp_path,
        [words("bert", small_data, tmp_path / "two", **fields | SHARDED)],
        SPOILED="7=nan%1",
    )
    one, two = (
        [r for r in log.read(tmp_path / run / METRICS) if r["kind"] == "event"]
        for run in ("one", "two")
    )
    assert "update 7 is not finite" in two[0]["warning"]
    assert [(e["step"], e["warning"], e.get("rows")) for e in one] == [
        (e["step"], e["warning"], e.get("rows")) for e in two
    ]
    same_numbers(tmp_path / "one", tmp_path / "two")
    same_tensors(tmp_path / "one", tmp_path / "two", step=50)
