"""A data set in figures: rows, numbers, lengths, repetitions, and overlaps of its splits."""

import json
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ntl.numbers import parse_number

if TYPE_CHECKING:
    from ntl.data.dataset import TextDataset
    from ntl.data.prepared import Prepared
    from ntl.data.store import Rows

SAMPLES = 3
SAMPLE_CHARACTERS = 160
# Tokens are counted in at most this many rows of a split, evenly spaced; everything else in all rows.
TOKEN_ROWS = 100_000
DIGITS = "0123456789"
PARTS = ("question", "answer")


@dataclass(frozen=True)
class Lengths:
    p50: int
    p95: int
    max: int

    @classmethod
    def of(cls, values: "np.ndarray[Any, Any]") -> "Lengths":
        """Of a non-empty array; percentiles are values that occur."""
        return cls(*(int(np.percentile(values, share, method="inverted_cdf")) for share in (50, 95, 100)))

    def __str__(self) -> str:
        return f"{self.p50:,} / {self.p95:,} / {self.max:,}"


@dataclass(frozen=True)
class SplitCard:
    """Figures of one split. ``numeric``: share of answers whose scored part is one number.

    ``digits``: mean number of digits per answer. ``lengths``: "question characters" and the like -> Lengths.
    ``truncated``: share of questions above ``max_length`` tokens, None without a tokenizer. ``repeated_...``: rows
    whose question, or whose question and answer, occur in an earlier row. ``shared``: other split -> rows whose
    question occurs in it, too.
    """

    rows: int
    numeric: float
    digits: float
    lengths: dict[str, Lengths]
    truncated: float | None
    repeated_questions: int
    repeated_examples: int
    shared: dict[str, int]


@dataclass(frozen=True)
class Card:
    """A data set in figures; ``samples`` are (question, answer) of the first split, escaped and shortened."""

    name: str
    origin: dict[str, Any]
    splits: dict[str, SplitCard]
    missing: dict[str, str]
    publishable: bool
    tokenizer: str = ""
    max_length: int = 0
    samples: list[tuple[str, str]] = field(default_factory=list)


def describe(prepared: "Prepared", *, tokenizer: Any = None, tokenizer_name: str = "", max_length: int = 0) -> Card:
    """The card of a prepared data set. Lengths in tokens count the end token; without a tokenizer there are none."""
    dataset, manifest = prepared.dataset, prepared.manifest
    parts = {split: prepared.rows(split) for split in dataset.splits if split in manifest["splits"]}
    counted = {split: _Counts(dataset, rows) for split, rows in parts.items()}
    origin = dataset.origin
    first = next(iter(parts.values()))
    return Card(
        name=dataset.name,
        origin={"home": origin.home, "licence": origin.licence, "cite": origin.cite} if origin else {},
        splits={
            split: _card(split, counted, _tokens(rows, tokenizer), max_length) for split, rows in parts.items() if rows
        },
        missing=manifest.get("missing", {}),
        publishable=dataset.publishable,
        tokenizer=tokenizer_name,
        max_length=max_length,
        samples=[(escaped(row["question"]), escaped(row["answer"])) for row in first[:SAMPLES]],
    )


class _Counts:
    """One pass over the rows of a split, which keeps a few bytes of each."""

    def __init__(self, dataset: "TextDataset", rows: "Rows") -> None:
        self.rows, self.numeric, self.digits = len(rows), 0, 0
        lengths = {f"{part} {unit}": array("i") for part in PARTS for unit in ("characters", "words")}
        # Hashes, eight bytes each: millions of questions fit into memory.
        questions, examples = array("q"), array("q")
        for row in rows:
            question, answer = row["question"], row["answer"]
            self.numeric += parse_number(dataset.scored(answer)) is not None
            self.digits += sum(map(answer.count, DIGITS))
            # A document has no question, and is known by its text.
            questions.append(hash(question or answer))
            examples.append(hash((question, answer)))
            for part, text in zip(PARTS, (question, answer), strict=True):
                lengths[f"{part} characters"].append(len(text))
                lengths[f"{part} words"].append(len(text.split()))
        self.lengths = {name: np.asarray(values) for name, values in lengths.items()}
        self.questions, self.examples = np.asarray(questions), np.asarray(examples)


def _card(
    split: str, counted: Mapping[str, _Counts], tokens: dict[str, np.ndarray] | None, max_length: int
) -> SplitCard:
    counts = counted[split]
    lengths = {name: Lengths.of(values) for name, values in {**counts.lengths, **(tokens or {})}.items()}
    return SplitCard(
        rows=counts.rows,
        numeric=counts.numeric / counts.rows,
        digits=counts.digits / counts.rows,
        lengths={name: lengths[name] for part in PARTS for name in lengths if name.startswith(part)},
        truncated=float(np.mean(tokens["question tokens"] > max_length)) if tokens else None,
        repeated_questions=counts.rows - len(np.unique(counts.questions)),
        repeated_examples=counts.rows - len(np.unique(counts.examples)),
        shared={
            other: int(np.isin(counts.questions, theirs.questions).sum())
            for other, theirs in counted.items()
            if other != split
        },
    )


def _tokens(rows: "Rows", tokenizer: Any) -> dict[str, np.ndarray] | None:
    if tokenizer is None:
        return None
    counts = {part: array("i") for part in PARTS}
    step = max(1, -(-len(rows) // TOKEN_ROWS))
    for start in range(0, len(rows), 1000 * step):
        chunk = rows[start : start + 1000 * step : step]
        texts = {"question": [row["question"] for row in chunk], "answer": [row["answer"] for row in chunk]}
        for part in PARTS:
            ids = tokenizer(texts[part], add_special_tokens=False)["input_ids"]
            counts[part].extend(len(row) + 1 for row in ids)
    return {f"{part} tokens": np.asarray(values) for part, values in counts.items()}


def escaped(text: str) -> str:
    whole = json.dumps(text)[1:-1]
    return whole if len(whole) <= SAMPLE_CHARACTERS else f"{whole[: SAMPLE_CHARACTERS - 3]}..."


def table(card: Card) -> list[list[str]]:
    """Rows of cells: a heading of split names, then a line for every figure."""
    splits = card.splits

    def line(name: str, cell: Any) -> list[str]:
        return [name, *(cell(split) for split in splits.values())]

    lines = [
        ["", *splits],
        line("rows", lambda split: f"{split.rows:,}"),
        line("numeric targets", lambda split: f"{split.numeric:.1%}"),
        line("digits per answer, mean", lambda split: f"{split.digits:.2f}"),
    ]
    for name in next(iter(splits.values())).lengths:
        lines.append(line(f"{name}, p50 / p95 / max", lambda split, name=name: str(split.lengths[name])))
    if card.tokenizer:
        lines.append(line(f"questions above {card.max_length} tokens", lambda split: f"{split.truncated:.1%}"))
    lines.append(line("repeated questions", lambda split: f"{split.repeated_questions:,}"))
    lines.append(line("repeated examples", lambda split: f"{split.repeated_examples:,}"))
    for other in splits:
        cells = [f"{split.shared[other]:,}" if other in split.shared else "" for split in splits.values()]
        lines.append([f"questions also in {other}", *cells])
    return lines


def markdown(card: Card) -> str:
    """The card as Markdown; without samples where the licence forbids redistribution."""
    head, *body = table(card)
    lines = [f"## {card.name}", ""]
    lines += [f"- {key}: {value}" for key, value in card.origin.items()]
    lines += [f"- tokens: {card.tokenizer}"] if card.tokenizer else []
    lines += [f"- {split}: {why}" for split, why in card.missing.items()] if card.publishable else []
    lines += ["", f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    lines += [f"| {' | '.join(row)} |" for row in body]
    if card.publishable:
        lines.append("")
        for question, answer in card.samples:
            quoted = " → ".join(f"`{text.replace('`', chr(39))}`" for text in (question, answer))
            lines.append(f"- {quoted}")
    return "\n".join(line for number, line in enumerate(lines) if line or lines[number - 1]) + "\n"


def show(card: Card) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    head, *body = table(card)
    drawn = Table(title=card.name, title_justify="left")
    for column, name in enumerate(head):
        drawn.add_column(name, justify="right" if column else "left", overflow="fold")
    for row in body:
        drawn.add_row(*map(escape, row))
    console.print(drawn)
    notes = [f"{key}: {value}" for key, value in card.origin.items()]
    notes += [f"tokens: {card.tokenizer}"] if card.tokenizer else ["tokens: with tokenizer.path=FOLDER"]
    notes += [f"{split}: {why}" for split, why in card.missing.items()]
    notes += [f"{number}. {question}  →  {answer}" for number, (question, answer) in enumerate(card.samples, start=1)]
    for note in notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)
