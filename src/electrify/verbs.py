"""The verbs: one function each, which imports its own room.

Mistakes that files and folders show are reported before anything heavy is imported. Printed text
may contain foreign names and words, so it is cleaned of anything that controls a terminal.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from .config.check_lengths import check_minutes
from .config.checks import check
from .config.compare import CompareConfig
from .config.detect import DetectConfig
from .config.doctor import DoctorConfig
from .config.embed import EmbedConfig
from .config.evaluate import EvaluateConfig
from .config.export import ExportConfig
from .config.finetune import finetune_from_flags
from .config.flags import from_flags, named_as_flags
from .config.flops import FlopsConfig
from .config.predict import PredictConfig
from .config.prepare import PrepareConfig
from .config.presets import defaults_of, sentence
from .config.pretrain import PretrainConfig, load_file, load_recipe, override, section_of
from .config.verbs import DEFAULT_RECIPE
from .console import harmless
from .errors import UserError
from .progress import say
from .train.signals import status_of_stop


def show(text: object) -> None:
    """Prints a result. If the reader has closed the pipe (`| head`), that is not an error, and the
    status stays the same."""
    try:
        print(harmless(str(text), keep="\n"))
    except BrokenPipeError:
        pass
    except OSError as e:
        raise UserError(f"standard output cannot be written: {e.strerror}") from e


def prepare(args: argparse.Namespace) -> int:
    preset = getattr(args, "preset", None)
    usual = defaults_of(preset, vars(args)) if preset else {}
    config = from_flags(PrepareConfig, args, **usual)
    with named_as_flags(vars(config)):
        config.check()
    if preset:
        say(sentence(preset, vars(args)))

    from .text.judged import advice
    from .text.prepare import prepare
    from .text.shards import Corpus
    from .text.summary import report

    folder = Path(config.output_dir)
    with named_as_flags(["text_column", "encoding_errors", "document_boundary", "valid_fraction"]):
        manifest = prepare(config)
    show(report(manifest, folder=folder))
    for line in advice(manifest, Corpus(folder, "train").unigram(), folder):
        say(line)
    return 0


def pretrain(args: argparse.Namespace) -> int:
    config = wanted(args)
    output_dir = Path(args.output_dir)
    if not (args.recipe or args.config) and os.environ.get("RANK", "0") == "0":
        say(
            f"the recipe is {DEFAULT_RECIPE}, which takes a GPU; on a CPU begin with --recipe "
            "electra-tiny"
        )

    from .train.run import pretrain

    result = pretrain(
        args.data,
        output_dir=output_dir,
        config=config,
        resume=args.resume,
        train_minutes=args.train_minutes,
    )
    if not result.summary.finished:
        say(
            f"stopped after step {result.summary.step} and saved; run the same command again to "
            "continue"
        )
        return status_of_stop(signalled=result.summary.signalled)
    for part, folder in result.exported.items():
        show(f"{part}: {folder}")
    return 0


def wanted(args: argparse.Namespace) -> PretrainConfig:
    """The recipe that `pretrain` is to run, checked before a corpus is prepared for it."""
    config = (
        load_file(Path(args.config)) if args.config else load_recipe(args.recipe or DEFAULT_RECIPE)
    )
    fields = section_of()
    given = {k: v for k, v in vars(args).items() if k in fields}
    if args.train_minutes is not None and "max_steps" in given:
        raise UserError("--train-minutes chooses the number of updates; leave --max-steps out")
    with named_as_flags(given):
        config = override(config, given)
    # Messages about the user's file use the names in that file.
    with named_as_flags(given if args.config else fields):
        check(config, given)
    if args.train_minutes is not None:
        with named_as_flags(["train_minutes", *given]):
            check_minutes(config, args.train_minutes)
    return config


def export(args: argparse.Namespace) -> int:
    config = from_flags(ExportConfig, args)

    from .export.places import must_be_run

    must_be_run(Path(args.run))

    from .export.hf import export

    show(
        export(
            Path(args.run), output_dir=Path(config.output_dir), part=config.part, step=config.step
        )
    )
    return 0


def finetune(args: argparse.Namespace) -> int:
    config = finetune_from_flags(args, models=args.models)

    from .downstream.read.asked import read_asked
    from .export.places import RANDOM, check_place

    tasks = read_asked(config)
    for model in config.models:
        check_place(model.removeprefix(RANDOM))
    for task in tasks:
        for note in task.notes:
            say(f"{task.name}: {note}")

    from .downstream.finetune import finetune

    show(finetune(config, tasks).table())
    return 0


def predict(args: argparse.Namespace) -> int:
    config = from_flags(PredictConfig, args, files=tuple(args.files))

    from .export.places import check_place
    from .inference.kinds import kept, kind_in, pairs_in
    from .inference.output import must_be_free
    from .inference.source import Files

    model = kept(config.model)
    check_place(model)
    kind = kind_in(model)
    must_be_free(config)
    if kind is not None:  # for a model on the Hub it is known later
        Files(config, kind, pairs=pairs_in(model)).check()

    from .inference.predict import predict_files

    summary = predict_files(config)
    if config.output_file is not None:
        show(summary.as_json() if config.json else summary.text())
    return 0


def embed(args: argparse.Namespace) -> int:
    config = from_flags(EmbedConfig, args, files=tuple(args.files))

    from .export.places import check_place
    from .inference.kinds import kept
    from .inference.output import must_be_free
    from .inference.source import Files, fitted_on

    check_place(kept(config.model))
    must_be_free(config)
    Files(config, "regression").check()
    fitted_on(config)

    from .inference.embed import embed_files

    summary = embed_files(config)
    show(summary.as_json() if config.json else summary.text())
    return 0


def detect(args: argparse.Namespace) -> int:
    config = from_flags(DetectConfig, args)

    from .export.places import check_place
    from .scoring.given import given_text

    if config.text is None and config.file is None:
        check_place(config.model)  # before a text is read, or typed, for it
    config = replace(config, text=given_text(config), file=None)
    check_place(config.model)

    from .scoring.showing import main

    with named_as_flags(["max_seq_length"]):  # which only the model can judge
        return main(config)


def evaluate(args: argparse.Namespace) -> int:
    config = from_flags(EvaluateConfig, args, models=tuple(args.models))

    from .export.places import check_place
    from .scoring.blimp import table
    from .scoring.evaluate import evaluate

    for model in config.models:
        check_place(model)
    show(table(evaluate(config)))
    return 0


def compare(args: argparse.Namespace) -> int:
    config = from_flags(CompareConfig, args)

    from .compare.compare import compare, planned
    from .compare.report import as_json, text

    # Recipe files have a field lr_scheduler_type of their own.
    with named_as_flags({k: v for k, v in vars(config).items() if k != "lr_scheduler_type"}):
        study, plan = planned(config)
    if config.plan_only:
        show(plan.as_json() if config.json else plan.text())
        return 0
    for line in plan.text().splitlines():
        say(line)
    table = compare(study)
    show(as_json(table) if config.json else text(table))
    return 1 if table.failed else 0


def flops(args: argparse.Namespace) -> int:
    config = from_flags(FlopsConfig, args)

    from .flops.report import report

    show(report(config))
    return 0


def doctor(args: argparse.Namespace) -> int:
    config = from_flags(DoctorConfig, args, paths=tuple(args.paths))

    from .checkup import doctor as checked

    report = checked(*config.paths)
    show(report.as_json() if config.json else report.text())
    return report.status


def demo(args: argparse.Namespace) -> int:
    from .demo import demo

    with named_as_flags(["max_steps"]):
        demo(Path(args.output_dir), max_steps=args.max_steps, threads=args.threads)
    return 0


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "prepare": prepare,
    "pretrain": pretrain,
    "export": export,
    "finetune": finetune,
    "predict": predict,
    "embed": embed,
    "detect": detect,
    "evaluate": evaluate,
    "compare": compare,
    "flops": flops,
    "doctor": doctor,
    "demo": demo,
}
