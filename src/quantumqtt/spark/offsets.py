"""Where a stream stands: the offset that Spark keeps in its checkpoint.

    {"v":1,"p":{"0":1500,"1":980}}

Spark compares offsets as JSON texts, so there is one spelling: `v` first, partitions sorted as
numbers. A partition that is added later is a key that is added; its absence before means 0 rows
were read of it. A change of meaning takes a new version, and old ones stay readable.
"""

from collections.abc import Mapping
from typing import Final

from quantumqtt.errors import SourceError
from quantumqtt.logwire.tickets import OFFSET_MAX

VERSION: Final = 1

Ends = dict[int, int]
SparkOffset = dict[str, object]


def spell(ends: Mapping[int, int]) -> SparkOffset:
    """Make Spark's offset of next offsets by partition."""
    return {"v": VERSION, "p": {str(number): ends[number] for number in sorted(ends)}}


def read(offset: Mapping[str, object]) -> Ends:
    """Read an offset back, from a checkpoint of this release or an older one.

    Raises:
        SourceError: The checkpoint is of a newer release, or not one of this source.
    """
    partitions = offset.get("p")
    if offset.get("v") != VERSION or not isinstance(partitions, dict):
        raise SourceError(
            f"checkpoint holds the offset {dict(offset)!r}, which is not of version {VERSION}",
            hint="use the release that wrote it, or a new checkpoint and startingOffsets",
        )
    ends: Ends = {}
    for number, end in partitions.items():
        if not str(number).isdecimal() or type(end) is not int or not 0 <= end <= OFFSET_MAX:
            raise SourceError(f"checkpoint holds {end!r} for partition {number!r}")
        ends[int(number)] = end
    return ends
