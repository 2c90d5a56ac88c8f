"""Every system of the ELECTRA study at the tiny size, the same time for each: what it cost, every
term, and how well it detects and predicts.

    python benchmarks/study.py DATA --output-dir OUT [--minutes 5] [--systems electra,bert]
        [--quick]

Each recipe's rate is measured first (60 updates), so that `max_steps` fills the time and its
learning rate ends where its schedule ends. Two stages share the time evenly. Writes OUT/table.md,
OUT/study.json, curves.png and commands.txt; a run that is there already is not run again, one that
was interrupted goes on. Timings: leave the machine alone, and give one thread to it
(OMP_NUM_THREADS=1).
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

PROBE = 60
SYSTEMS: dict[str, list[str]] = {
    "electra": [],
    "electra-15": [],
    "replace-mlm": [],
    "all-tokens-mlm": [],
    "bert": [],
    "two-stage": [],
    "two-stage, no copy": ["--discriminator-start", "random"],
    "adversarial": [],
    "electric": [],
    "unigram": [],
    "uniform": [],
}


def records(run: Path, kind: str) -> list[dict[str, Any]]:
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.is_file() else []
    return [r for r in map(json.loads, lines) if r["kind"] == kind]


def command(data: str, run: Path, system: str, *flags: str) -> list[str]:
    recipe = system.split(",")[0] + "-tiny"
    return [
        "electrify",
        "pretrain",
        data,
        "--recipe",
        recipe,
        "--output-dir",
        str(run),
        "--report-to",
        "none",
        *SYSTEMS[system],
        *flags,
    ]


def execute(words: list[str], log: Path) -> None:
    with log.open("a") as errors:
        status = subprocess.run(
            [sys.executable, "-m", *words], stdout=errors, stderr=errors, check=False
        ).returncode
    if status:
        sys.exit(f"{shlex.join(words)}: status {status}, see {log}")


def steps_per_second(run: Path) -> float:
    """Of the last measured stretch of updates, the first ones being slower."""
    early, late = records(run, "train")[-2:]
    return (late["step"] - early["step"]) / (late["seconds"] - early["seconds"])


def plan(data: str, out: Path, system: str, seconds: float) -> list[str]:
    """The command whose schedule fills the time."""
    probe = out / "probes" / system.replace(", ", "-").replace(" ", "-")
    two = system.startswith("two-stage")
    stages = ["--generator-steps", str(PROBE)] if two else []
    if not (probe / "discriminator").exists():
        execute(
            command(
                data,
                probe,
                system,
                "--max-steps",
                str(PROBE),
                "--logging-steps",
                "20",
                "--eval-steps",
                "0",
                *stages,
            ),
            out / "probes.log",
        )
    share = seconds / 2 if two else seconds
    steps = round(share * steps_per_second(probe))
    every = max(1, steps // 20)
    steps -= steps % every  # the last update has a line of the log
    flags = [
        "--max-steps",
        str(steps),
        "--eval-steps",
        str(max(1, steps // 5)),
        "--logging-steps",
        str(every),
    ]
    if two:
        flags += [
            "--generator-steps",
            str(round(share * steps_per_second(probe / "generator-stage"))),
        ]
    return command(data, out / probe.name, system, *flags)


def row(system: str, run: Path) -> dict[str, Any]:
    """The end of a run: what it cost and the last validation, the first stage's cost counted in."""
    valid, trained = records(run, "valid")[-1], records(run, "train")[-1]
    first = (records(run / "generator-stage", "valid") or [{"seconds": 0.0, "tokens": 0}])[-1]
    figures = {
        k: v for k, v in valid.items() if k not in ("kind", "step", "epoch", "tokens", "seconds")
    }
    seconds, tokens = valid["seconds"] + first["seconds"], valid["tokens"] + first["tokens"]
    return {
        "system": system,
        "steps": valid["step"],
        "tokens": tokens,
        "flops": trained["flops"],
        "seconds": seconds,
        "valid": figures,
    }


HEAD = (
    "system", "updates", "M tokens", "FLOPs", "s", "generator's loss: all / on [MASK]",
    "its accuracy", "its entropy", "replaced",
    "detection: loss / AUC / precision / recall", "every other term",
)  # fmt: skip
DETECTORS = {
    "rtd_detection": "rtd",
    "copy_detection": "",
    "nce_detection": "nce",
}  # and the loss they belong to; the copy gate has none of its own


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    for r in rows:
        v, shown = r["valid"], set[str]()

        def take(*names: str, v: dict[str, float] = v, shown: set[str] = shown) -> str:
            there = [name for name in names if name in v]
            shown.update(there)
            return " / ".join(f"{v[name]:.3f}" for name in there)

        lm = "generator" if "generator" in v else "mlm"
        cells = [
            r["system"],
            f"{r['steps']:,}",
            f"{r['tokens'] / 1e6:.2f}",
            f"{r['flops']:.2e}".replace("e+", "e"),
            f"{r['seconds']:.0f}",
        ]
        cells += [
            take(lm, f"{lm}_loss_masked"),
            take(f"{lm}_accuracy"),
            take("generator_entropy"),
            take("replaced"),
        ]
        detector = next((name for name in DETECTORS if f"{name}_auc" in v), "")
        cells.append(
            take(
                DETECTORS.get(detector, ""),
                *(f"{detector}_{end}" for end in ("auc", "precision", "recall")),
            )
        )
        shown.update(k for k in v if k.endswith("detection_replaced"))
        cells.append(
            ", ".join(f"{k.replace('_', ' ')} {x:.3f}" for k, x in v.items() if k not in shown)
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(out: Path, names: list[str], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(12, 4.5), constrained_layout=True)
    ends = (
        ("_detection_auc", "AUC of telling replaced tokens, valid"),
        ("generator_accuracy", "accuracy of the generator, valid"),
    )
    for axis, (end, title) in zip(axes, ends, strict=True):
        for k, name in enumerate(names):
            curve = records(out / name, "valid")
            points = [
                (r["tokens"] / 1e6, x)
                for r in curve
                for key, x in r.items()
                if key.endswith(end) and "chosen" not in key
            ]
            if points:
                axis.plot(
                    *zip(*points, strict=True),
                    marker="o",
                    label=name,
                    color=f"C{k % 10}",
                    linestyle="-" if k < 10 else "--",
                    markersize=3,
                )
        axis.set(title=title, xlabel="million tokens")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("data")
    p.add_argument("--output-dir", required=True)
    p.add_argument("--minutes", type=float, default=5)
    p.add_argument(
        "--systems",
        default="; ".join(SYSTEMS),
        help='separated by ";", for instance "electra; two-stage, no copy"',
    )
    p.add_argument("--quick", action="store_true", help="six seconds each")
    a = p.parse_args()
    out = Path(a.output_dir)
    out.mkdir(parents=True, exist_ok=True)
    commands, rows, names = [], [], []
    for system in (s.strip() for s in a.systems.split(";")):
        words = plan(a.data, out, system, 6 if a.quick else 60 * a.minutes)
        run = Path(words[words.index("--output-dir") + 1])
        planned = (
            out / f"{run.name}.command"
        )  # an interrupted run goes on with the steps that it was begun with
        words = shlex.split(planned.read_text()) if planned.exists() else words
        planned.write_text(shlex.join(words) + "\n")
        if not (run / "discriminator").exists():
            print(shlex.join(words), flush=True)
            execute(words, out / f"{run.name}.log")
        commands.append(shlex.join(words))
        rows.append(row(system, run))
        names.append(run.name)
    (out / "commands.txt").write_text("\n".join(commands) + "\n")
    (out / "study.json").write_text(json.dumps(rows, indent=1))
    (out / "table.md").write_text(table(rows) + "\n")
    plot(out, names, out / "curves.png")
    print(table(rows))


if __name__ == "__main__":
    main()
