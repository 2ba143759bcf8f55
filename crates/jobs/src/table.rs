//! Columns as Go's `text/tabwriter` aligns them, with padding 2: the layout of Arena's and kubectl's tables.

/// Aligns tab-separated text. A cell is what a tab ends; a column is the cells in the same place of *consecutive* lines,
/// as wide as its widest cell plus two spaces. What follows a line's last tab is no cell and is never padded.
pub fn tabulate(text: &str) -> String {
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    let mut widths: Vec<Vec<usize>> =
        lines.iter().map(|cells| vec![0; cells.len().saturating_sub(1)]).collect();
    let columns = widths.iter().map(Vec::len).max().unwrap_or_default();
    for column in 0..columns {
        let mut start = 0;
        while start < lines.len() {
            let run = widths[start..].iter().take_while(|line| line.len() > column).count();
            let width = lines[start..start + run]
                .iter()
                .filter_map(|cells| cells.get(column))
                .map(|cell| cell.chars().count() + 2)
                .max();
            for line in &mut widths[start..start + run] {
                line[column] = width.unwrap_or_default();
            }
            start += run + 1;
        }
    }
    let mut out = String::new();
    for (cells, widths) in lines.iter().zip(&widths) {
        for (index, cell) in cells.iter().enumerate() {
            match widths.get(index) {
                Some(&width) => out += &format!("{cell:width$}"),
                None => out += cell,
            }
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_end_where_a_line_has_no_such_cell() {
        let text = "Name:\ta\nEndTime:\t\n\nInstances:\n  NAME\tSTATUS\n  a-launcher\tRunning\n";
        let expected =
            "Name:     a\nEndTime:  \n\nInstances:\n  NAME        STATUS\n  a-launcher  Running\n";
        assert_eq!(tabulate(text), expected);
    }

    #[test]
    fn a_cell_that_ends_the_line_is_padded() {
        assert_eq!(tabulate("a\tb\t\nlong\tc\t\n"), "a     b  \nlong  c  \n");
    }
}
