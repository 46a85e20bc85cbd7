//! The full cache against a model, over random interleavings.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::bench::*;
use crate::cache::full::ENTRY_OVERHEAD;

#[derive(Clone, Debug)]
enum Op {
    /// Client `.0` sends request `.1`, for the first time or again.
    Send(u8, u32),
    /// This request in progress completes.
    Finish(prop::sample::Index, bool),
    /// Client `.0` reconnects, from another port if `.1`.
    Reconnect(u8, bool),
    /// Time passes, in seconds.
    Wait(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0u8..4, 0u32..6).prop_map(|(c, x)| Op::Send(c, x)),
        3 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(i, ok)| Op::Finish(i, ok)),
        1 => (0u8..4, any::<bool>()).prop_map(|(c, port)| Op::Reconnect(c, port)),
        1 => (0u8..30).prop_map(Op::Wait),
    ]
}

/// Clients 0 and 1 use datagrams, 2 and 3 streams; each has its own address.
struct World {
    bench: Bench,
    ports: [u16; 4],
    conns: u64,
    conn_of: [u64; 4],
    /// Requests in progress, with the last path of each.
    running: Vec<(Request, EntryId, Peer)>,
    /// The reply to each request.
    done: BTreeMap<(u8, u32), Bytes>,
}

impl World {
    fn new(config: Config) -> World {
        World {
            bench: Bench::new(config),
            ports: [700; 4],
            conns: 4,
            conn_of: [0, 1, 2, 3],
            running: vec![],
            done: BTreeMap::new(),
        }
    }

    fn request(&self, client: u8, xid: u32) -> Request {
        let i = usize::from(client);
        let addr = format!("10.0.0.{client}:{}", self.ports[i]);
        let peer = if client < 2 { udp(&addr) } else { tcp(&addr, self.conn_of[i]) };
        Request { hash: u128::from(xid), ..request(peer, xid, Proc::Write) }
    }

    fn running(&mut self, r: &Request) -> Option<&mut (Request, EntryId, Peer)> {
        self.running.iter_mut().find(|(o, ..)| o.xid == r.xid && o.peer.addr.ip() == r.peer.addr.ip())
    }

    fn client(r: &Request) -> u8 {
        match r.peer.addr.ip() {
            std::net::IpAddr::V4(ip) => ip.octets()[3],
            std::net::IpAddr::V6(_) => unreachable!("the model has no such client"),
        }
    }

    /// Applies `op`. With `remembers`, nothing may have been forgotten.
    fn step(&mut self, op: &Op, n: usize, remembers: bool) {
        match op {
            Op::Send(client, xid) => self.send(*client, *xid, remembers),
            Op::Finish(i, ok) if !self.running.is_empty() => self.complete(i.index(self.running.len()), *ok, n),
            Op::Finish(..) => {}
            Op::Reconnect(client, new_port) => {
                let i = usize::from(*client);
                self.bench.live.gone(self.request(*client, 0).peer);
                self.conn_of[i] = self.conns;
                self.conns += 1;
                if *new_port && *client >= 2 {
                    self.ports[i] += 1;
                }
            }
            Op::Wait(secs) => self.bench.wait(u64::from(*secs)),
        }
    }

    fn send(&mut self, client: u8, xid: u32, remembers: bool) {
        let r = self.request(client, xid);
        let verdict = self.bench.begin(&r);
        if let Some((_, _, path)) = self.running(&r) {
            *path = r.peer;
            assert_eq!(verdict, Verdict::InProgress, "never executed twice at once");
            return;
        }
        match (verdict, self.done.get(&(client, xid))) {
            (Verdict::Replay(reply), Some(want)) => assert_eq!(reply, want),
            (Verdict::Execute(Some(id)), done) => {
                assert!(done.is_none() || !remembers, "executed twice");
                self.running.push((r, id, r.peer));
            }
            (other, done) => panic!("{other:?} with {done:?}"),
        }
    }

    fn complete(&mut self, at: usize, ok: bool, n: usize) {
        let (r, id, path) = self.running.remove(at);
        let reply = Bytes::from(format!("reply {n}"));
        let sent = self.bench.finish(&r, id, Completion { reply: reply.clone(), ok, times: None });
        let want = self.bench.live.reaches(&path).then(|| Finished { to: path, reply: reply.clone() });
        assert_eq!(sent, want, "one reply, to the newest path");
        self.done.insert((World::client(&r), r.xid), reply);
    }

    /// Lets everything complete and expire; nothing may be left.
    fn end(mut self) {
        while !self.running.is_empty() {
            self.complete(0, true, 0);
        }
        let mut calls = 0;
        while let Some(at) = self.bench.cache.next_expiry() {
            self.bench.now = self.bench.now.max(at);
            self.bench.cache.expire(self.bench.now);
            calls += 1;
            assert!(calls < 1000, "expiry makes progress");
        }
        assert_eq!(self.bench.cache.bytes(), 0);
    }
}

proptest! {
    #[test]
    fn cached_request_is_not_executed_again(ops in prop::collection::vec(op(), 0..120)) {
        let mut w = World::new(Config::Full { bytes_max: usize::MAX, keep: Duration::from_secs(1 << 20) });
        ops.iter().enumerate().for_each(|(n, op)| w.step(op, n, true));
        w.end();
    }

    #[test]
    fn full_cache_keeps_in_progress_entries(
        ops in prop::collection::vec(op(), 0..120),
        entries in 0usize..8,
    ) {
        let bytes_max = entries * (ENTRY_OVERHEAD + 64);
        let mut w = World::new(Config::Full { bytes_max, keep: Duration::from_secs(60) });
        for (n, op) in ops.iter().enumerate() {
            w.step(op, n, false);
            let in_progress = w.running.len() * ENTRY_OVERHEAD;
            prop_assert!(w.bench.cache.bytes() <= bytes_max.max(in_progress));
        }
        w.end();
    }

    #[test]
    fn fair_share_entries_are_not_evicted(floods in prop::collection::vec((1u8..4, 0u32..100_000), 0..400), mine in 0u32..10) {
        let share = 10 * (ENTRY_OVERHEAD + 64);
        let mut b = Bench::new(Config::Full { bytes_max: 4 * share + 2048, keep: Config::KEEP });
        let quiet: Vec<_> = (0..mine).map(|xid| request(udp("10.0.0.200:1"), xid, Proc::Write)).collect();
        quiet.iter().for_each(|r| b.run(r, "mine"));
        for (client, xid) in floods {
            let r = request(udp(&format!("10.0.0.{client}:1")), xid, Proc::Write);
            if let Verdict::Execute(Some(id)) = b.begin(&r) {
                b.finish(&r, id, ok("flood"));
            }
        }
        for r in &quiet {
            prop_assert_eq!(b.begin(r), Verdict::Replay("mine".into()));
        }
    }
}
