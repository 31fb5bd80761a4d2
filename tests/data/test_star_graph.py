import re
from collections import Counter
from pathlib import Path

import pytest

from ntl.config.generated import StarGraphConfig
from ntl.data.generated import side_of
from ntl.data.prepared import Prepared
from ntl.data.sets.star_graph import Star, StarGraph

CONFIG = StarGraphConfig(train_rows=500, validation_rows=10, test_rows=300, degree=3, path_length=4, nodes=12)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    prepared = Prepared(StarGraph(CONFIG), tmp_path_factory.mktemp("star"))
    prepared.prepare(lambda line: None)
    return prepared


def test_a_graph_by_hand() -> None:
    star = Star(5, [[12, 7], [0, 33]])
    assert star.edges == [(5, 12), (12, 7), (5, 0), (0, 33)]
    assert star.content == "[(0, 33), (5, 0), (5, 12), (12, 7)] 7"
    fault = StarGraph(StarGraphConfig()).fault
    question = "0>33 5>12 12>7 5>0 from 5 to 7"
    assert fault(question, "5 12 7") is None
    for wrong in ("5 0 33", "5 7", "12 7", "5 12", "5  0 12 7", ""):
        assert fault(question, wrong) == f"the answer {wrong!r} is no path from 5 to 7"


def test_every_graph_is_a_star_whose_edges_are_in_random_order(prepared: Prepared) -> None:
    first = Counter[bool]()
    for row in prepared.rows("train"):
        edges = re.findall(r"(\d+)>(\d+)", row["question"])
        path = row["answer"].split()
        out = Counter(a for a, _ in edges)
        assert len(edges) == 9
        assert len({node for edge in edges for node in edge}) == 10
        assert max(Counter(b for _, b in edges).values()) == 1
        assert sorted(out.values()) == [1] * 6 + [3]
        assert out[path[0]] == 3
        assert path[-1] not in out
        assert len(path) == 4
        # The edge that solves the task stands before another one from the centre half of the time or so.
        first[next(b for a, b in edges if a == path[0]) == path[1]] += 1
    assert first[True] / 500 == pytest.approx(1 / 3, abs=0.08)


def test_a_graph_of_the_test_is_in_no_other_order_in_training(tmp_path: Path) -> None:
    """A few hundred graphs there are, so that training has every one of its side, in many orders."""
    config = StarGraphConfig(train_rows=3000, validation_rows=8, test_rows=40, path_length=3, nodes=5)
    prepared = Prepared(StarGraph(config), tmp_path)
    prepared.prepare(lambda line: None)

    def contents(split: str) -> set[str]:
        found = set()
        for row in prepared.rows(split):
            edges = sorted((int(a), int(b)) for a, b in re.findall(r"(\d+)>(\d+)", row["question"]))
            found.add(f"{edges} {row['answer'].split()[-1]}")
        return found

    train, test = contents("train"), contents("test")
    assert not train & test
    assert {side_of(content) for content in test} == {"test"}
    assert len(train) > 80  # of 5! = 120 graphs with a goal three quarters
