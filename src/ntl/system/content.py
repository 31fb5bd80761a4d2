"""The files of a folder of weights or of a tokenizer that are read, and a single sha256 digest of them.

Hashing a gigabyte takes a second or two, once per process. The digest is not cached on disk, where it could be
outdated.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from ntl.system.errors import UserError, one_line_errors

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
SHARDS = f"{WEIGHTS}.index.json"
ADAPTER = "adapter_config.json"

SAVED = "tokenizer.json"
SENTENCEPIECE = "spiece.model"
BPE = ("vocab.json", "merges.txt")
# The first of these that exists is read, together with the settings next to it.
TOKENIZERS = ((SAVED,), (SENTENCEPIECE,), BPE)
TOKENIZER_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


def weight_files(folder: Path) -> list[Path]:
    """Return config.json and the weight files that ``from_pretrained`` loads. Raises UserError if it could not."""
    if not (folder / CONFIG).is_file():
        raise UserError(f"model.path={folder}: no {CONFIG} in this folder; give one written by save_pretrained.")
    if (folder / ADAPTER).is_file():
        raise UserError(
            f"model.path={folder}: it has an adapter ({ADAPTER}), whose base model lies elsewhere; merge the two "
            "(peft's merge_and_unload), save the result with save_pretrained, and give that folder."
        )
    if (folder / WEIGHTS).is_file():
        return [folder / CONFIG, folder / WEIGHTS]
    if not (folder / SHARDS).is_file():
        raise UserError(
            f"model.path={folder}: neither {WEIGHTS} nor {SHARDS} in this folder; give one written by save_pretrained."
        )
    return [folder / CONFIG, folder / SHARDS, *_shards(folder)]


def _shards(folder: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads((folder / SHARDS).read_bytes())["weight_map"].values()))
        files = [folder / name for name in names if Path(name).name == name]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"model.path={folder}: {SHARDS} cannot be read; fetch the folder again.") from error
    if not files or len(files) < len(names) or not all(file.is_file() for file in files):
        raise UserError(f"model.path={folder}: {SHARDS} names files that are not there; fetch the folder again.")
    return files


def tokenizer_files(folder: Path) -> list[Path]:
    """Return the files that ``ntl.tokenizers.load_tokenizer`` reads. Raises UserError if there is no tokenizer."""
    for names in TOKENIZERS:
        # exists(), not is_file(): reading something else then raises a clear error.
        if all((folder / name).exists() for name in names):
            return [path for name in (*names, *TOKENIZER_SETTINGS) if (path := folder / name).exists()]
    incomplete = [name for name in BPE if (folder / name).exists()]
    found = f" ({incomplete[0]} alone is not enough)" if incomplete else ""
    expected = ", or ".join(" and ".join(names) for names in TOKENIZERS)
    raise UserError(f"{folder} holds no tokenizer{found}: expected {expected}")


def digest(files: Sequence[Path]) -> str:
    """Return the sha256 of the names and contents of files in any folder. Raises UserError if one is unreadable."""
    lines = [f"{path.name} {_sha256(path)}\n" for path in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with one_line_errors("read", path):
        state = path.stat()
        return _hashed(path.resolve(), state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


@lru_cache(maxsize=1024)
def _hashed(path: Path, *state: int) -> str:
    # ``state`` is part of the cache's key. The cache is needed because a table asks for the id of each of its runs.
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
