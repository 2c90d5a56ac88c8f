"""A task and --data-dir -> the folder that holds the task's files: --data-dir itself, or the folder
of the task's group in it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from ..known_tasks import GROUPS
from ..tasks import AnswerTask, KnownTask, LinesTask, TagTask, TextTask
from .babylm import folder_with


def folder_of(task: KnownTask, data_dir: str) -> str:
    """`data_dir`, or the folder glue/, tagging/, squad/ or babylm/ in it, if that exists and
    `data_dir` does not hold the task itself. So one folder serves tasks of all kinds."""
    inside = Path(data_dir) / next(group for group, names in GROUPS.items() if task.name in names)
    return str(inside) if inside.is_dir() and not _holds(Path(data_dir), task) else data_dir


def _holds(folder: Path, task: KnownTask) -> bool:
    match task:
        case TextTask():
            return (folder / task.folder).is_dir()
        case LinesTask():
            return folder_with(task, folder) is not None
        case TagTask():
            there = (folder.resolve(), *(p for p in folder.iterdir() if p.is_dir()))
            return any(_is(p, task.folders) for p in there)
        case AnswerTask():  # the folder of such a task may have the name of its group
            return any(_is(p, parts_too(task.train)) for p in folder.iterdir())


def _is(path: Path, names: tuple[str, ...]) -> bool:
    return any(fnmatchcase(path.name, name) for name in names)


def parts_too(files: tuple[str, ...]) -> tuple[str, ...]:
    """Patterns of the files of SQuAD, and of those that may stand in for them."""
    return tuple(name.replace(".json", "*.json") for name in files)
