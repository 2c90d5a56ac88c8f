"""`electrify pretrain` and `electrify export` as a whole: what a run leaves, what it starts from,
and the folders that it must refuse."""

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from electrify import cli
from electrify.errors import UserError
from electrify.files import sha256
from electrify.recipe import load, override
from electrify.text.corpus import read_manifest
from electrify.train.job import split_batch
from electrify.train.run import must_be_usable
from small import (
    SHORT,
    flags,
    listing,
    mistake,
    parameters_sha256,
    prepare_small,
    pretrain_words,
    records,
    steps_of,
    write_text,
)


def electrify(*words: str | Path) -> int:
    """In this process, whose torch is loaded already."""
    return cli.main([str(w) for w in words])


def pretrain(data: Path | str, run: Path, **fields: Any) -> int:
    return electrify(*pretrain_words(data, run, **SHORT | fields))


def refused(capsys: pytest.CaptureFixture[str], data: Path, run: Path, **fields: Any) -> str:
    """The sentence about a mistake in a pre-training."""
    return mistake(capsys, *pretrain_words(data, run, **SHORT | fields), longest=1000)


def test_a_run(finished: Path, small_data: Path) -> None:
    folders = {"tensorboard", "tokenizer", "discriminator", "generator"}
    files = {"config.yaml", "run.json", "metrics.jsonl"}
    assert {p.name for p in finished.iterdir()} >= files | folders
    assert steps_of(finished) == [10, 12]
    lines = [("train", 4), ("train", 8), ("valid", 8), ("train", 12), ("valid", 12)]
    assert [(r["kind"], r["step"]) for r in records(finished)] == lines
    last, rate = records(finished, "train")[-1], load("electra-tiny").train.learning_rate
    assert last["learning_rate"] == pytest.approx(rate * (1 - (11 - 5) / (12 - 5)))
    facts = json.loads((finished / "run.json").read_text(encoding="utf-8"))
    assert facts["data"] == read_manifest(small_data).fingerprint
    assert facts["tokenizer_sha256"] == sha256(finished / "tokenizer" / "tokenizer.json")
    tensors = load_file(finished / "checkpoint-12" / "model.safetensors")
    assert facts["parameters"] == sum(t.numel() for t in tensors.values())


def test_the_same_command_again_trains_nothing(capsys, small_data, tmp_path):
    """Not even with other intervals, which move no number."""
    run = tmp_path / "run"
    assert pretrain(small_data, run, recipe="bert-tiny") == 0
    before = {name: h for name, h in listing(run).items() if name != "discriminator/README.md"}
    out, said = capsys.readouterr()
    assert out == f"discriminator: {run / 'discriminator'}\n"
    assert "replaced tokens in validation" not in said, "it detects nothing"
    for fields in ({}, {"logging_steps": 7, "save_steps": 3}):
        assert pretrain(small_data, run, recipe="bert-tiny", **fields) == 0
        assert before.items() <= listing(run).items()
    assert "continuing after step 12" in capsys.readouterr().err
    assert pretrain(small_data, tmp_path / "electra", recipe="electra-tiny") == 0
    assert "% of the replaced tokens in validation" in capsys.readouterr().err


def test_a_text_file_is_prepared_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt", size=30_000)
    for _ in range(2):  # the second time it is prepared already
        assert pretrain(text, tmp_path / "run", recipe="bert-tiny", max_steps=2) == 0
    assert "preparing it into" in capsys.readouterr().err
    assert read_manifest(tmp_path / "run-data").sources[0]["name"] == "text.txt"
    assert (tmp_path / "run" / "discriminator" / "model.safetensors").is_file()


def test_a_text_file_is_prepared_for_the_start(capsys, finished, tmp_path, without_exports):
    """With the tokenizer of the folder from which the run starts: ids of a new vocabulary would
    stand for other words. A run that is continued needs neither that folder nor its tokenizer."""
    text = write_text(tmp_path / "text.txt", size=30_000, seed=3)
    start = tmp_path / "start"
    shutil.copytree(finished / "discriminator", start)
    (tmp_path / "generator").mkdir()
    run = tmp_path / "run"
    fields = {"recipe": "electra-tiny", "init_discriminator": start, "max_steps": 6}
    assert pretrain(text, run, **fields, max_minutes=1e-6) == 75
    shutil.rmtree(start)
    assert pretrain(text, run, **fields) == 0
    tokenizers = (finished / "discriminator", tmp_path / "run-data" / "tokenizer")
    words = [json.loads((f / "tokenizer.json").read_text())["model"]["vocab"] for f in tokenizers]
    assert words[0] == words[1]
    said = capsys.readouterr().err
    assert f"with the tokenizer of {start}" in said
    assert f"starts anew. init_generator={tmp_path / 'generator'}" in said


def test_init_from_the_folders_of_a_run(capsys, small_data, finished, tmp_path):
    """The folders decide the shapes, whatever the recipe says. Their weights are there: the
    learning rate is too small to move them."""
    fields = {f"init_{part}": finished / part for part in ("discriminator", "generator")}
    fields |= {"max_seq_length": 16, "train_batch_size": 4, "max_steps": 1, "learning_rate": 1e-30}
    fields |= {"warmup_steps": 0, "eval_steps": 0, "eval_rows": 4, "report_to": "none"}
    words = ["pretrain", small_data, "--output-dir", tmp_path / "run", "--recipe", "electra-small"]
    assert electrify(*words, *flags(**fields, bf16=False)) == 0
    said = capsys.readouterr().err
    assert f"discriminator: {finished / 'discriminator'}: every weight found and used" in said
    for part in ("discriminator", "generator"):
        files = [run / part / "model.safetensors" for run in (finished, tmp_path / "run")]
        old, new = map(load_file, files)
        assert old.keys() == new.keys()
        assert all(torch.equal(old[k], new[k]) for k in old)


@pytest.mark.parametrize("there", [1, 3])
def test_init_from_a_folder_with_other_segments(there, small_data, finished, tmp_path):
    """The recipe has texts of two segments: a second one starts as the first, a third is left
    out."""
    start = tmp_path / "start"
    shutil.copytree(finished / "discriminator", start)
    (start / "electrify.json").unlink()
    config = json.loads((start / "config.json").read_text()) | {"type_vocab_size": there}
    (start / "config.json").write_text(json.dumps(config))
    tensors = load_file(start / "model.safetensors")
    name = "electra.embeddings.token_type_embeddings.weight"
    tensors[name] = torch.arange(there * 32.0).view(there, 32)
    save_file(tensors, start / "model.safetensors", metadata={"format": "pt"})
    still = {"max_steps": 1, "learning_rate": 1e-30, "warmup_steps": 0, "weight_decay": 0}
    assert pretrain(small_data, tmp_path / "run", **still, init_discriminator=start) == 0
    taken = load_file(tmp_path / "run" / "discriminator" / "model.safetensors")[name]
    torch.testing.assert_close(taken, tensors[name][[0, min(1, there - 1)]])


def test_init_mistakes(capsys, finished, small_data, tmp_path):
    """No folder, another vocabulary, too few positions. No run folder is left."""
    other = prepare_small(tmp_path / "other", vocab_size=150)
    long = {"max_seq_length": 64, "max_position_embeddings": 64}
    kept = {"init_discriminator": finished / "discriminator"}
    cases: list[tuple[Path, dict[str, Any], str]] = [
        (small_data, {"init_discriminator": tmp_path / "nowhere"}, "nowhere"),
        (other, kept, "knows other words than the corpus"),
        (small_data, kept | long, "--seq-length-schedule) exceed the 32 positions of"),
    ]
    for data, fields, says in cases:
        assert says in refused(capsys, data, tmp_path / "run", **fields), fields
        assert not (tmp_path / "run").exists(), fields


def test_a_run_of_another_kind_in_the_folder(capsys, finished, small_data):
    """Each difference is named, and the run that is there keeps every byte."""
    before = listing(finished)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"learning_rate": 0.5}, "learning-rate 0.001 there, 0.5 here"),
        ({"seed": 3, "max_steps": 20}, "--max-steps 12 there, 20 here; seed 0 there, 3 here"),
        ({"recipe": "bert-tiny"}, "objective rtd there, mlm here"),
    ]
    for fields, says in cases:
        assert says in refused(capsys, small_data, finished, **fields), fields
    advice = "choose another --output-dir, or continue it with --resume auto"
    said = refused(capsys, small_data, finished, resume="never")
    assert said.lower().endswith(f"holds another run. {advice}")
    assert listing(finished) == before


def test_other_data_in_the_folder(capsys, finished, tmp_path):
    before = listing(finished)
    text = write_text(tmp_path / "more.txt", seed=1)
    words = ["prepare", text, "--tokenizer", finished / "tokenizer", "--workers", "1"]
    assert electrify(*words, "--output-dir", tmp_path / "more") == 0
    other = prepare_small(tmp_path / "other", seed=1, vocab_size=400)
    for data, what in ((tmp_path / "more", "corpus"), (other, "tokenizer")):
        said = refused(capsys, data, finished)
        assert f"was trained with another {what} than DATA" in said
    assert listing(finished) == before


def test_damaged_checkpoints(capsys, finished, small_data, tmp_path, without_exports):
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    (run / "checkpoint-12" / "model.safetensors").write_bytes(b"torn")
    assert pretrain(small_data, run, resume="must") == 0  # from step 10
    said = "checkpoint-12 is damaged: model.safetensors does not have the hash in state.json"
    assert f"{said}; it is passed over" in capsys.readouterr().err
    assert parameters_sha256(run, 12) == parameters_sha256(finished, 12)
    assert records(run) == records(finished)

    for step in steps_of(run):
        (run / f"checkpoint-{step}" / "state.json").unlink()
    before = listing(run)
    for resume in ("must", "auto"):  # beginning anew would overwrite what is left of the run
        assert "none of them is whole" in refused(capsys, small_data, run, resume=resume)
    assert listing(run) == before


def test_a_run_stopped_in_its_first_stage_goes_on_without_options(small_data, tmp_path):
    """Its recipe is in the folder, though the folder has no checkpoint yet."""
    run = tmp_path / "run"
    stopped: dict[str, Any] = {"generator_steps": 4, "warmup_steps": 1, "max_minutes": 1e-6}
    assert pretrain(small_data, run, recipe="two-stage-tiny", **stopped) == 75
    assert steps_of(run / "generator-stage") == [1]
    before = (run / "config.yaml").read_text(encoding="utf-8")
    assert electrify("pretrain", small_data, "--output-dir", run) == 75
    assert steps_of(run / "generator-stage")[-1] == 2
    assert (run / "config.yaml").read_text(encoding="utf-8") == before


@pytest.mark.parametrize(
    ("names", "resume", "says"),
    [
        ([], "auto", ""),
        ([".electrify.lock"], "auto", ""),
        (["notes.txt"], "auto", "is not ours to write into"),
        (["checkpoint-5"], "auto", "is not ours to write into"),
        (["run.json"], "auto", ""),  # killed before its first checkpoint: begins anew
        (["run.json"], "must", "has no checkpoint"),
        (["run.json", "checkpoint-5"], "never", "holds another run"),
        (["run.json", "discriminator"], "auto", "whose checkpoints are gone"),
    ],
)
def test_which_folders_are_refused(tmp_path, names, resume, says):
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=says) if says else contextlib.nullcontext():
        must_be_usable(tmp_path, resume)


@pytest.mark.parametrize(
    ("given", "world", "want"),
    [
        ({"train_batch_size": 12}, 2, (12, 6)),
        ({"train_batch_size": 12, "per_device_train_batch_size": 3}, 2, (12, 3)),
        ({"train_batch_size": 12, "gradient_accumulation_steps": 3}, 2, (12, 2)),
        (
            {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 4}
            | {"train_batch_size": 5},
            2,
            (24, 3),
        ),
        ({"train_batch_size": 12}, 5, None),
    ],
)
def test_how_a_batch_is_cut(given, world, want):
    config = override(load("electra-tiny"), given)
    if want is None:
        with pytest.raises(UserError, match="cannot be cut evenly"):
            split_batch(config, world)
    else:
        cut, micro = split_batch(config, world)
        assert (cut.train.train_batch_size, micro) == want


def test_folders_hold_relative_paths_only(
    small_data, finished, tmp_path, monkeypatch, without_exports
):
    """Also of the folders that a run starts from; and it continues wherever it is called from."""
    for part in ("discriminator", "generator"):
        shutil.copytree(finished / part, tmp_path / "models" / part)
    folder = tmp_path / "runs" / "run"
    starts: dict[str, Any] = {
        f"init_{part}": tmp_path / "models" / part for part in ("discriminator", "generator")
    }
    assert pretrain(small_data, folder, **starts, max_minutes=1e-4) == 75
    for path in folder.rglob("*"):
        if path.suffix in (".yaml", ".json", ".jsonl", ".md"):
            assert str(tmp_path) not in path.read_text(), path.name
    assert (
        "init_discriminator: ../../models/discriminator\n" in (folder / "config.yaml").read_text()
    )
    read = load(folder / "config.yaml").train.init_discriminator
    assert read is not None
    assert Path(read).resolve() == tmp_path / "models" / "discriminator"
    monkeypatch.chdir(tmp_path)
    relative = {name: f"./models/../models/{Path(start).name}" for name, start in starts.items()}
    assert pretrain(small_data, Path("runs/run"), **relative) == 0
    assert pretrain(small_data, tmp_path / "whole", **starts) == 0
    assert parameters_sha256(folder, 12) == parameters_sha256(tmp_path / "whole", 12)


def test_a_run_and_its_start_may_be_moved(
    small_data, finished, tmp_path, capsys, monkeypatch, without_exports
):
    """The start is known again by its content, and not needed any more where it is gone."""
    monkeypatch.chdir(tmp_path)
    start = Path(shutil.copytree(finished / "discriminator", "start"))
    run, deep = Path("run"), Path("below/run")
    stopped = {"max_minutes": 1e-6}
    assert pretrain(small_data, run, init_discriminator=start, **stopped) == 75
    deep.parent.mkdir()
    run.rename(deep)
    other = Path(shutil.copytree(start, "other"))
    (other / "config.json").write_text((other / "config.json").read_text() + "\n")
    said = refused(capsys, small_data, deep, init_discriminator=other)
    assert "--init-discriminator other is not the one that it started from" in said
    moved = start.rename("renamed")
    assert pretrain(small_data, deep, init_discriminator=start, **stopped) == 75
    assert pretrain(small_data, deep, init_discriminator=moved) == 0
    assert pretrain(small_data, Path("whole"), init_discriminator=moved) == 0
    assert parameters_sha256(deep, 12) == parameters_sha256(Path("whole"), 12)
