"""SASLprep (RFC 4013): one spelling for names and passwords that look alike.

Letters that can be typed in several ways (composed or not, full width or not) become one, what
cannot be seen is taken out, every space is the plain one, and what nobody can type is refused. Text
in ASCII stays as it is, unless it holds control characters.
"""

import stringprep
import unicodedata
from collections.abc import Callable
from typing import Final

_PROHIBITED: Final[tuple[Callable[[str], bool], ...]] = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(text: str, *, is_stored: bool = False) -> str:
    """Prepare a name or a password.

    What is stored may not hold characters that Unicode 3.2 did not know: they may be spelled
    otherwise one day.

    Raises:
        ValueError: It holds what no name or password may.
    """
    mapped = "".join(
        " " if stringprep.in_table_c12(one) else one
        for one in text
        if not stringprep.in_table_b1(one)
    )
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    for one in prepared:
        if any(is_prohibited(one) for is_prohibited in _PROHIBITED):
            raise ValueError(f"character U+{ord(one):04X} is in no name or password")
        if is_stored and stringprep.in_table_a1(one):
            raise ValueError(f"character U+{ord(one):04X} was not known when names were settled")
    is_right_to_left = [stringprep.in_table_d1(one) for one in prepared]
    if any(is_right_to_left):
        is_framed = is_right_to_left[0] and is_right_to_left[-1]
        if not is_framed or any(stringprep.in_table_d2(one) for one in prepared):
            raise ValueError("right-to-left letters stand beside left-to-right ones")
    return prepared
