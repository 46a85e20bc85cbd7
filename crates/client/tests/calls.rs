//! The call table: xids, timers, ends.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{MS, World, getattr, read, reply_to, server};
use proptest::prelude::*;
use remora_base::{Core, Peer};
use remora_client::{Answer, CallFailure, ClientConfig, Transport, WindowSize};
use remora_wire::Reader;
use remora_wire::nfs3::Proc;
use remora_wire::rpc::{AuthUnix, CallHeader, OpaqueAuth};

type Ended = Result<Answer, CallFailure>;

/// Transmissions of a request that is never answered, in milliseconds since the first.
fn schedule(config: ClientConfig, seconds: u64) -> Vec<u128> {
    let mut w = World::new(config);
    w.submit(getattr());
    let sent = w.pass(Duration::from_secs(seconds));
    assert!(sent.iter().all(|s| s.xid == sent[0].xid), "one xid for a request's whole life");
    assert!(sent.iter().all(|s| s.payload == sent[0].payload), "a retransmission is the same to the last byte");
    sent.iter().map(|s| s.at.since(sent[0].at).as_millis()).collect()
}

#[test]
fn stock_and_paper_policies_keep_their_timetables() {
    assert_eq!(schedule(ClientConfig::stock(), 20), [0, 700, 2100, 4900, 10_500]);
    assert_eq!(schedule(ClientConfig::paper(), 12), [0, 700, 1500, 2400, 3400, 5400, 9400]);
}

#[test]
fn tcp_retransmits_only_after_a_reconnect() {
    let mut w = World::new(ClientConfig { window: WindowSize::Fixed(8), ..ClientConfig::new(Transport::Tcp) });
    w.submit_reads(3);
    assert!(w.pass(Duration::from_secs(5)).is_empty(), "not connected yet");
    w.client.connected(w.now, Peer::stream(server().addr, 1));
    let first = w.pass(Duration::from_secs(3600));
    assert_eq!(first.len(), 3);
    w.answer(&first[1]);
    w.client.disconnected(w.now);
    w.submit(getattr());
    assert!(w.pass(Duration::from_secs(5)).is_empty());
    w.client.connected(w.now, Peer::stream(server().addr, 2));
    let again = w.pass(MS);
    assert_eq!(again[0].proc, Proc::GetAttr, "what people wait for goes first");
    let again: Vec<u32> = again[1..].iter().map(|s| s.xid).collect();
    assert_eq!(again, [first[0].xid, first[2].xid], "in their order, with the xids they had");
}

#[test]
fn atp_retransmits_only_undelivered_objects() {
    let mut w = World::new(ClientConfig { window: WindowSize::Fixed(8), ..ClientConfig::new(Transport::Atp) });
    w.client.connected(w.now, Peer::stream(server().addr, 1));
    w.submit_reads(3);
    let first = w.pass(Duration::from_secs(3600));
    assert_eq!(first.len(), 3);
    assert_eq!(w.client.doubt_at(), None, "the session looks for the link by itself");
    for _ in 0..2 {
        w.client.undelivered(w.now, first[1].xid);
    }
    let again: Vec<u32> = w.pass(Duration::from_secs(3600)).iter().map(|s| s.xid).collect();
    assert_eq!(again, [first[1].xid], "once, however often that is said");
    w.answer(&first[2]);
    w.client.undelivered(w.now, first[2].xid);
    assert!(w.pass(Duration::from_secs(60)).is_empty(), "it has been answered");
}

#[test]
fn silent_server_fails_every_request() {
    for transport in [Transport::Udp, Transport::Tcp, Transport::Atp] {
        let mut w = World::new(ClientConfig { give_up: Some(Duration::from_secs(5)), ..ClientConfig::new(transport) });
        w.submit_reads(20);
        w.submit(getattr());
        w.pass(Duration::from_millis(4999));
        assert!(w.done.is_empty());
        w.pass(MS * 2);
        assert_eq!(w.done.len(), 21);
        assert!(w.done.iter().all(|(_, r)| *r == Err(CallFailure::TimedOut)));
        assert!(w.client.is_idle());
        assert_eq!(w.client.poll_timeout(), None);
    }
}

#[test]
fn only_the_first_probe_reply_renews_patience() {
    let second = Duration::from_secs(1);
    let mut w = World::new(ClientConfig { give_up: Some(second * 5), ..ClientConfig::new(Transport::Udp) });
    let answer_a_probe = |w: &mut World, after| {
        let probes = w.pass(after);
        w.answer(probes.iter().rfind(|s| s.proc == Proc::Null).expect("a probe"));
    };
    w.submit_reads(2);
    let reads = w.sent();
    answer_a_probe(&mut w, second * 4);
    answer_a_probe(&mut w, second * 4);
    assert_eq!(w.client.silence(w.now), second * 4, "the first may have ended an outage, the second shows nothing new");
    w.answer(&reads[0]);
    for _ in 0..2 {
        answer_a_probe(&mut w, second * 4);
    }
    w.pass(second - MS);
    assert_eq!(w.done.len(), 1, "the answer to another request is one, and a probe came after it");
    w.pass(MS * 2);
    assert_eq!(w.done[1].1, Err(CallFailure::TimedOut), "a server that answers probes alone is given up");
}

#[test]
fn window_limits_file_data_only() {
    let mut w = World::new(ClientConfig::stock());
    w.submit_reads(20);
    assert_eq!(w.client.room(), 0);
    w.submit(getattr());
    let sent = w.sent();
    assert_eq!(sent.iter().filter(|s| s.proc == Proc::Read).count(), 5);
    assert_eq!(sent[0].proc, Proc::GetAttr, "what people wait for goes first");
    w.answer(&sent[3]);
    assert_eq!(w.sent().len(), 1, "one out, one in");
}

#[test]
fn waiting_requests_are_bounded() {
    let mut w = World::new(ClientConfig { waiting_max: 3, ..ClientConfig::stock() });
    w.submit_reads(3);
    assert!(w.client.submit(w.now, read(9)).is_err());
    w.sent();
    assert!(w.client.submit(w.now, read(9)).is_ok());
}

#[test]
fn cancelled_request_is_sent_only_if_it_was_already() {
    let mut w = World::new(ClientConfig::stock());
    w.submit_reads(7);
    let (queued, small) = (w.submit(read(7)), w.submit(getattr()));
    assert!(w.client.cancel(w.now, small) && w.client.cancel(w.now, queued) && !w.client.cancel(w.now, queued));
    let sent = w.sent();
    assert!(sent.len() == 5 && sent.iter().all(|s| s.proc == Proc::Read));
    w.submit(getattr());
    let in_flight = w.submit(getattr());
    let small = w.sent();
    assert!(!w.client.cancel(w.now, in_flight), "the server may execute it");
    sent.iter().chain(&small).for_each(|call| w.answer(call));
    let rest = w.sent();
    assert_eq!(rest.len(), 2);
    rest.iter().for_each(|call| w.answer(call));
    w.sent();
    assert!(w.client.is_idle());
    assert!(w.done.len() == 9 && w.done.iter().all(|(id, _)| *id != queued));
    assert_eq!(w.client.room(), 5, "the window does not count it any more");
}

#[test]
fn request_carries_its_own_credential() {
    let mut w = World::new(ClientConfig::stock());
    let groups = AuthUnix { uid: 7, gids: (0..16).collect(), ..AuthUnix::default() };
    let other = OpaqueAuth::unix(&groups);
    let now = w.now;
    w.client.submit_as(now, getattr(), &other, None).unwrap();
    w.submit(getattr());
    let creds = w.sent().into_iter().map(|s| CallHeader::decode(&mut Reader::new(s.payload)).unwrap().cred);
    assert_eq!(creds.collect::<Vec<_>>(), [other, OpaqueAuth::unix(&ClientConfig::stock().cred)]);
}

#[test]
fn second_reply_is_counted_and_dropped() {
    let mut w = World::new(ClientConfig::stock());
    w.submit(getattr());
    let sent = w.sent();
    w.answer(&sent[0]);
    w.answer(&sent[0]);
    w.sent();
    assert_eq!((w.done.len(), w.client.stats().bad_xid), (1, 1));
}

proptest! {
    /// A call is only answered by a reply with its xid, and no input panics.
    #[test]
    fn noise_is_counted_and_dropped(noise in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut w = World::new(ClientConfig::new(Transport::Udp));
        w.submit(read(0));
        let sent = w.sent();
        prop_assume!(noise.get(..4) != Some(&sent[0].xid.to_be_bytes()[..]));
        w.client.handle_input(w.now, server(), Bytes::from(noise));
        w.sent();
        prop_assert!(w.done.is_empty());
        let stats = w.client.stats();
        prop_assert_eq!(stats.garbled + stats.bad_xid, 1);
    }

    /// A truncated reply is an error.
    #[test]
    fn truncated_reply_is_an_error(keep in 24usize..4000) {
        let mut w = World::new(ClientConfig::new(Transport::Udp));
        w.submit(read(0));
        let sent = w.sent();
        let whole = reply_to(sent[0].xid, Proc::Read);
        w.client.handle_input(w.now, server(), whole.slice(..keep));
        w.sent();
        prop_assert!(matches!(w.done[..], [(_, Err(CallFailure::Garbled(_)))]));
    }

    /// Under any pattern of loss that ends, each request ends exactly once, with any policy.
    #[test]
    fn every_request_ends_exactly_once(
        losses in proptest::collection::vec(any::<bool>(), 0..60),
        policy in 0usize..3,
        delay_ms in 1u32..80,
    ) {
        let config = [ClientConfig::stock(), ClientConfig::paper(), ClientConfig::new(Transport::Udp)][policy].clone();
        let (small, reads) = results_under(config, losses, MS * delay_ms);
        prop_assert!(small.iter().all(|r| r.is_ok()));
        // The last of them may find that the path carries only small messages; then the rest is sent again in smaller
        // pieces.
        let is_end = |r: &Ended| r.is_ok() || policy == 2 && *r == Err(CallFailure::Fragments);
        prop_assert!(reads.iter().all(is_end));
    }
}

/// READs are lost six times each, with answered probes between them: they are given back for smaller pieces.
#[test]
fn lost_reads_are_all_given_back() {
    let first = [false, true, false, true, true, false];
    let later = [false, true, true];
    let losses = first.into_iter().chain(later.repeat(5)).collect();
    let (small, reads) = results_under(ClientConfig::new(Transport::Udp), losses, MS * 31);
    assert!(small.iter().all(|r| r.is_ok()));
    assert!(reads.iter().all(|r| *r == Err(CallFailure::Fragments)), "{reads:?}");
}

/// Results of three GETATTRs and nine READs, of which `losses` are lost and the others answered after `delay`.
fn results_under(config: ClientConfig, losses: Vec<bool>, delay: Duration) -> (Vec<Ended>, Vec<Ended>) {
    let mut w = World::new(config);
    let ids: Vec<_> = (0..12).map(|i| w.submit(if i % 4 == 0 { getattr() } else { read(i) })).collect();
    let mut losses = losses.into_iter();
    let mut on_the_way: std::collections::VecDeque<(remora_base::Time, common::Sent)> = Default::default();
    for _ in 0..1_000_000 {
        for s in w.sent() {
            if !losses.next().unwrap_or(false) {
                on_the_way.push_back((s.at + delay, s));
            }
        }
        if w.done.len() == ids.len() && on_the_way.is_empty() {
            break;
        }
        let arrival = on_the_way.front().map(|(t, _)| *t);
        let next = arrival.into_iter().chain(w.client.poll_timeout()).min();
        w.now = w.now.max(next.expect("something to wait for"));
        while on_the_way.front().is_some_and(|(t, _)| *t <= w.now) {
            let (_, s) = on_the_way.pop_front().expect("just seen");
            w.answer(&s);
        }
        w.client.handle_timeout(w.now);
    }
    assert!(w.client.is_idle());
    w.done.sort_by_key(|(id, _)| *id);
    assert_eq!(w.done.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids);
    let (small, reads): (Vec<_>, Vec<_>) = w.done.into_iter().enumerate().partition(|(i, _)| i % 4 == 0);
    let results = |of: Vec<(usize, (_, Ended))>| of.into_iter().map(|(_, (_, r))| r).collect();
    (results(small), results(reads))
}

/// A few synchronous writes cost less than a round trip, unless the server is near; many do so only on a long path.
#[test]
fn short_tail_or_long_path_is_written_synchronously() {
    for (trip_ms, window, has_tail) in
        [(2, 3, false), (10, 3, true), (10, 4, true), (10, 5, false), (40, 32, false), (60, 32, true)]
    {
        let mut w = World::new(ClientConfig { window: WindowSize::Fixed(window), ..ClientConfig::new(Transport::Udp) });
        assert_eq!(w.client.sync_tail(), 0, "nothing is known yet");
        w.submit(getattr());
        let call = w.sent().remove(0);
        w.pass(MS * trip_ms);
        w.answer(&call);
        assert_eq!(w.client.sync_tail() > 0, has_tail, "{trip_ms} ms, {window} at a time");
    }
}
