"""The set of hashes against Python's own set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from electrify.text.dedup import Seen, digest, fraction

# Few distinct values, some ending in zero bytes, which numpy's string type would strip if it were
# careless.
HASHES = st.sampled_from(
    [bytes([a]) * n + bytes(16 - n) for a in (0, 1, 255) for n in (1, 8, 15, 16)]
)


@given(st.lists(st.lists(HASHES, max_size=12), max_size=12))
def test_like_a_set(batches: list[list[bytes]]) -> None:
    seen, reference = Seen(), set()
    for batch in batches:
        expected = []
        for h in batch:
            expected.append(h not in reference)
            reference.add(h)
        assert seen.add(batch) == expected


def test_fractions_are_uniform_and_independent() -> None:
    pairs = [
        (fraction(d, stream=0), fraction(d, stream=1))
        for d in (digest(str(i).encode()) for i in range(4000))
    ]
    chosen = [b for a, b in pairs if a < 0.1]
    assert 330 < len(chosen) < 470  # 400 +- 3.7 standard deviations
    assert 0.45 < sum(chosen) / len(chosen) < 0.55
