"""What may be written for a size, and what it means."""

from __future__ import annotations

import decimal
import fractions

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tack_memory._sizes import format_bytes, parse_size

VALID = [
    (0, 0),
    (1, 1),
    (2**63 - 1, 2**63 - 1),
    (numpy.int32(24), 24),
    (numpy.uint64(2**40), 2**40),
    ("0", 0),
    ("1024", 1024),
    ("1_000_000", 1_000_000),
    ("1 B", 1),
    ("24 MiB", 24 * 2**20),
    ("24 MB", 24 * 10**6),
    ("24MiB", 24 * 2**20),
    ("  24   mib  ", 24 * 2**20),
    ("24 mIb", 24 * 2**20),
    ("1.5GB", 1_500_000_000),
    ("1.5GiB", 3 * 2**29),
    (".9GB", 900_000_000),
    ("5.MB", 5_000_000),
    ("1_024 KiB", 2**20),
    ("1kB", 1000),
    ("1 KiB", 1024),
    ("2TB", 2 * 10**12),
    ("2 TiB", 2 * 2**40),
    ("0 MiB", 0),
    (".1 KiB", 102),
    ("0.001kB", 1),
    ("7.999999999 TB", 7_999_999_999_000),
]


@pytest.mark.parametrize(("text", "nbytes"), VALID)
def test_a_size_is_an_int_or_a_string_with_a_unit(text: object, nbytes: int) -> None:
    assert parse_size(text) == nbytes
    assert type(parse_size(text)) is int


@pytest.mark.parametrize(
    ("text", "share"),
    [("80%", 800), ("100 %", 1000), ("12.5%", 125), ("0%", 0), ("0.05%", 0), (".1%", 1), ("100.0%", 1000), (" 50% ", 500)],
)
def test_a_percentage_is_a_share_of_the_total(text: str, share: int) -> None:
    assert parse_size(text, lambda: 1000) == share


def test_a_percentage_is_exact() -> None:
    assert parse_size("33.3%", lambda: 2**62 + 1) == (2**62 + 1) * 333 // 1000


@pytest.mark.parametrize("text", ["150%", "101%", "100.001%", "1000 %"])
@pytest.mark.parametrize("total", [1000, 2**62, None])
def test_a_percentage_is_no_more_than_all(text: str, total: int | None) -> None:
    with pytest.raises(ValueError, match=r"0% to 100% of the total memory of cuda:0"):
        parse_size(text, lambda: total, of="cuda:0")


def test_a_percentage_of_an_unknown_total_is_refused() -> None:
    with pytest.raises(ValueError, match=r"share of the total memory of cuda:0, which is unknown"):
        parse_size("80%", lambda: None, of="cuda:0")


@pytest.mark.parametrize("total", [None, lambda: None], ids=["no total", "unknown"])
@pytest.mark.parametrize("size", ["50%", "150%", "lots", "", "24 MBanana", "1.5", "9" * 200, "80 percent", 0.8, float("nan"), 8.0, True, b"1"])
def test_where_there_is_no_total_no_percentage_is_advised(size: object, total: object) -> None:
    """What is advised works there."""
    with pytest.raises((ValueError, TypeError)) as refused:
        parse_size(size, total)  # type: ignore[arg-type]
    if size != "150%":
        advised = [word for word in str(refused.value).split('"')[1::2] if word != size]
        assert advised, str(refused.value)
        for text in advised:
            assert parse_size(text, total) > 0  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["2G", "2 g", "2.5M", "2K", "2T", "2Gi", "2 mi"])
def test_a_bare_prefix_names_both_readings(text: str) -> None:
    with pytest.raises(ValueError, match="two ways") as error:
        parse_size(text)
    letter = text.strip("0123456789. ")[0].upper().replace("K", "k")
    number = text.rstrip("gGiIkKmMtT ")
    assert f'"{number} {letter}B"' in str(error.value) and f'"{number} {letter}iB"' in str(error.value)


def test_a_bare_prefix_names_the_bytes_of_both_readings() -> None:
    with pytest.raises(ValueError, match=r"2,000,000,000 bytes.*2,147,483,648 bytes"):
        parse_size("2G")


INVALID = [
    "", " ", "MiB", "%", "24 MBanana", "24 MiBs", "MiB 24", "24 24 MiB", "24 M iB", "1e9", "0x10", "1..5 GB", "1.5.1GB", ".", "1,5 GB", "24 PB",
    "24 EiB", "_1 GB", "1_ GB", "1__0 GB", "1._5 GB", "1_.5 GB", "+1 GB", "nan", "inf", "None", "80%%", "% 80", "80 % MiB", "٣ MiB", "２４ MiB",
    "24 MiB\0", "1" * 200, "b", "1.5", "0.5 B",
]  # fmt: skip


@pytest.mark.parametrize("text", INVALID)
def test_the_whole_string_must_be_a_size(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a size|fraction of a byte"):
        parse_size(text, lambda: 1000)


@pytest.mark.parametrize("size", [-1, "-1", "-1 GB", "- 1 GB", "-80%", numpy.int64(-5), "\N{MINUS SIGN}5"])
def test_a_negative_size_is_refused(size: object) -> None:
    with pytest.raises(ValueError, match="negative"):
        parse_size(size, lambda: 1000)


@pytest.mark.parametrize("size", [2**63, 2**64, 10**30, "8388608 TiB", str(2**63), "999999999 TB"])
def test_a_size_is_below_two_to_the_63(size: object) -> None:
    with pytest.raises(ValueError, match=r"2\*\*63"):
        parse_size(size)


@pytest.mark.parametrize(
    ("size", "suggestion"),
    [
        (0.8, '"80%"'),
        (0.125, '"12.5%"'),
        (8.0, '"8 GB"'),
        (8e9, '"8 GB"'),
        (1.5e6, '"1.5 MB"'),
        (float("nan"), '"8 GB"'),
        (float("inf"), '"8 GB"'),
        (0.0, '"8 GB"'),
        (-1.5, '"8 GB"'),
        (numpy.float64(0.5), '"50%"'),
    ],
)
def test_a_float_is_a_type_error_that_suggests_a_string(size: float, suggestion: str) -> None:
    with pytest.raises(TypeError) as error:
        parse_size(size, lambda: 2**40)
    assert suggestion in str(error.value)


@pytest.mark.parametrize("size", ["1,5 GB", ",5 GB", "1,500,000", "1.500,5 MB"])
def test_a_decimal_comma_is_told_apart_from_an_unknown_unit(size: str) -> None:
    with pytest.raises(ValueError, match='write the decimal point as "."') as caught:
        parse_size(size)
    assert "unknown unit" not in str(caught.value)


@pytest.mark.parametrize(
    "size", [True, False, numpy.bool_(True), None, b"24 MiB", [24], 1j, decimal.Decimal(8), fractions.Fraction(8), object(), numpy.float32(1)]
)
def test_other_types_are_type_errors(size: object) -> None:
    with pytest.raises(TypeError, match="a size cannot be"):
        parse_size(size)


@given(st.integers(0, 2**62), st.sampled_from(["B", "kB", "KiB", "MB", "MiB"]))
def test_parsing_a_whole_number_of_units_is_exact(number: int, unit: str) -> None:
    factor = {"B": 1, "kB": 1000, "KiB": 1024, "MB": 1000**2, "MiB": 1024**2}[unit]
    if number * factor < 2**63:
        assert parse_size(f"{number} {unit}") == number * factor


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_a_value_error(text: str) -> None:
    try:
        nbytes = parse_size(text, lambda: 2**40)
    except ValueError:
        return
    assert 0 <= nbytes < 2**63


@given(st.integers(0, 2**63 - 1))
def test_what_is_shown_is_close_and_can_be_read_back(nbytes: int) -> None:
    text = format_bytes(nbytes).replace("PiB", "TiB")  # a size has no unit above TiB
    factor = 1024 if "PiB" in format_bytes(nbytes) else 1
    assert abs(parse_size(text) * factor - nbytes) <= 0.006 * nbytes


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (24 * 2**20, "24 MiB"),
        (1536, "1.5 KiB"),
        (2**30 - 1, "1 GiB"),
        (100 * 2**20 + 1, "100 MiB"),
        (None, "unknown"),
        (-2048, "-2 KiB"),
    ],
)
def test_bytes_for_people_are_in_iec_units(nbytes: int | None, text: str) -> None:
    assert format_bytes(nbytes) == text


def test_where_a_percentage_is_not_possible_none_is_advised() -> None:
    assert parse_size(" 24 MiB") == 24 << 20
    with pytest.raises(ValueError, match="percentage is not possible"):
        parse_size("80 % ")
    for text in INVALID:
        with pytest.raises(ValueError, match="not a size|fraction of a byte|not possible") as refused:
            parse_size(text)
        advice = str(refused.value).removeprefix(repr(text))
        assert "24 MiB" in advice and "80%" not in advice
