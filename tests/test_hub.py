"""What is asked of the Hub, and what of its caches."""

from pathlib import Path

import pytest

from electrify.hub import must_be_reachable


def test_a_data_set_in_the_cache_of_datasets(tmp_path: Path, monkeypatch) -> None:
    """Its folder has the name as `datasets` writes it, and the Hub is not asked."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    (tmp_path / "someone___tiny_stories").mkdir()
    must_be_reachable("someone/TinyStories", "data set")
