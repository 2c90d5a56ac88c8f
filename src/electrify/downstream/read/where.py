"""A task and --data-dir -> the folder that holds the task's files: --data-dir itself, or the folder
of the task's group in it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from ..known_tasks import GROUPS
from ..tasks import AnswerTask, TagTask, TextTask


def folder_of(task: TextTask | TagTask | AnswerTask, data_dir: str) -> str:
    """`data_dir`, or the folder glue/, tagging/ or squad/ in it where that is there and `data_dir`
    does not hold the task itself. So one folder serves tasks of all kinds."""
    inside = Path(data_dir) / next(group for group, names in GROUPS.items() if task.name in names)
    return str(inside) if inside.is_dir() and not _holds(Path(data_dir), task) else data_dir


def _holds(folder: Path, task: TextTask | TagTask | AnswerTask) -> bool:
    patterns = (task.folder,) if isinstance(task, TextTask) else tuple(filter(None, task.folders))
    return any(
        p.is_dir() and any(fnmatchcase(p.name, n) for n in patterns) for p in folder.iterdir()
    )
