"""Command-line parsing with tyro; every mistake becomes a one-line `UserError`."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import typing
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypeVar

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from agents.errors import UserError, nearest
from snowflake.config.checks import whole_number

FlagsT = TypeVar("FlagsT")


def parse(cls: type[FlagsT], argv: Sequence[str], prog: str, default: FlagsT | None = None) -> FlagsT:
    """Parse all arguments into a dataclass; nested sections lose their prefix (``--n-envs``, not ``--env.n-envs``).

    Args:
        cls: A dataclass; its field docstrings are the help texts, its docstring the description.
        argv: Arguments after the command's name.
        prog: Program name in the help text, ``"snowflake train"``.
        default: Instance whose values are the defaults.

    Raises:
        UserError: An unknown flag (with the nearest), a missing or wrong value.
        SystemExit: With code 0, after ``--help``.
    """
    flags, unknown = _run_tyro(cls, argv, prog, default, add_help=True)
    if unknown:
        raise UserError(_explain_unknown(unknown[0], list(argv), cls, prog))
    return flags


def parse_known(cls: type[FlagsT], argv: Sequence[str], prog: str) -> FlagsT:
    """Parse only the flags of ``cls``, and pass over all others, ``--help`` included."""
    return _run_tyro(cls, argv, prog, None, add_help=False)[0]


def _run_tyro(
    cls: type[FlagsT], argv: Sequence[str], prog: str, default: FlagsT | None, *, add_help: bool
) -> tuple[FlagsT, list[str]]:
    options: dict[str, Any] = {} if default is None else {"default": default}
    captured = io.StringIO()
    try:
        with contextlib.redirect_stderr(captured):
            return tyro.cli(
                cls,
                args=list(argv),
                prog=prog,
                return_unknown_args=True,
                add_help=add_help,
                config=(tyro.conf.OmitArgPrefixes,),
                registry=_registry(),
                **options,
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise _one_line(stop, captured.getvalue(), prog) from None


def _registry() -> ConstructorRegistry:
    """Rules of tyro, and one of ours: a whole number may be written ``1e6``, as in a config."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def whole(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
        if info.type is not int:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="INT",
            instance_from_str=lambda words: whole_number(words[0]),
            is_instance=lambda value: type(value) is int,
            str_from_instance=lambda value: [str(value)],
        )

    return registry


def _one_line(stop: SystemExit, box: str, prog: str) -> UserError:
    """Return the mistake that made tyro exit: our own `UserError` if a dataclass raised one, else its box in short."""
    cause: BaseException | None = stop
    while cause is not None:
        if isinstance(cause, UserError):
            return cause
        cause = cause.__context__
    # The box: a title, then paragraphs between rules; the first says what is wrong. On a terminal without UTF-8 its
    # border is blank and a rule underlines the title.
    lines = [line.strip("│ ") for line in box.splitlines()[1:]]
    paragraphs = "\n".join("" if not line.strip("─╰╯-") else line for line in lines).strip("\n").split("\n\n")
    message = " ".join(paragraphs[0].splitlines())
    return UserError(f"{_plain_words(message) or 'wrong arguments'} ({prog} --help lists the options)")


def _plain_words(text: str) -> str:
    """Reword Python's conversion errors for readers who do not know Python."""
    text = re.sub(r"invalid literal for int\(\) with base 10: (.*)", r"\1 is not a whole number", text)
    text = re.sub(r"no type matching (\S+) could be instantiated from \[(.*)\]\.?", r"\2 is none of \1", text)
    text = re.sub(r"^Missing from [^:]*: (\S+).*", r"\1 is missing", text)
    text = re.sub(r"could not convert string to float: (.*)", r"\1 is not a number", text)
    return re.sub(r"^Error parsing (--\S+?)(?:/--\S+)*: ", r"\1: ", text)


def _explain_unknown(token: str, argv: list[str], cls: type, prog: str) -> str:
    flags = tuple(_flags(cls))
    if not token.startswith("-") or token in flags:  # a flag after '--' is an argument
        before = argv[argv.index(token) - 1] if token in argv[1:] else ""
        switch = before.replace("_", "-").replace("--no-", "--", 1)
        if f"--no-{switch[2:]}" in flags:
            return f"unexpected argument {token!r}: {before} is a switch, say {switch} or --no-{switch[2:]}"
        return f"unexpected argument {token!r}: {prog} --help lists the options"
    name = token.partition("=")[0]
    advice = nearest(name.replace("_", "-"), flags)
    if not advice.startswith("did you mean"):  # nothing close: the whole list would fill a screen
        advice = f"{prog} --help lists the options"
    return f"unknown option {name}: {advice}"


def _flags(cls: type) -> Iterator[str]:
    """Yield the spelling of every flag of a dataclass and its sections; positional arguments have none."""
    hints = typing.get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        markers: list[Any] = []
        if typing.get_origin(hint) is Annotated:
            hint, *markers = typing.get_args(hint)
        if tyro.conf.Positional in markers or tyro.conf.Fixed in markers:
            continue
        if dataclasses.is_dataclass(hint):
            yield from _flags(typing.cast(type, hint))
            continue
        names = (getattr(marker, "name", None) for marker in markers)
        flag = next((name for name in names if name), field.name).replace("_", "-")
        yield f"--{flag}"
        if hint is bool:
            yield f"--no-{flag}"
        for marker in markers:
            yield from getattr(marker, "aliases", None) or ()
