//! The record of a run: one hash and, on request, a text log.
//!
//! Two runs of one seed must have the same [`Trace::hash`]: a difference reveals a clock, a hash
//! order or another leak of the real world into a core.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher;
use std::io::Write;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::nfs3::Proc;
use siphasher::sip::SipHasher13;

use crate::events::message_text;

/// A node of the world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NodeId {
    Server,
    Client(usize),
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeId::Server => f.pad("server"),
            NodeId::Client(n) => f.pad(&format!("client{n}")),
        }
    }
}

pub struct Trace {
    hasher: SipHasher13,
    sink: Option<Box<dyn Write>>,
    /// The procedure of each xid, to decode replies; kept for a log only.
    calls: BTreeMap<(usize, u32), Proc>,
}

impl Trace {
    /// A hash without a log.
    pub fn quiet() -> Trace {
        Trace { hasher: SipHasher13::new(), sink: None, calls: BTreeMap::new() }
    }

    /// A hash, and a log line to `sink` for every event.
    pub fn to(sink: Box<dyn Write>) -> Trace {
        Trace { sink: Some(sink), ..Trace::quiet() }
    }

    pub fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    /// A message was delivered to `to`; `client` is the client at either end.
    pub fn message(&mut self, now: Time, to: NodeId, client: usize, bytes: &Bytes) {
        self.hash_event(now, to, 1, bytes);
        if self.sink.is_none() {
            return;
        }
        let words = match to {
            NodeId::Server => {
                if let Some(view) = message_text::read_call(bytes) {
                    self.calls.insert((client, view.xid), view.call.proc());
                }
                format!("<- client{client}  {}", message_text::call(bytes))
            }
            NodeId::Client(_) => {
                let proc = message_text::xid(bytes).and_then(|xid| self.calls.get(&(client, xid)));
                format!("<- server  {}", message_text::reply(bytes, proc.copied()))
            }
        };
        self.line(now, to, &words);
    }

    /// Another event at `node`. `words` is called for a log only; `key` distinguishes events in the
    /// hash.
    pub fn event(&mut self, now: Time, node: NodeId, key: &[u8], words: impl FnOnce() -> String) {
        self.hash_event(now, node, 2, key);
        if self.sink.is_some() {
            self.line(now, node, &words());
        }
    }

    fn hash_event(&mut self, now: Time, node: NodeId, kind: u8, bytes: &[u8]) {
        self.hasher.write_u64(now.as_nanos());
        self.hasher.write_u64(match node {
            NodeId::Server => 0,
            NodeId::Client(n) => n as u64 + 1,
        });
        self.hasher.write_u8(kind);
        self.hasher.write_u64(bytes.len() as u64);
        self.hasher.write(bytes);
    }

    fn line(&mut self, now: Time, node: NodeId, words: &str) {
        let at = now.to_string();
        if let Some(sink) = &mut self.sink
            && writeln!(sink, "{at:>14} {node:<8} {words}").is_err()
        {
            // The reader is gone (a closed pipe): the run continues without a log.
            self.sink = None;
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("hash", &self.hash()).finish_non_exhaustive()
    }
}
