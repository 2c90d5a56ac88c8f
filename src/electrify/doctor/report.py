"""`electrify doctor`: folders -> what they are -> what is wrong with them -> a report to read, or
JSON."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from ..config.doctor import DoctorConfig
from ..config.given import must_be
from ..console import harmless
from .consistency import models_together, runs_together
from .data import Data, examine_data
from .findings import LEVELS, Diagnosis, Finding, Kind, Level
from .kind import kind_of
from .model import examine_model
from .run import examine_run

WIDTH = 120
MARGIN = 2 + len("warning") + 2
WHAT = {"DATA": "prepared corpus", "RUN": "run", "MODEL": "model"}


@dataclass(frozen=True)
class Report:
    """What was found in every folder, including those inside runs."""

    folders: list[Diagnosis]

    @property
    def counts(self) -> dict[Level, int]:
        return {level: sum(d.count(level) for d in self.folders) for level in LEVELS}

    @property
    def status(self) -> int:
        """The exit status: 1 if there is an error."""
        return int(self.counts["error"] > 0)

    def text(self) -> str:
        parts = [group(d) for d in self.folders]
        n = self.counts
        shown = ", ".join(
            [
                f"{n['ok']} ok",
                plural(n["note"], "note"),
                plural(n["warning"], "warning"),
                plural(n["error"], "error"),
            ]
        )
        return "\n\n".join([*parts, f"{plural(len(self.folders), 'folder')}: {shown}"])

    def as_json(self) -> str:
        folders = [
            {"path": str(d.path), "kind": d.kind, "findings": [asdict(f) for f in d.findings]}
            for d in self.folders
        ]
        return json.dumps({"folders": folders, "counts": self.counts}, ensure_ascii=True)


def diagnose(config: DoctorConfig | str | Path) -> Report:
    """Examines every folder. Raises UserError for a folder that does not exist or is none of the
    three kinds; damage is a finding. config: or the path of one folder."""
    if isinstance(config, str | Path):
        config = DoctorConfig(paths=(str(config),))
    must_be(config, DoctorConfig, "config")
    kinds = _kinds(config.paths)
    found: dict[Path, list[Diagnosis]] = {}
    data: list[Data] = []
    for path, kind in kinds:
        if kind == "DATA":
            unread = Diagnosis(path, kind)
            unread.look(lambda path=path: found.update({path: _of_data(path, data)}))
            found.setdefault(path, [unread])
    for path, kind in kinds:
        if kind == "RUN":
            unread = Diagnosis(path, kind)
            unread.look(lambda path=path: found.update({path: examine_run(path, data=data)}))
            found.setdefault(path, [unread])
        elif kind == "MODEL":
            found[path] = [examine_model(path)]
    folders = [d for path, _ in kinds for d in found[path]]
    named = [path for path, kind in kinds if kind == "MODEL"]
    # Nobody has said that one run reads what the other writes.
    for together in (named, *([path] for path, kind in kinds if kind == "RUN")):
        models_together([d for path in together for d in found[path] if d.kind == "MODEL"])
    runs_together([d for d in folders if d.kind == "RUN"])
    return Report(folders)


def _kinds(paths: Iterable[str]) -> list[tuple[Path, Kind]]:
    """Each folder once, by its first name. Raises UserError as `kind_of`."""
    found: dict[str, tuple[Path, Kind]] = {}
    for path in map(Path, paths):
        kind = kind_of(path)
        found.setdefault(os.path.realpath(path), (path, kind))
    return list(found.values())


def _of_data(path: Path, data: list[Data]) -> list[Diagnosis]:
    """The diagnosis of a corpus, which is added to the corpora that runs are compared with."""
    diagnosis, facts = examine_data(path)
    data += [facts] if facts else []
    return [diagnosis]


# ------------------------------------------------------------------ text


def group(d: Diagnosis) -> str:
    """A folder's findings, the worst last, where the eye falls first."""
    lines = [
        line for level in LEVELS for f in d.findings if f.level == level for line in lines_of(f)
    ]
    return "\n".join([f"{d.path}  ({d.kind}: {WHAT[d.kind]})", *lines])


def lines_of(f: Finding) -> Iterable[str]:
    room = " " * MARGIN
    yield from _wrapped(f.fact, f"  {f.level:<{MARGIN - 2}}", room)
    if f.advice:
        yield from _wrapped(f.advice, f"{room}-> ", room + "   ")


def _wrapped(text: str, first: str, further: str) -> Iterable[str]:
    """The lines of a text. A command, or a path without blanks, is copied: it stays on one line."""
    whole = re.sub("`[^`]*`", lambda command: command[0].replace(" ", "\0"), harmless(text))
    lines = textwrap.wrap(
        whole,
        WIDTH,
        initial_indent=first,
        subsequent_indent=further,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return (line.replace("\0", " ") for line in lines)


def plural(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"
