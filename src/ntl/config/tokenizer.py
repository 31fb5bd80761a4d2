"""Schema of the tokenizer, a choice of its own (facts about CE and NTL are compared on one tokenizer)."""

from dataclasses import dataclass, field

from omegaconf import MISSING


@dataclass
class TokenizerConfig:
    """``kind`` is the segmentation; ``digits_only`` says which tokens the losses count as numbers.

    ``path``, a local folder or ``owner/name``, replaces the model's own tokenizer files. A model without published
    files gets one trained on the prepared text, of at most ``vocab_size`` pieces. ``paper_compat`` leaves the sign of a
    number in the text, as the original's xVal does; it has a meaning for ``kind=xval`` alone. ``max_place`` is the
    highest decimal place of a number token (paper: 19, for numbers of 20 digits); ``kind=rt`` alone has these.
    """

    name: str = MISSING
    kind: str = MISSING
    digits_only: bool = True
    path: str = ""
    vocab_size: int = field(default=256, metadata={"min": 32})
    paper_compat: bool = False
    # Above 37 a value is infinite in float32.
    max_place: int = field(default=19, metadata={"min": 19, "max": 37})
