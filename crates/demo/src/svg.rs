//! The speeds as bars: topology and regular scheduling of each job, the published figure as a line across.

use std::fmt::Write;

use crate::report::{Report, Row};

/// Pixels.
const WIDTH: f64 = 760.0;
const BAR: f64 = 18.0;
const GROUP: f64 = 84.0;
const LEFT: f64 = 190.0;
const TOP: f64 = 56.0;

/// Text as it may stand in XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

pub(crate) fn bars(report: &Report) -> String {
    let pairs = report.pairs();
    let speeds = report.rows.iter().flat_map(|row| [row.speed, row.run.published]);
    let most = speeds.fold(1.0, f64::max);
    let scale = (WIDTH - LEFT - 90.0) / most;
    let groups = u32::try_from(pairs.len()).map_or(0.0, f64::from);
    let height = TOP + groups * GROUP + 24.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"12\" y=\"24\" font-size=\"15\">Images per second, 4 workers of one V100 (modelled)</text>\n\
         <text x=\"12\" y=\"42\" fill=\"#666\">bars: this run; black lines: published</text>\n"
    );
    let mut y = TOP;
    for (fast, slow) in pairs {
        let ratio = fast.speed / slow.speed;
        let title = format!("{} {}", fast.run.framework.word(), fast.run.model);
        let _ = writeln!(svg, "<text x=\"12\" y=\"{:.1}\">{}</text>", y + 22.0, escaped(&title));
        let _ = writeln!(
            svg,
            "<text x=\"12\" y=\"{:.1}\" fill=\"#666\">{ratio:.2} times</text>",
            y + 40.0
        );
        let mut bar = |row: &Row, name: &str, colour: &str, y: f64| {
            let _ = writeln!(
                svg,
                "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\n\
                 <line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"black\" stroke-width=\"2\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\">{:.0} {}</text>",
                row.speed * scale,
                y - 2.0,
                y + BAR + 2.0,
                LEFT + row.speed.max(row.run.published) * scale + 6.0,
                y + 14.0,
                row.speed,
                escaped(name),
                x = LEFT + row.run.published * scale,
            );
        };
        bar(fast, "topology", "#2a7f62", y + 6.0);
        bar(slow, "regular", "#b0b7bd", y + 6.0 + BAR + 8.0);
        y += GROUP;
    }
    svg.push_str("</svg>\n");
    svg
}
