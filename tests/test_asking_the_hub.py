"""The Hub is asked once for a name that is not a folder here, and says what it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import huggingface_hub
import pytest
from huggingface_hub.errors import GatedRepoError, RemoteEntryNotFoundError, RepositoryNotFoundError

from electrify.errors import UserError
from electrify.exporting.places import check_place
from electrify.hub import file_of, must_be_reachable
from electrify.text import documents
from electrify.text.options import PrepareConfig
from electrify.text.sources import Source
from electrify.text.tokenizer import load_tokenizer


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was asked for. The name of a model is the error that the Hub answers with."""
    seen: list[str] = []
    answers: dict[str, Exception] = {
        "unreachable": OSError("no route to it"),
        "unknown": _http(RepositoryNotFoundError),
        "gated": _http(GatedRepoError),
        "tokenizer-only": _http(RemoteEntryNotFoundError),
    }

    def answer(url: str, **_: Any) -> None:
        seen.append(url)
        name = url.removeprefix("https://huggingface.co/").removeprefix("datasets/").split("/")[0]
        if name in answers:
            raise answers[name]

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", answer)
    for question in (must_be_reachable, file_of):
        question.cache_clear()
    yield seen
    for question in (must_be_reachable, file_of):
        question.cache_clear()


def _http(kind: type[Exception]) -> Exception:
    error = kind.__new__(kind)
    error.response = SimpleNamespace(headers={}, request=None)  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("name", "says"),
    [("unreachable", "reached on the Hub .OSError: no route"), ("unknown", "how it is")],
)
def test_a_name_that_no_model_has_is_reported_after_one_question(
    asked: list[str], name: str, says: str
) -> None:
    with pytest.raises(UserError, match=f"'{name}' is neither a folder here nor a model .*{says}"):
        check_place(name)
    assert len(asked) == 1
    with pytest.raises(UserError, match=f"'{name}' is neither a folder here nor a tokenizer"):
        load_tokenizer(name)
    assert len(asked) == 2


@pytest.mark.parametrize("name", ["bert-base-uncased", "gated", "tokenizer-only"])
def test_models_of_the_hub_without_a_slash_pass(asked: list[str], name: str) -> None:
    for _ in range(2):
        check_place(name)
    assert len(asked) == 1


def test_what_the_cache_holds_is_not_asked_for(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_, **__: "config.json")
    check_place("unreachable")
    assert asked == []


def test_a_data_set_that_its_library_keeps_is_not_asked_for(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`datasets` has a cache of its own, and the Hub's need not hold the file that is asked for."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path))
    (tmp_path / "unreachable___set").mkdir()
    must_be_reachable("unreachable/set", "data set")
    assert asked == []
    with pytest.raises(UserError, match="'unreachable' is neither"):
        must_be_reachable("unreachable", "data set")


def test_a_data_set_is_asked_for_as_such(asked: list[str]) -> None:
    must_be_reachable("owner/name", "data set")
    assert [url.split("/resolve/")[0] for url in asked] == [
        f"{huggingface_hub.constants.ENDPOINT}/datasets/owner/name"
    ]
    source = Source("hub:unreachable", "hub", hub="unreachable")
    options = PrepareConfig(inputs=("x",), output_dir="unused")
    with pytest.raises(UserError, match="'unreachable' is neither a folder here nor a data set"):
        list(documents.documents(source, options, counts=Counter()))
    assert len(asked) == 2


def test_a_file_that_no_library_reads_is_fetched_once(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fetched: list[str] = []

    def fetch(name: str, file: str) -> str:
        fetched.append(name)
        if name == "tokenizer-only":
            raise _http(RemoteEntryNotFoundError)
        return f"/cache/{name}/{file}"

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    for _ in range(2):
        assert file_of("bert", "electrify.json") == Path("/cache/bert/electrify.json")
        assert file_of("tokenizer-only", "electrify.json") is None
    assert capsys.readouterr().err == ""
    assert file_of("unreachable", "electrify.json") is None
    assert "the Hub cannot be asked for it (OSError: no route to it)" in capsys.readouterr().err
    assert fetched == ["bert", "tokenizer-only"]
    assert len(asked) == 3
