"""The page as a file: self-contained, deterministic, and nothing in it that was not meant as markup."""

import re
from base64 import b64encode
from hashlib import sha256

from ntl.results import RunRecord
from ntl.results.report.figures import Picture
from ntl.results.report.page import SCRIPTS, _static, render

PICTURES = [Picture("figure", "A figure", "Its caption.", b"\x89PNG\r\n\x1a\n" + bytes(20))]


def test_same_records_give_the_same_bytes(some_records: list[RunRecord]) -> None:
    first = render(some_records, PICTURES, ["table2"])
    assert first == render(some_records, PICTURES, ["table2"])
    assert "\r" not in first


def test_every_chapter_is_there(some_records: list[RunRecord]) -> None:
    text = render(some_records, PICTURES, ["table2"])
    for name in ("findings", "tables", "figures", "explorer", "runs"):
        assert f'<a href="#{name}">' in text
        assert f'<section id="{name}"' in text
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r' href="#([^"]+)"', text)) <= set(ids)


def test_nothing_is_loaded_from_anywhere(some_records: list[RunRecord]) -> None:
    text = render(some_records, PICTURES, ["table2"])
    loaded = re.findall(r'<[a-z]+ [^>]*?\b(?:src|href|srcset|action)="([^"]*)"', text)
    assert loaded
    assert [url for url in loaded if not url.startswith(("data:", "#"))] == []
    assert re.findall(r"@import|\burl\(|\bfetch\(|\bimport\b|XMLHttpRequest", text) == []
    # The name of SVG is no address.
    assert set(re.findall(r"https?://[\w./]+", text)) == {"http://www.w3.org/2000/svg"}


def test_what_a_record_says_is_no_markup(some_records: list[RunRecord]) -> None:
    text = render(some_records, PICTURES, ["table2"])
    assert "window.hacked" in text
    assert "<script>window.hacked" not in text
    assert "<img src=x" not in text
    assert len(re.findall(r"<script\b", text)) == len(re.findall("</script>", text)) == 2


def test_only_the_pages_own_script_and_style_may_run(some_records: list[RunRecord]) -> None:
    text = render(some_records, PICTURES, ["table2"])
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    script = re.search(r'<script type="module">(.*)</script>', text, re.DOTALL)
    style = re.search(r"<style>(.*)</style>", text, re.DOTALL)
    assert policy is not None
    assert script is not None
    assert style is not None
    for found in (script, style):
        assert b64encode(sha256(found[1].encode()).digest()).decode() in policy[1]
    assert "unsafe" not in policy[1]
    words = re.findall(r"<[a-z]+((?: [\w-]+(?:=\"[^\"]*\")?)*)>", text[: script.start()])
    names = {name for word in words for name in re.findall(r" ([\w-]+)=\"[^\"]*\"", word)}
    assert "class" in names
    assert [name for name in names if name == "style" or name.startswith("on")] == []


def test_static_files_cannot_end_their_element() -> None:
    for name in (*SCRIPTS, "style.css"):
        text = _static(name)
        assert "</" not in text
        assert "<!--" not in text
        assert len(text.splitlines()) <= 300
        assert max(map(len, text.splitlines())) <= 120, name
