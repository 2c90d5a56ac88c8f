"""Asks the Hub once whether it has a model, before the libraries ask for its files: where there is
no network, or a folder is mistyped, they ask again and again for a minute."""

from __future__ import annotations

from functools import cache

from ..console import brief
from ..errors import UserError

SECONDS = 10  # until an answer must be there
# A repository of a model or a tokenizer has at least one of these.
_FILES = ("config.json", "tokenizer_config.json", "tokenizer.json")


@cache
def must_be_reachable(name: str, what: str) -> None:
    """Raises UserError if a name that is no folder here is neither in the Hub's cache nor known to
    the Hub. what: the kind of thing that it is to be, for the message."""
    import huggingface_hub
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    missing = f"{brief(name)} is neither a folder here nor a {what}"
    try:
        if any(isinstance(huggingface_hub.try_to_load_from_cache(name, f), str) for f in _FILES):
            return
        url = huggingface_hub.hf_hub_url(name, _FILES[0])
        huggingface_hub.get_hf_file_metadata(url, timeout=SECONDS)
    except HfHubHTTPError as e:
        if isinstance(e, RepositoryNotFoundError) and not isinstance(e, GatedRepoError):
            raise UserError(
                f"{missing} of the Hub; look at how it is written, and log in if it is private"
            ) from e
        # Every other answer shows that it is reached; the libraries say what is wrong.
    except Exception as e:  # no network: each version of the client has its own exceptions
        said = " ".join(str(e).split())[:200]
        raise UserError(
            f"{missing} that can be reached on the Hub ({type(e).__name__}: {said})"
        ) from e
