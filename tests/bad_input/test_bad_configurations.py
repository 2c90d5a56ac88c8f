"""Recipes that are none: hostile YAML, values of any type and size, models larger than the machine.
Refusals name the field, nothing is allocated."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from batches import tiny
from electrify.build import compose, generator_shape, kept_shape
from electrify.config.checks import check
from electrify.config.pretrain import (
    PretrainConfig,
    dump,
    load_file,
    load_recipe,
    override,
    parse,
    section_of,
)
from electrify.errors import UserError
from electrify.train import machine
from electrify.train.dist import World
from small import listing, mistake, pretrain_words

RECIPE = dump(load_recipe("electra-tiny"))
LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 40)
)
MERGED = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 40)
)

ALONE = World(rank=0, size=1, device=torch.device("cpu"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (LAUGHS, "is not valid YAML: aliases (*) are not allowed in recipes"),
        (MERGED, "is not valid YAML: aliases (*) are not allowed in recipes"),
        ("&a [*a]", "is not valid YAML: aliases"),
        ("model: &a\n  hidden_size: *a\n", "is not valid YAML: aliases"),
        (
            "model: !!python/object/apply:os.system ['touch ran']\n",
            "is not valid YAML: could not determine a constructor for the tag",
        ),
        (
            "model: !!python/name:os.system\n",
            "is not valid YAML: could not determine a constructor",
        ),
        ("[" * 50_000, "is not valid YAML: maximum recursion depth"),
        ("a: " + "{a: " * 5_000 + "}" * 5_000, "is not valid YAML: maximum recursion depth"),
        ("model: 2001-99-99\n", "is not valid YAML: month must be in 1..12"),
        (
            RECIPE.replace("max_steps: ", "max_steps: " + "9" * 5000 + " #"),
            "is not valid YAML: Exceeds the limit",
        ),
        (
            RECIPE.replace("max_steps: ", "max_steps: 0x" + "f" * 5000 + " #"),
            "max_steps must be of type int, not a number of thousands of digits",
        ),
        (
            RECIPE.replace("train:\n", "train:\n  max_steps: 5\n"),
            "is not valid YAML: the key 'max_steps' occurs twice",
        ),
        (RECIPE + "model:\n  hidden_size: 64\n", "is not valid YAML: the key 'model' occurs twice"),
        (RECIPE + "---\n" + RECIPE, "is not valid YAML: but found another document"),
        ("model: a\0b", "is not valid YAML: "),
        ("model: !!binary aGVsbG8=\n", "section model must be a mapping of fields, not b'hello'"),
        ('model: !!int ""\n', "is not valid YAML: '' is not of the kind !!int (line 1)"),
        ('model: !!float ""\n', "is not valid YAML: '' is not of the kind !!float"),
        (
            "model:\n  hidden_size: !!timestamp x\n",
            "is not valid YAML: 'x' is not of the kind !!timestamp (line 2)",
        ),
        ("model: !!set x\n", "is not valid YAML: expected a mapping node, but found scalar"),
        ("model: !!set {x}\n", "section model must be a mapping of fields, not {'x'}"),
        ("model: !!int {a: 1}\n", "is not valid YAML: expected a scalar node, but found mapping"),
        ("model: !!int [1]\n", "is not valid YAML: expected a scalar node, but found sequence"),
        (RECIPE.replace("train:\n", "train: false\nlater:\n"), "has no section 'later'"),
        (
            "like: electra-tiny\ntrain: false\n",
            "section train must be a mapping of fields, not False",
        ),
        ("like: electra-tiny\ntrain: 0\n", "section train must be a mapping of fields, not 0"),
        ("like: electra-tiny\ntrain: []\n", "section train must be a mapping of fields, not []"),
        ("like: electra-tiny\ntrain: [5]\n", "section train must be a mapping of fields, not [5]"),
        ("? [a, b]\n: c\n", "is not valid YAML: found unhashable key"),
        ("model: " + "x" * 5000 + "\n", "section model must be a mapping of fields, not 'xxxx"),
        ("x" * 1000 + ": 1\n", "has no section 'xxxx"),
        ("like: [electra-tiny]\n", "is like ['electra-tiny'], and there is no such recipe"),
        ("\x1b[31mmodel: 1\n", "is not valid YAML"),
    ],
    ids=lambda text: text[:20].replace("\x1b", "ESC").replace("\0", "NUL") + str(len(text)),
)
def test_hostile_yaml(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    began = time.monotonic()
    assert says in mistake(capsys, "pretrain", "x", "--output-dir", "run", "--config", "mine.yaml")
    assert time.monotonic() - began < 20
    assert [p.name for p in tmp_path.iterdir()] == ["mine.yaml"]


def test_places_that_hold_no_recipe(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    with (tmp_path / "large").open("wb") as f:
        f.truncate(1 << 30)
    for name, says in (
        ("pipe", "it is a pipe or a device"),
        ("zero", "it is a pipe or a device"),
        ("loop", "cannot be read: "),
        ("folder", "cannot be read: Is a directory"),
        ("large", "is larger than 1 MB"),
        ("no\x1b[2J", "no\\x1b[2J cannot be read: No such file"),
    ):
        assert says in mistake(
            capsys, "pretrain", "x", "--output-dir", tmp_path / "run", "--config", tmp_path / name
        )
    assert not (tmp_path / "run").exists()


# ------------------------------------------------------------------ any value in any field

NUMBERS = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([10**9, 10**30, 2**63, 2**64, -(2**63), 10**4000, 1e308, 5e-324, -0.0]),
)
TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [
            "nan",
            "inf",
            "1e400",
            "\0",
            "\udcff",
            "\x1b[31m",
            "x" * 3000,
            "8=nan",
            "16=.5,8=inf",
            "rtd=1",
        ]
    ),
)
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS, st.binary(max_size=4))
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.one_of(TEXTS, NUMBERS), inner, max_size=3)
    ),
    max_leaves=6,
)


def outcome(fields: dict[str, Any]) -> tuple[PretrainConfig | None, str]:
    """A recipe that `check` accepts, or the sentence that refuses."""
    try:
        config = override(load_recipe("electra-tiny"), fields)
        check(config)
    except UserError as e:
        return None, str(e)
    return config, ""


@settings(max_examples=400)
@given(
    fields=st.dictionaries(st.sampled_from(sorted(section_of())), VALUES, min_size=1, max_size=3)
)
def test_any_values_are_a_recipe_or_one_sentence(fields: dict[str, Any]) -> None:
    """And what is accepted is written and read back as it is, and fits into the machine or is
    refused before anything is built."""
    config, said = outcome(fields)
    if config is None:
        assert 0 < len(said) < 600
        return
    if "\udcff" not in repr(config) and "\\udc" not in repr(config):
        assert parse(dump(config), "again") == config
    try:
        machine.run_must_fit(
            config, shapes(config)[0], rows=config.train.train_batch_size, world=ALONE
        )
    except UserError as e:
        said = str(e)
    assert not said or "GB are free" in said


def shapes(config: PretrainConfig, vocab_size: int = 500) -> Any:
    return kept_shape(config.model, vocab_size), generator_shape(
        config.model, vocab_size
    ) if config.corruption.row.learned else None


SIZES = [
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "embedding_size",
    "max_position_embeddings",
]


@settings(max_examples=40)
@given(
    fields=st.dictionaries(
        st.sampled_from(SIZES),
        st.sampled_from([1, 4, 8, 12, 10**5, 10**7, 10**9, 10**15, 2**63]),
        min_size=1,
    )
)
def test_what_fits_is_built_and_what_does_not_is_refused(fields: dict[str, int]) -> None:
    """The bound is below the truth: nothing that is refused could have been built."""

    from electrify.build import Vocabulary
    from electrify.tokens import SpecialIds

    small = {
        "num_hidden_layers": 1,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "embedding_size": 8,
    }
    config, _ = outcome(
        small
        | {
            "max_position_embeddings": 32,
            "max_seq_length": 16,
            "num_attention_heads": 1,
            "generator_size": 1,
        }
        | fields
    )
    if config is None:
        return
    shape, _ = shapes(config)
    said = ""
    try:
        machine.run_must_fit(config, shape, rows=1, world=ALONE)
    except UserError as e:
        said = str(e)
    if not said:
        built = compose(config, Vocabulary(500, SpecialIds(0, 1, 2, 3, 4, others=())))
        assert sum(p.numel() for p in built.kept.encoder.parameters()) >= shape.least_parameters


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"hidden_size": 10**9}, "GB of memory; "),
        ({"intermediate_size": 10**12}, "GB of memory; "),
        ({"embedding_size": 10**12, "init_words": "random"}, "GB of memory; "),
        ({"max_position_embeddings": 10**12}, "GB of memory; "),
        ({"num_hidden_layers": 10**9}, "GB of memory; "),
        ({"train_batch_size": 10**12}, "GB of memory; "),
        ({"max_seq_length": 10**11, "max_position_embeddings": 10**11}, "GB of memory; "),
        (
            {
                "seq_length_schedule": "1000000=.5",
                "train_batch_size": 10**6,
                "max_position_embeddings": 10**6,
            },
            "GB of memory; ",
        ),
        ({"report_to": "wandbb"}, "--report-to has no tracker 'wandbb'"),
        ({"device": "tpu"}, "there is no device 'tpu'"),
        ({"learning_rate": "inf"}, "--learning-rate must be a finite number"),
        ({"weight_decay": "inf"}, "--weight-decay must be a finite number"),
        ({"max_steps": "1e30"}, "--max-steps must be of type int"),
        ({"init_discriminator": "x" * 260}, "File name too long"),
    ],
    ids=lambda v: "-".join(v)[:40] if isinstance(v, dict) else "",
)
def test_runs_that_cannot_be(
    capsys: pytest.CaptureFixture[str],
    small_data: Path,
    tmp_path: Path,
    fields: dict[str, Any],
    says: str,
) -> None:
    """Through the verb: the numbers are said, nothing is allocated, nothing is written."""
    began = time.monotonic()
    assert says in mistake(capsys, *pretrain_words(small_data, tmp_path / "run", **fields))
    assert time.monotonic() - began < 60
    assert not list(tmp_path.iterdir())


def test_the_memory_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(machine, "CGROUP", limit)
    limit.write_text("1000000\n", encoding="ascii")
    assert machine.available_bytes() == 1_000_000
    with pytest.raises(UserError, match=r"needs at least .* MB of memory; 1\.0 MB are free"):
        machine.run_must_fit(
            load_recipe("electra-small"),
            shapes(load_recipe("electra-small"), 30522)[0],
            rows=8,
            world=ALONE,
        )  # type: ignore[arg-type]
    limit.write_text("max\n", encoding="ascii")
    assert machine.available_bytes() > 1_000_000
    tiny_one = tiny("electra-tiny")
    machine.run_must_fit(tiny_one, shapes(tiny_one)[0], rows=4, world=ALONE)  # type: ignore[arg-type]


# ------------------------------------------------------------------ the other verbs


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["flops", "electra-smal"], "there is no recipe 'electra-smal'; did you mean"),
        (["flops", "x" * 5000], "there is no recipe 'xxx"),
        (["flops", "\x1b[2J"], "\\x1b[2J"),
        (["flops", "--vocab-size", "nan"], "--vocab-size must be of type int"),
        (["flops", "--vocab-size", "-5"], "--vocab-size must be at least 32"),
        (["flops", "--equal-to", "../x"], "there is no recipe '../x'"),
        (["detect", "m", "t", "--threshold", "nan"], "threshold is a probability, not nan"),
        (["detect", "m", "t", "--batch-size", "0"], "--batch-size must be at least 1"),
        (
            ["detect", "m", "t", "--max-seq-length", "9" * 400],
            "--max-seq-length must be of type int",
        ),
        (
            ["evaluate", "m", "--data-dir", "d", "--batch-tokens", "0"],
            "--batch-tokens must be at least 1",
        ),
        (["evaluate", "m", "--data-dir", "d", "--task", "blip"], "did you mean 'blimp'?"),
        (["export", "r", "--output-dir", "o", "--step", "x"], "step must be of type int"),
        (["demo", "--max-steps", "x"], "--max-steps"),
        (
            ["demo", "--max-steps", "0", "--output-dir", "demo"],
            "--max-steps must be positive, not 0",
        ),
        (
            [
                "finetune",
                "m",
                "--train-file",
                "a",
                "--validation-file",
                "b",
                "--output-dir",
                "o",
                "--learning-rate",
                "nan",
            ],
            "--learning-rate must be",
        ),
        (
            [
                "finetune",
                "m",
                "--train-file",
                "a",
                "--validation-file",
                "b",
                "--output-dir",
                "o",
                "--learning-rate",
                "inf",
            ],
            "--learning-rate must be",
        ),
        (
            [
                "finetune",
                "m",
                "--train-file",
                "a",
                "--validation-file",
                "b",
                "--output-dir",
                "o",
                "--num-train-epochs",
                "inf",
            ],
            "--num-train-epochs must be",
        ),
        (
            [
                "finetune",
                "m",
                "--train-file",
                "a",
                "--validation-file",
                "b",
                "--output-dir",
                "o",
                "--seed",
                "-1",
            ],
            "seed must",
        ),
        (
            [
                "finetune",
                "m",
                "--train-file",
                "a",
                "--validation-file",
                "b",
                "--output-dir",
                "o",
                "--seeds",
                "0",
            ],
            "--seeds must be at least 1",
        ),
    ],
    ids=lambda words: (
        "-".join(words)[-40:].replace("\x1b", "ESC") if isinstance(words, list) else ""
    ),
)
def test_other_verbs(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    sentence = mistake(capsys, *words)
    assert says in sentence
    assert "\x1b" not in sentence
    assert not listing(tmp_path)


def test_a_config_yaml_of_a_run_is_no_safer(tmp_path: Path) -> None:
    """The file that a run wrote is read by the same reader."""
    (tmp_path / "config.yaml").write_text(
        yaml.safe_dump({"model": {"hidden_size": 1}}) + LAUGHS, encoding="utf-8"
    )
    with pytest.raises(UserError, match="aliases"):
        load_file(tmp_path / "config.yaml")


def test_a_model_that_only_fits_in_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes hold what one cannot."""
    recipe = load_recipe("electra-base")
    monkeypatch.setattr(
        machine, "available_bytes", lambda: 10 * shapes(recipe, 30522)[0].least_parameters
    )
    pair = dataclasses.replace(ALONE, size=2)
    with pytest.raises(UserError, match="GB are free"):
        machine.run_must_fit(recipe, shapes(recipe, 30522)[0], rows=1, world=pair)  # type: ignore[arg-type]
    machine.run_must_fit(
        override(recipe, {"fsdp": "full_shard"}), shapes(recipe, 30522)[0], rows=1, world=pair
    )  # type: ignore[arg-type]
