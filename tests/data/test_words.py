"""Token ids from those of words are those of the whole text, with every make of tokenizer."""

import pytest
from given import MAKES as GIVEN
from hypothesis import given
from hypothesis import strategies as st
from test_load_published import MAKES, save
from tokenizers import Tokenizer, normalizers

from ntl.data.encode import WordEncoder
from ntl.tokenizers import load_tokenizer
from ntl.tokenizers.load import text_backend

# Of the same kinds, with whatever could stand across a space or change it.
PARTS = ["the", "12", " ", "  ", "\t", "\n", "1.5e-3", "-15.67", "</s>", "a,b", "é", "ﬁ", " ", "＋", "́", "'s", "?"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, WordEncoder]:
    with_token, with_normalizer = GIVEN["smollm2"](), GIVEN["smollm2"]()
    with_token.add_tokens(["12 the"])
    with_normalizer.backend_tokenizer.normalizer = normalizers.Replace(" t", "t")
    made = {name: make() for name, make in GIVEN.items()} | {"token": with_token, "normalizer": with_normalizer}
    found = {f"{name} given": text_backend(each) for name, each in made.items()}
    for name, make in MAKES.items():
        folder = save(make(), tmp_path_factory.mktemp(name), {"llama2": "llama"}.get(name, name))
        found |= {f"{name} {kind}": text_backend(load_tokenizer(folder, kind)) for kind in ("digit", "default")}
    return {name: WordEncoder(backend) for name, backend in found.items()}


def of_whole(backend: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [each.ids for each in backend.encode_batch_fast(texts, add_special_tokens=False)]


@given(texts=st.lists(TEXTS, max_size=4))
def test_the_ids_of_the_whole_text(encoders: dict[str, WordEncoder], texts: list[str]) -> None:
    for name, encoder in encoders.items():
        assert encoder(texts) == encoder(texts) == of_whole(encoder.backend, texts), name


def test_which_are_known_to_divide_at_spaces(encoders: dict[str, WordEncoder]) -> None:
    divided = {"gpt2 digit", "gpt2 default", "roberta default", "t5 digit", "t5 default", "smollm2 given"}
    assert {name for name, each in encoders.items() if each.divides} == divided
    encoder = encoders["t5 digit"]
    encoder(["the 12 the the"])
    assert {"the", " the", " 12"} <= encoder.known.keys()
