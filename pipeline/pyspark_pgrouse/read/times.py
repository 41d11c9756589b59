"""Times that a lake and Spark cannot hold."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

# Days since 1970: Python, Delta and most engines know the years 1 to 9999.
FIRST_DAY, LAST_DAY = ((day - date(1970, 1, 1)).days for day in (date.min, date.max))
DAY_US = 86_400_000_000


def representable(column: pa.Array) -> pa.Array:
    """Return the column without such times: the owner of the tables may write infinity or 4713 BC.

    Such a time becomes NULL, and such a day the first or the last one, since it names a partition.
    """
    if pa.types.is_date32(column.type):
        days = pc.min_element_wise(pc.max_element_wise(column.cast(pa.int32()), FIRST_DAY), LAST_DAY)
        return days.cast(pa.int32()).cast(pa.date32())
    if not pa.types.is_timestamp(column.type):
        return column
    moments = column.cast(pa.timestamp("us")).cast(pa.int64())
    fits = pc.and_(pc.greater_equal(moments, FIRST_DAY * DAY_US), pc.less(moments, (LAST_DAY + 1) * DAY_US))
    return column if pc.all(fits).as_py() in (True, None) else pc.if_else(fits, column, None)
