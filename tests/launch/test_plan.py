import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ntl.config import UserError, compose, run_id
from ntl.launch.plan import Run, plan_runs

NOISY = ["dataset=noisy_numbers", "loss=ce"]


def test_each_run_once_and_those_with_a_record_apart(tmp_path: Path) -> None:
    done = tmp_path / run_id(compose([*NOISY, "seed=2"]))
    done.mkdir()
    (done / "record.json").write_text("{}")
    todo, have = plan_runs([[*NOISY, "seed=1"], [*NOISY, "seed=2"], ["seed=1", *NOISY]], tmp_path)
    assert [run.label for run in todo] == ["noisy_numbers ce seed 1"]
    assert [run.folder for run in have] == [done]
    assert todo[0].folder == tmp_path / run_id(compose([*NOISY, "seed=1"]))


def test_the_order_given_and_a_base_right_before_the_first_run_that_begins_from_it(tmp_path: Path) -> None:
    def arm(seed: int, loss: str) -> list[str]:
        return ["dataset=noisy_numbers", f"loss={loss}", f"seed={seed}", "base='loss=ce trainer.max_steps=9@9'"]

    bases = [[*NOISY, f"seed={seed}", "trainer.max_steps=9"] for seed in (1, 2)]
    long = [*NOISY, "seed=3", "trainer.max_steps=90"]
    arms = [arm(seed, loss) for seed in (1, 2) for loss in ("ce", "ntl_was")]
    todo, _ = plan_runs([*bases, *arms, long], tmp_path)
    ids = [run_id(compose(overrides)) for overrides in (bases[0], *arms[:2], bases[1], *arms[2:], long)]
    assert [run.id for run in todo] == ids


def test_the_model_is_named_where_there_are_several(tmp_path: Path) -> None:
    todo, _ = plan_runs([[*NOISY, "model=gpt2_tiny"], [*NOISY, "model=t5_tiny"]], tmp_path)
    assert sorted(run.label for run in todo) == ["noisy_numbers gpt2_tiny ce seed 1", "noisy_numbers t5_tiny ce seed 1"]


@pytest.mark.parametrize("name", ["a b", "a,b=c", "it's [x]{y}", "dots..and%"])
def test_any_folder_name_reaches_the_config(tmp_path: Path, name: str) -> None:
    (run,), _ = plan_runs([NOISY], tmp_path / name)
    assert run.folder.parent == tmp_path / name
    assert compose(run.overrides).output_dir == str(tmp_path / name)


def test_without_a_folder_the_overrides_stay_as_they_are() -> None:
    (run,), _ = plan_runs([[*NOISY, "seed=4294967295"]])
    assert run.overrides == (*NOISY, "seed=4294967295")
    assert run.folder.parent == Path("outputs")


def test_an_illegal_run_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        plan_runs([[*NOISY, "trainer.lr=-1"]], tmp_path)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("", 0),
        ('{"step": 25, "loss": 1.0}\n{"step": 50, "loss": 0.9}\n', 50),
        ('{"step": 25}\n{"step": 5', 25),
        ('{"step": 25}\n{"note": "no step"}\n[1]\n', 25),
        ("x" * 9000 + '\n{"step": 75}\n', 75),
        ("not json\n", 0),
    ],
)
def test_step_is_the_last_whole_line_with_one(make_run: Callable[..., Run], text: str, step: int) -> None:
    run = make_run()
    (run.folder / "metrics.jsonl").write_text(text)
    assert run.step(since=0.0) == step


def test_step_of_an_earlier_attempt_does_not_count(make_run: Callable[..., Run]) -> None:
    run = make_run()
    assert run.step(since=0.0) == 0  # no file
    path = run.folder / "metrics.jsonl"
    path.write_text('{"step": 25}\n')
    os.utime(path, (1000.0, 1000.0))
    assert run.step(since=1001.0) == 0
    assert run.step(since=999.0) == 25


def test_a_place_with_a_dollar_is_that_place(tmp_path: Path) -> None:
    """Hydra would take it for an interpolation, and the runs would go where nobody looks."""
    with pytest.raises(UserError, match=r"^output_dir=.*/\$\{seed\}: .* write the value"):
        plan_runs([["dataset=noisy_numbers", "seed=1"]], tmp_path / "${seed}")
