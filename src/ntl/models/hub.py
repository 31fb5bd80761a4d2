"""Where pretrained weights come from, found out before anything slow is imported."""

from pathlib import Path

from ntl.config import ModelConfig, UserError
from ntl.config.content import CONFIG, digest, weight_files
from ntl.config.network import unreachable


def source(config: ModelConfig) -> str:
    """The folder or hub id of the weights; empty for a model that has none."""
    return config.path or config.hub_id


def tokenizer_source(config: ModelConfig) -> str:
    """The folder or hub id of the tokenizer, which may be published where no weights are; empty for a stand-in."""
    return source(config) or config.tokenizer_hub_id


def require(name: str) -> None:
    """Raise a one-line ``UserError`` with the remedies unless ``name`` is a folder or a hub id that can be read."""
    if Path(name).is_dir():
        weight_files(Path(name))
        return
    problem = _unavailable(name)
    if problem:
        raise UserError(
            f"model {name}: not in the local cache, and {problem}. Either connect once, so that it is cached; or copy "
            f"the model to this machine and give its folder by model.path=FOLDER; or train the architecture from "
            f"scratch by model.pretrained=false tokenizer.path=FOLDER (a *_tiny model needs no files at all)."
        )


def identity(name: str) -> dict[str, str]:
    """``sha256`` of the weights in a folder or of a hub id that was loaded, and the hub's ``commit`` of them."""
    if Path(name).is_dir():
        return {"sha256": digest(weight_files(Path(name)))}
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(name, CONFIG)
    if not isinstance(path, str):
        return {}
    snapshot = Path(path).parent
    try:
        return {"commit": snapshot.name, "sha256": digest(weight_files(snapshot))}
    except UserError:  # transformers also takes weights that the hub converted, from a branch of their own
        return {"commit": snapshot.name}


def _unavailable(name: str) -> str:
    from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache

    if isinstance(try_to_load_from_cache(name, "config.json"), str):
        return ""
    if constants.is_offline_mode():
        return "HF_HUB_OFFLINE is set"
    if problem := unreachable(constants.ENDPOINT):
        return f"the hub cannot be reached: {problem}"
    try:
        hf_hub_download(name, "config.json")
    except (OSError, ValueError) as error:
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return ""
