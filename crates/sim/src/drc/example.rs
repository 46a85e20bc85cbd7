//! Example 1 of DRC 89, section 2.4, with the times of the paper's diagram: a retransmitted create
//! destroys a later write.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_client::ClientConfig;
use remora_server::cache;
use remora_wire::nfs3::Proc;

use crate::drc::script::{self, Script, ScriptResult};
use crate::events::PacketKind;
use crate::events::Trace;
use crate::swarm::oracle::{CreateMode, Op};
use crate::world::disk::Stall;

/// One-way delay between client and server.
pub const DELAY: Duration = Duration::from_millis(60);
/// The server's daemons.
pub const DAEMONS: usize = 2;
/// Bytes that the client writes.
pub const WRITTEN: u64 = 4096;
const FILE: &str = "file";

/// A message, or the execution of one by a daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// The paper's name: `c(0)` is the create, `c(1)` its retransmission, `w(0)` the write.
    pub label: String,
    /// Start, counted from the first create.
    pub from: Duration,
    pub to: Duration,
}

/// The events with one form of the cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timeline {
    /// From the client to the server.
    pub calls: Vec<Span>,
    /// Executions by each daemon. A create truncates the file at its end.
    pub daemons: [Vec<Span>; DAEMONS],
    /// From the server to the client.
    pub replies: Vec<Span>,
    /// Final size of the file in bytes.
    pub size: u64,
}

impl Timeline {
    /// Whether the acknowledged write is lost.
    pub fn lost(&self) -> bool {
        self.size != WRITTEN
    }

    pub fn end(&self) -> Duration {
        let all = self.calls.iter().chain(&self.replies).chain(self.daemons.iter().flatten());
        all.map(|s| s.to).max().unwrap_or_default()
    }
}

/// Runs the example: c(0) is slow, so that c(1) is sent just before its reply arrives; c(1) then
/// blocks on a resource (t5), while the other daemon executes w(0).
pub fn play(cache: cache::Config) -> Timeline {
    let stall = |nth, ms| Stall { proc: Proc::Create, nth, extra: Duration::from_millis(ms) };
    let script = Script {
        client: ClientConfig::stock(),
        cache,
        slots: DAEMONS,
        service: Duration::from_millis(10),
        delay: DELAY,
        operations: vec![
            Op::Create { path: FILE.into(), how: CreateMode::Truncating },
            Op::Write { path: FILE.into(), offset: 0, data: Bytes::from(vec![0xab; WRITTEN as usize]) },
        ],
        messages: Vec::new(),
        stalls: vec![stall(0, 600), stall(1, 500)],
    };
    timeline(&script::play(&script, Trace::quiet()))
}

fn timeline(played: &ScriptResult) -> Timeline {
    let procs: BTreeMap<u32, Proc> = played.executions.iter().map(|e| (e.xid, e.proc)).collect();
    let letter = |number: u32| match procs.get(&number) {
        Some(Proc::Create) => Some('c'),
        Some(Proc::Write) => Some('w'),
        _ => None,
    };
    let sent = |kind| kind == PacketKind::Call || kind == PacketKind::Retransmission;
    let first = played.packets.iter().find(|p| letter(p.number) == Some('c')).map_or(Time::ZERO, |p| p.at);
    let since = |at: Time| at.since(first);
    let mut names = [Names::default(), Names::default(), Names::default()];
    let [calls_named, done_named, replies_named] = &mut names;

    let mut timeline = Timeline { calls: vec![], daemons: Default::default(), replies: vec![], size: 0 };
    for packet in &played.packets {
        let Some(letter) = letter(packet.number) else { continue };
        let at = since(packet.at);
        if sent(packet.kind) {
            let label = calls_named.next(letter, packet.number);
            timeline.calls.push(Span { label, from: at, to: at + DELAY });
        } else if packet.kind == PacketKind::Reply {
            let label = replies_named.next(letter, packet.number);
            timeline.replies.push(Span { label, from: at.saturating_sub(DELAY), to: at });
        }
    }
    let mut taken_up = played.executions.clone();
    taken_up.sort_by_key(|e| e.from);
    for execution in taken_up {
        let (Some(letter), Some(daemon)) = (letter(execution.xid), timeline.daemons.get_mut(execution.daemon)) else {
            continue;
        };
        let label = done_named.next(letter, execution.xid);
        daemon.push(Span { label, from: since(execution.from), to: since(execution.to) });
    }
    timeline.size = played.sizes.get(FILE).copied().unwrap_or(0);
    timeline
}

/// Numbers the transmissions of one call.
#[derive(Default)]
struct Names(BTreeMap<u32, u32>);

impl Names {
    fn next(&mut self, letter: char, call: u32) -> String {
        let count = self.0.entry(call).or_default();
        *count += 1;
        format!("{letter}({})", *count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(spans: &[Span]) -> Vec<&str> {
        spans.iter().map(|s| s.label.as_str()).collect()
    }

    #[test]
    fn create_retransmitted_without_cache_destroys_write() {
        for cache in [cache::Config::Off, cache::Config::reference()] {
            let t = play(cache);
            assert_eq!(labels(&t.calls), ["c(0)", "c(1)", "w(0)"]);
            assert_eq!(labels(&t.daemons[0]), ["c(0)", "c(1)"]);
            assert_eq!(labels(&t.daemons[1]), ["w(0)"]);
            assert_eq!(labels(&t.replies), ["c(0)", "w(0)", "c(1)"]);
            let ([_, c1], [w0]) = (&t.daemons[0][..], &t.daemons[1][..]) else { panic!("{t:?}") };
            assert!(c1.from < w0.from && w0.to < c1.to, "{t:?}");
            assert!(t.lost() && t.size == 0);
        }
    }

    #[test]
    fn create_retransmitted_with_cache_is_not_repeated() {
        for (cache, replies) in
            [(cache::Config::juszczak(), &["c(0)", "w(0)"][..]), (cache::Config::full(), &["c(0)", "c(1)", "w(0)"])]
        {
            let t = play(cache);
            assert_eq!(labels(&t.calls), ["c(0)", "c(1)", "w(0)"]);
            assert_eq!(labels(&t.daemons.concat()), ["c(0)", "w(0)"]);
            assert_eq!(labels(&t.replies), replies);
            assert!(!t.lost());
        }
    }
}
