//! Hand-off: holds.

mod common;

use std::time::Duration;

use common::{MS, Sent, World, getattr, server};
use remora_base::{Core, Peer};
use remora_client::{CallFailure, ClientConfig, Transport, WindowSize};
use remora_wire::nfs3::Proc;

const SECOND: Duration = Duration::from_secs(1);

/// Three READs in flight and more waiting, with any policy.
fn busy(config: ClientConfig) -> (World, Vec<Sent>) {
    let is_tcp = config.transport == Transport::Tcp;
    let mut w = World::new(ClientConfig { window: WindowSize::Fixed(3), ..config });
    if is_tcp {
        w.client.connected(w.now, Peer::stream(server().addr, 1));
    }
    w.submit_reads(9);
    let sent = w.sent();
    (w, sent)
}

fn udp_policies() -> [ClientConfig; 3] {
    [ClientConfig::stock(), ClientConfig::paper(), ClientConfig::new(Transport::Udp)]
}

#[test]
fn hold_sends_nothing_and_its_end_everything() {
    for config in udp_policies() {
        let (mut w, in_flight) = busy(config);
        w.client.hold(w.now, w.now + SECOND * 30);
        assert!(w.client.is_held());
        w.submit(getattr());
        assert!(w.pass(SECOND * 20).is_empty(), "no timer, no probe, no new request");
        w.client.resume(w.now);
        let sent = w.sent();
        let xids: Vec<u32> = sent.iter().map(|s| s.xid).collect();
        assert_eq!(sent[0].proc, Proc::GetAttr, "what people wait for first");
        assert_eq!(xids[1..], in_flight.iter().map(|s| s.xid).collect::<Vec<_>>()[..], "then in order, and no more");
        assert!(w.pass(MS * 5).is_empty(), "the window holds");
    }
}

#[test]
fn kept_messages_are_not_retransmitted() {
    for config in udp_policies() {
        for says_end in [true, false] {
            let (mut w, in_flight) = busy(config.clone());
            w.client.hold_kept(w.now, w.now + SECOND * 20);
            assert!(w.pass(SECOND * 20 - MS).is_empty(), "no timer, no probe");
            if says_end {
                w.client.resume(w.now);
            }
            w.submit(getattr());
            let sent: Vec<Proc> = w.pass(MS).iter().map(|s| s.proc).collect();
            assert_eq!(sent, [Proc::GetAttr], "what is new goes at once");
            // The link delivers it late.
            for call in &in_flight {
                let again = w.pass(MS * 60);
                assert!(again.iter().all(|s| in_flight.iter().all(|f| f.xid != s.xid)), "{again:?}");
                w.answer(call);
            }
            w.sent();
            assert_eq!(w.done.len(), in_flight.len());
            assert_eq!(w.client.stats().retransmissions, 0);
        }
    }
}

#[test]
fn lost_kept_messages_are_found_by_probes() {
    // The link was to keep it and did not.
    let (mut w, in_flight) = busy(ClientConfig::new(Transport::Udp));
    w.answer(&in_flight[0]);
    let in_flight: Vec<Sent> = in_flight[1..].iter().cloned().chain(w.sent()).collect();
    w.client.hold_kept(w.now, w.now + SECOND);
    w.pass(SECOND * 2 / 3);
    w.client.resume(w.now);
    let began = w.now;
    let mut again = Vec::new();
    while again.len() < in_flight.len() && w.now.since(began) < SECOND {
        for call in w.pass(MS * 10) {
            match call.proc {
                Proc::Null => w.answer(&call),
                _ => again.push(call.xid),
            }
        }
    }
    assert_eq!(again, in_flight.iter().map(|s| s.xid).collect::<Vec<_>>(), "in {:?}", w.now.since(began));
}

#[test]
fn hold_without_end_expires() {
    for (asked, lasts) in [(SECOND * 2, SECOND * 2), (SECOND * 3600, SECOND * 60)] {
        let (mut w, in_flight) = busy(ClientConfig::new(Transport::Udp));
        w.client.hold(w.now, w.now + asked);
        assert!(w.pass(lasts - MS).is_empty());
        let sent = w.pass(MS * 2);
        assert_eq!(sent.len(), in_flight.len(), "after {asked:?}");
    }
}

#[test]
fn replies_during_a_hold_are_taken() {
    let (mut w, in_flight) = busy(ClientConfig::new(Transport::Udp));
    w.client.hold(w.now, w.now + SECOND);
    w.now += MS * 10;
    w.answer(&in_flight[0]);
    assert!(w.sent().is_empty(), "its place in the window is filled later");
    assert_eq!(w.done.len(), 1);
    w.client.resume(w.now);
    assert_eq!(w.sent().iter().filter(|s| s.proc == Proc::Read).count(), 3);
}

#[test]
fn hold_is_no_silence_of_the_server() {
    let (mut w, _) = busy(ClientConfig { give_up: Some(SECOND * 5), ..ClientConfig::new(Transport::Udp) });
    w.client.hold(w.now, w.now + SECOND * 30);
    w.pass(SECOND * 31);
    assert!(w.done.is_empty());
    w.pass(SECOND * 5);
    assert!(w.done.len() == 9 && w.done.iter().all(|(_, r)| *r == Err(CallFailure::TimedOut)));
}

#[test]
fn resume_without_hold_does_nothing() {
    let (mut w, _) = busy(ClientConfig::new(Transport::Udp));
    w.client.resume(w.now);
    assert!(w.sent().is_empty());
}

#[test]
fn hold_over_tcp_retransmits_nothing() {
    let (mut w, _) = busy(ClientConfig::new(Transport::Tcp));
    w.client.hold(w.now, w.now + SECOND);
    w.submit(getattr());
    assert!(w.pass(MS * 999).is_empty());
    let sent: Vec<Proc> = w.pass(MS * 2).iter().map(|s| s.proc).collect();
    assert_eq!(sent, [Proc::GetAttr]);
    assert_eq!(w.client.poll_timeout(), None);
}
