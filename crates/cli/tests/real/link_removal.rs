//! What an end that leaves, or is made to, does before it is gone.

use std::time::Duration;

use super::common::until;
use super::{SOON, World};

pub(super) fn a_device_taken_away_is_told_to_the_other_end() {
    let w = World::new(1);
    let (base, mut mobile) = (w.start_base(&[]), w.start_mobile(0, &[]));
    assert!(w.answers(0, 100, SOON));
    w.mobiles[0].ip("link del rlink0");
    assert_eq!(mobile.child.wait().unwrap().code(), Some(1));
    base.says("10.78.0.2 has left");
}

/// What the other end has an acknowledgement of it does not send again: held for an earlier packet it would be lost.
pub(super) fn what_an_end_has_acknowledged_reaches_its_programs_though_it_leaves() {
    const LOST: u8 = 5;
    let w = World::new(1);
    let (base, mobile) = (w.start_base(&[]), w.start_mobile(0, &["--attempts", "default=1000000000"]));
    assert!(w.answers(0, 100, SOON));
    // The device drops longer ones, as often as they come.
    w.base.ip("link set wire0 mtu 1000");
    let (from, to) = (w.mobiles[0].socket("0.0.0.0:0"), w.base.socket("10.78.0.1:9"));
    for number in 0..20 {
        let len = if number == LOST { 1200 } else { 100 };
        from.send_to(&vec![number; len], "10.78.0.1:9").unwrap();
    }
    until("all but one to be acknowledged and held", || {
        let figure =
            |figures: Option<serde_json::Value>, name: &str| figures.and_then(|f| f["peers"][0][name].as_u64());
        figure(base.figures(), "held") == Some(14) && figure(mobile.figures(), "unacknowledged") == Some(1)
    });
    assert_eq!(base.end("INT"), Some(0));
    to.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut buffer = [0; 2000];
    let arrived: Vec<u8> = std::iter::from_fn(|| to.recv(&mut buffer).ok().map(|_| buffer[0])).collect();
    assert_eq!(arrived, (0..20).filter(|number| *number != LOST).collect::<Vec<_>>());
}
