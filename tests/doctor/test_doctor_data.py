"""Prepared corpora: a healthy one is called so, and whatever byte is damaged, that is an error and
never a traceback."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import (
    DOCUMENTS,
    TOKENS,
    cut,
    damaged,
    edit,
    edit_manifest,
    edit_tokens,
    flip,
    levels,
    of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from electrify.config.doctor import DoctorConfig
from electrify.doctor.corpus import Lengths, size, traps
from electrify.doctor.data import examine_data
from electrify.doctor.findings import guarded
from electrify.doctor.report import diagnose
from electrify.doctor.tokenizers import check_tokenizer
from electrify.oldfiles.seals import SEAL
from electrify.oldfiles.seals import text_of as manifest_text
from electrify.text.manifest import MANIFEST, read_manifest
from electrify.text.placed import UNFINISHED

SEALED = [
    "manifest.json",
    TOKENS,
    DOCUMENTS,
    "tokens-valid-00000.bin",
    "documents-valid-00000.npy",
    "unigram.npy",
]
SEALED += ["tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json", "tokenizer/vocab.txt"]


def test_a_healthy_corpus(small_data: Path) -> None:
    found, facts = examine_data(small_data)
    assert facts is not None
    assert of(found, "error") == set()
    # True of 100 kB of text: little, in short documents.
    assert of(found, "warning") <= {"little-text", "vocabulary-too-large", "short-documents"}
    assert {"whole", "tokenizer", "unk", "valid"} <= of(found, "ok")
    assert f"{read_manifest(small_data).counts['tokens']:,} tokens" in found.findings[0].fact


def test_every_file_of_a_corpus_is_tested_for_damage(small_data: Path) -> None:
    there = {str(p.relative_to(small_data)) for p in small_data.rglob("*") if p.is_file()}
    assert there - set(SEALED) <= {"prepare.log.json"}  # times only


@pytest.fixture(scope="module")
def to_damage(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(small_data, tmp_path_factory.mktemp("damage") / "data"))


@settings(max_examples=80)
@given(name=st.sampled_from(SEALED), at=st.floats(0, 1), bit=st.integers(0, 7))
def test_no_flipped_bit_passes(to_damage: Path, name: str, at: float, bit: int) -> None:
    path = to_damage / name
    with damaged(path, flip(path.read_bytes(), at, bit)):
        assert of(examine_data(to_damage)[0], "error")


@settings(max_examples=40)
@given(name=st.sampled_from(SEALED), at=st.floats(0, 1))
def test_no_truncation_passes(to_damage: Path, name: str, at: float) -> None:
    path = to_damage / name
    with damaged(path, cut(path.read_bytes(), at)):
        assert of(examine_data(to_damage)[0], "error")


@pytest.mark.parametrize("name", SEALED)
def test_no_missing_file_passes(to_damage: Path, name: str) -> None:
    aside = (to_damage / name).rename(to_damage / "aside")
    try:
        found, _ = examine_data(to_damage)
        assert "missing" in of(found, "error")
        assert any(Path(name).name in f.fact for f in found.findings if f.level == "error")
    finally:
        aside.rename(to_damage / name)


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**30),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.none(), max_size=2),
    st.just({"a": 1}),
)


@settings(max_examples=60)
@given(data=st.data(), value=ODD)
def test_wrong_types_in_the_manifest_are_findings(
    to_damage: Path, data: st.DataObject, value: Any
) -> None:
    """Even sealed again, so that nothing but the type itself is wrong."""
    m = json.loads((to_damage / MANIFEST).read_text())
    places: list[tuple[Any, Any]] = [(m, k) for k in m if k != SEAL]
    places += (
        [(m["special_ids"], k) for k in m["special_ids"]]
        + [(m["splits"], k) for k in m["splits"]]
        + [(m["counts"], "tokens")]
    )
    places += [(m["splits"]["train"][0], k) for k in m["splits"]["train"][0]] + [
        (m["tokenizer_files"], "vocab.txt"),
        (m["splits"]["train"], 0),
    ]
    holder, key = data.draw(st.sampled_from(places))
    same = holder[key] == value
    holder[key] = value
    with damaged(to_damage / MANIFEST, manifest_text(m).encode("utf-8", "surrogatepass")):
        found, _ = examine_data(to_damage)
        assert same or of(found, "error")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{",
        "[" * 100_000,
        '{"a":' * 50_000,
        '{"format": 1}',
        '{"format": 1, "splits": [], "special_ids": 3}',
        "\ud800",
    ],
)
def test_manifests_that_are_none(data: Path, text: str) -> None:
    (data / MANIFEST).write_bytes(text.encode("utf-8", "surrogatepass"))
    found, facts = examine_data(data)
    assert facts is None
    assert of(found, "error")


def first(ids: np.ndarray, value: int, n: int = 1) -> None:
    ids[:n] = value


def offsets(change: Callable[[np.ndarray], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        array = np.load(folder / DOCUMENTS)
        change(array)
        np.save(folder / DOCUMENTS, array)
        edit_manifest(folder)

    return apply


def swap(array: np.ndarray) -> None:
    array[[1, 2]] = array[[2, 1]]


def unigram(folder: Path) -> None:
    counts = np.load(folder / "unigram.npy")
    counts[9] += 1
    np.save(folder / "unigram.npy", counts)
    edit_manifest(folder)


def link_out(folder: Path) -> None:
    (folder / TOKENS).rename(folder.parent / "elsewhere.bin")
    (folder / TOKENS).symlink_to(folder.parent / "elsewhere.bin")


def unknowns(folder: Path) -> None:
    edit_tokens(folder, lambda ids: first(ids, 1, len(ids) // 50))


def begun(folder: Path) -> None:
    """What a `prepare` that was killed leaves."""
    (folder / UNFINISHED).mkdir()
    (folder / UNFINISHED / "state.json").write_text(
        '{"electrify": "prepare", "options": {}, "sources": []}'
    )


@pytest.mark.parametrize(
    ("change", "level", "code"),
    [
        (lambda d: edit_tokens(d, lambda ids: first(ids, 60_000)), "error", "ids"),
        (lambda d: edit_tokens(d, lambda ids: first(ids, 4)), "error", "specials"),
        (offsets(swap), "error", "offsets"),
        (offsets(lambda a: first(a, 1)), "error", "offsets"),
        (unigram, "error", "unigram"),
        (lambda d: edit_manifest(d, lambda m: m["counts"].update(documents=1)), "error", "counts"),
        (
            lambda d: edit_manifest(d, lambda m: m["special_ids"].update(mask=5)),
            "error",
            "special-ids",
        ),
        (
            lambda d: shutil.copy(d / TOKENS, d / "tokens-train-00007.bin"),
            "warning",
            "extra-shards",
        ),
        (link_out, "warning", "link-out"),
        (unknowns, "warning", "unk"),
        (lambda d: (d / "tokens-train-00001.bin.part").touch(), "note", "left-over"),
        (begun, "note", "left-over"),
        (
            lambda d: edit_manifest(d, lambda m: m["counts"].update(duplicates=1000)),
            "note",
            "duplicates",
        ),
        (
            lambda d: edit_manifest(d, lambda m: m["counts"].update(encoding_errors=3)),
            "warning",
            "encoding",
        ),
        (
            lambda d: edit_manifest(d, lambda m: m["options"].update(deduplicate=False)),
            "note",
            "duplicates-kept",
        ),
        (
            lambda d: edit_manifest(
                d, lambda m: (m["splits"].update(valid=[]), m["counts"].clear())
            ),
            "warning",
            "no-valid",
        ),
    ],
)
def test_findings_of_a_corpus(
    data: Path, small_data: Path, change: Callable[[Path], Any], level: str, code: str
) -> None:
    change(data)
    assert levels(examine_data(data)[0])[code] == level
    assert levels(examine_data(small_data)[0]).get(code, "ok") == "ok"


def test_a_manifest_of_an_earlier_version(data: Path) -> None:
    edit(
        data / MANIFEST,
        lambda m: {k: v for k, v in m.items() if k not in (SEAL, "tokenizer_files")},
    )
    m = json.loads((data / MANIFEST).read_text())
    (data / MANIFEST).write_text(manifest_text(m))
    found, _ = examine_data(data)
    assert of(found, "error") == set()
    assert "unsealed" in of(found, "note")


def test_a_corpus_that_is_being_made(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    begun(tmp_path / "data")
    (folder,) = diagnose(DoctorConfig(paths=(str(tmp_path / "data"),))).folders
    assert of(folder, "error") == {"unfinished"}


def test_a_pipe_in_place_of_a_shard_is_not_read(data: Path) -> None:
    (data / TOKENS).unlink()
    os.mkfifo(data / TOKENS)
    assert "missing" in of(examine_data(data)[0], "error")


# ------------------------------------------------------------------ traps, without files


def lengths(*each: int) -> Lengths:
    found = Lengths()
    found.add(np.array(each))
    return found


def trap_levels(small_data: Path, counts: np.ndarray, *documents: int) -> dict[str, str]:
    manifest = replace(read_manifest(small_data), vocab_size=len(counts), counts={})
    return levels(
        list(traps(manifest, unigram_V=counts, lengths=lengths(*documents), folder=small_data))
    )


def test_document_lengths(small_data: Path) -> None:
    counts = np.full(512, 10_000)
    assert trap_levels(small_data, counts, 500, 600, 700)["lengths"] == "ok"
    assert trap_levels(small_data, counts, 12, 14, 20)["short-documents"] == "warning"
    total = int(counts.sum())
    assert (
        trap_levels(small_data, counts, *([100] * (total // 200)), 600)["short-documents"] == "note"
    )
    assert trap_levels(small_data, counts, 0, 600, 700)["empty-documents"] == "note"


def test_vocabularies(small_data: Path) -> None:
    rich = np.full(512, 10_000)
    assert trap_levels(small_data, rich, 500)["vocabulary"] == "ok"
    poor, unused = rich.copy(), rich.copy()
    poor[100:], unused[300:] = 3, 0
    assert trap_levels(small_data, poor, 500)["vocabulary-too-large"] == "warning"
    assert trap_levels(small_data, unused, 500)["vocabulary-unused"] == "note"
    assert trap_levels(small_data, rich[:509], 500)["vocabulary-odd"] == "note"
    assert "vocabulary-odd" not in trap_levels(small_data, rich, 500)


def test_how_much_text() -> None:
    assert levels(list(size(1_000_000_000))) == {"size": "ok"}
    (found,) = size(57_000_000)
    assert (found.level, found.code) == ("note", "recipe-too-long")
    steps = int(found.advice.split("--max-steps ")[1].split()[0])
    assert steps * 128 * 128 == pytest.approx(40 * 57_000_000, rel=1e-3)
    assert levels(list(size(30_000))) == {"little-text": "warning"}


# ------------------------------------------------------------------ tokenizers


def tokenizer_levels(data: Path, change: Callable[[dict[str, Any]], Any]) -> dict[str, str]:
    edit(data / "tokenizer/tokenizer.json", change)
    manifest = read_manifest(data)
    return levels(
        list(
            guarded(
                lambda: check_tokenizer(
                    data / "tokenizer", vocab_size=manifest.vocab_size, special=manifest.special_ids
                )
            )
        )
    )


def renamed(raw: dict[str, Any], old: str, new: str) -> None:
    vocab = raw["model"]["vocab"]
    vocab[new] = vocab.pop(old)
    raw["added_tokens"] = [t for t in raw["added_tokens"] if t["content"] != old]


@pytest.mark.parametrize(
    ("change", "level", "code"),
    [
        (lambda raw: renamed(raw, "[MASK]", "[MASQUE]"), "error", "special-missing"),
        (lambda raw: raw["model"]["vocab"].update(zebra=9), "error", "tokenizer-ids"),
        (lambda raw: raw["model"]["vocab"].update(zebra=900), "error", "tokenizer-too-large"),
        (lambda raw: raw["normalizer"].update(lowercase=False), "warning", "upper-case-unknown"),
        (lambda raw: raw.update(model=3), "error", "tokenizer"),
    ],
)
def test_tokenizers(
    data: Path, change: Callable[[dict[str, Any]], Any], level: str, code: str
) -> None:
    assert tokenizer_levels(data, lambda raw: None).get(code, "ok") == "ok"
    assert tokenizer_levels(data, change)[code] == level
