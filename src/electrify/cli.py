"""The command line: one function a verb, each importing its own room. What it knows beyond them is
how a mistake ends.

Exit status: 0 done, 1 `doctor` found an error, 2 a mistake of the user, or a machine that has no
room or permission (one sentence on stderr), 75 stopped (run again to continue), 128 and the
signal's number where a verb that begins anew was stopped. What is printed may hold names and words
of others, so nothing of it steers a terminal.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from .config.checks import check
from .config.detect import DetectConfig
from .config.doctor import DoctorConfig
from .config.evaluate import EvaluateConfig
from .config.export import ExportConfig
from .config.finetune import finetune_from_flags
from .config.flags import from_flags, named_as_flags
from .config.flops import FlopsConfig
from .config.prepare import PrepareConfig
from .config.pretrain import load_file, load_recipe, override, section_of
from .config.verbs import DEFAULT_RECIPE, parser
from .console import harmless
from .cores import wait_briefly
from .errors import Unfinished, UserError, place_of
from .files.inside import must_be_utf8, must_not_be_in_a_checkpoint
from .progress import say
from .train.signals import SAVED_EXIT, Interruptible

CONTINUE = {
    "prepare",
    "pretrain",
    "finetune",
    "demo",
}  # verbs that the same command continues where they were stopped
# What the machine refuses, wherever a file is opened or written. A file that is not there (ENOENT)
# is no such case: every reader says that itself.
REFUSALS = {
    "ENOSPC",
    "EDQUOT",
    "EFBIG",
    "EROFS",
    "EACCES",
    "EPERM",
    "EIO",
    "ENOTDIR",
    "EISDIR",
    "EEXIST",
    "ENAMETOOLONG",
    "ELOOP",
}


RESTARTED = (
    "ELECTRIFY_RESTARTED"  # in the environment of a process that `keep_docstrings` has started
)
HOSTILE = "its tokenizer.json is damaged or hostile"
MAX_SENTENCE = 700  # a message repeats names of others, which may be of any length


def show(text: object) -> None:
    """Prints a result. A reader who has gone (`| head`) misses nothing that he wanted, and the
    status stays what it is."""
    try:
        print(harmless(str(text), keep="\n"))
    except BrokenPipeError:
        pass
    except OSError as e:
        raise UserError(f"standard output cannot be written: {e.strerror}") from e


# ------------------------------------------------------------------ verbs: what files and folders show is said before anything heavy is imported


def prepare(args: argparse.Namespace) -> int:
    config = from_flags(PrepareConfig, args)
    with named_as_flags(vars(config)):
        config.check()

    from .text.prepare import prepare, report

    show(report(prepare(config), folder=Path(config.output_dir)))
    return 0


def pretrain(args: argparse.Namespace) -> int:
    config = (
        load_file(Path(args.config)) if args.config else load_recipe(args.recipe or DEFAULT_RECIPE)
    )
    fields = section_of()
    given = {k: v for k, v in vars(args).items() if k in fields}
    with named_as_flags(given):
        config = override(config, given)
    with named_as_flags(
        given if args.config else fields
    ):  # what a file of the user says has the names of the file
        check(config)  # before a corpus is prepared for it
    output_dir = Path(args.output_dir)
    must_be_utf8(output_dir)  # before a corpus is prepared for it
    must_not_be_in_a_checkpoint(output_dir)

    from .export.places import check_place
    from .text.given import prepared

    for start in (config.train.init_discriminator, config.train.init_generator):
        if start and not output_dir.exists():  # a run that continues does not need them any more
            check_place(start)
    data = prepared(args.data, output_dir)

    from .pretraining import pretrain

    result = pretrain(data, output_dir=output_dir, config=config, resume=args.resume)
    if not result.summary.finished:
        say(
            f"stopped after step {result.summary.step} and saved; run the same command again to "
            "continue"
        )
        return SAVED_EXIT
    for part, folder in result.exported.items():
        show(f"{part}: {folder}")
    return 0


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


def detect(args: argparse.Namespace) -> int:
    config = from_flags(DetectConfig, args)

    from .export.places import check_place
    from .scoring.given import given_text

    if config.text is None and config.file is None:
        check_place(config.model)  # before a text is read, or typed, for it
    config = replace(config, text=given_text(config), file=None)
    check_place(config.model)

    from .scoring.detect import main

    with named_as_flags(["max_seq_length"]):  # which only the model can judge
        return main(config)


def evaluate(args: argparse.Namespace) -> int:
    config = from_flags(EvaluateConfig, args, models=tuple(args.models))

    from .export.places import check_place
    from .scoring.blimp import evaluate, table

    for model in config.models:
        check_place(model)
    show(table(evaluate(config)))
    return 0


def flops(args: argparse.Namespace) -> int:
    config = from_flags(FlopsConfig, args)

    from .flops.report import report

    show(report(config))
    return 0


def doctor(args: argparse.Namespace) -> int:
    config = from_flags(DoctorConfig, args, paths=tuple(args.paths))

    from .doctor.kind import kind_of

    for path in config.paths:
        kind_of(Path(path))

    from .doctor.report import diagnose

    report = diagnose(config)
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
    "detect": detect,
    "evaluate": evaluate,
    "flops": flops,
    "doctor": doctor,
    "demo": demo,
}


def program() -> NoReturn:
    """What `electrify` and `python -m electrify` run."""
    wait_briefly()
    keep_docstrings()
    status = main()
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # DDP keeps gloo's threads beyond the end of their group. One that still lets go of a tensor
        # when the interpreter ends aborts the process (pytorch pull request 179291), and torchrun
        # calls a run failed that is done. All is flushed and closed: leave without that end.
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def keep_docstrings() -> None:
    """Starts Python once more where it strips docstrings (PYTHONOPTIMIZE=2, -OO): transformers
    builds its classes from theirs and fails without."""
    if sys.flags.optimize < 2 or os.environ.get(RESTARTED):
        return
    words = sys.orig_argv[1:]
    at = next(
        (
            i
            for i, word in enumerate(words)
            if not word.startswith("-") or word in ("-m", "-c", "-X", "-W")
        ),
        len(words),
    )
    options = ["-O" if word.startswith("-OO") else word for word in words[:at]]
    os.execve(
        sys.executable,
        [sys.executable, *options, *words[at:]],
        os.environ | {"PYTHONOPTIMIZE": "1", RESTARTED: "1"},
    )  # noqa: S606 - no shell is needed


def main(argv: list[str] | None = None) -> int:
    for name in ("stdout", "stderr"):
        if (
            getattr(sys, name) is None
        ):  # closed by the shell (`>&-`): or the next file that is opened would take its place
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            errors="backslashreplace"
        )  # an output that cannot say a character of the text (LC_ALL=C)
    try:
        status = run(parser().parse_args(argv))
    except BrokenPipeError:  # `| head`
        status = 0
    return flushed(status)


def run(args: argparse.Namespace) -> int:
    """The status of a verb; every mistake as one sentence."""
    try:
        with Interruptible():
            return VERBS[args.verb](args)
    except UserError as e:
        sentence = str(e)
        status = 2
    except Unfinished as e:
        sentence = str(e)
        status = SAVED_EXIT
    except KeyboardInterrupt as e:
        again = args.verb in CONTINUE
        name = str(e) or "SIGINT"
        sentence = f"stopped by {name}" + "; run the same command again to continue" * again
        status = (
            SAVED_EXIT if again else 128 + signal.Signals[name]
        )  # what a shell makes of a program that the signal ended
    except BrokenPipeError:
        raise
    except MemoryError:
        sentence = "memory ran out: choose smaller numbers, or another machine"
        status = 2
    except OSError as e:
        if errno.errorcode.get(e.errno or 0) not in REFUSALS and is_here():
            raise
        sentence = f"{place_of(e)}: {e.strerror}"
        status = 2
    except BaseException as e:
        if (
            type(e).__name__ != "PanicException" and type(e) is not Exception
        ):  # how the Rust code of tokenizers gives up: nobody else raises these
            raise
        said = " ".join(str(e).split())[:200]
        machines = re.search(
            r"\(os error \d+\)", said
        )  # how Rust writes down what the machine refused
        sentence = (
            f"a file could not be written or read ({said})"
            if machines
            else f"the tokenizer failed ({said}): {HOSTILE}"
        )
        status = 2
    if status == 2 and not is_here():
        sentence = (
            "the folder in which this command was started has been deleted; go to one that is there"
        )
    if len(sentence) > MAX_SENTENCE:
        sentence = f"{sentence[: MAX_SENTENCE // 2]} ... {sentence[-MAX_SENTENCE // 2 :]}"
    say(f"electrify {args.verb}: {sentence}")
    return status


def is_here() -> bool:
    """Whether the folder in which we work is still there: without it no relative path leads
    anywhere."""
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def flushed(status: int) -> int:
    """The status, once standard output has taken everything. Where it cannot, it leads nowhere from
    then on, or the interpreter would complain."""
    try:
        sys.stdout.flush()
    except OSError as e:
        if not isinstance(e, BrokenPipeError) and not status:
            say(f"electrify: standard output cannot be written: {e.strerror or e}")
            status = 2
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return status
