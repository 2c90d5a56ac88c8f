"""Whether encoders that were fine-tuned on STS-B compare the two sentences: how their predictions
go with the scores, and with the share of words that the sentences have in common.

    python benchmarks/overlap.py STUDY/cells/* --data-dir GLUE [--json FILE]

A folder is one that `electrify finetune --task stsb` wrote, or a cell of a study; cells that differ
in seed and budget alone are one row for each way of measuring (`stsb`, `stsb-frozen`). Spearman's
correlations on the development set: median (lowest - highest) over all predictions.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections import defaultdict
from pathlib import Path

from pairs import spread, table, write_json
from scipy.stats import spearmanr

from electrify.downstream.baselines import overlap
from electrify.downstream.known_tasks import GLUE
from electrify.downstream.read.task import read_task

PREDICTIONS = "stsb-validation.csv"


def row_of(folder: Path, path: Path) -> str:
    """The recipe of a study's cell and the way of measuring; of other folders, their name."""
    cell = re.fullmatch(r"(.+)-[\d.]+(e\+\d+)?-seed\d+-[0-9a-f]{8}", folder.name)
    return f"{cell[1]}, {path.relative_to(folder).parts[0]}" if cell else folder.name


def correlations(path: Path, shared: list[float]) -> tuple[float, float] | None:
    """Of one file of predictions with the scores and with `shared`; None for other examples."""
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    if [int(row["row"]) for row in rows] != list(range(len(shared))):
        return None
    predicted = [float(row["prediction"]) for row in rows]
    scores = [float(row["label"]) for row in rows]
    with_scores, with_shared = (spearmanr(predicted, x).statistic for x in (scores, shared))
    return float(with_scores), float(with_shared)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--json")
    args = parser.parse_args()
    pairs = read_task(GLUE["stsb"], args.data_dir).validation
    shared = [overlap(example.text, example.pair or "") for example in pairs]
    alone = float(spearmanr(shared, [float(example.label) for example in pairs]).statistic)
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for folder in args.folders:
        for path in sorted(folder.rglob(PREDICTIONS)):
            pair = correlations(path, shared)
            if pair is None:
                print(f"{path}: predictions of other examples, left out", file=sys.stderr)
            else:
                found[row_of(folder, path)].append(pair)
    if not found:
        print(f"no {PREDICTIONS} in these folders", file=sys.stderr)
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
