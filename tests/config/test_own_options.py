"""Options that an objective or an architecture has for itself, and the weights that a choice
brings."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from electrify.cli import parser
from electrify.config import own
from electrify.config.architectures import ARCHITECTURES
from electrify.config.checks import check
from electrify.config.corruptors import CORRUPTORS
from electrify.config.given import Checked
from electrify.config.objectives import OBJECTIVES, AllTokensOptions, RTDOptions
from electrify.config.pretrain import (
    ObjectiveConfig,
    dump,
    load_recipe,
    override,
    parse,
    section_of,
)
from electrify.config.rows import NoOptions
from electrify.errors import UserError

ELECTRA, BERT, CHOSEN = (
    load_recipe("electra-tiny"),
    load_recipe("bert-tiny"),
    load_recipe("electra-15-tiny"),
)


def text_with(recipe: str, **fields: Any) -> str:
    """A recipe as a file, further fields in its section `objective`."""
    raw = yaml.safe_load(dump(load_recipe(recipe)))
    raw["objective"] |= fields
    return yaml.safe_dump(raw)


def test_own_options_are_those_of_the_row() -> None:
    assert (ELECTRA.objective.options, BERT.objective.options) == (RTDOptions(), NoOptions())
    assert CHOSEN.objective.options == RTDOptions(loss_on="chosen")
    assert {"loss_on", "correct_as_replaced", "copy_gate"} <= {
        name for name, section in section_of().items() if section == "objective"
    }
    assert {"loss_on", "correct_as_replaced"} <= yaml.safe_load(dump(CHOSEN))["objective"].keys()
    assert "loss_on" not in yaml.safe_load(dump(BERT))["objective"]


@pytest.mark.parametrize(
    ("recipe", "fields", "says"),
    [
        ("bert-tiny", {"loss_on": "chosen"}, "loss_on chosen is for objective rtd, not mlm"),
        (
            "electric-tiny",
            {"correct_as_replaced": True},
            "correct_as_replaced is for objective rtd, not electric",
        ),
        (
            "electra-tiny",
            {"copy_gate": False},
            "copy_gate false is for objective all_tokens, not rtd",
        ),
        (
            "all-tokens-mlm-tiny",
            {"loss_on": "chosen", "copy_gate": False},
            "loss_on chosen is for objective rtd, not all_tokens",
        ),
    ],
)
def test_an_option_of_another_objective_is_refused(
    recipe: str, fields: dict[str, Any], says: str
) -> None:
    """In a file and over a recipe alike."""
    with pytest.raises(UserError, match=says):
        parse(text_with(recipe, **fields), "here")
    with pytest.raises(UserError, match=says):
        override(load_recipe(recipe), fields)


def test_at_its_default_it_says_nothing() -> None:
    """Files of runs of earlier versions hold the options of all objectives."""
    everywhere = {"loss_on": "all", "correct_as_replaced": False, "copy_gate": True}
    for recipe in ("bert-tiny", "electra-tiny", "all-tokens-mlm-tiny", "adversarial-tiny"):
        assert (
            parse(text_with(recipe, **everywhere), "here")
            == override(load_recipe(recipe), everywhere)
            == load_recipe(recipe)
        )


def test_what_is_no_value_is_named_whatever_the_objective() -> None:
    for config in (ELECTRA, BERT):
        with pytest.raises(UserError, match="--loss-on cannot be 'some'"):
            override(config, {"loss_on": "some"})
        with pytest.raises(UserError, match="--copy-gate must be true or false, not 'perhaps'"):
            override(config, {"copy_gate": "perhaps"})


def test_a_mistyped_option_finds_its_name() -> None:
    with pytest.raises(
        UserError, match=r"section objective has no field 'loss_onn'; did you mean 'loss_on'\?"
    ):
        parse(text_with("bert-tiny", loss_onn="all"), "here")


def test_a_file_has_options_among_the_other_fields() -> None:
    with pytest.raises(UserError, match="section objective has no field 'options': an option"):
        parse(text_with("electra-tiny", options={"loss_on": "all"}), "here")


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize(
    "recipe", ["electra-tiny", "bert-tiny", "electric-tiny", "electra-15-tiny"]
)
def test_another_objective_begins_with_its_own_weights_and_options(recipe: str, name: str) -> None:
    """As `--objective X --corruptor C` on the command line; the recipe's own objective stays as the
    recipe has it."""
    config, row = load_recipe(recipe), OBJECTIVES[name]
    corruptor = row.corruptors[0]
    words = ["pretrain", "x", "--output-dir", "y", "--objective", name, "--corruptor", corruptor]
    given = {k: v for k, v in vars(parser().parse_args(words)).items() if k in section_of()}
    assert given == {"objective": name, "corruptor": corruptor}
    found = override(config, given)
    if config.objective.objective == name:
        assert found.objective == config.objective
        return
    learns = {"generator": 1.0} if CORRUPTORS[corruptor].learned and not row.rewarded else {}
    assert found.objective == ObjectiveConfig(objective=name, term_weights=learns | row.losses)
    assert found.objective.options == row.options()
    check(found)
    assert parse(dump(found), "here") == found


def test_weights_that_are_given_stay() -> None:
    assert override(
        ELECTRA, {"objective": "mlm", "term_weights": "generator=1,mlm=3"}
    ).objective.term_weights == {"generator": 1.0, "mlm": 3.0}
    assert override(ELECTRA, {"objective": "rtd"}) == ELECTRA, "the objective that it has"
    weighted = override(ELECTRA, {"term_weights": "generator=1,rtd=20"})
    assert override(weighted, {"loss_on": "chosen"}).objective.term_weights == {
        "generator": 1.0,
        "rtd": 20.0,
    }


def test_there_and_back_forgets_the_options() -> None:
    assert (
        override(
            override(CHOSEN, {"objective": "all_tokens"}), {"objective": "rtd"}
        ).objective.options
        == RTDOptions()
    )
    mixed = override(CHOSEN, {"objective": "all_tokens", "copy_gate": "false"})
    assert mixed.objective.options == AllTokensOptions(copy_gate=False)


def test_the_options_of_every_row_check_their_types() -> None:
    for table in (ARCHITECTURES, CORRUPTORS, OBJECTIVES):
        assert all(issubclass(row.options, Checked) for row in table.values())


def test_options_of_no_two_rows_differ_in_their_defaults() -> None:
    """A file may hold an option beside an objective that lacks it: its default must be one."""
    for name, owner in own.option_types(ObjectiveConfig).items():
        for row in OBJECTIVES.values():
            if hasattr(row.options(), name):
                assert getattr(row.options(), name) == getattr(owner(), name)


@pytest.mark.parametrize(
    ("like", "section", "fields"),
    [
        ("electra-tiny", "objective", {"objective": "corrective"}),
        ("electra-tiny", "objective", {"objective": "corrective", "mlm_share": 0.4}),
        ("coco-lm-tiny", "objective", {"objective": "rtd"}),
        ("coco-lm-tiny", "objective", {"objective": "corrective"}),  # no change
        (
            "electra-tiny",
            "objective",
            {"objective": "selective", "term_weights": {"generator": 1, "rtd": 3, "select": 1}},
        ),
        ("electra-deberta-tiny", "model", {"architecture": "electra"}),
        ("amos-tiny", "corruption", {"corruptor": "generator"}),
    ],
    ids=str,
)
def test_a_file_that_is_like_a_recipe_resets_what_a_flag_resets(
    like: str, section: str, fields: dict[str, Any]
) -> None:
    text = yaml.safe_dump({"like": like, section: fields})
    assert parse(text, "here") == override(load_recipe(like), fields)
