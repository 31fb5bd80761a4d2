import gzip
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.config import UserError, compose, run_id
from ntl.config.data import RJokesConfig
from ntl.data.prepared import Prepared
from ntl.data.raw import Log, Missing
from ntl.data.sets import rjokes
from ntl.data.sets.rjokes import RJokes, held_out, unescape

LINES = (
    '3\tWhy so tense? The past said "no.\n'
    "0\ta\\\tb\tc \\\\d \\n “é”\xa0 \n"
    '11\t"Quoted?" she said\n'
    "0\tlast\u2028line\x85of\x0bone joke"
)
JOKES = [
    'Why so tense? The past said "no.',
    "a\tb\tc \\d \\n “é”\xa0 ",
    '"Quoted?" she said',
    "last\u2028line\x85of\x0bone joke",
]
SCORES = ["3", "0", "11", "0"]


def many(rows: int, word: str = "joke") -> bytes:
    return gzip.compress("".join(f"{i % 12}\t{word} {i}\n" for i in range(rows)).encode())


def made(folder: Path, log: Log = print, **settings: Any) -> Prepared:
    prepared = Prepared(RJokes(RJokesConfig(**settings)), folder)
    prepared.prepare(log, download=False)
    return prepared


def by_git(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def test_only_the_first_tab_separates_and_nothing_is_quoted(release: Any, data_dir: Path, silent: list[str]) -> None:
    release(RJokes, validation=gzip.compress(LINES.encode()), test=gzip.compress(f"{LINES}\n".encode()))
    prepared = made(data_dir, log=silent.append)
    for split in ("validation", "test"):
        rows = list(prepared.rows(split))
        assert [row["question"] for row in rows] == JOKES
        assert [row["answer"] for row in rows] == SCORES
        assert [row["id"] for row in rows] == [f"{split}/0000{i}" for i in range(4)]
    assert silent[0].startswith("rjokes: licence: Reddit's API terms")
    assert sum("licence" in line for line in silent) == 1


def test_paper_compat_keeps_backslashes_and_cuts_the_end(release: Any, data_dir: Path) -> None:
    release(RJokes, validation=gzip.compress(LINES.encode()), test=many(5))
    prepared = made(data_dir, paper_compat=True)
    assert prepared.rows("validation")[1]["question"] == "a\\\tb\tc \\\\d \\n “é”"
    assert run_id(compose(["dataset=rjokes", "paper_compat=true"])) != run_id(compose(["dataset=rjokes"]))


@given(st.text(alphabet='a\t\\" '))
def test_unescape_undoes_what_the_authors_writer_did(joke: str) -> None:
    assert unescape(re.sub(r"([\\\t])", r"\\\1", joke)) == joke


def test_without_the_training_file_the_rest_is_prepared(release: Any, data_dir: Path, silent: list[str]) -> None:
    release(RJokes, validation=many(20), test=many(30))
    prepared = made(data_dir, log=silent.append)
    folder = prepared.folder
    missing = (
        f"rjokes has no train rows: no file {data_dir}/rjokes/train.tsv.gz; it is to be had as "
        "http://127.0.0.1:9/rjokes/train.tsv.gz, and may lie in any folder that NTL_DATA_DIR names, as "
        "rjokes/train.tsv.gz; dataset.allow_dev_training=true trains on a part of dev instead."
    )
    assert silent[-1] == missing
    assert prepared.fingerprint()["rows"] == {"validation": 20, "test": 30}
    with pytest.raises(Missing) as caught:
        prepared.rows("train")
    assert str(caught.value) == missing
    # Prepared again only when the file has come.
    assert prepared.prepare(silent.append, download=False) == folder
    assert silent[-1] == missing


def test_a_training_file_is_checked_by_its_histogram(release: Any, data_dir: Path) -> None:
    release(RJokes, train=many(36), validation=many(20), test=many(30))
    with pytest.raises(UserError, match=r"train\.tsv\.gz:36: 3 jokes of score 0, the authors counted 118365; this is"):
        made(data_dir)


def test_training_on_dev_is_deterministic_and_says_so(release: Any, data_dir: Path) -> None:
    release(RJokes, validation=many(2000), test=many(30))
    prepared = made(data_dir, allow_dev_training=True, test_rows=7)
    rows = {split: [row["question"] for row in prepared.rows(split)] for split in prepared.dataset.splits}
    assert sorted(rows["train"] + rows["validation"]) == sorted(f"joke {i}" for i in range(2000))
    assert rows["validation"] == [f"joke {i}" for i in range(2000) if held_out(f"joke {i}")]
    assert 150 < len(rows["validation"]) < 250
    assert rows["validation"][:3] == ["joke 4", "joke 15", "joke 23"]
    assert rows["test"] == [f"joke {i}" for i in range(7)]
    fingerprint = prepared.fingerprint()
    assert fingerprint["comparable"] is False
    assert fingerprint["reason"] == rjokes.DEV_ONLY
    assert fingerprint["licence"] == rjokes.LICENCE


def test_equal_jokes_fall_on_one_side() -> None:
    # sha1("a") begins with 86f7e437, in base ten 2264392759.
    assert not held_out("a")
    assert [word for word in map(str, range(30)) if held_out(word)] == [
        word for word in map(str, range(30)) if int(hashlib.sha1(word.encode()).hexdigest()[:8], 16) % 10 == 0
    ]


@pytest.mark.data
def test_the_real_files(data_root: Path, tmp_path: Path) -> None:
    prepared = made(tmp_path)
    rows = prepared.fingerprint()["rows"]
    assert (rows["validation"], rows["test"]) == (43_246, 43_246)
    jokes, counts = {}, {}
    for split in ("validation", "test"):
        examples = list(prepared.rows(split))
        jokes[split] = [row["question"] for row in examples]
        histogram = Counter(row["answer"] for row in examples)
        counts[split] = [histogram[score] for score in rjokes.SCORES]
    assert counts == {
        "validation": [14962, 10382, 7715, 4194, 2540, 1590, 825, 461, 239, 172, 160, 6],
        "test": [14942, 10336, 7908, 4069, 2571, 1558, 829, 446, 240, 179, 163, 5],
    }
    for name, expected in {**{k: counts[k] for k in counts}, "train": list(rjokes.TRAIN_HISTOGRAM)}.items():
        file = {"validation": "dev"}.get(name, name)
        published = json.loads((data_root / f"rjokes/distributions/{file}_distribution.json").read_bytes())
        assert [published[score] for score in rjokes.SCORES] == expected
    assert sum(rjokes.TRAIN_HISTOGRAM) == 345_965
    validation, test = jokes["validation"], jokes["test"]
    assert (len(validation) - len(set(validation)), len(test) - len(set(test))) == (178, 136)
    assert len({*validation} & {*test}) == 242
    assert sum(joke in shared for shared in [{*validation}] for joke in test) == 289
    assert [sum('"' in joke for joke in part) for part in (validation, test)] == [8_831, 8_885]
    assert max(map(len, validation)) == 39_743
    assert [sum("\t" in joke for joke in part) for part in (validation, test)] == [12, 12]


@pytest.mark.data
def test_paper_compat_gives_the_papers_files(data_root: Path, tmp_path: Path) -> None:
    prepared = made(tmp_path, paper_compat=True)
    # Names that git gave to the authors' own files of question and answer.
    blobs = {
        "validation": "c33410b374dde8077ce529b9b0bb95e82b58800f",
        "test": "1f1e7aadf575f9d663ab91aa0f53c9b8f7643e86",
    }
    for split, blob in blobs.items():
        rows = [{"question": row["question"], "answer": row["answer"]} for row in prepared.rows(split)]
        assert by_git("".join(f"{json.dumps(row)}\n" for row in rows).encode()) == blob
