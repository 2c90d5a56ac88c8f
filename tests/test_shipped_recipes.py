"""Shipped recipes: their values are pinned, published numbers are the papers', costs are the count,
and what a file, a flag or a change after a colon makes of them."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from electrify import recipe as r
from electrify.errors import UserError
from electrify.rules import cautions, check

NAMES = r.names()
DIGESTS = json.loads((Path(__file__).parent / "recipes" / "digests.json").read_text())


def digest(recipe: r.Recipe) -> str:
    """Of the values that belong to the recipe, by section."""
    values: dict[str, dict[str, Any]] = {s: {} for s in r.SECTIONS}
    for name, value in r.values_of(recipe).items():
        values[r.SECTION_OF[name]][name] = value
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def test_every_recipe_has_its_pinned_values() -> None:
    """The digests are those of the 117 files that the rows replaced."""
    assert len(NAMES) == 117
    assert {name: digest(r.load(name)) for name in NAMES} == DIGESTS


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_breaks_no_rule_and_reads_back(name: str) -> None:
    recipe = r.load(name)
    check(recipe)
    assert r.parse(r.dump(recipe), "dumped") == recipe
    about = r.description(name)
    assert about.keys() >= {"about", "source", "hardware"}


PAPER = {  # 2003.10555, Table 6 and section 3
    "small": (128, 128, 5e-4),
    "base": (512, 256, 2e-4),
    "large": (512, 2048, 2e-4),
}
STEPS = {
    "electra-small": 1_000_000,
    "bert-small": 1_450_000,
    "electra-base": 766_000,
    "bert-base": 1_000_000,
    "electra-large": 400_000,
    "bert-large": 464_000,
}


@pytest.mark.parametrize("name", STEPS)
def test_published_numbers(name: str) -> None:
    c = r.load(name)
    t, m = c.train, c.model
    sizes = (c.data.max_seq_length, t.train_batch_size, t.learning_rate)
    assert (*sizes, t.max_steps) == (*PAPER[name.split("-")[1]], STEPS[name])
    assert (t.warmup_steps, t.lr_scheduler_type, t.optim) == (10_000, "electra", "electra_adam")
    adam = (t.weight_decay, t.adam_beta1, t.adam_beta2, t.adam_epsilon, t.max_grad_norm)
    assert adam == (0.01, 0.9, 0.999, 1e-6, 1.0)
    assert (m.dropout, m.attention_dropout, m.init) == (0.1, 0.1, "bert")
    if name.startswith("electra"):
        assert c.corruption.mask_rate == (0.25 if name == "electra-large" else 0.15)
        assert c.objective.term_weights == {"generator": 1.0, "rtd": 50.0}
    else:
        assert c.corruption.mask_mix == (0.8, 0.1, 0.1)


def test_the_released_models() -> None:
    """README of google-research/electra: Small++ has a generator of its own size and 4e6 steps, the
    large model has 1.75M steps."""
    small, large = r.load("electra-small-pp"), r.load("electra-large-1.75M")
    published = {"generator_size": 0.25, "init": "bert", "max_steps": 1_000_000}
    assert (small.model.generator_size, small.train.max_steps) == (1.0, 4_000_000)
    assert r.override(small, published) == r.load("electra-small")
    assert r.override(large, {"init": "bert", "max_steps": 400_000}) == r.load("electra-large")


def test_a_file_states_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("like: electra-tiny\ntrain: {max_steps: 7, learning_rate: 1e-4}\n")
    expected = r.override(r.load("electra-tiny"), {"max_steps": 7, "learning_rate": 1e-4})
    assert r.load(path) == expected
    path.write_text(r.dump(expected))
    assert r.load(str(path)) == expected


def test_another_method_begins_with_its_own_options_and_weights() -> None:
    """By a file or a flag."""
    recipe = r.override(r.load("coco-lm-tiny"), {"objective": "rtd"})
    assert recipe == r.parse("like: coco-lm-tiny\nobjective: {objective: rtd}\n", "mine.yaml")
    o = recipe.objective
    assert o.term_weights == {"generator": 1.0, "rtd": 50.0}
    assert (o.correction, o.contrast_rows, o.rtd_head) == ("plain", 0, "dense")
    same = r.override(r.load("coco-lm-tiny"), {"objective": "corrective"})
    assert same == r.load("coco-lm-tiny")
    unigram = r.override(r.load("amos-tiny"), {"corruptor": "unigram", "term_weights": "rtd=50"})
    assert unigram.corruption.read_outs == ()
    electra = r.override(r.load("electra-modernbert-tiny"), {"architecture": "electra"})
    assert electra.model.local_attention == 128


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_steps", True),
        ("max_steps", "1:30"),
        ("mask_rate", float("nan")),
        ("tie", "embedings"),
        ("mlm_share", 0.4),
        ("read_outs", "1,2"),
    ],
)
def test_a_wrong_value_is_refused_by_its_field(field: str, value: Any) -> None:
    with pytest.raises(UserError, match=field):
        r.override(r.load("electra-tiny"), {field: value})


def test_stages_batches_and_periods() -> None:
    first, second = r.stages_of(r.load("two-stage-tiny"))
    assert (first.objective.objective, first.corruption.corruptor) == ("mlm", "mask")
    assert (first.train.max_steps, first.train.generator_steps) == (5000, 0)
    assert second == r.load("two-stage-tiny")
    split = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 3}
    recipe = r.override(r.load("electra-tiny"), split)
    assert r.with_batch(recipe, processes=2).train.train_batch_size == 24
    assert r.first_steps({32: 0.5}, 64, 10) == {0: 32, 5: 64}
    late = r.override(r.load("corrective-tiny"), {"mlm_share": 0.4, "max_steps": 10})
    assert r.first_asked(late) == 4
    assert list(cautions(r.override(r.load("electra-tiny"), {"max_steps": 100})))


OWN = """
class Focal:
    corruptors = ("generator",)
    losses = {"focal": 20.0}
    title = "focal discriminator"
    tag = "focal"
    asked = {"focal": "to detect with gamma {gamma}"}

    @classmethod
    def build(cls, parts, *, gamma):
        return gamma
"""


def test_an_objective_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a file or a flag that the user gives, never by a folder's config."""
    (tmp_path / "own_focal.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = "{objective: 'own_focal:Focal', objective_options: {gamma: 2}}"
    text = f"like: electra-tiny\nobjective: {own}\n"
    with pytest.raises(UserError, match="own_focal:Focal"):
        r.parse(text, "config.yaml", trusted=False)
    assert "own_focal" not in sys.modules
    recipe = r.parse(text, "mine.yaml")
    check(recipe)
    o = recipe.objective
    assert o.term_weights == {"generator": 1.0, "focal": 20.0}
    assert o.options == {"gamma": 2}
    assert r.parse(r.dump(recipe), "config.yaml", trusted=False) == recipe
    flags = {"objective": "own_focal:Focal", "objective_options": "gamma=2"}
    assert r.override(r.load("electra-tiny"), flags) == recipe
    for name in ("own_focal:Fokal", "nowhere:Focal"):
        with pytest.raises(UserError, match=name):
            r.override(r.load("electra-tiny"), {"objective": name})
