"""Advice that can be followed: of this corpus, its tokenizer, its size and what `prepare` was asked
for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import edit_manifest

from electrify.config.checks import check
from electrify.config.pretrain import load_recipe, override
from electrify.doctor.corpus import Lengths, size, traps
from electrify.doctor.data import examine_data
from electrify.doctor.files import read_bytes
from electrify.doctor.findings import CORRECT, DamageError, Finding, guarded
from electrify.errors import UserError, nearest
from electrify.text.manifest import read_manifest


def found(
    small_data: Path,
    counts_V: np.ndarray,
    counts: dict[str, float] | None = None,
    **options: Any,
) -> dict[str, Finding]:
    """What is said of a corpus with these counts of its vocabulary."""
    lengths = Lengths()
    lengths.add(np.array([500, 600, 700]))
    manifest = read_manifest(small_data)
    manifest = replace(
        manifest, vocab_size=len(counts_V), counts=counts or {}, options=manifest.options | options
    )
    return {
        f.code: f for f in traps(manifest, unigram_V=counts_V, lengths=lengths, folder=small_data)
    }


def rich(vocab_size: int, *, unused: int = 0, rare: int = 0) -> np.ndarray:
    counts_V = np.full(vocab_size, 10_000)
    counts_V[vocab_size - unused :] = 0
    counts_V[vocab_size - unused - rare : vocab_size - unused] = 3
    return counts_V


def test_a_tokenizer_that_was_trained_here_was_not_made_on_other_text(small_data: Path) -> None:
    mine = found(small_data, rich(512, unused=200), tokenizer="bpe")["vocabulary-unused"].advice
    assert "other text" not in mine
    assert "nothing needs to be done" in mine
    assert (
        "other text"
        in found(small_data, rich(512, unused=200), tokenizer="some/folder")[
            "vocabulary-unused"
        ].advice
    )


def test_nobody_is_told_to_train_what_was_trained(small_data: Path) -> None:
    counts_V = rich(512)
    counts_V[1] = counts_V.sum() // 10  # [UNK]
    mine = found(small_data, counts_V, tokenizer="wordpiece")["unk"].advice
    assert "train a tokenizer" not in mine
    assert "larger --vocab-size" in mine
    assert (
        "train a tokenizer on this very text"
        in found(small_data, counts_V, tokenizer="some/folder")["unk"].advice
    )


def test_what_is_unknown_is_judged_by_characters(small_data: Path) -> None:
    """A word of a thousand unknown characters is one token."""
    counts_V = rich(512)
    counts_V[1] = 3
    known = found(small_data, counts_V, tokenizer="wordpiece")["unk"]
    assert known.level == "ok"
    counts = {"unk_characters": 300, "visible_characters": 10_000, "unk_documents": 2}
    mine = found(small_data, counts_V, tokenizer="wordpiece", counts=counts)["unk"]
    assert mine.level == "warning"
    assert "3.00% of the characters, and half or more of 2 of" in mine.fact


@pytest.mark.parametrize(
    ("vocab_size", "tokenizer"), [(64, "wordpiece"), (256, "wordpiece"), (512, "bpe")]
)
def test_smaller_is_smaller(small_data: Path, vocab_size: int, tokenizer: str) -> None:
    advice = found(small_data, rich(vocab_size, rare=vocab_size - 20), tokenizer=tokenizer)[
        "vocabulary-too-large"
    ].advice
    assert "--vocab-size" not in advice
    assert "add text" in advice


def test_a_smaller_vocabulary_of_a_given_tokenizer_is_another_one(small_data: Path) -> None:
    advice = found(small_data, rich(8192, rare=8000), tokenizer="some/folder")[
        "vocabulary-too-large"
    ].advice
    assert "train one on this text (leave --tokenizer out), --vocab-size 256" in advice


def test_a_multiple_of_eight_that_can_be_had(small_data: Path) -> None:
    assert (
        "--vocab-size 512" in found(small_data, rich(509), vocab_size=509)["vocabulary-odd"].advice
    )
    fewer = found(small_data, rich(50), vocab_size=512)["vocabulary-odd"].advice
    assert "512 were asked for and the text has no more: --vocab-size 48" in fewer
    assert (
        "--vocab-size"
        not in found(small_data, rich(509), tokenizer="some/folder")["vocabulary-odd"].advice
    )
    letters = found(small_data, rich(109), vocab_size=512, tokenizer="character")
    assert "would lose characters" in letters["vocabulary-odd"].advice


@pytest.mark.parametrize(
    ("documents", "share", "says"),
    [
        (2, 0.01, "2 documents are too few to set some aside"),
        (2, 0, "2 documents are too few to set some aside"),
        (
            40,
            0.01,
            "of 40 documents a share of 0.01 is too small; prepare with --valid-fraction 0.13,",
        ),
        (90, 0, "of 90 documents a share of 0 is too small; prepare with --valid-fraction 0.06,"),
        (600, 0.01, "prepare with --valid-fraction 0.02, into another"),
        (100_000, 0, "prepare with --valid-fraction 0.01, into another"),
    ],
)
def test_validation_that_was_asked_for_and_found_nothing(
    small_data: Path, documents: int, share: float, says: str
) -> None:
    manifest = read_manifest(small_data)
    shard = replace(manifest.splits["train"][0], documents=documents)
    manifest = replace(
        manifest,
        splits={"train": (shard,), "valid": ()},
        options=manifest.options | {"valid_fraction": share},
    )  # type: ignore[arg-type]
    lengths = Lengths()
    lengths.add(np.array([500]))
    advice = {
        f.code: f.advice
        for f in traps(manifest, unigram_V=rich(512), lengths=lengths, folder=small_data)
    }
    assert says in advice["no-valid"]


@pytest.mark.parametrize(
    ("tokens", "level", "fits", "advice"),
    [
        (
            10**9,
            "ok",
            (
                "electra-tiny (0.0 epochs), electra-mini (1.6 epochs), electra-small (16.4 "
                "epochs); electra-small is the default"
            ),
            "",
        ),
        (
            57_000_000,
            "note",
            "electra-tiny (0.7 epochs), electra-mini (28.7 epochs); the default",
            "Take --recipe electra-mini, or give electra-small",
        ),
        (
            2_000_000,
            "note",
            "electra-tiny (20.5 epochs); the default",
            "Take --recipe electra-tiny, or",
        ),
        (
            500_000,
            "note",
            "even electra-tiny sees them 82 times",
            "Add text, or give --recipe electra-tiny --max-steps 4882 or fewer.",
        ),
    ],
)
def test_recipes_that_fit(tokens: int, level: str, fits: str, advice: str) -> None:
    (said,) = size(tokens)
    assert said.level == level
    assert fits in said.fact
    assert said.advice.startswith(advice)


def test_a_message_without_advice_gets_one_that_can_be_followed() -> None:
    def check() -> Any:
        raise UserError("config.yaml: max_steps must be positive, not 0")
        yield

    (said,) = guarded(check)
    assert said.advice == "Correct that in the file, or restore the folder from a copy."


@pytest.mark.parametrize(
    ("raised", "fact", "advice"),
    [
        (
            UserError(
                "there is no recipe 'electra-tny'" + nearest("electra-tny", ["electra-tiny"])
            ),
            "there is no recipe 'electra-tny'; did you mean 'electra-tiny'?",
            CORRECT,
        ),
        (
            UserError("RUN holds another run (steps 1 there, 2 here; seed 1 there, 2 here)"),
            "RUN holds another run (steps 1 there, 2 here; seed 1 there, 2 here)",
            CORRECT,
        ),
        (
            UserError("it differs (a; b)", "choose another, or put it back"),
            "it differs (a; b)",
            "Choose another, or put it back.",
        ),
    ],
)
def test_a_message_is_not_cut(raised: UserError, fact: str, advice: str) -> None:
    """A `;` may stand in a list, or before a hint."""

    def check() -> Any:
        raise raised
        yield

    (said,) = guarded(check)
    assert (said.fact, said.advice) == (fact, advice)


def test_a_check_of_a_recipe_brings_its_advice() -> None:
    def check_it() -> Any:
        check(override(load_recipe("electra-tiny"), {"max_seq_length": 4}))
        yield

    (said,) = guarded(check_it)
    assert said.fact == "max_seq_length 4 is too short"
    assert said.advice == "Use at least 8."


def test_a_file_is_too_large_in_any_unit(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1234")
    with pytest.raises(DamageError) as e:
        read_bytes(tmp_path / "x", limit=3)
    assert e.value.finding.code == "too-large"


def test_a_real_corpus_with_an_odd_vocabulary(data: Path) -> None:
    """What `prepare` wrote down is what is looked at."""
    edit_manifest(data, lambda m: m["options"].update(tokenizer="some/folder"))
    assert not [f for f in examine_data(data)[0].findings if "train a tokenizer" in f.advice]
