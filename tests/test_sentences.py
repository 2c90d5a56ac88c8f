"""What a mistake is called: flags by the flag, fields of a file by the field, files by their names;
nothing empty is taken for the current folder."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from electrify.cli import ending_of
from electrify.config.flags import in_flags
from electrify.config.schema import convert
from electrify.errors import UserError, place_of
from electrify.oldfiles.whole import write_atomically
from electrify.recipe import dump, load, override, parse
from electrify.rules import cautions
from small import environment, files_of_at_most, mistake, one_sentence

OWN = ["--train-file", "a.csv", "--validation-file", "b.csv"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ------------------------------------------------------------------ flags are called by the flag


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["prepare", "x"], "--output-dir is missing (the folder of the prepared corpus"),
        (["export", "x"], "--output-dir is missing (the folder to write"),
        (["finetune", "m", *OWN], "--output-dir is missing (Folder for scores.jsonl"),
        (["evaluate", "m"], "--data-dir is missing (The folder of BLiMP's"),
        (
            ["prepare", "x", "--output-dir", "y", "--vocab-size", "3"],
            "--vocab-size must be at least 32, not 3",
        ),
        (
            ["prepare", "x", "--output-dir", "y", "--vocab-size", "many"],
            "--vocab-size must be of type int",
        ),
        (
            ["pretrain", "x", "--output-dir", "y", "--warmup-steps", "-1"],
            "--warmup-steps cannot be negative",
        ),
        (
            ["pretrain", "x", "--output-dir", "y", "--hidden-size", "30"],
            "--hidden-size 30 is not a multiple of --num-attention-heads 4",
        ),
        (["pretrain", "x", "--output-dir", "y", "--seed", "-1"], "--seed must lie between"),
        (["detect", "m", "t", "--threshold", "2"], "--threshold is a probability"),
        (
            ["finetune", "m", *OWN, "--output-dir", "o", "--warmup-ratio", "2"],
            "--warmup-ratio must be at least 0",
        ),
        (
            ["evaluate", "m", "--data-dir", "d", "--max-eval-samples", "0"],
            "--max-eval-samples must be at least 1",
        ),
        (
            ["flops", "--vocab-size", "1000000000000"],
            "--vocab-size must be at most 4194304, not 1000000000000",
        ),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, list) else "",
)
def test_flags_have_the_names_that_were_typed(
    capsys: pytest.CaptureFixture[str], here: Path, words: list[str], says: str
) -> None:
    said = mistake(capsys, *words)
    assert f": {says}" in said
    assert "command line" not in said
    assert not list(here.iterdir())


def test_fields_of_a_file_keep_their_names(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "mine.yaml").write_text(
        dump(override(load("electra-tiny"), {"save_steps": -4})), encoding="utf-8"
    )
    words = ["pretrain", "x", "--output-dir", "y", "--config", "mine.yaml"]
    assert ": save_steps must be positive, not -4" in mistake(capsys, *words)
    assert ": --save-steps must be positive, not -5" in mistake(
        capsys, *words, "--save-steps", "-5"
    )


@pytest.mark.parametrize(
    ("sentence", "want"),
    [
        ("max_steps must be positive", "--max-steps must be positive"),
        ("seed must lie between", "--seed must lie between"),
        ("the seed of a run", "the seed of a run"),
        (
            "init_generator is for corruptor generator",
            "--init-generator is for corruptor generator",
        ),
        ("data/max_steps/x: no such file", "data/max_steps/x: no such file"),
        ("max_steps.txt is empty; see --max-steps", "max_steps.txt is empty; see --max-steps"),
        ("generator_learning_rate: no generator", "generator_learning_rate: no generator"),
    ],
)
def test_names_inside_of_others_stay(sentence: str, want: str) -> None:
    assert in_flags(sentence, ["max_steps", "seed", "init_generator", "learning_rate"]) == want


# ------------------------------------------------------------------ empty words


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["prepare", "", "--output-dir", "y"], "CORPUS"),
        (["prepare", "x", "--output-dir", ""], "--output-dir"),
        (["prepare", "x", "--output-dir", "  "], "--output-dir"),
        (["pretrain", "", "--output-dir", "y"], "DATA"),
        (["pretrain", "x", "--output-dir", ""], "--output-dir"),
        (["pretrain", "x", "--output-dir", "y", "--config", ""], "--config"),
        (
            ["pretrain", "x", "--output-dir", "y", "--init-discriminator", ""],
            "--init-discriminator",
        ),
        (["export", "", "--output-dir", "y"], "RUN"),
        (["export", "x", "--output-dir", ""], "--output-dir"),
        (["finetune", "m", "", "--task", "cola", "--output-dir", "y"], "MODEL"),
        (["finetune", "m", "--task", "cola", "--output-dir", ""], "--output-dir"),
        (["finetune", "m", "--task", "cola", "--data-dir", "", "--output-dir", "y"], "--data-dir"),
        (["detect", "m", ""], "TEXT"),
        (["detect", "", "text"], "MODEL"),
        (["detect", "m", "--file", ""], "--file"),
        (["evaluate", "m", "--data-dir", "", "--output-dir", "y"], "--data-dir"),
        (["evaluate", "m", "--data-dir", "d", "--output-dir", ""], "--output-dir"),
        (["doctor", ""], "PATH"),
        (["demo", "--output-dir", ""], "--output-dir"),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, list) else "",
)
def test_an_empty_word_is_refused(
    capsys: pytest.CaptureFixture[str], here: Path, words: list[str], name: str
) -> None:
    """The shell's variable was never set. It once stood for the current folder, the Hub, or
    standard input."""
    assert f": {name} is empty: give it a value, or leave it out" in mistake(capsys, *words)
    assert not list(here.iterdir())


# ------------------------------------------------------------------ standard input and output


@pytest.mark.parametrize(
    ("end", "says"),
    [
        ("<&-", "standard input is closed; give TEXT or --file"),
        ("0> out", "standard input cannot be read"),
    ],
)
def test_standard_input_that_cannot_be_read(tmp_path: Path, end: str, says: str) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}", encoding="utf-8")
    words = [sys.executable, "-m", "electrify", "detect", "model"]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {end}', "sh", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(),
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert says in one_sentence(done.stderr)


def test_a_file_on_a_full_disk_is_named(tmp_path: Path) -> None:
    """The error of a write has no name of its own."""
    with files_of_at_most(10), pytest.raises(OSError, match="File too large") as caught:
        write_atomically(tmp_path / "scores.jsonl", "x" * 1000)
    assert place_of(caught.value) == str(tmp_path / "scores.jsonl")


def test_a_full_standard_output_is_named() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "electrify", "flops", "--published"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            check=False,
        )
    assert done.returncode == 2
    assert ": No space left on device" in done.stderr


def test_what_nobody_holds_has_no_name() -> None:
    assert (
        place_of(OSError(errno.ENOSPC, "No space left on device"))
        == "standard output, or a file that was being written"
    )
    assert place_of(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a/b")) == "a/b"


# ------------------------------------------- values that YAML reads otherwise than they are written

RECIPE = dump(load("electra-tiny"))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("warmup_steps: ", "warmup_steps: 1:30 #", "warmup_steps must be of type int, not '1:30'"),
        (
            "warmup_steps: ",
            "warmup_steps: -1:30 #",
            "warmup_steps must be of type int, not '-1:30'",
        ),
        (
            "learning_rate: ",
            "learning_rate: 1:30.5 #",
            "learning_rate must be of type float, not '1:30.5'",
        ),
        ("  tie: ", "  tie: no #", "tie cannot be 'no'"),
        ("  tie: ", "  tie: off #", "tie cannot be 'off'"),
    ],
)
def test_what_yaml_would_turn_into_another_number_is_refused(old: str, new: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse(RECIPE.replace(old, new), "mine.yaml")


def test_what_yaml_would_read_otherwise_is_read_as_written() -> None:
    def read(old: str, new: str) -> object:
        return parse(RECIPE.replace(old, new), "mine.yaml").train

    assert read("warmup_steps: ", "warmup_steps: 010 #").warmup_steps == 10  # type: ignore[attr-defined]
    assert read("warmup_steps: ", "warmup_steps: 1_000 #").warmup_steps == 1000  # type: ignore[attr-defined]
    assert read("bf16: ", "bf16: off #").bf16 is False  # type: ignore[attr-defined]
    assert read("init_discriminator: ", "init_discriminator: 010 #").init_discriminator == "010"  # type: ignore[attr-defined]
    assert read("init_discriminator: ", "init_discriminator: no #").init_discriminator == "no"  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", ["128=.5,128=.2", {"0128": 0.5, 128: 0.2}])
def test_a_key_given_twice_is_refused(value: object) -> None:
    with pytest.raises(UserError, match="lengths names a key twice"):
        convert(value, dict[int, float], "lengths")


# ------------------------------------------------------------------ warm-up


def test_a_warm_up_that_never_ends_is_said() -> None:
    assert list(cautions(load("electra-small"))) == []
    (said,) = cautions(override(load("electra-small"), {"max_steps": 500}))
    assert said == (
        "warmup_steps 10,000 is not below max_steps 500, so the learning rate never reaches "
        "0.0005; give --warmup-steps 50 or so"
    )
    (said,) = cautions(override(load("electra-small"), {"max_steps": 1, "warmup_steps": 1}))
    assert said.endswith("give --warmup-steps 0 or so")
    own = {"generator_warmup_steps": 10_000, "generator_learning_rate": 1e-3, "warmup_steps": 9}
    (said,) = cautions(override(load("electra-small"), {"max_steps": 500} | own))
    assert said == (
        "generator_warmup_steps 10,000 is not below max_steps 500, so the learning rate never "
        "reaches 0.001; give --generator-warmup-steps 50 or so"
    )
    # An adversarial generator learns in both stages.
    stages = {"max_steps": 90, "generator_steps": 200, "generator_warmup_steps": 100}
    (said,) = cautions(override(load("adversarial-tiny"), stages | {"warmup_steps": 10}))
    assert said.startswith("generator_warmup_steps 100 is not below max_steps 90")


def test_a_part_of_a_schedule_that_never_comes_is_said() -> None:
    config = override(load("electra-small"), {"warmup_steps": 1})
    lengths = override(config, {"seq_length_schedule": {32: 0.9}, "max_steps": 5})
    assert list(cautions(lengths)) == []
    (said,) = cautions(override(lengths, {"max_steps": 4}))
    assert said == (
        "seq_length_schedule with max_seq_length 128: none of 4 updates has 128, whose share "
        "rounds to 0 updates; give more max_steps, or other shares"
    )
    equal = override(config, {"seq_length_schedule": {128: 0.9}})
    (said,) = cautions(equal)
    assert said == (
        "seq_length_schedule: rows of 128 tokens are not shorter than those of the rest of the "
        "run, max_seq_length 128"
    )
    sizes = override(config, {"batch_size_schedule": {8: 0.01, 16: 0.5}, "max_steps": 20})
    (said,) = cautions(sizes)
    assert said.startswith(
        "batch_size_schedule with train_batch_size 128: none of 20 updates has 8,"
    )


def test_too_many_open_files() -> None:
    error = OSError(errno.EMFILE, "Too many open files", "a/b")
    ending = ending_of(error, "export")
    assert ending == ("a/b: Too many open files; raise the limit (ulimit -n)", 2)
