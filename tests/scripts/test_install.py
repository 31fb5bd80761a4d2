import runpy
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
install = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "install.py")))


def test_the_environment_ranks_over_install_over_global() -> None:
    listing = """\
:env:.find-links='https://env.example/links'
global.cert='/certs/ca.pem'
global.find-links='https://global.example/links'
global.index-url='https://global.example/simple'
install.index-url="https://install.example/it's"
"""
    assert install.settings(listing) == {
        "cert": "/certs/ca.pem",
        "find-links": "https://env.example/links",
        "index-url": "https://install.example/it's",
    }


def test_uv_looks_where_pip_looks_but_at_local_places_that_do_not_exist(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    here, url, gone = str(tmp_path), (tmp_path / "a b").as_uri(), str(tmp_path / "gone")
    assert "%20" in url
    for told, options in (
        (
            {"find-links": f"{here} {gone} {url} file://{gone} https://x.example/y"},
            f"--find-links {here} --find-links {url} --find-links https://x.example/y",
        ),
        ({"index-url": "https://a"}, "--default-index https://a"),
        (
            {"extra-index-url": "https://b\nhttps://c"},
            "--index https://b --index https://c --index-strategy unsafe-best-match",
        ),
        ({"extra-index-url": "file:///no/such/place", "no-index": "0"}, ""),
        ({"trusted-host": "h", "no-index": "true"}, "--allow-insecure-host h --no-index"),
    ):
        assert install.uv_options(told) == options.split()


def test_uv_gets_certificate_proxy_and_timeout_unless_it_was_told_itself() -> None:
    config = {"cert": "/c", "proxy": "http://p", "default-timeout": "180"}
    told = {"SSL_CERT_FILE": "/mine", "HOME": "/h"}
    assert install.uv_environment(config, told) == {
        "SSL_CERT_FILE": "/mine",
        "HOME": "/h",
        "ALL_PROXY": "http://p",
        "UV_HTTP_TIMEOUT": "180",
    }
    assert install.uv_environment({"timeout": "9", "default-timeout": "180"}, {}) == {"UV_HTTP_TIMEOUT": "9"}


@pytest.mark.parametrize(
    ("statuses", "tools", "result"),
    [([0, 0], ["pip", "uv"], 0), ([1, 0], ["pip", "pip"], 0), ([0, 1, 1], ["pip", "uv", "pip"], 1)],
    ids=["with uv", "uv cannot be had", "both fail"],
)
def test_pip_does_it_where_uv_does_not(statuses: list[int], tools: list[str], result: int) -> None:
    commands: list[list[str]] = []

    def call(arguments: list[str], environment: dict[str, str]) -> int:
        commands.append(arguments)
        return statuses[len(commands) - 1]

    assert install.install(call, "") == result
    assert [command[0] for command in commands] == tools
    for command in commands[1:]:
        assert "torch==2.13.0" in command
        assert command[command.index("-c") + 1].endswith("constraints.txt")
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert set(command[-1].rpartition("[")[2].removesuffix("]").split(",")) == extras.keys()
    if tools[1] == "uv":
        assert commands[1][commands[1].index("--python") + 1] == sys.executable
