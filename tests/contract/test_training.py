"""Twenty updates of each recipe: losses, norms, validation, and the exported networks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import material
import numpy as np
import program as adapter
import yaml
from outcomes import BITS, Outcome
from program import Program, words

ROWS = yaml.safe_load(Path(__file__).with_name("recipes.yaml").read_text(encoding="utf-8"))
SMALL = ROWS.pop("small")


def recipe(folder: Path, name: str) -> Path:
    """A recipe file of the row, with the fields of `small`."""
    row = ROWS[name]
    sections = {s: SMALL.get(s, {}) | row.get(s, {}) for s in {**SMALL, **row} if s != "like"}
    text = yaml.safe_dump({"like": row["like"]} | sections)
    return material.write(folder / f"{name}.yaml", text)


def outcome(run: Path) -> Outcome:
    """What is measured of a finished run."""
    events = [[event["step"], event["topic"]] for event in adapter.events(run)]
    found: Outcome = {"log": adapter.metrics(run), "events": events, BITS: {}}
    if (run / "generator-stage").is_dir():
        found["first stage"] = adapter.metrics(run / "generator-stage")
    for part, folder in adapter.exports(run).items():
        arrays = adapter.tensors(folder / "model.safetensors").values()
        found[part] = {
            "tensors": len(arrays),
            "parameters": sum(a.size for a in arrays),
            "norm": float(
                np.sqrt(sum(float(np.square(a, dtype=np.float64).sum()) for a in arrays))
            ),
        }
        found[BITS][part] = adapter.bits(folder / "model.safetensors")
    return found


def test_recipes(agrees: Any, data_of: Callable[[Program], Path]) -> None:
    def measure(program: Program, folder: Path) -> Outcome:
        data = data_of(program)
        runs = {name: folder / f"run {i}" for i, name in enumerate(ROWS)}
        lines = [
            words("pretrain", data, recipe=recipe(folder, name), output_dir=run)
            for name, run in runs.items()
        ]
        failed = {n: d.err for n, d in zip(runs, program.batch(lines), strict=True) if d.status}
        assert not failed, failed
        return {name: outcome(run) for name, run in runs.items()}

    agrees("training", measure)


def test_shipped_recipes(agrees: Any) -> None:
    """Every field of one, and what differs from it in the others."""

    def measure(program: Program, folder: Path) -> Outcome:
        (done,) = program.batch([[adapter.RECIPES]])
        all_fields = json.loads(done.ok().out)
        for fields in all_fields.values():
            fields.pop("reduce_dtype", None)  # is gone: README.md
        base = all_fields["electra-small"]
        others = {
            name: {field: v for field, v in fields.items() if v != base.get(field)}
            for name, fields in all_fields.items()
        }
        return others | {"electra-small": base}

    agrees("shipped recipes", measure)


def test_flags_reach_the_recipe(program: Program, tmp_path: Path) -> None:
    """As they are written on a command line, with a text in place of a prepared corpus."""
    text = material.prose(tmp_path / "prose.txt", size=50_000)
    flags = {
        "term_weights": "generator=1,rtd=20",
        "mask_mix": "1,0,0",
        "seq_length_schedule": "16=0.9",
        "disallow_correct": True,
        "bf16": False,
        "max_steps": 2,
        "warmup_steps": 1,
        "temperature": 0.5,
        "tie": "none",
    }
    run = tmp_path / "run"
    program.one("pretrain", text, recipe=recipe(tmp_path, "electra"), output_dir=run, **flags)
    found = adapter.recipe_of(run)
    assert {name: found[name] for name in flags} == flags | {
        "term_weights": {"generator": 1.0, "rtd": 20.0},
        "mask_mix": [1.0, 0.0, 0.0],
        "seq_length_schedule": {16: 0.9},
    }
