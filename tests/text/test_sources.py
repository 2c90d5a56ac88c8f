"""Which files an input names, in which order, what is left out, and which column holds the
texts."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from electrify.errors import UserError
from electrify.text.documents import documents
from electrify.text.options import PrepareConfig, defaults_of
from electrify.text.sources import Source, choose_sources, resolve


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("text\nhello\n")


def found(*inputs: str) -> list[Source]:
    return [source for source in resolve(inputs) if not source.why]


def asked(*inputs: object, **options: Any) -> PrepareConfig:
    return PrepareConfig(inputs=tuple(map(str, inputs)), output_dir="x", **options)


def test_a_folder_in_sorted_order_and_what_is_left_out_of_it(tmp_path, monkeypatch, capsys):
    """Whatever the order of the file system is, and with a count and names for each reason."""
    folder = tmp_path / "corpus"
    put(folder, "c/b.txt", "c/a.txt.gz", "a.md", "z.jsonl", "README.md", ".hidden/x.txt")
    put(folder, "c/pic.png")
    put(tmp_path, "elsewhere/e.txt", "one.txt")
    (folder / "empty.txt").touch()
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / "back").symlink_to(folder)
    (folder / "linked.txt").symlink_to(tmp_path / "one.txt")
    (folder / "list.csv").write_text("title,year\nEmma,1815\n")
    sources = choose_sources(asked(folder))
    names = [s.name.split("/", 1)[1] for s in sources]
    assert names == ["a.md", "c/a.txt.gz", "c/b.txt", "linked.txt", "z.jsonl"]
    assert capsys.readouterr().err == (
        "left out 7; tables without a column of text: 1 (corpus/list.csv); "
        "hidden: 1 (corpus/.hidden); files about the corpus: 1 (corpus/README.md); "
        "links to folders (not followed): 2 (corpus/back, corpus/linked); "
        "files of other kinds: 1 (corpus/c/pic.png); empty files: 1 (corpus/empty.txt)\n"
    )
    listing = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda self: sorted(listing(self), reverse=True))
    assert choose_sources(asked(folder)) == sources


def test_glob_file_and_each_only_once(tmp_path: Path) -> None:
    put(tmp_path, "b.txt", "a.txt", "c.csv")
    sources = found(str(tmp_path / "b.txt"), str(tmp_path / "*.txt"), str(tmp_path))
    assert [s.path.name for s in sources] == ["b.txt", "a.txt", "c.csv"]
    assert all(not Path(s.name).is_absolute() for s in sources)


def test_source_code_and_logs_are_text_where_the_user_asks_for_them(tmp_path: Path) -> None:
    """By name and by pattern always; in a folder with the presets code and logs, which say what a
    document is in them."""
    put(tmp_path, "a.txt", "b.py", "c.log", "d.py.gz", "e.docx")

    def named(item: Path, preset: str) -> list[str]:
        return [s.path.name for s in choose_sources(asked(item, **defaults_of(preset, {})))]

    assert named(tmp_path, "prose") == ["a.txt"]
    assert named(tmp_path, "code") == ["a.txt", "b.py", "d.py.gz"]
    assert named(tmp_path, "logs") == ["a.txt", "c.log"]
    assert named(tmp_path / "b.py", "prose") == ["b.py"]
    assert named(tmp_path / "*.log", "prose") == ["c.log"]
    assert all(s.format == "txt" for s in found(str(tmp_path / "*.py*")))


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("a.csv", "id,body\n1,hello\n", "body"),
        ("a.csv", "id,Review,body\n1,hello,no\n", "Review"),
        ("a.tsv", "content\tid\nhello\t1\n", "content"),
        ("a.tsv", '"hello world"\nhello\n', '"hello world"'),
        ("a.jsonl", '\n{"id": 1, "review": "hello"}\n', "review"),
        ("a.csv", "body,text\nno,hello\n", ""),
    ],
)
def test_a_column_with_a_known_name_is_found(tmp_path, capsys, name, text, column):
    """As `finetune` finds it: named, by a pattern, in a folder."""
    (tmp_path / name).write_text(text)
    for item in (tmp_path / name, tmp_path / "a.*", tmp_path):
        config = asked(item)
        (source,) = choose_sources(config)
        assert list(documents(source, config, counts=Counter())) == ["hello"]
        said = capsys.readouterr().err
        wanted = f"the text is read from {column!r}. --text-column names another one\n"
        assert said.endswith(wanted) if column else said == ""


def test_a_folder_whose_only_table_has_no_row(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("title,year\n")
    with pytest.raises(UserError, match=r"the corpus is empty: no text in .*/list\.csv"):
        choose_sources(asked(tmp_path))


def test_a_text_in_the_place_of_a_name() -> None:
    with pytest.raises(UserError, match="no such file or folder: a text"):
        resolve(["a text itself, longer than a name may be ... " * 9])


def test_data_sets(tmp_path: Path) -> None:
    sources = found("hub:wikitext:wikitext-2-raw-v1", "hub:owner/name", "hub:owner/name", "pydocs")
    assert [(s.format, s.name) for s in sources] == [
        ("hub", "hub:wikitext:wikitext-2-raw-v1"),
        ("hub", "hub:owner/name"),
        ("pydocs", "pydocs"),
    ]
    assert sources[1].identity() == {"name": "hub:owner/name", "bytes": 0, "sha256": ""}
    assert found(f"hub:{tmp_path}:more")[0].name == f"hub:{tmp_path.name}:more"
