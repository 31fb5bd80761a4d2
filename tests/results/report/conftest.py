"""Records that fill rows of Table 2 at scale=tiny, whose metrics a test may choose; and pages in a real browser."""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from ntl.results import RunRecord, load_records
from ntl.results.report.make_report import RESULTS, read_pictures, render

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"


@pytest.fixture(scope="session")
def arithmetic_record() -> Callable[..., RunRecord]:
    def make(loss: str, seed: int, metrics: dict[str, float | None], **changes: Any) -> RunRecord:
        names = {"dataset": "arithmetic", "scale": "tiny", "model": "llama_tiny", "tokenizer": "digit"}
        config: dict[str, Any] = {group: {"name": name} for group, name in names.items()}
        config["beside"] = {"expectation": {"name": "expectation"}}
        config["loss"] = {"name": loss, "weight": 0.3, "number": None if loss == "ce" else {"options": {}}}
        values: dict[str, Any] = {
            "id": f"arithmetic-{loss}-s{seed}",
            "overrides": [f"loss={loss}", f"seed={seed}"],
            "config": config,
            "seed": seed,
            "metrics": metrics,
            "git": {"commit": "0123456789", "dirty": False},
            "device": "cpu",
        }
        return RunRecord(**{**values, **changes})

    return make


@pytest.fixture(scope="session")
def some_records(arithmetic_record: Callable[..., RunRecord]) -> list[RunRecord]:
    """Three seeds of CE, three of NTL-WAS under three rules, and a run whose every text would be a script."""
    records = [
        arithmetic_record("ce", seed, {"interpolate/accuracy": 0.3 + seed / 100, "interpolate/mae": 2.0 * seed})
        for seed in (1, 2, 3)
    ]
    for seed in (1, 2, 3):
        under = {
            "interpolate/accuracy": 0.5,
            "interpolate/accuracy@paper": 0.6,
            "interpolate/accuracy@expectation": 0.7,
        }
        exact = {name: value + seed / 100 for name, value in under.items()}
        curves = {"ce": [[1, 2.0], [2, None], [3, 1.0], [4, 0.5]], "eval_ce": [[4, 0.7]], "loss": [[1, 2.5], [4, 2.5]]}
        records.append(arithmetic_record("ntl_was", seed, exact, curves=curves, steps=4))
    strange = {HOSTILE: 1.0, "test/accuracy": 0.25}
    records.append(
        RunRecord(
            id=f"z{HOSTILE}",
            overrides=[f"dataset={HOSTILE}"],
            config={"dataset": {"name": HOSTILE}, "model": {HOSTILE: HOSTILE}},
            seed=1,
            metrics=strange,
            curves={HOSTILE: [[1, 1.0], [2, 2.0]]},
            device=HOSTILE,
        )
    )
    return records


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if executable is None:
        (pytest.fail if os.environ.get("NTL_REQUIRE_BROWSER") else pytest.skip)("no Chromium or Chrome is installed")
    with sync_playwright() as playwright:
        # A container has no sandbox of its own kind to offer; the page is ours.
        launched = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def file_of(tmp_path_factory: pytest.TempPathFactory, some_records: list[RunRecord]) -> Callable[[str], Path]:
    """The page ``some``: Table 2 from ``some_records``; and ``all``: every published record and every table."""
    folder = tmp_path_factory.mktemp("report")

    @cache
    def written(name: str) -> Path:
        pictures = read_pictures(RESULTS / "figures")
        everything = [*load_records([RESULTS / "runs"]), some_records[-1]]
        text = render(some_records, pictures, ["table2"]) if name == "some" else render(everything, pictures)
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
        return folder / f"{name}.html"

    return written


@pytest.fixture
def open_page(browser: Browser, file_of: Callable[[str], Path]) -> Iterator[Callable[..., Page]]:
    """Opens a page; when the test ends, nothing may have been complained about or asked of a network."""
    complaints: list[str] = []
    contexts = []

    def opened(name: str = "some", width: int = 1280, **options: Any) -> Page:
        contexts.append(browser.new_context(viewport={"width": width, "height": 800}, **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on(
            "request", lambda made: None if made.url.startswith(("file:", "data:")) else complaints.append(made.url)
        )
        page.goto(file_of(name).as_uri())
        page.wait_for_function("document.getElementById('run-count').textContent")  # the data are unpacked
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
