"""Reading a mapped file that is cut under the reader. What was a SIGBUS would end the test run
itself."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from electrify.errors import UserError
from electrify.oldfiles.folders import sha256
from electrify.text.mapped import MappedFiles, Named, joined
from small import files_of_at_most

PAGE = 4096


@pytest.fixture
def mapped(tmp_path: Path) -> MappedFiles:
    """Two files of 100 pages each."""
    named = []
    for k in range(2):
        ids = np.random.default_rng(k).integers(0, 60_000, 100 * PAGE // 2).astype("<u2")
        path = tmp_path / f"{k}.bin"
        path.write_bytes(ids.tobytes())
        named.append(Named(path, len(ids), sha256(path)))
    return MappedFiles(named, np.dtype("<u2"))


def test_pieces_are_what_numpy_joins(mapped: MappedFiles) -> None:
    """More than one system call takes, pieces without a token among them."""
    rng = np.random.default_rng(0)
    pieces = [
        mapped.arrays[rng.integers(2)][start : start + rng.integers(0, 90)]
        for start in rng.integers(0, 200_000, 3000)
    ]
    assert (mapped.read(pieces) == np.concatenate(pieces)).all()
    assert mapped.read([]).size == mapped.read([pieces[0][:0]]).size == 0


def test_every_reading_of_a_cut_file_is_a_sentence(mapped: MappedFiles) -> None:
    os.truncate(mapped.files[1].path, 10 * PAGE)
    first, second = mapped.arrays
    assert (mapped.read([first[:5], second[: 10 * PAGE // 2]])[:5] == first[:5]).all()
    for piece in (second[-5:], second[10 * PAGE // 2 : 11 * PAGE // 2], second):
        with pytest.raises(
            UserError, match=r"1\.bin has 40960 bytes where the manifest says 409600: it was cut"
        ):
            mapped.read([first[:5], piece, first[:5]])


def test_a_limit_on_the_size_of_files(mapped: MappedFiles) -> None:
    """It holds for files in memory, too, and is not damage of the corpus."""
    with (
        files_of_at_most(PAGE),
        pytest.raises(UserError, match=r"the limit on the size of files \(ulimit -f\)"),
    ):
        mapped.read([mapped.arrays[0]])
    assert mapped.read([mapped.arrays[0]]).size == len(mapped.arrays[0])


def test_cut_and_grown_while_it_is_read(mapped: MappedFiles) -> None:
    """Whenever the cut comes: the right ids, ids that `lost` knows nothing good of, or a sentence;
    never an end."""
    done, path = threading.Event(), mapped.files[0].path
    whole = path.read_bytes()

    def cut() -> None:
        while not done.is_set():
            os.truncate(path, 3 * PAGE)
            with path.open("r+b") as f:
                f.write(whole)

    thread = threading.Thread(target=cut)
    thread.start()
    sentences = 0
    try:
        for k in range(3000):
            try:
                mapped.read([mapped.arrays[0][k : k + 150_000]])
            except UserError:
                sentences += 1
    finally:
        done.set()
        thread.join()
    assert sentences


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs files in memory")
def test_a_thread_that_has_ended_keeps_no_file(mapped: MappedFiles) -> None:
    """Each run of a process reads in a thread of its own, and each left a descriptor open."""

    def files() -> int:
        names = (
            os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if entry.is_file()
        )
        return sum("electrify-batch" in name for name in names)

    before = files()
    seen = []

    def read() -> None:
        mapped.read([mapped.arrays[0][:9]])
        seen.append(files())

    for _ in range(3):
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    assert seen == [before + 1] * 3
    assert files() == before


def test_joined_without_files_in_memory(
    mapped: MappedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    assert (
        joined([mapped.arrays[0][3:9], mapped.arrays[1][:2]])
        == [*mapped.arrays[0][3:9], *mapped.arrays[1][:2]]
    ).all()
