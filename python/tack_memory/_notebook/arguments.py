"""The arguments of the magics: options before, then what is left. Pure functions of the line; what is wrong is a ValueError for the user to read."""

from __future__ import annotations

import shlex

from .._sizes import _UNITS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def split_options(line: str, *, flags: Iterable[str], valued: Iterable[str]) -> tuple[dict[str, str], str]:
    """Take options from the beginning of a line: {option: value, "" for a flag}, and the rest as it was written (it may be Python).

    `--name=value`, `--name value` and `-n value`; a value with spaces in it in quotes. Another word that looks like an option (`-` and one
    letter, or `--`) is an error; one that does not (`-abs(x)`) begins the rest, and so does what comes after `--`."""
    flags, valued = tuple(flags), tuple(valued)
    found: dict[str, str] = {}
    rest = line.strip()
    while rest.startswith("-"):
        word, _, after = rest.partition(" ")
        name, equals, value = word.partition("=")
        if name == "--":  # the end of the options
            return found, after.strip()
        if name in flags:
            if equals:
                raise ValueError(f"{name} takes no value")
            found[name] = ""
            rest = after.lstrip()
            continue
        if name not in valued:
            if name.startswith("--") or len(name) == 2:
                raise ValueError(f"there is no option {name}; there are {', '.join((*valued, *flags))} (an expression that begins with it comes after --)")
            break
        value, rest = _first_word(rest[len(name) + 1 :] if equals else after.lstrip(), name)
        found[name] = value
    return found, rest


def _first_word(text: str, option: str) -> tuple[str, str]:
    """The first word of a text, in quotes or not, and what comes behind it."""
    if text[:1] in ("'", '"'):
        end = text.find(text[0], 1)
        if end < 0:
            raise ValueError(f"the value of {option} has no closing quote: {text}")
        return text[1:end], text[end + 1 :].lstrip()
    word, _, after = text.partition(" ")
    if not word:
        raise ValueError(f"{option} needs a value")
    return word, after.lstrip()


def glued(word: str, valued: Iterable[str]) -> str:
    """How to write `-dsim:0`, for the end of a message; empty where a word is nothing of the kind."""
    return f" (an option and its value are two words: {word[:2]} {word[2:]})" if len(word) > 2 and word[:2] in valued else ""


def without_semicolon(line: str) -> str:
    """A line without the semicolon at its end, which people write out of habit, to see no result."""
    return line.strip().rstrip(";").rstrip()


def words(line: str) -> list[str]:
    """The words of a line; those in quotes are one. A semicolon at its end is none."""
    try:
        return shlex.split(without_semicolon(line))
    except ValueError as error:
        raise ValueError(f"{error}: {line}") from None


def take_flag(parts: list[str], flag: str) -> bool:
    """Take a flag out of the words, wherever it stands."""
    if flag not in parts:
        return False
    parts.remove(flag)
    return True


def join_sizes(parts: list[str]) -> list[str]:
    """`8 GiB` without quotes is one size: a number and a unit that follow each other become one word."""
    joined: list[str] = []
    for part in parts:
        if joined and part.lower() in (*_UNITS, "%") and joined[-1].replace(".", "", 1).replace("_", "").isdecimal():
            joined[-1] += f" {part}"
        else:
            joined.append(part)
    return joined


def at_most_a_device(parts: list[str]) -> str | None:
    """The only word there may be; None: no word."""
    for part in parts:
        if part.startswith("-"):
            raise ValueError(f"there is no option {part}")
    if len(parts) > 1:
        raise ValueError(f"too many arguments: {' '.join(parts)}")
    return parts[0] if parts else None
