"""Which values of the environment are secrets, and what stands in their place."""

import pytest

from ntl.config.secrets import print_traceback, redact


@pytest.mark.parametrize(
    "name", ["WANDB_API_KEY", "HF_TOKEN", "hf_token", "AWS_SECRET_ACCESS_KEY", "PG_PASSWORD", "MY_SECRET", "KEY"]
)
def test_a_secret_becomes_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "0123456789abcdef")
    assert redact("key=0123456789abcdef!") == f"key=<{name}>!"


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "KEYBOARD", "HOME_X", "MONKEY"])
def test_other_values_stay(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "0123456789abcdef")
    assert redact("0123456789abcdef") == "0123456789abcdef"


def test_a_short_one_is_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "noisy")
    monkeypatch.setenv("NO_KEY", "")
    assert redact("noisy_numbers") == "noisy_numbers"


def test_the_longer_of_two_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "0123456789ab")
    monkeypatch.setenv("B_KEY", "0123456789ab-more")
    assert redact("0123456789ab-more 0123456789ab") == "<B_KEY> <A_KEY>"


def test_the_login_of_a_url() -> None:
    assert redact("http://me:pass@host:80/x:y@z") == "http://<login>@host:80/x:y@z"
    assert redact("http://host:80/a and me@host") == "http://host:80/a and me@host"


def test_a_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    try:
        raise ValueError("bad 0123456789abcdef")
    except ValueError:
        print_traceback()
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last)")
    assert said.endswith("ValueError: bad <WANDB_API_KEY>\n")
