//! Copies, and flows beside them.

use remora_model::ring::Discipline;
use remora_model::wifi::Periods;
use remora_model::{Law, Report};

use crate::networks::{C, copied, joined, ring, switch, topology, wifi};

/// The copy's time is within 6 % of what was simulated, in seconds, and within the band.
#[track_caller]
fn near(report: &Report, simulated_s: f64) {
    within(report, simulated_s, 0.06);
}

/// The copy's time is `part` of `expected_s` off at most, and within the band.
#[track_caller]
fn within(report: &Report, expected_s: f64, part: f64) {
    let outcome = &report.copies[0].outcome;
    let off = outcome.value().unwrap().seconds / expected_s - 1.0;
    assert!(outcome.outside().is_empty() && off.abs() < part, "{off:+.3} {outcome:?}");
}

/// The copy is outside of its band.
#[track_caller]
fn outside(report: &Report) {
    assert!(!report.copies[0].outcome.outside().is_empty(), "{report:?}");
}

/// Blocks that come to a ring together stay together: each reply waits for all of the data (-20 %). Where a
/// gateway is busy all the time they cost nothing, and the model need not doubt.
#[test]
fn blocks_that_hold_up_one_another_say_so() {
    let copy = C { blocks: 32, window: 2, data: (23.0, 11_898.0), reply: (1.0, 600.0), times_s: [0.0, 0.0, 60e-3] };
    let groups = [("a", 0, 10, 0.0), ("b", 0, 10, 0.0)];
    outside(&copied(topology(&[(16, ring(1e-6, Discipline::Exhaustive))], &groups, &[]), &copy));
    let groups = [("a", 0, 10, 0.0), ("b", 1, 10, 0.0)];
    let two = joined(topology(&[(1000, switch(0.0)), (1000, switch(0.0))], &groups, &[]), 1e-3, Law::Constant);
    within(&copied(two, &C { window: 16, times_s: [0.0, 0.0, 5e-3], ..copy }), 32.0 * 24e-3, 0.02);
}

/// The sender's software takes as long as the ring for a block: the next one goes out ahead of the reply (-13 %).
#[test]
fn blocks_that_follow_as_fast_as_the_ring_say_so() {
    let groups = [("b", 0, 9, 0.0), ("a", 0, 1, 0.0)];
    let media = [(4, ring(8.2357e-5, Discipline::Exhaustive))];
    let times_s = [3.273e-3, 4.85e-4, 1.5945e-2];
    let copy = C { blocks: 718, window: 3, data: (1.0, 12_184.0), reply: (1.0, 1136.0), times_s };
    outside(&copied(topology(&media, &groups, &[("a", "b", 610.6, 888.0, 0.0)]), &copy));
}

/// While the sender's software has a block in hand what its flows make gathers, and goes out before the reply
/// (-16 %).
#[test]
fn flows_behind_a_busy_sender_say_so() {
    let groups = [("b", 0, 2, 0.0), ("a", 0, 1, 5.2824e-5)];
    let media = [(100, ring(7.04e-7, Discipline::Exhaustive))];
    let copy = C { blocks: 718, window: 1, data: (1.0, 12_184.0), reply: (1.0, 848.0), times_s: [4.285e-3, 0.0, 0.0] };
    outside(&copied(topology(&media, &groups, &[("a", "b", 2244.6, 9856.0, 0.777)]), &copy));
}

/// What the receiver's flows make while packets interrupt it is handled before the reply (-11 %).
#[test]
fn flows_of_a_busy_receiver_say_so() {
    let groups = [("a", 0, 47, 1.8e-6), ("b", 0, 1, 1.307e-4)];
    let copy = C { blocks: 128, window: 1, data: (6.0, 11_424.0), reply: (1.0, 1344.0), times_s: [1.265e-3, 0.0, 0.0] };
    outside(&copied(topology(&[(1000, switch(2.67e-6))], &groups, &[("b", "a", 3599.0, 6216.0, 0.0)]), &copy));
}

/// What gathers for a station in bad periods is sent in good ones, beside the copy (-6 % without).
#[test]
fn what_bad_periods_have_kept_back_slows_a_copy() {
    let groups = [("a", 0, 1, 0.0), ("b", 0, 1, 0.0)];
    let media = [(11, wifi(8.72552e-4, 0.408, 0.06, Periods::Uniform))];
    let copy = C { blocks: 1024, window: 1, data: (1.0, 8696.0), reply: (1.0, 1520.0), times_s: [4.154e-3, 0.0, 0.0] };
    near(&copied(topology(&media, &groups, &[("b", "a", 143.0, 8000.0, 0.0)]), &copy), 9.09);
}

/// While the receiver makes its replies others have sent what they have gathered (+7 % without).
#[test]
fn replies_that_take_long_find_the_ring_free() {
    let groups = [("c", 0, 5, 0.0), ("b", 0, 11, 9.668e-4), ("a", 0, 1, 0.0), ("d", 0, 1, 0.0)];
    let flows = [("d", "a", 63.778, 2664.0, 0.0), ("c", "b", 6.918, 680.0, 0.713)];
    let media = [(4, ring(4.659e-6, Discipline::Exhaustive))];
    let copy = C { blocks: 16, window: 1, data: (45.0, 12_152.0), reply: (22.5, 640.0), times_s: [0.0, 0.0, 3.759e-3] };
    near(&copied(topology(&media, &groups, &flows), &copy), 2.617);
}

/// Packets that trickle in at a gated ring go in parts, and the last part waits for another cycle (-10 %).
#[test]
fn packets_that_trickle_in_at_a_gate_say_so() {
    let groups = [("a", 0, 17, 0.0), ("b", 1, 56, 0.0)];
    let media = [(100, ring(7.84e-7, Discipline::OneLimited)), (100, ring(2.302e-6, Discipline::Gated))];
    let two = joined(topology(&media, &groups, &[]), 9.63e-5, Law::Constant);
    let copy = C { blocks: 32, window: 1, data: (23.0, 11_896.0), reply: (1.0, 656.0), times_s: [0.0; 3] };
    outside(&copied(two, &copy));
}

/// A flow waits behind a copy's bursts even where they are next to nothing of its traffic, or behind the software
/// of a station that sends both (-10 to -98 %); its medium says so, too.
#[test]
fn flows_behind_bursts_say_so() {
    let groups = [("a", 0, 12, 0.0), ("b", 0, 29, 0.0)];
    let flows = [("a", "a", 25_129.0, 7704.0, 0.0)];
    let copy = C { blocks: 1024, window: 4, data: (1.0, 8696.0), reply: (1.0, 512.0), times_s: [2.19e-4, 0.0, 0.0] };
    let behind_software = copied(topology(&[(1000, switch(6.971e-6))], &groups, &flows), &copy);
    let groups = [("a", 0, 140, 0.0), ("b", 0, 5, 0.0)];
    let copy = C { blocks: 16, window: 16, data: (45.0, 12_152.0), reply: (1.0, 512.0), times_s: [0.0, 5e-2, 0.0] };
    let flows = [("a", "a", 300.0, 4000.0, 0.0)];
    let behind_bursts = copied(topology(&[(100, switch(1e-5))], &groups, &flows), &copy);
    for report in [behind_software, behind_bursts] {
        assert!(!report.flows[0].delay_s.outside().is_empty(), "{report:?}");
        assert!(!report.media[0].delay_s.as_ref().unwrap().outside().is_empty(), "{report:?}");
    }
}
