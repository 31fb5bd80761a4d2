"""A small tokenizer trained on the text at hand, for models that have no published files."""

import io
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from ntl.system.errors import UserError
from ntl.system.hub import SENTENCEPIECE
from ntl.tokenizers.load import assemble, number_class, read_sentencepiece

_ALWAYS = "0123456789-."
_WORD_START = "\u2581"
# sentencepiece marks unknown text with this character and drops every line that contains it.
_RESERVED = "\u2585"
_MAX_WORDS = 50_000
_MAX_WORD_LENGTH = 64
_MAX_PIECE_LENGTH = 16
_MAX_SEEDS = 200_000
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_FRAGMENT = re.compile(rf"{_WORD_START}?(?:[^\W\d_]+|\d+|[^\w{_WORD_START}]+|_+)")


def train_tokenizer(
    texts: Iterable[str], folder: str | Path, *, kind: str = "digit", vocab_size: int = 256
) -> PreTrainedTokenizerFast:
    """Train a sentencepiece unigram model and save it as a tokenizer in ``folder``, which is replaced.

    The ids begin as T5's do, ``<pad>`` 0, ``</s>`` 1, ``<unk>`` 2, without sentinels; ``</s>`` is appended to every
    text. Every character of the texts (after T5's NFKC normalization and folding of white space) and ``0123456789-.``
    have a piece, so nothing becomes ``<unk>``. ``vocab_size`` is an upper bound, raised where the characters alone need
    more. ``kind="digit"``: a piece with a digit is that digit alone; ``"default"``: pieces of several digits are
    allowed; a kind that writes numbers in tokens of its own is trained on the text between them.

    The same words with the same counts give the same bytes, in any order. UserError for texts without a character.
    """
    if number_class(kind):
        texts = (_NUMBER.sub(" ", text) for text in texts)
    counts = _count_words(texts)
    if not counts:
        raise UserError("no text to train a tokenizer on: the texts are empty or white space")
    target = Path(folder).absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.part-", dir=target.parent) as folder:
        work = Path(folder)
        (work / SENTENCEPIECE).write_bytes(_train(counts, work, kind, vocab_size))
        tokenizer = assemble(read_sentencepiece(work, sentinels=0), kind)
        tokenizer.save_pretrained(str(work / "saved"))
        pairs = [(path, target / path.name) for path in (work / "saved").iterdir()]
        if not all(there.is_file() and there.read_bytes() == path.read_bytes() for path, there in pairs):
            if target.exists():
                os.replace(target, work / "old")
            os.replace(work / "saved", target)
    return tokenizer


def _count_words(texts: Iterable[str]) -> Counter[str]:
    from sentencepiece import SentencePieceNormalizer

    normalizer = SentencePieceNormalizer(rule_name="nmt_nfkc")
    counts: Counter[str] = Counter()
    for text in texts:
        clean = normalizer.normalize(text.replace("\0", " ")).replace(_WORD_START, " ").replace(_RESERVED, " ")
        counts.update(clean.split())
    return counts


def _train(counts: Counter[str], work: Path, kind: str, vocab_size: int) -> bytes:
    from sentencepiece import SentencePieceTrainer

    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MAX_WORDS]
    words = [(word[:_MAX_WORD_LENGTH], count) for word, count in ranked]
    alphabet = sorted(set(_ALWAYS).union(*counts))
    corpus, seeds = work / "words.tsv", work / "seeds.tsv"
    for path, rows in ((corpus, words), (seeds, _seed_pieces(words, kind))):
        path.write_text("".join(f"{text}\t{count}\n" for text, count in rows), encoding="utf-8", newline="\n")
    model = io.BytesIO()
    SentencePieceTrainer.Train(
        input=[str(corpus)],
        input_format="tsv",
        model_writer=model,
        model_type="unigram",
        vocab_size=max(vocab_size, len(alphabet) + 4),
        hard_vocab_limit=False,
        seed_sentencepieces_file=str(seeds),
        character_coverage=1.0,
        required_chars="".join(alphabet),
        split_digits=kind == "digit",
        byte_fallback=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        # The order of float additions, and with it the last bits of the scores, must not depend on the machine.
        num_threads=1,
        input_sentence_size=0,
        shuffle_input_sentence=False,
        minloglevel=2,
    )
    return model.getvalue()


def _seed_pieces(words: list[tuple[str, int]], kind: str) -> list[tuple[str, int]]:
    """Candidate pieces with their counts: the substrings of the words, whole words first among them.

    sentencepiece's own seeds are substrings that two different words share. In text from a few templates a word like
    "times" shares none and would be split into letters.
    """
    counts: Counter[str] = Counter()
    for word, count in words:
        for fragment in _FRAGMENT.findall(_WORD_START + word):
            if kind == "digit" and any(char.isdigit() for char in fragment):
                continue
            for start in range(len(fragment)):
                for end in range(start + 2, min(len(fragment), start + _MAX_PIECE_LENGTH) + 1):
                    counts[fragment[start:end]] += count
    weighted = [(piece, count * len(piece)) for piece, count in counts.items() if count > 1]
    return sorted(weighted, key=lambda item: (-item[1], item[0]))[:_MAX_SEEDS]
