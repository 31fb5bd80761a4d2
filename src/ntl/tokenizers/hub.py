"""Tokenizer files of a published model: from the local cache, else from the hub, else a clear and quick no."""

from pathlib import Path

from ntl.config import UserError
from ntl.config.content import TOKENIZERS
from ntl.config.network import unreachable

_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json")


def cached_or_downloaded(hub_id: str) -> Path:
    """The folder with the tokenizer files of ``owner/name``.

    A cached copy is taken without asking the network, so that a run can be repeated without it. Code of the
    repository is never run. Raises :class:`ntl.config.UserError` with the remedies, within seconds.
    """
    folder = _cached(hub_id)
    if folder is not None:
        return folder
    from huggingface_hub import constants

    if constants.is_offline_mode():
        raise UserError(_no_file(hub_id, "it is not in the local cache and HF_HUB_OFFLINE is set"))
    problem = unreachable(constants.ENDPOINT)
    if problem:
        raise UserError(_no_file(hub_id, f"{constants.ENDPOINT} cannot be reached: {problem}"))
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
    """The folder of these files in the cache once they are there; None where the repository has not all of them."""
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
