//! Pictures of figures: charts as SVG, and a page of charts that needs nothing else to be looked at.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use plotters::prelude::*;

use crate::error::{IoContext, LabError};

/// Width of a chart, pixels.
const WIDTH: u32 = 840;
/// Its height.
const HEIGHT: u32 = 280;
/// Colours of lines and bars, in turn. They can be distinguished without seeing red or green.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x1f, 0x5f, 0xbf),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x8a, 0x6d, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];

/// A name and its points.
pub type Line = (String, Vec<(f64, f64)>);

/// The shape of the data.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Lines over numbers.
    Lines(Vec<Line>),
    /// The same where values differ by powers of ten: the vertical axis is logarithmic. Values below 1 are drawn as 1.
    Logarithmic(Vec<Line>),
    /// For each group its bars, one for each name.
    Bars {
        /// Names of the bars in a group.
        names: Vec<String>,
        /// Groups with their values; NaN leaves a bar out.
        groups: Vec<(String, Vec<f64>)>,
    },
}

/// One chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The text above the chart.
    pub title: String,
    /// The horizontal axis, with its unit.
    pub x: String,
    /// The vertical axis, with its unit.
    pub y: String,
    /// The values.
    pub shape: Shape,
}

/// Height of the strip with the title and the names of lines and bars, pixels.
const HEAD: u32 = 44;

/// The axis goes a tenth beyond the highest value.
fn with_room(values: impl Iterator<Item = f64>) -> f64 {
    let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    if most > 0.0 { most * 1.1 } else { 1.0 }
}

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// A number at an axis: without decimals that say nothing, thousands set apart.
fn axis_number(value: &f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    if rounded.fract() != 0.0 {
        return rounded.to_string();
    }
    let digits = format!("{:.0}", rounded.abs());
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    format!("{}{}", if rounded < 0.0 { "-" } else { "" }, groups.join(","))
}

/// A number at a logarithmic axis, whose values are logarithms; nothing between powers of ten.
fn power_of_ten(logarithm: &f64) -> String {
    if logarithm.fract().abs() < 1e-6 { axis_number(&10_f64.powf(*logarithm)) } else { String::new() }
}

/// What drawing in `DB` answers.
type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

impl Chart {
    /// The chart as SVG.
    ///
    /// # Errors
    /// It cannot be drawn.
    pub fn svg(&self) -> Result<String, LabError> {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
            self.draw(&area).map_err(|error| LabError::Protocol(format!("the chart '{}' cannot be drawn: {error}", self.title)))?;
        }
        Ok(svg)
    }

    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, plotters::coord::Shift>) -> Drawn<DB> {
        area.fill(&WHITE)?;
        let (head, body) = area.split_vertically(HEAD);
        self.draw_head(&head)?;
        match &self.shape {
            Shape::Lines(lines) => self.draw_lines(&body, lines, &axis_number),
            Shape::Logarithmic(lines) => {
                let logarithm = |(x, y): &(f64, f64)| (*x, y.max(1.0).log10());
                let lines: Vec<Line> = lines.iter().map(|(name, points)| (name.clone(), points.iter().map(logarithm).collect())).collect();
                self.draw_lines(&body, &lines, &power_of_ten)
            }
            Shape::Bars { names, groups } => self.draw_bars(&body, names, groups),
        }
    }

    /// The title, and below it the name of each line or bar beside its colour. No value can lie behind it.
    fn draw_head<DB: DrawingBackend>(&self, area: &DrawingArea<DB, plotters::coord::Shift>) -> Drawn<DB> {
        area.draw(&Text::new(self.title.clone(), (72, 6), ("sans-serif", 17)))?;
        let names: Vec<&String> = match &self.shape {
            Shape::Lines(lines) | Shape::Logarithmic(lines) => lines.iter().map(|(name, _)| name).collect(),
            Shape::Bars { names, .. } => names.iter().collect(),
        };
        let mut left = 72;
        for (index, name) in names.into_iter().enumerate() {
            area.draw(&Rectangle::new([(left, 32), (left + 16, 36)], colour(index).filled()))?;
            area.draw(&Text::new(name.clone(), (left + 21, 27), ("sans-serif", 13)))?;
            left += 44 + 7 * i32::try_from(name.chars().count()).unwrap_or(0);
        }
        Ok(())
    }

    fn draw_lines<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, plotters::coord::Shift>,
        lines: &[Line],
        y_label: &dyn Fn(&f64) -> String,
    ) -> Drawn<DB> {
        let points = || lines.iter().flat_map(|(_, points)| points);
        let first = points().map(|(x, _)| *x).fold(f64::MAX, f64::min).min(f64::MAX / 4.0);
        let last = points().map(|(x, _)| *x).fold(first + 1.0, f64::max);
        let mut builder = ChartBuilder::on(area);
        builder.margin(8).margin_right(20).x_label_area_size(38).y_label_area_size(64);
        let mut chart = builder.build_cartesian_2d(first..last, 0.0..with_room(points().map(|(_, y)| *y)))?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x).y_desc(&self.y).light_line_style(TRANSPARENT).bold_line_style(BLACK.mix(0.12));
        mesh.x_label_formatter(&axis_number).y_label_formatter(&y_label).draw()?;
        for (index, (_, points)) in lines.iter().enumerate() {
            chart.draw_series(LineSeries::new(points.iter().copied(), colour(index).stroke_width(2)))?;
        }
        Ok(())
    }

    fn draw_bars<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, plotters::coord::Shift>,
        names: &[String],
        groups: &[(String, Vec<f64>)],
    ) -> Drawn<DB> {
        let (width, count) = (0.8 / names.len().max(1) as f64, groups.len() as f64);
        let top = with_room(groups.iter().flat_map(|(_, values)| values.iter().copied()));
        let mut builder = ChartBuilder::on(area);
        builder.margin(8).x_label_area_size(38).y_label_area_size(64);
        let mut chart = builder.build_cartesian_2d(-0.5..(count - 0.5).max(0.5), 0.0..top)?;
        let group_of = |x: &f64| {
            let place = x.round();
            let is_group = (x - place).abs() < 1e-6 && place >= 0.0;
            groups.get(place.max(0.0) as usize).filter(|_| is_group).map(|(name, _)| name.clone()).unwrap_or_default()
        };
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh().x_desc(&self.x).y_desc(&self.y).light_line_style(TRANSPARENT).bold_line_style(BLACK.mix(0.12));
        mesh.x_labels(groups.len() * 2 + 1).x_label_formatter(&group_of).y_label_formatter(&axis_number).draw()?;
        for index in 0..names.len() {
            let bars = groups.iter().enumerate().filter_map(|(place, (_, values))| {
                let (value, left) = (*values.get(index)?, place as f64 - 0.4 + index as f64 * width);
                value.is_finite().then(|| Rectangle::new([(left, 0.0), (left + width * 0.92, value)], colour(index).filled()))
            });
            chart.draw_series(bars)?;
        }
        Ok(())
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A page that shows charts, and the table that belongs to them.
///
/// # Errors
/// A chart cannot be drawn.
pub fn page(title: &str, table: &str, charts: &[Chart]) -> Result<String, LabError> {
    let title = escaped(title);
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\n<style>body {{ font: 15px sans-serif; margin: 2em auto; \
         max-width: 60em; padding: 0 1em }} svg {{ max-width: 100%; height: auto }} pre {{ overflow: auto }}</style>\n<h1>{title}</h1>\n"
    );
    for chart in charts {
        let _ = writeln!(html, "<figure role=\"img\" aria-label=\"{}\">{}</figure>", escaped(&chart.title), chart.svg()?);
    }
    let _ = writeln!(html, "<pre>{}</pre>", escaped(table));
    Ok(html)
}

/// Writes the page beside the figures: `FIGURES.html`, and its first chart as `FIGURES.svg`.
///
/// # Errors
/// A chart cannot be drawn, or a file cannot be written.
pub fn write_beside(figures: &Path, title: &str, table: &str, charts: &[Chart]) -> Result<(), LabError> {
    let write = |extension: &str, text: String| {
        let path = figures.with_extension(extension);
        fs::write(&path, text).context(|| format!("write {}", path.display()))
    };
    write("html", page(title, table, charts)?)?;
    charts.first().map_or(Ok(()), |chart| write("svg", chart.svg()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(shape: Shape) -> Chart {
        Chart { title: "a < b & c".to_owned(), x: "time, s".to_owned(), y: "works a second".to_owned(), shape }
    }

    #[test]
    fn charts_are_drawn_whatever_their_values() {
        let line = |points: &[(f64, f64)]| Shape::Lines(vec![("one".to_owned(), points.to_vec())]);
        let bars = |groups: Vec<(String, Vec<f64>)>| Shape::Bars { names: vec!["one".to_owned(), "two".to_owned()], groups };
        let shapes = [
            line(&[]),
            line(&[(0.0, 0.0)]),
            line(&[(-1.0, 5.0), (2.0, 7.5)]),
            Shape::Logarithmic(vec![("one".to_owned(), vec![(0.0, 0.0), (1.0, 600.0)])]),
            bars(Vec::new()),
            bars(vec![("first".to_owned(), vec![1.0, f64::NAN]), ("second".to_owned(), vec![0.0])]),
        ];
        for shape in shapes {
            let svg = chart(shape.clone()).svg().unwrap();
            assert!(svg.contains("</svg>") && svg.contains("a &lt; b &amp; c"), "{shape:?}: {svg}");
        }
    }

    #[test]
    fn numbers_at_axes_are_short() {
        let shown = [(0.0, "0"), (-0.0, "0"), (0.30000000000000004, "0.3"), (-0.4, "-0.4"), (5000.0, "5,000"), (1_234_567.0, "1,234,567")];
        for (value, text) in shown {
            assert_eq!(axis_number(&value), text);
        }
        for (logarithm, text) in [(0.0, "1"), (0.5, ""), (3.0, "1,000")] {
            assert_eq!(power_of_ten(&logarithm), text);
        }
    }

    #[test]
    fn a_page_needs_nothing_else() {
        let html = page("<title>", "1 < 2", &[chart(Shape::Lines(Vec::new()))]).unwrap();
        assert!(html.contains("&lt;title&gt;") && html.contains("<pre>1 &lt; 2</pre>"), "{html}");
        assert!(!html.contains("src=") && !html.contains("href="), "{html}");
    }
}
