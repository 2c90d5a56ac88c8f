"""What others do to folders and files while we work, or before the same command goes on: nothing of
theirs is lost, and each ends in a sentence."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from electrify.config.embed import EmbedConfig
from electrify.config.prepare import PrepareConfig
from electrify.config.pretrain import load_recipe, override
from electrify.errors import UserError
from electrify.inference.output import sink
from electrify.inference.source import Head
from electrify.inference.vectors import vector_sink
from electrify.oldfiles.folders import aside, foreign, remove_temporaries
from electrify.oldfiles.schema import SchemaError, check
from electrify.oldfiles.whole import GoneError, write_atomically, written
from electrify.pretraining import running
from electrify.text.choosing import choose_sources
from electrify.text.given import prepared
from electrify.text.made import is_made
from electrify.text.space import must_fit
from electrify.train.decisive import decisive
from electrify.train.saved import State
from small import mistake, pretrain_words, run, write_text

TINY = {"max_steps": 3, "warmup_steps": 1, "save_steps": 1}


@pytest.fixture(scope="module")
def begun(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three updates."""
    folder = tmp_path_factory.mktemp("begun") / "run"
    assert run(*pretrain_words(small_data, folder, **TINY)) == 0
    return folder


def test_gradients_that_are_not_clipped_are_said_with_0(
    small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an infinite limit a run trained to its end, and run.json could not be read then."""
    words = pretrain_words(small_data, tmp_path / "run", max_grad_norm="inf", **TINY)
    assert "max-grad-norm must be a finite number; 0 does not clip" in mistake(capsys, *words)
    assert not (tmp_path / "run").exists()


def test_notes_in_the_place_of_the_records(
    begun: Path, small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(begun, folder)
    shutil.rmtree(folder / "checkpoint-3")
    (folder / "metrics.jsonl").write_text("my notes\n")
    assert run(*pretrain_words(small_data, folder, **TINY)) == 0
    assert (folder / "metrics.jsonl.changed").read_text() == "my notes\n"
    assert "1 lines of" in capsys.readouterr().err


def test_a_corpus_in_which_the_run_lies(tmp_path: Path) -> None:
    """`pretrain . --output-dir run`: what the run has written is not text, so the same command
    finds the same corpus."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    write_text(corpus / "a.txt", size=60_000)
    words = pretrain_words(corpus, corpus / "run", **TINY)
    assert run(*words, "--max-minutes", "1e-9") == 75
    assert run(*words) == 0


def test_folders_that_electrify_made_are_not_text(
    begun: Path, small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_text(tmp_path / "a.txt", size=5_000)
    shutil.copytree(begun, tmp_path / "run")
    shutil.copytree(small_data, tmp_path / "data")
    shutil.copytree(begun / "discriminator", tmp_path / "model")
    (tmp_path / "scores").mkdir()
    (tmp_path / "scores" / "finetune.json").write_text(json.dumps({"electrify": "x"}))
    (tmp_path / "scores" / "report.md").write_text("a report")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.yaml").write_text("mine: 1")
    (tmp_path / "mine" / "electrify.json.bak").write_text('{"electrify": 1}')
    (tmp_path / "mine" / "b.txt").write_text("text of mine")
    # Scores of BLiMP are files in a folder of the user.
    (tmp_path / "mine" / "blimp.json").write_text(json.dumps({"electrify": "blimp"}))
    (tmp_path / "mine" / "blimp.md").write_text("scores")
    for asked in ("", "/**/*.txt", "/*/*.txt"):
        found = choose_sources(
            PrepareConfig(inputs=(f"{tmp_path}{asked}",), output_dir=str(tmp_path / "o"))
        )
        own = {"a.txt", "b.txt"} - ({"a.txt"} if asked == "/*/*.txt" else set())
        assert {s.path.name for s in found} == own, asked
        said = capsys.readouterr().err
        assert "folders that electrify made: 4 (data, model, run" in said, said
    named = ("data", "model", "run", "scores", "run/tokenizer", "data/tokenizer")
    for name in (*named, "model/*.txt", "run/*/*.txt", "run/tokenizer/*"):
        with pytest.raises(UserError, match="is a folder that electrify made"):
            choose_sources(PrepareConfig(inputs=(str(tmp_path / name),), output_dir="o"))
    assert not is_made(tmp_path / "mine")
    assert not is_made(tmp_path / "nowhere")


def test_a_root_has_no_name_for_a_corpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_text(tmp_path / "a.txt", size=5_000)
    said = mistake(capsys, *pretrain_words(tmp_path / "a.txt", Path("/"), **TINY))
    assert "/ is not empty and holds no run" in said
    with pytest.raises(UserError, match="has no name beside which a corpus could be prepared"):
        prepared(str(tmp_path / "a.txt"), Path("/"))  # were it empty


def test_names_that_are_not_utf_8(
    small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_text(tmp_path / "a.txt", size=5_000)
    words = ("prepare", tmp_path / "a.txt", "--output-dir", tmp_path / "o")
    assert "text-column is not UTF-8 text" in mistake(capsys, *words, "--text-column", "\udcff")
    assert not (tmp_path / "o").exists()
    odd = tmp_path / "t\udcff"
    try:
        shutil.copytree(small_data / "tokenizer", odd)
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    assert run(*map(str, words), "--tokenizer", str(odd)) == 0
    options = json.loads((tmp_path / "o" / "manifest.json").read_text())["options"]
    assert options["tokenizer"] == "t\\xff"


def write_while(path: Path, meanwhile: Callable[[], object], *, over: bool = True) -> None:
    """Writes `ours` into a file, while something happens."""
    with written(path, over=over) as stream:
        stream.write(b"ours")
        meanwhile()


def test_a_folder_that_is_gone_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(UserError, match=r"a was removed or moved away; run the same command again"):
        write_while(tmp_path / "a" / "b", lambda: shutil.rmtree(tmp_path / "a"))
    with pytest.raises(GoneError) as raised:
        write_atomically(tmp_path / "a" / "b", "x")
    assert isinstance(raised.value, OSError)  # those who go on without the file still do
    assert raised.value.strerror == "No such file or directory"
    if os.path.isdir("/proc"):
        with pytest.raises(UserError, match=r"/proc/x: no file of this name can be made"):
            write_atomically(Path("/proc/x"), "x")


def test_a_run_folder_that_is_removed_before_its_first_file(
    small_data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "run"
    real = running.require_space

    def removed(*given: object) -> None:
        real(*given)  # type: ignore[arg-type]
        shutil.rmtree(folder)

    monkeypatch.setattr(running, "require_space", removed)
    said = mistake(capsys, *pretrain_words(small_data, folder, **TINY))
    assert "was removed or moved away; run the same command again" in said


@pytest.mark.parametrize("ending", ["csv", "npy", "parquet"])
def test_an_output_is_left_alone_by_a_command_that_begins_in_its_folder(
    tmp_path: Path, ending: str
) -> None:
    """`predict` and `embed` have no lock on it; the command has."""
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"out.{ending}"

    def begin() -> None:
        remove_temporaries(tmp_path)
        assert not path.exists()
        assert len(os.listdir(tmp_path)) == 1
        assert foreign(tmp_path) == []

    if ending == "csv":
        with sink(str(path), over=False) as write:
            write("a")
            begin()
    else:
        options = EmbedConfig(model="m", files=("a.txt",), output_file=str(path))
        with vector_sink(options, Head("a.txt", ("text",), pair=False), width=2) as rows:
            rows.write([], np.zeros((0, 2), np.float32))
            begin()
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("locked", [True, False])
def test_nothing_is_left_of_a_file_after_an_error(tmp_path: Path, locked: bool) -> None:
    with pytest.raises(KeyError), written(tmp_path / "a", locked=locked) as stream:
        stream.write({}[0])
    assert os.listdir(tmp_path) == []


def test_a_file_that_appears_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with pytest.raises(UserError, match=r"left alone: the result is in .*a-new\.csv"):
        write_while(path, lambda: path.write_bytes(b"theirs"), over=False)
    assert path.read_bytes() == b"theirs"
    assert (tmp_path / "a-new.csv").read_bytes() == b"ours"
    with pytest.raises(UserError, match=r"a-new-2\.csv"), written(path, over=False) as stream:
        stream.write(b"ours")
    with written(tmp_path / "b.csv", over=False) as stream:
        stream.write(b"ours")
    assert sorted(os.listdir(tmp_path)) == ["a-new-2.csv", "a-new.csv", "a.csv", "b.csv"]


def test_a_file_that_becomes_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with pytest.raises(UserError, match=r"a-new\.csv"):
        write_while(path, path.mkdir)
    assert (tmp_path / "a-new.csv").read_bytes() == b"ours"


def test_a_corpus_without_its_manifest_is_not_text(
    small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(small_data, tmp_path / "data")
    (tmp_path / "data" / "manifest.json").unlink()
    said = mistake(capsys, *pretrain_words(tmp_path / "data", tmp_path / "run", **TINY))
    assert "holds tokens of a prepared corpus and no manifest.json" in said
    assert not (tmp_path / "run-data").exists()


def test_a_model_of_another_kind_is_found_before_training(
    begun: Path, small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(begun, folder)
    shutil.rmtree(folder / "discriminator")
    shutil.rmtree(folder / "checkpoint-3")
    (folder / "generator").rename(folder / "discriminator")
    said = mistake(capsys, *pretrain_words(small_data, folder, **TINY))
    assert "discriminator holds a model of another kind (generator)" in said
    assert not (folder / "checkpoint-3").exists()


def test_a_thousand_names_that_are_taken(tmp_path: Path) -> None:
    for n in ("", *(f"-{k}" for k in range(2, 1002))):
        (tmp_path / f"a.changed{n}").touch()
    (tmp_path / "a").write_text("mine")
    where = aside(tmp_path / "a")
    assert where is not None
    assert where.name == "a.changed-1002"


def test_only_our_files_count_as_written_already(tmp_path: Path) -> None:
    """The output folder may be a home folder, which takes minutes to go through."""
    text = write_text(tmp_path / "a.txt", size=5_000)
    folder = tmp_path / "home"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "x").symlink_to(folder)
    config = PrepareConfig(inputs=(str(text),), output_dir=str(folder))
    seen: list[str] = []
    real = os.scandir

    def scandir(path: object) -> object:
        seen.append(str(path))
        return real(path)  # type: ignore[arg-type, call-overload]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        must_fit(config, choose_sources(config), folder)
    assert str(folder / "deep") not in seen
    assert str(folder) in seen


def test_a_demo_does_not_go_into_a_folder_by_its_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    said = mistake(capsys, "demo", "--output-dir", tmp_path)
    assert "holds other files and no demo" in said
    assert os.listdir(tmp_path) == ["run"]


def test_a_state_without_a_guard_and_endless_seconds(begun: Path) -> None:
    state = json.loads((begun / "checkpoint-3" / "state.json").read_text())
    with pytest.raises(SchemaError, match=r"seconds is .* a number is needed"):
        check(State, state | {"seconds": 10**400}, "state.json", more=True)
    check(State, state | {"guard": None}, "state.json", more=True)


def test_no_number_of_a_recipe_is_beyond_json() -> None:
    """What run.json could not hold."""
    config = override(load_recipe("electra-tiny"), {})
    assert json.dumps(decisive(config), allow_nan=False)
