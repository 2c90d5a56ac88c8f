from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches import tiny
from electrify.config import own
from electrify.config.checks import check
from electrify.config.pretrain import (
    SECTIONS,
    PretrainConfig,
    dump,
    load_file,
    load_recipe,
    override,
    parse,
    recipe_names,
    section_of,
)
from electrify.config.recipe_files import shipped_values
from electrify.config.sections import CorruptionConfig
from electrify.config.stages import stages_of
from electrify.errors import UserError

ELECTRA, BERT = load_recipe("electra-tiny"), load_recipe("bert-tiny")
CORRECTIVE = load_recipe("corrective-tiny")


# ---------------------------------------------------------------- reading and writing


def test_a_change_of_the_values_of_a_recipe_is_not_kept() -> None:
    """They are read once."""
    values = shipped_values("electra-tiny")
    values["objective"]["term_weights"]["rtd"] = 7.0
    values["data"]["max_seq_length"] = 8
    assert load_recipe("electra-tiny") == ELECTRA
    assert load_recipe("corrective-tiny") == CORRECTIVE, "it is like that one"


@pytest.mark.parametrize("name", recipe_names())
def test_dump_and_parse(name: str) -> None:
    config = load_recipe(name)
    assert parse(dump(config), "here") == config


positive = st.integers(1, 10**9)
share = st.floats(0, 1, exclude_max=True)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "max_steps": positive,
    "learning_rate": st.floats(1e-12, 1e3),
    "adam_epsilon": st.floats(1e-37, 1),
    "mask_mix": st.tuples(share, share, share),
    "term_weights": st.dictionaries(
        st.sampled_from(["mlm", "rtd", "generator", "0", "null"]), st.floats(0, 1e6), max_size=3
    ),
    "generator_learning_rate": st.none() | st.floats(1e-9, 1),
    "save_total_limit": st.none() | positive,
    "max_minutes": st.none() | st.floats(0.1, 1e4),
    "report_to": st.lists(st.sampled_from(["tensorboard", "none", "yes", "1"]), max_size=2).map(
        tuple
    ),
    "init_discriminator": st.none()
    | st.sampled_from(["google/electra-small", "a: b", "123", "~/x", "#1", "on"]),
    "device": st.sampled_from(["cpu", "cuda:1", "0"]),
    "bf16": st.booleans(),
    "seed": st.integers(0, 2**63 - 1),
    "tie": st.sampled_from(["embeddings", "none", "tokens", "all", "lower", "gdes"]),
    "tie_layers": st.none() | positive,
    "generator_dropout": st.none() | share,
    "init_scale": st.sampled_from(["none", "depth"]),
    "init_rtd_bias": st.sampled_from(["zero", "replaced"]),
    "clip": st.sampled_from(["together", "apart"]),
    "generator_warmup_steps": st.none() | positive,
    "generator_weight_decay": st.none() | st.floats(0, 1),
    "mask_rate_end": st.none() | share,
    "mask_unit": st.sampled_from(["token", "word", "span"]),
    "span_length": positive,
    "temperature_end": st.none() | st.floats(1e-9, 1e9),
    "temperature_schedule": st.sampled_from(["linear", "exponential"]),
    "temperature_decay": st.floats(1e-9, 1e9),
}
OWN: dict[str, st.SearchStrategy[Any]] = {
    "correction": st.sampled_from(["plain", "gate", "copy", "none"]),
    "rtd_head": st.sampled_from(["dense", "linear", "v3"]),
    "mlm_share": share,
    "contrast_rows": positive,
    "contrast_temperature": st.floats(1e-9, 1e9),
    "crop_share": share,
}


@given(
    st.fixed_dictionaries({}, optional=FIELDS),
    st.none() | st.fixed_dictionaries({}, optional=OWN),
)
def test_dump_and_parse_any_values(fields: dict[str, Any], own: dict[str, Any] | None) -> None:
    """Values that YAML would read as something else (`none`, `on`, `123`, 1e-05) come back as they
    were. own: options of corrective, or None for rtd."""
    config = ELECTRA if own is None else override(CORRECTIVE, own)
    for name, value in fields.items():
        section = section_of()[name]
        config = dataclasses.replace(
            config, **{section: dataclasses.replace(getattr(config, section), **{name: value})}
        )
    assert parse(dump(config), "here") == override(
        config, {}
    )  # weights that were emptied are the objective's own


def test_a_bare_field_is_the_section_field() -> None:
    changed = override(
        ELECTRA,
        {
            "max_steps": "1e3",
            "bf16": "false",
            "mask_mix": "0.8, 0.1,0.1",
            "term_weights": "generator=1,rtd=20",
            "max_minutes": "none",
        },
    )
    assert (changed.train.max_steps, changed.train.bf16, changed.corruption.mask_mix) == (
        1000,
        False,
        (0.8, 0.1, 0.1),
    )
    assert changed.objective.term_weights == {"generator": 1.0, "rtd": 20.0}
    assert changed.train.max_minutes is None
    assert changed.model == ELECTRA.model
    assert override(ELECTRA, {}) == ELECTRA


def test_field_names_are_unique_across_sections() -> None:
    assert len(section_of()) == sum(len(own.fields_of(cls)) for cls in SECTIONS.values())
    for cls in SECTIONS.values():
        assert not own.option_types(cls).keys() & {field.name for field in dataclasses.fields(cls)}
    assert list(SECTIONS) == ["model", "corruption", "objective", "data", "train"]


# ---------------------------------------------------------------- mistakes in a file


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"max_stepps": 3}, r"there is no field 'max_stepps'; did you mean 'max_steps'\?"),
        ({"lerning_rate": 3}, r"did you mean 'learning_rate'\?"),
        ({"xyzzy": 1}, r"no field 'xyzzy'; known: .*max_steps"),
        ({"max_steps": "ten"}, "--max-steps must be of type int, not 'ten'"),
        ({"max_steps": 1.5}, "--max-steps must be of type int"),
        ({"max_steps": "inf"}, "--max-steps must be of type int"),
        ({"max_steps": True}, "--max-steps must be of type int"),
        ({"bf16": "perhaps"}, "--bf16 must be true or false"),
        ({"learning_rate": "fast"}, "--learning-rate must be of type float"),
        ({"tie": "embedding"}, r"--tie cannot be 'embedding'; did you mean 'embeddings'\?"),
        ({"mask_mix": "a,b,c"}, "--mask-mix must be of type float"),
        ({"mask_mix": 3}, "--mask-mix must be"),
        ({"term_weights": "rtd"}, "--term-weights must be"),
        ({"term_weights": "rtd=x"}, "--term-weights must be of type float"),
    ],
    ids=str,
)
def test_wrong_fields(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        override(ELECTRA, fields)


def text_with(old: str, new: str) -> str:
    text = dump(ELECTRA)
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("model: [", r"here is not valid YAML"),
        ("model: !!python/object:os.system {}", r"here is not valid YAML"),
        ("", "here must have the sections model, corruption, objective, data, train"),
        ("- 1", "here must have the sections"),
        ("just text", "here must have the sections"),
        ("model: {}", "here, section model lacks the fields num_hidden_layers, hidden_size"),
        ("model: 7", "here, section model must be a mapping of fields, not 7"),
        (text_with("model:", "modell:"), r"here has no section 'modell'; did you mean 'model'\?"),
        (
            text_with("train:\n", "max_steps: 3\ntrain:\n"),
            "here has no section 'max_steps'; max_steps belongs to the section train",
        ),
        (text_with("train:\n", "5: 3\ntrain:\n"), "here has no section 5"),
        ("recipe: electra-tiny", "here has no section 'recipe'; `like: RECIPE` takes what"),
        ("model: {}", "lacks the fields .*; `like: RECIPE` takes them from a shipped recipe"),
        (
            text_with("  max_steps:", "  max_step:"),
            r"here, section train has no field 'max_step'; did you mean 'max_steps'\?",
        ),
        (text_with("  hidden_size: 128\n", ""), "here, section model lacks the field hidden_size"),
        (
            text_with("hidden_size: 128", "hidden_size: wide"),
            "here, section model: hidden_size must be of type int, not 'wide'",
        ),
        (
            text_with("hidden_size: 128", "hidden_size: [1]"),
            "here, section model: hidden_size must be of type int",
        ),
        (
            text_with("hidden_size: 128", "hidden_size:"),
            "here, section model: hidden_size must be of type int, not None",
        ),
    ],
    ids=lambda v: v[:40],
)
def test_wrong_text(text: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        parse(text, "here")


def test_wrong_files(tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text(dump(ELECTRA), encoding="utf-8")
    assert load_file(good) == ELECTRA
    (tmp_path / "latin.yaml").write_bytes("größe".encode("latin-1"))
    for path in (tmp_path / "none.yaml", tmp_path, tmp_path / "latin.yaml"):
        with pytest.raises(
            UserError, match=f"the recipe {path} (cannot be read|is not UTF-8 text)"
        ):
            load_file(path)
    with pytest.raises(
        UserError, match=r"there is no recipe 'electra-tinny'; did you mean 'electra-tiny'\?"
    ):
        load_recipe("electra-tinny")
    with pytest.raises(UserError, match="there is no recipe"):
        load_recipe("../errors")


# ---------------------------------------------------------------- numbers that cannot work together

FROZEN: dict[str, Any] = {
    "generator_training": "frozen",
    "tie": "none",
    "term_weights": {"rtd": 50.0},
}
ELECTRIC: dict[str, Any] = {
    "corruptor": "two_tower",
    "objective": "electric",
    "term_weights": {"generator": 1.0, "nce": 1.0},
}
ADVERSARIAL: dict[str, Any] = {
    "objective": "adversarial",
    "term_weights": {"rtd": 50.0, "reinforce": 1.0, "baseline": 1.0},
}
RTD_WEIGHTS = {"generator": 1.0, "rtd": 50.0}
UNIGRAM: dict[str, Any] = {"corruptor": "unigram", "term_weights": {"rtd": 50.0}}
DRAWING: list[dict[str, Any]] = [
    {"temperature": 2.0},
    {"temperature_end": 2.0},
    {"disallow_correct": True},
]
ELECTRA_CASES: list[tuple[dict[str, Any], str]] = [
    ({"num_attention_heads": 3}, "hidden_size 128 is not a multiple of num_attention_heads 3"),
    *[
        ({name: n}, f"{name} must be positive, not {n}")
        for name in ("num_hidden_layers", "hidden_size", "intermediate_size")
        for n in (0, -1)
    ],
    *[
        ({name: 0}, f"{name} must be positive, not 0")
        for name in ("num_attention_heads", "embedding_size", "max_position_embeddings")
    ],
    ({"max_seq_length": 513}, "max_seq_length 513 exceeds max_position_embeddings 512"),
    ({"max_seq_length": 7}, "max_seq_length 7 is too short"),
    ({"num_segments": 3}, "num_segments is 1 or 2"),
    ({"num_segments": 0}, "num_segments is 1 or 2"),
    *[
        ({"mask_rate": r}, "mask_rate must lie between 0 and 1")
        for r in (0, 1, -0.1, 1.5, math.nan)
    ],
    *[
        ({"mask_mix": m}, "must be three shares that sum to 1")
        for m in ((1.0,), (0.5, 0.5), (0.9, 0.2, -0.1), (0.8, 0.1, 0.2), (math.nan, 0.5, 0.5), ())
    ],
    *[({"temperature": t}, "temperature must be positive") for t in (0, -1, math.nan)],
    (
        {"corruptor": "mask"},
        "objective rtd needs corruptor generator or mixture or two_tower or uniform or unigram",
    ),
    (
        {"objective": "mlm", "term_weights": RTD_WEIGHTS},
        r"term_weights must name \['generator', 'mlm'\], not \['generator', 'rtd'\]",
    ),
    (
        {"objective": "electric"},
        "objective electric needs corruptor two_tower or uniform or unigram, not generator",
    ),
    (
        {"objective": "all_tokens", "corruptor": "two_tower"},
        "objective all_tokens needs corruptor generator or uniform or unigram, not two_tower",
    ),
    (
        {"objective": "adversarial", "term_weights": RTD_WEIGHTS},
        r"term_weights must name \['baseline', 'reinforce', 'rtd'\]",
    ),
    (
        {"corruptor": "unigram"},
        r"must name \['rtd'\], not .* because corruptor unigram has no loss `generator`; give",
    ),
    (
        {"corruptor": "uniform", "term_weights": {"rtd": 1.0}, "temperature": 2.0},
        "are for learned corruptors, not uniform",
    ),
    *[({"clean_rate": r}, r"clean_rate must lie in \[0, 1\)") for r in (1, -0.1, math.nan)],
    (
        {"term_weights": {"generator": 1.0, "rtd": 50.0, "sentence": 1.0}},
        "needs objective rtd and a clean_rate above 0",
    ),
    (
        {
            "objective": "all_tokens",
            "term_weights": {"generator": 1.0, "all_tokens": 1.0},
            "loss_on": "chosen",
        },
        "loss_on chosen is for objective rtd",
    ),
    ({"temperature_end": 0}, "temperature_end must be positive"),
    (
        {"generator_training": "frozen", "term_weights": {"rtd": 50.0}},
        "a frozen generator needs tie none or gdes",
    ),
    (
        {"generator_training": "frozen", "tie": "none", "term_weights": {"rtd": 50.0}},
        "a frozen generator needs generator_steps, or an init_generator",
    ),
    ({"generator_steps": 10}, "say --generator-training frozen with it"),
    (
        {"discriminator_start": "random"},
        "discriminator_start random is for two stages: it needs generator_steps",
    ),
    *[
        ({**ADVERSARIAL, **f}, "objective adversarial is exact for plain draws only")
        for f in DRAWING
    ],
    *[
        ({**ELECTRIC, **f}, "objective electric is exact for plain draws only")
        for f in (*DRAWING, {"clean_rate": 0.1}, {"mask_choice": "rare"})
    ],
    (
        ELECTRIC | {"init_generator": "there"},
        "init_generator is for corruptor generator, not two_tower",
    ),
    (UNIGRAM | {"generator_learning_rate": 1e-3}, "no generator is trained here"),
    (
        FROZEN | {"init_generator": "there", "generator_learning_rate": 1e-3},
        "no generator is trained here",
    ),
    (
        UNIGRAM | {"generator_hidden_size": 64},
        "generator_hidden_size: corruptor unigram has no generator",
    ),
    *[
        ({name: 0}, f"{name} must be positive")
        for name in ("generator_hidden_size", "generator_num_hidden_layers")
    ],
    (
        {"generator_hidden_size": 4, "generator_num_attention_heads": 4},
        "init local needs heads and embeddings at least 4 wide, not 1",
    ),
    ({"generator_steps": -1}, "generator_steps cannot be negative"),
    (FROZEN | {"generator_steps": 10, "init_generator": "there"}, "exclude each other"),
    (
        FROZEN | {"generator_steps": 10},
        "needs generator_size 1 and no init_discriminator; or say --discriminator-start random",
    ),
    (
        {"corruptor": "two_tower", "tie": "all", "generator_size": 1},
        "tie all is for corruptor generator",
    ),
    ({"generator_hidden_size": -8}, "generator_hidden_size must be positive"),
    ({"generator_hidden_size": 99}, "the generator gets 2 attention heads over 99"),
    ({"term_weights": {"rtd": 50.0}}, r"term_weights must name \['generator', 'rtd'\]"),
    ({"term_weights": {"generator": 1.0, "rtd": 50.0, "mlm": 1.0}}, "term_weights must name"),
    *[
        ({"term_weights": {"generator": 1.0, "rtd": w}}, "term_weights must be 0 or more")
        for w in (-1.0, math.nan, math.inf)
    ],
    ({"term_weights": {"generator": 0.0, "rtd": 0.0}}, "not all 0"),
    (
        {"tie": "all"},
        (
            "tie all shares every encoder weight and needs generator_size 1: the generator has "
            "hidden_size 64 for 128"
        ),
    ),
    *[
        ({"generator_size": s}, r"generator_size must lie in \(0, 1\]")
        for s in (0, -0.5, 1.5, math.nan)
    ],
    (
        {"hidden_size": 132, "num_attention_heads": 6, "generator_size": 0.75},
        "the generator gets 4 attention heads over 99",
    ),
    *[
        ({name: r}, r"dropout and attention_dropout must lie in \[0, 1\)")
        for name in ("dropout", "attention_dropout")
        for r in (1, -0.1, math.nan)
    ],
    *[
        ({"local_amplitude": a}, "local_amplitude must be positive")
        for a in (0, -3, math.inf, math.nan)
    ],
    (
        {"num_attention_heads": 64, "generator_size": 1},
        "init local needs heads and embeddings at least 4 wide, not 2",
    ),
    ({"embedding_size": 2}, "init local needs heads and embeddings at least 4 wide, not 2"),
    *[
        ({name: 0}, f"{name} must be positive")
        for name in (
            "max_steps",
            "train_batch_size",
            "logging_steps",
            "save_steps",
            "learning_rate",
            "eval_rows",
        )
    ],
    ({"learning_rate": math.nan}, "learning_rate must be positive"),
    ({"adam_epsilon": 0}, "adam_epsilon must be positive"),
    (
        {
            "corruptor": "unigram",
            "clean_rate": 0.2,
            "term_weights": {"generator": 1.0, "rtd": 7.0, "sentence": 2.0},
        },
        "has no loss `generator`; give term_weights rtd=7,sentence=2",
    ),
    ({"adam_epsilon": 1e-60}, "adam_epsilon 1e-60 is too small for numbers of 32 bits; give at"),
    *[
        ({name: -1}, f"{name} cannot be negative")
        for name in ("warmup_steps", "eval_steps", "weight_decay", "max_grad_norm")
    ],
    *[
        ({name: 0}, f"{name} must be positive")
        for name in (
            "per_device_train_batch_size",
            "gradient_accumulation_steps",
            "save_total_limit",
            "max_minutes",
        )
    ],
    ({"generator_learning_rate": 0}, "generator_learning_rate must be positive"),
    *[
        ({name: b}, rf"{name} must lie in \[0, 1\)")
        for name in ("adam_beta1", "adam_beta2")
        for b in (1, -0.1, math.nan)
    ],
    *[
        ({name: schedule}, f"the shares of {name} must be positive and sum to less than 1")
        for name in ("seq_length_schedule", "batch_size_schedule")
        for schedule in ({8: 0.0}, {8: -0.1}, {8: 1.0}, {8: 0.5, 16: 0.5}, {8: math.nan})
    ],
    (
        {"seq_length_schedule": {4: 0.5}},
        "seq_length_schedule: rows of 4 tokens; at least 8, at most max_position_embeddings 512",
    ),
    ({"seq_length_schedule": {1024: 0.5}}, "seq_length_schedule: rows of 1024 tokens"),
    ({"batch_size_schedule": {0: 0.5}}, "batch_size_schedule: batches must be positive, not 0"),
    (
        {"batch_size_schedule": {4: 0.5}, "non_finite": "rollback"},
        "non_finite rollback moves batches forward: it cannot go with a schedule",
    ),
    ({"max_non_finite": -1}, "max_non_finite cannot be negative: -1"),
    *[({"seed": s}, "seed must lie between 0 and") for s in (-1, 2**63)],
]


@pytest.mark.parametrize(("fields", "sentence"), ELECTRA_CASES, ids=str)
def test_check_refuses(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        check(override(ELECTRA, fields))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"corruptor": "generator"}, r"term_weights must name \['generator', 'mlm'\]"),
        (
            {"corruptor": "two_tower"},
            "objective mlm needs corruptor generator or mask or uniform or unigram, not two_tower",
        ),
        ({"objective": "rtd"}, "objective rtd needs corruptor generator"),
        ({"term_weights": {"generator": 1.0, "rtd": 50.0}}, r"term_weights must name \['mlm'\]"),
    ],
    ids=str,
)
def test_check_refuses_bert(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        check(override(BERT, fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"generator_size": 1, "tie": "all"},
        {"tie": "none"},
        {"tie": "gdes"},
        {"generator_size": 0.125},  # half a head is one
        {
            "generator_hidden_size": 96,
            "generator_num_hidden_layers": 1,
            "generator_num_attention_heads": 3,
            "generator_intermediate_size": 100,
        },
        FROZEN | {"generator_steps": 10, "discriminator_start": "random"},
        FROZEN | {"generator_steps": 10, "generator_size": 1},
        FROZEN | {"init_generator": "there", "tie": "gdes"},
        {"objective": "mlm"},
        {"objective": "mlm", "term_weights": {"generator": 1.0, "mlm": 1.0}},
        {"objective": "adversarial"},
        {"objective": "mlm", "loss_on": "all"},  # the default of another objective's option
        {"corruptor": "two_tower"},
        ADVERSARIAL | {"generator_steps": 10, "discriminator_start": "random"},
        FROZEN | {"generator_steps": 10, "generator_size": 1, "generator_learning_rate": 1e-3},
        ELECTRIC,
        {"clean_rate": 0.2, "term_weights": {"generator": 1.0, "rtd": 50.0, "sentence": 1.0}},
        {"clean_rate": 0.2},
        {
            "disallow_correct": True,
            "temperature": 2.0,
            "temperature_end": 1.0,
            "mask_unit": "word",
            "mask_choice": "rare",
        },
        {"init": "bert", "num_attention_heads": 128, "generator_size": 1},
        {
            "eval_steps": 0,
            "warmup_steps": 0,
            "max_grad_norm": 0,
            "weight_decay": 0,
            "adam_beta1": 0,
        },
        {"warmup_steps": 10**9},
        {"seed": 2**63 - 1},
        {"term_weights": {"generator": 1.0, "rtd": 0.0}},
        {"max_seq_length": 512},
        {"max_seq_length": 8},
    ],
    ids=str,
)
def test_check_allows(fields: dict[str, Any]) -> None:
    check(override(ELECTRA, fields))


def test_tiny_recipes_of_the_tests_are_possible(tiny_config: PretrainConfig) -> None:
    check(tiny_config)
    check(tiny("electra-tiny", generator_size=0.25))


def test_every_refusal_is_one_line() -> None:
    for fields, _ in ELECTRA_CASES:
        with pytest.raises(UserError) as e:
            check(override(ELECTRA, fields))
        assert "\n" not in str(e.value)


# ---------------------------------------------------------------- two stages


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaterCorruption(CorruptionConfig):
    """A section with an option that does not exist yet."""

    later: float = 0.0


def test_a_first_stage_keeps_which_tokens_are_chosen_and_no_other_corruption() -> None:
    chosen: dict[str, Any] = {"mask_rate": 0.3, "mask_mix": (0.8, 0.1, 0.1), "mask_unit": "span"}
    chosen |= {"span_length": 5, "mask_choice": "rare"}
    others: dict[str, Any] = {"mask_rate_end": 0.4, "clean_rate": 0.1, "temperature": 0.9}
    others |= {"temperature_end": 0.5, "temperature_schedule": "exponential"}
    others |= {"temperature_decay": 0.2, "disallow_correct": True, "later": 1.0}
    others |= {"generator_training": "frozen", "corruptor": "generator"}
    corruption = LaterCorruption(**chosen, **others)
    assert {*chosen, *others, "options"} == {f.name for f in dataclasses.fields(corruption)}
    stages = {"generator_steps": 10, "discriminator_start": "random", "tie": "none"}
    config = override(ELECTRA, stages | {"max_steps": 30})
    first, second = stages_of(dataclasses.replace(config, corruption=corruption))
    assert second.corruption is corruption
    assert first.corruption == CorruptionConfig(corruptor="mask", **chosen)
    assert (first.objective.objective, first.objective.term_weights) == ("mlm", {"mlm": 1.0})
    assert (first.train.max_steps, stages_of(first)) == (10, [first])


@pytest.mark.parametrize("name", [n for n in recipe_names() if n.startswith(("two-stage", "fast"))])
def test_both_stages_of_a_recipe_go_together(name: str) -> None:
    config = load_recipe(name)
    first, second = stages_of(config)
    assert second is config
    check(first)
    numbers = config.model.generator_numbers()
    assert {n: getattr(first.model, n) for n in numbers} == numbers
