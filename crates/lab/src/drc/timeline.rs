//! Example 1 in words: what happened, in order.

use std::time::Duration;

use remora_sim::drc::example::{self, Span, Timeline, WRITTEN};

use super::cell::Mode;
use super::outcome::{Event, Example};
use super::{Way, real_example};
use crate::report::provenance::Source;

/// With each form of the cache.
pub(super) fn all(way: Way) -> Vec<Result<Example, String>> {
    Mode::ALL.map(|cache| example_with(way, cache)).into()
}

fn example_with(way: Way, cache: Mode) -> Result<Example, String> {
    let (source, timeline) = match way {
        Way::Simulated => (Source::Simulated, example::play(cache.config())),
        Way::Real { .. } => {
            let failed = |e| format!("failed: Example 1, cache {}: {e}", cache.name());
            (Source::Real, real_example::play(cache.config()).map_err(failed)?)
        }
    };
    Ok(Example { source, cache, events: events(&timeline), size: timeline.size, lost: timeline.lost(), timeline })
}

fn events(timeline: &Timeline) -> Vec<Event> {
    let mut events: Vec<(Duration, Event)> = Vec::new();
    let mut add = |at: Duration, who: &str, what: String| {
        events.push((at, Event { seconds: at.as_secs_f64(), who: who.to_owned(), what }));
    };
    let mut answered = Vec::new();
    for reply in &timeline.replies {
        let call = reply.label.split('(').next().unwrap_or_default();
        let fate = if answered.contains(&call) { "gets another reply and discards it" } else { "has its reply" };
        answered.push(call);
        add(reply.to, "client", format!("{call}: {fate}"));
    }
    for call in &timeline.calls {
        let again = if call.label.ends_with("(0)") { "" } else { ": no reply so far" };
        add(call.from, "client", format!("sends {}{again}", call.label));
        if !is_executed(timeline, &call.label) {
            add(call.to, "server", format!("knows {} from its cache: it is not done again", call.label));
        }
    }
    for (n, spans) in (1..).zip(&timeline.daemons) {
        let who = format!("nfsd{n}");
        for span in spans {
            add(span.from, &who, format!("takes up {}", span.label));
            add(span.to, &who, format!("has done {}: {}", span.label, effect(span)));
        }
    }
    // A reply stands before the call that it leads to, although no time passes between.
    events.sort_by_key(|(at, _)| *at);
    events.into_iter().map(|(_, event)| event).collect()
}

fn is_executed(timeline: &Timeline, label: &str) -> bool {
    timeline.daemons.iter().flatten().any(|s| s.label == label)
}

fn effect(span: &Span) -> String {
    if span.label.starts_with('c') { "the file is empty".into() } else { format!("the file has {WRITTEN} bytes") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_story_is_told_in_order_and_to_its_end() {
        let examples: Vec<Example> = all(Way::Simulated).into_iter().map(Result::unwrap).collect();
        for example in &examples {
            assert!(example.events.is_sorted_by_key(|e| (e.seconds * 1e9) as u64), "{example:?}");
            assert_eq!(example.events.iter().filter(|e| e.what.starts_with("sends")).count(), 3);
            let known = example.events.iter().any(|e| e.what.contains("not done again"));
            assert_eq!((example.lost, known), (!example.cache.is_modified(), example.cache.is_modified()));
        }
        let last = examples.first().and_then(|e| e.events.last()).map(|e| e.what.as_str());
        assert_eq!(last, Some("c: gets another reply and discards it"));
    }
}
