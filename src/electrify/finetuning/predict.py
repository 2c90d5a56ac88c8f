"""`electrify predict`: a fine-tuned model on files of any size, in bounded memory, or on a list of
texts."""

from __future__ import annotations

import csv
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from ..console import harmless
from ..errors import UserError
from ..exporting.places import check_place
from ..files import read_json, written
from ..onnx_models import is_onnx
from ..progress import Progress, duration, say
from ..scoring.options import given_texts
from ..text.report import note_on_unknown
from .encoding import Truncation, text_of
from .new_texts import Files, Head, Item
from .options import EmbedConfig, PredictConfig
from .saved import KEY, kind_of
from .tasks import MAX_SEQ_LENGTH, Example, Kind, Question, Sentence

MEGABYTE = 1e6
USED_BY = {
    "threshold": ("multilabel",),
    "no_answer_threshold": ("answering",),
    "probabilities": ("classification", "multilabel"),
}
"""Options that are not for every kind of task."""
Prediction = dict[str, Any]
"""The columns that a prediction adds, see docs/predict.md. With --probabilities also
`probabilities`, by label."""
After = Callable[[float], None]
"""Called after each forward pass with the share of the work that it did."""
Row = dict[str, Any] | list[str]
"""Of the output: cells by column, or without."""
_BREAKS = str.maketrans("\t\n\r", "   ")


# ------------------------------------------------------------------ predictions


class Predictor:
    """A fine-tuned model: examples -> predictions."""

    def __init__(self, model: str, options: PredictConfig) -> None:
        """Loads the model. Raises UserError if that fails, or for an option of another kind."""
        from . import loop
        from .answering import Answering
        from .model import computing_in_bf16, load_finetuned
        from .tagging import Tagging
        from .texts import Texts

        self.options = options
        self.device = loop.device_named(options.device)
        self.bf16 = loop.computes_in_bf16(options.bf16, self.device)
        self.model = load_finetuned(model, device=self.device)
        self.reader = self.model.reader
        self.kind: Kind = self.model.kind
        must_be_for(options, self.kind)
        if self.bf16:
            computing_in_bf16(self.model.net.encoder)
        noted, given = self.model.reading, options.no_answer_threshold
        self.none_above = noted.no_answer_threshold if given is None else given
        wanted = options.max_seq_length or noted.max_seq_length
        length = self.reader.fitting(wanted, MAX_SEQ_LENGTH[self.kind])
        how: dict[str, Any] = {"max_seq_length": length, "device": self.device}
        made = {"tagging": Tagging, "answering": Answering}.get(self.kind, Texts)
        if self.kind == "answering":
            kept = {"doc_stride": noted.doc_stride, "longest_answer": noted.max_answer_length}
            how |= {name: value for name, value in kept.items() if value is not None}
            how["answerless"] = self.none_above is not None
        self.problem: Any = made(self.reader, self.kind, self.model.labels, **how)
        self.examples = 0
        self.truncation = Truncation(self.reader, length)
        self.long_questions: list[int] = []
        """Lengths in tokens of the questions that were truncated."""

    def __call__(self, examples: list[Any], after: After = lambda _: None) -> list[Prediction]:
        """A prediction for each example, whose label or tags are ignored."""
        from . import loop

        self.examples += len(examples)
        full: list[Any] = [e for e in examples if not isinstance(e, Sentence) or e.words]
        if not full:
            return [{"predicted_tags": []} for _ in examples]
        net, problem = self.model.net, self.problem
        rows = problem.rows(full)
        number = len(rows.lengths_N)
        outputs = loop.predict(net, problem, rows, after=lambda done: after(done / number))
        if self.kind == "tagging":
            found = problem.tags(examples, rows, outputs)
            return [{"predicted_tags": list(tags)} for tags in found]
        if self.kind == "answering":
            self.long_questions += problem.truncated_questions(full)
            return list(map(self._answer, *problem.best(full, rows, outputs)))
        self.truncation.add(full, rows.lengths_N.tolist())
        if self.kind == "regression":
            return [{"predicted_value": rounded(value)} for value in problem.values(outputs)]
        chosen = problem.chosen(outputs, threshold=self.options.threshold or 0.5).tolist()
        return list(map(self._labels, chosen, problem.probabilities(outputs).tolist()))

    def _labels(self, chosen: Any, probabilities: list[float]) -> Prediction:
        """chosen: the number of a class, or whether each label applies."""
        sure = dict(zip(self.model.labels, map(rounded, probabilities), strict=True))
        if self.kind == "multilabel":
            on = [name for name, applies in zip(sure, chosen, strict=True) if applies]
            found: Prediction = {"predicted_labels": on, "probability": [sure[k] for k in on]}
        else:
            label = self.model.labels[chosen]
            found = {"predicted_label": label, "probability": sure[label]}
        return found | ({"probabilities": sure} if self.options.probabilities else {})

    def _answer(self, guesses: list[Any], none: float) -> Prediction:
        """guesses: best first; none: the higher, the less likely there is an answer."""
        silent = not guesses or (self.none_above is not None and none > self.none_above)
        return {
            "predicted_answer": "" if silent else guesses[0].text,
            "answer_score": rounded(guesses[0].score) if guesses else None,
            "no_answer_score": rounded(none),
        }

    def notes(self) -> list[str]:
        """Warnings about truncated texts and questions."""
        notes = [self.truncation.text()]
        if long := self.long_questions:
            notes.append(f"{len(long):,} questions were truncated, of up to {max(long):,} tokens")
        return notes


def predictor_of(model: str, options: PredictConfig) -> Predictor:
    """Raises UserError if the model cannot be loaded."""
    if is_onnx(model):
        from .predict_onnx import OnnxPredictor

        return OnnxPredictor(model, options)
    return Predictor(model, options)


def rounded(number: float) -> float:
    """To seven digits, the precision of float32."""
    return float(f"{number:.7g}")


def must_be_for(options: PredictConfig, kind: str) -> None:
    """Raises UserError for an option that a model of this kind does not use."""
    for name, kinds in USED_BY.items():
        if getattr(options, name) not in (None, False) and kind not in kinds:
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{flag} is for {' or '.join(kinds)}. {options.model} is for {kind}")


def pairs_warning(trained: bool | None, given: bool) -> str:
    """A warning if a model that was trained on pairs of texts gets single ones, or the reverse.
    trained: None if that is not known."""
    if trained is None or trained == given:
        return ""
    on, gets = ("pairs of texts", "single texts") if trained else ("single texts", "pairs")
    return f"warning: the model was trained on {on} and gets {gets} (--pair-column)"


# ------------------------------------------------------------------ files


@dataclass(frozen=True)
class Summary:
    """What `predict` or `embed` did."""

    texts: int
    seconds: float
    output_file: str | None
    facts: dict[str, Any]

    def text(self) -> str:
        return f"{self.output_file}: {self.texts:,} texts in {duration(self.seconds)}"

    def as_json(self) -> str:
        known = {"texts": self.texts, "seconds": round(self.seconds, 3)}
        return json.dumps(known | {"output_file": self.output_file} | self.facts)


def predict_files(options: PredictConfig) -> Summary:
    """Writes a prediction for every text of the files, in order, into the output file, whole or not
    at all, or to standard output. Mistakes in files and options are reported before the model is
    loaded. Raises UserError."""
    began = time.monotonic()
    model = checked_model(options)
    columns = {"text_column": options.text_column, "pair_column": options.pair_column}
    how: dict[str, Any] = columns | {"header": options.header}
    if Path(model).is_dir():  # of a model on the Hub it is known later
        config = read_json(Path(model) / "config.json")
        kind = kind_of(model, config)
        must_be_for(options, kind)
        pairs = (config.get(KEY) or {}).get("pairs")
        Files(options.files, kind, pairs=pairs, **how).check()
    predictor = predictor_of(model, options)
    trained = predictor.model.reading.pairs
    files = Files(options.files, predictor.kind, pairs=trained, **how)
    head = files.check()
    tell(notes_on(head, trained))
    shown = options.output_file is None
    usual = ".jsonl" if options.json else ".tsv"
    ending = usual if shown else Path(str(options.output_file)).suffix.lower()
    if ending != ".jsonl" and not head.lines:
        columns_of(head, instead=".jsonl")
    with threads_of(options, predictor), opened(options.output_file) as stream:
        blocks = in_blocks(files, predictor, title="predict")
        predicted = (pair for block in blocks for pair in zip(*block, strict=True))
        write_rows(stream, rows_of(predicted, ending), ending, shown=shown)
    tell(predictor.notes())
    seconds, facts = time.monotonic() - began, predictor.truncation.facts()
    return Summary(predictor.examples, seconds, options.output_file, facts)


def checked_model(options: PredictConfig | EmbedConfig) -> str:
    """The model. Raises UserError if it is not there, or if the output file cannot be written."""
    model = options.model
    check_place(model)
    path = Path(options.output_file or "")
    if not path.parent.is_dir():
        raise UserError(f"{path.parent}: no such folder. Make it first")
    if options.output_file is not None and path.exists():
        if path.is_dir() or path.resolve() in [Path(file).resolve() for file in options.files]:
            what = "a folder" if path.is_dir() else "an input"
            raise UserError(f"{path} is {what}. Choose another --output-file")
        if not options.overwrite:
            raise UserError(f"{path} exists. Choose another --output-file or --overwrite")
    return model


def notes_on(head: Head, trained: bool | None) -> Iterator[str]:
    """What to know about the files before they are read. trained: see `pairs_warning`."""
    yield pairs_warning(trained, head.pair)
    if trained is False and head.unread:
        yield f"{head.path}: {head.unread} is not read. To use it, give --pair-column"
    for one in (head, *head.others):
        if one.guessed:
            yield f"{one.path} is read as columns. If it holds texts, give them as .jsonl or .csv"


def unknown_note(reader: Any, examples: Iterable[Any]) -> str:
    """A warning if many characters of the examples are unknown to the tokenizer, else empty."""
    return note_on_unknown(reader.name, reader.tokenizer, map(text_of, examples))


def tell(notes: Iterable[str]) -> None:
    """Prints those that are not empty."""
    for note in filter(None, notes):
        say(note)


@contextmanager
def threads_of(options: PredictConfig | EmbedConfig, work: Any) -> Iterator[None]:
    """Computes with the threads of --threads."""
    if work.device is None:  # onnxruntime was given them
        yield
        return
    from ..train.machine import choose, computing_with
    from .loop import most_tokens

    how = {"device": work.device, "width": work.reader.width, "bf16": work.bf16}
    threads = choose(options.threads, tokens=most_tokens(work.device), **how)
    tell([threads.text()])
    with computing_with(threads):
        yield


def in_blocks(files: Files, work: Any, *, title: str) -> Iterator[tuple[list[Item], Any]]:
    """Every block of items with the result of `work`, a Predictor or an Embedder, for its examples.
    Shows a progress bar, and warns if many words of the first block are unknown to the
    tokenizer."""
    files.bytes_read = before = 0
    with Progress(files.size / MEGABYTE, title=title, unit="MB") as progress:
        for block in files.blocks():
            examples = [item.example for item in block]
            if before == 0:
                tell(
                    [
                        note_on_unknown(
                            work.reader.name, work.reader.tokenizer, map(text_of, examples)
                        )
                    ]
                )
            read = (files.bytes_read - before) / MEGABYTE
            before = files.bytes_read
            yield block, work(examples, lambda share, read=read: progress.advance(share * read))


# ------------------------------------------------------------------ output


@contextmanager
def opened(output_file: str | None) -> Iterator[TextIO]:
    """The file, which appears when the block ends without an error, or standard output."""
    if output_file is None:
        yield sys.stdout
        return
    with written(Path(output_file)) as part, part.open("w", encoding="utf-8", newline="") as stream:
        yield stream


def rows_of(predicted: Iterable[tuple[Item, Prediction]], ending: str) -> Iterator[Row]:
    """What an output file with this ending holds: by column those of the input, then those of the
    prediction. For tags, a .csv has a row for each word, and a .tsv the cells of the words' lines
    with the tag appended and a blank line after each sentence."""
    for number, (item, found) in enumerate(predicted, 1):
        words = list(item.example.words) if isinstance(item.example, Sentence) else []
        tags = found.get("predicted_tags")
        if ending == ".jsonl":
            known = tags is None or words in item.columns.values()
            yield joined(item.columns, found if known else {"words": words} | found)
        elif tags is None:
            sure = found.pop("probabilities", {})
            every = {f"probability_{label}": p for label, p in sure.items()}
            yield joined(item.columns, found | every)
        elif ending == ".tsv":
            cells = item.cells or [(word,) for word in words]
            yield from ([*row, tag] for row, tag in zip(cells, tags, strict=True))
            yield []
        else:
            for k, (word, tag) in enumerate(zip(words, tags, strict=True)):
                others = {name: item.columns[name] for name in item.beside}
                if item.cells:
                    others = {name: column[k] for name, column in others.items()}
                yield joined({"sentence": number, "word": word, "predicted_tag": tag}, others)


def write_rows(stream: TextIO, rows: Iterable[Row], ending: str, *, shown: bool) -> None:
    """shown: whether somebody may see them on a terminal, which they must not control."""
    if ending == ".jsonl":
        stream.writelines(f"{json.dumps(row, ensure_ascii=shown, default=str)}\n" for row in rows)
    elif ending == ".csv":
        csv.writer(stream).writerows(in_columns(rows))  # its line end makes it quote line ends
    else:
        for row in in_columns(rows):
            line = "\t".join(cell.translate(_BREAKS) for cell in row)
            stream.write((harmless(line, keep="\t") if shown else line) + "\n")


def in_columns(rows: Iterable[Row]) -> Iterator[list[str]]:
    """The cells of rows in the columns of the first, after a header. Lists stay as they are."""
    columns: list[str] = []
    for row in rows:
        if isinstance(row, list):
            yield row
            continue
        if not columns:
            columns = list(row)
            yield columns
        yield cells_of(row, columns, instead=".jsonl")


def joined(columns: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Raises UserError if the input has a column with the name of an added one."""
    if taken := columns.keys() & added.keys():
        raise UserError(f"the input already has a column {min(taken)!r}. Rename it")
    return {**columns, **added}


def columns_of(head: Head, added: Sequence[str] = (), *, instead: str) -> list[str]:
    """The columns of a table of files and what is added. Raises UserError if a later file has a
    column that the first does not have."""
    for other in head.others:
        cells_of(dict.fromkeys(other.columns), head.columns, other.path, instead=instead)
    return list(joined(dict.fromkeys(head.columns), dict.fromkeys(added)))


def cells_of(
    row: Mapping[str, Any], columns: Sequence[str], where: str = "a row", *, instead: str
) -> list[str]:
    """The cells of a row in a table with these columns. Raises UserError for a further column.
    instead: the ending of a file that can hold it."""
    if odd := [name for name in row if name not in columns]:
        what = f"{where} has a column {odd[0]!r} that the first row does not have"
        raise UserError(f"{what}. Write {instead}, or run a command for each file")
    return [as_text(row.get(name)) for name in columns]


def as_text(value: Any) -> str:
    """A value in a cell of a table: nothing for null, a list with bars between."""
    if isinstance(value, list) and all(isinstance(one, str | int | float) for one in value):
        return "|".join(map(str, value))
    if isinstance(value, bool | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "" if value is None else str(value)


# ------------------------------------------------------------------ from Python


def load_predictor(model: str | os.PathLike[str], **options: Any) -> Predictor:
    """options: max_seq_length, threshold, no_answer_threshold, probabilities, device, bf16: see
    `PredictConfig`. Raises UserError."""
    config = PredictConfig(model=os.fspath(model), files=(), **options)
    return predictor_of(config.model, config)


def predict(
    predictor: Predictor, texts: Iterable[Any], *, pairs: Iterable[str] | None = None
) -> list[Prediction]:
    """The predictions for texts: for each a dict of the columns that the command writes. See
    `electrify.predict`. Raises UserError."""
    examples = _examples(predictor.kind, texts, pairs)
    tell([pairs_warning(predictor.model.reading.pairs, pairs is not None)])
    found = predictor(examples)
    tell(
        [
            note_on_unknown(
                predictor.reader.name, predictor.reader.tokenizer, map(text_of, examples)
            ),
            *predictor.notes(),
        ]
    )
    return found


def _examples(kind: Kind, texts: Iterable[Any], pairs: Iterable[str] | None) -> list[Any]:
    """What a caller in Python gives, as examples. Raises UserError."""
    if kind == "tagging":
        sentences = [words if isinstance(words, str) else tuple(words) for words in texts]
        if pairs is not None or any(isinstance(words, str) for words in sentences):
            raise UserError("the model tags words. Give lists of words, and no pairs")
        return [Sentence(tuple(words), ()) for words in sentences]
    texts = given_texts(texts)
    if kind == "answering" and pairs is None:
        raise UserError("the model answers questions. Give their contexts as pairs")
    others: list[Any] = [None] * len(texts) if pairs is None else given_texts(pairs)
    if len(others) != len(texts):
        raise UserError(f"{len(texts)} texts and {len(others)} pairs: there must be one for each")
    both = zip(texts, others, strict=True)
    if kind == "answering":
        return [Question("", question, context, ()) for question, context in both]
    label = () if kind == "multilabel" else 0.0
    return [Example(text, pair, label) for text, pair in both]
