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

/// Bytes of file data that the client would have on its way.
fn window(w: &World) -> u64 {
    u64::from(w.client.window()) * u64::from(w.client.read_block(u32::MAX))
}

/// Reads `n` blocks, each of which keeps the link busy for `each`.
fn reads(w: &mut World, each: Duration, n: u64) {
    let mut flying = Vec::new();
    for _ in 0..n {
        while w.client.room() > 0 {
            w.submit_reads(1);
        }
        flying.extend(w.sent());
        w.now += each;
        w.answer(&flying.remove(0));
    }
    flying.extend(w.sent());
    for call in flying {
        w.now += each;
        w.answer(&call);
    }
    w.sent();
}

#[test]
fn a_stream_that_repairs_itself_gets_more_to_carry_until_somebody_waits() {
    let each = MS * 36;
    let mut w = World::new(Config::new(Transport::Tcp));
    w.client.connected(w.now, Peer::stream(server().addr, 1));
    reads(&mut w, each, 40);
    let usual = window(&w);
    assert!(usual < 40_000, "{usual} bytes, a third of a second, without a fault");
    // A segment is lost: what follows it is there, but comes all at once when it has been sent again.
    w.submit_reads(2);
    let held = w.sent();
    w.now += MS * 400;
    held.iter().for_each(|call| w.answer(call));
    w.sent();
    reads(&mut w, each, 1);
    let wide = window(&w);
    assert!((60_000..100_000).contains(&wide), "{wide} bytes: what the link carries in 600 ms");
    // Somebody asks for something small meanwhile.
    w.submit_reads(1);
    w.submit(getattr());
    let sent = w.sent();
    w.now += each;
    sent.iter().for_each(|call| w.answer(call));
    reads(&mut w, each, 15);
    assert!(window(&w) < usual, "{} bytes while people wait", window(&w));
    // And long after the last fault there is no reason any more.
    w.now += SECOND * 11;
    reads(&mut w, each, 100);
    assert!(window(&w) < usual * 2, "{} bytes after ten seconds", window(&w));
}
