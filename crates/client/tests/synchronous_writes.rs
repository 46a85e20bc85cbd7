//! Replies to synchronous writes wait for the disk, and others pass them.

mod common;

use std::time::Duration;

use common::{MS, World, write};
use remora_client::{ClientConfig, Request, Transport, WindowSize};
use remora_wire::nfs3::{Call, Proc, Stable};

const TRIP: Duration = Duration::from_millis(30);

/// Retransmissions of a last WRITE that is answered by `after` the replies to later probes, if at all.
fn sent_again(stable: Stable, after: Option<Duration>) -> usize {
    let mut w = World::new(ClientConfig { window: WindowSize::Fixed(2), ..ClientConfig::new(Transport::Udp) });
    for block in 0..20 {
        w.submit(write(block * 8192, 8192));
        let calls = w.sent();
        w.pass(TRIP);
        calls.iter().for_each(|call| w.answer(call));
    }
    let Request::Nfs(Call::Write(last)) = write(0, 8192) else { unreachable!() };
    w.submit(Request::Nfs(Call::Write(remora_wire::nfs3::WriteArgs { stable, ..last })));
    let (mut in_flight, mut last, mut writes, mut passed) = (Vec::new(), None, 0, None);
    let began = w.now;
    while w.now < began + Duration::from_millis(500) {
        for call in w.pass(MS) {
            if call.proc == Proc::Write {
                writes += 1;
                last = Some(call);
            } else {
                in_flight.push(call);
            }
        }
        while in_flight.first().is_some_and(|probe| w.now >= probe.at + TRIP) {
            passed = passed.or(Some(w.now));
            w.answer(&in_flight.remove(0));
        }
        if let (Some(passed), Some(after), Some(call)) = (passed, after, &last)
            && w.now >= passed + after
        {
            w.answer(call);
            break;
        }
    }
    assert!(passed.is_some(), "nobody asked what had become of it");
    writes - 1
}

#[test]
fn synchronous_write_waits_for_disk() {
    let late = Some(Duration::from_millis(15));
    assert_eq!(sent_again(Stable::FileSync, late), 0);
    assert_eq!(sent_again(Stable::Unstable, late), 1, "what need not wait for it is lost");
    assert!(sent_again(Stable::FileSync, None) >= 1, "it may be lost after all");
}
