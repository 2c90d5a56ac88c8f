"""Which files an input names, in which order."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from electrify.errors import UserError
from electrify.text import choosing, walk
from electrify.text.documents import documents
from electrify.text.options import PrepareConfig, from_preset
from electrify.text.sources import resolve


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("text\nhello\n")


def test_folder_is_searched_in_sorted_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(
        tmp_path,
        "c/b.txt",
        "c/a.txt.gz",
        "a.md",
        "z.jsonl",
        "README.md",
        ".hidden/x.txt",
        "c/pic.png",
        "d.tar.xz",
    )
    sources, left_out = resolve((str(tmp_path),))
    assert [s.name.split("/", 1)[1] for s in sources] == [
        "a.md",
        "c/a.txt.gz",
        "c/b.txt",
        "z.jsonl",
    ]
    assert {one.name: one.reason for one in left_out} == {
        ".hidden": walk.HIDDEN,
        "README.md": walk.ABOUT,
        "c/pic.png": walk.OTHER_KIND,
        "d.tar.xz": walk.OTHER_KIND,
    }
    # The file system's own order must not matter.
    listing = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda self: sorted(listing(self), reverse=True))
    assert resolve((str(tmp_path),))[0] == sources


def test_glob_file_and_each_only_once(tmp_path: Path) -> None:
    put(tmp_path, "b.txt", "a.txt", "c.csv")
    sources, _ = resolve((str(tmp_path / "b.txt"), str(tmp_path / "*.txt"), str(tmp_path)))
    assert [s.path.name for s in sources] == ["b.txt", "a.txt", "c.csv"]
    assert all(not Path(s.name).is_absolute() for s in sources)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("none.txt", "no such file or folder"),
        ("no/such/folder/", "no such file"),
        ("*.none", "no text file matches"),
        ("hub:", "needs the name"),
        ("nodata", "no such file or folder: nodata; a data set of the Hub is written hub:nodata"),
        ("own/er:more", "a data set of the Hub is written hub:own/er:more"),
    ],
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


def test_source_code_and_logs_are_text_where_the_user_asks_for_them(tmp_path: Path) -> None:
    """By name and by pattern always; in a folder with the presets code and logs, which say what a
    document is in them. A folder of texts stays what it was."""
    put(tmp_path, "a.txt", "b.py", "c.log", "d.py.gz", "e.docx")

    def found(item: Path, preset: str) -> list[str]:
        options = from_preset(preset, inputs=(str(item),), output_dir="x")
        return [s.path.name for s in choosing.choose_sources(options)]

    assert found(tmp_path, "prose") == ["a.txt"]
    assert found(tmp_path, "code") == ["a.txt", "b.py", "d.py.gz"]
    assert found(tmp_path, "logs") == ["a.txt", "c.log"]
    assert found(tmp_path / "b.py", "prose") == ["b.py"]
    assert found(tmp_path / "*.log", "prose") == ["c.log"]
    assert all(s.format == "txt" for s in resolve((str(tmp_path / "*.py*"),))[0])
    (tmp_path / "a.txt").unlink()
    with pytest.raises(UserError, match="source code with --preset code"):
        found(tmp_path, "prose")


def test_names_of_data_sets() -> None:
    sources, _ = resolve(("hub:wikitext:wikitext-2-raw-v1", "hub:owner/name", "pydocs"))
    assert [(s.format, s.name) for s in sources] == [
        ("hub", "hub:wikitext:wikitext-2-raw-v1"),
        ("hub", "hub:owner/name"),
        ("pydocs", "pydocs"),
    ]


def test_folders_of_data_sets_with_one_last_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were named hub:text, and the second was taken for the first."""
    put(tmp_path, "2023/text/a.csv", "2024/text/a.csv")
    monkeypatch.chdir(tmp_path)
    one, other = (f"hub:{tmp_path / year / 'text'}" for year in ("2023", "2024"))
    sources, _ = resolve((one, other, "hub:2023/text", one + ":", other + ":more"))
    assert [s.hub for s in sources] == [name[4:] for name in (one, other, other + ":more")]
    names = ("hub:owner/name", "hub:owner/name", "hub:owner/name:more")
    assert [s.hub for s in resolve(names)[0]] == ["owner/name", "owner/name:more"]


def test_a_data_set_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "x/a.csv")
    monkeypatch.setenv("HOME", str(tmp_path))
    (source,) = resolve(("hub:~/x:more",))[0]
    assert (source.hub, source.name) == (f"{tmp_path}/x:more", "hub:x:more")


def test_no_output_into_the_folder_of_a_data_set(tmp_path: Path) -> None:
    """The library reads every file there: the own state was taken for text."""
    put(tmp_path, "set/a.csv", "elsewhere/b.csv")
    folder = tmp_path / "set"
    (tmp_path / "link").symlink_to(folder)
    for output in (folder, folder / "prep", folder / "new" / "prep", tmp_path / "link" / "prep"):
        for item in (f"hub:{folder}", f"hub:{folder}:default"):
            with pytest.raises(UserError, match=r"lies in the folder of .* hub:.*choose"):
                resolve((item,), output=output)
    with pytest.raises(UserError, match="lies in the folder"):
        resolve(("hub:owner/name",), output=Path("owner/name/prep"))
    for output in (tmp_path / "set-prep", tmp_path / "elsewhere" / "prep"):
        assert len(resolve((f"hub:{folder}", "hub:owner/name"), output=output)[0]) == 2


def test_tables_about_the_texts_are_left_out_of_folders_only(tmp_path: Path) -> None:
    put(tmp_path, "a.txt")
    (tmp_path / "list.tsv").write_text("title\tyear\nEmma\t1815\n")
    (tmp_path / "good.csv").write_text("id,text\n1,hello\n")
    found = choosing.choose_sources(PrepareConfig(inputs=(str(tmp_path),), output_dir="x"))
    assert [s.path.name for s in found] == ["a.txt", "good.csv"]
    named = choosing.choose_sources(
        PrepareConfig(inputs=(str(tmp_path / "list.tsv"),), output_dir="x")
    )
    assert [s.path.name for s in named] == ["list.tsv"]


# ------------------------------------------------------------------ what is left out is said


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("a.csv", "id,body\n1,hello\n", "body"),
        ("a.tsv", "content\tid\nhello\t1\n", "content"),
        ("a.jsonl", '\n{"id": 1, "review": "hello"}\n', "review"),
        ("a.csv", "body,text\nno,hello\n", ""),
    ],
)
def test_a_column_with_a_known_name_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, column: str
) -> None:
    """`finetune` found such columns and `prepare` did not: named, by a pattern, in a folder."""
    (tmp_path / name).write_text(text)
    for item in (tmp_path / name, tmp_path / "a.*", tmp_path):
        config = PrepareConfig(inputs=(str(item),), output_dir="x")
        (source,) = choosing.choose_sources(config)
        assert list(documents(source, config, counts=Counter())) == ["hello"]
        said = capsys.readouterr().err
        wanted = f"the text is read from {column!r}; --text-column names another one\n"
        assert said.endswith(wanted) if column else said == ""


def test_a_column_of_parquet_with_a_known_name(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"content": ["hello"], "n": [1]}), tmp_path / "a.parquet")
    config = PrepareConfig(inputs=(str(tmp_path / "a.parquet"),), output_dir="x")
    (source,) = choosing.choose_sources(config)
    assert list(documents(source, config, counts=Counter())) == ["hello"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "body,review\na,b\n", "has no 'text'; it has body, review; choose one with text"),
        ("a.csv", "text;label\na;b\n", "to be separated by ';': save it with commas"),
        ("a.csv", "text\tlabel\na\tb\n", "to be separated by tabs: name the file .tsv"),
    ],
)
def test_which_column_cannot_be_known(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    config = PrepareConfig(inputs=(str(tmp_path / name),), output_dir="x")
    (source,) = choosing.choose_sources(config)
    with pytest.raises(UserError, match=says):
        list(documents(source, config, counts=Counter()))
    with pytest.raises(UserError, match=r"has a column 'text'; (choose one with|the columns seem)"):
        choosing.choose_sources(replace(config, inputs=(str(tmp_path / "*.csv"),)))


def said_of(folder: Path | str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    choosing.choose_sources(PrepareConfig(inputs=(str(folder),), output_dir="x"))
    return capsys.readouterr().err


def test_json_about_the_texts_is_left_out_of_folders_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--preset code` stopped at the package.json of a project."""
    put(tmp_path, "a.py", "b.py")
    (tmp_path / "package.json").write_text('{\n  "name": "x"\n}\n')
    (tmp_path / "tsconfig.json").write_text('{"strict": true}')
    (tmp_path / "list.json").write_text('["text"]\n')
    (tmp_path / "good.json").write_text('\n{"text": "hello"}\n{"text": "you"}\n')
    (tmp_path / "rows.jsonl").write_text('{"title": "hello"}\n')
    asked = from_preset("code", inputs=(str(tmp_path),), output_dir=str(tmp_path / "out"))
    found = choosing.choose_sources(asked)
    names = [s.path.name for s in found]
    assert names == ["a.py", "b.py", "good.json", "rows.jsonl"]  # the last stops the run
    said = capsys.readouterr().err
    assert "JSON files without a column 'text': 3" in said
    assert f"{tmp_path.name}/package.json" in said
    named = choosing.choose_sources(
        PrepareConfig(inputs=(str(tmp_path / "package.json"),), output_dir=str(tmp_path / "out"))
    )
    assert [s.path.name for s in named] == ["package.json"]
    with pytest.raises(UserError, match=r"no file of .* has a column 'text'"):
        choosing.choose_sources(
            PrepareConfig(inputs=(str(tmp_path / "*e.json"),), output_dir=str(tmp_path / "out"))
        )


def test_everything_left_out_is_counted_and_named_by_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "corpus"
    put(folder, "a.txt", "b/c.txt", "LICENSE.txt", "pic.png", ".hidden.txt", "locked/d.txt")
    put(tmp_path, "elsewhere/e.txt", "one.txt")
    (folder / "empty.txt").touch()
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / "back").symlink_to(folder)
    (folder / "dead.txt").symlink_to(tmp_path / "gone.txt")
    (folder / "linked.txt").symlink_to(tmp_path / "one.txt")
    (folder / "list.csv").write_text("title,year\nEmma,1815\n")
    os.mkfifo(folder / "pipe.txt")
    found = said_of(folder, capsys)
    assert len(found.splitlines()) == 1
    assert found.startswith("left out 9; ")
    for part in (
        "links to folders (not followed): 2 (back, linked)",
        "links that lead nowhere, pipes or devices: 2 (dead.txt, pipe.txt)",
        "empty files: 1 (empty.txt)",
        "files of other kinds: 1 (pic.png)",
        "files about the corpus: 1 (LICENSE.txt)",
        "hidden: 1 (.hidden.txt)",
        "tables without a column 'text': 1 (corpus/list.csv)",
    ):
        assert part in found
    names = [s.name for s in resolve((str(folder),))[0]]
    assert names == [
        "corpus/a.txt",
        "corpus/b/c.txt",
        "corpus/linked.txt",
        "corpus/list.csv",
        "corpus/locked/d.txt",
    ]


def test_what_may_not_be_read_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests run as root, who may read everything."""
    put(tmp_path, "a.txt", "locked/b.txt", "c.txt")
    listing, access = Path.iterdir, os.access

    def refused(self: Path) -> Any:
        if self.name == "locked":
            raise PermissionError(13, "Permission denied", str(self))
        return listing(self)

    def not_opened(path: Any, mode: int) -> bool:
        return Path(path).name != "c.txt" and access(path, mode)

    monkeypatch.setattr(Path, "iterdir", refused)
    monkeypatch.setattr(os, "access", not_opened)
    found = said_of(tmp_path, capsys)
    assert (
        "left out 2; files that may not be read: 1 (c.txt); folders that may not be read: 1 "
        "(locked)" in found
    )
    with pytest.raises(UserError, match=r"the folder .*locked cannot be read: Permission denied"):
        resolve((str(tmp_path / "locked"),))
    found = said_of(f"{tmp_path}/**/*.txt", capsys)
    assert "folders that may not be read: 1 (locked)" in found


def test_a_folder_of_linked_folders_only(tmp_path: Path) -> None:
    put(tmp_path, "real/a.txt")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "one").symlink_to(tmp_path / "real")
    with pytest.raises(
        UserError,
        match=(
            r"holds only links to folders \(one\), which are not followed; name the linked folders "
            r"themselves"
        ),
    ):
        resolve((str(tmp_path / "links"),))
    assert len(resolve((str(tmp_path / "links" / "one"),))[0]) == 1  # named itself, it is followed


def test_patterns_say_what_they_leave_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, "a.txt", "b/c.txt", "d.png")
    (tmp_path / "dead.txt").symlink_to("gone")
    (tmp_path / "linked").symlink_to(tmp_path / "b")
    os.mkfifo(tmp_path / "pipe.txt")
    found = said_of(f"{tmp_path}/*", capsys)
    for part in (
        "folders into which this pattern does not lead: 2 (b, linked)",
        "links that lead nowhere, pipes or devices: 2 (dead.txt, pipe.txt)",
        "(d.png)",
    ):
        assert part in found
    assert "links to folders (not followed): 1 (linked)" in said_of(f"{tmp_path}/**/*.txt", capsys)


def test_the_output_inside_a_corpus_is_not_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, "a.txt", "out/manifest.json", "out/tokens.bin")
    capsys.readouterr()
    found = choosing.choose_sources(
        PrepareConfig(inputs=(str(tmp_path),), output_dir=str(tmp_path / "out"))
    )
    assert [s.path.name for s in found] == ["a.txt"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("a**.txt", r"the pattern a\*\*\.txt cannot be followed: write \*\* between slashes"),
        ("~nouser/x", "~nouser/x: no user of this name has a home folder here"),
    ],
)
def test_patterns_and_homes_that_cannot_be(item: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        resolve((item,))


# ----------------------------------------------------------------- folders that are deep, or vanish


def test_two_names_of_one_file_are_one_and_what_is_made_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, "a/x.txt", "out/y.txt", "out/deep/z.txt")
    (tmp_path / "a" / "link.txt").symlink_to(tmp_path / "out" / "y.txt")
    for inputs in (
        (f"{tmp_path}/a", f"{tmp_path}/a/../a/x.txt"),
        (f"{tmp_path}/**/*.txt",),
        (f"{tmp_path}/**",),
    ):
        assert [s.path.name for s in resolve(inputs, output=tmp_path / "out")[0]] == ["x.txt"]


def test_a_quoted_header_of_a_tsv_is_read_as_its_rows_are(tmp_path: Path) -> None:
    """Tab-separated rows do not quote, so no column is announced that could not be found then."""
    path = tmp_path / "q.tsv"
    path.write_text('"sentence"\t"label"\n"a nice film"\t1\n')
    (source,) = choosing.choose_sources(PrepareConfig(inputs=(str(path),), output_dir="x"))
    assert not source.column


def test_folders_that_electrify_made_are_not_text(tmp_path: Path) -> None:
    """Their vocabularies and cards have the endings of texts."""
    put(tmp_path, "a.txt", "run/config.yaml", "run/run.json", "run/discriminator/README.md")
    put(tmp_path, "model/electrify.json", "model/vocab.txt", "data/unfinished/state.json")
    sources, left_out = resolve((str(tmp_path),))
    assert [s.path.name for s in sources] == ["a.txt"]
    assert [one.name for one in left_out if one.reason == walk.MADE] == ["data", "model", "run"]
    with pytest.raises(UserError, match="is a folder that electrify made"):
        resolve((str(tmp_path / "run"),))
