"""GSM8K, rJokes and MultiRC: from their official files to the paper's rows."""

import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ntl.config import UserError
from ntl.data import dataset_named, load_dataset
from ntl.data.prepared import Prepared
from ntl.data.raw import Missing
from ntl.data.sets import official
from ntl.data.sets.official import (
    GSM8K,
    MeltingPoints,
    MultiRC,
    RJokes,
    Sentiment,
    held_out,
    key_of,
    normalize,
    normalize_as_paper,
)


def made(kind: Any, folder: Path, **settings: Any) -> Prepared:
    prepared = Prepared(kind(**settings), folder)
    prepared.prepare(download=False)
    return prepared


@pytest.mark.parametrize(
    ("kind", "name", "own", "missing"),
    [
        (GSM8K, "gsm8k", "validation", "test"),
        (RJokes, "rjokes", "test", "train"),
        (MultiRC, "multirc", "validation", "train"),
    ],
)
def test_a_split_needs_its_own_files_alone(kind: Any, name: str, own: str, missing: str, made_up, release: Any) -> None:
    contents = {GSM8K: jsonl(), RJokes: many(5), MultiRC: passages()}
    release(kind, **dict.fromkeys(kind.origin.files, contents[kind]))
    (made_up / kind.origin.files[missing].path).unlink()
    rows = load_dataset(name, own, made_up)
    assert rows["id"] == [f"{own}/{index:05d}" for index in range(len(rows))]
    assert load_dataset(name, own, made_up).to_list() == rows.to_list()
    with pytest.raises(Missing, match=re.escape(kind.origin.files[missing].path)):
        load_dataset(name, missing, made_up)
    with pytest.raises(Missing):
        made(kind, made_up)
    assert [path.name for path in made_up.glob("[!.]*-*")] == [dataset_named(name).alone(own).folder_name]


# ---- GSM8K

ROWS = [
    ("A bag holds 1,000 nuts.", "2*3=<<2*3=6>>6 bags\n6,000/.5 = <<6000/.5=12000>>12,000\n#### 12,000"),
    ("How much is left?", "It’s −3.\n#### -3"),
    ("Half of 12.5?", "12.5*.5=<<12.5*.5=6.25>>6.25\n#### 6"),
    ("And zero?", "none\n#### 0"),
]


def jsonl(rows: list[tuple[str, str]] = ROWS) -> bytes:
    return b"".join(json.dumps({"question": q, "answer": a}).encode() + b"\n" for q, a in rows)


@pytest.fixture
def made_up(release: Any, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four training rows, of which the last and the first are for training, and one test row."""
    release(GSM8K, train=jsonl(), test=jsonl(ROWS[1:2]))
    monkeypatch.setattr(official, "GSM8K_SPLIT", data_dir / "split.json")
    official.GSM8K_SPLIT.write_text('{"train":[3,0],"validation":[1,2]}')
    return data_dir


def test_rows_follow_the_list_of_indices(made_up: Path, caplog) -> None:
    prepared = made(GSM8K, made_up)
    assert list(prepared.rows("train")) == [
        {"id": "train/00000", "question": "And zero?", "answer": "none\n#### 0"},
        {
            "id": "train/00001",
            "question": "A bag holds 1000 nuts.",
            "answer": "2*3=6 bags\n6000/0.5 = 12000\n#### 12000",
        },
    ]
    assert [row["question"] for row in prepared.rows("validation")] == ["How much is left?", "Half of 12.5?"]
    assert [row["answer"] for row in prepared.rows("test")] == ["It’s −3.\n#### -3"]
    assert caplog.messages[0] == "gsm8k: licence: MIT (OpenAI, 2021)"
    assert prepared.fingerprint()["licence"] == "MIT (OpenAI, 2021)"
    assert prepared.manifest["source"]["home"] == "https://github.com/openai/grade-school-math"
    assert prepared.dataset.scored("2 and 3\n#### 1200") == "1200"


def test_gsm8k_of_the_original_and_a_prefix_of_the_test(release: Any, made_up: Path) -> None:
    release(GSM8K, train=jsonl(), test=jsonl(ROWS))
    corrected, original = made(GSM8K, made_up, test_rows=3), made(GSM8K, made_up, paper_compat=True)
    assert corrected.fingerprint()["rows"] == {"train": 2, "validation": 2, "test": 3}
    answers = [prepared.rows("validation")[1]["answer"] for prepared in (corrected, original)]
    assert answers == ["12.5*0.5=6.25\n#### 6", "120.5*0.5=6.25\n#### 6"]


@pytest.mark.parametrize(
    ("text", "corrected", "original"),
    [
        ("$1,920,000 and 12,000.50", "$1920000 and 12000.50", "$1920000 and 12000.50"),
        ("1 000 000", "1000000", "1000000"),
        ("450 000 people", "450000 people", "450000 people"),
        ("$100 000 x 5", "$100000 x 5", "$100 000 x 5"),
        ("17 000/5 = 3 400.", "17000/5 = 3400.", "17000/5 = 3400."),
        ("1 000 000 + 500 000 = 1 500 000", "1000000 + 500000 = 1500000", "1000000 + 500000 = 1 500000"),
        ("3 100 200", "3 100 200", "3100200"),
        ("12 200-kilobyte videos", "12 200-kilobyte videos", "12200-kilobyte videos"),
        ("2000 450 of them", "2000 450 of them", "2000 450 of them"),
        ("16,0000 and 4,5,6 and 0,2", "16,0000 and 4,5,6 and 0,2", "160000 and 4,5,6 and 0,2"),
        ("12.5 x .5", "12.5 x 0.5", "120.5 x 0.5"),
        ("10 .5 and 0.5", "10 0.5 and 0.5", "10 0.5 and 00.5"),
        (".9g = .9", "0.9g = 0.9", "00.9g = 00.9"),
        ("v1..5 and 3.4.5", "v1..5 and 3.4.5", "v1.0.5 and 3.40.5"),
        ("½ of 50% of €3 is 10²", "½ of 50% of €3 is 10²", "½ of 50% of €3 is 10²"),
    ],
)
def test_normalization(text: str, corrected: str, original: str) -> None:
    assert normalize(text) == corrected
    assert normalize_as_paper(text) == original


@pytest.mark.data
@pytest.mark.slow
def test_the_real_files_of_gsm8k_give_the_papers_rows(data_root: Path, tmp_path: Path) -> None:
    corrected, original = made(GSM8K, tmp_path), made(GSM8K, tmp_path, paper_compat=True)
    for prepared in (corrected, original):
        assert prepared.fingerprint()["rows"] == {"train": 6353, "validation": 1120, "test": 1319}
    scored = corrected.dataset.scored
    assert corrected.fingerprint()["files"] == {
        "train.jsonl": "f9440481d3033983f7ca91485af05e2bcec4352d4509415d217948f517649a1c",
        "validation.jsonl": "7b2a046e45ad5e822eb5093ec6486d0fc133ae14ee5a4415f6d195d93fe18c94",
        "test.jsonl": "2a7e90fadfe7e3b185d1de4b403b830554fdaa1e09a149e48a1fc475c70ccdf0",
    }
    indices = json.loads((data_root / "gsm8k/paper_splits/split_indices.json").read_bytes())
    assert json.loads(official.GSM8K_SPLIT.read_bytes()) == {"train": indices["train"], "validation": indices["val"]}
    names = {"train": "train_t_clean", "validation": "val_t_clean", "test": "test_clean"}
    for split, name in names.items():
        with gzip.open(data_root / f"gsm8k/paper_splits/{name}.jsonl.gz") as stream:
            expected = stream.read()
        rows = list(original.rows(split))
        written = [json.dumps({"question": row["question"], "answer": row["answer"]}) + "\n" for row in rows]
        assert "".join(written).encode() == expected
        pairs = zip(rows, corrected.rows(split), strict=True)
        assert all(scored(old["answer"]) == scored(new["answer"]) for old, new in pairs)
    # Each of the official rows is used once, and no test question is a training question.
    train = {row["question"] for split in ("train", "validation") for row in corrected.rows(split)}
    assert len(train) == 7473
    assert not train & {row["question"] for row in corrected.rows("test")}


# ---- rJokes

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
JOKE_SCORES = ["3", "0", "11", "0"]


def many(rows: int, word: str = "joke") -> bytes:
    return gzip.compress("".join(f"{i % 12}\t{word} {i}\n" for i in range(rows)).encode())


def test_only_the_first_tab_separates_and_nothing_is_quoted(release: Any, data_dir: Path) -> None:
    dev = "".join(f"5\tjoke {i}\n" for i in range(40))
    release(RJokes, validation=gzip.compress(dev.encode()), test=gzip.compress(f"{LINES}\n".encode()))
    rows = list(made(RJokes, data_dir, allow_dev_training=True).rows("test"))
    assert [(row["question"], row["answer"]) for row in rows] == list(zip(JOKES, JOKE_SCORES, strict=True))
    compat = made(RJokes, data_dir, allow_dev_training=True, paper_compat=True)
    assert compat.rows("test")[1]["question"] == "a\\\tb\tc \\\\d \\n “é”"


def test_without_the_training_file_the_line_says_where_it_is(release: Any, data_dir: Path) -> None:
    release(RJokes, validation=many(20), test=many(30))
    with pytest.raises(
        Missing, match=r"no file .*rjokes/train\.tsv\.gz; it is to be had as http://127\.0\.0\.1:9/rjokes"
    ):
        made(RJokes, data_dir)
    release(RJokes, train=many(36), validation=many(20), test=many(30))
    with pytest.raises(UserError, match=r"train\.tsv\.gz:36: 3 jokes of score 0, the authors counted 118365; this is"):
        made(RJokes, data_dir)


def test_training_on_dev_is_deterministic_and_says_so(release: Any, data_dir: Path) -> None:
    release(RJokes, validation=many(2000), test=many(30))
    prepared = made(RJokes, data_dir, allow_dev_training=True, test_rows=7)
    rows = {split: [row["question"] for row in prepared.rows(split)] for split in prepared.dataset.all_splits}
    assert sorted(rows["train"] + rows["validation"]) == sorted(f"joke {i}" for i in range(2000))
    assert rows["validation"] == [f"joke {i}" for i in range(2000) if held_out(f"joke {i}")]
    assert 150 < len(rows["validation"]) < 250
    assert rows["validation"][:3] == ["joke 4", "joke 15", "joke 23"]
    assert rows["test"] == [f"joke {i}" for i in range(7)]
    fingerprint = prepared.fingerprint()
    assert fingerprint["comparable"] is False
    assert fingerprint["reason"] == official.DEV_ONLY
    assert fingerprint["licence"].startswith("Reddit's API terms")


@pytest.mark.slow
@pytest.mark.data
def test_the_real_files_of_rjokes(data_root: Path, tmp_path: Path) -> None:
    prepared = made(RJokes, tmp_path, allow_dev_training=True)
    rows = {split: list(prepared.rows(split)) for split in prepared.dataset.all_splits}
    parts = {"validation": [*rows["train"], *rows["validation"]], "test": rows["test"]}
    histograms = {split: Counter(row["answer"] for row in part) for split, part in parts.items()}
    scores = [*map(str, range(12))]
    counts = {split: [found[score] for score in scores] for split, found in histograms.items()}
    known = {"dev": counts["validation"], "test": counts["test"], "train": official.TRAIN_HISTOGRAM}
    for file, expected in known.items():
        published = json.loads((data_root / f"rjokes/distributions/{file}_distribution.json").read_bytes())
        assert [published[score] for score in scores] == list(expected)
    assert [sum(each) for each in (*counts.values(), official.TRAIN_HISTOGRAM)] == [43_246, 43_246, 345_965]
    assert [sum('"' in row["question"] for row in part) for part in parts.values()] == [8_831, 8_885]
    assert len({row["question"] for row in parts["validation"]} & {row["question"] for row in parts["test"]}) == 242
    # The name that git gave to the authors' own file of question and answer.
    original = made(RJokes, tmp_path, allow_dev_training=True, paper_compat=True).rows("test")
    written = [json.dumps({"question": row["question"], "answer": row["answer"]}) for row in original]
    content = "".join(f"{line}\n" for line in written).encode()
    assert hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() == "1f1e7aadf575f9d663ab91aa0f53c9b8f7643e86"


# ---- MultiRC


def passage(text: str, *questions: tuple[str, list[tuple[str, int]]]) -> dict[str, Any]:
    asked = [
        {"question": question, "answers": [{"text": answer, "label": label} for answer, label in answers]}
        for question, answers in questions
    ]
    return {"passage": {"text": text, "questions": asked}}


PASSAGES = [
    passage(
        " The mill stood for 99 years.\u2028It fell in 1873. ",
        (" When? ", [("1873", 1), (" in 1873 ", 1), ("99", 0), ("", 0)]),
        ("Who?", [("nobody", 0)]),
    ),
    passage("Trees.", ("What?", [("trees", 1)])),
]


def passages(*rows: Any) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows or PASSAGES)


def test_one_example_a_question(release: Any, data_dir: Path, caplog) -> None:
    release(MultiRC, train=passages(), validation=passages(PASSAGES[1]))
    prepared = made(MultiRC, data_dir)
    assert list(prepared.rows("train")) == [
        {
            "id": "train/00000",
            "question": "The mill stood for 99 years.\u2028It fell in 1873.\n\nQuestion: When?",
            "answer": "1873 | in 1873",
        },
        {"id": "train/00001", "question": "Trees.\n\nQuestion: What?", "answer": "trees"},
    ]
    assert "multirc: 1 of 3 train questions have no right option: left out" in caplog.messages
    fingerprint = prepared.fingerprint()
    assert (fingerprint["dropped"], fingerprint["rows"]) == ({"train": 1}, {"train": 2, "validation": 1})
    assert "no redistribution" in fingerprint["licence"]
    assert (prepared.dataset.metrics, prepared.dataset.test_splits) == ("text", ("validation",))


def test_options_of_white_space_are_no_answer_and_the_original_keeps_all(release: Any, data_dir: Path) -> None:
    blank = passage("p", ("q", [("a", 1), (" ", 1), ("", 1), ("b ", 1), ("c", 0)]), ("r", [(" ", 1)]))
    release(MultiRC, train=passages(*PASSAGES, blank), validation=passages(PASSAGES[1]))
    found = [made(MultiRC, data_dir, paper_compat=compat) for compat in (False, True)]
    answers = [[row["answer"] for row in prepared.rows("train")] for prepared in found]
    assert answers == [["1873 | in 1873", "trees", "a | b"], ["1873 |  in 1873 ", "", "trees", "a |   |  | b ", " "]]
    assert [prepared.fingerprint()["dropped"] for prepared in found] == [{"train": 2}, {}]


@pytest.mark.data
def test_the_real_files_of_multirc(data_root: Path, tmp_path: Path, caplog) -> None:
    fingerprint = made(MultiRC, tmp_path).fingerprint()
    assert fingerprint["rows"] == {"train": 5_108, "validation": 950}
    assert fingerprint["dropped"] == {"train": 23, "validation": 3}
    prepared, sizes = made(MultiRC, tmp_path, paper_compat=True), {}
    assert prepared.fingerprint()["rows"] == {"train": 5_131, "validation": 953}
    for split in prepared.dataset.all_splits:
        rows = [{"question": row["question"], "answer": row["answer"]} for row in prepared.rows(split)]
        content = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()
        sizes[split] = (len(content), hashlib.sha256(content).hexdigest()[:8])
    assert sizes == {"train": (8_961_590, "4fd219f8"), "validation": (1_588_822, "2c48691c")}


# Melting points and sentiment: regression from text, read from files of packages.


FEW = {"validation_rows": 4, "test_rows": 4}


def packaged(folder: Path, kind: Any = MeltingPoints, **settings: Any) -> dict[str, list[Any]]:
    prepared = Prepared(kind(**{**FEW, **settings}), folder)
    prepared.prepare(download=False)
    return {split: list(prepared.rows(split)) for split in prepared.dataset.all_splits}


def test_a_wheel_becomes_questions_and_whole_kelvin(data_dir: Path, packages: Callable[[Path], None]) -> None:
    with pytest.raises(Missing, match=f"^no file {data_dir}/packages/chemicals-.* the package chemicals==1.5.2"):
        packaged(data_dir)
    packages(data_dir)
    rows = packaged(data_dir)
    pairs = {row["question"]: row["answer"] for part in rows.values() for row in part}
    assert pairs == {f"Melting point of {n + 1}-anol in K:": str(100 + n) for n in range(20) if n != 7}
    smiles = packaged(data_dir, text="smiles", cut=5)
    pairs = Counter(row["question"] for part in smiles.values() for row in part)
    assert pairs["Melting point of CCCO in K:"] == 1
    # Cut to one text: the questions of the first molecule's isomers alone, as the others may be in other splits.
    assert pairs["Melting point of CCCCC in K:"] == 2
    assert len(packaged(data_dir, train_rows=3)["train"]) == 3
    with pytest.raises(UserError, match=r"^20 rows, of which test and validation take all; lower their"):
        packaged(data_dir, test_rows=18)


def test_isomers_are_in_one_split_and_names_and_smiles_in_the_same(data_dir, packages: Callable[[Path], None]) -> None:
    packages(data_dir)
    for seed in range(3):
        kelvin = [
            {
                split: {int(row["answer"]) for row in part}
                for split, part in packaged(data_dir, seed=seed, text=text).items()
            }
            for text in ("name", "smiles")
        ]
        for split, points in kelvin[1].items():
            assert kelvin[0][split] == points - {107}, "the molecule without a name is left out, and no other moves"
            pairs = {(point - 100) // 2 for point in points}
            assert points == {100 + 2 * pair + place for pair in pairs for place in (0, 1)}, "two isomers"


def test_texts_come_with_their_mean_and_their_ratings(data_dir: Path, packages: Callable[[Path], None]) -> None:
    packages(data_dir)
    rows = packaged(data_dir, Sentiment)
    found = {row["question"]: (row["answer"], json.loads(row["labels"])) for part in rows.values() for row in part}
    assert len(found) == 20
    assert found["Sentiment of Great fun… from -4 to 4:"] == ("3.3", [4, 3, 3])
    assert found["Sentiment of dull! from -4 to 4:"] == ("-2.7", [-3, -3, -2])
    assert found["Sentiment of The vote no 3 from -4 to 4:"] == ("0.0", [0, 0, 1, -1])
    domains = Counter(row["id"].split("/")[1] for part in rows.values() for row in part)
    assert domains == {"movies": 4, "editorials": 6, "tweets": 6, "products": 4}
    tweets = packaged(data_dir, Sentiment, domain="tweets", test_rows=1, validation_rows=1)
    assert {row["id"].split("/")[1] for part in tweets.values() for row in part} == {"tweets"}


def test_a_sentence_is_the_same_whatever_its_capitals_and_signs() -> None:
    assert key_of("UGH!! I HATE it") == key_of("Ugh. I hate it…") != key_of("I hate it")
    assert key_of(":(") != key_of(":)")
