"""Prints when windows of a calendar begin, by Python's zoneinfo: seconds since the epoch.

Each line of the input is `ZONE LENGTH ANCHOR FIRST_YEAR LAST_YEAR`, and each line of the output
answers one.
"""

import calendar
import sys
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo


def first_days(length, anchor, first, last):
    if length == "month":
        for year in range(first, last + 1):
            for month in range(1, 13):
                yield date(year, month, min(anchor, calendar.monthrange(year, month)[1]))
        return
    day = date(first, 1, 1)
    while day.year <= last:
        if length == "day" or day.isoweekday() == anchor:
            yield day
        day += timedelta(days=1)


for line in sys.stdin:
    zone, length, anchor, first, last = line.split()
    days = first_days(length, int(anchor), int(first), int(last))
    starts = {int(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).timestamp()) for day in days}
    print(*sorted(starts))
