"""The page in a real Chromium: switches, runs, phone and keyboard, and no complaint of the browser."""

from collections.abc import Callable
from io import BytesIO

import pytest
from PIL import Image
from playwright.sync_api import Page

from ntl.results.report.make_report import RESULTS, read_pictures

# Each opens a browser.
pytestmark = pytest.mark.slow

Opener = Callable[..., Page]
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


def cell(page: Page, row: str) -> str:
    return page.locator("#table2-tiny tbody tr").filter(has_text=row).locator("td").first.inner_text()


def test_switches_change_the_cells(open_page: Opener) -> None:
    page = open_page()
    row = "NTL-WAS, λ = 0.3"
    shown = {}
    for rule in ("default", "paper", "expectation"):
        page.check(f"input[name=rule][value={rule}]")
        for view in ("ours", "paper", "difference"):
            page.check(f"input[name=view][value={view}]")
            shown[rule, view] = cell(page, row).split("\n")[0]
    assert shown == {
        ("default", "ours"): "0.520 ± 0.010",
        ("default", "paper"): "0.43 ± 0.05",
        ("default", "difference"): "+0.090",
        ("paper", "ours"): "0.620 ± 0.010",
        ("paper", "paper"): "0.43 ± 0.05",
        ("paper", "difference"): "+0.190",
        ("expectation", "ours"): "0.720 ± 0.010",
        ("expectation", "paper"): "0.43 ± 0.05",
        ("expectation", "difference"): "+0.290",
    }
    page.check("input[name=view][value=all]")
    # The style's words stand in no text: ours with its interval, the paper's, the difference.
    assert cell(page, row).split("\n") == ["0.720 ± 0.010", "[0.695, 0.745]", "0.43 ± 0.05", "+0.290"]
    assert page.locator("#table2-tiny tbody tr").nth(0).locator("td").first.inner_text().split("\n")[0] == "-"


def press_until(page: Page, key: str, reached: str, most: int = 100) -> None:
    for _ in range(most):
        if page.evaluate(f"document.activeElement.matches({reached!r})"):
            return
        page.keyboard.press(key)
    raise AssertionError(f"{most} times {key} do not reach {reached}")


def test_the_keyboard_turns_the_switches(open_page: Opener) -> None:
    page = open_page()
    press_until(page, "Tab", "input[name=view]")
    page.keyboard.press("ArrowRight")
    assert cell(page, "NTL-WAS, λ = 0.3") == "0.43 ± 0.05"
    press_until(page, "Tab", "input[name=rule]")
    page.keyboard.press("ArrowRight")
    assert page.locator("#tables").get_attribute("data-rule") == "paper"
    press_until(page, "Tab", "input[name=label]")
    page.keyboard.press("ArrowRight")
    assert "label 5" in page.inner_text("#explorer-says")


def order(page: Page) -> list[str]:
    return [
        row.split("\t")[0]
        for row in page.locator("#run-list .run > tr:first-child > td:nth-child(11)").all_inner_texts()
    ]


def test_the_keyboard_sorts_and_opens_runs(open_page: Opener) -> None:
    page = open_page()
    button = page.locator("#run-list th button", has_text="accuracy")
    button.focus()
    page.keyboard.press("Enter")
    head = page.locator("#run-list th", has_text="accuracy")
    assert head.get_attribute("aria-sort") == "ascending"
    rising = ["0.25", "0.31", "0.32", "0.33", "0.51", "0.52", "0.53"]
    assert order(page) == rising
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "descending"
    assert order(page) == rising[::-1]
    page.locator("#run-list th button", has_text="λ").click()
    assert head.get_attribute("aria-sort") == "none"
    weights = page.locator("#run-list .run > tr:first-child > td:nth-child(5)").all_inner_texts()
    assert weights == ["0.3"] * 3 + ["-"] * 4  # what has no value stands last
    page.locator("#run-list th button", has_text="λ").click()
    assert page.locator("#run-list .run > tr:first-child > td:nth-child(5)").last.inner_text() == "-"
    page.locator("#run-list summary").first.focus()
    page.keyboard.press("Enter")
    body = page.locator(".run details[open] .run-body").first
    body.wait_for()
    assert "python train.py loss=ntl_was" in body.inner_text()
    labels = [chart.get_attribute("aria-label") for chart in body.locator("svg").all()]
    assert labels == ["ce: 2 at step 1, 0.5 at step 4", "loss: 2.5 at step 1, 2.5 at step 4"]
    assert body.locator("svg .line").first.get_attribute("d").count("M") == 2  # a gap where a value is missing
    assert "eval_ce 0.7 at step 4" in body.inner_text()
    body.get_by_text("Metrics").click()
    assert body.locator("thead tr").inner_text().split() == ["metric", "expectation", "ours", "paper"]
    seeds = {"0.71 0.51 0.61", "0.72 0.52 0.62", "0.73 0.53 0.63"}
    name, _, values = " ".join(body.locator("tbody tr").inner_text().split()).partition(" ")
    assert name == "interpolate/accuracy"
    assert values in seeds


def test_the_search_needs_every_word(open_page: Opener) -> None:
    page = open_page()
    page.fill("#run-filter", "NTL_was seed=2")
    assert page.inner_text("#run-count") == "1 of 7 runs"
    assert page.locator(".run:visible").count() == 1
    page.fill("#run-filter", "")
    assert page.inner_text("#run-count") == "7 of 7 runs"


def test_what_a_record_says_stays_text(open_page: Opener) -> None:
    page = open_page()
    page.fill("#run-filter", "window.hacked")
    page.locator(".run:visible summary").first.click()
    body = page.locator(".run details[open] .run-body").first
    body.wait_for()
    for summary in body.locator("summary").all():
        summary.click()
    assert body.inner_text().count("<script>window.hacked=1</script>") >= 6
    assert page.evaluate("window.hacked") is None
    assert page.locator("img[src=x]").count() == 0


def test_a_phone_needs_no_sideways_scrolling(open_page: Opener) -> None:
    page = open_page("all", width=360)
    assert page.evaluate(FITS)
    for view, rule in (("all", "default"), ("all", "paper"), ("difference", "expectation")):
        page.check(f"input[name=view][value={view}]")
        page.check(f"input[name=rule][value={rule}]")
        assert page.evaluate(FITS), (view, rule)
    page.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
    page.locator(".run-body svg").last.wait_for()
    assert page.evaluate(FITS)
    # The wide ones scroll within their box.
    boxes = "[...document.querySelectorAll('.scroll')].some((box) => box.scrollWidth > box.clientWidth)"
    assert page.evaluate(boxes)


def test_the_findings_are_one_screen_and_the_runs_begin_within_eight(open_page: Opener) -> None:
    page = open_page("all", width=1400)
    page.set_viewport_size({"width": 1400, "height": 900})
    findings, runs = (page.locator(name).bounding_box() for name in ("#findings", "#runs"))
    assert findings is not None
    assert findings["height"] <= 900
    assert runs is not None
    assert runs["y"] <= 8 * 900


def test_a_link_unfolds_its_table(open_page: Opener) -> None:
    page = open_page("all")
    links = page.locator("#findings li a")
    places = [str(link.get_attribute("href")) for link in links.all()]
    place = next(place for place in places if not page.locator(f"{place} table").first.is_visible())
    page.click(f'#findings a[href="{place}"]')
    page.locator(f"{place} table").first.wait_for()
    box = page.locator(place).bounding_box()
    assert box is not None
    assert 0 <= box["y"] < 300


def test_paper_has_what_is_folded(open_page: Opener) -> None:
    page = open_page("all")
    folded = "[...document.querySelectorAll('#tables article > details:not([open]) > div')]"
    seen = f"{folded}.filter((part) => part.checkVisibility({{contentVisibilityAuto: true}})).length"
    assert page.evaluate(seen) == 0
    assert page.evaluate(f"{folded}.length") > 5
    page.emulate_media(media="print")
    for _ in range(100):  # the page is laid out anew; its policy lets no string be evaluated in it again and again
        if page.evaluate(f"{seen} === {folded}.length"):
            return
        page.wait_for_timeout(50)
    pytest.fail("not all that is folded is on paper")


def edge(page: Page) -> list[int]:
    """How dark the middle of a box is at its left and at its right edge, 255 being its ground."""
    box = page.locator("#table2-tiny .scroll").first
    image = Image.open(BytesIO(box.screenshot())).convert("L")
    return [
        min(int(image.getpixel((x + inner, image.height // 2 + y))) for inner in (0, 1) for y in range(-9, 10, 3))
        for x in (0, image.width - 2)
    ]


def test_a_wide_table_shows_that_it_scrolls(open_page: Opener) -> None:
    page = open_page(width=400)
    scroll = "(x) => (document.querySelector('#table2-tiny .scroll').scrollLeft = x)"
    assert page.evaluate("document.querySelector('#table2-tiny .scroll').scrollWidth") > 500
    beginning = edge(page)
    assert beginning[1] < 230  # a shadow: more to the right
    first = page.locator("#table2-tiny tbody tr:first-child > th").first
    at = first.bounding_box()
    page.evaluate(scroll, 10_000)
    assert first.bounding_box() == at  # what a row is called stays
    assert edge(page)[1] > 240


def test_tables_need_no_script(open_page: Opener) -> None:
    page = open_page(java_script_enabled=False)
    assert cell(page, "NTL-WAS, λ = 0.3").split("\n") == ["0.520 ± 0.010", "[0.495, 0.545]"]
    page.locator("#table2-tiny summary", has_text="Rows against each other").first.click()
    assert page.locator("#table2-tiny details[open] table").count() == 1


def test_every_figure_is_shown_and_every_input_named(open_page: Opener) -> None:
    page = open_page("all")
    widths = page.evaluate("[...document.images].map((image) => image.naturalWidth)")
    assert len(widths) == len(read_pictures(RESULTS / "figures"))
    assert min(widths) > 100
    assert page.evaluate("[...document.querySelectorAll('input')].filter((input) => !input.labels.length).length") == 0
    assert page.evaluate(FITS)


def test_dark_where_the_user_wants_it(open_page: Opener) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    assert open_page(color_scheme="light").evaluate(ground) == "rgb(255, 255, 255)"
    assert open_page(color_scheme="dark").evaluate(ground) == "rgb(20, 23, 26)"
