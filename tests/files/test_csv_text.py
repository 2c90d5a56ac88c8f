"""CSV that is read back as it was written, whatever the cells hold."""

from __future__ import annotations

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from electrify.oldfiles.csv_text import csv_text

cells = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=6)


@given(st.lists(st.lists(cells, min_size=2, max_size=4), max_size=4))
def test_every_cell_comes_back(rows: list[list[str]]) -> None:
    assert list(csv.reader(io.StringIO(csv_text(rows), newline=""))) == rows


def test_a_carriage_return_is_quoted() -> None:
    assert csv_text([["a\rb", 1, ""]]) == '"a\rb",1,\n'
