"""Questions and answers through a chat template: ids by hand and by transformers, and rows of one's own."""

import json
import re
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from ntl.config import UserError, compose, run_id
from ntl.config.identity import recorded
from ntl.data import Prepared, dataset_named
from ntl.data.chat import Chat
from ntl.data.encode import Encoder, encode_dataset, encode_rows

ROW = {"question": "What is 2+3?", "answer": "5"}
SYSTEM = {"role": "system", "content": "Be kind."}
TURNS = [{"role": "user", "content": "What is 1?"}, {"role": "assistant", "content": "1"}]


def shown(tokenizer: Any, row: dict[str, Any], chat: Chat | None = None) -> tuple[str, str]:
    (found,) = encode_rows([row], tokenizer, decoder_only=True, max_length=99, chat=chat or Chat(tokenizer))[0]
    first, second = (tokenizer.decode(found[f"{part}_ids"].tolist()) for part in ("question", "answer"))
    return first, second


def test_ids_are_those_of_apply_chat_template_and_of_each_row_alone(chat_tokenizer) -> None:
    tokenizer = chat_tokenizer()
    asked = [[SYSTEM], [], [*TURNS], [SYSTEM, *TURNS]]
    rows = [{"question": f"What is {n}+4?", "answer": f"{n + 4}", "before": json.dumps(b)} for n, b in enumerate(asked)]
    settings = {"decoder_only": True, "max_length": 99, "chat": Chat(tokenizer)}
    for row, found, before in zip(rows, encode_rows(rows, tokenizer, **settings)[0], asked, strict=True):
        messages = [*before, {"role": "user", "content": row["question"]}]
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
        messages.append({"role": "assistant", "content": row["answer"]})
        whole = [*found["question_ids"], *found["answer_ids"], tokenizer.convert_tokens_to_ids("\n")]
        assert (found["question_ids"].tolist(), whole) == (prompt, tokenizer.apply_chat_template(messages)["input_ids"])
        (alone,) = encode_rows([row], tokenizer, **settings)[0]
        assert {name: ids.tolist() for name, ids in alone.items()} == {
            name: ids.tolist() for name, ids in found.items()
        }


def test_tokens_of_the_template_and_of_what_was_said(chat_tokenizer) -> None:
    """A token across the beginning of an answer is divided, and a special token that was said is text."""
    tokenizer = chat_tokenizer()
    tokenizer.add_tokens("\n\n")
    assert shown(tokenizer, ROW | {"answer": "\n5"})[1] == "\n5<|im_end|>"
    row = {"question": "is <|im_end|>?", "answer": "<|im_end|>1"}
    (found,) = encode_rows([row], tokenizer, decoder_only=True, max_length=99, chat=Chat(tokenizer))[0]
    pieces = ["<", "|", "im", "_", "end", "|", ">"]
    assert tokenizer.convert_ids_to_tokens(found["answer_ids"].tolist()) == [*pieces, "1", "<|im_end|>"]
    assert tokenizer.convert_ids_to_tokens(found["question_ids"].tolist()[-13:-5]) == [*pieces, "?"]
    tokenizer.unk_token = "<|im_end|>"  # as of models whose unknown token is their end token
    (example,) = Encoder(tokenizer, decoder_only=True, max_length=99, chat=Chat(tokenizer))([ROW])
    assert example["unknown"] == 0


def test_what_a_template_writes_before_an_answer_is_learned_and_not_shown(chat_tokenizer) -> None:
    tokenizer = chat_tokenizer(opening="<think>\n\n</think>\n\n")
    chat = Chat(tokenizer)
    question, answer = shown(tokenizer, ROW)
    assert question.endswith("<|im_start|>assistant\n")
    assert answer == "<think>\n\n</think>\n\n5<|im_end|>"
    assert [chat.text(text) for text in ("<think>\n\n</think>\n\n5", "5", "")] == ["5", "5", ""]
    dated = chat_tokenizer(first="{{ strftime_now('%d') }}")  # the same on every day
    assert shown(dated, ROW)[0].startswith("26<|im_start|>")


WRONG: dict[str, dict[str, Any]] = {
    "has none; take a model with one": {"template": None},
    "no special token behind an answer": {"end": "."},
    "does not begin a conversation with the prompt": {"assistant": "bot"},
    "'What is 2 plus 5.': no system": {"first": "{{ raise_exception('no\nsystem') }}"},
    "unexpected": {"first": "{% if"},
}


@pytest.mark.parametrize("why", WRONG)
def test_a_template_that_does_not_serve_is_one_line(why: str, chat_tokenizer) -> None:
    with pytest.raises(UserError, match=why) as caught:
        Chat(chat_tokenizer(**WRONG[why]), "NAME")
    assert str(caught.value).startswith("chat template of NAME: ")
    assert str(caught.value).endswith("do without it (dataset.format=plain, predict.py without --chat).")
    assert "\n" not in str(caught.value)


# One that drops thoughts, as published ones do, trims, and in LAST writes the last question and its answer alone.
ENDS = "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
WRITTEN = "<|im_start|>{{ m.role }}\n{{ c | trim }}<|im_end|>"
WITHOUT_THOUGHTS = "{% for m in messages %}{% set c = m.content.split('</think>')[-1] %}" + WRITTEN + ENDS
LAST = "{% for m in messages %}{% set c = m.content %}{% if m.role == 'user' or loop.last %}" + WRITTEN
LAST += "{% endif %}" + ENDS
WITHOUT_SYSTEM = "{% for m in messages if m.role != 'system' %}{% set c = m.content %}" + WRITTEN + ENDS
REFUSES = "{% if messages[-1].content == '7' %}{{ raise_exception('not 7') }}{% endif %}" + WITHOUT_SYSTEM
TWO_TURNS = "{% for m in messages %}{% set c = m.content.replace('.', '<|im_end|>') %}" + WRITTEN + ENDS
THOUGHT = "<think>2+3 is 5</think>\n5"
OUT = " it leaves out or .* "
LOST = [
    (WITHOUT_THOUGHTS, ROW | {"answer": THOUGHT}, f"{OUT}the answer, '<think>2"),
    (WITHOUT_THOUGHTS, ROW | {"question": "</think>"}, f"{OUT}the question, '</think>'"),
    (LAST, ROW | {"before": json.dumps(TURNS)}, f"{OUT}turn 2, '1'"),
    (WITHOUT_SYSTEM, ROW | {"before": json.dumps([SYSTEM])}, f"{OUT}the system message, 'Be kind"),
    (TWO_TURNS, ROW | {"answer": "2. 3"}, f"{OUT}the answer, '2. 3'"),
    (REFUSES, {"question": "What is 3+4?", "answer": "7"}, ": not 7"),
]


@pytest.mark.parametrize(("template", "row", "lost"), LOST)
def test_what_a_template_leaves_out_is_named(template: str, row: dict[str, Any], lost: str, chat_tokenizer) -> None:
    chat = Chat(chat_tokenizer(template=template), "NAME")
    chat.encode([ROW, ROW | {"question": " What is 2+3? \n", "answer": "\n5 \n"}])
    asked = re.escape(row["question"])
    with pytest.raises(UserError, match=rf"^chat template of NAME: at the question '{asked}'{lost}"):
        chat.encode([ROW, row])


def test_thoughts_that_the_prompt_begins_are_shown_whole(chat_tokenizer) -> None:
    """As of templates that write <think> before every answer, in the prompt already."""
    thought = (
        "{% if m.role == 'assistant' and '<think>' not in m.content %}<think>\n\n</think>\n\n{% endif %}{{ m.content }}"
    )
    template = "{% for m in messages %}<|im_start|>{{ m.role }}\n" + thought + "<|im_end|>\n"
    tokenizer = chat_tokenizer(template=template + ENDS.replace("assistant\n", "assistant\n<think>\n"))
    chat = Chat(tokenizer)
    for answer in ("<think>\n2+3 is 5\n</think>\n\n5", "5"):
        (prompt,), (ids,) = chat.encode([ROW | {"answer": answer}])
        assert tokenizer.decode(prompt).endswith("<think>\n")
        assert chat.text(tokenizer.decode(ids, skip_special_tokens=True).strip()) == answer


def test_token_ids_of_another_template_are_kept_apart(chat_tokenizer, tmp_path: Path) -> None:
    def folder(tokenizer: Any, chat: Chat | None) -> Path:
        settings: dict[str, Any] = {"cache_dir": tmp_path, "key": "k", "decoder_only": True, "max_length": 99}
        return encode_dataset(lambda: [ROW], tokenizer, chat=chat, **settings).folder

    one, other = chat_tokenizer(), chat_tokenizer(opening="<think>")
    assert len({folder(one, None), folder(other, None)}) == 1
    assert len({folder(one, None), folder(one, Chat(one)), folder(other, Chat(other))}) == 3


# ---- rows of one's own


@pytest.fixture
def read(own) -> Callable[..., list[dict[str, Any]]]:
    """``read(rows, **settings)``: what ``dataset=file`` prepares of these rows, in the order of their questions."""
    return lambda rows, **values: sorted(chain(*own(rows, **values).values()), key=lambda row: row["question"])


def conversation(n: int, *before: dict[str, str]) -> dict[str, Any]:
    pair = [("user", f"What is {n}+1?"), ("assistant", f" {n + 1}")]
    return {"messages": [*before, *({"role": role, "content": text} for role, text in pair)], "source": "mine"}


def test_conversations_keep_what_was_said_before(read, chat_tokenizer) -> None:
    rows = read([conversation(n, *([SYSTEM, *TURNS] if n == 3 else [])) for n in range(9)], format="chat")
    assert [(row["question"], row["answer"]) for row in rows] == [(f"What is {n}+1?", str(n + 1)) for n in range(9)]
    assert [json.loads(row["before"] or "[]") for row in rows] == [[]] * 3 + [[SYSTEM, *TURNS]] + [[]] * 5
    tokenizer = chat_tokenizer()
    start = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nWhat is 1?<|im_end|>\n<|im_start|>assistant\n1<"
    assert shown(tokenizer, rows[3])[0].startswith(start)
    with pytest.raises(UserError, match=r"'What is 3\+1\?' has earlier messages, .*dataset\.format=chat"):
        encode_rows(rows, tokenizer, decoder_only=True, max_length=99)
    # Those of one turn are questions and answers, without a further field.
    single = [conversation(n) for n in range(9)]
    plain = [{"question": f"What is {n}+1?", "answer": str(n + 1)} for n in range(9)]
    assert read(single) == read(single, format="chat") == read(plain)


def test_fields_of_messages_that_are_not_read_are_counted(tmp_path: Path, caplog) -> None:
    rows = [conversation(n) for n in range(40)]
    for row in rows[:3]:
        row["messages"][1] |= {"reasoning_content": "one more", "tool_calls": []}
    rows[0]["messages"][0]["name"] = "Ann"
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepared = Prepared(dataset_named("file", tmp_path, path=str(path)), tmp_path)
    prepared.prepare()
    line = f"{path}: fields of messages that are not read: name (1), reasoning_content (3); what is to be learned has "
    assert [each for each in caplog.messages if each.startswith(line)] == prepared.fingerprint()["warnings"]


def test_instructions_are_read_without_settings(read) -> None:
    rows = [{"instruction": f"Add {n}", "input": "to 1" if n % 2 else "", "output": n + 1} for n in range(9)]
    expected = [(f"Add {n}\n\nto 1" if n % 2 else f"Add {n}", str(n + 1)) for n in range(9)]
    assert [(row["question"], row["answer"]) for row in read(rows)] == expected
    # Columns that are named win, and so do those of question and answer.
    named = read(rows, question="instruction", answer="output")
    assert [row["question"] for row in named] == [f"Add {n}" for n in range(9)]
    both = [{**row, "question": f"{n}?", "answer": 4} for n, row in enumerate(rows)]
    assert [(row["question"], row["answer"]) for row in read(both)] == [(f"{n}?", "4") for n in range(9)]


# ---- identity


def test_the_format_is_part_of_the_run_and_not_of_the_prepared_data(tmp_path: Path) -> None:
    words = ["dataset=noisy_numbers", "model=llama_tiny", f"data_dir={tmp_path}"]
    usual = compose(words)
    plain, chat, auto = (compose([*words, f"dataset.format={name}"]) for name in ("plain", "chat", "auto"))
    assert run_id(usual) == run_id(plain)
    assert len({run_id(each) for each in (plain, chat, auto)}) == 3
    folders = {dataset_named("noisy_numbers", tmp_path, format=name).folder_name for name in ("plain", "chat", "auto")}
    assert len(folders) == 1
    assert "format" not in recorded(plain)["dataset"]
    assert recorded(chat)["dataset"]["format"] == "chat"
