"""What each command does with its options: it asks what must be asked before torch is imported,
calls what does it, and prints what that returns. The result is the exit status, None for 0."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Literal

from annotated_types import Ge, Le

from . import checkup, recipe
from .checkup import DoctorConfig
from .errors import UserError, must_have, need
from .exporting.options import Export, Push
from .exporting.places import RANDOM, check_place, model_in
from .files import json_text
from .finetuning.options import EmbedConfig, FinetuneConfig, PredictConfig
from .process import status_of_stop
from .progress import aligned, say, show, size
from .rules import countable
from .scoring.options import DetectConfig, EvaluateConfig, RerankConfig, ScoreConfig
from .serving import ServeConfig
from .studies.options import CompareConfig
from .text.options import LONG, Prepare
from .text.streams import decoded, ending_of, read_text
from .train.options import Pretrain
from .values import Count, Options, Positional, kinds

LITTLE = 0.3
"""The recall of a discriminator below which `detect` marks few of the wrong words."""

# ------------------------------------------------------------------ text -> corpus -> encoder


def prepare(options: Prepare) -> None:
    """Tokenise text into a corpus of shards"""
    from .text.corpus import Corpus
    from .text.prepare import prepare
    from .text.report import advice, report

    if options.preset:
        length = 512 if options.preset in LONG else 128
        say(f"note: pre-train on {options.preset} with --max-seq-length {length}")
    manifest = prepare(options)
    show(f"{report(manifest)}\nwritten to {options.output_dir}")
    for line in advice(manifest, Corpus(Path(options.output_dir), "train").unigram()):
        say(line)


def pretrain(options: Pretrain) -> int:
    """Pre-train an encoder on a corpus or text file"""
    from .train.monitor import grace_of
    from .train.run import pretrain_as

    result, own = pretrain_as(options)
    if not result.finished:
        say(f"stopped and saved at step {result.step}. The same command resumes")
        return status_of_stop(signalled=result.signalled)
    for part, folder in result.exported.items():
        show(f"{part}: {folder}")
    tokens, grace = result.tokens, grace_of(own.model.init)
    if tokens < grace:
        fact = f"note: the run saw {tokens:,} tokens, enough only to try the commands"
        say(f"{fact}. Models begin to use the context after about {grace:,} tokens")
    found = result.validation.get("rtd_detection_recall", 1.0)
    if found < LITTLE:
        fact = f"note: at threshold 0.5 it finds {found:.0%} of the replaced tokens in validation"
        say(f"{fact}. To `detect` words, train longer, or lower --threshold")
    return 0


@dataclass(frozen=True, kw_only=True)
class Recipes(Options):
    """The shipped recipes."""

    name: Positional[str | None] = None
    """Recipe to print with all its values, or text in the names to list, such as tiny [default: a
    table of all recipes]."""


def recipes(options: Recipes) -> None:
    """List the shipped recipes, or print one"""
    asked = options.name
    listed = [name for name in recipe.names() if asked and asked in name]
    if asked is not None and (asked in listed or not listed):
        values = recipe.dump(recipe.load(asked))
        known = recipe.description(asked) if asked in recipe.names() else {}
        show("".join(f"# {key}: {said}\n" for key, said in known.items()) + values)
        return
    width = max(shutil.get_terminal_size().columns, 120)
    forms = {"parameters": ",", "FLOPs": ".1e"}
    table = recipe.listing()
    rows = [["recipe", *table[recipe.names()[0]]]]
    for name in listed or table:
        cells = (format(value, forms.get(key, "")) for key, value in table[name].items())
        rows.append([name, *(cell.replace("e+", "e") for cell in cells)])
    lines = aligned([row[:-1] for row in rows], names=1)
    for line, row in zip(lines, rows, strict=True):
        show(f"{line}  {shorten(row[-1], width - len(line) - 2, placeholder=' ...')}".rstrip())


# ------------------------------------------------------------------ encoder -> model, scores


def export(options: Export) -> None:
    """Export a run or model (Hugging Face, ONNX, sentence-transformers)"""
    options.must_exist()

    from .exporting.folder import export_as

    show(export_as(options))


def push(options: Push) -> None:
    """Upload a model folder to the Hugging Face Hub"""
    from .exporting.pushing import upload

    sizes = upload(options)
    listed = "".join(f"{size(bytes_):>10}  {name}\n" for name, bytes_ in sizes.items())
    what = "would be sent" if options.dry_run else "sent"
    show(f"{listed}{size(sum(sizes.values())):>10}  {what} to {options.repo_id}")


def finetune(options: FinetuneConfig) -> None:
    """Fine-tune encoders on a task or on your own file"""
    from .finetuning.known import read_asked

    tasks = read_asked(options)
    for model in options.models:
        check_place(model.removeprefix(RANDOM))

    from .finetuning.run import finetune

    show(finetune(options, tasks).table())


def predict(options: PredictConfig) -> None:
    """Apply a fine-tuned model to new texts"""
    from .finetuning.predict import predict_files

    done = predict_files(options)
    if options.output_file is not None:
        show(done)


def embed(options: EmbedConfig) -> None:
    """Compute vectors of texts"""
    from .finetuning.embed import embed_files

    show(embed_files(options))


def serve(options: ServeConfig) -> None:
    """Serve models and a web page over HTTP"""
    must_have("serve", "serve", "fastapi", "uvicorn")
    for model in options.models:
        check_place(model_in(model))

    from .serving.app import serve

    serve(options)


def detect(options: DetectConfig) -> None:
    """Show which words of a text look replaced"""
    check_place(options.model)  # before a text is read, or typed, for it
    text = given_text(options)

    from .scoring.detect import detect, load_detector, show_detection

    (found,) = detect(
        load_detector(options.model, options.architecture, threads=options.threads),
        [text],
        max_seq_length=options.max_seq_length,
        batch_size=options.batch_size,
        threads=options.threads,
        threshold=options.threshold,
    )
    show_detection(found, sys.stdout, unit=options.unit, as_json=options.json)


def given_text(options: DetectConfig) -> str:
    """TEXT, the text of a file, or standard input. Raises UserError for one that is binary or badly
    encoded."""
    if options.text is not None:
        return options.text
    if options.file is not None:
        table = ending_of(options.file) in (".csv", ".tsv", ".jsonl", ".parquet")
        need(not table, f"{options.file} is a table, and detect reads one text", "give it as .txt")
        return read_text(options.file)
    if sys.stdin is None or sys.stdin.isatty():
        raise UserError("no text: give TEXT or --file, or pipe a text into standard input")
    return "".join(decoded([sys.stdin.buffer.read()], "standard input"))


def score(options: ScoreConfig) -> None:
    """Score texts: pseudo-log-likelihood, or log P(original) (nats, higher is better)"""
    from .scoring.pll import score_files

    done = score_files(options)
    if options.output_file is not None:
        show(done)


def rerank(options: RerankConfig) -> None:
    """Rerank n-best lists, with word error rates"""
    from .scoring.rerank import as_json, rerank

    found = rerank(options)
    if options.output_file is None and not options.json:
        show("\n".join(found.texts))
    if options.json:
        show(as_json(found))
    elif found.rates:
        say(f"weight {found.weight:.4g}, length bonus {found.length_bonus:.4g}")
        for line in found.table().splitlines():
            say(line)


def evaluate(options: EvaluateConfig) -> None:
    """Run zero-shot tests (BLiMP), or score fine-tuned models on labelled examples"""
    for model in options.models:
        check_place(model)
    if options.test_file is None:
        from .scoring.blimp import evaluate, table

        show(table(evaluate(options)))
        return

    from .finetuning.output import threads_of
    from .finetuning.predict import load_predictor, scores
    from .finetuning.report import percent

    for model in options.models:
        predictor = load_predictor(model, device=options.device, threads=options.threads)
        with threads_of(predictor.options, predictor):
            found = scores(predictor, options.test_file, options.columns)
        rows = [[name, percent(value)] for name, value in found.items()]
        show("\n".join(aligned([["metric", model], *rows], names=1)))


# ------------------------------------------------------------------ recipes, and what is there


def compare(options: CompareConfig) -> int:
    """Compare recipes at equal budgets"""
    from .studies.report import in_json, text
    from .studies.run import as_text, compare, forecast
    from .studies.study import plan_study

    study = plan_study(options)
    plan = forecast(study)
    if options.plan_only:
        show(json_text(plan, indent=1) if options.json else as_text(plan))
        return 0
    for line in as_text(plan).splitlines():
        say(line)
    table = compare(study)
    show(in_json(table) if options.json else text(table))
    return 1 if table.failed else 0


@dataclass(frozen=True, kw_only=True)
class Flops(Options):
    """Which recipes are counted, and how."""

    recipes: Positional[tuple[str, ...]] = ()
    """Recipes, with changes after a colon (electra-tiny:mask_rate=0.3,tie=gdes), or .yaml files
    [default: all shipped recipes]."""
    published: bool = False
    """Count the models that ELECTRA's authors counted (ELMo to T5-11B) instead."""
    convention: Literal["paper", "hardware"] = "hardware"
    """hardware: matrix products only, backward = 2 x forward. paper: as ELECTRA's public FLOPs
    script (backward = forward, one-hot embedding lookup, softmax on 15.625 % of the positions,
    small terms)."""
    equal_to: str | None = None
    """Recipe whose total FLOPs to match: adds a column with the steps needed."""
    length: Count | None = None
    """Tokens of a sequence for the FLOPs of inference [default: max_seq_length]."""
    vocab_size: Annotated[int, Ge(32), Le(1 << 22)] = 30522
    """Size of the vocabulary."""
    json: bool = False
    """Write JSON."""

    def check(self) -> None:
        if self.published:
            others = {*kinds(Flops)} - {"published", "json"}
            odd = [n for n in sorted(others) if getattr(self, n) != getattr(Flops, n)]
            need(not odd, f"published excludes {', '.join(odd)}")
            return
        for name in (*self.recipes, *([self.equal_to] if self.equal_to else [])):
            countable(name)  # before torch is imported


def flops(options: Flops) -> None:
    """Count the FLOPs of recipes"""
    from .flop_counts import report, report_published

    if options.published:
        show(report_published(as_json=options.json))
        return
    counted = report(
        list(options.recipes) or recipe.names(),
        convention=options.convention,
        vocab_size=options.vocab_size,
        length=options.length,
        equal_to=options.equal_to,
        as_json=options.json,
    )
    show(counted)


def doctor(options: DoctorConfig) -> int:
    """Check a corpus, run or model"""
    report = checkup.doctor(*options.paths)
    show(report.as_json() if options.json else report.text())
    return int(not report.ok)


@dataclass(frozen=True, kw_only=True)
class Demo(Options):
    """The whole path."""

    output_dir: str = "demo"
    """Output folder."""
    max_steps: Count = 240
    """Updates of the pre-training."""
    threads: str = "auto"
    """CPU threads: a number, or auto (measured)."""


def demo(options: Demo) -> None:
    """Run all steps on the documentation of the installed Python packages"""
    from .demo import demo

    demo(Path(options.output_dir), max_steps=options.max_steps, threads=options.threads)


COMMANDS = {
    function.__name__: function
    for function in (
        *(prepare, pretrain, recipes, export, push, finetune, predict, embed, serve),
        *(detect, score, rerank, evaluate, compare, flops, doctor, demo),
    )
}
"""By name, as the help lists them. The type of the argument is that of the command's options, and
the docstring its help."""
