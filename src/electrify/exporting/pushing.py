"""`electrify push`: a model folder to the Hugging Face Hub, a fixed list of its files."""

from __future__ import annotations

from pathlib import Path

from ..errors import need
from ..progress import say
from ..text.tokenizer import TOKENIZER_FILES
from .options import Push
from .places import METADATA, SETTINGS, model_in

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "model.onnx")
PATTERNS = (
    *(SETTINGS, *WEIGHTS, "model-*-of-*.safetensors", METADATA, "README.md"),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
    *("[0-9]_*/config.json", "[0-9]_*/model.safetensors"),
)
"""The files of a model, and the modules of sentence-transformers. Those of its tokenizer are added,
and nothing else is sent."""


def upload(options: Push) -> dict[str, int]:
    """Sends the files, but for a dry run. Returns their names and sizes in bytes."""
    folder = Path(model_in(options.folder))
    sizes = {str(f.relative_to(folder)): f.stat().st_size for f in files_of(folder)}
    if options.dry_run:
        return sizes
    from huggingface_hub import HfApi

    api = HfApi()
    repo = api.create_repo(options.repo_id, private=options.private, exist_ok=True)
    if options.revision is not None:
        api.create_branch(repo.repo_id, branch=options.revision, exist_ok=True)
    api.upload_folder(
        repo_id=repo.repo_id,
        folder_path=folder,
        allow_patterns=list(sizes),
        revision=options.revision,
        commit_message=options.commit_message,
    )
    say(f"the model is at {repo}")
    return sizes


def files_of(folder: Path) -> list[Path]:
    """The files that are sent. Raises UserError for a folder without a model."""
    patterns = (*PATTERNS, *TOKENIZER_FILES)
    found = sorted({f for pattern in patterns for f in folder.glob(pattern) if f.is_file()})
    names = {f.name for f in found if f.parent == folder}
    need(
        SETTINGS in names and bool(names.intersection(WEIGHTS)),
        f"{folder} holds no model ({SETTINGS} with {WEIGHTS[0]} or {WEIGHTS[-1]}). Name a run, an "
        "export or a fine-tuned model",
    )
    return found
