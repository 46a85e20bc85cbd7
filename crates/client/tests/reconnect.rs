//! When a silent connection is doubted.

mod common;

use std::time::Duration;

use common::{MS, Sent, World, getattr, server};
use remora_base::{Core, Peer, Time};
use remora_client::{ClientConfig, Transport};
use remora_wire::Reader;
use remora_wire::nfs3::Proc;
use remora_wire::rpc::CallHeader;

const SECOND: Duration = Duration::from_secs(1);

/// A client whose first connection stands, with an RTT of `trip`.
fn measured(trip: Duration) -> World {
    let mut w = World::new(ClientConfig::new(Transport::Tcp));
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
fn idle_connection_is_not_doubted() {
    let mut w = measured(MS * 5);
    assert_eq!(doubt(&w), None);
    w.submit(getattr());
    w.sent();
    assert_eq!(doubt(&w), Some(SECOND * 2));
    w.client.disconnected(w.now);
    assert_eq!(doubt(&w), None, "it is being made again already");
    let mut udp = World::new(ClientConfig::new(Transport::Udp));
    udp.submit(getattr());
    udp.sent();
    assert_eq!(doubt(&udp), None);
}

#[test]
fn long_rtt_and_partial_records_delay_doubt() {
    let mut w = measured(MS * 900);
    w.submit(getattr());
    w.sent();
    assert_eq!(doubt(&w), Some(MS * 3600), "four round trips");
    w.now += SECOND * 3;
    w.client.heard(w.now);
    assert_eq!(doubt(&w), Some(MS * 3600));
}

#[test]
fn airtime_in_flight_delays_doubt() {
    let mut w = World::new(ClientConfig::new(Transport::Tcp));
    w.client.connected(w.now, Peer::stream(server().addr, 1));
    w.submit_reads(2);
    w.sent();
    assert!(doubt(&w) > Some(SECOND * 2), "two blocks over a path nobody knows: {:?}", doubt(&w));
}

#[test]
fn useless_reconnect_doubles_the_doubt_time() {
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

/// The NULL that the client sends when it is due, and its time.
fn ask(w: &mut World) -> (Sent, Duration) {
    let at = w.client.ask_at().expect("an answer is due");
    let after = at.since(w.now);
    w.pass(after);
    let payload = w.client.ask(w.now);
    let xid = CallHeader::decode(&mut Reader::new(payload.clone())).expect("a call").xid;
    (Sent { at, xid, proc: Proc::Null, payload }, after)
}

#[test]
fn null_halfway_to_doubt_delays_it() {
    let mut w = measured(MS * 5);
    assert_eq!(w.client.ask_at(), None);
    w.submit(getattr());
    w.sent();
    for _ in 0..20 {
        let (null, after) = ask(&mut w);
        assert_eq!((after, w.client.ask_at()), (SECOND, None), "one at a time");
        w.now += MS * 5;
        w.answer(&null);
        assert_eq!(doubt(&w), Some(SECOND * 2));
        assert_eq!(w.sent().len(), 0, "nothing goes out again");
    }
    assert_eq!(w.client.stats().bad_xid, 0);
    assert!(w.client.silence(w.now) > SECOND * 19, "the first may have ended an outage, the others show nothing new");
}

#[test]
fn few_bytes_count_as_a_reply_to_null() {
    let mut w = measured(MS * 5);
    w.submit(getattr());
    w.sent();
    let mut silences = Vec::new();
    for bytes in [20, 20, 20, 1000] {
        w.now += SECOND;
        w.client.heard_part(w.now, bytes);
        assert_eq!(doubt(&w), Some(SECOND * 2));
        silences.push(w.client.silence(w.now).as_secs());
    }
    assert_eq!(silences, [0, 1, 2, 0]);
}

#[test]
fn useless_moves_lengthen_the_next_silence() {
    let mut w = measured(MS * 5);
    // A server that answers nothing on a busy connection; later there is an outage.
    let mut waited = Vec::new();
    for (id, late) in (2..).zip([SECOND * 3 / 2, SECOND * 3 / 2, MS * 5, MS * 5]) {
        w.submit(getattr());
        w.sent();
        let patience = doubt(&w).expect("an answer is due");
        waited.push(patience.as_secs());
        w.pass(patience);
        w.client.connected(w.now, Peer::stream(server().addr, id));
        let again = w.sent();
        w.now += late;
        w.answer(&again[0]);
        // Others are answered at once.
        w.submit(getattr());
        let sent = w.sent();
        w.now += MS * 5;
        w.answer(&sent[0]);
    }
    assert_eq!(waited, [2, 4, 8, 2], "the third was of use");
}

#[test]
fn request_overdue_for_a_minute_is_sent_again() {
    let mut w = measured(MS * 5);
    w.submit(getattr());
    let first = w.sent().remove(0);
    let mut again = Vec::new();
    while w.now < first.at + SECOND * 150 {
        let (null, _) = ask(&mut w);
        w.now += MS * 5;
        w.answer(&null);
        again.extend(w.sent().iter().map(|sent| (sent.xid, w.now.since(first.at).as_secs())));
    }
    assert_eq!(again, [(first.xid, 60), (first.xid, 120)]);
    w.answer(&first);
    w.sent();
    assert_eq!(w.done.last().map(|(_, result)| result.is_ok()), Some(true));
}

/// Bytes of file data that the client would send.
fn window(w: &World) -> u64 {
    u64::from(w.client.window()) * u64::from(w.client.read_block(u32::MAX))
}

/// Reads `n` blocks with an airtime of `each`.
fn reads(w: &mut World, each: Duration, n: u64) {
    let mut in_flight = Vec::new();
    for _ in 0..n {
        while w.client.room() > 0 {
            w.submit_reads(1);
        }
        in_flight.extend(w.sent());
        w.now += each;
        w.answer(&in_flight.remove(0));
    }
    in_flight.extend(w.sent());
    for call in in_flight {
        w.now += each;
        w.answer(&call);
    }
    w.sent();
}

#[test]
fn repairing_stream_is_kept_full_until_a_user_waits() {
    let each = MS * 36;
    let mut w = World::new(ClientConfig::new(Transport::Tcp));
    w.client.connected(w.now, Peer::stream(server().addr, 1));
    reads(&mut w, each, 40);
    let usual = window(&w);
    assert!(usual < 40_000, "{usual} bytes, a third of a second, without a fault");
    // A lost segment delays what follows it, which then arrives at once.
    w.submit_reads(2);
    let held = w.sent();
    w.now += MS * 400;
    held.iter().for_each(|call| w.answer(call));
    w.sent();
    reads(&mut w, each, 1);
    let wide = window(&w);
    assert!((60_000..100_000).contains(&wide), "{wide} bytes: what the link carries in 600 ms");
    // A user makes a small request meanwhile.
    w.submit_reads(1);
    w.submit(getattr());
    let sent = w.sent();
    w.now += each;
    sent.iter().for_each(|call| w.answer(call));
    reads(&mut w, each, 15);
    assert!(window(&w) < usual, "{} bytes while people wait", window(&w));
    // Long after the last fault the window is as before.
    w.now += SECOND * 11;
    reads(&mut w, each, 100);
    assert!(window(&w) < usual * 2, "{} bytes after ten seconds", window(&w));
}
