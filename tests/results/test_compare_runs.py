"""How runs compare: what differs between them, paired differences by hand, and what is never subtracted."""

import json
from pathlib import Path

import pytest

from ntl.results import pack_bits, write_record
from ntl.results.compare_runs import columns_of, compare, labels, main, show_sweep
from ntl.system.errors import UserError

FILES = {"train.jsonl": "a", "test.jsonl": "b"}


@pytest.fixture
def made(make_record):
    """``made(loss, seed, accuracy, bits)``: a run with these scores on four test examples."""

    def make(loss: str, seed: int, accuracy: float, bits: str = "1100", **changes):
        metrics = {"test/count": 4.0, "test/accuracy": accuracy, "test/mae": 2.0 * accuracy, "test/rmse": 1.0}
        given = {"correct": {"test": pack_bits([bit == "1" for bit in bits])}, "ids_sha256": {"test": "i"}}
        return make_record(loss, seed, metrics, **{**given, "data": {"files": FILES}, **changes})

    return make


def test_differences_by_seed_and_by_example_by_hand(made) -> None:
    """0.1, 0.2 and 0.3 more: mean 0.2, t interval 0.2 ± 4.302653 · 0.1 / √3, and 2 of 8 flips are as far."""
    base = [made("ce", seed, 0.5, "1100") for seed in (1, 2, 3)]
    other = [made("ntl_was", seed, 0.5 + 0.1 * seed, "1110") for seed in (1, 2, 3)]
    ((found,), warnings) = compare([*base, *other], ["test/accuracy"])
    (difference,) = found.block.differences
    (cell,) = difference.cells
    assert difference.name == "loss=ntl_was minus loss=ce"
    assert cell.paired.differences.mean == pytest.approx(0.2)
    assert cell.paired.differences.low == pytest.approx(0.2 - 4.302653 * 0.1 / 3**0.5)
    assert (cell.p, cell.holm) == (0.25, 0.25)
    mean, low, high = found.examples["loss=ntl_was", "loss=ce", "test/accuracy"]
    assert mean == pytest.approx(0.25)  # one of four
    assert low == 0.0 < high
    assert warnings == []


def test_p_is_corrected_for_every_comparison_that_is_shown(made) -> None:
    runs = [made(loss, seed, 0.5 + step * seed) for loss, step in (("ce", 0), ("ntl_was", 0.1)) for seed in (1, 2, 3)]
    ((found,), _) = compare(runs, ["test/accuracy", "test/mae"])
    assert [cell.holm for cell in found.block.differences[0].cells] == [0.5, 0.5]


def test_labels_name_what_differs_and_no_more(made) -> None:
    runs = [made("ce", 1, 0.5), made("ntl_was", 1, 0.5, weight=0.3), made("ntl_was", 2, 0.5, weight=0.8)]
    assert [*labels(runs).values()] == ["loss=ce", "loss=ntl_was, loss.weight=0.3", "loss=ntl_was, loss.weight=0.8"]
    assert set(labels([*runs[:1], made("ce", 2, 0.5)]).values()) == {""}


def test_other_test_data_is_never_subtracted(made) -> None:
    runs = [made("ce", 1, 0.5), made("ntl_was", 1, 0.5, data={"files": {**FILES, "test.jsonl": "c"}})]
    ((found,), warnings) = compare(runs)
    assert found.block.differences == ()
    assert warnings == ["loss=ntl_was and loss=ce: other test data (test.jsonl), so there is no difference."]


def test_other_training_data_is_a_warning(made) -> None:
    runs = [made("ce", 1, 0.5), made("ntl_was", 1, 0.5, data={"files": {**FILES, "train.jsonl": "c"}})]
    ((found,), warnings) = compare(runs)
    assert len(found.block.differences) == 1
    assert warnings == ["loss=ntl_was and loss=ce: the same test data, but other train.jsonl."]


def test_no_common_seed_and_other_code_are_warnings(made) -> None:
    _, warnings = compare([made("ce", 1, 0.5), made("ntl_was", 2, 0.5, git={"commit": "abc", "dirty": True})])
    assert warnings == [
        "The runs have different commits of the code: 0123456789, abc.",
        "1 of 2 runs are of code with uncommitted changes.",
        "loss=ntl_was and loss=ce: no seed in common, so there is no difference.",
    ]


def test_data_sets_are_compared_apart(made) -> None:
    other = made("ce", 1, 0.5, id="other")
    other.config["dataset"] = {"name": "arithmetic"}
    found, _ = compare([made("ce", 1, 0.5), made("ntl_was", 1, 0.5), other])
    assert [(each.block.title, len(each.block.rows)) for each in found] == [("noisy_numbers", 2), ("arithmetic", 1)]


def test_the_same_run_twice_and_a_metric_that_no_run_has(made) -> None:
    with pytest.raises(UserError, match=r"ce-0\.3-s1 and copy have the same settings and the same seed 1"):
        compare([made("ce", 1, 0.5), made("ce", 1, 0.6, id="copy")])
    with pytest.raises(UserError, match="--metric test/bleu: none of these runs has it; choose from test/count"):
        columns_of([made("ce", 1, 0.5)], ["test/bleu"])


def test_as_a_command(made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run in (made("ce", 1, 0.5), made("ntl_was", 1, 0.75)):
        write_record(tmp_path / run.id / "record.json", run)
    words = ["ntl_was-0.3-s1", str(tmp_path / "ce-0.3-s1"), "--outputs", str(tmp_path)]
    main([*words, "--json", "--metric", "test/accuracy"])
    printed = json.loads(capsys.readouterr().out)
    (difference,) = printed["differences"]
    assert (difference["row"], difference["against"]) == ("loss=ce", "loss=ntl_was")
    assert difference["by_seed"]["values"] == [-0.25]
    main([*words, "--json", "--against", "ce-0.3-s1"])
    assert json.loads(capsys.readouterr().out)["differences"][0]["against"] == "loss=ce"
    main([str(tmp_path)])
    printed = capsys.readouterr().out
    assert "Differences, noisy_numbers" in printed
    assert "+0.250 1/1" in printed
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "config.yaml").write_text("")
    with pytest.raises(UserError, match=r"unfinished has no record\.json: the run has not ended"):
        main(["unfinished", *words])


def test_a_sweep_names_the_runs_that_have_no_record(made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made("ce", 1, 0.5)
    write_record(tmp_path / run.id / "record.json", run)
    show_sweep([tmp_path / run.id, tmp_path / "failed", tmp_path / run.id])
    printed = capsys.readouterr().out
    assert "noisy_numbers, n = 1 seed" in printed
    assert printed.splitlines()[-1] == "1 of 2 runs have no record: failed"
