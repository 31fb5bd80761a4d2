"""MultiRC of SuperGLUE v2: questions on a passage, each with several right options (Khashabi et al., 2018; Table 8).

One example a question: passage, blank line, ``Question: ...``; the answer is all right options, joined by `` | `` in
the order of the file. The question stands last because a text that is too long loses its beginning. Questions without
a right option (23 of 5,131 and 3 of 953) have nothing to be answered with and are left out; ``paper_compat`` keeps
them, and the white space around options, as the original code did. The official test file has no labels, so that the
paper's scores are those of validation.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from ntl.config.data import MultiRCConfig
from ntl.data import raw
from ntl.data.dataset import Log, Material, TextDataset
from ntl.data.files import Pair

ARCHIVE = "https://dl.fbaipublicfiles.com/glue/superglue/data/v2/MultiRC.zip"
SEPARATOR = " | "


class MultiRC(TextDataset):
    """Scored as text: the paper's check that the loss does no harm where numbers are rare."""

    splits = ("train", "validation")
    test_splits = ("validation",)
    metrics = "text"
    origin: ClassVar[raw.Origin] = raw.Origin(
        home="https://super.gluebenchmark.com/tasks",
        licence="none stated (SuperGLUE refers to the original terms): research use, no redistribution",
        cite="Khashabi et al., Looking Beyond the Surface, NAACL 2018; Wang et al., SuperGLUE, NeurIPS 2019",
        publishable=False,
        files={
            "train": raw.RawFile(
                "multirc/train.jsonl",
                ARCHIVE,
                "bb73d0838618f8269190a2533fead3140607558975ea0df6511fa534e8d3535c",
                member="MultiRC/train.jsonl",
            ),
            "validation": raw.RawFile(
                "multirc/val.jsonl",
                ARCHIVE,
                "d2b480195b15574ac00d52c4479f630bc161a7ab2de77e970fd00652846953ee",
                member="MultiRC/val.jsonl",
            ),
        },
    )
    config: MultiRCConfig

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        rows, dropped = {}, {}
        for split in self.splits:
            pairs = list(parse(self.read(split, data_dir, log, download=download), strip=not self.config.paper_compat))
            rows[split] = [pair for pair in pairs if pair[1] or self.config.paper_compat]
            if left_out := len(pairs) - len(rows[split]):
                dropped[split] = left_out
                log(f"{self.name}: {left_out} of {len(pairs)} {split} questions have no right option: left out")
        return self.official(rows, dropped=dropped)


def parse(data: bytes, *, strip: bool) -> Iterator[Pair]:
    """Question with passage, and answer, empty when no option is right; options stripped, or as they stand."""
    for row in map(json.loads, data.splitlines()):
        for question in row["passage"]["questions"]:
            right = [option["text"] for option in question["answers"] if option["label"]]
            options = [option for each in right if (option := each.strip())] if strip else right
            asked = f"{row['passage']['text'].strip()}\n\nQuestion: {question['question'].strip()}"
            yield asked, SEPARATOR.join(options)
