//! When a silent connection is doubted.

mod common;

use std::time::Duration;

use common::{MS, World, getattr, server};
use remora_base::{Core, Peer, Time};
use remora_client::{Config, Transport};

const SECOND: Duration = Duration::from_secs(1);

/// A client whose first connection stands, on which a round trip takes `trip`.
fn measured(trip: Duration) -> World {
    let mut w = World::new(Config::new(Transport::Tcp));
    w.client.connected(w.now, Peer::stream(server().addr, 1));
    for _ in 0..8 {
        w.submit(getattr());
        let sent = w.sent();
        w.now += trip;
        w.answer(&sent[0]);
        w.sent();
    }
    w
}

fn doubt(w: &World) -> Option<Duration> {
    w.client.doubt_at().map(|t: Time| t.since(w.now))
}

#[test]
fn a_connection_that_owes_nothing_is_not_doubted() {
    let mut w = measured(MS * 5);
    assert_eq!(doubt(&w), None);
    w.submit(getattr());
    w.sent();
    assert_eq!(doubt(&w), Some(SECOND * 2));
    w.client.disconnected(w.now);
    assert_eq!(doubt(&w), None, "it is being made again already");
    let mut udp = World::new(Config::new(Transport::Udp));
    udp.submit(getattr());
    udp.sent();
    assert_eq!(doubt(&udp), None);
}

#[test]
fn long_round_trips_and_bytes_of_a_record_put_doubt_off() {
    let mut w = measured(MS * 900);
    w.submit(getattr());
    w.sent();
    assert_eq!(doubt(&w), Some(MS * 3600), "four round trips");
    w.now += SECOND * 3;
    w.client.heard(w.now);
    assert_eq!(doubt(&w), Some(MS * 3600));
}

#[test]
fn what_is_on_its_way_may_take_its_time() {
    let mut w = World::new(Config::new(Transport::Tcp));
    w.client.connected(w.now, Peer::stream(server().addr, 1));
    w.submit_reads(2);
    w.sent();
    assert!(doubt(&w) > Some(SECOND * 2), "two blocks over a path nobody knows: {:?}", doubt(&w));
}

#[test]
fn each_connection_that_was_no_better_has_more_time() {
    let mut w = measured(MS * 5);
    w.submit(getattr());
    w.sent();
    let mut waited = Vec::new();
    for id in 2..12 {
        let at = w.client.doubt_at().expect("an answer is due");
        waited.push(at.since(w.now).as_secs());
        w.pass(at.since(w.now));
        w.client.connected(w.now, Peer::stream(server().addr, id));
        assert_eq!(w.sent().len(), 1, "the request goes out again");
    }
    assert_eq!(waited, [2, 2, 4, 8, 16, 32, 60, 60, 60, 60]);
    assert_eq!(w.client.poll_timeout(), None);
}
