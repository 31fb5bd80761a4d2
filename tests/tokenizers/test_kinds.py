"""The kinds of tokenizer: known ones, and what each brings along."""

from pkgutil import resolve_name

import pytest

from ntl.config import UserError
from ntl.config.model import TokenizerConfig
from ntl.tokenizers.kinds import KINDS, check_kind


def test_an_unknown_kind() -> None:
    assert check_kind("digit") is KINDS["digit"]
    with pytest.raises(UserError) as caught:
        check_kind("dijit")
    assert str(caught.value) == (
        "unknown tokenizer kind 'dijit': choose one of default, digit, rt, xval; did you mean 'digit'?"
    )


@pytest.mark.parametrize("name", KINDS)
def test_what_a_kind_names_exists(name: str) -> None:
    kind = KINDS[name]
    made_by = resolve_name(kind.tokenizer_class)
    settings = {option: getattr(TokenizerConfig(name=name, kind=name), option) for option in kind.options}
    tokens = made_by.added_tokens(**settings) if kind.writes_numbers else ()
    assert len(tokens) == {"rt": 320, "xval": 1}.get(name, 0)
