"""Damage to texts: YAML values and structure, bytes, and what may lie in the place of a file."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

ODD = (
    *("", "~", "null", "true", "yes", "off", "0", "-1", "1", "2", "3", "7", "1.5", "-0.0", "1e3", "1e400", "-1e400"),
    *("1e-400", "1e19", ".nan", "-.inf", ".inf", "nan", "0o17", "017", "0x1F", "0b11", "1_000", "1:30", "1:30:00"),
    *("+1", "9" * 30, "9" * 5000, "65536", "100000000", "2147483648", "9223372036854775808", "1/2", "50%", "0.5"),
    *(
        "2020-01-01",
        "2020-13-45",
        "12:00:00.5",
        "[]",
        "{}",
        "[[]]",
        "[1, [2, [3]]]",
        "{a: 1}",
        "[null]",
        "[a, 1, true]",
    ),
    *(
        "[1, 2, 3]",
        "{1: 2}",
        "[.nan]",
        "[-1]",
        "!!binary aGVsbG8=",
        "!!set {a, b}",
        "!!int '7'",
        "!!float 3",
        "!!str 3",
    ),
    *("!!python/object/apply:os.system ['touch pwned']", "!!python/name:os.system", "!!null ''", "!unknown 3"),
    *("!!timestamp 2020-01-01", "!!omap [a: 1]", "!!int x", "&a [*a]", "*undefined", "&a 3", "'text'", '"\\x00"'),
    *('"\\ud800"', '"a\\nb"', "|\n  text", ">-\n  folded", "? x", "- x", "centipede-6", "nervenet", "snowflake", "mlp"),
    *("[centipede-3, centipede-3]", "[set:centipedes/train]", "[centipede-0]", "[centipede-3, centipede-4]", "graph"),
    *(
        "äöü",
        "日本語",
        "\u202etxet",
        "😀",
        "'" + "x" * 3000 + "'",
        "%",
        "@",
        "`",
        "#",
        "&",
        "*",
        "!",
        "|",
        ">",
        "{",
        "]",
    ),
    *("'", '"', "../../etc/passwd", "/dev/null", "run.yaml", "cuda", "cuda:99", "meta", "cpu:-1", "cpu", "auto"),
    *("${HOME}", "$(touch pwned)", "constant", "linear", "general", "[encoder, decoder]", "whole_episodes"),
)
"""Values as they stand in a YAML: odd, of a wrong type, out of range, or tricks of the language."""

BOMB = "\n".join(
    ["a: &a [x, x, x, x, x, x, x, x, x]"]
    + [f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]" for old, new in zip("abcdefgh", "bcdefghi", strict=True)]
)
"""Nine lines that stand for a billion words."""

_BYTES = (
    b"\x00",
    b"\xff",
    b"\xfe\xff",
    b"\xef\xbb\xbf",
    b"\xc3\x28",
    b"\xe4",
    b"\t",
    b"\r",
    b"\r\n",
    b"\n",
    b"\x1b[2J",
    b"\x7f",
)


def to_yaml(values: Any, depth: int = 0) -> str:
    """Write nested mappings as YAML; all else is put in as the text that it is."""
    if not isinstance(values, dict):
        return str(values)
    pad, lines = "  " * depth, []
    for key, value in values.items():
        inner = to_yaml(value, depth + 1)
        lines.append(f"{pad}{key}:\n{inner}" if isinstance(value, dict) and value else f"{pad}{key}: {inner}")
    return "\n".join(lines)


def damage_values(values: dict[str, Any], rng: random.Random, known: tuple[str, ...]) -> str:
    """Change one thing in nested settings, in place; returns what.

    Args:
        values: mappings of texts.
        rng: decides.
        known: keys of any section, to put where they do not belong.
    """
    sections = [values, *(value for value in values.values() if isinstance(value, dict))]
    target = rng.choice(sections)
    key = rng.choice(list(target) or ["seed"])
    odd = rng.choice(ODD)
    way = rng.randrange(8)
    if way <= 2:
        target[key] = odd
        return f"{key} = {odd[:30]!r}"
    if way == 3:
        other = rng.choice(known)
        target[other] = odd
        return f"{other} = {odd[:30]!r}"
    if way == 4:
        target.pop(key, None)
        return f"without {key}"
    if way == 5:
        name = rng.choice(
            (
                key[:-1],
                key + "s",
                key.upper(),
                key.replace("_", "-"),
                f"{key}.x",
                "<<",
                "",
                "?",
                "1",
                "é",
                f"'{key}'",
                "- a",
            )
        )
        target[name] = target.pop(key, odd)
        return f"{key} is called {name!r}"
    if way == 6:
        target[key] = {rng.choice(known): odd, "x": {"y": {"z": odd}}}
        return f"{key} is a section"
    target[f"{key} "] = odd  # given twice
    return f"{key} twice"


def damage_bytes(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Change some bytes of a file; returns them and what was done."""
    at = rng.randrange(len(data) + 1)
    way = rng.randrange(9)
    if way == 0:
        return data[:at], f"cut at {at}"
    if way == 1:
        out = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 8, 64))):
            if out:
                out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
        return bytes(out), "flipped bits"
    if way == 2:
        piece = rng.choice(_BYTES)
        return data[:at] + piece + data[at:], f"{piece!r} put in at {at}"
    if way == 3:
        return data[:at] + data[at + rng.choice((1, 4, 20, 200)) :], f"bytes lost at {at}"
    if way == 4:
        encoding = rng.choice(("utf-16", "utf-32", "utf-16-be", "cp037", "utf-8-sig"))
        return data.decode(errors="replace").encode(encoding, errors="replace"), encoding
    if way == 5:
        return rng.choice((b"", b"\n", b" ", b"\x00" * 512, rng.randbytes(400), b"#" * 300_000)), "other content"
    lines = data.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    if way == 6:
        lines[i], lines[j] = lines[j], lines[i]
    elif way == 7:
        lines.insert(i, lines[j])
    else:
        del lines[i]
    return b"\n".join(lines), f"lines {i} and {j} moved, doubled or lost"


def replace_file(path: Path, rng: random.Random) -> str:
    """Put something else in the place of a file; returns what."""
    content = path.read_bytes() if path.is_file() else b""
    if path.is_dir() and not path.is_symlink():
        return "a folder as it was"
    path.unlink(missing_ok=True)
    way = rng.choice(
        ("gone", "folder", "fifo", "loop", "dangling", "null device", "endless device", "unreadable", "empty", "link")
    )
    if way == "folder":
        path.mkdir()
    elif way == "fifo":
        os.mkfifo(path)
    elif way == "loop":
        path.symlink_to(path.name)
    elif way == "dangling":
        path.symlink_to("nowhere/at/all")
    elif way == "null device":
        path.symlink_to("/dev/null")
    elif way == "endless device":
        path.symlink_to("/dev/zero")
    elif way == "link":
        other = path.with_name(f"{path.name}.real")
        other.write_bytes(content)
        path.symlink_to(other.name)
    elif way != "gone":
        path.write_bytes(b"" if way == "empty" else content)
        if way == "unreadable":
            path.chmod(0)
    return way
