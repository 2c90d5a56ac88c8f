"""Documents of 8,192 tokens train on a CPU in bounded memory, those of a made-up language and real
ones."""

from __future__ import annotations

import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest

from electrify.text.corpus import Corpus
from electrify.text.options import PrepareConfig
from electrify.text.prepare import prepare
from small import environment, flags, records, write_text

LENGTH = 8192
TEXT = Path(__file__).parents[3] / "shared" / "data" / "corpus" / "podcasts-00.txt.xz"
MOST = 1.3  # times the peak of as many tokens in rows of 1,024


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus whose documents are as long as a row, and longer."""
    folder = tmp_path_factory.mktemp("long")
    text = write_text(folder / "short.txt", size=600_000).read_text(encoding="utf-8")
    sentences = text.replace("\n\n", " ").split(". ")
    size = len(sentences) // 8
    long = [". ".join(sentences[k * size : (k + 1) * size]) for k in range(8)]
    (folder / "long.txt").write_text("\n\n".join(long) + "\n", encoding="utf-8")
    return prepared(folder / "long.txt", folder / "data", vocab_size=512)


@pytest.fixture(scope="module")
def real_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Conversations: the first eight that are longer than a row, by a rough look at them."""
    if not TEXT.is_file():
        pytest.skip("no ../shared/data/corpus")
    with lzma.open(TEXT, "rt", encoding="utf-8") as file:
        documents = file.read(4_000_000).split("\n\n")[:-1]
    long = [one for one in documents if len(one.split()) > LENGTH][:8]
    assert len(long) == 8
    folder = tmp_path_factory.mktemp("real")
    (folder / "long.txt").write_text("\n\n".join(long) + "\n", encoding="utf-8")
    return prepared(folder / "long.txt", folder / "data", vocab_size=2048)


def prepared(text: Path, folder: Path, *, vocab_size: int) -> Path:
    options = {"vocab_size": vocab_size, "valid_fraction": 0.0, "workers": 1}
    prepare(PrepareConfig(inputs=(str(text),), output_dir=str(folder), **options))  # type: ignore[arg-type]
    lengths = Corpus(folder, "train").documents[0]
    assert int((lengths[1:] - lengths[:-1]).min()) > LENGTH
    return folder


def peak_of(data: Path, run: Path, *, rows: int, length: int) -> int:
    """The peak of memory, in bytes, of the process of a run of one update."""
    fields = {
        "recipe": "electra-modernbert-tiny",
        "output_dir": run,
        "max_steps": 1,
        "train_batch_size": rows,
        "max_seq_length": length,
        "max_position_embeddings": length,
        "warmup_steps": 1,
        "logging_steps": 1,
        "eval_steps": 0,
        "device": "cpu",
        "report_to": "none",
    }
    line = [sys.executable, "-m", "electrify", "pretrain", str(data), *flags(**fields)]
    said = run.with_suffix(".txt")
    with said.open("wb") as err, subprocess.Popen(line, env=environment(), stderr=err) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, said.read_text()
    losses = [r["rtd"] for r in records(run, "train")]
    assert all(0 < loss < 2 for loss in losses)
    return used.ru_maxrss * 1024


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("text", ["data", "real_data"])
def test_one_row_of_8192_against_eight_of_1024(
    text: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Weights of attention that were kept for the backward pass would be .13 GB a head and block of
    global attention at 8,192."""
    data: Path = request.getfixturevalue(text)
    short = peak_of(data, tmp_path / "short", rows=8, length=1024)
    long = peak_of(data, tmp_path / "long", rows=1, length=LENGTH)
    print(f"8 x 1024: {short / 2**30:.2f} GiB; 1 x 8192: {long / 2**30:.2f} GiB")
    assert long <= MOST * short
