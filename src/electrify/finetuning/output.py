"""What `predict`, `embed` and `score` do with files of new texts: results in blocks, and the rows
of the output file."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from ..errors import need
from ..exporting.places import check_place
from ..files import written
from ..onnx_models import must_be_of_torch
from ..progress import Progress, duration, harmless, say
from ..text.report import note_on_unknown
from .new_texts import Files, Item
from .options import OnNewTexts, PredictConfig, ToRows
from .tasks import Sentence

MEGABYTE = 1e6
Predicted = dict[str, Any]
"""The columns that a prediction adds, see docs/predict.md. With --probabilities also
`probabilities`, by label."""
After = Callable[[float], None]
"""Called after each forward pass with the share of the work that it did."""
_BREAKS = str.maketrans("\t\n\r", "   ")


# ------------------------------------------------------------------ a command on files


def done(output_file: str | None, texts: int, began: float) -> str:
    """What `predict` or `embed` did. began: when, by time.monotonic."""
    return f"{output_file}: {texts:,} texts in {duration(time.monotonic() - began)}"


def must_be_ready(options: Any, output_file: str | None) -> None:
    """Raises UserError if the model is not there, or if the output file cannot be written."""
    check_place(options.model)
    if not isinstance(options, PredictConfig):
        must_be_of_torch(options.model)
    if output_file is not None:
        path = Path(output_file)
        need(path.parent.is_dir(), f"{path.parent}: no such folder. Make it first")
        need(not path.is_dir(), f"{path} is a folder. Choose another --output-file")
        free = options.overwrite or not path.exists()
        need(free, f"{path} exists. Choose another --output-file or --overwrite")


def tell(notes: Iterable[str]) -> None:
    """Prints those that are not empty."""
    for note in filter(None, notes):
        say(note)


@contextmanager
def threads_of(options: OnNewTexts, work: Any) -> Iterator[None]:
    """Computes with the threads of --threads."""
    if work.device is None:  # onnxruntime was given them
        yield
        return
    from ..train.machine import choose_threads, computing_with
    from .loop import most_tokens

    how = {"device": work.device, "width": work.reader.width, "bf16": work.bf16}
    with computing_with(choose_threads(options.threads, tokens=most_tokens(work.device), **how)):
        yield


def in_blocks(
    files: Files, work: Any, *, title: str, bar: bool = True
) -> Iterator[tuple[list[Item], Any]]:
    """Every block of items with the result of `work`, a Predictor or an Embedder, for its examples.
    Shows a progress bar, and warns if many words of the first block are unknown to the
    tokenizer. bar: see `Progress`."""
    files.bytes_read = files.texts = before = 0
    with Progress(files.size / MEGABYTE, title=title, unit="MB", bar=bar) as progress:
        for block in files.blocks():
            examples = [item.example for item in block]
            if files.texts == 0:  # the first block
                tell([unknown_note(work, examples)])
            files.texts += len(block)
            read = (files.bytes_read - before) / MEGABYTE
            before = files.bytes_read
            yield block, work(examples, lambda share, read=read: progress.advance(share * read))


def unknown_note(work: Any, examples: Iterable[Any]) -> str:
    """A warning if many characters are unknown to the tokenizer of a Predictor or an Embedder."""
    return note_on_unknown(work.reader.name, work.reader.tokenizer, (e.whole for e in examples))


def write_results(options: ToRows, files: Files, work: Any, *, title: str) -> None:
    """Writes the rows of all items with the results of `work`, in order, into the output file,
    whole or not at all, or to standard output."""
    shown = options.output_file is None
    usual = ".jsonl" if options.json else ".tsv"
    ending = usual if shown else Path(str(options.output_file)).suffix.lower()
    with threads_of(options, work), opened(options.output_file) as stream:
        bar = not (shown and stream.isatty())
        blocks = in_blocks(files, work, title=title, bar=bar)
        found = (pair for block in blocks for pair in zip(*block, strict=True))
        write_rows(stream, found, ending, shown=shown)


# ------------------------------------------------------------------ output


@contextmanager
def opened(output_file: str | None) -> Iterator[TextIO]:
    """The file, which appears when the block ends without an error, or standard output."""
    if output_file is None:
        yield sys.stdout
        return
    with written(Path(output_file)) as part, part.open("w", encoding="utf-8", newline="") as stream:
        yield stream


def write_rows(
    stream: TextIO, found: Iterable[tuple[Item, Predicted]], ending: str, *, shown: bool
) -> None:
    """Each row of the input with the columns of its prediction. shown: whether somebody may see
    them on a terminal, which they must not control."""
    if ending == ".jsonl":
        rows = (joined(*each) for each in found)
        stream.writelines(f"{json.dumps(row, ensure_ascii=shown, default=str)}\n" for row in rows)
    elif ending == ".csv":
        csv.writer(stream).writerows(table(found))  # its line end makes it quote line ends
    else:
        for row in table(found, by_word=True):
            line = "\t".join(cell.translate(_BREAKS) for cell in row)
            stream.write((harmless(line, keep="\t") if shown else line) + "\n")


def table(found: Iterable[tuple[Item, Predicted]], *, by_word: bool = False) -> Iterator[list[str]]:
    """The cells, after a header with the columns of the first row. by_word: tags come in the layout
    of column files, the line of each word with its tag and a blank line after each sentence."""
    columns: list[str] = []
    for item, its in found:
        if by_word and isinstance(item.example, Sentence):
            cells = item.lines or [(word,) for word in item.example.words]
            yield from ([*c, tag] for c, tag in zip(cells, its["predicted_tags"], strict=True))
            yield []
            continue
        sure = its.pop("probabilities", {})
        row = joined(item, its | {f"probability_{label}": p for label, p in sure.items()})
        if not columns:
            columns = list(row)
            yield columns
        yield cells_of(row, columns)


def joined(item: Item, added: Predicted) -> dict[str, Any]:
    """The columns of an item and those that are added, for tags also the words, if a text was split
    into them. Raises UserError if the input has a column with the name of an added one."""
    if isinstance(item.example, Sentence) and [*item.example.words] not in item.columns.values():
        added = {"words": list(item.example.words)} | added
    taken = item.columns.keys() & added.keys()
    need(not taken, f"the input already has a column {min(taken, default='')!r}. Rename it")
    return item.columns | added


def cells_of(row: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    """The cells of a row in a table with these columns. Raises UserError for a further column."""
    odd = [name for name in row if name not in columns]
    need(not odd, f"not every row has the columns {', '.join(odd)}", "write .jsonl")
    return [as_text(row.get(name)) for name in columns]


def as_text(value: Any) -> str:
    """A value in a cell of a table: nothing for null, a list with bars between."""
    if isinstance(value, list) and all(isinstance(one, str | int | float) for one in value):
        return "|".join(map(str, value))
    if isinstance(value, bool | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "" if value is None else str(value)


def rounded(number: float) -> float:
    """To seven digits, the precision of float32."""
    return float(f"{number:.7g}")
