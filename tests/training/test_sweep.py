"""The end of a sweep."""

import pytest


@pytest.mark.slow
def test_a_sweep_ends_with_the_comparison_of_its_runs(settings, command) -> None:
    """Also where a run of it cannot be: its error comes last, with its exit code."""
    done = command("train.py", "-m", *settings("loss=ce,ntl_was,mse"))
    assert (done.returncode, done.stderr.splitlines()[-1][:17]) == (2, "error: model=gpt2")
    printed = done.stdout[done.stdout.rindex("Record: ") :]
    assert "noisy_numbers, n = 1 seed" in printed
    assert "loss=ce " in printed
    assert "loss=ntl_was minus" in printed
