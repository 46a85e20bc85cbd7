//! The path model is saved while other connections fill the path.

mod common;

use std::collections::VecDeque;
use std::time::Duration;

use common::{MS, Sent, World, getattr};
use remora_client::{ClientConfig, Transport, WindowSize};
use remora_wire::nfs3::Proc;

/// A client on a path with 12 ms per block that loses every sixth.
fn lossy() -> World {
    let mut w = World::new(ClientConfig { window: WindowSize::Fixed(3), ..ClientConfig::new(Transport::Udp) });
    w.submit(getattr());
    let small = w.sent().remove(0);
    w.pass(MS * 5);
    w.answer(&small);
    w.submit_reads(150);
    let mut in_flight = VecDeque::from(w.sent());
    let mut nth = 0;
    while let Some(sent) = in_flight.pop_front() {
        nth += 1;
        w.now += MS * 12;
        if nth % 6 != 0 {
            w.answer(&sent);
        }
        in_flight.extend(w.pass(MS));
    }
    assert_eq!(w.done.len(), 151);
    assert!(w.client.loss().is_some_and(|p| p > 0.03), "{:?}", w.client.loss());
    w
}

/// Six blocks that wait 0.6 s each behind other connections' data, in a queue that drops probes.
fn crowd(w: &mut World) {
    for _ in 0..6 {
        w.submit_reads(1);
        let sent = w.pass(MS * 600);
        let block = sent.iter().find(|s| s.proc == Proc::Read).expect("the block");
        w.answer(block);
        w.pass(MS);
    }
}

/// Time until the loss of a small request is probed for.
fn asked_after(w: &mut World) -> Duration {
    w.submit(getattr());
    let sent: Vec<Sent> = w.pass(Duration::from_secs(2));
    let lost = sent.iter().find(|s| s.proc == Proc::GetAttr).expect("the request").at;
    sent.iter().find(|s| s.proc == Proc::Null && s.at > lost).expect("a probe").at.since(lost)
}

#[test]
fn recall_restores_the_path_model() {
    let mut w = lossy();
    let before = w.client.loss();
    w.client.save_path(w.now, 0);
    crowd(&mut w);
    w.client.save_path(w.now, 2);
    assert_ne!(w.client.loss(), before, "they came and went in bursts");
    let (block, packet) = (w.client.read_block(1 << 20), w.client.read_packet(1 << 20));
    assert!(packet < block && remora_client::fragments(packet + 128) == 1, "{packet} of {block} bytes");
    w.client.restore_path(w.now);
    assert_eq!(w.client.loss(), before);
    let soon = asked_after(&mut w);
    assert!(soon < MS * 60, "{soon:?}");
}

#[test]
fn streams_spoil_path_model_without_restore() {
    let mut w = lossy();
    crowd(&mut w);
    let late = asked_after(&mut w);
    assert!(late > MS * 60, "{late:?}");
}

#[test]
fn snapshot_older_than_a_minute_is_not_restored() {
    let mut w = lossy();
    let before = w.client.loss();
    w.client.save_path(w.now, 0);
    crowd(&mut w);
    w.pass(Duration::from_secs(60));
    w.client.restore_path(w.now);
    assert_ne!(w.client.loss(), before);
}

/// Left by connections that were never recalled.
#[test]
fn snapshot_for_earlier_streams_is_not_restored() {
    let mut w = lossy();
    w.client.save_path(w.now, 0);
    crowd(&mut w);
    let since = w.client.loss();
    w.client.save_path(w.now, 0);
    w.pass(Duration::from_secs(1));
    w.client.restore_path(w.now);
    assert_eq!(w.client.loss(), since);
    // It is not too old for the next connections.
    w.client.save_path(w.now, 0);
    w.pass(Duration::from_secs(59));
    w.client.save_path(w.now, 0);
    crowd(&mut w);
    let crowded = w.client.loss();
    w.client.restore_path(w.now);
    assert!(w.client.loss() == since && crowded != since, "{:?}", w.client.loss());
}
