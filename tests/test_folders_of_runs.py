"""What `pretrain` and `export` do not take, overwrite or remove, and that what they write names no
place of the machine."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from electrify.train.folder import is_run, is_same_start

from electrify import cli
from electrify.config.pretrain import RUN_MARK, dump, load_file, load_recipe
from electrify.oldfiles.model_folder import model_mark
from electrify.oldfiles.run_folder import METRICS
from electrify.oldfiles.seals import sealed
from electrify.train import dist
from electrify.train.log import read
from small import listing, mistake, model_files, parameters_sha256, pretrain_words

SHORT: dict[str, Any] = {"max_steps": 4, "logging_steps": 2, "save_steps": 2}


def words(data: Path, run: Path, **fields: Any) -> list[str]:
    return pretrain_words(data, run, **SHORT | fields)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, small_data: Path) -> Path:
    """A run of four steps. Read only."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert cli.main(words(small_data, folder)) == 0
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.mark.parametrize(
    "name",
    [
        "config.yaml",
        "generator-stage/notes.txt",
        "discriminator/notes.txt",
        "tokenizer/mine.txt",
        "run.json",
    ],
)
def test_foreign_files_with_our_names(
    capsys: pytest.CaptureFixture[str], small_data: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "run"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text("seed: 5  # mine\n")
    before = listing(folder)
    sentence = mistake(capsys, *words(small_data, folder))
    assert (
        "is not the recipe of a run that electrify began" in sentence
        or "is not empty and holds no run" in sentence
    )
    assert listing(folder) == before


def test_a_recipe_of_the_user_is_no_run(
    capsys: pytest.CaptureFixture[str], small_data: Path, tmp_path: Path
) -> None:
    """He wrote it as config.yaml where the run shall be: it would be overwritten by the resolved
    one."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(
        "like: electra-tiny\ntrain:\n  max_steps: 4\n  device: cpu\n"
    )
    before = listing(folder)
    mistake(
        capsys, "pretrain", small_data, "--config", folder / "config.yaml", "--output-dir", folder
    )
    assert listing(folder) == before


def test_a_recipe_that_is_a_link(
    capsys: pytest.CaptureFixture[str], small_data: Path, run: Path, tmp_path: Path
) -> None:
    (run / "config.yaml").rename(tmp_path / "shared.yaml")
    (run / "config.yaml").symlink_to(tmp_path / "shared.yaml")
    before = listing(run)
    sentence = mistake(capsys, *words(small_data, run))
    assert "config.yaml is a link" in sentence
    assert listing(run) == before


def test_half_folders_of_the_user_are_found_before_the_training(
    capsys: pytest.CaptureFixture[str], small_data: Path, run: Path
) -> None:
    shutil.rmtree(run / "generator")
    (run / "generator").mkdir()
    (run / "generator" / "notes.txt").write_text("mine")
    assert "generator is not a model that electrify wrote" in mistake(
        capsys, *words(small_data, run)
    )
    assert [p.name for p in (run / "generator").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "lost", ["mark", "mark, run.json", "mark, checkpoints", "mark, run.json, checkpoints"]
)
def test_runs_of_earlier_versions_are_known(run: Path, lost: str) -> None:
    """By run.json, by a checkpoint, or by being to the byte what a recipe is written as; without
    any of them it is somebody's file."""
    path = run / "config.yaml"
    path.write_text(path.read_text().removeprefix(RUN_MARK))
    if "run.json" in lost:
        (run / "run.json").unlink()
    if "checkpoints" in lost:
        for checkpoint in run.glob("checkpoint-*"):
            shutil.rmtree(checkpoint)
    assert is_run(run)
    path.write_text(path.read_text() + "# mine\n")
    assert is_run(run) == (lost != "mark, run.json, checkpoints")


def test_what_the_user_puts_into_a_model_folder_stays(small_data: Path, run: Path) -> None:
    models = model_files(run / "discriminator")
    (run / "discriminator" / "notes.txt").write_text("mine")
    (run / "discriminator" / "x").mkdir()
    (run / "discriminator" / "x" / "scores.jsonl").write_text("{}")
    before = listing(run / "discriminator")
    assert cli.main(words(small_data, run)) == 0
    assert cli.main(["export", str(run), "--output-dir", str(run / "discriminator")]) == 0
    after = listing(run / "discriminator")
    assert {k: v for k, v in after.items() if k != "README.md"} == {
        k: v for k, v in before.items() if k != "README.md"
    }
    assert models.items() <= after.items()


def test_another_half_and_another_run_are_refused(
    capsys: pytest.CaptureFixture[str], small_data: Path, run: Path, tmp_path: Path
) -> None:
    assert cli.main(words(small_data, tmp_path / "other", seed=3)) == 0
    before = listing(run)
    assert "a model of another kind (discriminator, not generator)" in mistake(
        capsys, "export", run, "--part", "generator", "--output-dir", run / "discriminator"
    )
    assert "of another run" in mistake(
        capsys, "export", tmp_path / "other", "--output-dir", run / "discriminator"
    )
    assert listing(run) == before


def test_a_linked_target_stays_a_link(run: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "lnk").symlink_to(tmp_path / "real")
    for _ in range(2):
        assert cli.main(["export", str(run), "--output-dir", str(tmp_path / "lnk")]) == 0
    assert (tmp_path / "lnk").is_symlink()
    assert model_mark(tmp_path / "real") is not None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lnk", "real", "run"]


def test_a_tokenizer_of_the_user_in_a_run_that_begins_anew(
    capsys: pytest.CaptureFixture[str], small_data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    (folder / "tokenizer").mkdir(parents=True)
    (folder / "config.yaml").write_text(dump(load_recipe("electra-tiny")))
    (folder / "tokenizer" / "vocab.txt").write_text("mine")
    assert "vocab.txt is neither of this tokenizer" in mistake(capsys, *words(small_data, folder))
    assert (folder / "tokenizer" / "vocab.txt").read_text() == "mine"


def test_folders_hold_relative_paths_only(
    small_data: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of the folders that a run starts from; and it continues wherever it is called from."""
    for part in ("discriminator", "generator"):
        shutil.copytree(finished / part, tmp_path / "models" / part)
    folder = tmp_path / "runs" / "run"
    starts: dict[str, Any] = {
        f"init_{part}": tmp_path / "models" / part for part in ("discriminator", "generator")
    }
    assert cli.main(words(small_data, folder, **starts, max_minutes=1e-4)) == 75
    for path in folder.rglob("*"):
        if path.suffix in (".yaml", ".json", ".jsonl", ".md"):
            assert str(tmp_path) not in path.read_text(), path.name
    assert (
        "init_discriminator: ../../models/discriminator\n" in (folder / "config.yaml").read_text()
    )
    read = load_file(folder / "config.yaml").train.init_discriminator
    assert read is not None
    assert Path(read).resolve() == tmp_path / "models" / "discriminator"
    monkeypatch.chdir(tmp_path)
    relative = {name: f"./models/../models/{Path(start).name}" for name, start in starts.items()}
    assert cli.main(words(small_data, Path("runs/run"), **relative)) == 0
    assert cli.main(words(small_data, tmp_path / "whole", **starts)) == 0
    assert parameters_sha256(folder, 4) == parameters_sha256(tmp_path / "whole", 4)
    before = listing(folder)
    shutil.copytree(tmp_path / "models", tmp_path / "elsewhere")
    assert (
        cli.main(
            words(
                small_data,
                folder,
                init_discriminator="elsewhere/discriminator",
                init_generator="elsewhere/generator",
            )
        )
        == 2
    )
    assert {k: v for k, v in listing(folder).items() if k != ".lock"} == {
        k: v for k, v in before.items() if k != ".lock"
    }
    assert (
        json.loads((folder / "discriminator" / "electrify.json").read_text())["electrify"]
        == "model"
    )


@pytest.mark.parametrize("earlier", [False, True])
def test_a_run_and_its_start_may_be_moved(
    small_data: Path,
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    earlier: bool,
) -> None:
    """The start is known again by its content; runs of earlier versions did not write that down."""
    monkeypatch.chdir(tmp_path)
    start = Path(shutil.copytree(finished / "discriminator", "start"))
    run, deep = Path("run"), Path("below/run")
    stopped = {"max_minutes": 1e-6}
    assert cli.main(words(small_data, run, init_discriminator=start, **stopped)) == 75
    deep.parent.mkdir()
    run.rename(deep)
    other = Path(shutil.copytree(start, "other"))
    (other / "config.json").write_text((other / "config.json").read_text() + "\n")
    if earlier:
        facts = json.loads((deep / "run.json").read_text())
        del facts["starts"], facts["seal"]
        (deep / "run.json").write_text(json.dumps(sealed(facts)))
    else:
        said = mistake(capsys, *words(small_data, deep, init_discriminator=other))
        assert "holds another run (init_discriminator" in said
    hub = mistake(capsys, *words(small_data, deep, init_discriminator="me/start"))
    assert "holds another run (init_discriminator" in hub
    assert cli.main(words(small_data, deep, init_discriminator=start, **stopped)) == 75
    elsewhere = Path(shutil.copytree(other, "elsewhere/another"))
    Path("moved").mkdir()
    moved = start.rename("moved/start" if earlier else "moved/renamed")
    odd = mistake(capsys, *words(small_data, deep, init_discriminator=elsewhere))
    assert "holds another run (init_discriminator" in odd
    assert cli.main(words(small_data, deep, init_discriminator=moved)) == 0
    assert cli.main(words(small_data, Path("whole"), init_discriminator=moved)) == 0
    assert parameters_sha256(deep, 4) == parameters_sha256(Path("whole"), 4)


def test_a_start_on_the_hub_is_no_folder_that_was_moved(run: Path) -> None:
    for facts in ({"starts": {}}, {}):
        (run / "run.json").write_text(json.dumps(facts))
        start = str(run / "discriminator")
        assert not is_same_start(run, "init_discriminator", "me/start", start)
        assert is_same_start(run, "init_discriminator", start, start)


# ------------------------------------------------------------------ what the user changed in a run


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_model_that_was_changed_is_found_before_the_training(
    capsys: pytest.CaptureFixture[str], small_data: Path, run: Path, name: str
) -> None:
    path = run / "discriminator" / name
    path.write_bytes(path.read_bytes() + b" ")
    before = {k: v for k, v in listing(run).items() if k != ".lock"}
    for command in (
        words(small_data, run),
        ["export", str(run), "--output-dir", str(run / "discriminator")],
    ):
        assert f"{name} was changed after electrify wrote it; move it away or remove it" in mistake(
            capsys, *command
        )
        assert {k: v for k, v in listing(run).items() if k != ".lock"} == before
    path.unlink()
    assert cli.main(words(small_data, run)) == 0


@pytest.mark.parametrize(
    "name", ["discriminator", "generator", "tokenizer", "tensorboard", "generator-stage"]
)
def test_a_link_in_a_run_is_not_written_through(
    capsys: pytest.CaptureFixture[str], small_data: Path, run: Path, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    if (run / name).exists():
        (run / name).rename(outside)
    else:
        outside.mkdir()
    (run / name).symlink_to(outside)
    before = listing(tmp_path)
    assert f"{name} is a link, and files would be written through it" in mistake(
        capsys, *words(small_data, run, report_to="tensorboard")
    )
    assert listing(tmp_path) == before


@pytest.mark.parametrize("where", ["checkpoint-2", "checkpoint-2/x", "checkpoint-9"])
def test_no_verb_writes_into_a_checkpoint(
    capsys: pytest.CaptureFixture[str],
    small_data: Path,
    finished: Path,
    run: Path,
    tmp_path: Path,
    where: str,
) -> None:
    out = run / where
    (tmp_path / "a.csv").write_text("text,label\n" + "one,0\ntwo,1\n" * 4)
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / "one.jsonl").write_text(
        '{"sentence_good": "the one", "sentence_bad": "one the"}\n'
    )
    model, files = (
        str(finished / "discriminator"),
        ["--train-file", str(tmp_path / "a.csv"), "--validation-file", str(tmp_path / "a.csv")],
    )
    before = listing(run)
    for verb in (
        ["prepare", str(tmp_path / "a.csv")],
        words(small_data, Path("x"))[:2],
        ["export", str(finished)],
        ["finetune", model, *files],
        ["finetune", model, *files, "--hyperparameter-search", "learning_rate=1e-4"],
        ["evaluate", model, "--data-dir", str(tmp_path / "pairs")],
        ["demo"],
    ):
        sentence = mistake(capsys, *verb, "--output-dir", out, longest=760)
        assert "checkpoint of a run, which the run may remove" in sentence, verb
        assert listing(run) == before


def test_a_run_json_that_was_changed_is_written_again_and_kept(
    small_data: Path, run: Path, tmp_path: Path
) -> None:
    """Known by its seal: one digit of a count."""
    for k, change in enumerate(
        (
            lambda text: text.replace('"vocab_size": ', '"vocab_size": 1'),
            lambda text: '{"mine": 1}\n',
        )
    ):
        folder = Path(shutil.copytree(run, tmp_path / f"run{k}"))
        shutil.rmtree(folder / "checkpoint-4")
        wanted, path = (folder / "run.json").read_text(), folder / "run.json"
        path.write_text(change(wanted))
        assert cli.main(words(small_data, folder)) == 0
        assert json.loads(path.read_text())["vocab_size"] == json.loads(wanted)["vocab_size"]
        assert (folder / "run.json.changed").read_text() == change(wanted)
        assert model_files(folder / "discriminator") == model_files(run / "discriminator")


def test_a_folder_where_run_json_was(small_data: Path, run: Path) -> None:
    (run / "run.json").unlink()
    (run / "run.json").mkdir()
    (run / "run.json" / "notes.txt").write_text("mine")
    assert cli.main(words(small_data, run)) == 0
    assert (run / "run.json.changed" / "notes.txt").read_text() == "mine"


def test_files_of_the_user_in_checkpoints_stay(small_data: Path, run: Path) -> None:
    """Through a resume that rotates and one that must write where a folder of the user stands."""
    shutil.rmtree(run / "checkpoint-4")
    (run / "checkpoint-2" / "notes.txt").write_text("mine")
    (run / "checkpoint-4").mkdir()
    (run / "checkpoint-4" / "thesis.txt").write_text("mine")
    assert cli.main(words(small_data, run, save_total_limit=1)) == 0
    assert [p.name for p in (run / "checkpoint-2").iterdir()] == ["notes.txt"]
    assert (run / "checkpoint-4.changed" / "thesis.txt").read_text() == "mine"
    assert cli.main(words(small_data, run, save_total_limit=1)) == 0


def test_a_name_that_is_not_utf8_is_refused_before_anything_is_done(
    capsys: pytest.CaptureFixture[str], small_data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / os.fsdecode(b"run\xff")
    text = tmp_path / "a.txt"
    text.write_text("one two\n")
    for data in (small_data, text):
        assert "not UTF-8" in mistake(capsys, *words(data, folder))
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_run_json_that_was_changed_where_the_run_began_from_a_folder(
    small_data: Path, finished: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    line = words(small_data, folder, init_discriminator=finished / "discriminator")
    assert cli.main(line) == 0
    card = (folder / "discriminator" / "README.md").read_text()
    assert "init_discriminator: discriminator\n" in card
    assert ".." not in card
    wanted, path = (folder / "run.json").read_text(), folder / "run.json"
    shutil.rmtree(folder / "checkpoint-4")
    path.write_text(wanted.replace('"vocab_size": ', '"vocab_size": 1'))
    assert cli.main(line) == 0
    assert json.loads(path.read_text())["vocab_size"] == json.loads(wanted)["vocab_size"]
    assert (folder / "run.json.changed").is_file()


def test_notes_in_a_recipe_that_lies_where_the_run_begins_are_kept(
    small_data: Path, finished: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    mine = (finished / "config.yaml").read_text() + "# my notes\n"
    (folder / "config.yaml").write_text(mine)
    line = ["pretrain", str(small_data), "--output-dir", str(folder)]
    assert cli.main([*line, "--config", str(folder / "config.yaml")]) == 0
    assert (folder / "config.yaml.changed").read_text() == mine
    assert "my notes" not in (folder / "config.yaml").read_text()


def test_the_last_updates_are_in_the_log(small_data: Path, tmp_path: Path) -> None:
    """Also those after the last multiple of logging_steps: the FLOPs of the whole run."""
    folder = tmp_path / "run"
    assert cli.main(words(small_data, folder, max_steps=5, logging_steps=3, eval_steps=0)) == 0
    lines = [r for r in read(folder / METRICS) if r["kind"] == "train"]
    assert [r["step"] for r in lines] == [3, 5]
    assert lines[1]["flops"] == pytest.approx(lines[0]["flops"] * 5 / 3)
    assert "| updates | 5 |" in (folder / "discriminator" / "README.md").read_text()


def test_hosts_may_see_a_run_under_several_names(
    small_data: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(dist, "same_across", lambda text, **_: told.append(text))
    shutil.rmtree(run / "checkpoint-4")
    monkeypatch.chdir(run.parent)
    for name in (Path(run.name), run):
        assert cli.main(words(small_data, name)) == 0
        shutil.rmtree(run / "checkpoint-4")
    assert len(told) == 2
    assert told[0] == told[1]
