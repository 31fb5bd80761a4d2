"""Published weights and tokenizers: found in the cache or on the hub, or a clear error within seconds."""

from pathlib import Path

from ntl.system.content import CONFIG, TOKENIZERS, digest, weight_files
from ntl.system.errors import UserError
from ntl.system.network import unreachable

_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json")


def require(name: str) -> None:
    """Raise a UserError that names the remedies, unless ``name`` is a folder or a hub id that can be read."""
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
    """Return the ``sha256`` of the weights in a folder or of a cached hub id, and for a hub id the ``commit``."""
    if Path(name).is_dir():
        return {"sha256": digest(weight_files(Path(name)))}
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(name, CONFIG)
    if not isinstance(path, str):
        return {}
    snapshot = Path(path).parent
    try:
        return {"commit": snapshot.name, "sha256": digest(weight_files(snapshot))}
    except UserError:  # transformers also loads weights that the hub converted, which are on a separate branch
        return {"commit": snapshot.name}


def no_hub() -> str:
    """Return why the hub cannot be reached; empty if it can."""
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return "HF_HUB_OFFLINE is set"
    problem = unreachable(constants.ENDPOINT)
    return f"{constants.ENDPOINT} cannot be reached: {problem}" if problem else ""


def _unavailable(name: str) -> str:
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    if isinstance(try_to_load_from_cache(name, CONFIG), str):
        return ""
    if problem := no_hub():
        return problem
    try:
        hf_hub_download(name, CONFIG)
    except (OSError, ValueError) as error:
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return ""


def cached_or_downloaded(hub_id: str) -> Path:
    """Return the folder with the tokenizer files of ``owner/name``.

    A cached copy is used without network access, so that a run can be repeated offline. Code of the repository is never
    executed. Raises UserError with the remedies, within seconds.
    """
    folder = _cached(hub_id)
    if folder is not None:
        return folder
    if problem := no_hub():
        raise UserError(_no_file(hub_id, f"not in the local cache, and {problem}"))
    return _download(hub_id)


def _cached(hub_id: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    for names in TOKENIZERS:
        found = [try_to_load_from_cache(hub_id, name) for name in names]
        if all(isinstance(path, str) for path in found):
            return Path(str(found[0])).parent
    return None


def _download(hub_id: str) -> Path:
    folder = next((found for names in TOKENIZERS if (found := _fetch(hub_id, names))), None)
    if folder is None:
        expected = ", or ".join(" and ".join(names) for names in TOKENIZERS)
        raise UserError(f"{hub_id} on the hub holds no tokenizer: expected {expected}")
    for name in _SETTINGS:
        _fetch(hub_id, (name,))
    return folder


def _fetch(hub_id: str, names: tuple[str, ...]) -> Path | None:
    """Download these files and return their folder in the cache; None if the repository does not have all of them."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HFValidationError, RemoteEntryNotFoundError

    try:
        paths = [Path(hf_hub_download(hub_id, name)) for name in names]
        return paths[0].parent
    except RemoteEntryNotFoundError:
        return None
    except (OSError, HFValidationError) as error:
        raise UserError(_no_file(hub_id, str(error).strip().splitlines()[0][:200])) from error


def _no_file(hub_id: str, reason: str) -> str:
    return (
        f"no tokenizer files for {hub_id!r} ({reason}). Either download them on a machine with network and give the "
        f"folder by tokenizer.path=FOLDER; or run `hf download {hub_id}` (formerly huggingface-cli download) there "
        "and set HF_HOME to a copy of its cache; or take a model whose name ends in _tiny, which needs no file"
    )
