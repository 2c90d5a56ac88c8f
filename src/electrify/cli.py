"""The command line: words become the options of a command, which is then called once.

Errors and signals become exit statuses here: 0 done, 1 `doctor` found an error or a run of
`compare` failed, 2 a mistake of the user or a lack of space, memory or permission (one sentence on
stderr), 75 stopped and resumed by the same command, 128 plus the signal's number if a command was
stopped that cannot be resumed.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import errno
import inspect
import io
import logging
import os
import platform
import re
import shlex
import shutil
import signal
import sys
import traceback
import typing
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from itertools import pairwise
from textwrap import dedent, wrap
from typing import Any, NoReturn

from . import __version__
from .commands import COMMANDS
from .errors import Unfinished, UserError, is_of_memory
from .names import MEANT, meant_by, nearest
from .process import SAVED_EXIT, Stop, wait_briefly
from .progress import say, show, show_progress
from .values import Hidden, Options, Positional, is_marked, kinds, plain_kind

RESUMED = {"prepare", "pretrain", "finetune", "compare", "demo"}
"""Commands that resume when they are run again."""
HELP = {"-h", "--help", "--help-all"}
EVERYDAY = {
    "pretrain": """
        output_dir recipe resume train_minutes flops max_steps mlm_share train_batch_size
        per_device_train_batch_size learning_rate max_seq_length seed device bf16 eval_steps
        save_steps init_discriminator""",
    "finetune": """
        output_dir task data_dir train_file validation_file text_column pair_column label_column
        problem_type metrics seeds baselines random_baseline save_model learning_rate
        num_train_epochs load_best_model_at_end max_seq_length frozen_encoder device""",
}
"""The flags that --help shows, where --help-all shows more."""
FLAG = re.compile(r"--?[A-Za-z][\w-]*(=|$)")


def program() -> NoReturn:
    """The main function of `electrify` and `python -m electrify`."""
    wait_briefly()
    status = main(sys.argv[1:])
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # DDP keeps gloo's threads beyond the end of their group, and a tensor freed by one of them
        # aborts the interpreter at its end (pytorch pull request 179291). All is flushed here.
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def main(words: list[str]) -> int:
    """Runs a command and returns its exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # LC_ALL=C cannot encode all text
    quiet, verbose = ({"-q", "--quiet"} & {*words}, {"-v", "--verbose"} & {*words})
    words = [word for word in words if word not in quiet | verbose]
    show_progress(logging.WARNING if quiet else logging.INFO)
    command = words[0] if words and words[0] in COMMANDS else ""
    try:
        with Stop(at_once=True):
            status = run(words)
            sys.stdout.flush()
    except BrokenPipeError:  # `| head`
        status = 0
    except BaseException as e:
        sentence, status = ending(e, command)
        if sentence is None:
            raise
        if verbose:
            traceback.print_exception(e)
        sentence = as_flag(sentence, command) if isinstance(e, UserError) and command else sentence
        say(f"{f'electrify {command}'.strip()}: {sentence}", logging.ERROR)
    try:
        sys.stdout.flush()
    except OSError:  # told before, and the interpreter would complain at its end once more
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return status


def ending(e: BaseException, command: str) -> tuple[str | None, int]:
    """The sentence and the status with which an error ends a command. No sentence for an error of
    this program, which keeps its traceback."""
    text = str(e)
    match e:
        case UserError():
            return f"error: {text}", 2
        case Unfinished():
            return text, SAVED_EXIT
        case KeyboardInterrupt():
            name = text or "SIGINT"
            if command in RESUMED:
                return f"stopped by {name}. Run the same command again to resume", SAVED_EXIT
            return f"stopped by {name}", 128 + signal.Signals[name]
        case OSError() if e.errno not in (None, errno.ENOENT):  # a full disk, no permission, ...
            where = e.filename or "standard output, a file or the network"
            return f"error: {where}: {e.strerror}", 2
    if is_of_memory(e):
        return "error: memory ran out. Use smaller batches, or another machine", 2
    if type(e).__module__.startswith(("huggingface_hub", "httpx")):
        return f"error: the Hugging Face Hub: {' '.join(text.split())[:300]}", 2
    return None, 1


def as_flag(sentence: str, command: str) -> str:
    """The sentence with its fields as the flags or arguments that set them: `name=value`, the one
    that it begins with, and any other that is no word of English. In a sentence that begins with a
    recipe file, they stay as they are written."""
    words = {option.name: option.word for option in options_of(class_of(command))}

    def flag(found: re.Match[str]) -> str:
        return words.get(found[0], found[0])

    def setting(found: re.Match[str]) -> str:
        return f"{words[found[1]]} " if found[1] in words else found[0]

    sentence = re.sub(r"(?<=^error: )[a-z_0-9]+(?=[ :])", flag, sentence)
    if re.match(r"error: \S+\.ya?ml\b", sentence):
        return sentence
    sentence = re.sub(r"(?<![\w/'.:,-])([a-z][a-z_0-9]*)=(?=\S)", setting, sentence)
    return re.sub(r"(?<![\w/'.-])[a-z]+(?:_[a-z0-9]+)+(?![\w/'.-])", flag, sentence)


def run(words: list[str]) -> int:
    """Reads the command line and calls the command."""
    match words:
        case ["help", name, *_] if name in COMMANDS:
            show(help_of(name, []))
        case [] | ["-h" | "--help" | "--help-all" | "help", *_]:
            show(overview())
        case ["--version", *_]:
            show(versions())
        case ["--print-completion", *_]:
            show(completion())
        case [name, *_] if name not in COMMANDS:
            raise UserError(f"there is no command {name!r}{nearest(name, COMMANDS)}")
        case [name, *rest] if HELP & {*rest}:
            show(help_of(name, rest))
        case [name, *rest]:
            return COMMANDS[name](read(name, rest)) or 0
    return 0


# ------------------------------------------------------------------ options


@dataclasses.dataclass(frozen=True)
class Option:
    """A flag or an argument of a command."""

    home: type
    """The dataclass that has it as a field."""
    name: str
    kind: Any
    default: Any
    heading: str

    @property
    def positional(self) -> bool:
        return is_marked(self.kind, Positional)

    @property
    def several(self) -> bool:
        return typing.get_origin(plain_kind(self.kind)) is tuple

    @property
    def word(self) -> str:
        return self.name.upper() if self.positional else "--" + self.name.replace("_", "-")

    @property
    def needed(self) -> bool:
        return self.default is dataclasses.MISSING

    @property
    def help(self) -> str:
        """In lines: the text, and each item of a list in it, which begins with a hyphen."""
        parts = re.split(r"\n(?=- )", docstrings(self.home).get(self.name, ""))
        return "\n".join(" ".join(part.split()) for part in parts)


@cache
def docstrings(cls: type) -> dict[str, str]:
    """The docstring under each field of a dataclass."""
    found: dict[str, str] = {}
    for base in cls.__mro__[-2::-1]:
        (tree,) = ast.parse(dedent(inspect.getsource(base))).body
        for node, below in pairwise(getattr(tree, "body", ())):
            match node, below:
                case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    found[name] = inspect.cleandoc(text)
    return found


def class_of(name: str) -> type[Options]:
    """The dataclass of a command's options."""
    return typing.get_type_hints(COMMANDS[name])["options"]


def options_of(
    cls: Any, defaults: Mapping[str, Any] | None = None, heading: str = "Options"
) -> list[Option]:
    """The options of a command, those of nested dataclasses under headings of their own. defaults:
    values of fields in place of their defaults."""
    found, nested = [], []
    for field in dataclasses.fields(cls):
        kind, given = kinds(cls)[field.name], defaults or {}
        if dataclasses.is_dataclass(kind):
            own = vars(given[field.name]) if field.name in given else None
            nested += options_of(kind, own, field.name.capitalize())
        elif not is_marked(kind, Hidden):
            made = field.default_factory
            usual = field.default if made is dataclasses.MISSING else made()
            found.append(Option(cls, field.name, kind, given.get(field.name, usual), heading))
    return found + nested


def read(name: str, words: list[str]) -> Any:
    """The options that the words give. Raises UserError."""
    return class_of(name).of(given_by(name, words))


def given_by(name: str, words: list[str]) -> dict[str, Any]:
    """The options that the words give, as text. A Boolean may stand alone, or as --no-flag, the
    values of a list may follow several flags, and underscores may take the place of hyphens. Raises
    UserError."""
    options = options_of(class_of(name))
    flags = {option.word: option for option in options if not option.positional}
    switches = {word for word, option in flags.items() if plain_kind(option.kind) is bool}
    found: dict[str, Any] = {}
    loose, waiting = list[str](), list(words)
    while waiting:
        word = waiting.pop(0)
        if not FLAG.match(word):  # a text may begin with a hyphen
            loose.append(word)
            continue
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        positive = "--" + flag.removeprefix("--no-")
        if flag not in flags and positive in switches and not equals:
            flag, equals, value = positive, "=", "false"
        if flag not in flags:
            raise UserError(about(word.partition("=")[0], name, flags))
        ahead, option = waiting[0] if waiting else "--", flags[flag]
        if not equals and flag in switches and ahead.lower() not in ("true", "false", "none"):
            value = "true"
        elif not equals and ahead.startswith("--"):
            raise UserError(f"{flag} needs a value")
        elif not equals:
            value = waiting.pop(0)
        earlier = f"{found[option.name]}," if option.several and option.name in found else ""
        found[option.name] = earlier + os.path.expanduser(value)
    for option in options:
        if option.positional and loose:
            found[option.name] = tuple(loose) if option.several else loose[0]
            loose = [] if option.several else loose[1:]
    if loose:
        raise UserError(about(loose[0], name, flags))
    return found


def about(word: str, name: str, flags: Mapping[str, Option]) -> str:
    """What is wrong with a word that a command does not know."""
    if not word.startswith("-"):
        return f"unexpected argument {word!r}. Text with spaces needs quotes"
    flag = word.replace("_", "-")
    fields = {option.name: flag for flag, option in flags.items()}
    having = [n for n in COMMANDS if flag in (option.word for option in options_of(class_of(n)))]
    close = difflib.get_close_matches(flag, flags, n=1, cutoff=0.9 if having else 0.6)
    likely = meant_by(flag[2:].replace("-", "_"), fields, MEANT)
    for meant in [fields[likely]] if likely else close:
        return f"there is no flag {word}; did you mean {meant}?"
    if having:
        return f"{word} is a flag of {', '.join(having)}, not of {name}"
    return f"there is no flag {word}. See `electrify {name} --help-all`"


# ------------------------------------------------------------------ help


def overview() -> str:
    """The help of `electrify`."""
    commands = "\n".join(f"  {name:<10} {function.__doc__}" for name, function in COMMANDS.items())
    return (
        "Pre-train text encoders as discriminators, from raw text to a Hugging Face model.\n\n"
        f"usage: electrify COMMAND ...\n\n{commands}\n\n"
        "`electrify COMMAND --help` shows the options of a command. An option `--NAME true|false`\n"
        "may be written `--NAME` or `--no-NAME`. With -q a command prints warnings and results\n"
        "only, with -v the traceback of an error. `--version` prints versions,\n"
        "`--print-completion` one completion script for bash and zsh."
    )


def versions() -> str:
    """The versions of electrify and of what it computes with."""
    names = ("torch", "transformers", "tokenizers")
    found = [f"{name} {metadata.version(name)}" for name in names]
    return "\n".join([f"electrify {__version__}", *found, f"Python {platform.python_version()}"])


def completion() -> str:
    """What a shell needs to complete commands, flags and files: bash, and zsh by bashcompinit."""
    lines = ["_electrify() {", f"  local words={shlex.quote(' '.join([*COMMANDS, *sorted(HELP)]))}"]
    lines += ['  if [ "$COMP_CWORD" -gt 1 ]; then', '    case "${COMP_WORDS[1]}" in']
    for name in COMMANDS:
        flags = " ".join(o.word for o in options_of(class_of(name)) if not o.positional)
        lines.append(f"      {name}) words={shlex.quote(f'{flags} --help --help-all')} ;;")
    lines += ["    esac", "  fi"]
    lines += ['  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))', "}"]
    return "\n".join([*lines, "complete -o default -F _electrify electrify"])


def help_of(name: str, words: list[str]) -> str:
    """The help of a command: the flags of every day, or with --help-all the others too."""
    cls = class_of(name)
    given = given_by(name, [word for word in words if word not in HELP])
    options = options_of(cls, cls.defaults(given))
    everyday = EVERYDAY.get(name, "").split()
    needed = [o for o in options if o.positional or o.needed]
    words_needed = (
        f"{o.word} {value_of(o)}".rstrip() if o.needed else f"[{o.word}]" for o in needed
    )
    usage = " ".join(["usage: electrify", name, *words_needed, "[options]"])
    width = min(shutil.get_terminal_size().columns, 100)
    lines = [f"{COMMANDS[name].__doc__}.", "", *wrap(usage, width, subsequent_indent=TAB)]
    short = everyday and "--help-all" not in words
    heading = ""
    for option in options:
        if short and option.name not in everyday and option not in needed:
            continue
        if option.heading != heading:
            heading = option.heading
            lines += ["", f"{heading}:"]
        lines.append(f"  {option.word} {value_of(option)}".rstrip())
        said, default = option.help, shown(option.default)
        if default:
            said = f"{re.sub(r' .default:[^]]*.', '', said)} [default: {default}]"
        for part in said.splitlines():  # the items of a list begin with a hyphen
            further = TAB + "  " * part.startswith("- ")
            lines += wrap(
                part, width, initial_indent=TAB, subsequent_indent=further, break_on_hyphens=False
            )
    if short:
        lines += ["", f"`electrify {name} --help-all` shows all options."]
    return "\n".join(lines)


TAB = " " * 6


def value_of(option: Option) -> str:
    """The placeholder of an option's value in the help."""
    if option.positional:
        return ""
    end = option.word.rpartition("-")[2]
    return end.upper() if end in ("dir", "file") else metavar_of(option.kind)


def metavar_of(kind: Any) -> str:
    kind = plain_kind(kind)
    args = typing.get_args(kind)
    match typing.get_origin(kind):
        case typing.Literal:
            return "{" + ",".join(map(str, args)) + "}"
        case origin if origin is tuple:
            return f"{metavar_of(args[0])},..."
        case origin if origin is dict:
            return f"{metavar_of(args[0])}={metavar_of(args[1])},..."
    return {int: "N", float: "X", bool: "true|false"}.get(kind, "TEXT")


def shown(value: Any) -> str:
    """A default in the help, empty if there is none."""
    if value in (None, dataclasses.MISSING, (), {}):
        return ""
    if isinstance(value, Mapping):
        return ",".join(f"{k}={v}" for k, v in value.items())
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
