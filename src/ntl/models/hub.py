"""Where pretrained weights come from, found out before anything slow is imported."""

from pathlib import Path

from ntl.config import ModelConfig, UserError


def source(config: ModelConfig) -> str:
    """The folder or hub id of the weights and of the tokenizer; empty for a stand-in that has none."""
    return config.path or config.hub_id


def require(name: str) -> None:
    """Raise a one-line ``UserError`` with the remedies unless ``name`` is a folder or a hub id that can be read."""
    if Path(name).is_dir():
        if not (Path(name) / "config.json").is_file():
            raise UserError(f"model.path={name}: no config.json in this folder; give one written by save_pretrained.")
        return
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        hf_hub_download(name, "config.json", etag_timeout=5)
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        raise UserError(
            f"model {name}: neither in the local cache nor to be had from the hub ({type(error).__name__}). "
            f"Either connect once, so that it is cached; or copy the model to this machine and give its folder "
            f"by model.path=FOLDER; or train the architecture from scratch by model.pretrained=false "
            f"tokenizer.path=FOLDER (or a *_tiny model, which needs no files)."
        ) from error
