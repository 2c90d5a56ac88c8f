"""The output folder of `prepare` while it is being made: whose it is, what is done, what may be used again.

    DATA/unfinished/state.json    the options and the inputs (with hashes) of the run that owns the folder
    DATA/unfinished/tokenizer/    the tokenizer; `tokenizer.json.done` beside it holds its hash
    DATA/unfinished/pydocs.jsonl  the embedded corpus, where it is one of the inputs: parsed once, read twice
    DATA/unfinished/parts/        finished tasks
    DATA/unfinished/lock          held while a process works here; the system lets go of it when the process dies

The folder `unfinished` is removed after the manifest was written.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from ..config.prepare import PrepareConfig
from ..errors import UserError
from ..files.reading import FileError, read_object, read_text
from ..files.schema import SchemaError, check
from ..files.tokenizers import copy_tokenizer
from ..progress import Progress, say
from . import pydocs, records
from .shards import MANIFEST, SPLITS, Corpus, Manifest, SourceRow, read_manifest, sha256_of, verify_common
from .sources import Source, resolve
from .streams import compression_of, must_lead_somewhere

UNFINISHED = "unfinished"
# How much text a compressed file holds at most in practice, per byte; and bytes of text a token has at least on the average.
_UNPACKED = {"": 1.0, ".gz": 3.5, ".bz2": 4.5, ".xz": 4.5, ".zst": 4.0}
_BYTES_PER_TOKEN = 3.0
_SPARE_BYTES = 64 << 20


def choose_sources(options: PrepareConfig) -> list[Source]:
    """The inputs that hold text. What is left out of a folder is said. Raises UserError where nothing is left."""
    must_lead_somewhere(Path(options.output_dir))
    sources, left_out = resolve(options.inputs, output=Path(options.output_dir))
    chosen = []
    for source in sources:
        # A table that lies beside the texts of a folder is usually about them.
        if source.in_folder and source.format in ("csv", "tsv") and not records.has_column(source, options):
            left_out.append(source.name)
        else:
            chosen.append(source)
    if left_out:
        names = ", ".join(left_out[:5]) + " ..." * (len(left_out) > 5)
        say(f"left out {len(left_out)} file{'s' * (len(left_out) > 1)} that hold no text to train on: {names}")
    if not chosen:
        raise UserError(f"no file of {', '.join(options.inputs)} has a column {options.text_column!r}")
    return chosen


def shown(sources: list[Source]) -> str:
    """A few names for a message."""
    names = [s.name for s in sources]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def bytes_deciding(options: PrepareConfig) -> dict[str, Any]:
    """The options that decide the bytes of the result, without absolute paths."""
    rest = {k: v for k, v in asdict(options).items() if k not in ("inputs", "output_dir", "workers", "engine")}
    rest["strip_accents"] = options.accents_stripped
    if Path(options.tokenizer).is_dir():
        rest["tokenizer"] = Path(options.tokenizer).resolve().name
    return rest


def finished(options: PrepareConfig, sources: list[Source]) -> Manifest | None:
    """The manifest of a folder that the same command finished, verified; None where none is. Raises UserError where it holds something else."""
    folder = Path(options.output_dir)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder for the prepared corpus")
    if not os.path.lexists(folder / MANIFEST):
        foreign = [p.name for p in folder.iterdir() if p.name != UNFINISHED] if folder.is_dir() else []
        if foreign and not (folder / UNFINISHED).is_dir():
            raise UserError(f"{folder} holds other files ({', '.join(sorted(foreign)[:3])} ...); choose a new or empty folder")
        return None
    manifest = read_manifest(folder)
    _must_be_same(folder, manifest.options, manifest.sources, options, [s.identity() for s in sources])
    for split in SPLITS:
        Corpus(folder, split).verify()
    verify_common(folder, manifest)
    shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
    return manifest


def _must_be_same(folder: Path, had: dict[str, Any], sources: list[dict[str, Any]], options: PrepareConfig, identities: list[dict[str, Any]]) -> None:
    now = bytes_deciding(options)
    for name in sorted(now.keys() | had.keys()):
        if had.get(name) != now.get(name):
            raise UserError(f"{folder} holds another run: its {name} is {had.get(name)!r}, now {now.get(name)!r}; choose another folder or remove it")
    if sources != identities:
        what = "other inputs"
        if [row["name"] for row in identities] == [row["name"] for row in sources]:
            what = "other contents of " + next(a["name"] for a, b in zip(identities, sources, strict=True) if a != b)
        raise UserError(f"{folder} holds another run: it was made from {what}; choose another folder or remove it")


def _mended(had: dict[str, Any], options: dict[str, Any], identities: list[dict[str, Any]]) -> str:
    """The first input whose contents changed, where options and names did not: somebody mended the file that stopped the run."""
    if had["options"] != options or [row["name"] for row in had["sources"]] != [row["name"] for row in identities]:
        return ""
    return next((now["name"] for then, now in zip(had["sources"], identities, strict=True) if then != now), "")


@dataclass(frozen=True)
class State:
    """unfinished/state.json."""

    options: dict[str, Any]
    sources: list[SourceRow]


class Workspace:
    """The folder of one run, locked. Raises UserError where another run owns it, another process works in it, or the disk is too small."""

    def __init__(self, options: PrepareConfig, sources: list[Source]) -> None:
        self.folder = Path(options.output_dir)
        self.sources, self._config = list(sources), options
        self.options = bytes_deciding(options)
        self.identities: list[dict[str, Any]] = []
        self._stamps: list[Any] = []
        self._inside = self.folder / UNFINISHED
        self.tokenizer = self._inside / "tokenizer"
        self._lock: IO[str] | None = None

    def __enter__(self) -> Workspace:
        _must_fit(self._config, self.sources, self.folder)
        if self._inside.is_symlink():
            raise UserError(f"{self._inside} is a link, and what is unfinished would be written through it; remove it")
        try:
            self._inside.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self._inside / "lock")
        except OSError as e:
            raise UserError(f"{self.folder} cannot be written: {e.strerror or e}") from e
        try:
            self._claim()
        except BaseException:
            if not (self._inside / "state.json").is_file():  # nobody's: begun a moment ago
                self._remove()
            self._lock.close()
            raise
        return self

    def _claim(self) -> None:
        """Says whose folder this is, or finds that it is ours."""
        self._stamps = [s.stamp() for s in self.sources]
        self.identities = [s.identity() for s in self.sources]
        path = self._inside / "state.json"
        if not path.is_file():
            _write_state(path, self.options, self.identities)
            return
        had = self._had(path)
        if changed := _mended(had, self.options, self.identities):
            # Parts stay: each is known by a hash of its documents and of the tokenizer, and is used again only where both are the same.
            say(f"{changed} changed since this folder was begun: reading all input anew")
            for stale in (self.tokenizer, self._inside / "tokenizer.done", self._inside / "pydocs.jsonl"):
                shutil.rmtree(stale) if stale.is_dir() else stale.unlink(missing_ok=True)
            _write_state(path, self.options, self.identities)
            return
        _must_be_same(self.folder, had["options"], had["sources"], self._config, self.identities)
        say(f"continuing in {self.folder}")

    def _had(self, path: Path) -> dict[str, Any]:
        """What the run that began here wrote down. Raises UserError where that is not what such a run writes."""
        try:
            return asdict(check(State, read_object(path, within=self.folder), str(path)))
        except FileError as e:
            raise UserError(f"{path} is damaged: it {e.why}; remove {self.folder} and start again") from e
        except SchemaError as e:
            raise UserError(f"{path} is damaged: {e.what}; remove {self.folder} and start again") from e

    def collect(self, *, workers: int) -> None:
        """Writes the embedded corpus to a file, unless an earlier run did, and reads that file in its place from now on."""
        for i, source in enumerate(self.sources):
            if source.format != "pydocs":
                continue
            path = self._inside / "pydocs.jsonl"
            if not path.is_file():
                _write_pydocs(path, key=self._config.text_column, workers=workers)
            self.sources[i] = replace(source, format="jsonl", path=path)

    def must_be_unchanged(self) -> None:
        """Raises UserError where an input is not what was hashed: the text was read twice, and the manifest would name neither."""
        for source, stamp in zip(self.sources, self._stamps, strict=True):
            if stamp is not None and source.stamp() != stamp:
                raise UserError(f"{source.path} changed while it was read; run the same command again when it is complete")

    def part(self, number: int) -> Path:
        """Where the part file of a task lies; a thousand a folder."""
        return self._inside / "parts" / f"{number // 1000:05d}" / f"{number:08d}.part"

    def tokenizer_is_done(self) -> bool:
        """Whether an earlier run finished the tokenizer and it is still what it was."""
        mark, file = self._inside / "tokenizer.done", self.tokenizer / "tokenizer.json"
        if not (mark.is_file() and file.is_file()):
            return False
        return read_text(mark, limit=1000, within=self.folder) == sha256_of(file, within=self.folder)

    def mark_tokenizer(self) -> None:
        _write_atomically(self._inside / "tokenizer.done", sha256_of(self.tokenizer / "tokenizer.json"))

    def publish_tokenizer(self) -> None:
        """Copies the tokenizer to where it stays."""
        target = self.folder / "tokenizer"
        shutil.rmtree(target, ignore_errors=True)
        copy_tokenizer(self.tokenizer, target, within=self.folder)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # After a mistake of the user that was found before any text was tokenised there is nothing to continue from, and he starts with other input.
        useless = isinstance(error, UserError) and not any(self._inside.glob("parts/*/*.part"))
        if kind is None or useless:
            self._remove()
        if self._lock is not None:
            self._lock.close()

    def _remove(self) -> None:
        """What only an unfinished run needs, and the folder where nothing else is in it."""
        shutil.rmtree(self._inside)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


def _write_pydocs(path: Path, *, key: str, workers: int) -> None:
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as f, Progress(None, title="reading the documentation of the installed packages", unit="documents") as bar:
        for _, text in pydocs.documents(workers=workers):
            f.write(json.dumps({key: text}) + "\n")
            bar.advance()
    part.replace(path)


def _write_state(path: Path, options: dict[str, Any], identities: list[dict[str, Any]]) -> None:
    _write_atomically(path, json.dumps({"options": options, "sources": identities}, indent=1, sort_keys=True))


def _write_atomically(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    part.replace(path)


def _locked(path: Path) -> IO[str]:
    file = path.open("w")
    try:
        import fcntl
    except ImportError:  # no such locks on Windows; two runs in one folder are then the user's care
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
        file.close()
        raise UserError(f"another process is preparing {path.parent.parent}; wait for it or choose another folder") from e
    return file


def _must_fit(options: PrepareConfig, sources: list[Source], folder: Path) -> None:
    need, room = bytes_needed(options, sources), shutil.disk_usage(_existing(folder)).free
    done = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) if folder.is_dir() else 0
    if need > room + done:
        raise UserError(f"{folder} needs about {need >> 20} MB and its disk has {room >> 20} MB left; make room or choose another disk")


def bytes_needed(options: PrepareConfig, sources: list[Source]) -> int:
    """An estimate, on the safe side, of what the run writes: parts and shards. Data sets of the Hub are not counted, nobody knows their size."""
    text = sum(s.size * _UNPACKED[compression_of(s.path)] * (3.0 if s.format == "parquet" else 1.0) for s in sources)
    itemsize = np.dtype("<u2").itemsize if options.trains_tokenizer and options.vocab_size <= 1 << 16 else 4
    return int(text / _BYTES_PER_TOKEN * itemsize * 2) + _SPARE_BYTES


def _existing(folder: Path) -> Path:
    folder = folder.resolve()
    while not folder.exists():
        folder = folder.parent
    return folder
