"""The embedded corpus: read from source files, never imported, in the same order every time."""

import sys
import sysconfig
from itertools import islice
from pathlib import Path

import pytest

from electrify.text import pydocs
from electrify.text.options import PrepareConfig
from electrify.text.prepare import prepare

LONG = (
    "A sentence that is long enough to be taken into the corpus, because it says more than a few "
    "words do."
)


def test_docstrings_are_found_where_python_finds_them(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        f'''"""{LONG} 1"""
raise SystemExit("imported!")
class A:
    """{LONG} 2

    Line
        indented
    """
    x = """{LONG} not a docstring"""
    async def f(self):
        r"""{LONG} 3 \\d"""
        def inner():
            """{LONG} 4"""
if x:
    def g(): """{LONG} 5"""
else:
    try:
        pass
    except E:
        def h():
            """{LONG} 6"""
def short():
    """Short."""
''',
        encoding="utf-8",
    )
    found = pydocs.docstrings(path)
    assert [text.split(LONG + " ")[1][0] for text in found] == ["1", "2", "3", "4", "5", "6"]
    assert found[1].endswith("2\n\nLine\n    indented")


def test_a_long_chain_of_elifs(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    last = f'else:\n    def f():\n        """{LONG}"""\n'
    path.write_text("if x: 1\n" + "elif x: 1\n" * 1500 + last)
    assert pydocs.docstrings(path) == [LONG]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Path]]:
    """Of this Python, with one installed package: to look through all of them takes seconds."""
    installed, real = tmp_path_factory.mktemp("site-packages"), sysconfig.get_path
    (installed / "own").mkdir()
    (installed / "own" / "module.py").write_text(f'"""{LONG}"""')
    with pytest.MonkeyPatch.context() as patch:
        there = dict.fromkeys(("purelib", "platlib"), str(installed))
        patch.setattr(sysconfig, "get_path", lambda name: there.get(name) or real(name))
        return pydocs.source_files()


def test_topics_first_then_sorted_packages_and_nothing_imported(files, monkeypatch):
    before = set(sys.modules)
    monkeypatch.setattr(pydocs, "source_files", lambda: files)
    packages = [package for package, _ in files]
    assert packages == sorted(packages)
    assert set(packages) == {"own", pydocs.STANDARD_LIBRARY}
    assert not any("site-packages" in str(path) for package, path in files if package != "own")
    first = list(islice(pydocs.documents(), 20))
    assert {package for package, _ in first} == {"python"}
    assert any("assert" in text for _, text in first)
    assert {m.split(".")[0] for m in set(sys.modules) - before} <= {"pydoc_data"}


def test_prepared_corpus(files, tmp_path, monkeypatch):
    some = files[:60]
    monkeypatch.setattr(pydocs, "source_files", lambda: some)
    options = PrepareConfig(
        inputs=("pydocs",), output_dir=str(tmp_path / "data"), vocab_size=300, workers=1
    )
    manifest = prepare(options)
    assert manifest.sources == [{"name": "pydocs", "bytes": 0, "sha256": pydocs.identity()}]
    assert manifest.counts["documents"] > 100
    assert prepare(options) == manifest
