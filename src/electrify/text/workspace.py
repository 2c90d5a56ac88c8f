"""The folder of a corpus while `prepare` makes it.

    DATA/unfinished/
        state.json             the options and the inputs (with hashes) of the command
        pydocs.jsonl           the embedded corpus, where it is one of the inputs: parsed once,
                               read twice
        parts/                 finished tasks, by their number
    DATA/tokenizer/            made first, as a whole

`unfinished/state.json` says that the folder is ours. It goes after the manifest was written.
"""

from __future__ import annotations

import hashlib
import shutil
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import OutputError, UserError
from ..files import claim, is_ours, json_text, read_json, sha256, written
from ..progress import say
from . import pydocs
from .manifest import MANIFEST, TOKENIZER, Manifest, read_manifest
from .options import PrepareConfig
from .shards import Corpus, verify_common
from .sources import Source
from .splits import SPLITS
from .tokenizer_files import tokenizer_files

UNFINISHED = "unfinished"
STATE = f"{UNFINISHED}/state.json"
TOKENIZER_CONTENT = "tokenizer_content"
"""The hash of a tokenizer that was given: many folders are called `tokenizer`."""
NO_MATTER = ("inputs", "output_dir", "workers", "engine", "allow_unk")
"""Options that do not affect the bytes of the result, or that are not as they were given in another
place."""


def is_unfinished(folder: Path) -> bool:
    """Whether `prepare` has begun a corpus there and not ended it."""
    return (folder / STATE).is_file() and not (folder / MANIFEST).exists()


def bytes_deciding(options: PrepareConfig) -> dict[str, Any]:
    """The options that affect the bytes of the result, without absolute paths."""
    found = {k: v for k, v in asdict(options).items() if k not in NO_MATTER}
    found["strip_accents"] = options.accents_stripped
    # A kind of tokenizer that is trained is not the folder that happens to have its name.
    if not options.trains_tokenizer and Path(options.tokenizer).is_dir():
        found["tokenizer"] = Path(options.tokenizer).resolve().name
        digest = hashlib.sha256()
        for path in tokenizer_files(Path(options.tokenizer)):
            digest.update(f"{path.name} {sha256(path)}\n".encode())
        found[TOKENIZER_CONTENT] = digest.hexdigest()
    return found


def finished(options: PrepareConfig, sources: list[Source]) -> Manifest | None:
    """The verified manifest of a corpus that the same command has finished; None if there is no
    corpus yet. Raises OutputError if the folder holds something else."""
    folder = Path(options.output_dir)
    if not (folder / MANIFEST).exists():
        if folder.is_file():
            raise OutputError(f"{folder} is a file", "name a folder for the corpus")
        if not is_ours(folder, STATE):
            shown = ", ".join(sorted(p.name for p in folder.glob("[!.]*"))[:3])
            raise OutputError(f"{folder} holds other files ({shown})", "choose a new folder")
        return None
    manifest = read_manifest(folder)
    now = bytes_deciding(options), [s.identity() for s in sources]
    odd = difference(manifest.options, manifest.sources, *now)
    if not odd and (changed := changed_input(manifest.sources, now[1])):
        odd = f"it was made from other contents of {changed}"
    if odd:
        raise another(folder, odd)
    for split in SPLITS:
        Corpus(folder, split).verify()
    verify_common(folder, manifest)
    if (folder / STATE).is_file():  # of a command killed at its end
        shutil.rmtree(folder / UNFINISHED)
    return manifest


def difference(
    had: dict[str, Any],
    had_sources: list[dict[str, Any]],
    now: dict[str, Any],
    now_sources: list[dict[str, Any]],
) -> str:
    """How another command differs in its options or in the names of its inputs; empty if it does
    not."""
    for name in sorted(now.keys() | had.keys()):
        if had.get(name) != now.get(name):
            if name == TOKENIZER_CONTENT:
                return "it was made with another tokenizer of that name"
            return f"its {name} is {had.get(name)!r}, now {now.get(name)!r}"
    if [row["name"] for row in had_sources] != [row["name"] for row in now_sources]:
        return "it was made from other inputs"
    return ""


def changed_input(had: list[dict[str, Any]], now: list[dict[str, Any]]) -> str:
    """The name of the first input whose content differs; empty if none does."""
    return next((b["name"] for a, b in zip(had, now, strict=True) if a != b), "")


def another(folder: Path, odd: str) -> OutputError:
    return OutputError(f"{folder} holds another run: {odd}", "choose another folder or remove it")


class Workspace:
    """The folder of one command, claimed. Raises UserError if another command has begun there, or
    another process works in it."""

    def __init__(self, options: PrepareConfig, sources: list[Source]) -> None:
        self.folder = Path(options.output_dir)
        self.sources = list(sources)
        self.options = bytes_deciding(options)
        self.identities: list[dict[str, Any]] = []
        self.tokenizer = self.folder / TOKENIZER
        self.inside = self.folder / UNFINISHED
        self._column = options.text_column
        self._held = ExitStack()

    def __enter__(self) -> Workspace:
        self._held.enter_context(claim(self.folder, STATE))
        try:
            self._begin()
        except BaseException:
            self._held.close()
            raise
        return self

    def _begin(self) -> None:
        """Begins, or finds that the same command has begun here."""
        self.identities = [s.identity() for s in self.sources]
        if (self.folder / STATE).is_file():
            had = read_json(self.folder / STATE)
            odd = difference(had["options"], had["sources"], self.options, self.identities)
            if odd:
                raise another(self.folder, odd)
            changed = changed_input(had["sources"], self.identities)
            if not changed:
                say(f"continuing in {self.folder}")
                return
            # Somebody has mended the file that stopped the command.
            say(f"{changed} changed since this folder was begun: reading all input anew")
            self._clear()
        with written(self.inside) as part:
            part.mkdir()
            state = {"options": self.options, "sources": self.identities}
            (part / "state.json").write_text(json_text(state, indent=1), encoding="utf-8")

    def collect(self, *, workers: int) -> None:
        """Writes the embedded corpus to a file, unless it was done before; from then on that file
        is read in its place."""
        for i, source in enumerate(self.sources):
            if source.format != "pydocs":
                continue
            path = self.inside / "pydocs.jsonl"
            if not path.is_file():
                pydocs.write(path, key=self._column, workers=workers)
            self.sources[i] = replace(source, format="jsonl", path=path)

    def part(self, number: int) -> Path:
        """The path of a task's part file, a thousand in each folder."""
        return self.inside / "parts" / f"{number // 1000:05d}" / f"{number:08d}.part"

    def _clear(self) -> None:
        """Removes what was begun, the mark last."""
        for path in (self.tokenizer, self.inside / "parts", self.inside):
            shutil.rmtree(path, ignore_errors=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._held:
            if kind is None:
                shutil.rmtree(self.inside)
            elif isinstance(error, UserError) and not any(self.inside.glob("parts/*/*.part")):
                # A mistake of the user was found before any text was tokenised, so there is nothing
                # to continue, and the next command may have other options.
                self._clear()
