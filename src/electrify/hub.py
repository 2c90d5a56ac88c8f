"""Asks the Hub once whether it has a model or a data set, before the libraries ask for its files:
where there is no network, or a folder is mistyped, they ask again and again for up to a minute.
Fetches the file of a model that no library reads."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal

from .errors import UserError
from .progress import say

SECONDS = 10  # until an answer must be there
_OF_MODELS = ("config.json", "tokenizer_config.json", "tokenizer.json")
"""Files of which a model or tokenizer has at least one."""


@cache
def must_be_reachable(name: str, what: Literal["model", "tokenizer", "data set"]) -> None:
    """Raises UserError if a name that is not a folder here is neither in the Hub's cache nor known
    to the Hub. what: the kind of thing that it is to be."""
    import huggingface_hub
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    missing = f"{name!r:.60} is neither a folder here nor a {what}"
    kind, files = ("dataset", ("README.md",)) if what == "data set" else ("model", _OF_MODELS)
    if what == "data set" and _is_kept(name):
        return
    try:
        had = (huggingface_hub.try_to_load_from_cache(name, f, repo_type=kind) for f in files)
        if any(isinstance(file, str) for file in had):
            return
        url = huggingface_hub.hf_hub_url(name, files[0], repo_type=kind)
        huggingface_hub.get_hf_file_metadata(url, timeout=SECONDS)
    except HfHubHTTPError as e:
        if isinstance(e, RepositoryNotFoundError) and not isinstance(e, GatedRepoError):
            raise UserError(
                f"{missing} of the Hub. Look at how it is written, and log in if it is private"
            ) from e
        # Every other answer shows that it is reached; the libraries say what is wrong.
    except Exception as e:  # no network: each version of the client has its own exceptions
        said = " ".join(str(e).split())[:200]
        raise UserError(
            f"{missing} that can be reached on the Hub ({type(e).__name__}: {said})"
        ) from e


def _is_kept(name: str) -> bool:
    """Whether `datasets` has the set in the cache of its own, which it reads without a network."""
    try:
        from datasets import config
        from datasets.naming import camelcase_to_snakecase
    except ImportError:
        return False
    *of, own = name.split("/")
    place = "___".join([*of, camelcase_to_snakecase(own)])
    return (Path(config.HF_DATASETS_CACHE) / place).is_dir()


def at_commit(name: str) -> str:
    """The name of a model of the Hub and its commit in the Hub's cache, NAME@COMMIT; the name alone
    as long as the cache does not hold it. The Hub is not asked."""
    import huggingface_hub

    with suppress(ValueError, OSError):  # no name that the Hub takes, or a cache that nobody reads
        found = huggingface_hub.try_to_load_from_cache(name, "config.json")
        return f"{name}@{Path(found).parent.name}" if isinstance(found, str) else name
    return name


@cache
def file_of(name: str, file: str) -> Path | None:
    """A file of a model of the Hub, in its cache. Callers must have read the model's config.json
    (`load_config`). None if the model has no such file, or if the Hub cannot be asked, which is
    reported."""
    import huggingface_hub
    from huggingface_hub.errors import RemoteEntryNotFoundError

    # The library has just written there which commit is the newest.
    known = huggingface_hub.try_to_load_from_cache(name, file)
    if known is not None:
        return Path(known) if isinstance(known, str) else None  # else the Hub said that it has none
    try:
        return Path(huggingface_hub.hf_hub_download(name, file, etag_timeout=SECONDS))
    except RemoteEntryNotFoundError:
        return None
    except Exception as e:  # noqa: BLE001 - no network: each version has its own exceptions
        say(
            f"warning: {name!r:.60}: the Hub cannot be asked for {file} ({type(e).__name__}). The "
            "model is read as one that electrify did not write: if it did, repeat with a network"
        )
        return None
