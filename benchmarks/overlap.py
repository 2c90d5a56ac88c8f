"""Whether encoders that were fine-tuned on STS-B compare the two sentences: how their predictions
go with the scores, and with the share of words that the sentences have in common.

    python benchmarks/overlap.py STUDY/encoders/* --data-dir GLUE [--json FILE]

A folder is one that `electrify finetune --task stsb` wrote, whose models are a row each, or an
encoder of a study; encoders that differ in seed and budget alone are one row for each way of
measuring (`stsb`, `stsb-frozen`). Spearman's correlations on the development set: median (lowest -
highest) over all predictions.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from pairs import spread, table, write_json
from scipy.stats import spearmanr

from electrify.errors import UserError
from electrify.finetuning.baselines import overlap
from electrify.finetuning.known import read_task
from electrify.finetuning.tasks import TASKS
from electrify.studies.study import read_results
from electrify.text.streams import read_text

PREDICTIONS = "stsb-validation.csv"


def row_of(folder: Path, path: Path) -> str:
    """The recipe of a study's encoder and the way of measuring; of other folders, their name and
    that of the model (predictions/MODEL/SEED/FILE)."""
    known = re.fullmatch(r"(.+?)-[\d.]+(e[+-]\d+)?-seed\d+-([0-9a-f]{8})", folder.name)
    inside = path.relative_to(folder).parts
    if not known:
        return "/".join((folder.resolve().name, *inside[1:-2]))
    return f"{names_in(folder.resolve().parents[1]).get(known[3], known[1])}, {inside[0]}"


@cache
def names_in(study: Path) -> dict[str, str]:
    """The recipes of a study by the hashes at the end of its folders' names, in which long names
    are cut."""
    return {r.recipe[:8]: r.entry for r in read_results(study).values()}


def correlations(path: Path, shared: list[float], scores: list[float]) -> tuple[float, float] | str:
    """Of one file of predictions with the scores and with `shared`; the reason why there are
    none."""
    try:
        rows = list(csv.DictReader(read_text(path).splitlines()))
        if [(int(r["row"]), float(r["label"])) for r in rows] != list(enumerate(scores)):
            return "predictions of other examples"
        predicted = [float(row["prediction"]) for row in rows]
    except (KeyError, ValueError, TypeError, UserError):
        return "no predictions as electrify finetune writes them"
    if len(set(predicted)) < 2 or not all(map(math.isfinite, predicted)):
        return "one prediction for all, or such as are not numbers"
    with_scores, with_shared = (spearmanr(predicted, x).statistic for x in (scores, shared))
    return float(with_scores), float(with_shared)


def rows_of(folders: list[Path], data_dir: str) -> tuple[float, dict[str, list[Any]]]:
    """How the words in common go with the scores, and what was found for each row. Raises
    UserError where there is nothing."""
    for place in (*folders, Path(data_dir)):
        if not place.is_dir():
            raise UserError(f"{place} is not a folder")
    pairs = read_task(TASKS["stsb"], data_dir).validation
    shared = [overlap(example.text, example.pair or "") for example in pairs]
    scores = [float(example.label) for example in pairs]
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for folder in folders:
        for path in sorted(folder.rglob(PREDICTIONS)):
            pair = correlations(path, shared, scores)
            if isinstance(pair, str):
                print(f"{path}: {pair}, left out", file=sys.stderr)
            else:
                found[row_of(folder, path)].append(pair)
    if not found:
        raise UserError(f"no {PREDICTIONS} of these examples in these folders")
    return float(spearmanr(shared, scores).statistic), found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--json")
    args = parser.parse_args()
    try:
        alone, found = rows_of(args.folders, args.data_dir)
    except UserError as e:
        print(e, file=sys.stderr)
        return 2
    rows = [["words in common, alone", "", f"{100 * alone:.1f}", ""]]
    for name, both in sorted(found.items(), key=lambda item: -max(x for x, _ in item[1])):
        scores, common = ([100 * x for x in column] for column in zip(*both, strict=True))
        rows.append([name, str(len(both)), spread(scores, 1), spread(common, 1)])
    print(table(["encoder", "runs", "with the scores", "with the words in common"], rows))
    write_json(args.json, {"overlap": alone, "runs": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
