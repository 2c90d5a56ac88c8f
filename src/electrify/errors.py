"""The exceptions that are messages to the user.

`UserError` means: the input (file, configuration, checkpoint, request) is wrong, and the text says
what is wrong, where, and what to do. The command line prints it as one sentence and exits with
status 2. `Unfinished` means that nothing is wrong with it and the same command continues: status
75. Anything else that escapes is our own fault and keeps its stack trace.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

SHOWN = 12


class UserError(ValueError):
    """What is wrong, and where, and what to do, in one or two sentences.

    advice: what to do, where another part of the program shows it apart from the rest, or has other
    advice of its own. It is a sentence of its own.
    """

    def __init__(self, fact: str, advice: str = "") -> None:
        super().__init__(fact + f". {advice[:1].upper()}{advice[1:]}" * bool(advice))
        self.fact = fact
        self.advice = advice


class Unfinished(Exception):  # noqa: N818 - it is not an error
    """One clear sentence about what ended the work early; the same command continues it."""


@contextmanager
def failing_as(what: str) -> Iterator[None]:
    """A context that turns whatever a library raises into a UserError that begins with `what`, but
    for a lack of memory. (Some libraries raise bare Exceptions, and a panic of Rust code is not
    even an Exception.)"""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, UserError):
        raise
    except BaseException as e:
        if is_of_memory(e):
            raise
        raise UserError(f"{what} ({type(e).__name__}: {' '.join(str(e).split())[:200]})") from e


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for a name close to a known one, or that people use for one. Otherwise
    the known names, or the most similar ones of a long list."""
    names = sorted(known)
    if meant := meant_by(name, names):
        return f"; did you mean {meant!r}?"
    # Of long names a half in common says little: threshold is not threads.
    cutoff = 0.6 if len(name) < 6 else 0.76
    close = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    if close:
        return f"; did you mean {close[0]!r}?"
    if len(names) > SHOWN:
        likest = difflib.get_close_matches(name, names, n=SHOWN, cutoff=0.0)
        return f"; known: {', '.join(sorted(likest))} and {len(names) - SHOWN} more"
    return f"; known: {', '.join(names)}"


SAME = {
    "lr": ("learning_rate",),
    "batch_size": ("train_batch_size", "per_device_train_batch_size"),
    **dict.fromkeys(("epochs", "num_epochs"), ("num_train_epochs",)),
    "normalize": ("normalize_embeddings",),
    "text_columns": ("text_column",),
    "resume_from_checkpoint": ("resume",),
    **dict.fromkeys(("init_from", "base_model", "pretrained_model"), ("init_discriminator",)),
    **dict.fromkeys(("texts", "examples", "dataset"), ("data_dir",)),
    **dict.fromkeys(("max_length", "model_max_length"), ("max_seq_length",)),
    **dict.fromkeys(("steps", "num_steps", "total_steps", "num_train_steps"), ("max_steps",)),
    **dict.fromkeys(
        ("validation_fraction", "validation_split", "valid_fraction", "test_size"),
        ("valid_fraction", "validation_fraction"),
    ),
    **dict.fromkeys(("eval", "eval_data", "eval_file", "eval_dataset"), ("validation_file",)),
    **dict.fromkeys(("test", "test_data", "test_file", "test_dataset"), ("validation_file",)),
    **dict.fromkeys(("train", "train_data", "train_dataset"), ("train_file",)),
}
"""Names that other libraries have for an option. In Python they may be given."""
MEANT = SAME | {
    **dict.fromkeys(
        ("epochs", "num_epochs", "num_train_epochs"), ("num_train_epochs", "max_steps")
    ),
    **dict.fromkeys(("max_steps", "train_minutes", "flops"), ("budgets",)),
    "config": ("recipe",),
    "text": ("text_column",),
    "label": ("label_column",),
    **dict.fromkeys(("check", "validate", "verify", "inspect"), ("doctor",)),
    **dict.fromkeys(("train", "Trainer", "fit"), ("train_file", "pretrain", "finetune")),
    **dict.fromkeys(("tokenize", "tokenise", "build_corpus"), ("prepare",)),
    **dict.fromkeys(("encode", "embeddings"), ("embed",)),
    **dict.fromkeys(("load_model", "from_pretrained", "AutoModel"), ("load",)),
    **dict.fromkeys(("list_recipes", "models"), ("recipes",)),
    **dict.fromkeys(("upload", "push_to_hub"), ("push",)),
    **dict.fromkeys(("model_dir", "model_path"), ("path", "folder")),
    **dict.fromkeys(("encoder", "encoder_path", "encoder_dir"), ("discriminator",)),
    **dict.fromkeys(("num_parameters", "n_parameters", "params"), ("parameters",)),
    **dict.fromkeys(("results", "df", "dataframe"), ("to_pandas", "table")),
    **dict.fromkeys(("best", "hypotheses"), ("texts",)),
    "predict_proba": ("predict",),
}
"""Names of options, functions and attributes that people try, and those that they may mean."""


ATTRIBUTES = {
    **dict.fromkeys(("output_dir", "save_dir"), ("folder",)),
    **dict.fromkeys(("num_tokens", "n_tokens"), ("tokens",)),
    **dict.fromkeys(("num_documents", "n_documents"), ("documents",)),
    **dict.fromkeys(("to_dataframe", "to_df"), ("to_pandas",)),
}
"""Names that other libraries have for an attribute. They may be read."""


class Named:
    """Base of results, whose attributes are suggested where another name is tried."""

    def __getattr__(self, name: str) -> Any:
        if name in dir(type(self)):  # a property has failed: its own error says why
            return object.__getattribute__(self, name)
        known = {*dir(type(self)), *getattr(type(self), "__dataclass_fields__", ())}
        if own := meant_by(name, known, ATTRIBUTES):
            return getattr(self, own)
        hint = nearest(name, [own for own in known if not own.startswith("_")])
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")


class Figures(dict[str, Any]):
    """Results by name, also as attributes. An error for a wrong name lists those that are known."""

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"{name}{nearest(name, self)}")

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except (KeyError, UserError) as e:
            raise AttributeError(e.args[0]) from None


def meant_by(name: str, known: Collection[str], names: Mapping[str, Any] = MEANT) -> str:
    """The known option that a name which people try stands for; empty if there is none."""
    return next((option for option in names.get(name, ()) if option in known), "")


def need(ok: bool, fact: str, advice: str = "") -> None:
    """Raises UserError with the sentence if the condition is false."""
    if not ok:
        raise UserError(fact, advice)


def must_have(what: str, extra: str, *packages: str) -> None:
    """Raises UserError with the command that installs an extra of electrify, if packages of it are
    missing. what: needs them."""
    missing = [name for name in packages if find_spec(name) is None]
    need(not missing, f"{what} needs {' and '.join(missing)}: pip install 'electrify[{extra}]'")


def is_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, of which torch and safetensors tell by errors of other kinds."""
    text = str(error)
    said = "allocate memory" in text or "out of memory" in text
    return isinstance(error, MemoryError) or (said and not isinstance(error, UserError))
