//! A metrics recorder for counters and gauges, and the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};

/// The recorder. Its clones share the metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder(Arc<Mutex<BTreeMap<String, Family>>>);

/// All metrics of a name.
#[derive(Debug, Default)]
struct Family {
    description: String,
    kind: Option<Kind>,
    /// The values, by their labels in the text format.
    values: BTreeMap<String, Arc<AtomicU64>>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Counter,
    Gauge,
}

impl Recorder {
    /// All metrics in the text format.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        for (name, family) in &*self.lock() {
            // Writing to a string does not fail.
            let _ = family.render(name, &mut text);
        }
        text
    }

    fn describe(&self, name: &KeyName, description: &SharedString) {
        let mut families = self.lock();
        let family = families.entry(name.as_str().to_owned()).or_default();
        family.description = description.to_string();
    }

    fn register(&self, key: &Key, kind: Kind) -> Arc<AtomicU64> {
        let mut families = self.lock();
        let family = families.entry(key.name().to_owned()).or_default();
        family.kind = Some(kind);
        Arc::clone(family.values.entry(labels(key)).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Family>> {
        // Nothing panics between two changes that belong together.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, description: SharedString) {
        self.describe(&name, &description);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, description: SharedString) {
        self.describe(&name, &description);
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.register(key, Kind::Counter).into()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.register(key, Kind::Gauge).into()
    }

    /// Only clients have histograms.
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

impl Family {
    fn render(&self, name: &str, text: &mut String) -> std::fmt::Result {
        let Some(kind) = self.kind else {
            // Described, but without a value so far.
            return Ok(());
        };
        if !self.description.is_empty() {
            writeln!(text, "# HELP {name} {}", escape(&self.description, false))?;
        }
        let kind_name = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        writeln!(text, "# TYPE {name} {kind_name}")?;
        for (labels, value) in &self.values {
            let bits = value.load(Ordering::Relaxed);
            match kind {
                Kind::Counter => writeln!(text, "{name}{labels} {bits}")?,
                Kind::Gauge => writeln!(text, "{name}{labels} {}", f64::from_bits(bits))?,
            }
        }
        writeln!(text)
    }
}

/// The labels of a metric in the text format.
fn labels(key: &Key) -> String {
    let label = |it: &metrics::Label| format!("{}=\"{}\"", it.key(), escape(it.value(), true));
    let labels: Vec<_> = key.labels().map(label).collect();
    match labels.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", labels.join(",")),
    }
}

fn escape(text: &str, quotes: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    match quotes {
        true => text.replace('"', "\\\""),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use metrics::{counter, describe_counter, gauge, histogram, with_local_recorder};

    use super::*;

    #[test]
    fn metrics_are_rendered_in_the_text_format() {
        let recorder = Recorder::default();
        with_local_recorder(&recorder, || {
            describe_counter!("deaths_total", "ended\\clients");
            describe_counter!("unused_total", "without a value");
            counter!("deaths_total").increment(2);
            counter!("deaths_total").increment(1);
            gauge!("clients", "state" => "a \"b\"\n", "node" => "n").set(1.0);
            gauge!("clients", "state" => "dead", "node" => "n").set(2.5);
            histogram!("seconds").record(1.0);
        });
        let expected = r#"# TYPE clients gauge
clients{state="a \"b\"\n",node="n"} 1
clients{state="dead",node="n"} 2.5

# HELP deaths_total ended\\clients
# TYPE deaths_total counter
deaths_total 3

"#;
        assert_eq!(recorder.render(), expected);
    }
}
