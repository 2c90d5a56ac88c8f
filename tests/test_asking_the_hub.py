"""The Hub is asked once for a name that is not a folder here, and says what it is."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import GatedRepoError, RemoteEntryNotFoundError, RepositoryNotFoundError

from electrify.errors import UserError
from electrify.exporting.places import check_place
from electrify.hub import file_of, must_be_reachable
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
def test_a_name_that_no_model_has_is_reported_after_one_question(asked, name, says):
    with pytest.raises(UserError, match=f"'{name}' is neither a folder here nor a model .*{says}"):
        check_place(name)
    assert len(asked) == 1
    with pytest.raises(UserError, match=f"'{name}' is neither a folder here nor a tokenizer"):
        load_tokenizer(name)
    assert len(asked) == 2


def test_what_the_cache_holds_is_not_asked_for(asked, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_, **__: "config.json")
    check_place("unreachable")
    assert asked == []
