"""Which recipe serves the demo best, by the demo's own measures: how often the replaced word is the
most suspected one of its sentence, and the accuracy of fine-tuning ("which package?").

    OMP_NUM_THREADS=1 python benchmarks/demo_recipes.py --output-dir OUT [--seeds 0,1,2]
        [--recipes electra-tiny,corrective-tiny:mlm_share=.4] [--max-steps 2500] [--quick]
        [--json FILE]

All recipes cost the FLOPs of so many updates of the first one. A run that was stopped goes on, and
one that has its result is not repeated; a second process may run other seeds at the same time. OUT
holds runs of one length: --quick and another --max-steps need another one.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from pairs import spread, table, write_json

from electrify import demo
from electrify.errors import UserError
from electrify.finetuning.one_run import finetune_one
from electrify.finetuning.options import FinetuneSettings
from electrify.recipe import Recipe, entry, joined, override
from electrify.scoring.word_substitution import judge
from electrify.studies.budgets import Cost, configured, of_length, steps_for
from electrify.text.corpus import Corpus

SAID = {"substitution": "word substitution caught, %", "accuracy": "accuracy, median of 3 seeds, %"}


def recipe_of(name: str, seed: int, *, flops: float | None, steps: int, vocab: int) -> Any:
    """The recipe of one run, and what it costs. flops: None for the first recipe, whose updates
    decide what all others may cost."""
    config = configured(entry(name), schedule=None, seed=seed)
    cost = Cost(vocab)
    config = of_length(config, steps if flops is None else steps_for(config, flops, cost))
    often = {"eval_steps": max(1, config.train.max_steps // 5), "logging_steps": 50}
    return override(config, often | {"threads": "1"}), cost.flops(config)


def measured(data: Path, run: Path, config: Recipe, texts: list[Any], *, quick: bool) -> Any:
    """One pre-training, and what the demo would say of it."""
    discriminator = demo.pretrain_discriminator(data, run, config)
    verdicts = judge(discriminator, demo.pairs_of(data))
    task = demo.docstring_task(texts)
    settings = FinetuneSettings(num_train_epochs=1 if quick else demo.EPOCHS)
    outcomes = [
        finetune_one(discriminator, task, seed=seed, settings=settings)
        for seed in range(1 if quick else demo.SEEDS)
    ]
    return {
        "steps": config.train.max_steps,
        "substitution": 100 * sum(v.caught for v in verdicts) / len(verdicts),
        "accuracy": statistics.median(100 * run.scores["accuracy"] for run in outcomes),
    }


def kept_result(path: Path, *, steps: int, flops: float) -> Any:
    """The result that a run has already, if it has one. Raises UserError for that of a run of
    another length."""
    if not path.exists():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    if (found["steps"], found["flops"]) != (steps, flops):
        raise UserError(
            f"{path} is of {found['steps']:,} updates and {found['flops']:.3g} FLOPs, not of "
            f"{steps:,} and {flops:.3g}; choose another --output-dir"
        )
    return found


def results(
    out: Path, data: Path, names: list[str], seeds: list[int], args: argparse.Namespace
) -> dict[str, list[Any]]:
    """Name -> the result of each seed; what is not there yet is trained and measured."""
    documents = data.with_name(demo.DOCUMENTS)
    texts = demo.documents(documents)
    demo.prepare_corpus(documents, data)
    vocab = Corpus(data, "train").manifest.vocab_size
    found: dict[str, list[Any]] = {}
    for seed in seeds:
        flops = None
        for name in names:
            steps = 20 if args.quick else args.max_steps
            config, cost = recipe_of(name, seed, flops=flops, steps=steps, vocab=vocab)
            flops = cost if flops is None else flops
            run = out / f"{re.sub('[:=,]', '-', name)}-seed{seed}"
            kept = out / f"{run.name}.json"
            result = kept_result(kept, steps=config.train.max_steps, flops=cost)
            if result is None:
                result = measured(data, run, config, texts, quick=args.quick)
                result |= {"flops": cost, "seed": seed}
                write_json(str(kept), result)
            found.setdefault(name, []).append(result)
    return found


def main() -> int:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--output-dir", required=True)
    p.add_argument("--recipes", default="electra-tiny,corrective-tiny:mlm_share=.4")
    p.add_argument("--seeds", default="0,1,2")
    p.add_argument("--max-steps", type=int, default=2500)
    p.add_argument("--quick", action="store_true", help="20 updates, one seed: does it run?")
    p.add_argument("--json", help="write the figures here too")
    args = p.parse_args()
    out = Path(args.output_dir)
    seeds = [0] if args.quick else [int(seed) for seed in args.seeds.split(",")]
    data = out / "data"
    try:
        found = results(out, data, joined(args.recipes.split(",")), seeds, args)
    except UserError as e:
        print(e, file=sys.stderr)
        return 2
    rows = [
        [name, f"{runs[0]['flops']:.2e}", f"{runs[0]['steps']:,}"]
        + [spread([run[measure] for run in runs], 1) for measure in SAID]
        for name, runs in found.items()
    ]
    print(table(["recipe", "FLOPs", "updates", *SAID.values()], rows))
    write_json(args.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
