"""Reading the tokenizer files of one local folder."""

import json
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, GPT2Tokenizer, PreTrainedTokenizerFast, T5Tokenizer

from ntl.system.errors import UserError
from ntl.system.hub import BPE, SAVED, SENTENCEPIECE, TOKENIZER_SETTINGS, tokenizer_files

_UNIGRAM = 1
# Classes that read all of tokenizer.json; others make parts of it anew.
WHOLE = ("PreTrainedTokenizerFast", "TokenizersBackend")


def read_stock(folder: Path, gguf_file: str = "") -> PreTrainedTokenizerFast:
    """The tokenizer of the files as they are, of the class that transformers gives it.

    Looks for tokenizer.json, then spiece.model, then vocab.json with merges.txt, then in ``gguf_file``. Raises
    :class:`ntl.system.errors.UserError`, which names the file, for one that is missing, cut short or of another format.
    """
    found = _read_files(folder, gguf_file)
    for setting in ("local_files_only", "is_local", "trust_remote_code"):  # which would be saved with it
        found.init_kwargs.pop(setting, None)
    return found


def _read_files(folder: Path, gguf_file: str) -> PreTrainedTokenizerFast:
    files = tokenizer_files(folder, gguf_file)
    if gguf_file and files == [folder / gguf_file]:
        return _read(folder, gguf_file, gguf_file=gguf_file)
    for path in files:
        if path.suffix == ".json" and path.name in TOKENIZER_SETTINGS:
            _read_json(path)
    if (folder / SAVED).exists():
        _read_json(folder / SAVED)
        return _read(folder, SAVED)
    if (folder / SENTENCEPIECE).exists():
        return read_sentencepiece(folder)
    return _read_bpe(folder)


def read_sentencepiece(folder: Path, sentinels: int = 100) -> PreTrainedTokenizerFast:
    """The T5 tokenizer of ``folder/spiece.model`` with ``sentinels`` tokens ``<extra_id_N>`` after its pieces."""
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2

    path = folder / SENTENCEPIECE
    model = sentencepiece_model_pb2.ModelProto()  # pyright: ignore[reportAttributeAccessIssue]
    try:
        model.ParseFromString(_read_bytes(path))
    except DecodeError as error:
        raise UserError(f"{path} is not a whole sentencepiece model ({error}): fetch the file again") from error
    # A file cut between two records still parses; these two come last and show that it is complete.
    if not (model.HasField("trainer_spec") and model.HasField("normalizer_spec")):
        raise UserError(f"{path} is cut short (no trainer_spec or normalizer_spec): fetch the file again")
    first = [piece.piece for piece in model.pieces[:3]]
    if model.trainer_spec.model_type != _UNIGRAM or first != ["<pad>", "</s>", "<unk>"]:
        raise UserError(
            f"{path} is no T5 vocabulary: T5's is a unigram model that begins with <pad>, </s>, <unk>, not {first}"
        )
    return T5Tokenizer.from_pretrained(str(folder), extra_ids=sentinels, local_files_only=True)


def _read(folder: Path, name: str, **options: str) -> PreTrainedTokenizerFast:
    settings = folder / "tokenizer_config.json"
    written: Any = _read_json(settings) if settings.exists() and not options else {}
    # transformers takes the class of some architectures, as Qwen2's, even where the files name this one.
    whole = isinstance(written, dict) and written.get("tokenizer_class") in WHOLE
    reader: Any = PreTrainedTokenizerFast if whole else AutoTokenizer
    try:
        found = reader.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False, **options)
    except Exception as error:  # the backend raises bare Exception
        raise UserError(f"{folder / name} is no tokenizer file ({_brief(error)}): save or fetch it again") from error
    if not found.is_fast:
        raise UserError(f"{folder}: a tokenizer written in Python alone; give one that has a {SAVED}")
    return found


def _read_bpe(folder: Path) -> PreTrainedTokenizerFast:
    vocab_path, merges_path = (folder / name for name in BPE)
    vocab = _read_json(vocab_path)
    if not isinstance(vocab, dict):
        raise UserError(f"{vocab_path} is no vocabulary: expected an object token -> id")
    made = set()
    for number, line in enumerate(_read_text(merges_path).split("\n"), start=1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        pair = line.split(" ")
        if len(pair) != 2 or "".join(pair) not in vocab:
            raise UserError(f"{merges_path}:{number}: {line[:60]!r} makes no token of {vocab_path.name}")
        made.add("".join(pair))
    # A file cut between two lines is valid but gives other ids; only the tokens without a merge show it.
    lost = [token for token in vocab if len(token) > 1 and token not in made and (token[0], token[-1]) != ("<", ">")]
    if lost:
        raise UserError(
            f"{merges_path} makes {len(made)} tokens, but {len(lost)} of {vocab_path.name} (as {lost[0]!r}) come from "
            "no merge: fetch both files again"
        )
    try:
        return GPT2Tokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # the backend raises bare Exception
        raise UserError(f"{vocab_path} and {merges_path} do not fit together ({_brief(error)})") from error


def _read_bytes(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): save or fetch it again") from error
    if not content:
        raise UserError(f"{path} is empty: fetch the file again")
    if content.startswith(b"version https://git-lfs"):
        raise UserError(f"{path} is a git-lfs pointer, not the file itself: run `git lfs pull` or fetch the file")
    return content


def _read_text(path: Path) -> str:
    try:
        return _read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({_brief(error)}): fetch the file again") from error


def _read_json(path: Path) -> object:
    try:
        return json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not valid JSON ({error.msg}): fetch the file again") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or endless nesting
        raise UserError(f"{path}: not valid JSON ({_brief(error)}): fetch the file again") from error


def _brief(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0][:120]}" if lines else type(error).__name__
