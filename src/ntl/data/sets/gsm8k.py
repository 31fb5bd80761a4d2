"""GSM8K: grade-school word problems with worked answers (Cobbe et al., 2021; paper, Table 9).

Only the official train.jsonl and test.jsonl exist; the paper's authors shuffled train once and cut it into 6,353 and
1,120 rows. No seed gives their order, so gsm8k_split.json lists the rows of the official file.

Calculator annotations ``<<3*4=12>>`` are removed. Numbers are then written one way: ``1,000`` and ``1 000`` as 1000,
``.5`` as 0.5. The original code did that by replacing each match everywhere in the text, which made ``12.5`` beside
``.5`` into ``120.5``: 126 training, 20 validation and 26 test answers are wrong in it, all but their last line.
``paper_compat`` gives exactly that text.
"""

import json
import re
from pathlib import Path
from typing import ClassVar

from ntl.config.data import GSM8KConfig
from ntl.data import raw
from ntl.data.dataset import Log, Material, TextDataset
from ntl.data.files import Pair

HOME = "https://github.com/openai/grade-school-math"
FILES = "https://raw.githubusercontent.com/openai/grade-school-math/3101c7d5072418e28b9008a6636bde82a006892c"
SPLIT = Path(__file__).parents[1] / "gsm8k_split.json"
MARK = "####"
ANNOTATION = re.compile(r"<<.*?>>")

COMMAS = re.compile(r"(?<![0-9.,])[1-9][0-9]{0,2}(?:,[0-9]{3})+(?!,?[0-9])")
# "12 200-kilobyte videos" are twelve of them, and "3 100 200" is no numeral unless it ends in round thousands.
SPACES = re.compile(
    r"(?<![0-9.,])(?<![0-9] )[1-9][0-9]{0,2}(?:(?: [0-9]{3})* 000| [0-9]{3})(?![0-9-]|,[0-9]| [0-9]{3}(?![0-9]))"
)
LEADING_POINT = re.compile(r"(?<![0-9.])\.(?=[0-9])")

# The original's patterns; what they do to a text depends on the order of their matches.
PAPER_SPACES = re.compile(r"(?<!\S)\d{1,3}(?: \d{3})+")
PAPER_COMMAS = re.compile(r"\d{1,3}(?:,\d{3})+")
PAPER_POINTS = re.compile(r"(?<!\d)\.\d+")


class GSM8K(TextDataset):
    """The answer is the reasoning and, in its last line, ``#### number``."""

    origin: ClassVar[raw.Origin] = raw.Origin(
        home=HOME,
        licence="MIT (OpenAI, 2021)",
        cite="Cobbe et al., Training Verifiers to Solve Math Word Problems, arXiv:2110.14168",
        publishable=True,
        files={
            "train": raw.RawFile(
                "gsm8k/train.jsonl",
                f"{FILES}/grade_school_math/data/train.jsonl",
                "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
            ),
            "test": raw.RawFile(
                "gsm8k/test.jsonl",
                f"{FILES}/grade_school_math/data/test.jsonl",
                "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
            ),
        },
    )
    config: GSM8KConfig

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        train, test = (parse(self.read(name, data_dir, log, download=download)) for name in ("train", "test"))
        chosen = json.loads(SPLIT.read_bytes())
        pairs = {split: [train[index] for index in chosen[split]] for split in ("train", "validation")}
        pairs["test"] = test[: self.config.test_rows or None]
        write = normalize_as_paper if self.config.paper_compat else normalize
        return self.official(
            {split: [(write(q), write(ANNOTATION.sub("", a))) for q, a in part] for split, part in pairs.items()}
        )

    def scored(self, answer: str) -> str:
        return answer.rpartition(MARK)[2].strip()


def parse(data: bytes) -> list[Pair]:
    rows = map(json.loads, data.splitlines())
    return [(row["question"], row["answer"]) for row in rows]


def normalize(text: str) -> str:
    """``1,234`` and ``1 234`` -> 1234, ``.5`` -> 0.5, each where it stands; what is no proper numeral is left."""
    text = SPACES.sub(lambda match: match[0].replace(" ", ""), text)
    text = COMMAS.sub(lambda match: match[0].replace(",", ""), text)
    return LEADING_POINT.sub("0.", text)


def normalize_as_paper(text: str) -> str:
    """What the original code made of a text: each match replaced everywhere, also inside longer numerals."""
    for match in PAPER_SPACES.findall(text):
        text = text.replace(match, match.replace(" ", ""))
    for match in PAPER_COMMAS.findall(text):
        text = text.replace(match, match.replace(",", ""))
    for match in PAPER_POINTS.findall(text):
        text = text.replace(match, f"0{match}")
    return text
