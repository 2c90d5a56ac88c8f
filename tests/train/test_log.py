"""The record of a run: what is written, what a resumed run makes of it, and the sums between two
lines."""

import json
import math
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import CPU

from electrify.recipe import load, override
from electrify.terms import Term
from electrify.train import METRICS
from electrify.train.log import MetricsLog, MetricSums, numbers_of
from small import records


def open_log(run: Path, resume_step: int | None = None, *report_to: str) -> MetricsLog:
    recipe = override(load("bert-tiny"), {"report_to": report_to or ("none",), "mask_rate": 0.3})
    return MetricsLog(run, recipe, resume_step=resume_step, rank=0)


def strict(line: str) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(line, parse_constant=refuse)


def test_one_json_object_a_line_at_once_on_the_disk(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.write({"kind": "train", "step": 1, "loss": 1.5, "word": "naïve"})
        log.write({"kind": "event", "step": 1, "warning": "two\nlines", "rows": [1]})
        log.write({"kind": "train", "step": 1, "a": math.nan, "b": math.inf, "c": -math.inf})
        lines = (tmp_path / METRICS).read_text(encoding="utf-8").splitlines()  # still open
    assert lines == [
        '{"kind": "train", "step": 1, "loss": 1.5, "word": "naïve"}',
        '{"kind": "event", "step": 1, "warning": "two\\nlines", "rows": [1]}',
        '{"kind": "train", "step": 1, "a": "nan", "b": "inf", "c": "-inf"}',
    ]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(every=st.integers(1, 4), saved=st.integers(0, 12), data=st.data())
def test_a_broken_and_resumed_log_equals_an_unbroken_one(tmp_path, every, saved, data):
    """Killed at any byte after what was there when step `saved` was saved."""
    path = tmp_path / METRICS

    def leg(start: int, speed: float, resume_step: int | None) -> None:
        with open_log(tmp_path, resume_step) as log:
            for step in (s for s in range(start, 13) if s % every == 0):
                timing = {"seconds": step * speed, "tokens_per_s": speed}
                log.write({"kind": "train", "step": step, "loss": 1 / step} | timing)

    leg(1, 1.0, None)
    unbroken, lines = records(tmp_path), path.read_bytes().splitlines(keepends=True)
    on_disk = sum(len(line) for line in lines if strict(line.decode())["step"] <= saved)
    path.write_bytes(path.read_bytes()[: data.draw(st.integers(on_disk, sum(map(len, lines))))])
    leg(saved + 1, 2.0, saved)
    assert records(tmp_path) == unbroken
    assert all(strict(line) for line in path.read_text().splitlines())


def scalars(run: Path) -> dict[str, list[tuple[int, float]]]:
    """As TensorBoard itself reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    tags = events.Tags()["scalars"]
    shown = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags}
    # A forgotten tag keeps its name.
    return {tag: points for tag, points in shown.items() if points}


def test_tensorboard_shows_the_same_numbers_and_forgets_what_comes_again(tmp_path: Path) -> None:
    with open_log(tmp_path, None, "tensorboard") as log:
        for step in (1, 2, 3):
            log.write({"kind": "train", "step": step, "loss": step / 2, "text": "no number"})
        log.write({"kind": "valid", "step": 2, "auc": 0.75, "loss": math.nan})
        log.write({"kind": "event", "step": 2, "number": 1})
    assert scalars(tmp_path) == {
        "train/loss": [(1, 0.5), (2, 1.0), (3, 1.5)],
        "valid/auc": [(2, 0.75)],
    }
    with open_log(tmp_path, 1, "tensorboard") as log:
        log.write({"kind": "train", "step": 2, "loss": 7.0})
    assert scalars(tmp_path) == {"train/loss": [(1, 0.5), (2, 7.0)]}
    with open_log(tmp_path, None, "tensorboard") as log:  # a new run
        log.write({"kind": "train", "step": 1, "loss": 9.0})
    assert scalars(tmp_path) == {"train/loss": [(1, 9.0)]}


def test_wandb_is_sent_the_recipe_and_the_same_numbers(tmp_path: Path, monkeypatch) -> None:
    sent: list[Any] = []

    class Sent:
        def log(self, values: dict[str, float], step: int) -> None:
            sent.append((step, values))

        def finish(self) -> None:
            sent.append("finished")

    def init(**given: Any) -> Sent:
        sent.append(given)
        return Sent()

    stand_in = ModuleType("wandb")
    stand_in.__spec__, vars(stand_in)["init"] = ModuleSpec("wandb", None), init
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    for run, resumed in ((tmp_path / "a", None), (tmp_path / "a", 1), (tmp_path / "b", None)):
        run.mkdir(exist_ok=True)
        with open_log(run, resumed, "wandb") as log:
            log.write({"kind": "train", "step": 2, "loss": 0.5, "text": "no number"})
            log.write({"kind": "event", "step": 2, "number": 1})
    begun, numbers, end, again, _, _, other, *_ = sent
    assert begun == again  # the same id, so W&B continues the curves
    assert begun["id"] != other["id"]
    assert (begun["project"], begun["config"]["mask_rate"]) == ("mine", 0.3)
    assert (numbers, end) == ((2, {"train/loss": 0.5}), "finished")


# ------------------------------------------------------------------ sums between two lines


def add(sums: MetricSums, terms: dict[str, tuple[float, float]]) -> None:
    named = {n: Term(torch.tensor(total), torch.tensor(k)) for n, (total, k) in terms.items()}
    if named:
        sums.add([*named], numbers_of(named))


def test_means_by_hand() -> None:
    """A mean over all tokens, not a mean of means; names may come and go."""
    sums = MetricSums(CPU)
    assert sums.means() == {}
    add(sums, {"a": (6.0, 2), "b": (1.0, 1)})
    add(sums, {"a": (2.0, 6), "c": (0.0, 0)})
    assert sums.means() == {"a": 1.0, "b": 1.0}


finite = st.floats(-1e6, 1e6, width=32)
term_lists = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.tuples(finite, st.integers(0, 1000)), max_size=3),
    max_size=6,
)


@given(term_lists, term_lists)
def test_saved_and_loaded_continues_to_the_bit(before, after):
    """Through JSON, as the checkpoint does it."""
    unbroken, resumed = MetricSums(CPU), MetricSums(CPU)
    for terms in before:
        add(unbroken, terms)
    resumed.load(json.loads(json.dumps(unbroken.save())), rank=0)
    for terms in after:
        for sums in (unbroken, resumed):
            add(sums, terms)
    assert resumed.save() == unbroken.save()
