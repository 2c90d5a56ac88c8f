"""Whether recipe, facts and checkpoints of a run folder are of one run."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from electrify.config.pretrain import load_recipe, override
from electrify.doctor.run import examine_run
from electrify.oldfiles.seals import sealed
from electrify.train import checkpoint
from electrify.train.decisive import decisive, differing
from small import listing, mistake, model_files, parameters_sha256, pretrain_words, run, steps_of

SHORT = {"max_steps": 8, "save_steps": 4, "threads": 1}


@pytest.fixture(scope="module")
def whole(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("decisive") / "run"
    assert run(*pretrain_words(small_data, folder, **SHORT)) == 0
    return folder


@pytest.fixture(scope="module")
def other(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of another seed, learning rate and number of heads."""
    folder = tmp_path_factory.mktemp("other") / "run"
    fields: dict[str, Any] = {"seed": 5, "learning_rate": 0.1, "num_attention_heads": 4}
    assert run(*pretrain_words(small_data, folder, **SHORT | fields)) == 0
    return folder


@pytest.fixture
def half(whole: Path, tmp_path: Path) -> Path:
    """The run after its first checkpoint."""
    folder = Path(shutil.copytree(whole, tmp_path / "half"))
    for name in ("checkpoint-8", "discriminator", "generator"):
        shutil.rmtree(folder / name)
    return folder


def errors(folder: Path) -> set[str]:
    found = examine_run(folder, data=[])[0].findings
    return {f.code for f in found if f.level == "error"}


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "config.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))


def test_a_checkpoint_of_another_run(
    half: Path,
    other: Path,
    small_data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(other / "checkpoint-8", half / "checkpoint-8")
    before = listing(half)
    said = mistake(capsys, *pretrain_words(small_data, half, **SHORT), longest=600)
    assert "checkpoint-8 is a checkpoint of a run with another recipe" in said
    assert "seed 5 there, 0 here" in said
    assert "remove it" in said
    assert "recipe (" in mistake(
        capsys, "export", half, "--output-dir", tmp_path / "x", longest=600
    )
    assert {name: h for name, h in listing(half).items() if name in before} == before
    assert not (tmp_path / "x").exists()
    assert "recipe" in errors(half)


EDITS = [
    ("num_attention_heads: 2", "num_attention_heads: 4"),
    ("  dropout: 0.0", "  dropout: 0.5"),
    ("learning_rate: 0.001", "learning_rate: 0.01"),
]


@pytest.mark.parametrize(("old", "new"), EDITS)
def test_a_recipe_that_was_edited(
    half: Path,
    small_data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
) -> None:
    edit(half, old, new)
    name, _, value = new.strip().partition(": ")
    out = tmp_path / "model"
    said = mistake(capsys, "export", half, "--output-dir", out, longest=600)
    assert "config.yaml and run.json are not of one run" in said
    assert name in said
    assert not out.exists()
    assert "recipe" in errors(half)
    said = mistake(capsys, *pretrain_words(small_data, half, **SHORT))
    assert "config.yaml was changed after the run began" in said
    same = pretrain_words(small_data, half, **SHORT | {name: value})
    assert "put that back" in mistake(capsys, *same, longest=600)


def test_another_recipe(
    small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The options that one of the two objectives alone has come last, and not all of them."""
    folder = tmp_path / "run"
    assert run(*pretrain_words(small_data, folder, **SHORT), "--max-minutes", "1e-9") == 75
    other = pretrain_words(small_data, folder, **SHORT, objective="corrective")
    said = mistake(capsys, *other)
    assert "holds another run (objective rtd there, corrective here; " in said
    assert re.search(r"; and \d+ more\); choose another --output-dir", said)


def test_a_schedule_in_another_order(
    small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is another run, however the recipe was written down."""
    folder, words = tmp_path / "run", {}
    for order in ("8=.25,12=.5", "12=.5,8=.25"):
        words[order] = pretrain_words(small_data, folder, **SHORT, seq_length_schedule=order)
    first, second = words.values()
    assert run(*first, "--max-minutes", "1e-9") == 75
    said = mistake(capsys, *second)
    assert "holds another run (seq_length_schedule {8: 0.25, 12: 0.5} there, {12: 0.5" in said
    edit(folder, "    8: 0.25\n    12: 0.5\n", "    12: 0.5\n    8: 0.25\n")
    assert "is a checkpoint of a run with another recipe" in mistake(capsys, *second, longest=600)
    assert "config.yaml and run.json are not of one run" in mistake(
        capsys, "export", folder, "--output-dir", tmp_path / "x", longest=600
    )


def test_a_schedule_as_earlier_versions_wrote_it() -> None:
    """Without its order; the recipe beside it has that."""
    config = override(load_recipe("bert-tiny"), {"batch_size_schedule": {16: 0.1, 32: 0.2}})
    earlier = {"batch_size_schedule": {"16": 0.1, "32": 0.2}}
    assert differing(earlier, config) == ""
    assert "batch_size_schedule" in differing({"batch_size_schedule": {"16": 0.1}}, config)
    assert differing(decisive(config), config) == ""


def test_what_may_be_edited(half: Path, whole: Path, small_data: Path, tmp_path: Path) -> None:
    """Comments, order, and what a run may change when it continues."""
    edit(half, "save_steps: 4", "save_steps: 400  # seldom")
    edit(half, "learning_rate: 0.001", "learning_rate: 1.0e-3")
    assert run("export", str(half), "--output-dir", str(tmp_path / "model")) == 0
    assert "recipe" not in errors(half)
    assert run(*pretrain_words(small_data, half, **SHORT)) == 0
    assert parameters_sha256(half, 8) == parameters_sha256(whole, 8)


def test_facts_of_another_run(
    half: Path,
    whole: Path,
    other: Path,
    small_data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Continuing writes them again; exporting cannot know which of the two is right."""
    shutil.copy(other / "run.json", half)
    said = mistake(capsys, "export", half, "--output-dir", tmp_path / "x", longest=600)
    assert "config.yaml and run.json are not of one run" in said
    assert run(*pretrain_words(small_data, half, **SHORT)) == 0
    for part in ("discriminator", "generator"):
        assert model_files(half / part).keys() == model_files(whole / part).keys()
        assert (half / part / "config.json").read_text() == (
            whole / part / "config.json"
        ).read_text()


def test_a_run_of_an_earlier_version(
    half: Path, small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither its facts nor its checkpoints hold a recipe; the shapes of its networks they do."""
    facts = json.loads((half / "run.json").read_text())
    del facts["recipe"], facts["seal"]
    (half / "run.json").write_text(json.dumps(sealed(facts)))
    tensors, state = checkpoint.load(half / "checkpoint-4")
    del state["recipe"]
    shutil.rmtree(half / "checkpoint-4")
    checkpoint.save(half, 4, tensors=tensors, state=state, keep=None)
    copy = Path(shutil.copytree(half, tmp_path / "copy"))
    assert run("export", str(half), "--output-dir", str(tmp_path / "model")) == 0
    assert "recipe" not in errors(half)
    assert run(*pretrain_words(small_data, half, **SHORT)) == 0
    assert steps_of(half) == [4, 8]
    edit(copy, "num_attention_heads: 2", "num_attention_heads: 4")
    said = mistake(capsys, "export", copy, "--output-dir", tmp_path / "x", longest=600)
    assert "num_attention_heads of the discriminator 2 there, 4 here" in said
    assert "recipe" in errors(copy)


@pytest.mark.parametrize("lost", [False, True])
def test_settings_of_the_tokenizer(
    half: Path, whole: Path, small_data: Path, capsys: pytest.CaptureFixture[str], lost: bool
) -> None:
    """They are exported in the end, and found out to be others before the first update."""
    path = half / "tokenizer" / "tokenizer_config.json"
    right = path.read_text()
    if lost:
        path.unlink()
    else:
        path.write_text(right.replace("true", "false", 1))
    assert "hash" in errors(half)
    assert run(*pretrain_words(small_data, half, **SHORT)) == 0
    assert "had lost tokenizer, or it was changed" in capsys.readouterr().err
    assert path.read_text() == right
    assert (half / "tokenizer.changed").is_dir()
    assert (half / "discriminator/tokenizer_config.json").read_text() == (
        whole / "discriminator/tokenizer_config.json"
    ).read_text()


def test_a_checkpoint_that_is_removed_while_it_is_exported(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a run at work does: the newest is asked for again, and a step that was named is missed."""
    copy = Path(shutil.copytree(whole, tmp_path / "copy"))
    contents_of = checkpoint.contents_of

    def gone(path: Path) -> Any:
        found = contents_of(path)
        if path.name == "checkpoint-8":
            shutil.rmtree(path)
        return found

    monkeypatch.setattr(checkpoint, "contents_of", gone)
    assert run("export", str(copy), "--output-dir", str(tmp_path / "model")) == 0
    shutil.copytree(whole / "checkpoint-8", copy / "checkpoint-8")
    given = ("export", copy, "--output-dir", tmp_path / "named", "--step", "8")
    assert "its tensors cannot be read" in mistake(capsys, *given)
    assert steps_of(copy) == [4]
