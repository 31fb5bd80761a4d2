"""Examples to token ids, once per data set and tokenizer, in an Arrow file that `datasets` maps."""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from tokenizers import Tokenizer
from torch.utils.data import Subset

from ntl.data.chat import Chat, Texts
from ntl.data.collate import EncodedExample
from ntl.data.weights import TokenTexts, matched, of_parts
from ntl.numbers.text import parse_number
from ntl.system.errors import UserError
from ntl.system.files import make_once, sync
from ntl.system.messages import logger
from ntl.tokenizers.load import text_backend, tokenizer_fingerprint

FORMAT = 9
IDS = "ids.arrow"
END = b"\xff\xff\xff\xff\0\0\0\0"  # of an Arrow file that is whole
WORD_STARTS = ("\u2581", "\u0120")  # sentencepiece's, and a byte-level space
CHUNK = 5_000  # rows encoded at a time
REMEDY = "take another model"
# What is counted, what is said of it, and what to do.
LOST = (
    ("truncated", "are truncated", "raise trainer.max_input_length to keep their text"),
    ("unknown", "have unknown tokens", "choose another tokenizer to represent them"),
)


class EncodedDataset:
    """Token ids of questions and answers, read from disk on demand.

    ``dataset[i]`` is ``{"question_ids": (S,), "answer_ids": (T,)}``, both uint16 where the vocabulary allows and int32
    otherwise, the answer with its end token; where tokens have values (``Encoder``), also ``question_values`` (S,) and
    ``answer_values`` (T,) float64, and where they have weights ``answer_weights``, (T,) or (T, 2) float32. Packed
    examples have ``documents``: the number of the first one, and how many of the labels belong to each from there on.
    ``about`` counts truncated questions and examples with unknown tokens, and has the longest question, answer and
    example in tokens. ValueError or OSError where the file is missing or was cut.
    """

    def __init__(self, folder: Path) -> None:
        import datasets
        from pyarrow import compute

        arrow: Any = compute
        self.folder = folder
        with open(folder / IDS, "rb") as stream:
            stream.seek(-len(END), 2)
            if stream.read() != END:
                raise ValueError(f"{folder / IDS}: cut off")
        self.data: Any = datasets.Dataset.from_file(str(folder / IDS)).with_format("arrow")
        table, features = self.data.data, self.data.features
        self.arrays = [name for name, feature in features.items() if isinstance(feature, datasets.List)]
        self.about: dict[str, int] = {name: arrow.sum(table[name]).as_py() for name in features.keys() - {*self.arrays}}
        lengths = {name: arrow.list_value_length(table[f"{name}_ids"]).to_numpy() for name in ("question", "answer")}
        lengths["example"] = self._lengths = lengths["question"] + lengths["answer"]
        self.about |= {f"longest_{name}": int(column.max()) for name, column in lengths.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        # A data worker that is not forked opens the file itself.
        return type(self), (self.folder,)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, np.ndarray]]:
        """Several examples, as a DataLoader asks for them."""
        # In numpy's format, which makes an array of each cell by itself, a batch takes ten times as long.
        table, columns = self.data[indices], dict[str, list[np.ndarray]]()
        for name in self.arrays:
            column = table[name].combine_chunks()
            cells = column.flatten()
            is_nested = hasattr(cells, "value_lengths")
            flat = cells.flatten().to_numpy().reshape(len(cells), -1) if is_nested else cells.to_numpy()
            columns[name] = np.split(flat, column.value_lengths().to_numpy().cumsum()[:-1])
        return [dict(zip(columns, example, strict=True)) for example in zip(*columns.values(), strict=True)]

    def last_values(self) -> np.ndarray:
        """The value of each example's last token, which is its answer where ``keep_target`` was set."""
        values = self.data.data["answer_values"].combine_chunks()
        return values.flatten().to_numpy()[values.value_lengths().to_numpy().cumsum() - 1]

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        """Tokens of each example (int32), question and answer together."""
        return self._lengths[indices]

    def first(self, rows: int) -> Subset[dict[str, np.ndarray]]:
        """The first ``rows`` examples, or all when ``rows`` is 0."""
        dataset: Any = self
        return Subset(dataset, range(min(rows, len(self)) if rows else len(self)))


def encode_dataset(
    rows: Callable[[], Sequence[Texts]],
    tokenizer: Any,
    *,
    cache_dir: Path,
    key: str,
    packed: bool = False,
    **settings: Any,
) -> EncodedDataset:
    """Tokenize question and answer of every row, or open what an earlier run tokenized.

    Set TOKENIZERS_PARALLELISM=false to tokenize in one thread.

    Args:
        rows: Returns the rows; called only if they have to be tokenized.
        key: The content of the rows, for example the sha256 of their file. Never a path.
        packed: The answers are documents, which ``Packer`` makes examples of ``max_length`` labels of.
        settings: Those of ``Encoder``.
    """
    encode = Encoder(tokenizer, **settings)
    # The end token is named beside tokenizer.json, which a chat model may share with another.
    decides = [FORMAT, key, packed, tokenizer_fingerprint(tokenizer), tokenizer.eos_token_id, prefix_ids(tokenizer)]
    decides += [encode.decoder_only, encode.max_length, encode.keep_target, encode.weighted, encode.exclude]
    decides += [f"{encode.read.__module__}.{encode.read.__name__}" if encode.read else ""]
    decides += encode.chat.key if encode.chat else []
    folder = cache_dir / hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:16]

    def find() -> EncodedDataset | None:
        try:
            return EncodedDataset(folder) if folder.is_dir() else None
        except (ValueError, OSError):  # damaged: tokenized again
            return None

    def write(new: Path) -> None:
        text = rows()
        if len(text) > CHUNK:
            logger.info(f"tokenizing {len(text):,} examples")
        pack = Packer(encode.max_length, encode.end) if packed else None
        left, schema = iter(text), encode.schema(packed)
        with open(new / IDS, "wb") as stream, pyarrow.ipc.new_stream(stream, schema) as writer:
            for end in range(CHUNK, len(text) + CHUNK, CHUNK):
                examples = encode([*islice(left, CHUNK)])
                if pack:
                    examples = pack(examples, is_last=end >= len(text))
                writer.write_batch(pyarrow.RecordBatch.from_pylist([*examples], schema))
        sync(new / IDS)

    return make_once(folder, find, write, "write token ids to")


def encode_rows(rows: Sequence[Texts], tokenizer: Any, **settings: Any) -> tuple[list[EncodedExample], list[str]]:
    """A few rows, in memory: examples as an ``EncodedDataset`` has them, and lines on text that is lost.

    ``settings`` are as in ``Encoder``.
    """
    encode = Encoder(tokenizer, **settings)
    types, examples = encode.arrays.items(), [*encode(rows)]
    lost = lost_text({name: sum(example[name] for example in examples) for name, *_ in LOST}, len(rows), "texts")
    return [{name: np.array(example[name], dtype) for name, dtype in types} for example in examples], lost


def lost_text(about: Mapping[str, int], total: int, named: str) -> list[str]:
    """A line for each way in which ``total`` examples have lost text, as ``EncodedDataset.about`` counts them."""
    return [f"{about[lost]:,} of {total:,} {named} {what}; {remedy}." for lost, what, remedy in LOST if about[lost]]


def needs_space(tokenizer: Any) -> bool:
    """Whether the tokenizer marks a word start only after a space, so that an answer follows its question after one.

    Byte-level tokenizers and Gemma's do; T5's and Llama 2's mark the start of every text.
    """
    first = [tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).tokens[0] for text in ("0", " 0")]
    return [token.startswith(WORD_STARTS) for token in first] == [False, True]


def prefix_ids(tokenizer: Any) -> list[int]:
    """The special tokens that the tokenizer puts before a text, as Llama's and Gemma's do: none for GPT-2 and T5."""
    backend = tokenizer.backend_tokenizer
    whole, bare = (backend.encode("0", add_special_tokens=special).ids for special in (True, False))
    starts = range(len(whole) - len(bare) + 1)
    return next((whole[:start] for start in starts if whole[start : start + len(bare)] == bare), [])


@dataclass
class Encoder:
    """Rows with ``question`` and ``answer`` to token ids.

    The question begins as a text of this tokenizer does (``prefix_ids``), also where its beginning is cut off, but for
    a chat, which then begins anywhere; the answer goes on behind it and has the end token. A special token in a text is
    text. Where tokens have values, a number token's is its number, and any other token's is 1.

    Args:
        decoder_only: The answer continues the question's text; else each is a text of its own.
        max_length: Longest question in tokens; of a longer one the beginning is cut off, since the question proper
            stands at the end. ``about["truncated"]`` counts them.
        keep_target: The answers are numbers, and the end token of each gets its value.
        chat: The template that questions and answers go through, if any.
        weighted: Rows may have a ``weight``, which their answers' tokens get (``ntl.data.dataset.Example``).
        exclude: A regular expression; the tokens of answers that it matches have weight 0 in the number loss.
            ``about["excluded"]`` counts them, of ``about["numbers"]``.
    """

    tokenizer: Any
    decoder_only: bool
    max_length: int
    keep_target: bool = False
    chat: Chat | None = None
    weighted: bool = False
    exclude: str = ""

    def __post_init__(self) -> None:
        tokenizer, chat = self.tokenizer, self.chat
        self.read = tokenizer.number_reader() if hasattr(tokenizer, "number_reader") else None
        self.number_token = getattr(tokenizer, "number_token_id", None)
        self.end, self.unknown = tokenizer.eos_token_id, tokenizer.unk_token_id
        if chat and self.unknown in (self.end, tokenizer.bos_token_id, chat.end_id):  # which the template writes
            self.unknown = None
        self.prefix = [] if chat else prefix_ids(tokenizer)  # a template writes its own
        self.answer_prefix = " " if self.decoder_only and needs_space(tokenizer) else ""
        self.pattern = re.compile(self.exclude) if self.exclude else None

    @cached_property  # as the next two, not where token ids are on disk: they read the vocabulary
    def backend(self) -> Tokenizer:
        return text_backend(self.tokenizer)

    @cached_property
    def texts(self) -> TokenTexts | None:
        return TokenTexts(self.tokenizer) if self.weighted or self.exclude else None

    @cached_property
    def arrays(self) -> dict[str, str]:
        """What each example has an array of, and its type."""
        ids = "uint16" if max(self.tokenizer.get_vocab().values()) < 2**16 else "int32"
        types = {"question_ids": ids, "answer_ids": ids}
        if self.keep_target or self.number_token is not None:
            types |= {"question_values": "float64", "answer_values": "float64"}
        return types | ({"answer_weights": "float32"} if self.texts else {})

    def schema(self, packed: bool = False) -> pyarrow.Schema:
        """The types of the columns; of packed examples, also of their documents."""
        columns: dict[str, Any] = {
            name: pyarrow.list_(pyarrow.type_for_alias(kind)) for name, kind in self.arrays.items()
        }
        if self.pattern:
            columns["answer_weights"] = pyarrow.list_(columns["answer_weights"])
        columns |= {"documents": pyarrow.list_(pyarrow.int32())} if packed else {}
        counts = ["truncated", "unknown", *(["excluded", "numbers"] if self.pattern else [])]
        return pyarrow.schema({**columns, **dict.fromkeys(counts, pyarrow.int32())})

    def __call__(self, rows: Sequence[Texts]) -> Iterator[dict[str, Any]]:
        """Of each row what ``arrays`` names, and what ``EncodedDataset.about`` counts."""
        question_numbers, answer_numbers = [], []
        if self.chat:
            questions, answers = self.chat.encode(rows)
        else:
            if wrong := next((row for row in rows if row.get("before")), None):
                remedy = "set dataset.format=chat, and take a model whose tokenizer has one"
                raise UserError(f"{_quoted(wrong)} has earlier messages, which need a chat template: {remedy}")
            # The prefix parts an answer from its question; a document has none.
            prefixed = [(self.answer_prefix if row["question"] else "") + row["answer"] for row in rows]
            questions, question_numbers = self._encode([row["question"] for row in rows])
            answers, answer_numbers = self._encode(prefixed)
        for index, (row, question, answer) in enumerate(zip(rows, questions, answers, strict=True)):
            unknown = self.unknown in question or self.unknown in answer
            if not self.decoder_only:
                question.append(self.end)
            if not self.chat:
                answer.append(self.end)
            first = max(len(self.prefix) + len(question) - self.max_length, 0)
            question = self.prefix + question[first:]
            if row["question"] and not question:
                raise UserError(f"{_quoted(row)}: the tokenizer writes this question as no token; leave it out.")
            example: dict[str, Any] = {"question_ids": question, "answer_ids": answer}
            example |= {"truncated": int(first > 0), "unknown": int(unknown)}
            if "answer_values" in self.arrays:
                values = [np.ones(len(question)), np.ones(len(answer))]
                if self.number_token is not None:
                    if self.number_token not in answer:
                        raise UserError(f"{_quoted(row)} has no number, and this model predicts one: {REMEDY}")
                    lost = len(question_numbers[index]) - question.count(self.number_token)
                    numbers = [question_numbers[index][lost:], answer_numbers[index]]
                    for array, ids, parsed in zip(values, (question, answer), numbers, strict=True):
                        array[np.equal(ids, self.number_token)] = parsed  # an error where these are not as many
                if self.keep_target:
                    values[1][-1] = _target(row)
                example |= {"question_values": values[0], "answer_values": values[1]}
            if self.texts:
                example |= self._weights(row, self.texts(answer))
            yield example

    def _weights(self, row: Texts, texts: list[bytes]) -> dict[str, Any]:
        """The weights of an answer's tokens, and the counts of its numbers, and of those that are left out."""
        try:
            weights = of_parts(texts, row["answer"], json.loads(row.get("weight", "1")))
        except ValueError as error:
            raise UserError(f"{_quoted(row)}: {error}.") from error
        if self.pattern is None:
            return {"answer_weights": weights}
        left_out = matched(texts, self.pattern)
        numbers = np.array([re.search(b"[0-9]", text) for text in texts], bool)
        counts = {"excluded": int((numbers & left_out).sum()), "numbers": int(numbers.sum())}
        return {"answer_weights": [*np.stack([weights, weights * ~left_out], axis=-1)], **counts}

    def _encode(self, texts: list[str]) -> tuple[list[list[int]], list[list[float]]]:
        """The ids of each text, and the numbers that its number tokens stand for."""
        numbers: list[list[float]] = [[]] * len(texts)
        if self.read is not None:
            texts, numbers = map(list, zip(*map(self.read, texts), strict=True))
        encodings = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings], numbers


def _target(row: Texts) -> float:
    number = parse_number(row["answer"])
    if number is None or not math.isfinite(number):
        raise UserError(f"{_quoted(row)} is no number: {REMEDY}")
    return float(number)


def _quoted(row: Texts) -> str:
    return f"the answer {row['answer'][:60]!r} of {row['question'][:60]!r}"


class Packer:
    """Documents, encoded without questions, end to end: as examples of ``length`` labels, for language modelling.

    The stream of a split is: end token, document, end token, document, end token, and so on, as for GPT-2. Nothing is
    masked between documents, and the first token of one is predicted from the end token before it. Example i has the
    labels ``answer_ids`` (T,), tokens ``i * length`` up to ``(i + 1) * length`` of the stream, and in ``question_ids``
    (1,) the token before them. T is ``length`` in all examples but the last.
    """

    def __init__(self, length: int, end: int) -> None:
        self.length, self.before, self.documents = length, end, 0
        self.stream = list[tuple[int, int, Any]]()  # tokens, each with the number of its document, and its weight
        self.counts = Counter[str]()

    def __call__(self, examples: Iterable[dict[str, Any]], *, is_last: bool) -> Iterator[dict[str, Any]]:
        """The examples that are full with these documents, and with the last ones the rest."""
        for example in examples:
            # Before a document is what a text begins with, such as Llama's first token.
            start, labels = example.pop("question_ids"), example.pop("answer_ids")
            weights = example.pop("answer_weights", [None] * len(labels))
            for token, weight in zip([*start, *labels], [*[weights[0]] * len(start), *weights], strict=True):
                self.stream.append((token, self.documents, weight))
            self.counts.update(example)
            self.documents += 1
            yield from self._cut(len(self.stream) // self.length * self.length)
        if is_last:
            yield from self._cut(len(self.stream))

    def _cut(self, end: int) -> Iterator[dict[str, Any]]:
        for start in range(0, end, self.length):
            labels, owners, weights = zip(*self.stream[start : min(start + self.length, end)], strict=True)
            documents = [owners[0], *np.bincount(np.array(owners) - owners[0])]
            example = {"question_ids": [self.before], "answer_ids": labels, "answer_weights": weights}
            yield {**example, "documents": documents, **self.counts}
            self.before = labels[-1]
            self.counts.clear()
        del self.stream[:end]
