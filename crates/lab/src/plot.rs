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
/// Colours of the lines and bars, in turn. All can be told apart by those who see no red or green.
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

/// What is drawn.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Lines over numbers.
    Lines(Vec<Line>),
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
    /// What it says.
    pub title: String,
    /// What is on the horizontal axis, with its unit.
    pub x: String,
    /// What is on the vertical axis, with its unit.
    pub y: String,
    /// The values.
    pub shape: Shape,
}

/// Space above the highest value, where the names are.
fn with_room(values: impl Iterator<Item = f64>) -> f64 {
    let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    if most > 0.0 { most * 1.3 } else { 1.0 }
}

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

    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, plotters::coord::Shift>) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
        area.fill(&WHITE)?;
        let mut builder = ChartBuilder::on(area);
        builder.caption(&self.title, ("sans-serif", 17)).margin(8).x_label_area_size(38).y_label_area_size(64);
        let colour = |index: usize| COLOURS[index % COLOURS.len()];
        match &self.shape {
            Shape::Lines(lines) => {
                let points = || lines.iter().flat_map(|(_, points)| points);
                let first = points().map(|(x, _)| *x).fold(f64::MAX, f64::min).min(f64::MAX / 4.0);
                let last = points().map(|(x, _)| *x).fold(first + 1.0, f64::max);
                let mut chart = builder.build_cartesian_2d(first..last, 0.0..with_room(points().map(|(_, y)| *y)))?;
                chart.configure_mesh().x_desc(&self.x).y_desc(&self.y).light_line_style(WHITE).draw()?;
                for (index, (name, points)) in lines.iter().enumerate() {
                    let series = LineSeries::new(points.iter().copied(), colour(index).stroke_width(2));
                    let key = move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour(index).stroke_width(2));
                    chart.draw_series(series)?.label(name).legend(key);
                }
                let labels = &mut chart.configure_series_labels();
                labels.background_style(WHITE.mix(0.8)).border_style(TRANSPARENT).position(SeriesLabelPosition::UpperRight).draw()
            }
            Shape::Bars { names, groups } => {
                let (width, count) = (0.8 / names.len().max(1) as f64, groups.len() as f64);
                let top = with_room(groups.iter().flat_map(|(_, values)| values.iter().copied()));
                let mut chart = builder.build_cartesian_2d(-0.5..(count - 0.5).max(0.5), 0.0..top)?;
                let group_of = |x: &f64| {
                    let place = x.round();
                    let is_group = (x - place).abs() < 1e-6 && place >= 0.0;
                    groups.get(place.max(0.0) as usize).filter(|_| is_group).map(|(name, _)| name.clone()).unwrap_or_default()
                };
                let mut mesh = chart.configure_mesh();
                mesh.disable_x_mesh().x_desc(&self.x).y_desc(&self.y).light_line_style(WHITE).x_labels(groups.len() * 2 + 1);
                mesh.x_label_formatter(&group_of).draw()?;
                for (index, name) in names.iter().enumerate() {
                    let bars = groups.iter().enumerate().filter_map(|(place, (_, values))| {
                        let (value, left) = (*values.get(index)?, place as f64 - 0.4 + index as f64 * width);
                        value.is_finite().then(|| Rectangle::new([(left, 0.0), (left + width * 0.92, value)], colour(index).filled()))
                    });
                    let key = move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour(index).filled());
                    chart.draw_series(bars)?.label(name).legend(key);
                }
                let labels = &mut chart.configure_series_labels();
                labels.background_style(WHITE.mix(0.8)).border_style(TRANSPARENT).position(SeriesLabelPosition::UpperRight).draw()
            }
        }
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
            bars(Vec::new()),
            bars(vec![("first".to_owned(), vec![1.0, f64::NAN]), ("second".to_owned(), vec![0.0])]),
        ];
        for shape in shapes {
            let svg = chart(shape.clone()).svg().unwrap();
            assert!(svg.contains("</svg>") && svg.contains("a &lt; b &amp; c"), "{shape:?}: {svg}");
        }
    }

    #[test]
    fn a_page_needs_nothing_else() {
        let html = page("<title>", "1 < 2", &[chart(Shape::Lines(Vec::new()))]).unwrap();
        assert!(html.contains("&lt;title&gt;") && html.contains("<pre>1 &lt; 2</pre>"), "{html}");
        assert!(!html.contains("src=") && !html.contains("href="), "{html}");
    }
}
