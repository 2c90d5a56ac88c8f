from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from electrify.config.detect import DetectConfig
from electrify.config.flags import add_flags, from_flags
from electrify.config.schema import convert, field_docs, field_types, from_mapping
from electrify.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Options:
    """One field of every kind."""

    max_steps: int
    """Updates of the whole
    run."""
    learning_rate: float = 5e-4
    """Peak, 100 % of it."""
    output_dir: str = "out"
    """Where."""
    no_docstring: str = ""
    bf16: bool = True
    """Autocast."""
    strip_accents: bool | None = None
    """Removed; by default what lowercase is."""
    tie: Literal["embeddings", "none", "all"] = "embeddings"
    """What is shared."""
    num_segments: Literal[1, 2] = 1
    """One or two."""
    save_total_limit: int | None = 2
    """Newest kept."""
    mask_mix: tuple[float, ...] = (0.8, 0.1, 0.1)
    """Three shares."""
    report_to: tuple[str, ...] = field(default=())
    """Trackers."""
    term_weights: dict[str, float] = field(default_factory=dict)
    """Weights."""


def flags(*argv: str) -> Options:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser, Options, skip=("no_docstring",))
    return from_flags(Options, parser.parse_args(["--max-steps", "1", *argv]))


@pytest.mark.parametrize(
    ("value", "kind", "want"),
    [
        (5, int, 5),
        ("5", int, 5),
        ("-5", int, -5),
        ("1e6", int, 1_000_000),
        ("10_000", int, 10_000),
        (2.0, int, 2),
        (5, float, 5.0),
        ("1e-4", float, 1e-4),  # YAML 1.1 reads 1e-4 as text
        (".5", float, 0.5),
        ("text", str, "text"),
        ("", str, ""),
        (7, str, "7"),
        (True, bool, True),
        ("FALSE", bool, False),
        ("yes", bool, True),
        (0, bool, False),
        ("none", int | None, None),
        (None, int | None, None),
        ("3", int | None, 3),
        ("", str | None, None),
        ("false", bool | None, False),
        ("all", Literal["none", "all"], "all"),
        ("none", Literal["none", "all"], "none"),
        ("2", Literal[1, 2], 2),
        (2, Literal[1, 2], 2),
        ("0.8, 0.1,0.1", tuple[float, ...], (0.8, 0.1, 0.1)),
        ([1, "2"], tuple[float, ...], (1.0, 2.0)),
        ("", tuple[str, ...], ()),
        ([], tuple[str, ...], ()),
        (["a,b"], tuple[str, ...], ("a,b",)),
        ("generator=1, rtd=50", dict[str, float], {"generator": 1.0, "rtd": 50.0}),
        ({"rtd": "50"}, dict[str, float], {"rtd": 50.0}),
        ("none", dict[int, float], {}),
        (None, dict[int, float], {}),
    ],
)
def test_convert(value: Any, kind: Any, want: Any):
    got = convert(value, kind, "field")
    assert got == want
    assert type(got) is type(want)


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ("ten", int, "field must be of type int, not 'ten'"),
        ("128", dict[int, float], "field must be a list N=X,..., not '128'"),
        ("1.5", int, "field must be of type int, not 1.5"),
        (1.5, int, "field must be of type int, not 1.5"),
        ("inf", int, "field must be of type int, not inf"),
        ("--5", int, "field must be of type int, not '--5'"),
        ("²", int, "field must be of type int, not '²'"),
        (True, int, "field must be of type int, not True"),
        (None, int, "field must be of type int, not None"),
        ([1], int, r"field must be of type int, not \[1\]"),
        ("fast", float, "field must be of type float, not 'fast'"),
        (False, float, "field must be of type float, not False"),
        (None, str, "field must be of type str, not None"),
        (10**400, float, "field must be of type float, not 10"),
        (["a"], str, "field must be of type str, not"),
        (False, str, "field must be of type str, not False"),  # YAML 1.1 reads `no` as false
        ("maybe", bool, "field must be true or false, not 'maybe'"),
        (2, bool, "field must be true or false, not 2"),
        ("corpus.txt", bool | None, "field must be true or false, not 'corpus.txt'"),
        ("al", Literal["none", "all"], "field cannot be 'al'; did you mean 'all'?"),
        ("xyz", Literal["none", "all"], "field cannot be 'xyz'; known: all, none"),
        (3, Literal[1, 2], "field cannot be 3; known: 1, 2"),
        ("x,1", tuple[float, ...], "field must be of type float, not 'x'"),
        (0.5, tuple[float, ...], "field must be a list X,..., not 0.5"),
        ({"a": 1}, tuple[str, ...], "field must be a list TEXT,..., not"),
        ("generator", dict[str, float], "field must be a list NAME=X,..., not 'generator'"),
        ([1], dict[str, float], "field must be a list NAME=X,..., not"),
        ("rtd=much", dict[str, float], "field must be of type float, not 'much'"),
    ],
)
def test_what_cannot_be_converted_is_named(value: Any, kind: Any, message: str):
    with pytest.raises(UserError, match="^" + message.replace("?", r"\?")):
        convert(value, kind, "field")


@given(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.lists(st.integers()),
        st.dictionaries(st.text(), st.integers()),
    )
)
def test_any_value_gives_the_type_or_a_user_error(value: Any):
    for name, kind in field_types(Options).items():
        try:
            got = convert(value, kind, name)
        except UserError:
            continue
        if kind in (int, float, str, bool):
            assert type(got) is kind


def test_mapping():
    options = from_mapping(Options, {"max_steps": 10, "tie": "all"}, "recipe x")
    assert options == Options(max_steps=10, tie="all")
    with pytest.raises(
        UserError, match=r"recipe x has no field 'max_step'; did you mean 'max_steps'\?"
    ):
        from_mapping(Options, {"max_step": 10}, "recipe x")
    with pytest.raises(UserError, match="recipe x has no field 3; known: bf16, "):
        from_mapping(Options, {3: 10}, "recipe x")  # type: ignore[dict-item]
    with pytest.raises(UserError, match="recipe x lacks the field max_steps"):
        from_mapping(Options, {}, "recipe x")
    with pytest.raises(UserError, match="recipe x: bf16 must be true or false, not 'perhaps'"):
        from_mapping(Options, {"max_steps": 1, "bf16": "perhaps"}, "recipe x")
    with pytest.raises(
        UserError, match=r"recipe x must be a mapping of fields, not \['max_steps'\]"
    ):
        from_mapping(Options, ["max_steps"], "recipe x")  # type: ignore[arg-type]


def test_docs_are_the_docstrings_below_the_fields():
    docs = field_docs(Options)
    assert docs["max_steps"] == "Updates of the whole run."
    assert "no_docstring" not in docs
    assert set(docs) == set(field_types(Options)) - {"no_docstring"}


def test_docs_of_a_class_inside_a_function():
    @dataclass
    class Inner:
        x: int
        """Some number."""

    assert field_docs(Inner) == {"x": "Some number."}


def test_flags_that_are_not_given_keep_the_defaults():
    assert flags() == Options(max_steps=1)


@pytest.mark.parametrize(
    ("argv", "name", "want"),
    [
        (["--learning-rate", "1e-3"], "learning_rate", 1e-3),
        (["--learning_rate", "1e-3"], "learning_rate", 1e-3),
        (["--learning-rate=1e-3"], "learning_rate", 1e-3),
        (["--output-dir", "here"], "output_dir", "here"),
        (["--bf16"], "bf16", True),
        (["--bf16", "true"], "bf16", True),
        (["--bf16", "false"], "bf16", False),
        (["--bf16=false"], "bf16", False),
        (["--no-bf16"], "bf16", False),
        (["--no-bf16", "--bf16"], "bf16", True),
        (["--strip-accents"], "strip_accents", True),
        (["--no-strip-accents"], "strip_accents", False),
        (["--strip-accents", "none"], "strip_accents", None),
        (["--tie", "none"], "tie", "none"),
        (["--num-segments", "2"], "num_segments", 2),
        (["--save-total-limit", "none"], "save_total_limit", None),
        (["--mask-mix", "1,0,0"], "mask_mix", (1.0, 0.0, 0.0)),
        (["--report-to", "tensorboard,wandb"], "report_to", ("tensorboard", "wandb")),
        (["--term-weights", "rtd=50"], "term_weights", {"rtd": 50.0}),
    ],
)
def test_flags(argv: list[str], name: str, want: Any):
    assert getattr(flags(*argv), name) == want


def test_a_text_may_be_the_word_none() -> None:
    """As the text that is to be judged, or as the name of a folder; a number may still be none."""
    assert flags("--save-total-limit", "none").save_total_limit is None
    found = from_flags(DetectConfig, argparse.Namespace(), model="null", text="None", file=None)
    assert (found.model, found.text, found.file) == ("null", "None", None)


def test_a_wrong_flag_value_is_a_user_error_and_names_the_flag():
    for argv, message in (
        (["--max-steps", "many"], "--max-steps must be of type int, not 'many'"),
        (["--bf16", "corpus.txt"], "--bf16 must be true or false, not 'corpus.txt'"),
        (["--tie", "embedding"], "--tie cannot be 'embedding'; did you mean 'embeddings'?"),
    ):
        with pytest.raises(UserError) as e:
            flags(*argv)
        assert str(e.value) == message


def test_the_opposite_flag_leaves_the_next_word_alone():
    parser = argparse.ArgumentParser()
    parser.add_argument("inputs", nargs="+")
    add_flags(parser, Options)
    given = parser.parse_args(["--no-bf16", "corpus.txt"])
    assert (given.inputs, given.bf16) == (["corpus.txt"], "false")


def test_help_shows_documentation_and_default(capsys):
    with pytest.raises(SystemExit):
        flags("--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert "--max-steps N, --max_steps N Updates of the whole run." in shown
    assert "Peak, 100 % of it. [0.0005]" in shown
    assert "--tie {embeddings,none,all} What is shared. [embeddings]" in shown
    assert "--bf16 [true|false] Autocast. [True]" in shown
    assert "--no-bf16 the same as --bf16 false" in shown
    assert "--term-weights NAME=X,..." in shown
    assert "--save-total-limit N" in shown
    assert "no-docstring" not in shown


def test_fixed_values_stand_beside_the_flags():
    parser = argparse.ArgumentParser()
    add_flags(parser, Options, skip=("max_steps",))
    namespace = parser.parse_args(["--tie", "all"])
    namespace.verb = "pretrain"  # what is not a field is left out
    assert from_flags(Options, namespace, max_steps=3) == Options(max_steps=3, tie="all")


def test_words_of_the_command_line_are_taken_as_they_are() -> None:
    """A folder may be called `m `; what stands between commas has spaces around it by custom."""
    assert convert(["m ", " n"], tuple[str, ...], "models") == ("m ", " n")
    assert convert("m , n", tuple[str, ...], "models") == ("m", "n")
