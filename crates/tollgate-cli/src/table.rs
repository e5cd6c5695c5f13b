//! Tables of text.

/// Returns a line for the heads of the columns, and one for each row. Two spaces separate columns.
/// Columns of numbers are aligned to the right.
pub(crate) fn table<const N: usize>(head: &[&str; N], rows: &[[String; N]]) -> String {
    let head = head.map(str::to_owned);
    let lines = || std::iter::once(&head).chain(rows);
    let is_number = |cell: &str| cell.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
    let columns: [(usize, bool); N] = std::array::from_fn(|n| {
        let width = lines().map(|cells| cells[n].chars().count()).max().unwrap_or(0);
        (width, rows.iter().all(|cells| is_number(&cells[n])))
    });
    let line = |cells: &[String; N]| {
        let cells = cells.iter().zip(columns).map(|(cell, (width, right))| {
            if right { format!("{cell:>width$}") } else { format!("{cell:width$}") }
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_numbers_are_aligned_to_the_right() {
        let rows = [["a", "1,209", "1m"], ["long", "7", "?"]].map(|row| row.map(str::to_owned));
        let table = table(&["key", "n", "span"], &rows);
        assert_eq!(table, "key       n  span\na     1,209  1m\nlong      7  ?\n");
    }
}
