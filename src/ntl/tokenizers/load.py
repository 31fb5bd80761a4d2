"""From a folder or a hub id to a tokenizer of a given kind, its fingerprint and its number tokens."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
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
# Texts whose tokens are counted.
_MEASURED = 256
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
    """The segmentation without the step that :func:`isolate_digits` adds."""
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


def load_tokenizer(
    source: str | Path, kind: str = "digit", *, gguf_file: str = "", **options: Any
) -> PreTrainedTokenizerFast:
    """A tokenizer as it is given, with an end token, and changed only as ``kind`` asks.

    ``source``: a local folder (a saved tokenizer, or only spiece.model, or only vocab.json and merges.txt, or with a
    ``gguf_file``) or a hub id ``owner/name``. ``kind``: ``"default"``, nothing is changed. ``"digit"``: each ASCII
    digit is a token of its own, also beside a word-start mark; a tokenizer of which that is true is not changed.
    ``"rt"`` and ``"xval"`` write numbers in tokens of their own (``ntl.tokenizers.rt``, ``ntl.tokenizers.xval``).
    ``options``: ``max_place`` of ``"rt"``, the highest decimal place of its tokens, and ``paper_compat`` of ``"xval"``,
    to read numbers as the original does; by default those with which the folder was saved.

    Ids of the vocabulary never change. ``"default"`` and ``"digit"`` add no token: there may be no pad token, or it may
    be the end token (``ntl.models.special.pad_id``). What is put around a text is as in the source: ``</s>`` behind it
    for T5, nothing for GPT-2. So are chat template, sides of padding and truncation, and longest text. A tokenizer
    whose digits were split by ``"digit"`` and that is saved stays so, whatever ``kind`` it is loaded with.

    Raises :class:`~ntl.config.UserError` for an unknown kind, a file that is missing or broken, an unreachable hub.
    """
    chosen = check_kind(kind)
    folder = Path(source).expanduser()
    if not folder.is_dir():
        if folder.exists():
            raise UserError(f"{folder} is a file: give the folder that holds the tokenizer's files")
        if not _HUB_ID.fullmatch(str(source)):
            raise UserError(f"tokenizer {str(source)!r} is neither a folder nor a hub id owner/name")
        folder = cached_or_downloaded(str(source))
    given = read_stock(folder, gguf_file)
    if chosen.writes_numbers:
        return assemble(given, kind, str(source), **options)
    if given.eos_token is None:
        given.eos_token = _end_of(given, str(source))
    return split_digits(given, str(source)) if chosen.needs_digits and not has_single_digits(given) else given


def has_single_digits(tokenizer: PreTrainedTokenizerFast) -> bool:
    """Whether each digit of a number is a token of its own, wherever the number stands."""
    backend = Tokenizer.from_str(json.dumps(backend_state(tokenizer)))
    texts = ("0123456789", "-15.67", " 12", "x 120", "007", *_added_numbers(backend))
    tokens = {text: backend.encode(text, add_special_tokens=False).tokens for text in texts}
    return all(_digit_tokens(tokens[text]) == re.findall("[0-9]", text) for text in texts)


def split_digits(given: PreTrainedTokenizerFast, source: str) -> PreTrainedTokenizerFast:
    """A copy that writes each digit as a token of its own, and is the same in all else.

    Its class is not that of the given one, which would undo the change when it is loaded again.
    """
    _check_has_digits(given, source)
    with TemporaryDirectory() as folder:
        given.save_pretrained(folder)
        for name, key, change in (
            ("tokenizer.json", "pre_tokenizer", isolate_digits),
            ("tokenizer_config.json", "tokenizer_class", lambda _: PreTrainedTokenizerFast.__name__),
        ):
            path = Path(folder, name)
            content = json.loads(path.read_text(encoding="utf-8"))
            content[key] = change(content.get(key))
            path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        changed = read_stock(Path(folder))
    changed.name_or_path = given.name_or_path
    _check_digits(changed.backend_tokenizer, source)
    return changed


def cost_of_digits(tokenizer: Any, source: str, texts: Callable[[], Iterable[str]], gguf_file: str = "") -> str:
    """One line on what it costs that ``tokenizer``, loaded from ``source``, has its digits split; "" if they were.

    ``texts``: returns what the model is trained on, of which the beginning is measured; called only for a line.
    """
    if DIGIT_SPLIT not in steps_of(backend_state(tokenizer)["pre_tokenizer"]):
        return ""
    given = load_tokenizer(source, "default", gguf_file=gguf_file)
    if tokenizer_fingerprint(given) == tokenizer_fingerprint(tokenizer):
        return ""
    before, now = (
        " ".join(f"`{token}`" for token in each.tokenize("120", add_special_tokens=False))
        for each in (given, tokenizer)
    )
    sample = list(islice(texts(), _MEASURED))
    tokens = [sum(map(len, each(sample, add_special_tokens=False)["input_ids"])) for each in (given, tokenizer)]
    return (
        f"tokenizer=digit: {source} writes 120 as {before}; here it is {now}, which its weights have not seen, and the "
        f"training text has {tokens[1] / max(tokens[0], 1) - 1:.0%} more tokens. tokenizer=default leaves it as it is."
    )


def assemble(stock: PreTrainedTokenizerFast, kind: str, source: str, **options: Any) -> PreTrainedTokenizerFast:
    """A new tokenizer of this kind with the backend of the stock one and a pad token that is not its end token."""
    chosen = check_kind(kind)
    state = backend_state(stock)
    state["pre_tokenizer"] = chosen.pre_tokenizer(state["pre_tokenizer"])
    vocab = stock.get_vocab()
    if chosen.needs_digits:
        _check_has_digits(stock, source)
    end = stock.eos_token or _end_of(stock, source)
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
        **{role: token for role, token in roles.items() if token is not None},
        **settings,
    )


def add_mask_token(tokenizer: Any) -> Any:
    """Give a tokenizer without a mask token ``<|mask|>``, after its last id; in place."""
    if tokenizer.mask_token is None:
        tokenizer.add_special_tokens({"mask_token": MASK_TOKEN})
    return tokenizer


def _end_of(tokenizer: PreTrainedTokenizerFast, source: str) -> str:
    end = _first_known(tokenizer.get_vocab(), ("</s>", "<|endoftext|>"))
    if end is None:
        raise UserError(f"tokenizer {source} names no end token: set eos_token in its tokenizer_config.json")
    return end


def _check_has_digits(tokenizer: PreTrainedTokenizerFast, source: str) -> None:
    vocab = tokenizer.get_vocab()
    if missing := [digit for digit in "0123456789" if digit not in vocab]:
        raise UserError(
            f"tokenizer {source} has no token of its own for {', '.join(missing)}: it cannot be digit-level, "
            "use tokenizer=default"
        )


def _added_numbers(backend: Tokenizer) -> list[str]:
    added = [token.content.strip() for token in backend.get_added_tokens_decoder().values() if not token.special]
    return list(filter(_NUMBER.fullmatch, added))


def _digit_tokens(tokens: Iterable[str]) -> list[str]:
    return [token for token in tokens if re.search("[0-9]", token)]


def _check_digits(backend: Tokenizer, source: str) -> None:
    """UserError where digits are still not separate: numbers as added tokens, marks on digits, spaces between them."""
    for number in ("0123456789", "-15.67", *_added_numbers(backend)):
        encoding = backend.encode(number, add_special_tokens=False)
        digits = _digit_tokens(encoding.tokens)
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
