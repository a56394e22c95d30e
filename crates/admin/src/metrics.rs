//! Prometheus' text format over [`Metric`]. Names are written as given: nothing is appended, nothing renamed.
//!
//! Format: <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>.

use std::fmt::Write;

use model::stats::{Metric, MetricKind, Sample};

/// All metrics as one text. Families of one name are written as one.
pub fn text(metrics: &[Metric]) -> String {
    let mut page = String::new();
    for (at, metric) in metrics.iter().enumerate() {
        if metrics[..at].iter().any(|earlier| earlier.name == metric.name) {
            continue;
        }
        let _ = writeln!(page, "# HELP {} {}", metric.name, metric.help.replace('\\', "\\\\").replace('\n', "\\n"));
        let _ = writeln!(page, "# TYPE {} {}", metric.name, kind(metric.kind));
        for same in metrics[at..].iter().filter(|other| other.name == metric.name) {
            for sample in &same.samples {
                line(&mut page, metric.name, sample);
            }
        }
    }
    page
}

fn kind(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    }
}

fn line(page: &mut String, name: &str, sample: &Sample) {
    let _ = write!(page, "{name}{}", sample.suffix);
    for (at, (label, value)) in sample.labels.iter().enumerate() {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(page, "{}{label}=\"{value}\"", if at == 0 { "{" } else { "," });
    }
    page.push_str(if sample.labels.is_empty() { " " } else { "} " });
    let _ = match sample.value {
        value if value == f64::INFINITY => writeln!(page, "+Inf"),
        value if value == f64::NEG_INFINITY => writeln!(page, "-Inf"),
        value => writeln!(page, "{value}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format() {
        let sample = |suffix, labels, value| Sample { suffix, labels, value };
        let metrics = [
            Metric {
                name: "a_total",
                help: "A.",
                kind: MetricKind::Counter,
                samples: vec![sample("", vec![("x", "q\"\\\n".to_owned()), ("y", "é".to_owned())], 1.5)],
            },
            Metric { name: "b", help: "B.", kind: MetricKind::Gauge, samples: vec![sample("", vec![], 3.0)] },
            Metric {
                name: "a_total",
                help: "A.",
                kind: MetricKind::Counter,
                samples: vec![sample("", vec![("x", String::new())], f64::INFINITY)],
            },
        ];
        let expected = "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"q\\\"\\\\\\n\",y=\"é\"} 1.5\na_total{x=\"\"} +Inf\n# HELP b B.\n# TYPE b gauge\nb 3\n";
        assert_eq!(text(&metrics), expected);
    }
}
