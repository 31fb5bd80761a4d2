"""The two failures that are reported as one line: the user's input, and a training that diverged."""


class UserError(Exception):
    """Bad input. The message is one line: what is wrong, where, what to do. Exit code 2."""


class Busy(UserError):
    """Another process is at the same run: what is asked for is being made. Exit code 2, as of any UserError."""


class Diverged(Exception):
    """The training loss became NaN or infinite. Exit code 3."""
