"""The parser of the command line: every verb with its arguments and flags, and their help."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from . import own
from .detect import DetectConfig
from .doctor import DoctorConfig
from .evaluate import EvaluateConfig
from .export import ExportConfig
from .finetune import add_finetune_flags
from .flags import Parser, add_flags
from .flops import FlopsConfig
from .prepare import PrepareConfig
from .pretrain import SECTIONS, recipe_names

DEFAULT_RECIPE = "electra-small"
SIZES = ("tiny", "mini", "small", "base", "large")
# Sections of a recipe in the order of their help.
BY_USE = ("data", "objective", "corruption", "model", "train")

AddVerb = Callable[[str, str], argparse.ArgumentParser]  # name, help


def parser() -> argparse.ArgumentParser:
    """The parser; the attribute `verb` of its result is the name of the verb."""
    top = Parser(
        prog="electrify",
        description=(
            "Pre-train text encoders as discriminators: from raw text to a Hugging Face model."
        ),
    )
    top.usage = "electrify VERB ..."
    top.epilog = "`electrify VERB --help` says what a verb takes."
    verbs = top.add_subparsers(prog="electrify", dest="verb", metavar="VERB", required=True)

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        return verbs.add_parser(name, help=text, description=text, allow_abbrev=False)

    training_verbs(verb)
    test_verbs(verb)
    telling_verbs(verb)
    demo_verb(verb)
    return top


def training_verbs(verb: AddVerb) -> None:
    """The verbs that turn a text into a model."""
    p = verb(
        "prepare",
        "text files, folders, globs, data sets or `pydocs` -> token shards and a tokenizer",
    )
    p.add_argument(
        "inputs",
        nargs="+",
        metavar="CORPUS",
        help="files, folders, globs, a data set by Hub name, or pydocs",
    )
    add_flags(p, PrepareConfig, skip=("inputs",))

    p = verb(
        "pretrain",
        "a prepared corpus (or a text file) and a recipe -> a run with Hugging Face folders",
    )
    pretrain_flags(p)

    p = verb(
        "export",
        "a run -> a Hugging Face folder, compared with transformers before success is reported",
    )
    p.add_argument("run", metavar="RUN", help="folder made by `electrify pretrain`")
    add_flags(p, ExportConfig)


def telling_verbs(verb: AddVerb) -> None:
    """The verbs that report on recipes and folders."""
    p = verb("flops", "what recipes cost to train and to run, in floating-point operations")
    p.add_argument(
        "recipes", nargs="*", metavar="RECIPE", help="shipped recipes; by default all of them"
    )
    add_flags(p, FlopsConfig, skip=("recipes",))

    p = verb(
        "doctor",
        "what is wrong with a corpus, a run or a model, and what to do; exit status 1 where "
        "anything is damaged or cannot work",
    )
    p.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="folders made by `prepare`, `pretrain` or `export`, or any Hugging Face model",
    )
    add_flags(p, DoctorConfig, skip=("paths",))


def demo_verb(verb: AddVerb) -> None:
    p = verb(
        "demo",
        "the whole path on the documentation of this Python installation, in ten minutes on "
        "two cores",
    )
    flags = p.add_argument_group("flags")
    flags.add_argument(
        "--output-dir",
        "--output_dir",
        dest="output_dir",
        default="demo",
        metavar="DIR",
        help="where everything goes [demo]",
    )
    flags.add_argument(
        "--max-steps",
        type=int,
        default=2500,
        metavar="N",
        help="updates of the pre-training [2500]",
    )
    told = "threads that compute; auto measures which number is the fastest now [auto]"
    flags.add_argument("--threads", default="auto", metavar="N|auto", help=told)


def test_verbs(verb: AddVerb) -> None:
    """The verbs that test a model."""
    p = verb("finetune", "fine-tune any encoder on a task, with several seeds")
    p.add_argument("models", nargs="+", metavar="MODEL", help="folders or Hub ids")
    add_finetune_flags(p)

    p = verb("detect", "each token of a text with its probability of having been replaced")
    p.add_argument("model", metavar="MODEL", help="folder or Hub id of a discriminator")
    p.add_argument(
        "text",
        nargs="?",
        default=argparse.SUPPRESS,
        metavar="TEXT",
        help="the text; standard input where neither it nor --file is given",
    )
    add_flags(p, DetectConfig, skip=("model", "text"))

    p = verb("evaluate", "tests that need no training: BLiMP's minimal pairs")
    p.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="folders or Hub ids, with the head that they were pre-trained with",
    )
    add_flags(p, EvaluateConfig, skip=("models",))


def pretrain_flags(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "data",
        metavar="DATA",
        help="folder made by `electrify prepare`, or a corpus, which is then prepared first",
    )
    run = p.add_argument_group("the run")
    run.add_argument(
        "--output-dir",
        "--output_dir",
        dest="output_dir",
        required=True,
        metavar="RUN",
        help="the run's folder",
    )
    source = run.add_mutually_exclusive_group()
    source.add_argument("--recipe", metavar="NAME", help=f"{names_of_recipes()} [{DEFAULT_RECIPE}]")
    source.add_argument("--config", metavar="FILE.yaml", help="a recipe of your own")
    run.add_argument(
        "--resume",
        choices=("auto", "never", "must"),
        default="auto",
        help="continue the newest complete checkpoint [auto]",
    )
    p.epilog = (
        "What no flag says is as the recipe has it; a value in brackets holds where the recipe "
        "does not say it either."
    )
    for section in BY_USE:
        own.add_flags(p, SECTIONS[section])


def names_of_recipes() -> str:
    """`electra-SIZE or bert-SIZE with tiny, mini, small, base, large for SIZE`, and the names that
    do not follow this pattern."""
    names = recipe_names()
    stems = sorted(
        {
            name.removesuffix("-tiny")
            for name in names
            if all(f"{name.removesuffix('-tiny')}-{size}" in names for size in SIZES)
        }
    )
    others = [name for name in names if name.rsplit("-", 1)[0] not in stems]
    regular = (
        f"one of {', '.join(f'{stem}-SIZE' for stem in stems)} with {', '.join(SIZES)} for SIZE"
    )
    return regular + (f"; or {', '.join(others)}" if others else "")
