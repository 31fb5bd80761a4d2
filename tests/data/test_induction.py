import re
from pathlib import Path

import pytest

from ntl.config import UserError, compose
from ntl.data.prepared import Prepared
from ntl.data.sets.induction import FIRST, SECOND, Induction, names_of
from ntl.tokenizers import load_tokenizer, train_tokenizer

NAME = re.compile(rf"\b({'|'.join(FIRST)}) ({'|'.join(SECOND)})\b")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The data of scale=tiny, with fewer rows."""
    settings = compose(["dataset=induction", "scale=tiny", "dataset.train_rows=6000"]).dataset
    prepared = Prepared(Induction(settings), tmp_path_factory.mktemp("induction"))
    prepared.prepare(lambda line: None)
    return prepared


def test_training_learns_the_whole_story_and_the_test_asks_for_its_last_word(tiny: Prepared) -> None:
    for split in tiny.dataset.splits:
        for row in list(tiny.rows(split))[:300]:
            story = f"{row['question']} {row['answer']}"
            names = [" ".join(found) for found in NAME.findall(story)]
            persons = tiny.dataset.group(row["id"])
            assert names[-1] in names[:-1]
            assert story.endswith(f"In the end they all thanked {names[-1]}")
            assert len({*names}) == int(persons or 0)
            # Neither part is shared, so that the first tells the second.
            assert len({part for name in names for part in name.split()}) == 2 * len({*names})
            assert {*names} <= {*names_of(split, tiny.dataset.values["parts"])}
            if split == "test":
                assert len(row["answer"].split()) == 1
            else:
                assert row["question"] == "Story:"


def test_names_of_the_test_are_new_and_their_parts_are_not(tiny: Prepared) -> None:
    rows = [*tiny.rows("train"), *tiny.rows("test")]
    found = {
        split: {pair for row in rows if row["id"].startswith(split) for pair in NAME.findall(str(row))}
        for split in ("train", "test")
    }
    assert not found["train"] & found["test"]
    for part in (0, 1):
        assert {name[part] for name in found["test"]} <= {name[part] for name in found["train"]}


@pytest.mark.parametrize("kind", ["digit", "default"])
def test_each_part_is_one_token_where_the_tokenizer_is_trained_on_the_stories(
    kind: str, tiny: Prepared, tmp_path: Path
) -> None:
    size = compose(["dataset=induction", "scale=tiny"]).tokenizer.vocab_size
    texts = [row[part] for row in tiny.rows("train") for part in ("question", "answer")]
    tokenizer = train_tokenizer(texts, tmp_path / kind, kind=kind, vocab_size=size)
    for part in (*FIRST[:40], *SECOND[:40]):
        assert tokenizer.tokenize(part) == [f"\u2581{part}"]
    assert tokenizer.tokenize("thanked Tom Hill") == ["\u2581thanked", "\u2581Tom", "\u2581Hill"]


@pytest.mark.data
@pytest.mark.parametrize(("name", "before"), [("t5", ""), ("gpt2", " ")])
def test_each_part_is_one_token_of_published_tokenizers(name: str, before: str, data_root: Path) -> None:
    tokenizer = load_tokenizer(data_root / "tokenizers" / name)
    lengths = {part: len(tokenizer.tokenize(f"{before}{part}")) for part in (*FIRST, *SECOND)}
    assert {part: length for part, length in lengths.items() if length != 1} == {}


@pytest.mark.parametrize(("model", "answers"), [("t5_tiny", "continues"), ("xval_tiny", "continues"), ("rt_tiny", "")])
def test_only_decoders_read_it(model: str, answers: str) -> None:
    with pytest.raises(UserError, match=f"model={model} dataset=induction: its answer {answers}"):
        compose([f"model={model}", "dataset=induction"])


@pytest.mark.parametrize("dataset", ["polynomial", "star_graph"])
def test_a_model_that_writes_numbers_in_another_way_does_not_read_exact_answers(dataset: str) -> None:
    with pytest.raises(UserError, match=f"model=rt_tiny dataset={dataset}: its answer is matched symbol by symbol"):
        compose(["model=rt_tiny", f"dataset={dataset}"])
    compose(["model=t5_tiny", f"dataset={dataset}"])
