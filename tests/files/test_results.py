"""Results that the user edited are kept; those of a kill are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from electrify.oldfiles import results
from electrify.oldfiles.results import RECORD, write_results


def there(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in folder.iterdir() if p.name != RECORD and p.is_file()}


def test_an_edited_report_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(tmp_path, {"report.md": "one", "report.csv": "1"})
    write_results(tmp_path, {"report.md": "two", "report.csv": "1"})
    assert there(tmp_path) == {"report.md": "two", "report.csv": "1"}
    assert not capsys.readouterr().err
    (tmp_path / "report.md").write_text("my notes")
    write_results(tmp_path, {"report.md": "three", "report.csv": "1"})
    assert there(tmp_path) == {
        "report.md": "three",
        "report.md.changed": "my notes",
        "report.csv": "1",
    }
    assert (
        "report.md is not what electrify wrote there: it is kept as report.md.changed"
        in capsys.readouterr().err
    )


def test_what_was_there_before_us(tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("mine")
    (tmp_path / "secret").write_text("SECRET")
    (tmp_path / "report.csv").symlink_to(tmp_path / "secret")
    (tmp_path / "report.png").mkdir()
    (tmp_path / RECORD).write_text("[]")
    write_results(tmp_path, {"report.md": "one", "report.csv": "1", "report.png": b"2"})
    assert there(tmp_path) == {
        "report.md": "one", "report.md.changed": "mine", "report.csv": "1",
        "report.csv.changed": "SECRET", "report.png": "2",
        "secret": "SECRET", f"{RECORD}.changed": "[]",
    }  # fmt: skip
    assert (tmp_path / "report.csv.changed").is_symlink()


def test_a_kill_between_record_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_results(tmp_path, {"report.md": "one"})
    real, calls = results.write_atomically, iter(range(9))

    def killed(path: Path, content: str | bytes) -> None:
        if next(calls):
            raise KeyboardInterrupt
        real(path, content)

    monkeypatch.setattr(results, "write_atomically", killed)
    with pytest.raises(KeyboardInterrupt):
        write_results(tmp_path, {"report.md": "two"})
    monkeypatch.undo()
    write_results(tmp_path, {"report.md": "three"})
    assert there(tmp_path) == {"report.md": "three"}
