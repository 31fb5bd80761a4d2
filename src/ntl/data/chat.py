"""Questions and answers through the chat template of a tokenizer."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import cycle
from typing import Any

from tokenizers import Tokenizer

from ntl.system.errors import UserError
from ntl.system.messages import logger
from ntl.tokenizers.load import backend_state, special_ids, text_backend

Texts = Mapping[str, Any]
Message = dict[str, str]
ASKED = {"question": "What is 2 plus 5?", "answer": "7310842"}
DAY = date(2024, 7, 26)  # as in Llama 3's template where today's is not known
NOW = re.compile(r"strftime_now\(\s*(['\"])(.*?)\1\s*\)")
MARK = "\ufdd0"  # Unicode's own for internal use; stands around a special token that is text
NOT_BEGUN = "does not begin a conversation with the prompt of its question"
WITHOUT = "do without it (dataset.format=plain, predict.py without --chat)"
REMEDY = f"correct it, or {WITHOUT}"


class Chat:
    """The chat template of a tokenizer, as `apply_chat_template` renders it.

    ``end_id`` ends a turn; it need not be the tokenizer's ``eos_token_id``. ``opening`` is what the template writes
    before the text of an answer, decoded, such as empty thoughts. ``key`` is what token ids depend on besides the
    tokenizer's content. UserError where there is no template, or it does not serve.
    """

    def __init__(self, tokenizer: Any, name: str = "") -> None:
        self.tokenizer, self.name = tokenizer, name or str(tokenizer.name_or_path)
        if not tokenizer.chat_template:
            raise self._error(f"the tokenizer has none; take a model with one, or {WITHOUT}")
        self.backend: Any = Tokenizer.from_str(json.dumps(backend_state(tokenizer)))
        self.plain = text_backend(tokenizer)
        special = special_ids(tokenizer)
        longest_first = sorted(tokenizer.convert_ids_to_tokens([*special]), key=len, reverse=True)
        self.special = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        # A template that writes today's date writes the same one on every day, so that token ids are the same.
        template = tokenizer.get_chat_template()
        self.template = NOW.sub(lambda match: repr(DAY.strftime(match[2])), template)
        self.key = ["complete", self.template, tokenizer.special_tokens_map]  # what was said is all there
        messages = self._said(ASKED)
        (prompt,) = self._render([messages[:-1]], [ASKED], add_generation_prompt=True)
        (whole,) = self._render([messages], [ASKED])
        before, answer, after = whole.removeprefix(prompt).partition(ASKED["answer"])
        ends = [token for token in self._ids([after])[0] if token in special] if answer else []
        if not ends or not whole.startswith(prompt):
            wrong = "writes no special token behind an answer" if whole.startswith(prompt) else NOT_BEGUN
            raise self._error(f"it {wrong}; {REMEDY}")
        self.end_id = ends[0]
        self.end = re.compile(f"(?<!{MARK}){re.escape(tokenizer.convert_ids_to_tokens(self.end_id))}")
        self.opening: str = tokenizer.decode(self._ids([before])[0], skip_special_tokens=True).strip()
        opened = re.search(r"<(\w+)>\s*$", prompt)
        self.begun = opened[0] if opened and f"</{opened[1]}>" in self.opening else ""

    def encode(self, rows: Sequence[Texts]) -> tuple[list[list[int]], list[list[int]]]:
        """The token ids of each prompt, and those with which the template continues it, up to the end of the turn.

        A row has ``question``, ``answer`` and, where there were earlier messages, ``before``. A special token in what
        was said is text. UserError for a row that the template refuses, or rewrites but for white space.
        """
        conversations = [self._said(row) for row in rows]
        asked = self._render([messages[:-1] for messages in conversations], rows, add_generation_prompt=True)
        texts, prompts, answers = self._render(conversations, rows), self._ids(asked), []
        for row, before, text, prompt, whole in zip(rows, asked, texts, prompts, self._ids(texts), strict=True):
            if text.startswith(before) and whole[: len(prompt)] != prompt:  # a token across the answer's beginning
                whole = [*prompt, *self._ids([text.removeprefix(before)])[0]]
            answer = whole[len(prompt) :]
            if whole[: len(prompt)] != prompt or self.end_id not in answer:
                raise self._error(f"at the question {row['question'][:60]!r} it {NOT_BEGUN}; {REMEDY}")
            self._check(conversations[len(answers)], before + self.end.split(text[len(before) :], maxsplit=1)[0])
            answers.append(answer[: answer.index(self.end_id) + 1])
        return prompts, answers

    def _check(self, messages: list[Message], text: str) -> None:
        """UserError where what was said is not in the text of the conversation; white space may differ."""
        rest, parts = "".join(text.split()), ["".join(message["content"].split()) for message in messages]
        # The longest first, each then taken out, so that a short one is not found within another.
        for at in sorted(range(len(parts)), key=lambda at: -len(parts[at])):
            if parts[at] not in rest:
                content, asked = (messages[place]["content"].replace(MARK, "")[:60] for place in (at, -2))
                turn = sum(message["role"] != "system" for message in messages[: at + 1])
                name = {len(parts) - 2: "the question", len(parts) - 1: "the answer"}.get(at, f"turn {turn}")
                name = "the system message" if messages[at]["role"] == "system" else name
                lost = f"at the question {asked!r} it leaves out or rewrites {name}, {content!r}"
                raise self._error(f"{lost}; change that in the data, correct the template, or {WITHOUT}")
            rest = rest.replace(parts[at], MARK * 2, 1)

    def text(self, answer: str) -> str:
        """A decoded answer without what the template writes before it, and with what its prompt has begun of it."""
        if not answer.startswith(self.opening) and self.opening in answer:
            return self.begun + answer
        return answer.removeprefix(self.opening).strip()

    def _said(self, row: Texts) -> list[Message]:
        messages = json.loads(row.get("before") or "[]")
        messages += [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": row["answer"]}]
        for message in messages:
            message["content"] = self.special.sub(lambda match: f"{MARK}{match[0]}{MARK}", message["content"])
        return messages

    def _render(self, conversations: list[list[Message]], rows: Sequence[Texts], **options: Any) -> list[str]:
        options |= {"chat_template": self.template, "tokenize": False}
        try:
            return self.tokenizer.apply_chat_template(conversations, **options)
        except Exception as error:  # of jinja2, and whatever a template raises
            for place in range(len(rows) if len(rows) > 1 else 0):  # one of these raises it again
                self._render(conversations[place : place + 1], rows[place : place + 1], **options)
            why = " ".join(str(error).split())[:200]
            raise self._error(f"at the question {rows[0]['question'][:60]!r}: {why}; {REMEDY}") from error

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        ids = [encoding.ids for encoding in self.backend.encode_batch_fast(list(texts), add_special_tokens=False)]
        for index, text in enumerate(texts):
            if MARK in text:  # every other piece is between two marks
                pieces = zip(cycle([self.backend, self.plain]), text.split(MARK))
                ids[index] = [id for by, piece in pieces for id in by.encode(piece, add_special_tokens=False).ids]
        return ids

    def _error(self, what: str) -> UserError:
        return UserError(f"chat template of {self.name}: {what}.")


def chat_for(form: str, tokenizer: Any, unfit: str = "", name: str = "") -> Chat | None:
    """The template that a data set's ``format`` asks for, or None; ``unfit`` says why it cannot be used."""
    if form == "auto":
        why = unfit or ("" if tokenizer.chat_template else "the tokenizer has no chat template")
        form, reason = ("plain", f"since {why}") if why else ("chat", "by the template of the tokenizer")
        logger.info(f"dataset.format=auto: {form}, {reason}.")
    return Chat(tokenizer, name) if form == "chat" else None
