"""The values of the environment that are secrets, and their replacements."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.system.secrets import print_traceback, redact, redacted

# Characters that users can type between :// and the host, encoded or not.
LOGINS = st.text(string.ascii_letters + string.digits + "-._~!$&'()*+,;=:%/", min_size=1, max_size=30)
HOSTS = st.sampled_from(["host", "host.example:8080", "127.0.0.1:9"])
NAMES = dict.fromkeys(("WANDB_API_KEY", "hf_token", "PG_PASSWORD", "MY_SECRET"), True)
NAMES |= dict.fromkeys(("TOKENIZERS_PARALLELISM", "KEYBOARD", "MONKEY"), False)


def test_a_secret_becomes_the_name_of_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, is_secret in NAMES.items():
        with monkeypatch.context() as patch:
            patch.setenv(name, "0123456789abcdef")
            patch.setenv("SOME_KEY", "noisy")  # a word
            assert redact("key=0123456789abcdef!") == (f"key=<{name}>!" if is_secret else "key=0123456789abcdef!")
            assert redact("noisy") == "noisy"
    monkeypatch.setenv("A_KEY", "0123456789ab")
    monkeypatch.setenv("B_KEY", "0123456789ab-more")
    assert redact("0123456789ab-more 0123456789ab") == "<B_KEY> <A_KEY>"


URLS = {
    "https://hf_abcdefgh@host/owner/name": "https://<login>@host/owner/name",
    "https://me:p/a/ss@host/x": "https://<login>@host/x",
    "https://me:p#a?s@s@host/x": "https://<login>@host/x",
    "git+ssh://me:pass@host and http://you:pass@host": "git+ssh://<login>@host and http://<login>@host",
    **{
        same: same
        for same in ("https://host/owner/name@main", "https://host?mail=me@host", "http://host:80/a, me@host")
    },
}


def test_what_stands_before_a_host() -> None:
    assert {url: redact(url) for url in URLS} == URLS


@given(user=LOGINS.map(lambda text: text.replace("/", "")), password=LOGINS, host=HOSTS)
def test_no_login_is_left_of_any_url(user: str, password: str, host: str) -> None:
    assert redact(f"see https://{user}:{password}@{host}/x for more") == f"see https://<login>@{host}/x for more"
    if user:
        assert redact(f"see https://{user}@{host}/x for more") == f"see https://<login>@{host}/x for more"


def test_texts_of_a_config_and_a_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    config = {"a": {"b": ["x 0123456789abcdef", 1, None, True]}, "c": "0123456789abcdef y", "d": 2.5}
    assert redacted(config) == {"a": {"b": ["x <WANDB_API_KEY>", 1, None, True]}, "c": "<WANDB_API_KEY> y", "d": 2.5}
    try:
        raise ValueError("bad 0123456789abcdef")
    except ValueError:
        print_traceback()
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last)")
    assert said.endswith("ValueError: bad <WANDB_API_KEY>\n")
