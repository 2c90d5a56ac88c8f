"""The curves of one pre-training run as a picture: python benchmarks/plot_run.py RUN PICTURE.png

A dotted line marks where another period of the run begins (`--mlm-share`): its records have other
losses.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

from electrify.train import METRICS
from electrify.train.log import read

LOSSES = ("generator_loss_masked", "mlm_loss_masked", "rtd", "correct_loss_replaced")
RATES = ("rtd_detection_auc", "rtd_detection_recall", "rtd_detection_precision", "replaced")
Records = list[dict[str, Any]]


def starts(records: Records) -> list[float]:
    """Where other losses begin, in million tokens."""
    return [
        before["tokens"] / 1e6
        for before, after in itertools.pairwise(records)
        if any(name in after and name not in before for name in LOSSES)
    ]


def curve(axis: Any, records: Records, name: str, *style: str, **how: Any) -> None:
    """One figure, where a period of the run has it."""
    there = [r for r in records if name in r]
    axis.plot([r["tokens"] / 1e6 for r in there], [r[name] for r in there], *style, **how)


def main(run: Path, picture: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    records = [r for r in read(run / METRICS) if r["kind"] != "event"]
    if not records:
        sys.exit(f"{run / METRICS} has no record yet")
    train, valid = ([r for r in records if r["kind"] == kind] for kind in ("train", "valid"))
    known = {name for r in records for name in r}
    # A loss on [MASK] of the discriminator is there in its first period alone.
    losses = [name for name in LOSSES if name in known]
    rates = [name for name in RATES if name in known]
    panels = [[name] for name in losses] + ([rates] if rates else [])
    figure, axes = plt.subplots(
        1, len(panels), figsize=(5 * len(panels), 4.2), constrained_layout=True, squeeze=False
    )
    for axis, names in zip(axes[0], panels, strict=True):
        for name in names:
            if len(names) == 1:
                curve(axis, train, name, alpha=0.4, label="train")
            label = "held out" if len(names) == 1 else name.removeprefix("rtd_detection_")
            curve(axis, valid, name, "o-", markersize=3, label=label)
        for start in starts(train):
            axis.axvline(start, color="gray", linestyle=":")
        title = f"{names[0]}, nats" if len(names) == 1 else "discriminator, held out"
        axis.set(xlabel="million tokens", title=title, xlim=(0, records[-1]["tokens"] / 1e6))
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
