"""One table and one picture from several output folders of `electrify finetune` (other settings,
other machines, runs side by side).

    python benchmarks/merge_finetune.py OUT [OUT ...] --names SUFFIX=SHOWN,... [--picture FILE.png]

A model is named by the first SUFFIX that its label in scores.jsonl ends with. The table has the
first metric of each task, and all of a task of one's own: median (lowest - highest).
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

from pairs import table

from electrify.errors import UserError
from electrify.finetuning.report import draw_scores, percent, picture, report_of
from electrify.finetuning.tasks import TASKS


def records_of(folders: list[str], names: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Every run, its model under the name to show, in the order of the names. Raises UserError
    where two folders hold the same one."""
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    for folder in folders:
        for line in (Path(folder) / "scores.jsonl").read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            shown = next(
                (show for suffix, show in names if record["model"].endswith(suffix)),
                record["model"],
            )
            key = shown, record["task"], record["seed"]
            if key in found:
                raise UserError(f"{folder}: holds {key} once more")
            found[key] = {"point": "", **record, "model": shown}
    order = [show for _, show in names]
    return sorted(
        found.values(),
        key=lambda r: (order.index(r["model"]) if r["model"] in order else len(order), r["seed"]),
    )


def metrics_of(records: list[dict[str, Any]]) -> dict[str, tuple[str, ...]]:
    """By task: the first metric of a known one, all that the first record of any other has."""
    found = {r["task"]: tuple(r["scores"]) for r in reversed(records)}
    known = {name: TASKS[name].metrics[:1] for name in TASKS if name in found}
    return known | {task: found[task] for task in sorted(found.keys() - known.keys())}


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("folders", nargs="+")
    p.add_argument(
        "--names", default="", help="suffix of a label=what to show, the longest suffix first"
    )
    p.add_argument("--picture")
    a = p.parse_args()
    names = [(pair.split("=", 1)[0], pair.split("=", 1)[1]) for pair in a.names.split(",") if pair]
    records = records_of(a.folders, names)
    tasks = metrics_of(records)
    report = report_of(records, tasks, settings={})
    models = list(dict.fromkeys(r["model"] for r in records))
    rows = []
    for task, metric in [(task, metric) for task, names in tasks.items() for metric in names]:
        mine = {row.model: row for row in report.rows if (row.task, row.metric) == (task, metric)}
        cells = [
            f"{percent(r.median)} ({percent(r.worst)} - {percent(r.best)})"
            if (r := mine.get(model))
            else ""
            for model in models
        ]
        some = next(iter(mine.values()))
        rows.append(
            [
                f"{task}, {metric.replace('_', ' ')}",
                f"{some.train_examples:,}",
                f"{some.validation_examples:,}",
                *cells,
            ]
        )
    print(table(["task", "trained on", "scored on", *models], rows))
    if a.picture and (png := picture(partial(draw_scores, report=report))):
        Path(a.picture).write_bytes(png)


if __name__ == "__main__":
    main()
