"""The two failures that are reported as one line: the user's input, and a training that diverged."""


class UserError(Exception):
    """Bad input. The message is one line: what is wrong, where, what to do. Exit code 2."""


class Diverged(Exception):
    """The training loss became NaN or infinite. Exit code 3."""
