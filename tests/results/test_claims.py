from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.results.claims import CLAIMS, Whose, load_claims

ENTRY = "{table: quickstart, row: CE + digit CE (control), against: CE, metric: test/rmse_truth, says: better}"


def claims(tmp_path: Path, entry: str = ENTRY, kind: str = "evidence") -> Path:
    path = tmp_path / "claims.yaml"
    head = ["claims:", "  - name: it", "    text: It helps.", "    source: here", "    whose: ours"]
    path.write_text("\n".join([*head, f"    {kind}:", f"      - {entry}", ""]), encoding="utf-8")
    return path


def test_the_paper_makes_seven_claims_and_ours_say_where_the_gain_comes_from() -> None:
    found = load_claims()
    assert CLAIMS.name == "claims.yaml"
    assert [claim.name for claim in found if claim.whose is Whose.paper] == [
        "model-agnostic",
        "any vocabulary",
        "no overhead",
        "better on mathematics",
        "regression head",
        "no harm on text",
        "scales to 3B",
    ]
    ours = [claim.name for claim in found if claim.whose is Whose.ours]
    assert ours[:4] == ["tokenizer", "weight on digits", "distance", "decoding rule"]


def test_a_claim_is_one_entry(tmp_path: Path) -> None:
    (claim,) = load_claims(claims(tmp_path))
    assert (claim.evidence[0].table, claim.evidence[0].margin, claim.evidence[0].scales) == ("quickstart", 0.0, [])
    reading = ENTRY.replace("metric: test/rmse_truth", "metric: test/rmse_truth@median, against_metric: test/mae")
    assert load_claims(claims(tmp_path, reading))[0].evidence[0].metric == "test/rmse_truth@median"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("quickstart", "quikstart", ".table: no table 'quikstart': did you mean 'quickstart'?"),
        ("row: CE + digit CE (control)", "row: NTL", ".row: table 'quickstart' has no row 'NTL' that runs"),
        ("against: CE", "against: 'constant: mode'", ".against: table 'quickstart' has no row 'constant: mode' that"),
        ("says", "group: g, says", ".row: table 'quickstart' has no row 'CE + digit CE (control)' in the group 'g' th"),
        ("rmse_truth", "rsme", ".metric: 'test/rsme' is no column with a good end: test/rmse_truth, test/rmse, "),
        ("rmse_truth", "rmse@expectations", ".metric: 'test/rmse@expectations' is no column with a good end: "),
        ("says", "block: 2, says", ".block: table 'quickstart' has no block 2"),
        ("says", "scales: [small], says", ".scales: table 'quickstart' has no scale 'small'"),
        ("better", "no_worse", ".margin: no_worse takes a share of the mean, above 0 for no_worse"),
        ("says: better", "says: best", ".says: "),
        ("CE + digit CE (control)", "CE", ".against: a row is not compared with itself"),
        ("says", "sais", ": Key 'sais' not in 'EvidenceSpec'"),
    ],
)
def test_a_wrong_name_is_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = claims(tmp_path, ENTRY.replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        load_claims(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: claims[0]")
    assert ("evidence[0]" + message) in text.replace("evidence[0].sais", "evidence[0]")
    assert "\n" not in text


def test_a_claim_needs_a_comparison_and_a_time_a_name(tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text("claims: [{name: a, text: b, source: c, whose: ours}]")
    with pytest.raises(UserError, match=r"claims\[0\] \(a\): name at least one comparison under evidence or timings$"):
        load_claims(path)
    with pytest.raises(UserError, match=r"timings\[0\]\.what: say what was timed$"):
        load_claims(claims(tmp_path, "{benchmark: losses.csv, where: {loss: ce}}", "timings"))
