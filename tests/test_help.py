"""`--help`: flags in groups by purpose, headings in words, each flag once, lines as wide as the
terminal."""

from __future__ import annotations

import dataclasses
import io
import re
from contextlib import redirect_stdout

import pytest

import electrify
from electrify import cli, verbs
from electrify.config.finetune import FinetuneConfig
from electrify.config.finetune_settings import FinetuneSettings
from electrify.config.pretrain import SECTIONS
from electrify.config.schema import field_types

VERBS = list(verbs.VERBS)


def help_of(verb: str, columns: int) -> str:
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit):
            cli.parser().parse_args([verb, "--help"])
    return out.getvalue()


def headings(text: str) -> list[str]:
    return [
        line[:-1] for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")
    ]


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("verb", VERBS)
def test_headings_are_words_and_lines_fit(verb: str, columns: int) -> None:
    text = help_of(verb, columns)
    found = headings(text)
    assert len(found) == len(set(found))
    assert found[-1] == "help"
    assert not [h for h in found if re.search("[A-Z][a-z]+[A-Z]|Config|Settings", h)]
    too_long = [line for line in text.splitlines() if len(line) > columns]
    assert all(
        line.lstrip().startswith("--") for line in too_long
    )  # a list of choices is not broken
    flags = re.findall(r"^  (--[\w-]+)", text, re.MULTILINE)
    assert len(flags) == len(set(flags))
    assert not re.search(r"^  +--\w*_", text, re.MULTILINE)


def test_no_group_is_long() -> None:
    """Sixty flags in one list are read by nobody."""
    for verb in ("pretrain", "finetune", "prepare"):
        parts = re.split(r"^\S.*:$", help_of(verb, 120), flags=re.MULTILINE)
        assert max(len(re.findall(r"^  --", part, re.MULTILINE)) for part in parts) <= 11


def test_the_usage_says_what_is_needed() -> None:
    first = {verb: help_of(verb, 80).splitlines()[0] for verb in VERBS}
    assert first["pretrain"] == "usage: electrify pretrain DATA --output-dir RUN [FLAGS]"
    assert first["finetune"] == "usage: electrify finetune MODEL... --output-dir DIR [FLAGS]"
    assert first["detect"] == "usage: electrify detect MODEL [TEXT] [FLAGS]"
    assert first["flops"] == "usage: electrify flops [RECIPE...] [FLAGS]"


@pytest.mark.parametrize("cls", [*SECTIONS.values(), FinetuneConfig, FinetuneSettings])
def test_every_heading_begins_at_a_field(cls: type) -> None:
    assert cls.HEADINGS.keys() <= field_types(cls).keys()  # type: ignore[attr-defined]
    assert dataclasses.fields(cls)[0].name in cls.HEADINGS  # type: ignore[attr-defined]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.parser().parse_args(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"electrify {electrify.__version__}\n"
