"""From a folder or a hub id to a tokenizer of a given kind, its fingerprint and its number tokens."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

from ntl.config.suggestions import nearest
from ntl.system.errors import UserError
from ntl.system.hub import cached_or_downloaded
from ntl.tokenizers.files import read_stock

PAD_TOKEN = "<|pad|>"
MASK_TOKEN = "<|mask|>"
_NUMBER = re.compile(r"[+-]?[0-9.,]*[0-9][0-9.,]*")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
Step = dict[str, Any]

# Not \d, which also matches Arabic-Indic and other Unicode digits, which are not number tokens.
DIGIT_SPLIT: Step = {"type": "Split", "pattern": {"Regex": "[0-9]"}, "behavior": "Isolated", "invert": False}


def steps_of(pre_tokenizer: Step | None) -> list[Step]:
    if pre_tokenizer is None:
        return []
    if pre_tokenizer["type"] == "Sequence":
        return list(pre_tokenizer["pretokenizers"])
    return [pre_tokenizer]


def sequence_of(steps: list[Step]) -> Step | None:
    if len(steps) > 1:
        return {"type": "Sequence", "pretokenizers": steps}
    return steps[0] if steps else None


def merge_digits(pre_tokenizer: Step | None) -> Step | None:
    """The stock segmentation: without the step that :func:`isolate_digits` adds."""
    return sequence_of([step for step in steps_of(pre_tokenizer) if step != DIGIT_SPLIT])


def isolate_digits(pre_tokenizer: Step | None) -> Step | None:
    """Add a step that makes every ASCII digit a word of its own.

    It comes after a metaspace step, which has set the word-start mark already: ``2014`` becomes ``▁ 2 0 1 4``. It comes
    before a byte-level step, which would leave ``Ġ`` on the first digit: `` 12`` becomes ``Ġ 1 2``. But if that adds a
    space before each word (RoBERTa's), it comes after it, as otherwise each digit would get a space.
    """
    steps = steps_of(merge_digits(pre_tokenizer))
    byte_level = (i for i, step in enumerate(steps) if step["type"] == "ByteLevel" and not step["add_prefix_space"])
    at = next(byte_level, len(steps))
    return sequence_of([*steps[:at], DIGIT_SPLIT, *steps[at:]])


@dataclass(frozen=True)
class TokenizerKind:
    """``pre_tokenizer`` edits that entry of tokenizer.json.

    A kind that writes numbers in tokens of its own names its tokenizer class by a dotted name: a subclass of
    ``PreTrainedTokenizerFast`` with a class method ``added_tokens``, the tokens that are appended to the vocabulary. It
    may have ``ROLES``, such as a mask token. ``options`` are settings of ``ntl.config.TokenizerConfig`` that the
    tokenizer is made with and saves.
    """

    pre_tokenizer: Callable[[Step | None], Step | None]
    needs_digits: bool = False
    tokenizer_class: str = "transformers.PreTrainedTokenizerFast"
    writes_numbers: bool = False
    options: tuple[str, ...] = ()


KINDS = {
    "default": TokenizerKind(merge_digits),
    "digit": TokenizerKind(isolate_digits, needs_digits=True),
    "rt": TokenizerKind(
        merge_digits,
        tokenizer_class="ntl.tokenizers.number_tokenizers.RTTokenizer",
        writes_numbers=True,
        options=("max_place",),
    ),
    "xval": TokenizerKind(
        merge_digits,
        tokenizer_class="ntl.tokenizers.number_tokenizers.XValTokenizer",
        writes_numbers=True,
        options=("paper_compat",),
    ),
}


def check_kind(kind: str) -> TokenizerKind:
    """The kind of that name. :class:`~ntl.config.UserError` with the valid choices if it does not exist."""
    if kind not in KINDS:
        choices = f"choose one of {', '.join(sorted(KINDS))}"
        raise UserError(f"unknown tokenizer kind {kind!r}: {choices}.{nearest(kind, KINDS)}")
    return KINDS[kind]


def load_tokenizer(source: str | Path, kind: str = "digit", **options: Any) -> PreTrainedTokenizerFast:
    """A tokenizer with a pad and an end token, whose behaviour is entirely in its tokenizer.json.

    ``source``: a local folder (a saved tokenizer, or only spiece.model, or only vocab.json and merges.txt) or a hub
    id ``owner/name``. ``kind``: ``"default"``, the stock segmentation, or ``"digit"``, the same with each ASCII digit
    as a separate token, also from the word-start mark; ``"rt"`` and ``"xval"`` write numbers in tokens of their own
    (``ntl.tokenizers.rt``, ``ntl.tokenizers.xval``). The kind with which the folder was saved does not matter.
    ``options``: ``max_place`` of ``"rt"``, the highest decimal place of its tokens, and ``paper_compat`` of ``"xval"``,
    to read numbers as the original does; by default those with which the folder was saved.

    Ids of the stock vocabulary never change. A tokenizer without a pad token, or whose pad token is its end token,
    gets ``<|pad|>`` after its last id (GPT-2: 50257). What is appended to a text is as in the source: ``</s>`` for T5,
    nothing for GPT-2.

    Raises :class:`~ntl.config.UserError` for an unknown kind, a file that is missing or broken, an unreachable hub.
    """
    check_kind(kind)
    folder = Path(source).expanduser()
    if folder.is_dir():
        return assemble(read_stock(folder), kind, str(source), **options)
    if folder.exists():
        raise UserError(f"{folder} is a file: give the folder that holds the tokenizer's files")
    if not _HUB_ID.fullmatch(str(source)):
        raise UserError(f"tokenizer {str(source)!r} is neither a folder nor a hub id owner/name")
    return assemble(read_stock(cached_or_downloaded(str(source))), kind, str(source), **options)


def assemble(stock: PreTrainedTokenizerFast, kind: str, source: str, **options: Any) -> PreTrainedTokenizerFast:
    """A new tokenizer with the backend of the stock one, whose own class would rebuild the pre-tokenizer on reload."""
    chosen = check_kind(kind)
    state = backend_state(stock)
    state["pre_tokenizer"] = chosen.pre_tokenizer(state["pre_tokenizer"])
    vocab = stock.get_vocab()
    missing = [digit for digit in "0123456789" if digit not in vocab]
    if chosen.needs_digits and missing:
        raise UserError(
            f"tokenizer {source} has no token of its own for {', '.join(missing)}: it cannot be digit-level, "
            "use tokenizer=default"
        )
    end = stock.eos_token or _first_known(vocab, ("</s>", "<|endoftext|>"))
    if end is None:
        raise UserError(f"tokenizer {source} names no end token: set eos_token in its tokenizer_config.json")
    pad = stock.pad_token or _first_known(vocab, ("<pad>", PAD_TOKEN))
    if pad is None or pad == end:
        pad = PAD_TOKEN
    made_by = resolve_name(chosen.tokenizer_class)
    roles = {"bos_token": stock.bos_token, "eos_token": end, "unk_token": _unknown_of(state["model"]), "pad_token": pad}
    roles |= getattr(made_by, "ROLES", {})
    named = {str(token) for token in roles.values()}
    saved = {name: stock.init_kwargs[name] for name in chosen.options if name in stock.init_kwargs}
    settings = saved | {name: value for name, value in options.items() if name in chosen.options}
    backend = Tokenizer.from_str(json.dumps(state))
    if chosen.writes_numbers:
        backend.add_tokens([AddedToken(token, normalized=False) for token in made_by.added_tokens(**settings)])
    if chosen.needs_digits:
        _check_digits(backend, source)
    return made_by(
        tokenizer_object=backend,
        extra_special_tokens=[token for token in stock.all_special_tokens if token not in named],
        # True would remove the space before "." and "'s" in decode, so that text would not round-trip.
        clean_up_tokenization_spaces=False,
        chat_template=stock.chat_template,
        **{role: token for role, token in roles.items() if token is not None},
        **settings,
    )


def add_mask_token(tokenizer: Any) -> Any:
    """Give a tokenizer without a mask token ``<|mask|>``, after its last id; in place."""
    if tokenizer.mask_token is None:
        tokenizer.add_special_tokens({"mask_token": MASK_TOKEN})
    return tokenizer


def _check_digits(backend: Tokenizer, source: str) -> None:
    """UserError where digits are still not separate: numbers as added tokens, marks on digits, spaces between them."""
    added = [token.content.strip() for token in backend.get_added_tokens_decoder().values() if not token.special]
    for number in ("0123456789", "-15.67", *filter(_NUMBER.fullmatch, added)):
        encoding = backend.encode(number, add_special_tokens=False)
        digits = [token for token in encoding.tokens if re.search("[0-9]", token)]
        written = backend.decode(encoding.ids)
        if "".join(digits) != re.sub("[^0-9]", "", number) or max(map(len, digits)) > 1 or " " in written.strip():
            raise UserError(
                f"tokenizer {source}: its {type(backend.model).__name__} model writes {number} as "
                f"{' '.join(encoding.tokens)} and reads that as {written.strip()!r}, so it cannot be digit-level; "
                "use tokenizer=default, or another tokenizer of kind BPE or unigram"
            )


def _first_known(vocab: dict[str, int], candidates: tuple[str, ...]) -> str | None:
    return next((token for token in candidates if token in vocab), None)


def _unknown_of(model: dict) -> str | None:
    if model["type"] == "Unigram":
        return None if model["unk_id"] is None else model["vocab"][model["unk_id"]][0]
    return model.get("unk_token")


def backend_state(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """The content of tokenizer.json, without the padding and truncation of the last call."""
    return json.loads(tokenizer.backend_tokenizer.to_str()) | {"padding": None, "truncation": None}


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerFast) -> str:
    """sha256 (hex) of the canonical tokenizer.json: equal for the same behaviour, wherever it was loaded from."""
    text = json.dumps(backend_state(tokenizer), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
