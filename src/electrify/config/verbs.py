"""The parser of the command line: every verb with its arguments and flags, and their help.

A verb's flags come from the dataclasses of its options. These are imported only for the verb that
is called, because all of them together take longer than the rest of `electrify --help`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

from .. import __version__
from .flags import Parser, add_flags

DEFAULT_RECIPE = "electra-small"
SIZES = ("tiny", "mini", "small", "base", "large")
# Sections of a recipe in the order of their help.
BY_USE = ("data", "objective", "corruption", "model", "train")


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser; the attribute `verb` of its result is the name of the verb.

    only: the first word of the command line. If it is given, every verb has its line in the help,
    but only the verb of this name has arguments and flags.
    """
    top = Parser(
        prog="electrify",
        description=(
            "Pre-train text encoders as discriminators: from raw text to a Hugging Face model."
        ),
    )
    top.usage = "electrify VERB ..."
    top.epilog = "`electrify VERB --help` says what a verb takes."
    top.add_argument("--version", action="version", version=f"electrify {__version__}")
    verbs = top.add_subparsers(prog="electrify", dest="verb", metavar="VERB", required=True)
    for name, verb in VERBS.items():
        p = verbs.add_parser(name, help=verb.help, description=verb.help, allow_abbrev=False)
        if only in (None, name):
            p.whole = parser
            verb.add_flags(p)
    return top


def prepare_flags(p: argparse.ArgumentParser) -> None:
    from .prepare import PrepareConfig
    from .presets import PRESETS

    p.add_argument(
        "inputs",
        nargs="+",
        metavar="CORPUS",
        help="files, folders, globs, data sets of the Hub (hub:NAME), or pydocs",
    )
    p.add_argument_group("a kind of text").add_argument(
        "--preset",
        choices=tuple(PRESETS),
        default=argparse.SUPPRESS,
        help="sets case, boundaries, tokenizer and vocabulary for such text, and says what it set; "
        "a flag that is given wins",
    )
    add_flags(p, PrepareConfig, skip=("inputs",))


def pretrain_flags(p: argparse.ArgumentParser) -> None:
    from . import own
    from .pretrain import SECTIONS
    from .row_checks import rows_must_fit

    p.add_argument(
        "data",
        metavar="DATA",
        help="folder made by `electrify prepare`, or a corpus, which is then prepared first",
    )
    add_run_flags(p.add_argument_group("the run"))
    p.epilog = (
        "What no flag sets is as in the recipe; a value in brackets holds if the recipe does not "
        "set it either."
    )
    rows_must_fit(SECTIONS, beside={action.dest for action in p._actions})
    for section in BY_USE:
        own.add_flags(p, SECTIONS[section])


def add_run_flags(run: argparse._ArgumentGroup) -> None:
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
    run.add_argument(
        "--train-minutes",
        "--train_minutes",
        dest="train_minutes",
        type=float,
        metavar="N",
        help="as many updates as N minutes hold, measured first, in place of --max-steps",
    )


def names_of_recipes() -> str:
    """`electra-SIZE or bert-SIZE with tiny, mini, small, base, large for SIZE`, and the names that
    do not follow this pattern."""
    from .pretrain import recipe_names

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


def export_flags(p: argparse.ArgumentParser) -> None:
    from .export import ExportConfig

    p.add_argument("run", metavar="RUN", help="folder made by `electrify pretrain`")
    add_flags(p, ExportConfig)


def finetune_flags(p: argparse.ArgumentParser) -> None:
    from .finetune import add_finetune_flags

    p.add_argument("models", nargs="+", metavar="MODEL", help="folders or Hub ids")
    add_finetune_flags(p)


def predict_flags(p: argparse.ArgumentParser) -> None:
    from .predict import PredictConfig

    p.add_argument("model", metavar="MODEL", help="folder or Hub id of a fine-tuned model")
    p.add_argument("files", nargs="+", metavar="FILE", help=field_help(PredictConfig))
    add_flags(p, PredictConfig, skip=("model", "files"))


def embed_flags(p: argparse.ArgumentParser) -> None:
    from .embed import EmbedConfig

    p.add_argument("model", metavar="MODEL", help="folder or Hub id of an encoder")
    p.add_argument("files", nargs="+", metavar="FILE", help=field_help(EmbedConfig))
    add_flags(p, EmbedConfig, skip=("model", "files"))


def field_help(cls: type) -> str:
    from .schema import help_of

    return help_of(cls, "files").replace("%", "%%")


def detect_flags(p: argparse.ArgumentParser) -> None:
    from .detect import DetectConfig

    p.add_argument("model", metavar="MODEL", help="folder or Hub id of a discriminator")
    p.add_argument(
        "text",
        nargs="?",
        default=argparse.SUPPRESS,
        metavar="TEXT",
        help="the text; standard input where neither it nor --file is given",
    )
    add_flags(p, DetectConfig, skip=("model", "text"))


def evaluate_flags(p: argparse.ArgumentParser) -> None:
    from .evaluate import EvaluateConfig

    p.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="folders or Hub ids, with the head that they were pre-trained with",
    )
    add_flags(p, EvaluateConfig, skip=("models",))


def compare_flags(p: argparse.ArgumentParser) -> None:
    from .compare import CompareConfig

    p.add_argument("data", metavar="DATA", help="folder made by `electrify prepare`")
    add_flags(p, CompareConfig, skip=("data",))


def flops_flags(p: argparse.ArgumentParser) -> None:
    from .flops import FlopsConfig

    p.add_argument(
        "recipes",
        nargs="*",
        metavar="RECIPE",
        help="shipped recipes, with changes after a colon (electra-tiny:mask_rate=.3,tie=gdes), or "
        "recipe files; by default all shipped ones",
    )
    add_flags(p, FlopsConfig, skip=("recipes",))


def doctor_flags(p: argparse.ArgumentParser) -> None:
    from .doctor import DoctorConfig

    p.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="folders made by `prepare`, `pretrain` or `export`, or any Hugging Face model",
    )
    add_flags(p, DoctorConfig, skip=("paths",))


def demo_flags(p: argparse.ArgumentParser) -> None:
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
        default=2230,
        metavar="N",
        help="updates of the pre-training [2230]",
    )
    told = "threads that compute; auto measures which number is the fastest now [auto]"
    flags.add_argument("--threads", default="auto", metavar="N|auto", help=told)


class Verb(NamedTuple):
    """A verb of the command line."""

    help: str
    add_flags: Callable[[argparse.ArgumentParser], None]


VERBS = {
    "prepare": Verb(
        "text files, folders, globs, data sets or `pydocs` -> token shards and a tokenizer",
        prepare_flags,
    ),
    "pretrain": Verb(
        "a prepared corpus (or a text file) and a recipe -> a run with Hugging Face folders",
        pretrain_flags,
    ),
    "export": Verb(
        "a run -> a Hugging Face folder, compared with transformers before success is reported",
        export_flags,
    ),
    "finetune": Verb("fine-tune any encoder on a task, with several seeds", finetune_flags),
    "predict": Verb(
        "what a fine-tuned model says about new texts: labels, values, tags or answers",
        predict_flags,
    ),
    "embed": Verb("texts -> vectors of an encoder, centred or whitened on request", embed_flags),
    "detect": Verb(
        "each token of a text with its probability of having been replaced", detect_flags
    ),
    "evaluate": Verb("tests that need no training: BLiMP's minimal pairs", evaluate_flags),
    "compare": Verb(
        "which recipe is best for a budget: trains and measures each with several seeds, and "
        "reports with intervals",
        compare_flags,
    ),
    "flops": Verb(
        "what recipes cost to train and to run, in floating-point operations", flops_flags
    ),
    "doctor": Verb(
        "what is wrong with a corpus, a run or a model, and what to do; exit status 1 where "
        "anything is damaged or cannot work",
        doctor_flags,
    ),
    "demo": Verb(
        "the whole path on the documentation of this Python installation; 8 to 20 minutes on "
        "two cores",
        demo_flags,
    ),
}
