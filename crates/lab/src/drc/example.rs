//! Example 1 of DRC 89 as events, in virtual time or with the real server.
//!
//! The real server has two daemons, its cache, UDP on loopback, and a file system in memory with slow creates. A
//! scripted client sends c(0), c(1) after 0.7 s without a reply, and w(0) after the first reply.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_server::cache;
use remora_sim::drc::example::{DAEMONS, Span, Timeline, WRITTEN};
use remora_sim::drc::{Machine, example};
use remora_vfs::{Cred, MemFs, Vfs};
use remora_wire::mount;
use remora_wire::nfs3::{Call, CreateArgs, CreateHow, DirOp, Fh, Reply, SetAttr, Stable, WriteArgs};

use super::cell::Mode;
use super::options::Execution;
use super::outcome::{Event, Example};
use super::real::{RealError, serve};
use super::slow_disk::{DiskOperation, DiskScript, Pace, SlowDisk};
use crate::raw;
use crate::report::provenance::Source;

/// Retransmission timeout of the client.
const PATIENCE: Duration = Duration::from_millis(700);
/// The create takes longer, so that c(1) is sent before the reply arrives; c(1) blocks.
const CREATES: [Duration; 2] = [Duration::from_millis(800), Duration::from_millis(600)];
const WRITE: Duration = Duration::from_millis(10);
/// The example ends this long after w(0)'s reply without another message.
const REST: Duration = Duration::from_millis(1000);
const LIMIT: Duration = Duration::from_secs(20);
const NAME: &[u8] = b"file";
const MOUNT: u32 = 1;
const C: u32 = 2;
const W: u32 = 3;

pub(super) fn play(cache: cache::Config) -> Result<Timeline, RealError> {
    let pace = Pace::new(1.0);
    let fs = Arc::new(MemFs::new(0));
    let root = Cred { uid: 0, gid: 0, gids: Vec::new() };
    let everybody = SetAttr { mode: Some(0o777), ..SetAttr::NONE };
    fs.setattr(&root, &fs.root(), &everybody, None).map_err(|_| RealError::SetUp)?;
    let disk = Arc::new(SlowDisk::scripted(fs.clone(), Machine::SMALL.ufs, pace, DiskScript::new(CREATES, WRITE)));
    let serving = serve(disk.clone(), cache, 0, DAEMONS)?;
    let addr = serving.local_addrs().first().copied().ok_or(RealError::SetUp)?;
    let mut hand = ScriptedClient::new(addr, pace)?;
    hand.act()?;
    serving.shutdown();
    let size = fs.tree().get(NAME).map_or(0, |node| node.attr.size);
    Ok(hand.timeline(&disk.done(), size))
}

struct ScriptedClient {
    socket: UdpSocket,
    pace: Pace,
    calls: Vec<(char, Time)>,
    replies: Vec<(char, Time)>,
}

impl ScriptedClient {
    fn new(addr: SocketAddr, pace: Pace) -> io::Result<ScriptedClient> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(addr)?;
        Ok(ScriptedClient { socket, pace, calls: Vec::new(), replies: Vec::new() })
    }

    fn act(&mut self) -> Result<(), RealError> {
        self.socket.send(&raw::mount(MOUNT, &mount::Call::Mnt(Bytes::from_static(b"/"))))?;
        let root = raw::mounted(&self.reply(MOUNT, LIMIT)?.ok_or(RealError::TooLong)?)?;
        let attr = SetAttr { mode: Some(0o666), size: Some(0), ..SetAttr::NONE };
        let at = DirOp { dir: root, name: Bytes::from_static(NAME) };
        let create = Call::Create(CreateArgs { at, how: CreateHow::Unchecked(attr) });
        let message = raw::nfs(C, &create);
        self.send('c', &message)?;
        let reply = match self.reply(C, PATIENCE)? {
            Some(reply) => reply,
            None => {
                self.send('c', &message)?;
                self.reply(C, LIMIT)?.ok_or(RealError::TooLong)?
            }
        };
        let Reply::Create(Ok(made)) = raw::results(&create, &reply)? else { return Err(RealError::SetUp) };
        self.send('w', &raw::nfs(W, &write(made.fh.ok_or(RealError::SetUp)?)))?;
        self.reply(W, LIMIT)?.ok_or(RealError::TooLong)?;
        // Other messages are ignored.
        while self.reply(C, REST)?.is_some() {}
        Ok(())
    }

    fn send(&mut self, call: char, message: &[u8]) -> io::Result<()> {
        self.calls.push((call, self.pace.now()));
        self.socket.send(message).map(drop)
    }

    /// The next reply with this xid within `time`.
    fn reply(&mut self, xid: u32, time: Duration) -> io::Result<Option<Bytes>> {
        let end = self.pace.now() + time;
        loop {
            let left = end.since(self.pace.now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left))?;
            let mut datagram = vec![0; 1 << 16];
            match self.socket.recv(&mut datagram) {
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
                length => datagram.truncate(length?),
            }
            let call = match raw::xid(&datagram) {
                C => Some('c'),
                W => Some('w'),
                _ => None,
            };
            self.replies.extend(call.map(|call| (call, self.pace.now())));
            if raw::xid(&datagram) == xid {
                return Ok(Some(datagram.into()));
            }
        }
    }

    fn timeline(&self, done: &[DiskOperation], size: u64) -> Timeline {
        let first = self.calls.first().map_or(Time::ZERO, |(_, at)| *at);
        let since = |at: &Time| at.since(first);
        let messages = |seen: &[(char, Time)]| {
            let mut names = Names::default();
            seen.iter().map(|(call, at)| Span { label: names.next(*call), from: since(at), to: since(at) }).collect()
        };
        let mut daemons: [Vec<Span>; DAEMONS] = Default::default();
        let (mut names, first_daemon) = (Names::default(), done.first().map(|d| d.daemon));
        for d in done {
            let label = names.next(if d.is_create { 'c' } else { 'w' });
            let [one, other] = &mut daemons;
            let daemon = if Some(d.daemon) == first_daemon { one } else { other };
            daemon.push(Span { label, from: since(&d.from), to: since(&d.to) });
        }
        Timeline { calls: messages(&self.calls), daemons, replies: messages(&self.replies), size }
    }
}

fn write(fh: Fh) -> Call {
    let data = Bytes::from(vec![0xab; WRITTEN as usize]);
    Call::Write(WriteArgs { fh, offset: 0, count: WRITTEN as u32, stable: Stable::FileSync, data })
}

/// Numbers the transmissions of a call, as DRC 89 does.
#[derive(Default)]
struct Names(BTreeMap<char, u32>);

impl Names {
    fn next(&mut self, call: char) -> String {
        let count = self.0.entry(call).or_default();
        *count += 1;
        format!("{call}({})", *count - 1)
    }
}

/// With each form of the cache.
pub(super) fn all(way: Execution) -> Vec<Result<Example, String>> {
    Mode::ALL.map(|cache| example_with(way, cache)).into()
}

fn example_with(way: Execution, cache: Mode) -> Result<Example, String> {
    let (source, timeline) = match way {
        Execution::Simulated => (Source::Simulated, example::play(cache.config())),
        Execution::Real { .. } => {
            let failed = |e| format!("failed: Example 1, cache {}: {e}", cache.name());
            (Source::Real, play(cache.config()).map_err(failed)?)
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
        let fate = if answered.contains(&call) { "discards a second reply" } else { "has its reply" };
        answered.push(call);
        add(reply.to, "client", format!("{call}: {fate}"));
    }
    for call in &timeline.calls {
        let again = if call.label.ends_with("(0)") { "" } else { ": no reply yet" };
        add(call.from, "client", format!("sends {}{again}", call.label));
        if !is_executed(timeline, &call.label) {
            add(call.to, "server", format!("knows {} from its cache: not executed again", call.label));
        }
    }
    for (n, spans) in (1..).zip(&timeline.daemons) {
        let who = format!("nfsd{n}");
        for span in spans {
            add(span.from, &who, format!("takes up {}", span.label));
            add(span.to, &who, format!("completes {}: {}", span.label, effect(span)));
        }
    }
    // A reply comes before the call that it triggers, at the same time.
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
    use crate::drc::cell::Mode;

    #[test]
    fn real_server_loses_the_write_only_without_cache() {
        for mode in Mode::ALL {
            let t = play(mode.config()).unwrap();
            let labels = |spans: &[Span]| spans.iter().map(|s| s.label.clone()).collect::<Vec<_>>();
            let mut executed = labels(&t.daemons.concat());
            executed.sort();
            assert_eq!(labels(&t.calls), ["c(0)", "c(1)", "w(0)"], "{mode:?}");
            assert_eq!(labels(&t.replies)[..2], ["c(0)", "w(0)"], "{mode:?}");
            if mode.is_modified() {
                assert_eq!((executed, t.size), (vec!["c(0)".into(), "w(0)".into()], WRITTEN), "{mode:?}");
            } else {
                assert_eq!((executed, t.size), (vec!["c(0)".into(), "c(1)".into(), "w(0)".into()], 0), "{mode:?}");
            }
        }
    }

    #[test]
    fn example_events_are_in_order_and_complete() {
        let examples: Vec<Example> = all(Execution::Simulated).into_iter().map(Result::unwrap).collect();
        for example in &examples {
            assert!(example.events.is_sorted_by_key(|e| (e.seconds * 1e9) as u64), "{example:?}");
            assert_eq!(example.events.iter().filter(|e| e.what.starts_with("sends")).count(), 3);
            let known = example.events.iter().any(|e| e.what.contains("not executed again"));
            assert_eq!((example.lost, known), (!example.cache.is_modified(), example.cache.is_modified()));
        }
        let last = examples.first().and_then(|e| e.events.last()).map(|e| e.what.as_str());
        assert_eq!(last, Some("c: discards a second reply"));
    }
}
