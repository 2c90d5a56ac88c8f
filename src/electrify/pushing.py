"""`electrify push`: a model folder to the Hugging Face Hub, a fixed list of its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .errors import UserError, need
from .exporting.places import METADATA, model_in
from .progress import say
from .values import Options, Positional

CONFIG = "config.json"
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "model.onnx")
PATTERNS = (
    *(CONFIG, *WEIGHTS, "model-*-of-*.safetensors", METADATA, "README.md"),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
    *("[0-9]_*/config.json", "[0-9]_*/model.safetensors"),
)
"""The files of a model, and the modules of sentence-transformers. Those of its tokenizer are added,
and nothing else is sent."""


@dataclass(frozen=True, kw_only=True)
class Push(Options):
    """Which folder is uploaded, and where to."""

    folder: Positional[str]
    """Model folder: an export, a fine-tuned model, or a run, of which discriminator/ is sent."""
    repo_id: Positional[str]
    """Repository on the Hub, USER/NAME. It is made if it does not exist. The token is the one of
    `hf auth login` or HF_TOKEN."""
    private: bool = True
    """Make a new repository private. An existing one stays as it is."""
    dry_run: bool = False
    """List the files with their sizes, and send nothing."""
    revision: str | None = None
    """Branch, which is made if it does not exist [default: main]."""
    commit_message: str | None = None
    """Message of the commit [default: that of huggingface_hub]."""

    def check(self) -> None:
        need("/" in self.repo_id, f"repo_id must be USER/NAME, not {self.repo_id!r}")

    def send(self) -> dict[str, int]:
        """Sends the files, but for a dry run. Returns their names and sizes in bytes."""
        folder = Path(model_in(self.folder))
        sizes = {str(f.relative_to(folder)): f.stat().st_size for f in files_of(folder)}
        if self.dry_run:
            return sizes
        from huggingface_hub import HfApi

        api = HfApi()
        repo = api.create_repo(self.repo_id, private=self.private, exist_ok=True)
        if self.revision is not None:
            api.create_branch(repo.repo_id, branch=self.revision, exist_ok=True)
        api.upload_folder(
            repo_id=repo.repo_id,
            folder_path=folder,
            allow_patterns=list(sizes),
            revision=self.revision,
            commit_message=self.commit_message,
        )
        say(f"the model is at {repo}")
        return sizes


def files_of(folder: Path) -> list[Path]:
    """The files that are sent. Raises UserError for a folder without a model."""
    from .text.tokenizer import TOKENIZER_FILES  # which imports numpy

    patterns = (*PATTERNS, *TOKENIZER_FILES)
    found = sorted({f for pattern in patterns for f in folder.glob(pattern) if f.is_file()})
    names = {f.name for f in found if f.parent == folder}
    if CONFIG not in names or not names.intersection(WEIGHTS):
        raise UserError(
            f"{folder} holds no model ({CONFIG} with {WEIGHTS[0]} or {WEIGHTS[-1]}). Name a run, "
            "an export or a fine-tuned model"
        )
    return found
