"""`make report`: a page that needs no network, gives the same bytes each time, and shows every text as text."""

import gzip
import json
import os
import re
import struct
import subprocess
import sys
from base64 import b64decode, b64encode
from dataclasses import replace
from hashlib import sha256
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from matplotlib.figure import Figure
from pages import chapter

from ntl.config import UserError
from ntl.results import RunRecord, read_record
from ntl.results.claims import Claim, Comparison, load_claims
from ntl.results.figures.make_figures import page
from ntl.results.figures.style import Drawing
from ntl.results.report.make_report import (
    DIGITS,
    EXAMPLES,
    RESULTS,
    SCRIPTS,
    Picture,
    _static,
    environment,
    main,
    read_pictures,
    render,
)

ROOT = RESULTS.parent
PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", 1080, 416) + b"rest"
PICTURES = [Picture("figure", "A figure", "Its caption.", PNG)]


@pytest.mark.slow
def test_the_report_of_the_published_records_without_torch(tmp_path: Path) -> None:
    words = ["make_report.py", "--out", str(tmp_path / "report.html")]
    code = (
        "import runpy, sys; sys.modules['torch'] = sys.modules['transformers'] = sys.modules['matplotlib'] = None; "
        f"sys.argv = {words!r}; runpy.run_path({str(ROOT / 'scripts' / 'make_report.py')!r}, run_name='__main__')"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    records = list((RESULTS / "runs").rglob("*.json"))
    assert text.count('<tbody class="run"') == len(records)
    assert len(text) < 5_000_000
    assert re.findall(r"[\s\"'=]/(?:home|root|tmp|opt|var|mnt|work|Users)/[^\s\"<]*", text) == []
    assert str(ROOT) not in text


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--records .*no such folder"):
        main(["--records", str(tmp_path / "none"), "--out", str(tmp_path / "report.html")])
    assert not (tmp_path / "report.html").exists()


def test_without_records_the_explorer_and_the_figures_are_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").mkdir()
    out = tmp_path / "report.html"
    main(["--records", str(tmp_path / "runs"), "--out", str(out)])
    assert capsys.readouterr().out.split() == [str(out)]
    text = out.read_text(encoding="utf-8")
    assert "Computed from 0 run records" in text
    assert 'id="weight-0"' in text
    assert 'id="figure1b"' in text


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


class _Texts(HTMLParser):
    """The tags of a page, and its texts in attributes and elements."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.texts += [value for _, value in attrs if value is not None]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


TEMPLATE = environment().from_string('<p title="{{ text }}">{{ text }}</p>')


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"])).filter(str.strip))
def test_any_text_comes_back_as_it_was(text: str) -> None:
    parser = _Texts()
    parser.feed(TEMPLATE.render(text=text))
    parser.close()
    assert parser.tags == ["p"]
    assert parser.texts[0] == text
    assert "".join(parser.texts[1:]) == text


def _unpacked(text: str) -> Any:
    return json.loads(gzip.decompress(b64decode(text)))


def test_data_cannot_end_its_script() -> None:
    template = environment().from_string("<script>{{ data | packed }}</script>")
    value = {"</script><!--": ["<script>", "é\u2028", None, 1.5]}
    inner = re.fullmatch(r"<script>([^<]*)</script>", template.render(data=value))
    assert inner is not None
    assert _unpacked(inner[1]) == value
    with pytest.raises(ValueError):  # NaN, for which JSON has no word
        template.render(data=float("nan"))


def test_a_name_that_a_template_lacks_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        environment().from_string("{{ missing }}").render()


def test_the_names_of_a_record_are_text(arithmetic_record) -> None:
    name = "<script>alert('a run')</script>"
    record = arithmetic_record("ce", 1, {"interpolate/mae": 1.0}, id=name, overrides=[f"loss={name}"])
    record.config["dataset"]["name"] = record.config["scale"]["note"] = name
    text = render([record], [Picture("a", name, name, PNG)], ["table2"])
    assert "<script>alert" not in text
    parser = _Texts()
    parser.feed(text)
    assert parser.tags.count("script") == 2
    assert parser.texts.count(name) >= 5  # a run's line: id, data set; a figure: title, alternative text, caption
    (data,) = re.findall(r'<script type="text/plain" id="report-data">(.*)</script>', text)
    assert _unpacked(data)["runs"][name]["overrides"] == [f"loss={name}"]


def test_claims_come_first_where_there_are_any(some_records: list[RunRecord]) -> None:
    without = render(some_records, [], ["table2"])
    assert 'id="claims"' not in without
    assert 'href="#claims"' not in without
    whole = render(some_records, [])
    assert re.findall(r'<section id="(\w+)"', whole) == ["claims", "findings", "tables", "figures", "explorer", "runs"]
    assert '<a href="#claims">Claims</a>' in whole
    assert all(f'<th scope="row">{escape(claim.text).replace("&#x27;", "&#39;")}<' in whole for claim in load_claims())


def test_it_begins_with_the_finding_of_models_that_have_learnt(some_records: list[RunRecord]) -> None:
    assert 'id="opening"' not in render(some_records, [], ["table2"])
    learnt = [read_record(path) for path in sorted((RESULTS / "runs").glob("arithmetic-llama_mini-*.json"))]
    text = render(learnt, [replace(PICTURES[0], name="hour_losses")], ["table2"])
    (opening,) = re.findall(r'<p id="opening">(.*?)</p>', text, re.DOTALL)
    assert text.index('id="opening"') < text.index('id="findings"')
    assert re.search(r"scale=hour: <strong>.*NTL-WAS, λ = 0.3.* and CE \+ digit CE \(control\).*</strong>", opening)
    assert '<a href="#hour_losses">' in opening


def test_a_claim_has_its_verdict_and_the_evidence_that_was_run() -> None:
    spec = replace(load_claims()[0], text="NTL costs < nothing")
    ran = Comparison("tiny", "Table 2", "", "CE & more", "-1.0, n = 3", None, "too few seeds")
    text = (
        environment()
        .get_template("findings.html")
        .render(
            claims=[Claim(spec, (ran, replace(ran, text=""))), Claim(spec, ())],
            tables=[],
            groups={},
            group_meanings={},
            by_scale={},
        )
    )
    assert re.findall(r'<th scope="row">(NTL [^<]+?)\s*<.*?<strong>(\w+)</strong></td>', text) == [
        ("NTL costs &lt; nothing", "undecided"),
        ("NTL costs &lt; nothing", "untested"),
    ]
    assert "evidence: 1 result</summary><ul><li>Table 2 tiny: CE &amp; more: -1.0, n = 3</li></ul>" in text
    assert text.count("<details") == 1


def test_pictures_are_those_of_the_page_that_make_figures_writes(tmp_path: Path) -> None:
    drawings = [
        Drawing("figure1b", "Figure 1b: a < b", Figure(), "One [unit], 5 %.", ("pdf", "png")),
        Drawing("other", "Other", Figure(), "Two. Sentences.", ("pdf", "png", "svg")),
    ]
    (tmp_path / "README.md").write_text(page(drawings), encoding="utf-8")
    for drawing in drawings:
        (tmp_path / f"{drawing.name}.png").write_bytes(PNG)
    expected = [Picture(drawing.name, drawing.title, drawing.caption, PNG) for drawing in drawings]
    assert read_pictures(tmp_path) == expected


def test_every_committed_picture_is_found() -> None:
    names = {picture.name for picture in read_pictures(RESULTS / "figures")}
    assert names == {path.stem for path in (RESULTS / "figures").glob("*.png")}


def test_a_missing_picture_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"README\.md: cannot be read .*make figures"):
        read_pictures(tmp_path)
    (tmp_path / "README.md").write_text(page([Drawing("a", "A", Figure(), "B.")]), encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.png: cannot be read"):
        read_pictures(tmp_path)


def test_a_picture_is_in_the_page_with_its_size_and_escaped_words() -> None:
    text = chapter("figures", [], ["table2"], [Picture("a", "A < B", "C & <script>", PNG)])
    assert f'src="data:image/png;base64,{b64encode(PNG).decode()}" alt="A &lt; B" width="1080" height="416"' in text
    assert "<figcaption>C &amp; &lt;script&gt;</figcaption>" in text


def test_every_input_has_a_label() -> None:
    text = chapter("explorer", [])
    assert re.findall(r'<label for="(weight-\d)">', text) == [f"weight-{digit}" for digit in range(DIGITS)]
    assert set(re.findall(r'<input type="range" id="([^"]+)"', text)) == {f"weight-{digit}" for digit in range(DIGITS)}
    assert len(re.findall(r'<label><input type="radio" name="label"', text)) == DIGITS


def test_it_starts_where_the_losses_differ() -> None:
    first, second = EXAMPLES[:2]
    assert first.label == second.label == 4
    assert first.weights == (49.0, 0, 0, 0, 2.0, 0, 0, 0, 49.0, 0)
    assert second.weights == (50.0, 0, 0, 0, 0, 0, 0, 0, 50.0, 0)  # the paper's, where CE is infinite
    text = chapter("explorer", [])
    assert text.count("data-example=") == len(EXAMPLES)
    # What stands there before the script runs is the same.
    sliders = re.findall(r'id="weight-(\d)" min="0" max="100" step="1" value="(\d+)"', text)
    assert [(int(digit), float(weight)) for digit, weight in sliders] == list(enumerate(EXAMPLES[0].weights))
    shown = re.findall(r"<output for=\"weight-\d\"[^>]*>([^<]+)<", text)
    assert [float(percent.removesuffix(" %")) for percent in shown] == list(EXAMPLES[0].weights)
    assert 'type="checkbox" id="one-scale" checked' in text


def test_figure_1b_has_its_probabilities() -> None:
    (weights,) = [each.weights for each in EXAMPLES if each.name.startswith("Figure 1b")]
    # softmax of a logit of 5 and nine of 0.01: 1 / (1 + 9 e^-4.99)
    assert weights[8] / sum(weights) == pytest.approx(0.942284, abs=1e-6)
