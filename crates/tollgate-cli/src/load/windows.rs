//! How many requests of a key were admitted in each window.
//!
//! The server decides between the request and its response. So a request counts in a window if it
//! was sent in it and answered in it. A count is never too high.

use std::collections::BTreeMap;

use super::args::Windows;
use super::tally::Admitted;

/// A window and what was admitted in it. Times are in microseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) admitted: u64,
}

/// The key that was admitted most in a window.
#[derive(Debug)]
pub(crate) struct Busiest {
    pub(crate) key: u32,
    pub(crate) worst: Window,
    /// The windows of this key in which something was admitted, in order.
    pub(crate) windows: Vec<Window>,
}

/// Finds the busiest key, and the number of keys with more than `threshold` in a window.
pub(crate) fn busiest(
    mut admitted: Vec<Admitted>,
    kind: Windows,
    length: u64,
    threshold: Option<u64>,
) -> (Busiest, usize) {
    admitted.sort_unstable_by_key(|one| one.key);
    let mut over = 0;
    // The first key, if nothing was admitted.
    let mut busiest =
        Busiest { key: 1, worst: Window { start: 0, end: 0, admitted: 0 }, windows: Vec::new() };
    for of_key in admitted.chunk_by(|a, b| a.key == b.key) {
        let windows = match kind {
            Windows::Sliding => sliding(of_key, length),
            Windows::Aligned => aligned(of_key, length),
        };
        // The first of those with the most.
        let Some(worst) = windows.iter().rev().max_by_key(|window| window.admitted).copied() else {
            continue;
        };
        over += usize::from(threshold.is_some_and(|threshold| worst.admitted > threshold));
        if worst.admitted > busiest.worst.admitted {
            busiest = Busiest { key: of_key[0].key, worst, windows };
        }
    }
    (busiest, over)
}

/// A window that ends at each answer.
fn sliding(admitted: &[Admitted], length: u64) -> Vec<Window> {
    // A request that took longer counts in no window. Of the others, each that was sent before a
    // window was also answered before its end.
    let shorter = || admitted.iter().filter(|one| one.answered - one.sent < length);
    let sorted = |time: fn(&Admitted) -> u64| {
        let mut times: Vec<_> = shorter().map(time).collect();
        times.sort_unstable();
        times
    };
    let (sent, answered) = (sorted(|one| one.sent), sorted(|one| one.answered));
    let mut before = 0;
    let mut windows = Vec::with_capacity(answered.len());
    for (end, until) in answered.into_iter().zip(1..) {
        let start = end.saturating_sub(length);
        while sent[before] <= start {
            before += 1;
        }
        windows.push(Window { start, end, admitted: until - before as u64 });
    }
    windows
}

/// Windows that begin at multiples of their length.
fn aligned(admitted: &[Admitted], length: u64) -> Vec<Window> {
    let mut counts = BTreeMap::new();
    for one in admitted.iter().filter(|one| one.sent / length == one.answered / length) {
        *counts.entry(one.sent / length * length).or_default() += 1;
    }
    counts.into_iter().map(|(start, admitted)| Window { start, end: start + length, admitted }).collect()
}

/// The most of any window that ends in each span, by the number of the span after `from`.
pub(crate) fn peaks(windows: &[Window], from: u64, span: u64) -> BTreeMap<u64, u64> {
    let mut peaks = BTreeMap::new();
    for window in windows {
        let peak: &mut u64 = peaks.entry((window.end - 1).saturating_sub(from) / span).or_default();
        *peak = window.admitted.max(*peak);
    }
    peaks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: u32, sent: u64, answered: u64) -> Admitted {
        Admitted { key, sent, answered }
    }

    /// Of all pairs of a start and an answer, the most that lie between them in a window.
    fn naive(admitted: &[Admitted], length: u64) -> u64 {
        let counts = admitted.iter().map(|last| {
            let from = last.answered.saturating_sub(length);
            admitted.iter().filter(|one| one.sent > from && one.answered <= last.answered).count()
        });
        counts.max().unwrap_or(0) as u64
    }

    #[test]
    fn a_sliding_window_counts_what_was_sent_and_answered_in_it() {
        let admitted =
            [request(1, 100, 110), request(1, 105, 150), request(1, 190, 205), request(1, 200, 215)];
        let counts: Vec<_> = sliding(&admitted, 100).iter().map(|window| window.admitted).collect();
        assert_eq!(counts, [1, 2, 1, 2]);
        let all = sliding(&admitted, 116);
        assert_eq!(all[3], Window { start: 99, end: 215, admitted: 4 });
    }

    #[test]
    fn a_request_longer_than_the_window_counts_in_none() {
        let slow = [request(1, 100, 900), request(1, 150, 800), request(1, 395, 398), request(1, 400, 500)];
        assert_eq!(sliding(&slow, 100), [Window { start: 298, end: 398, admitted: 1 }]);
    }

    #[test]
    fn sliding_counts_agree_with_a_naive_count() {
        for seed in 0..50_u64 {
            let number = |n: u64| (seed + 1).wrapping_mul(n + 1).wrapping_mul(2_654_435_761) >> 7;
            let admitted: Vec<_> = (0..40)
                .map(|n| request(1, 1_000 + number(n) % 500, 0))
                .zip(40..)
                .map(|(one, n)| Admitted { answered: one.sent + number(n) % 150, ..one })
                .collect();
            let most = sliding(&admitted, 100).iter().map(|window| window.admitted).max();
            assert_eq!(most, Some(naive(&admitted, 100)), "{admitted:?}");
        }
    }

    #[test]
    fn an_aligned_window_leaves_out_requests_across_its_ends() {
        let admitted =
            [request(1, 100, 110), request(1, 199, 199), request(1, 199, 200), request(1, 200, 210)];
        let windows = aligned(&admitted, 100);
        assert_eq!(windows[0], Window { start: 100, end: 200, admitted: 2 });
        assert_eq!(windows[1], Window { start: 200, end: 300, admitted: 1 });
    }

    #[test]
    fn the_busiest_key_and_the_keys_over_the_threshold_are_found() {
        let admitted = vec![
            request(2, 10, 11),
            request(1, 10, 11),
            request(2, 12, 13),
            request(3, 10, 12),
            request(3, 11, 12),
        ];
        let (busiest, over) = super::busiest(admitted, Windows::Sliding, 100, Some(1));
        assert_eq!((busiest.key, busiest.worst.admitted, over), (2, 2, 2));
        assert_eq!(super::busiest(Vec::new(), Windows::Aligned, 100, Some(0)).1, 0);
    }

    #[test]
    fn a_peak_is_the_most_of_the_windows_of_its_span() {
        let window = |end, admitted| Window { start: end - 100, end, admitted };
        let peaks =
            peaks(&[window(1_010, 3), window(1_020, 5), window(1_101, 2), window(1_300, 1)], 1_000, 100);
        assert_eq!(Vec::from_iter(peaks), [(0, 5), (1, 2), (2, 1)]);
    }
}
