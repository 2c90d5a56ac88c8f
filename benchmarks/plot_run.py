"""The curves of one pre-training run as a picture: python benchmarks/plot_run.py RUN PICTURE.png"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(run: Path, picture: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    records = [
        json.loads(line)
        for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    train, valid = ([r for r in records if r["kind"] == kind] for kind in ("train", "valid"))
    losses = [k for k in ("generator_loss_masked", "mlm_loss_masked", "rtd") if k in valid[-1]]
    rates = [
        k
        for k in (
            "rtd_detection_auc",
            "rtd_detection_recall",
            "rtd_detection_precision",
            "replaced",
        )
        if k in valid[-1]
    ]
    panels = [[k] for k in losses] + ([rates] if rates else [])
    figure, axes = plt.subplots(
        1, len(panels), figsize=(5 * len(panels), 4.2), constrained_layout=True, squeeze=False
    )
    for axis, names in zip(axes[0], panels, strict=True):
        for name in names:
            if len(names) == 1 and name in train[-1]:
                axis.plot(
                    [r["tokens"] / 1e6 for r in train],
                    [r[name] for r in train],
                    alpha=0.4,
                    label="train",
                )
            label = "held out" if len(names) == 1 else name.removeprefix("rtd_detection_")
            axis.plot(
                [r["tokens"] / 1e6 for r in valid],
                [r[name] for r in valid],
                "o-",
                markersize=3,
                label=label,
            )
        axis.set(
            xlabel="million tokens",
            title=f"{names[0]}, nats" if len(names) == 1 else "discriminator, held out",
        )
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
