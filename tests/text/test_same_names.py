"""What has the name of something of ours, but is something else."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from electrify.errors import UserError
from electrify.text import prepare as prepare_module
from electrify.text.options import PrepareConfig
from electrify.text.prepare import prepare
from electrify.text.vocabulary import train
from small import mistake, run, write_text


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two corpora whose tokenizers differ; both folders are called `tokenizer`."""
    found = []
    for size in (512, 100):
        folder = tmp_path_factory.mktemp("made") / "data"
        text = write_text(folder.with_name("text.txt"), size=20_000)
        words = ["prepare", str(text), "--output-dir", str(folder), "--workers", "1"]
        assert run(*words, "--vocab-size", str(size)) == 0
        found.append(folder / "tokenizer")
    return found


def test_another_tokenizer_of_the_same_name(
    tokenizers: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = write_text(tmp_path / "text.txt", size=20_000)
    words = ["prepare", text, "--output-dir", tmp_path / "data", "--workers", "1", "--tokenizer"]
    assert run(*map(str, [*words, tokenizers[0]])) == 0
    assert "another tokenizer" in mistake(capsys, *words, tokenizers[1])
    moved = tmp_path / "moved" / "tokenizer"
    shutil.copytree(tokenizers[0], moved)
    assert run(*map(str, [*words, moved])) == 0


def test_another_tokenizer_after_a_kill(
    tokenizers: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write_text(tmp_path / "text.txt", size=20_000)
    given = tmp_path / "tokenizer"
    shutil.copytree(tokenizers[0], given)
    options = PrepareConfig(
        inputs=(str(text),), output_dir=str(tmp_path / "data"), tokenizer=str(given), workers=1
    )
    stop_encoding(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        prepare(options)
    shutil.rmtree(given)
    shutil.copytree(tokenizers[1], given)
    monkeypatch.undo()
    with pytest.raises(UserError, match="another tokenizer"):
        prepare(options)


def stop_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends the program when its first part is encoded, as Ctrl-C would."""

    def write(path: Path, part: Any) -> None:
        write_part(path, part)
        raise KeyboardInterrupt

    write_part = prepare_module.write_part
    monkeypatch.setattr(prepare_module, "write_part", write)


SMALL_VOCABULARY: dict[str, Any] = {
    "kind": "wordpiece",
    "vocab_size": 300,
    "lowercase": True,
    "strip_accents": True,
    "min_frequency": 2,
}


def test_a_short_text_leaves_no_letter_out() -> None:
    """300 entries, of which a sixteenth would be letters."""
    text = "the quick brown fox jumps over the lazy dog while zebras vex a jovial king " * 20
    found = train([text], **SMALL_VOCABULARY)
    assert "[UNK]" not in found.encode("jovial zebras quick fox").tokens
    wide = "".join(chr(c) for c in range(0x4E00, 0x4E00 + 500)) * 3
    many = train([wide], **SMALL_VOCABULARY)
    assert many.get_vocab_size() <= 300
