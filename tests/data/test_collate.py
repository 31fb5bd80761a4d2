"""Padding, masks and the one shift, by hand; padding on either side gives the same loss."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ntl.data.collate import CausalCollator, Seq2SeqCollator, token_collator

PAD, EOS, START = 0, 1, 9


def _example(question: list[int], answer: list[int]) -> dict[str, np.ndarray]:
    return {"question_ids": np.array(question, np.int32), "answer_ids": np.array([*answer, EOS], np.int32)}


EXAMPLES = [_example([5, 6, 7], [3]), _example([5], [2, 4])]


def test_seq2seq_by_hand() -> None:
    batch = {name: ids.tolist() for name, ids in Seq2SeqCollator(PAD, START)(EXAMPLES).items()}
    assert batch == {
        "input_ids": [[5, 6, 7], [5, 0, 0]],
        "attention_mask": [[1, 1, 1], [1, 0, 0]],
        "decoder_input_ids": [[9, 3, 0], [9, 2, 4]],
        "labels": [[3, 1, -100], [2, 4, 1]],
    }


def test_causal_by_hand() -> None:
    batch = {name: ids.tolist() for name, ids in CausalCollator(PAD)(EXAMPLES).items()}
    assert batch == {
        "input_ids": [[5, 6, 7, 3], [5, 2, 4, 0]],
        "attention_mask": [[1, 1, 1, 1], [1, 1, 1, 0]],
        "labels": [[-100, -100, 3, 1], [2, 4, 1, -100]],
    }


def test_prompts_end_where_the_answer_begins() -> None:
    causal = CausalCollator(PAD).prompts(EXAMPLES)
    assert causal["input_ids"].tolist() == [[5, 6, 7], [0, 0, 5]]
    assert causal["attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1]]
    seq2seq = Seq2SeqCollator(PAD, START).prompts(EXAMPLES)
    assert seq2seq["input_ids"].tolist() == [[5, 6, 7], [5, 0, 0]]


ids = st.lists(st.integers(2, 8), min_size=1, max_size=6)


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=5), st.booleans())
def test_each_label_is_the_next_input_and_all_answers_are_there(pairs, left: bool) -> None:
    batch = CausalCollator(PAD, pad_left=left)([_example(question, answer) for question, answer in pairs])
    for row, (question, answer) in enumerate(pairs):
        kept = batch["attention_mask"][row].bool()
        inputs, labels = batch["input_ids"][row][kept].tolist(), batch["labels"][row][kept].tolist()
        assert inputs == question + answer
        assert labels == [-100] * (len(question) - 1) + answer + [EOS]
        assert batch["labels"][row][~kept].eq(-100).all()
        # Whatever is labelled at t stands in the input at t + 1: shifted once, neither twice nor not at all.
        assert [label for label in labels[:-1] if label != -100] == inputs[len(question) :]


@pytest.mark.parametrize("left", [False, True])
def test_either_side_gives_the_same_loss(left: bool) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    shape = {"vocab_size": 10, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16}
    model = GPT2LMHeadModel(GPT2Config(**shape, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)).double().eval()

    def loss(examples) -> torch.Tensor:
        batch = CausalCollator(PAD, pad_left=left)(examples)
        positions = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
        mask = batch["attention_mask"]
        logits = model(input_ids=batch["input_ids"], attention_mask=mask, position_ids=positions).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")

    together = loss(EXAMPLES)
    apart = sum(loss([example]) for example in EXAMPLES)
    torch.testing.assert_close(together, apart, rtol=0, atol=1e-12)


def test_a_decoder_never_reads_the_end_of_the_answer() -> None:
    about = {"longest_question": 5, "longest_answer": 3, "longest_example": 7}
    assert CausalCollator(PAD).longest_input(about) == 6


def test_collator_for_either_family() -> None:
    seq2seq = SimpleNamespace(is_encoder_decoder=True, pad_token_id=0, decoder_start_token_id=0)
    assert token_collator(seq2seq, None) == Seq2SeqCollator(0, 0)
    assert token_collator(SimpleNamespace(is_encoder_decoder=False, pad_token_id=3), None) == CausalCollator(3)
