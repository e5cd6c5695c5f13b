//! When the windows of a calendar begin, from 1970 to the end of time.

use jiff::ToSpan;
use jiff::civil::{Date, DateSeries, Time, date};
use tollgate_core::{Boundaries, Timestamp};

use super::{CalendarWindow, Length};

impl CalendarWindow {
    /// The first moments of the days on which windows begin. The table is never freed.
    pub(super) fn boundaries(&self) -> Boundaries {
        let mut micros: Vec<u64> = self
            .first_days()
            .map(|day| {
                // Without a midnight, the time after the gap.
                let midnight = self.zone.to_ambiguous_timestamp(day.to_datetime(Time::midnight()));
                midnight.compatible().map_or(i64::MAX, jiff::Timestamp::as_microsecond)
            })
            .skip_while(|micros| *micros < 0)
            .map(i64::cast_unsigned)
            .take_while(|micros| *micros <= Timestamp::MAX.as_micros())
            .collect();
        // A zone that moves over the date line leaves out a day.
        micros.dedup();
        Boundaries::new(micros.leak())
    }

    /// The days on which windows begin, in every year that there is.
    fn first_days(&self) -> Box<dyn Iterator<Item = Date>> {
        let anchor = self.anchor.cast_signed();
        let days = |first: Date, step: i32| -> DateSeries { first.series(step.days()) };
        match self.length {
            Length::Day => Box::new(days(date(1969, 12, 31), 1)),
            // December 22 was a Monday.
            Length::Week => Box::new(days(date(1969, 12, 21 + anchor), 7)),
            Length::Month => Box::new(date(1969, 12, 1).series(1.month()).map(move |first| {
                let day = anchor.min(first.days_in_month());
                date(first.year(), first.month(), day)
            })),
        }
    }
}
