"""From a folder or a hub id to a tokenizer of a given kind, and its fingerprint."""

import hashlib
import json
import re
from functools import lru_cache
from itertools import chain
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers import AddedToken, Tokenizer
from transformers import AutoTokenizer, GPT2Tokenizer, PreTrainedTokenizerFast, T5Tokenizer

from ntl.config.model import HUB_ID
from ntl.config.settings import nearest
from ntl.system.errors import UserError
from ntl.system.hub import (
    CONFIG,
    EXPECTED,
    SAVED,
    SENTENCEPIECE,
    TOKENIZER_SETTINGS,
    TOKENIZERS,
    download,
    snapshot,
    tokenizer_files,
)

PAD_TOKEN = "<|pad|>"
MASK_TOKEN = "<|mask|>"
# Classes that read all of tokenizer.json; others make parts of it anew.
WHOLE = ("PreTrainedTokenizerFast", "TokenizersBackend")
_NUMBER = re.compile(r"[+-]?[0-9.,]*[0-9][0-9.,]*")
Step = dict[str, Any]

# Not \d, which also matches Arabic-Indic and other Unicode digits, which are not number tokens.
DIGIT_SPLIT: Step = {"type": "Split", "pattern": {"Regex": "[0-9]"}, "behavior": "Isolated", "invert": False}


# Kind -> the class that writes numbers in its ``added_tokens``, if any; it may have ``ROLES``, such as a mask token.
KINDS = {"default": "", "digit": "", "rt": "ntl.tokenizers.rt.RTTokenizer", "xval": "ntl.tokenizers.xval.XValTokenizer"}


def number_class(kind: str) -> Any:
    """The class of a kind that has tokens of its own for numbers, else None. UserError for an unknown kind."""
    if kind not in KINDS:
        choices = f"choose one of {', '.join(sorted(KINDS))}"
        raise UserError(f"unknown tokenizer kind {kind!r}: {choices}.{nearest(kind, KINDS)}")
    return resolve_name(KINDS[kind]) if KINDS[kind] else None


def load_tokenizer(
    source: str | Path, kind: str = "digit", *, gguf_file: str = "", paper_compat: bool | None = None
) -> PreTrainedTokenizerFast:
    """A tokenizer as it is given, with an end token, and changed only as ``kind`` asks.

    ``source``: a local folder (a saved tokenizer, or only spiece.model, or only vocab.json and merges.txt, or with a
    ``gguf_file``) or a hub id ``owner/name``. ``kind``: ``"default"``, nothing is changed. ``"digit"``: each ASCII
    digit is a token of its own, also beside a word-start mark; a tokenizer of which that is true is not changed.
    ``"rt"`` and ``"xval"`` write numbers in tokens of their own (``ntl.tokenizers.rt``, ``ntl.tokenizers.xval``).
    ``paper_compat`` of ``"xval"``: read numbers as the original does; by default as the folder has it.

    Ids of the vocabulary never change; ``"default"`` and ``"digit"`` add no token (``ntl.models.interface.pad_id``).
    All else, such as the chat template, is as in the source. Digits that were split stay so in a tokenizer that is
    saved. UserError for an unknown kind, a file that is missing or broken, an unreachable hub.
    """
    has_own_class, folder = number_class(kind) is not None, Path(source).expanduser()
    if folder.is_file():
        raise UserError(f"{folder} is a file: give the folder that holds the tokenizer's files")
    if not folder.is_dir():
        if not HUB_ID.fullmatch(str(source)):
            raise UserError(f"tokenizer {str(source)!r} is neither a folder nor a hub id owner/name")
        folder = cached_or_downloaded(str(source))
    stock = read_stock(folder, gguf_file)
    if stock.eos_token is None:
        ends = [token for token in ("</s>", "<|endoftext|>") if token in stock.get_vocab()]
        if not ends:
            raise UserError(f"tokenizer {source} names no end token: set eos_token in its tokenizer_config.json")
        stock.eos_token = ends[0]
    if has_own_class:
        return assemble(stock, kind, paper_compat)
    return split_digits(stock, str(source)) if kind == "digit" and not has_single_digits(stock) else stock


def read_stock(folder: Path, gguf_file: str = "") -> PreTrainedTokenizerFast:
    """The tokenizer of the files as they are, of the class that transformers gives it.

    UserError for files that are missing (``ntl.system.hub.tokenizer_files``) or cannot be read.
    """
    files = tokenizer_files(folder, gguf_file)
    for path in files:
        if path.is_file() and path.stat().st_size < 1000 and path.read_bytes().startswith(b"version https://git-lfs"):
            raise UserError(f"{path} is a git-lfs pointer, not the file itself: run `git lfs pull` or fetch the file")
    try:
        tokenizer = _read(folder, files[0], gguf_file)
    except UserError:
        raise
    except Exception as error:  # the backends raise bare Exception
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        raise UserError(f"{folder}: its tokenizer cannot be read ({reason}); save or fetch it again") from error
    if not tokenizer.is_fast:
        raise UserError(f"{folder}: a tokenizer written in Python alone; give one that has a {SAVED}")
    for setting in ("local_files_only", "is_local", "trust_remote_code"):  # which would be saved with it
        tokenizer.init_kwargs.pop(setting, None)
    return tokenizer


def _read(folder: Path, file: Path, gguf_file: str) -> Any:
    if file.name == SAVED:
        settings = folder / "tokenizer_config.json"
        written = json.loads(settings.read_bytes()) if settings.exists() else {}
        # transformers takes the class of some architectures, as Qwen2's, even where the files name this one.
        reader: Any = PreTrainedTokenizerFast if written.get("tokenizer_class") in WHOLE else AutoTokenizer
        return reader.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    if file.name == SENTENCEPIECE:
        return read_sentencepiece(folder)
    if file == folder / gguf_file:
        return AutoTokenizer.from_pretrained(folder, gguf_file=gguf_file, local_files_only=True)
    return GPT2Tokenizer.from_pretrained(str(folder), local_files_only=True)


def read_sentencepiece(folder: Path, sentinels: int = 100) -> PreTrainedTokenizerFast:
    """The T5 tokenizer of ``folder/spiece.model`` with ``sentinels`` tokens ``<extra_id_N>`` after its pieces."""
    tokenizer = T5Tokenizer.from_pretrained(str(folder), extra_ids=sentinels, local_files_only=True)
    first = tokenizer.convert_ids_to_tokens([0, 1, 2])
    if first != ["<pad>", "</s>", "<unk>"]:
        raise UserError(f"{folder / SENTENCEPIECE} is no T5 vocabulary: it begins with {first}, not <pad>, </s>, <unk>")
    return tokenizer


def isolate_digits(pre_tokenizer: Step | None, isolate: bool = True) -> Step | None:
    """The segmentation with a step that makes every ASCII digit a word of its own, or without that step.

    It comes after a metaspace step, which has set the word-start mark already: ``2014`` becomes ``▁ 2 0 1 4``. It comes
    before a byte-level step, which would leave ``Ġ`` on the first digit: `` 12`` becomes ``Ġ 1 2``. But if that adds a
    space before each word (RoBERTa's), it comes after it, as otherwise each digit would get a space.
    """
    given = pre_tokenizer or {"type": "Sequence", "pretokenizers": []}
    steps = [step for step in given.get("pretokenizers", [given]) if step != DIGIT_SPLIT]
    if isolate:
        byte_level = (i for i, step in enumerate(steps) if step["type"] == "ByteLevel" and not step["add_prefix_space"])
        steps.insert(next(byte_level, len(steps)), DIGIT_SPLIT)
    return {"type": "Sequence", "pretokenizers": steps} if len(steps) > 1 else (steps[0] if steps else None)


def has_single_digits(tokenizer: PreTrainedTokenizerFast) -> bool:
    """Whether each digit of a number is a token of its own, wherever the number stands."""
    backend = Tokenizer.from_str(json.dumps(backend_state(tokenizer)))
    added = [token.content.strip() for token in backend.get_added_tokens_decoder().values() if not token.special]
    spaced = [f"x {digit}" for digit in "0123456789"]
    for text in ("0123456789", "-15.67", " 12", "x 120", "007", *spaced, *filter(_NUMBER.fullmatch, added)):
        tokens = backend.encode(text, add_special_tokens=False).tokens
        if [token for token in tokens if re.search("[0-9]", token)] != re.findall("[0-9]", text):
            return False
    return True


def split_digits(given: PreTrainedTokenizerFast, source: str) -> PreTrainedTokenizerFast:
    """A copy that writes each digit as a token of its own, and is the same in all else.

    Its class differs from the given one's, which would undo the change when it is loaded again.
    """
    if missing := [digit for digit in "0123456789" if digit not in given.get_vocab()]:
        raise UserError(
            f"tokenizer {source} has no token of its own for {', '.join(missing)}: it cannot be digit-level, "
            "use tokenizer=default"
        )
    changes = {
        "tokenizer.json": {"pre_tokenizer": isolate_digits(backend_state(given)["pre_tokenizer"])},
        "tokenizer_config.json": {"tokenizer_class": PreTrainedTokenizerFast.__name__},
    }
    with TemporaryDirectory() as folder:
        given.save_pretrained(folder)
        for path in (Path(folder, name) for name in changes):
            content = json.loads(path.read_text(encoding="utf-8")) | changes[path.name]
            path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        changed = read_stock(Path(folder))
    changed.name_or_path = given.name_or_path
    # Here and now: what is saved and loaded again was trained with them.
    changed.digits_were_split = True  # pyright: ignore[reportAttributeAccessIssue]
    written = str(changed.decode(changed("0123456789", add_special_tokens=False).input_ids))
    if not has_single_digits(changed) or written.strip() != "0123456789":
        raise UserError(
            f"tokenizer {source}: its {type(changed.backend_tokenizer.model).__name__} model joins digits, or parts "
            "them by spaces, so it cannot be digit-level; use tokenizer=default, or another tokenizer"
        )
    return changed


def assemble(stock: PreTrainedTokenizerFast, kind: str, paper_compat: bool | None = None) -> PreTrainedTokenizerFast:
    """A new tokenizer of this kind with the backend of the stock one and a pad token that is not its end token."""
    state = backend_state(stock)
    state["pre_tokenizer"] = isolate_digits(state["pre_tokenizer"], kind == "digit")
    pad = stock.pad_token or ("<pad>" if "<pad>" in stock.get_vocab() else PAD_TOKEN)
    pad, model = PAD_TOKEN if pad == stock.eos_token else pad, state["model"]
    unknown = model.get("unk_token") if model.get("unk_id") is None else model["vocab"][model["unk_id"]][0]
    own_class = number_class(kind)
    made_by = own_class or PreTrainedTokenizerFast
    roles = {"bos_token": stock.bos_token, "eos_token": stock.eos_token, "unk_token": unknown, "pad_token": pad}
    roles |= getattr(made_by, "ROLES", {})
    rule = stock.init_kwargs.get("paper_compat") if paper_compat is None else paper_compat
    backend, kept = Tokenizer.from_str(json.dumps(state)), ("padding_side", "truncation_side", "model_max_length")
    if own_class:
        backend.add_tokens([AddedToken(token, normalized=False) for token in own_class.added_tokens()])
    return made_by(
        tokenizer_object=backend,
        extra_special_tokens=[token for token in stock.all_special_tokens if token not in roles.values()],
        # True would remove the space before "." and "'s" in decode, so that text would not round-trip.
        clean_up_tokenization_spaces=False,
        chat_template=stock.chat_template,
        **{name: getattr(stock, name) for name in kept},
        **{role: token for role, token in roles.items() if token is not None},
        **({"paper_compat": rule} if kind == "xval" and rule is not None else {}),
    )


def add_mask_token(tokenizer: Any) -> Any:
    """Give a tokenizer without a mask token ``<|mask|>``, after its last id; in place."""
    if tokenizer.mask_token is None:
        tokenizer.add_special_tokens({"mask_token": MASK_TOKEN})
    return tokenizer


def backend_state(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """The content of tokenizer.json, without the padding and truncation of the last call."""
    return _state(tokenizer.backend_tokenizer.to_str())


def _state(serialized: str) -> dict[str, Any]:
    return json.loads(serialized) | {"padding": None, "truncation": None}


def special_ids(tokenizer: Any) -> set[int]:
    """The ids of all special tokens, also of those without a role, such as Llama 3's ``<|start_header_id|>``."""
    return {*tokenizer.all_special_ids, *(i for i, token in tokenizer.added_tokens_decoder.items() if token.special)}


def text_backend(tokenizer: PreTrainedTokenizerFast) -> Tokenizer:
    """The backend, with the same ids, to which what reads like a special token is text."""
    # Not by encode_special_tokens: a model such as T5's finds ``</s>`` among its own pieces.
    state = backend_state(tokenizer)
    model, special = state["model"], {entry["content"] for entry in state["added_tokens"] if entry["special"]}
    hidden = {token: f"\ufdd0{index}" for index, token in enumerate(sorted(special))}  # no text has this character
    for entry in state["added_tokens"]:
        entry["content"] = hidden.get(entry["content"], entry["content"])
    if isinstance(model["vocab"], dict):
        model["vocab"] = {hidden.get(token, token): index for token, index in model["vocab"].items()}
    else:
        model["vocab"] = [[hidden.get(token, token), score] for token, score in model["vocab"]]
    if model.get("unk_token"):
        model["unk_token"] = hidden.get(model["unk_token"], model["unk_token"])
    if "merges" in model:
        model["merges"] = [pair for pair in model["merges"] if not {"".join(pair), *pair} & special]
    return Tokenizer.from_str(json.dumps(state | {"post_processor": None}))


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerFast) -> str:
    """sha256 (hex) of the canonical tokenizer.json: equal for the same behaviour, wherever it was loaded from."""
    return _fingerprint(tokenizer.backend_tokenizer.to_str())


@lru_cache(maxsize=1)  # of a large vocabulary it takes half a second, and every split of a run asks
def _fingerprint(serialized: str) -> str:
    text = json.dumps(_state(serialized), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def cached_or_downloaded(hub_id: str) -> Path:
    """Return the folder with the tokenizer files of ``owner/name``. Raises UserError with the remedies.

    A cached copy is used without network access, so that a run can be repeated offline. Code of the repository is never
    executed.
    """
    names = [*chain.from_iterable(TOKENIZERS), CONFIG, *TOKENIZER_SETTINGS]
    problem = "" if snapshot(hub_id, *TOKENIZERS) else download(hub_id, names)
    if folder := snapshot(hub_id, *TOKENIZERS):
        return folder
    raise UserError(
        f"no tokenizer files for {hub_id!r} (not in the local cache, and {problem or f'the hub has not {EXPECTED}'}). "
        f"Either download them on a machine with network and give that folder (tokenizer.path=FOLDER, or "
        f"load_tokenizer(FOLDER)); or run `hf download {hub_id}` there and set HF_HOME to a copy of its cache; or take "
        "a model whose name ends in _tiny, which needs no file"
    )
