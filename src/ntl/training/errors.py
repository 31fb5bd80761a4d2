"""`scripts/errors.py`: the worst answers of a run with their questions, and how many mistakes are of each kind."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ntl.config import build
from ntl.config.cli import Parser
from ntl.config.composition import read_config
from ntl.data.prepared import Prepared
from ntl.evaluation.evaluate import PREDICTIONS, find_predictions, plain
from ntl.evaluation.mistakes import NUMBER_KINDS, TEXT_KINDS, Mistake, mistakes
from ntl.evaluation.scores import sample_key
from ntl.results.load import RECORD
from ntl.results.record import read_record
from ntl.system.errors import UserError

PUBLISHED = 10  # answers of each split and sample in a published record
LONGEST = 300  # characters of a text in it


def data_of(folder: Path) -> Prepared:
    """The data of a run, prepared. UserError: it is not here, or has changed since the run was trained on it."""
    config = read_config(folder)
    prepared = Prepared(build(config.dataset), config.data_dir)
    record = folder / RECORD
    files = read_record(record).data.get("files") if record.is_file() else None
    if isinstance(files, dict) and (changes := prepared.changes_since(files)):
        raise UserError(f"the data has changed since the run was trained: {changes}")
    prepared.prepare(lambda line: None, download=False)
    return prepared


def with_questions(prepared: Prepared, worst: Sequence[Mistake]) -> list[dict[str, Any]]:
    """Each mistake with its question. UserError for an answer to a question that the data does not have."""
    wanted = {(each.row["split"], each.row["id"]) for each in worst}
    known = {
        (split, row["id"]): row["question"]
        for split in {split for split, _ in wanted}
        for row in prepared.rows(split)
        if (split, row["id"]) in wanted
    }
    if lost := sorted(wanted - known.keys()):
        raise UserError(f"{lost[0][1]} is not a question of {lost[0][0]}")
    return [
        {
            "split": each.row["split"],
            "id": each.row["id"],
            "question": known[each.row["split"], each.row["id"]],
            "answer": each.row["answer"],
            "prediction": each.row["prediction"],
            "error": plain(each.error),
            "kind": each.kind,
        }
        for each in worst
    ]


def publishable(folder: Path) -> tuple[dict[str, Any], str]:
    """The fields ``PUBLISHED_ALONE`` of the record of a run; less those that cannot be published, and why."""
    fields: dict[str, Any] = {}
    try:
        counts, found, is_number = mistakes(find_predictions(str(folder), folder.parent))
        wrong = {split: [each for each in found if each.row["split"] == split] for split in counts}
        fields["mistakes"] = {
            split: _counted(part, NUMBER_KINDS if is_number else TEXT_KINDS) for split, part in wrong.items()
        }
        config = read_config(folder)
        if not build(config.dataset).publishable:
            return fields, f"the licence of {config.dataset.name} does not permit it"
        prepared = data_of(folder)
        drawn = {split: sorted(part, key=lambda each: sample_key(each.row["id"])) for split, part in wrong.items()}
        samples = {"worst": wrong, "typical": drawn}
        chosen = [each for parts in samples.values() for part in parts.values() for each in part[:PUBLISHED]]
        lines = iter(with_questions(prepared, chosen))  # at once: it reads the data
        for name, parts in samples.items():
            fields[name] = {split: [_published(next(lines)) for _ in part[:PUBLISHED]] for split, part in parts.items()}
    except UserError as error:
        return fields, str(error)
    return fields, ""


def _published(line: dict[str, Any]) -> dict[str, Any]:
    return {key: _short(value) for key, value in line.items() if key not in ("split", "id")}


def _short(value: Any) -> Any:
    return f"{value[: LONGEST - 1]}…" if isinstance(value, str) and len(value) > LONGEST else value


def main(argv: Sequence[str] | None = None) -> int:
    """Print the worst answers, and the kinds of all wrong ones. UserError for bad input."""
    parser = Parser(
        description="Print the worst answers of a run with their questions, and how many are of each kind. A wrong "
        "number is as bad as its distance from the answer, a text as 1 - ROUGE-1.",
    )
    given = f"run folder, the id of a run under --outputs, or a file such as {PREDICTIONS} in the folder of a run"
    parser.add_argument("run", metavar="RUN", help=given)
    parser.add_argument("--n", type=int, default=20, help="how many of each split (default: 20)")
    parser.add_argument("--split", default="", help="this test split alone")
    kinds = ", ".join({**NUMBER_KINDS, **TEXT_KINDS})
    parser.add_argument("--kind", default="", help=f"mistakes of this kind alone: {kinds}")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="folder of runs (default: outputs)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    chosen = parser.parse_args(argv)
    path = find_predictions(chosen.run, chosen.outputs)
    counts, found, is_number = mistakes(path)
    splits = _splits(chosen.split, counts, path)
    known = NUMBER_KINDS if is_number else TEXT_KINDS
    if chosen.kind and chosen.kind not in known:
        raise UserError(f"--kind {chosen.kind}: choose one of {', '.join(known)}.")
    if chosen.n < 0:
        raise UserError(f"--n {chosen.n}: must be 0 or more.")
    wrong = {split: [each for each in found if each.row["split"] == split] for split in splits}
    fits = {split: [each for each in part if chosen.kind in ("", each.kind)] for split, part in wrong.items()}
    worst = [each for part in fits.values() for each in part[: chosen.n]]
    lines = _lines(path, worst)
    by_kind = {split: _counted(part, known) for split, part in wrong.items()}
    if chosen.json:
        print(json.dumps({"answers": {s: counts[s] for s in splits}, "kinds": by_kind, "worst": lines}, indent=1))
        return 0
    _show(lines, {split: counts[split] for split in splits}, by_kind, known, is_number)
    return 0


def _splits(split: str, counts: dict[str, int], path: Path) -> list[str]:
    if split and split not in counts:
        raise UserError(f"--split {split}: {path} has no answers of it; choose from {', '.join(counts)}.")
    return [split] if split else list(counts)


def _counted(part: Sequence[Mistake], known: dict[str, str]) -> dict[str, int]:
    counted = Counter(each.kind for each in part)
    return {kind: counted[kind] for kind in known if counted[kind]}


def _lines(path: Path, worst: Sequence[Mistake]) -> list[dict[str, Any]]:
    try:
        return with_questions(data_of(path.parent), worst)
    except UserError as error:
        raise UserError(f"{path}: no questions for these answers: {error}") from error


def _show(
    lines: Sequence[dict[str, Any]],
    counts: dict[str, int],
    by_kind: dict[str, dict[str, int]],
    known: dict[str, str],
    is_number: bool,
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for split, count in counts.items():
        total = sum(by_kind[split].values())
        console.print(Text(f"{split}: {total:,} of {count:,} answers are wrong"))
        kinds = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for name in ("kind", "answers", "of all", ""):
            kinds.add_column(name, justify="right" if name in ("answers", "of all") else "left")
        for kind, number in by_kind[split].items():
            kinds.add_row(kind, f"{number:,}", f"{number / count:.1%}", known[kind])
        if total:
            console.print(kinds)
        shown = [line for line in lines if line["split"] == split]
        if not shown:
            continue
        table = Table(title="the worst", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for name in ("question", "right", "answer", "error" if is_number else "1 - ROUGE-1", "kind"):
            table.add_column(name, overflow="fold", justify="right" if "rro" in name or "ROUGE" in name else "left")
        for line in shown:
            answer = line["prediction"] or "(none)"
            table.add_row(*map(Text, (line["question"], line["answer"], answer, _number(line["error"]), line["kind"])))
        console.print(table)


def _number(error: float | str | None) -> str:
    return "-" if error is None else f"{error:.6g}" if isinstance(error, float) and math.isfinite(error) else str(error)
