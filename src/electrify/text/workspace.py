"""The output folder of `prepare` while it is being made: who owns it, what is done, and what may be
used again.

    DATA/unfinished/
        state.json             the options and the inputs (with hashes) of the run that owns the
                               folder
        tokenizer/             the tokenizer; `tokenizer.done` beside it holds its hashes
        pydocs.jsonl           the embedded corpus, where it is one of the inputs: parsed once,
                               read twice
        parts/                 finished tasks
        placed                 which files in DATA are this run's (placed.py)
        tokenizer.published    hashes of the tokenizer's files that were put into DATA/tokenizer
    DATA/.lock                 held while a process works here; the system lets go of it when the
                               process dies

`unfinished` is ours if its state.json has our mark; its name alone does not count. What we wrote in
it is removed after the manifest was written.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from ..config.prepare import PrepareConfig
from ..errors import UserError
from ..oldfiles.folders import foreign, marked, own_bytes, remove_temporaries
from ..oldfiles.inside import must_stay_inside
from ..oldfiles.lock import lock
from ..oldfiles.reading import FileError, read_object, read_text
from ..oldfiles.schema import SchemaError, check
from ..oldfiles.tokenizer_folder import in_the_way, publish_tokenizer, tokenizer_hashes
from ..oldfiles.tokenizers import TOKENIZER_FILE, TOKENIZER_FILES
from ..oldfiles.whole import write_atomically
from ..progress import say
from . import pydocs
from .manifest import TOKENIZER, SourceRow
from .placed import (
    KIND,
    STATE,
    UNFINISHED,
    Placed,
    clear,
    clear_tokenizer,
    must_have_no_links,
    unfinished_state,
)
from .same_command import bytes_deciding, finished, mended, must_be_same
from .source import Source
from .space import must_fit


@dataclass(frozen=True)
class State:
    """unfinished/state.json."""

    options: dict[str, Any]
    sources: list[SourceRow]


class Workspace:
    """The locked folder of one run. Raises UserError if another run owns it, if another process
    works in it, or if the disk is too small."""

    def __init__(self, options: PrepareConfig, sources: list[Source]) -> None:
        self.folder = Path(options.output_dir)
        self.sources = list(sources)
        self._config = options
        self.options = bytes_deciding(options)
        self.identities: list[dict[str, Any]] = []
        self._stamps: list[Any] = []
        self._tokenizer_put: list[str] = []  # hashes of the files that were put into DATA/tokenizer
        self._inside = self.folder / UNFINISHED
        self._fd = -1  # the folder in which this run began, whatever has its name later
        self.placed = Placed(self.folder, self._inside)
        self.tokenizer = self._inside / TOKENIZER
        self._held = ExitStack()

    def __enter__(self) -> Workspace:
        must_fit(self._config, self.sources, self.folder)
        if self._inside.is_symlink():
            raise UserError(
                f"{self._inside} is a link, and what is unfinished would be written through it; "
                "remove it"
            )
        with ExitStack() as held:
            held.enter_context(lock(self.folder))
            # Checked again, because another process may have been first.
            if finished(self._config, self.sources) is not None:
                raise UserError(
                    f"{self.folder} was prepared by another process a moment ago; the same command "
                    "finds it done"
                )
            try:
                self._inside.mkdir(exist_ok=True)
            except OSError as e:
                raise UserError(f"{self.folder} cannot be written: {e.strerror or e}") from e
            held.callback(self._leave)
            self._fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            held.callback(os.close, self._fd)
            self.placed = Placed(self.folder, self._inside)
            self._claim()
            self._held = held.pop_all()
        return self

    def _leave(self) -> None:
        """Removes `unfinished` if nothing was begun in it."""
        with suppress(OSError):
            self._inside.rmdir()

    def _claim(self) -> None:
        """Marks the folder as ours, or finds that it already is."""
        self._stamps = [s.stamp() for s in self.sources]
        self.identities = [s.identity() for s in self.sources]
        path = self._inside / STATE
        had = unfinished_state(self.folder)
        remove_temporaries(self._inside)
        remove_temporaries(self.folder)
        if had is None:
            if foreign(self._inside):
                raise UserError(
                    f"{self._inside} is not a folder that electrify began; move it away, or choose "
                    "another --output-dir"
                )
            _write_state(path, self.options, self.identities)
            return
        had = self._had(path)
        must_have_no_links(self._inside)
        self._tokenizer_must_be_ours()
        self.placed.must_be_ours()
        if changed := mended(had, self.options, self.identities):
            # Parts stay: each is identified by a hash of its documents and of the tokenizer, and is
            # used again only if both are the same.
            say(f"{changed} changed since this folder was begun: reading all input anew")
            clear_tokenizer(self._inside)
            for name in ("tokenizer.done", "pydocs.jsonl"):
                (self._inside / name).unlink(missing_ok=True)
            _write_state(path, self.options, self.identities)
            return
        must_be_same(self.folder, had["options"], had["sources"], self._config, self.identities)
        say(f"continuing in {self.folder}")

    def _had(self, path: Path) -> dict[str, Any]:
        """The state that the run which began here has recorded. Raises UserError if no such run
        would write it."""
        try:
            return asdict(check(State, read_object(path, within=self.folder), str(path), more=True))
        except FileError as e:
            raise UserError(
                f"{path} is damaged: it {e.why}; remove {self.folder} and start again"
            ) from e
        except SchemaError as e:
            raise UserError(
                f"{path} is damaged: {e.what}; remove {self.folder} and start again"
            ) from e

    def collect(self, *, workers: int) -> None:
        """Writes the embedded corpus to a file, unless an earlier run did; from then on that file
        is read in its place."""
        for i, source in enumerate(self.sources):
            if source.format != "pydocs":
                continue
            path = self._inside / "pydocs.jsonl"
            if not path.is_file():
                pydocs.write(path, key=self._config.text_column, workers=workers)
            self.sources[i] = replace(source, format="jsonl", path=path)

    def must_be_unchanged(self) -> None:
        """Raises UserError if an input has changed since it was hashed: the text is read twice, and
        the manifest would describe neither version."""
        for source, stamp, identity in zip(
            self.sources, self._stamps, self.identities, strict=True
        ):
            now = source.stamp()
            if stamp is None or now == stamp:
                continue
            # The change time also moves when the file gets another link or other permissions.
            if now is None or now[:-1] != stamp[:-1] or source.identity() != identity:
                raise UserError(
                    f"{source.path} changed while it was read; run the same command again when it "
                    "is complete"
                )

    def part(self, number: int) -> Path:
        """The path of a task's part file, a thousand in each folder. Raises UserError if it leads
        elsewhere, or if the folder is gone."""
        path = self._inside / "parts" / f"{number // 1000:05d}" / f"{number:08d}.part"
        self._must_be_there(path.parent)
        return path

    def _must_be_there(self, path: Path) -> None:
        must_stay_inside(path, self.folder)
        if not (self._inside / STATE).is_file():
            raise UserError(self._lost())

    def _lost(self) -> str:
        return (
            f"{self.folder} was removed, moved or changed while it was prepared; run the same "
            "command again"
        )

    def tokenizer_is_done(self) -> bool:
        """Whether an earlier run finished the tokenizer, and it has not changed since."""
        self._must_be_there(self.tokenizer)
        mark = self._inside / "tokenizer.done"
        if not (mark.is_file() and (self.tokenizer / TOKENIZER_FILE).is_file()):
            return False
        return read_text(mark, limit=10_000, within=self.folder) == self._tokenizer_files()

    def mark_tokenizer(self) -> None:
        write_atomically(self._inside / "tokenizer.done", self._tokenizer_files())

    def _tokenizer_files(self) -> str:
        """The text of `tokenizer.done`: a line for each file of the tokenizer."""
        hashes = tokenizer_hashes(self.tokenizer)
        return "".join(f"{digest} {name}\n" for name, digest in hashes.items())

    def _published(self) -> list[str]:
        """Hashes of the files that were put into DATA/tokenizer, by this run or by one that was
        killed."""
        return (
            (own_bytes(self._inside / "tokenizer.published") or b"")
            .decode("ascii", "replace")
            .split()
        )

    def _tokenizer_must_be_ours(self) -> None:
        """Raises UserError, before the text is read, if somebody put files into DATA/tokenizer that
        this run could not replace."""
        ours = [*self._published(), *tokenizer_hashes(self.tokenizer).values()]
        odd = in_the_way(dict.fromkeys(TOKENIZER_FILES, ""), self.folder / TOKENIZER, ours=ours)
        if odd is not None:
            raise UserError(
                f"{odd} is not of this corpus; move it away, or choose another --output-dir"
            )

    def publish_tokenizer(self) -> dict[str, str]:
        """Copies the tokenizer to its final place, file by file, and returns the files' hashes.
        Raises UserError if another file is in the way."""
        path = self._inside / "tokenizer.published"
        ours = self._published()
        wanted = tokenizer_hashes(self.tokenizer)
        self._tokenizer_put = sorted({*ours, *wanted.values()})
        write_atomically(path, "\n".join(self._tokenizer_put))  # before the first of them is there
        return publish_tokenizer(self.tokenizer, self.folder / TOKENIZER, ours=ours)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # If a mistake of the user was found before any text was tokenised, there is nothing to
        # continue, and the next command may have other input.
        begun = (
            any(self._inside.glob("parts/*/*.part"))
            or self.placed.names()
            or self._tokenizer_put
            or self._published()
        )
        lost = kind is not None and not (self._inside / STATE).is_file()
        with self._held:
            if kind is None or (isinstance(error, UserError) and not begun):
                clear(self._inside)
            elif lost:
                self._mark_again()
        if lost and isinstance(error, FileNotFoundError):
            raise UserError(self._lost()) from error

    def _mark_again(self) -> None:
        """Writes the mark again if somebody removed it but not everything that we wrote: without it
        no later run could recognise the folder as its own. If another folder has taken the name, it
        is left alone."""
        with suppress(OSError):
            if os.path.samestat(os.fstat(self._fd), self.folder.stat()):
                self._inside.mkdir(exist_ok=True)
                _write_state(self._inside / STATE, self.options, self.identities)
                self.placed.write_down()
                write_atomically(
                    self._inside / "tokenizer.published", "\n".join(self._tokenizer_put)
                )


def _write_state(path: Path, options: dict[str, Any], identities: list[dict[str, Any]]) -> None:
    write_atomically(path, marked(KIND, {"options": options, "sources": identities}))
