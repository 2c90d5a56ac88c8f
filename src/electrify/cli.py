"""The command line: one function a verb, each importing its own room. What it knows beyond them is how a mistake ends.

Exit status: 0 done, 1 `doctor` found an error, 2 a mistake of the user, or a machine that has no room or permission (one sentence on stderr), 75
stopped (run again to continue). What is printed may hold names and words of others, so nothing of it steers a terminal.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from .config.checks import check
from .config.detect import DetectConfig
from .config.doctor import DoctorConfig
from .config.evaluate import EvaluateConfig
from .config.export import ExportConfig
from .config.finetune import add_finetune_flags, finetune_from_flags
from .config.flops import FlopsConfig
from .config.prepare import PrepareConfig
from .config.pretrain import SECTION_OF, SECTIONS, load_file, load_recipe, override, recipe_names
from .config.schema import Parser, add_flags, from_flags
from .console import harmless
from .errors import Unfinished, UserError
from .progress import say
from .train.signals import SAVED_EXIT, Interruptible

CONTINUE = {"prepare", "pretrain", "finetune", "demo"}  # verbs that the same command continues where they were stopped
DEFAULT_RECIPE = "electra-small"
# What the machine refuses, wherever a file is opened or written. A file that is not there (ENOENT) is no such case: every reader says that itself.
REFUSALS = {"ENOSPC", "EDQUOT", "EFBIG", "EROFS", "EACCES", "EPERM", "EIO", "ENOTDIR", "EISDIR", "EEXIST", "ENAMETOOLONG", "ELOOP"}


RESTARTED = "ELECTRIFY_RESTARTED"  # in the environment of a process that `keep_docstrings` has started
MAX_SENTENCE = 700  # a message repeats names of others, which may be of any length


def show(text: object) -> None:
    print(harmless(str(text), keep="\n"))


def prepare(args: argparse.Namespace) -> int:
    from .text.prepare import prepare, report

    config = from_flags(PrepareConfig, args)
    show(report(prepare(config), folder=Path(config.output_dir)))
    return 0


def pretrain(args: argparse.Namespace) -> int:
    config = load_file(Path(args.config)) if args.config else load_recipe(args.recipe or DEFAULT_RECIPE)
    config = override(config, {k: v for k, v in vars(args).items() if k in SECTION_OF})
    check(config)  # before a corpus is prepared for it

    from .pretraining import prepared, pretrain

    result = pretrain(prepared(args.data, Path(args.output_dir)), output_dir=Path(args.output_dir), config=config, resume=args.resume)
    if not result.summary.finished:
        print(f"stopped after step {result.summary.step} and saved; run the same command again to continue", file=sys.stderr)
        return SAVED_EXIT
    for part, folder in result.exported.items():
        show(f"{part}: {folder}")
    return 0


def export(args: argparse.Namespace) -> int:
    from .export.hf import export

    config = from_flags(ExportConfig, args)
    show(export(Path(args.run), output_dir=Path(config.output_dir), part=config.part, step=config.step))
    return 0


def finetune(args: argparse.Namespace) -> int:
    from .downstream.finetune import finetune

    show(finetune(finetune_from_flags(args, models=args.models)).table())
    return 0


def detect(args: argparse.Namespace) -> int:
    from .scoring.detect import main

    return main(from_flags(DetectConfig, args))


def evaluate(args: argparse.Namespace) -> int:
    config = from_flags(EvaluateConfig, args, models=tuple(args.models))

    from .scoring.blimp import evaluate, table

    show(table(evaluate(config)))
    return 0


def flops(args: argparse.Namespace) -> int:
    config = from_flags(FlopsConfig, args)

    from .flops.report import report

    show(report(config))
    return 0


def doctor(args: argparse.Namespace) -> int:
    config = from_flags(DoctorConfig, args, paths=tuple(args.paths))

    from .doctor.report import diagnose

    report = diagnose(config)
    print(report.as_json() if config.json else report.text())
    return report.status


def demo(args: argparse.Namespace) -> int:
    from .demo import demo

    demo(Path(args.output_dir), max_steps=args.max_steps)
    return 0


def parser() -> argparse.ArgumentParser:
    top = Parser(prog="electrify", description="Pre-train text encoders as discriminators: from raw text to a Hugging Face model.")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
        sub.set_defaults(run_verb=run)
        return sub

    p = verb("prepare", prepare, "text files, folders, globs, data sets or `pydocs` -> token shards and a tokenizer")
    p.add_argument("inputs", nargs="+", metavar="CORPUS", help="files, folders, globs, a data set by Hub name, or pydocs")
    add_flags(p, PrepareConfig, skip=("inputs",))

    p = verb("pretrain", pretrain, "a prepared corpus (or a text file) and a recipe -> a run with Hugging Face folders")
    pretrain_flags(p)

    p = verb("export", export, "a run -> a Hugging Face folder, compared with transformers before success is reported")
    p.add_argument("run", metavar="RUN", help="folder made by `electrify pretrain`")
    add_flags(p, ExportConfig)

    test_verbs(verb)

    p = verb("flops", flops, "what recipes cost to train and to run, in floating-point operations")
    p.add_argument("recipes", nargs="*", metavar="RECIPE", help="shipped recipes; by default all of them")
    add_flags(p, FlopsConfig, skip=("recipes",))

    p = verb(
        "doctor", doctor, "what is wrong with a corpus, a run or a model, and what to do; exit status 1 where anything is damaged or cannot work"
    )
    p.add_argument("paths", nargs="+", metavar="PATH", help="folders made by `prepare`, `pretrain` or `export`, or any Hugging Face model")
    add_flags(p, DoctorConfig, skip=("paths",))

    p = verb("demo", demo, "the whole path on the documentation of this Python installation, in ten minutes on two cores")
    p.add_argument("--output-dir", "--output_dir", dest="output_dir", default="demo", metavar="DIR", help="where everything goes [demo]")
    p.add_argument("--max-steps", type=int, default=2500, metavar="N", help="updates of the pre-training [2500]")
    return top


def test_verbs(verb: Callable[..., argparse.ArgumentParser]) -> None:
    """The verbs that try a model."""
    p = verb("finetune", finetune, "fine-tune any encoder on a task, with several seeds")
    p.add_argument("models", nargs="+", metavar="MODEL", help="folders or Hub ids")
    add_finetune_flags(p)

    p = verb("detect", detect, "each token of a text with its probability of having been replaced")
    p.add_argument("model", metavar="MODEL", help="folder or Hub id of a discriminator")
    p.add_argument("text", nargs="?", default=argparse.SUPPRESS, metavar="TEXT", help="the text; standard input where neither it nor --file is given")
    add_flags(p, DetectConfig, skip=("model", "text"))

    p = verb("evaluate", evaluate, "tests that need no training: BLiMP's minimal pairs")
    p.add_argument("models", nargs="+", metavar="MODEL", help="folders or Hub ids, with the head that they were pre-trained with")
    add_flags(p, EvaluateConfig, skip=("models",))


def pretrain_flags(p: argparse.ArgumentParser) -> None:
    p.add_argument("data", metavar="DATA", help="folder made by `electrify prepare`, or a corpus, which is then prepared first")
    p.add_argument("--output-dir", "--output_dir", dest="output_dir", required=True, metavar="RUN", help="the run's folder")
    source = p.add_mutually_exclusive_group()
    source.add_argument("--recipe", metavar="NAME", help=f"one of {', '.join(recipe_names())} [{DEFAULT_RECIPE}]")
    source.add_argument("--config", metavar="FILE.yaml", help="a recipe of your own")
    p.add_argument("--resume", choices=("auto", "never", "must"), default="auto", help="continue the newest complete checkpoint [auto]")
    for cls in SECTIONS.values():
        add_flags(p, cls)


def program() -> NoReturn:
    """What `electrify` and `python -m electrify` run."""
    keep_docstrings()
    status = main()
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # DDP keeps gloo's threads beyond the end of their group. One that still lets go of a tensor when the interpreter ends aborts the process
        # (pytorch pull request 179291), and torchrun calls a run failed that is done. All is flushed and closed: leave without that end.
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def keep_docstrings() -> None:
    """Starts Python once more where it strips docstrings (PYTHONOPTIMIZE=2, -OO): transformers builds its classes from theirs and fails without."""
    if sys.flags.optimize < 2 or os.environ.get(RESTARTED):
        return
    words = sys.orig_argv[1:]
    at = next((i for i, word in enumerate(words) if not word.startswith("-") or word in ("-m", "-c", "-X", "-W")), len(words))
    options = ["-O" if word.startswith("-OO") else word for word in words[:at]]
    os.execve(sys.executable, [sys.executable, *options, *words[at:]], os.environ | {"PYTHONOPTIMIZE": "1", RESTARTED: "1"})  # noqa: S606 - no shell is needed


def main(argv: list[str] | None = None) -> int:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell (`>&-`): or the next file that is opened would take its place
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an output that cannot say a character of the text (LC_ALL=C)
    try:
        status = run(parser().parse_args(argv))
    except BrokenPipeError:  # `| head`
        status = 0
    return flushed(status)


def run(args: argparse.Namespace) -> int:
    """The status of a verb; every mistake as one sentence."""
    try:
        with Interruptible():
            return args.run_verb(args)
    except UserError as e:
        sentence, status = str(e), 2
    except Unfinished as e:
        sentence, status = str(e), SAVED_EXIT
    except KeyboardInterrupt as e:
        again = args.verb in CONTINUE
        sentence = f"stopped by {e or 'SIGINT'}" + "; run the same command again to continue" * again
        status = SAVED_EXIT if again else 130
    except BrokenPipeError:
        raise
    except MemoryError:
        sentence, status = "memory ran out: choose smaller numbers, or another machine", 2
    except OSError as e:
        if errno.errorcode.get(e.errno or 0) not in REFUSALS:
            raise
        place = os.fsdecode(e.filename) if e.filename else "standard output, or a file that was being written"
        sentence, status = f"{place}: {e.strerror}", 2
    except BaseException as e:
        if type(e).__name__ != "PanicException" and type(e) is not Exception:  # how the Rust code of tokenizers gives up: nobody else raises these
            raise
        sentence, status = f"the tokenizer failed ({' '.join(str(e).split())[:200]}): its tokenizer.json is damaged or hostile", 2
    if len(sentence) > MAX_SENTENCE:
        sentence = f"{sentence[: MAX_SENTENCE // 2]} ... {sentence[-MAX_SENTENCE // 2 :]}"
    say(f"electrify {args.verb}: {sentence}")
    return status


def flushed(status: int) -> int:
    """The status, once standard output has taken everything. Where it cannot, it leads nowhere from then on, or the interpreter would complain."""
    try:
        sys.stdout.flush()
    except OSError as e:
        if not isinstance(e, BrokenPipeError) and not status:
            say(f"electrify: standard output cannot be written: {e.strerror or e}")
            status = 2
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return status
