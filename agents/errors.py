"""The one exception type that means 'the user's input is wrong'."""


class UserError(ValueError):
    """Bad input, told in one line: what is wrong, where, and what to do.

    The command line prints the message without a traceback and exits with code `exit_code`.
    """

    exit_code = 2


def nearest(name: str, choices: list[str] | tuple[str, ...], n: int = 3) -> str:
    """Return ``"did you mean 'a' or 'b'?"`` for the closest choices, or the whole list if none is close."""
    import difflib

    close = difflib.get_close_matches(name, choices, n=n, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(c) for c in close) + "?"
    return "choose from " + ", ".join(choices)
