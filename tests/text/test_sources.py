"""Which files an input names, in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from electrify.config.prepare import PrepareConfig
from electrify.errors import UserError
from electrify.text import workspace
from electrify.text.sources import resolve


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("text\nhello\n")


def test_folder_is_searched_in_sorted_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "c/b.txt", "c/a.txt.gz", "a.md", "z.jsonl", "README.md", ".hidden/x.txt", "c/pic.png", "d.tar.xz")
    sources, left_out = resolve((str(tmp_path),))
    assert [s.name.split("/", 1)[1] for s in sources] == ["a.md", "c/a.txt.gz", "c/b.txt", "z.jsonl"]
    assert left_out == ["README.md", "c/pic.png", "d.tar.xz"]
    # The file system's own order must not matter.
    listing = Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda self, pattern: reversed(list(listing(self, pattern))))
    assert resolve((str(tmp_path),))[0] == sources


def test_glob_file_and_each_only_once(tmp_path: Path) -> None:
    put(tmp_path, "b.txt", "a.txt", "c.csv")
    sources, _ = resolve((str(tmp_path / "b.txt"), str(tmp_path / "*.txt"), str(tmp_path)))
    assert [s.path.name for s in sources] == ["b.txt", "a.txt", "c.csv"]
    assert all(not Path(s.name).is_absolute() for s in sources)


@pytest.mark.parametrize(
    ("item", "message"),
    [("none.txt", "no such file or folder"), ("no/such/folder/", "no such file"), ("*.none", "no text file matches"), ("hub:", "needs the name")],
)
def test_what_is_not_there(item: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        resolve((item,))


def test_unknown_kind_and_empty_folder(tmp_path: Path) -> None:
    put(tmp_path, "a.docx")
    with pytest.raises(UserError, match="not of a known kind"):
        resolve((str(tmp_path / "a.docx"),))
    with pytest.raises(UserError, match="holds no text file"):
        resolve((str(tmp_path),))


def test_names_of_data_sets() -> None:
    sources, _ = resolve(("wikitext:wikitext-2-raw-v1", "hub:owner/name", "pydocs"))
    assert [(s.format, s.name) for s in sources] == [
        ("hub", "hub:wikitext:wikitext-2-raw-v1"),
        ("hub", "hub:owner/name"),
        ("pydocs", "pydocs"),
    ]


def test_tables_about_the_texts_are_left_out_of_folders_only(tmp_path: Path) -> None:
    put(tmp_path, "a.txt")
    (tmp_path / "list.tsv").write_text("title\tyear\nEmma\t1815\n")
    (tmp_path / "good.csv").write_text("id,text\n1,hello\n")
    found = workspace.choose_sources(PrepareConfig(inputs=(str(tmp_path),), output_dir="x"))
    assert [s.path.name for s in found] == ["a.txt", "good.csv"]
    named = workspace.choose_sources(PrepareConfig(inputs=(str(tmp_path / "list.tsv"),), output_dir="x"))
    assert [s.path.name for s in named] == ["list.tsv"]
