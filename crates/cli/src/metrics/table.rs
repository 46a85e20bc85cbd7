//! Families of metrics, and their text in the formats that Prometheus reads.

use std::borrow::Cow;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    CounterValueEncoder, DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, GaugeValueEncoder, MetricEncoder,
    NoLabelSet, prometheus_text, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};

/// The prefix of every name.
const PREFIX: &str = "remora";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A metric with its samples, one for each set of labels.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    kind: MetricType,
    samples: Vec<Sample>,
}

/// Labels of a sample. Their number must be bounded: by a protocol, by the configuration or by [`grouped`].
pub(crate) type Labels = Vec<(&'static str, Cow<'static, str>)>;

#[derive(Clone, Debug)]
struct Sample {
    labels: Labels,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Number(Number),
    Histogram(Buckets),
    /// The labels are the value.
    Info,
}

/// A number, written as an integer where it is one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Number {
    Integer(u64),
    Float(f64),
}

/// A histogram's counts by bucket, and the sum of its values.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Buckets {
    pub(crate) sum: f64,
    /// Upper bounds with the observations of each bucket alone. The last bound is `f64::INFINITY`.
    pub(crate) buckets: Vec<(f64, u64)>,
}

impl Family {
    /// A number that only grows. The name in the text ends in `_total`.
    pub(crate) fn counter(name: &'static str, help: &'static str) -> Family {
        Family::new(MetricType::Counter, name, help)
    }

    /// A number that grows and shrinks.
    pub(crate) fn gauge(name: &'static str, help: &'static str) -> Family {
        Family::new(MetricType::Gauge, name, help)
    }

    /// A distribution of times. The name in the text ends in `_seconds`.
    pub(crate) fn histogram(name: &'static str, help: &'static str) -> Family {
        Family::new(MetricType::Histogram, name, help).in_seconds()
    }

    /// Texts that do not change, as labels of a sample that is 1.
    pub(crate) fn info(name: &'static str, help: &'static str, labels: Labels) -> Family {
        let mut family = Family::new(MetricType::Info, name, help);
        family.samples.push(Sample { labels, value: Value::Info });
        family
    }

    fn new(kind: MetricType, name: &'static str, help: &'static str) -> Family {
        Family { name, help, unit: None, kind, samples: Vec::new() }
    }

    /// The name in the text ends in `_seconds`.
    pub(crate) fn in_seconds(self) -> Family {
        Family { unit: Some(Unit::Seconds), ..self }
    }

    /// The name in the text ends in `_bytes`.
    pub(crate) fn in_bytes(self) -> Family {
        Family { unit: Some(Unit::Bytes), ..self }
    }

    /// The only sample, without labels.
    pub(crate) fn value(self, number: impl Into<Number>) -> Family {
        self.sample(Vec::new(), number)
    }

    /// The only sample, if there is one.
    pub(crate) fn maybe(self, number: Option<impl Into<Number>>) -> Family {
        match number {
            Some(number) => self.value(number),
            None => self,
        }
    }

    /// A sample for each value of the label `label`.
    pub(crate) fn by<N: Into<Number>>(
        mut self,
        label: &'static str,
        samples: impl IntoIterator<Item = (&'static str, N)>,
    ) -> Family {
        let samples = samples.into_iter();
        self.samples.extend(samples.map(|(value, number)| Sample {
            labels: vec![(label, value.into())],
            value: Value::Number(number.into()),
        }));
        self
    }

    pub(crate) fn sample(mut self, labels: Labels, number: impl Into<Number>) -> Family {
        self.samples.push(Sample { labels, value: Value::Number(number.into()) });
        self
    }

    pub(crate) fn buckets(mut self, labels: Labels, buckets: Buckets) -> Family {
        self.samples.push(Sample { labels, value: Value::Histogram(buckets) });
        self
    }

    /// The name in the text and the help text, for documents.
    #[cfg(test)]
    pub(crate) fn described(&self) -> (String, &'static str) {
        let unit = self.unit.as_ref().map_or_else(String::new, |unit| format!("_{}", unit.as_str()));
        let suffix = match self.kind {
            MetricType::Counter => "_total",
            MetricType::Info => "_info",
            _ => "",
        };
        (format!("{PREFIX}_{}{unit}{suffix}", self.name), self.help)
    }

    fn encode(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let mut metric = encoder.encode_descriptor(self.name, self.help, self.unit.as_ref(), self.kind)?;
        for Sample { labels, value } in &self.samples {
            match value {
                Value::Info => metric.encode_info(labels)?,
                _ if labels.is_empty() => self.encode_value(&mut metric, value)?,
                _ => self.encode_value(&mut metric.encode_family(labels)?, value)?,
            }
        }
        Ok(())
    }

    fn encode_value(&self, metric: &mut MetricEncoder<'_>, value: &Value) -> fmt::Result {
        const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, f64>> = None;
        match value {
            Value::Number(number) if self.kind == MetricType::Counter => metric.encode_counter(number, NO_EXEMPLAR),
            Value::Number(number) => metric.encode_gauge(number),
            Value::Histogram(Buckets { sum, buckets }) => {
                let count = buckets.iter().map(|(_, n)| n).sum();
                metric.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
            }
            Value::Info => Ok(()),
        }
    }
}

impl From<u64> for Number {
    fn from(n: u64) -> Number {
        Number::Integer(n)
    }
}

impl From<usize> for Number {
    fn from(n: usize) -> Number {
        Number::Integer(n as u64)
    }
}

impl From<bool> for Number {
    fn from(is: bool) -> Number {
        Number::Integer(is.into())
    }
}

impl From<f64> for Number {
    fn from(n: f64) -> Number {
        Number::Float(n)
    }
}

impl EncodeCounterValue for Number {
    fn encode(&self, encoder: &mut CounterValueEncoder) -> fmt::Result {
        match self {
            Number::Integer(n) => EncodeCounterValue::encode(n, encoder),
            Number::Float(n) => EncodeCounterValue::encode(n, encoder),
        }
    }
}

impl EncodeGaugeValue for Number {
    fn encode(&self, encoder: &mut GaugeValueEncoder) -> fmt::Result {
        match self {
            Number::Integer(n) => EncodeGaugeValue::encode(n, encoder),
            Number::Float(n) => EncodeGaugeValue::encode(n, encoder),
        }
    }
}

/// The label that all values beyond a bound share.
const OTHER: &str = "other";

/// Items by name: at most `max` names in the order of their first item, and `other` for the rest, so that the number
/// of labels is bounded and no two samples have the same.
pub(crate) fn grouped<'a, T>(
    items: &'a [T],
    name: impl Fn(&'a T) -> &'a str,
    max: usize,
) -> Vec<(Cow<'static, str>, Vec<&'a T>)> {
    let mut groups: Vec<(Cow<'static, str>, Vec<&'a T>)> = Vec::new();
    for item in items {
        let mut wanted = name(item);
        if groups.len() >= max && groups.iter().all(|(name, _)| name != wanted) {
            wanted = OTHER;
        }
        match groups.iter_mut().find(|(name, _)| name == wanted) {
            Some((_, members)) => members.push(item),
            None => groups.push((wanted.to_owned().into(), vec![item])),
        }
    }
    groups
}

/// The text of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// OpenMetrics 1.0, which Prometheus asks for.
    OpenMetrics,
    /// The text format 0.0.4 of Prometheus, which every collector and `promtool check metrics` read.
    Prometheus,
}

impl Format {
    /// The format for a client that accepts these media types.
    pub(crate) fn accepted(accept: &str) -> Format {
        match accept.contains("application/openmetrics-text") {
            true => Format::OpenMetrics,
            false => Format::Prometheus,
        }
    }

    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => OPENMETRICS,
            Format::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }

    /// The page of these families.
    pub(crate) fn page(self, families: Vec<Family>) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(Families(families)));
        let mut page = String::new();
        match self {
            Format::OpenMetrics => text::encode(&mut page, &registry)?,
            Format::Prometheus => prometheus_text::encode(&mut page, &registry)?,
        }
        Ok(page)
    }
}

#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        // A family without samples has nothing to describe.
        self.0.iter().filter(|family| !family.samples.is_empty()).try_for_each(|family| family.encode(&mut encoder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn families() -> Vec<Family> {
        let buckets = Buckets { sum: 2.5, buckets: vec![(0.001, 1), (1.0, 0), (f64::INFINITY, 2)] };
        vec![
            Family::info("build", "Version", vec![("version", "1".into())]),
            Family::counter("calls", "Calls").by("status", [("OK", 3u64), ("NOENT", 1)]),
            Family::gauge("memory", "Memory").in_bytes().value(7usize),
            Family::gauge("rtt", "Round-trip time").in_seconds().maybe(Some(0.25)),
            Family::gauge("loss", "Unknown").maybe(None::<f64>),
            Family::gauge("odd", "A name with special characters").sample(vec![("name", "a\"b\\c\nd".into())], true),
            Family::histogram("latency", "Latency").buckets(vec![("procedure", "READ".into())], buckets),
        ]
    }

    #[test]
    fn openmetrics_page_has_units_suffixes_and_an_end() {
        let page = Format::OpenMetrics.page(families()).unwrap();
        let want = "# HELP remora_build Version\n# TYPE remora_build info\nremora_build_info{version=\"1\"} 1\n\
            # HELP remora_calls Calls\n# TYPE remora_calls counter\nremora_calls_total{status=\"OK\"} 3\n\
            remora_calls_total{status=\"NOENT\"} 1\n\
            # HELP remora_memory_bytes Memory\n# TYPE remora_memory_bytes gauge\n# UNIT remora_memory_bytes bytes\n\
            remora_memory_bytes 7\n\
            # HELP remora_rtt_seconds Round-trip time\n# TYPE remora_rtt_seconds gauge\n\
            # UNIT remora_rtt_seconds seconds\nremora_rtt_seconds 0.25\n\
            # HELP remora_odd A name with special characters\n# TYPE remora_odd gauge\n\
            remora_odd{name=\"a\\\"b\\\\c\\nd\"} 1\n\
            # HELP remora_latency_seconds Latency\n# TYPE remora_latency_seconds histogram\n\
            # UNIT remora_latency_seconds seconds\n\
            remora_latency_seconds_sum{procedure=\"READ\"} 2.5\nremora_latency_seconds_count{procedure=\"READ\"} 3\n\
            remora_latency_seconds_bucket{le=\"0.001\",procedure=\"READ\"} 1\n\
            remora_latency_seconds_bucket{le=\"1.0\",procedure=\"READ\"} 1\n\
            remora_latency_seconds_bucket{le=\"+Inf\",procedure=\"READ\"} 3\n# EOF\n";
        assert_eq!(page, want);
    }

    #[test]
    fn prometheus_page_names_counters_by_their_suffix() {
        let page = Format::Prometheus.page(families()).unwrap();
        assert!(page.contains("# TYPE remora_calls_total counter\nremora_calls_total{status=\"OK\"} 3\n"), "{page}");
        assert!(!page.contains("EOF") && !page.contains("remora_loss"), "{page}");
    }

    #[test]
    fn format_follows_the_accept_header() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        for (accept, format) in
            [(prometheus, Format::OpenMetrics), ("*/*", Format::Prometheus), ("", Format::Prometheus)]
        {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }

    #[test]
    fn names_beyond_the_bound_are_one_group() {
        let peers: Vec<String> = (0..1000).map(|i| format!("peer{}", i % 500)).collect();
        let groups = grouped(&peers, |name| name, 3);
        let sizes: Vec<_> = groups.iter().map(|(name, members)| (name.as_ref(), members.len())).collect();
        assert_eq!(sizes, [("peer0", 2), ("peer1", 2), ("peer2", 2), ("other", 994)]);
        assert_eq!(grouped(&peers[..2], |name| name, 3).len(), 2);
    }
}
