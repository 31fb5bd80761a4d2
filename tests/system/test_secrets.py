"""The values of the environment that are secrets, and their replacements."""

import json
import string
from urllib.parse import quote, quote_plus, unquote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ntl.system.errors import print_traceback, redact, redacted

PRINTABLE = string.ascii_letters + string.digits + string.punctuation
SECRETS = st.text(PRINTABLE + "äß☃", min_size=12, max_size=40)
# Characters that users can type between :// and the host, encoded or not.
LOGINS = st.text(string.ascii_letters + string.digits + "-._~!$&'()*+,;=:%/", min_size=1, max_size=30)
HOSTS = st.sampled_from(["host", "host.example:8080", "127.0.0.1:9"])
PATCHED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize(
    ("name", "value", "is_secret"),
    [
        *((name, "0123456789abcdef", True) for name in ("WANDB_API_KEY", "hf_token", "PG_PASSWORD", "MY_SECRET")),
        *((name, "0123456789abcdef", False) for name in ("TOKENIZERS_PARALLELISM", "KEYBOARD", "MONKEY")),
        ("SOME_KEY", "noisy", False),  # a word
    ],
)
def test_a_secret_becomes_its_name(name: str, value: str, is_secret: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert redact(f"key={value}!") == (f"key=<{name}>!" if is_secret else f"key={value}!")


def test_the_longer_of_two_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "0123456789ab")
    monkeypatch.setenv("B_KEY", "0123456789ab-more")
    assert redact("0123456789ab-more 0123456789ab") == "<B_KEY> <A_KEY>"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:p#a?ss@host/x", "https://<login>@host/x"),
        ("git+ssh://me:pass@host and http://you:pass@host", "git+ssh://<login>@host and http://<login>@host"),
        ("https://host/owner/name@main", "https://host/owner/name@main"),
        ("https://host?mail=me@host", "https://host?mail=me@host"),
        ("http://host:80/a and me@host", "http://host:80/a and me@host"),
    ],
)
def test_what_stands_before_a_host(url: str, shown: str) -> None:
    assert redact(url) == shown


@PATCHED
@given(user=LOGINS.map(lambda text: text.replace("/", "")), password=LOGINS, host=HOSTS)
def test_no_login_is_left_of_any_url(user: str, password: str, host: str) -> None:
    assert redact(f"see https://{user}:{password}@{host}/x for more") == f"see https://<login>@{host}/x for more"
    if user:
        assert redact(f"see https://{user}@{host}/x for more") == f"see https://<login>@{host}/x for more"


SPELLINGS = {
    "as it is": str,
    "percent-encoded": lambda text: quote(text, safe=""),
    "percent-encoded but for slashes": quote,
    "as in a form": quote_plus,
    "in JSON": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "in repr": lambda text: repr(text)[1:-1],
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@PATCHED
@given(secret=SECRETS)
def test_a_secret_is_found_however_it_is_spelled(spelling: str, secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_TOKEN", secret)
    assert redact(f"[{SPELLINGS[spelling](secret)}]") == "[<PLANTED_TOKEN>]"


@PATCHED
@given(secret=SECRETS)
def test_a_variable_that_holds_a_secret_encoded(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = unquote(secret)
    if len(secret) >= 12:
        monkeypatch.setenv("PLANTED_TOKEN", quote(secret, safe=""))
        assert redact(f"[{secret}]") == "[<PLANTED_TOKEN>]"


def test_every_text_of_a_config_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_TOKEN", "0123456789abcdef")
    config = {"a": {"b": ["my 0123456789abcdef", 1, None, True]}, "d": 2.5}
    assert redacted(config) == {"a": {"b": ["my <PLANTED_TOKEN>", 1, None, True]}, "d": 2.5}


def test_a_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    try:
        raise ValueError("bad 0123456789abcdef")
    except ValueError:
        print_traceback()
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last)")
    assert said.endswith("ValueError: bad <WANDB_API_KEY>\n")
