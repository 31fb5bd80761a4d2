import math

import pytest

from ntl.evaluation import text_metrics, token_matches
from ntl.evaluation.textual import token_accuracy, tokens_of


def test_by_hand():
    prediction, answer = "the cats sat on a mat", "the cat sat on the mat"
    metrics = text_metrics([prediction], [answer])
    # 5 of 6 unigrams meet after stemming (the, cat, sat, on, mat), 3 of 5 bigrams (the cat, cat sat, sat on).
    assert metrics["rouge1"] == pytest.approx(5 / 6)
    assert metrics["rouge2"] == pytest.approx(3 / 5)
    assert metrics["rougeL"] == pytest.approx(5 / 6)
    # BLEU does not stem: 4/6, 1/5, then 0/4 and 0/3 smoothed to 1/(2*4) and 1/(4*3); equal lengths, no penalty.
    assert metrics["bleu"] == pytest.approx(100 * (4 / 6 * 1 / 5 * 1 / 8 * 1 / 12) ** 0.25)
    assert metrics["exact_match"] == 0


@pytest.mark.parametrize(
    "text",
    ["семь котов", "七只猫", "سبع قطط", "सात बिल्लियाँ", "แมวเจ็ดตัว", "일곱 고양이", "εφτά", "seven", "-5", "→", "😀 !"],
)
def test_a_right_answer_in_any_script_has_full_marks_and_a_wrong_one_has_none(text: str) -> None:
    right, wrong = text_metrics([text], [text]), text_metrics(["other words 0"], [text])
    assert right["bleu"] == pytest.approx(100)
    assert (right["rouge1"], right["rougeL"], wrong["rouge1"]) == (1, 1, 0)
    assert text_metrics(["seven"], ["seven"], rule="paper")["bleu"] == pytest.approx(0)


def test_the_sign_of_a_number_and_parts_of_a_text_without_spaces_count() -> None:
    assert " ".join(tokens_of("It's −5,3 °C, 5-3 = 2 or -.5kg")) == "It ' s -5,3 ° C , 5 - 3 = 2 or -.5 kg"
    assert tokens_of("有7只猫 हिन्दी") == ["有", "7", "只", "猫", "हिन्दी"]
    for signed, plain in (("-5", "5"), ("–$5", "$5"), ("−.5 m", ".5 m")):
        assert text_metrics([signed], [plain])["rouge1"] < 1
    assert text_metrics(["七只狗"], ["七只猫"])["rouge1"] == pytest.approx(2 / 3)


def test_bleu_is_of_the_corpus_and_paper_means_batches():
    # 64 wrong texts, then one right text, which is the whole second batch.
    predictions = ["a b c d e"] * 64 + ["one two three four five"]
    answers = ["v w x y z"] * 64 + ["one two three four five"]
    default, paper = text_metrics(predictions, answers), text_metrics(predictions, answers, rule="paper")
    orders = [(5 / 325), (4 / 260), (3 / 195), (2 / 130)]
    assert default["bleu"] == pytest.approx(100 * math.prod(orders) ** 0.25)
    assert default["rouge1"] == pytest.approx(1 / 65)
    assert paper["bleu"] == pytest.approx(50, abs=2)
    assert paper["rouge1"] == pytest.approx((0 + 1) / 2)
    assert default["exact_match"] == paper["exact_match"] == 1 / 65


def test_bad_arguments():
    with pytest.raises(ValueError, match="argument"):
        text_metrics(["a"], ["a", "b"])
    with pytest.raises(ValueError, match=r"'batch'.*default, paper"):
        text_metrics(["a"], ["a"], rule="batch")


def test_the_papers_token_accuracy_counts_the_padding_behind_the_longest_label():
    """Two labels of 4 and 3 tokens in one batch, 4 tokens right, and 2 x 10 columns of padding, all right."""
    counts = [token_matches([5, 6, 9, 1], [5, 6, 7, 1]), token_matches([4, 8, 1], [5, 6, 1])]
    assert token_accuracy(counts) == pytest.approx(4 / 7)  # 0.571
    assert token_accuracy(counts, rule="paper") == pytest.approx(24 / 27)  # 0.889
    # The second answer goes on to column 6: two columns of padding are wrong, columns 4 and 5 of those from 0 on.
    counts[1] = token_matches([4, 8, 1, 2, 2, 2], [5, 6, 1])
    assert token_accuracy(counts, rule="paper") == pytest.approx(22 / 27)
