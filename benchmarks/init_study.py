"""How long does a plain post-norm encoder sit on the unigram plateau, with the published initial
values, with local ones, and with words that start from co-occurrence as well?

    python benchmarks/init_study.py DATA --output-dir OUT [--tokens 10e6,50e6] [--seeds 3]
        [--objectives bert,electra] [--jobs 1] [--quick]

Runs the tiny recipes with each of INITS and several seeds at a constant learning rate (so one run
serves every budget up to its end), validates every half million tokens, and writes curves.png,
study.json and a Markdown table. All runs reach the first of `--tokens` before any goes on to the
next; a run is stopped by SIGTERM and resumed, so a study that is interrupted loses nothing. Curves
of runs made on another machine count where they lie in OUT as NAME.jsonl: copy those of
docs/curves/init_study there, and only what is missing is run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from electrify.train.signals import SAVED_EXIT

ROWS, LENGTH = 32, 64
INITS = {
    "bert": {"init": "bert", "init_words": "random"},
    "local": {"init": "local", "init_words": "random"},
    "local+words": {"init": "local", "init_words": "cooccurrence"},
}
COLORS = {"bert": "tab:gray", "local": "tab:blue", "local+words": "tab:red"}
FIGURES = {
    "bert": ("mlm_loss_masked", "mlm_accuracy_masked"),
    "electra": (
        "generator_loss_masked",
        "generator_accuracy_masked",
        "rtd",
        "rtd_detection_auc",
        "rtd_detection_recall",
    ),
}


def name_of(objective: str, init: str, seed: int) -> str:
    return f"{objective}-{init}-seed{seed}"


def run(
    data: str,
    out: Path,
    objective: str,
    init: str,
    seed: int,
    *,
    until: float,
    tokens: float,
    every: float,
) -> None:
    """Takes the run of `tokens` as far as `until`: SIGTERM saves it there, and the next call
    resumes it."""
    folder, steps = out / name_of(objective, init, seed), round(tokens / (ROWS * LENGTH))
    options = {
        **INITS[init],
        "seed": seed,
        "max_steps": steps,
        "train_batch_size": ROWS,
        "max_seq_length": LENGTH,
        "lr_scheduler_type": "constant",
        "learning_rate": 1e-3,
        "warmup_steps": 200,
        "eval_steps": round(every / (ROWS * LENGTH)),
        "save_steps": 2000,
        "save_total_limit": 1,
        "logging_steps": 200,
        "report_to": "none",
    }
    flags = [x for k, v in options.items() for x in (f"--{k.replace('_', '-')}", str(v))]
    command = [
        sys.executable,
        "-m",
        "electrify",
        "pretrain",
        data,
        "--recipe",
        f"{objective}-tiny",
        "--output-dir",
        str(folder),
        *flags,
    ]

    def arrived() -> bool:
        return any(r["tokens"] >= 0.99 * until for r in curve(out, objective, init, seed)[-1:])

    if arrived():
        return
    with (out / f"{folder.name}.log").open("a") as log:
        process = subprocess.Popen(
            command, stderr=log, stdout=log, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        while process.poll() is None:
            time.sleep(1)
            if until < tokens and arrived():
                process.terminate()
                process.wait()
    if process.returncode not in (0, SAVED_EXIT):
        sys.exit(f"{folder.name}: status {process.returncode}, see {log.name}")


def curve(out: Path, objective: str, init: str, seed: int) -> list[dict]:
    """The validations of a run, or of the same run on another machine: OUT/NAME.jsonl, in the form
    in which docs/curves holds them."""
    name = name_of(objective, init, seed)
    path = next(
        (p for p in (out / name / "metrics.jsonl", out / f"{name}.jsonl") if p.exists()), None
    )
    records = [json.loads(line) for line in path.read_text().splitlines()] if path else []
    return [r for r in records if r["kind"] == "valid"]


def table(study: dict[str, list[list[dict]]], budgets: list[float]) -> str:
    lines = [
        "| objective | init | tokens | figure | median | lowest - highest | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, curves in study.items():
        objective, init = key.split("-", 1)
        for budget in budgets:
            at = [
                min(c, key=lambda r: abs(r["tokens"] - budget))
                for c in curves
                if c and c[-1]["tokens"] >= 0.95 * budget
            ]
            for figure in FIGURES[objective] if at else ():
                values = [r[figure] for r in at]
                spread = f"{min(values):.3f} - {max(values):.3f}"
                lines.append(
                    f"| {objective} | {init} | {budget / 1e6:g} M | {figure} | "
                    f"{statistics.median(values):.3f} | {spread} | {len(values)} |"
                )
    return "\n".join(lines)


def plot(study: dict[str, list[list[dict]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = [
        ("bert", "mlm_loss_masked", "MLM (bert-tiny): loss on [MASK], valid"),
        ("electra", "generator_loss_masked", "RTD: generator's loss on [MASK], valid"),
        ("electra", "rtd_detection_auc", "RTD: discriminator's AUC, valid"),
    ]
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.5), constrained_layout=True)
    for axis, (objective, name, title) in zip(axes, panels, strict=True):
        for init, color in COLORS.items():
            for k, c in enumerate(study.get(f"{objective}-{init}", [])):
                label = f"init {init}" if k == 0 else None
                axis.plot(
                    [r["tokens"] / 1e6 for r in c],
                    [r[name] for r in c],
                    color=color,
                    label=label,
                    alpha=0.8,
                    linewidth=1.2,
                )
        axis.set(title=title, xlabel="million tokens", xscale="log")
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("data")
    p.add_argument("--output-dir", required=True)
    p.add_argument("--tokens", default="10e6", help="budgets, for instance 10e6,50e6")
    p.add_argument("--every", type=float, default=0.5e6)
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--objectives", default="bert,electra")
    p.add_argument("--inits", default=",".join(INITS))
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--quick", action="store_true", help="0.3 M tokens, one seed")
    a = p.parse_args()
    if a.quick:
        a.tokens, a.every, a.seeds = "0.1e6,0.3e6", 0.1e6, 1
    budgets = [float(t) for t in a.tokens.split(",")]
    out = Path(a.output_dir)
    out.mkdir(parents=True, exist_ok=True)
    objectives = a.objectives.split(",")
    todo = [(o, i, s) for s in range(a.seeds) for o in objectives for i in a.inits.split(",")]
    for until in budgets:
        with ThreadPoolExecutor(a.jobs) as pool:
            for done in [
                pool.submit(run, a.data, out, *t, until=until, tokens=budgets[-1], every=a.every)
                for t in todo
            ]:
                done.result()
    study = {
        f"{o}-{i}": [curve(out, o, i, s) for s in range(a.seeds)] for o in objectives for i in INITS
    }
    (out / "study.json").write_text(json.dumps(study, indent=1))
    text = table(
        study, sorted({*budgets, *(b for b in (1e6, 2e6, 5e6, 10e6, 20e6) if b <= budgets[-1])})
    )
    (out / "table.md").write_text(text + "\n")
    plot(study, out / "curves.png")
    print(text)


if __name__ == "__main__":
    main()
