//! Copies, and flows beside copies.

use remora_model::ring::Discipline;
use remora_model::wifi::Periods;
use remora_model::{Kind, Law, Report};

use crate::networks::{C, copied, joined, ring, seconds, switch, topology, wifi};

/// The copy's time is within the band, and within 6 % of the simulated seconds.
#[track_caller]
fn near(report: &Report, simulated_s: f64) {
    within(report, simulated_s, 0.06);
}

/// The copy's time is within the band, and within `part` of `expected_s`.
#[track_caller]
fn within(report: &Report, expected_s: f64, part: f64) {
    let outcome = &report.copies[0].outcome;
    let off = outcome.value().unwrap().seconds / expected_s - 1.0;
    assert!(outcome.outside().is_empty() && off.abs() < part, "{off:+.3} {outcome:?}");
}

/// The copy is outside its band.
#[track_caller]
fn outside(report: &Report) {
    assert!(!report.copies[0].outcome.outside().is_empty(), "{report:?}");
}

/// Blocks that reach a ring together stay together: each reply waits for all of the data (-20 %).
/// Where a gateway is always busy they cost nothing, and the model need not doubt.
#[test]
fn blocks_that_delay_one_another_raise_doubt() {
    let copy = C { blocks: 32, window: 2, data: (23.0, 11_898.0), reply: (1.0, 600.0), times_s: [0.0, 0.0, 60e-3] };
    let groups = [("a", 0, 10, 0.0), ("b", 0, 10, 0.0)];
    outside(&copied(topology(&[(16, ring(1e-6, Discipline::Exhaustive))], &groups, &[]), &copy));
    let groups = [("a", 0, 10, 0.0), ("b", 1, 10, 0.0)];
    let two = joined(topology(&[(1000, switch(0.0)), (1000, switch(0.0))], &groups, &[]), 1e-3, Law::Constant);
    within(&copied(two, &C { window: 16, times_s: [0.0, 0.0, 5e-3], ..copy }), 32.0 * 24e-3, 0.02);
}

/// Blocks fall into step so that each reply waits for the end of the other block's data (-18 %;
/// with one outstanding block 0.1 %).
#[test]
fn replies_that_meet_next_block_raise_doubt() {
    let groups = [("c", 0, 17, 0.0), ("a", 0, 1, 0.0), ("b", 0, 3, 0.0)];
    let times_s = [3.626e-3, 1.893e-3, 0.0];
    let copy = C { blocks: 32, window: 2, data: (23.0, 11_896.0), reply: (0.5, 512.0), times_s };
    let solved =
        |window| copied(topology(&[(100, ring(3.36e-7, Discipline::Gated))], &groups, &[]), &C { window, ..copy });
    outside(&solved(2));
    within(&solved(1), 0.265, 0.02);
}

/// Where stations take turns each packet of the reply waits for one of data (-12 %).
#[test]
fn replies_that_take_turns_with_data_raise_doubt() {
    let groups = [("b", 0, 8, 1.254e-6), ("a", 0, 1, 0.0)];
    let flows = [("b", "b", 21.332, 1776.0, 1.002), ("b", "a", 14.355, 9280.0, 0.0)];
    let times_s = [4.717e-3, 9.472e-3, 7.453e-3];
    let copy = C { blocks: 32, window: 2, data: (23.0, 11_896.0), reply: (11.5, 1064.0), times_s };
    outside(&copied(topology(&[(16, ring(2.1666e-5, Discipline::OneLimited))], &groups, &flows), &copy));
}

/// Data arrive over a line as fast as the shared Ethernet: they queue before it like a burst, and
/// the reply meets all stations in back-off (-13 %).
#[test]
fn data_faster_than_ethernet_raises_doubt() {
    let groups = [("a", 0, 2, 0.0), ("b", 1, 1, 0.0), ("c", 1, 9, 0.0)];
    let ethernet = Kind::Ethernet { propagation: seconds(2.37e-6) };
    let media = [(10, switch(1.17e-5)), (10, ethernet)];
    let two = joined(topology(&media, &groups, &[("c", "c", 89.166, 2440.0, 0.0)]), 2.7384e-5, Law::Constant);
    let times_s = [0.0, 0.0, 2.939e-3];
    outside(&copied(two, &C { blocks: 32, window: 1, data: (23.0, 11_896.0), reply: (11.5, 1376.0), times_s }));
}

/// A receiver whose software is two thirds busy with other packets of the copy's sender (-11 %).
#[test]
fn busy_receiver_raises_doubt() {
    let groups = [("b", 0, 6, 2.1793e-4), ("a", 0, 1, 0.0)];
    let flows = [("a", "b", 12_702.8, 1576.0, 1.264), ("a", "b", 5405.9, 888.0, 0.0)];
    let times_s = [2.781e-4, 0.0, 2.694e-3];
    let copy = C { blocks: 128, window: 1, data: (6.0, 11_424.0), reply: (1.0, 1408.0), times_s };
    outside(&copied(topology(&[(100, switch(4.752e-6))], &groups, &flows), &copy));
}

/// The sender's software takes as long as the ring for a block: the next block precedes the reply
/// (-13 %).
#[test]
fn blocks_as_fast_as_the_ring_raise_doubt() {
    let groups = [("b", 0, 9, 0.0), ("a", 0, 1, 0.0)];
    let media = [(4, ring(8.2357e-5, Discipline::Exhaustive))];
    let times_s = [3.273e-3, 4.85e-4, 1.5945e-2];
    let copy = C { blocks: 718, window: 3, data: (1.0, 12_184.0), reply: (1.0, 1136.0), times_s };
    outside(&copied(topology(&media, &groups, &[("a", "b", 610.6, 888.0, 0.0)]), &copy));
}

/// While the sender's software handles a block, its flows accumulate and precede the reply (-16 %).
#[test]
fn flows_behind_busy_sender_raise_doubt() {
    let groups = [("b", 0, 2, 0.0), ("a", 0, 1, 5.2824e-5)];
    let media = [(100, ring(7.04e-7, Discipline::Exhaustive))];
    let copy = C { blocks: 718, window: 1, data: (1.0, 12_184.0), reply: (1.0, 848.0), times_s: [4.285e-3, 0.0, 0.0] };
    outside(&copied(topology(&media, &groups, &[("a", "b", 2244.6, 9856.0, 0.777)]), &copy));
}

/// Packets of the receiver's flows, generated while arriving packets interrupt it, precede the
/// reply (-11 %).
#[test]
fn flows_of_busy_receiver_raise_doubt() {
    let groups = [("a", 0, 47, 1.8e-6), ("b", 0, 1, 1.307e-4)];
    let copy = C { blocks: 128, window: 1, data: (6.0, 11_424.0), reply: (1.0, 1344.0), times_s: [1.265e-3, 0.0, 0.0] };
    outside(&copied(topology(&[(1000, switch(2.67e-6))], &groups, &[("b", "a", 3599.0, 6216.0, 0.0)]), &copy));
}

/// Packets accumulated for a station in bad periods are sent in good ones, beside the copy (-6 %
/// without).
#[test]
fn backlog_of_bad_periods_slows_a_copy() {
    let groups = [("a", 0, 1, 0.0), ("b", 0, 1, 0.0)];
    let media = [(11, wifi(8.72552e-4, 0.408, 0.06, Periods::Uniform))];
    let copy = C { blocks: 1024, window: 1, data: (1.0, 8696.0), reply: (1.0, 1520.0), times_s: [4.154e-3, 0.0, 0.0] };
    near(&copied(topology(&media, &groups, &[("b", "a", 143.0, 8000.0, 0.0)]), &copy), 9.09);
}

/// While the receiver produces its replies the ring sends the accumulated packets (+7 % without).
#[test]
fn slow_replies_find_the_ring_free() {
    let groups = [("c", 0, 5, 0.0), ("b", 0, 11, 9.668e-4), ("a", 0, 1, 0.0), ("d", 0, 1, 0.0)];
    let flows = [("d", "a", 63.778, 2664.0, 0.0), ("c", "b", 6.918, 680.0, 0.713)];
    let media = [(4, ring(4.659e-6, Discipline::Exhaustive))];
    let copy = C { blocks: 16, window: 1, data: (45.0, 12_152.0), reply: (22.5, 640.0), times_s: [0.0, 0.0, 3.759e-3] };
    near(&copied(topology(&media, &groups, &flows), &copy), 2.617);
}

/// Packets that arrive slowly at a gated ring go in parts, and the last part waits for another
/// cycle (-10 %).
#[test]
fn packets_slower_than_gated_ring_raise_doubt() {
    let groups = [("a", 0, 17, 0.0), ("b", 1, 56, 0.0)];
    let media = [(100, ring(7.84e-7, Discipline::OneLimited)), (100, ring(2.302e-6, Discipline::Gated))];
    let two = joined(topology(&media, &groups, &[]), 9.63e-5, Law::Constant);
    let copy = C { blocks: 32, window: 1, data: (23.0, 11_896.0), reply: (1.0, 656.0), times_s: [0.0; 3] };
    outside(&copied(two, &copy));
}

/// A flow waits behind a copy's bursts even where they are a negligible share of its traffic, or
/// behind the software of a station that sends both (-10 to -98 %); its medium is doubted, too.
#[test]
fn flows_behind_bursts_raise_doubt() {
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

/// In a cell data and replies wait for what others send in one round, and no longer: the sum of
/// both waits alone is too high (+10.7 %).
#[test]
fn copy_waits_no_longer_than_others_send() {
    let groups = [("b", 0, 1, 0.0), ("other", 0, 4, 0.0), ("a", 0, 5, 0.0)];
    let copy = C { blocks: 718, window: 1, data: (1.0, 12_184.0), reply: (1.0, 592.0), times_s: [0.0, 1.06e-4, 0.0] };
    let media = [(1, wifi(3.357e-6, 1.0, 0.0, Periods::Exponential))];
    let report = copied(topology(&media, &groups, &[("other", "b", 1.5, 11_088.0, 0.83)]), &copy);
    near(&report, 9.911);
    let alone = copied(topology(&media, &groups, &[]), &copy);
    let seconds = |report: &Report| report.copies[0].outcome.value().unwrap().seconds;
    let load = 4.0 * 1.5 * (11_088e-6 + 3.357e-6);
    assert!(seconds(&report) <= seconds(&alone) / (1.0 - load) * (1.0 + 1e-9));
}

/// On an Ethernet a station that lost against a long burst backs off for about its duration, and
/// its reply waits for that (-11 %).
#[test]
fn long_bursts_on_ethernet_raise_doubt() {
    let groups = [("a", 0, 2, 1.624e-6), ("b", 0, 1, 0.0)];
    let media = [(10, Kind::Ethernet { propagation: seconds(4.925e-6) })];
    let copy = C { blocks: 16, window: 1, data: (45.0, 12_152.0), reply: (1.0, 672.0), times_s: [7.3187e-4, 0.0, 0.0] };
    outside(&copied(topology(&media, &groups, &[("b", "a", 28.83, 7528.0, 0.0)]), &copy));
}

/// Packets for the sender interrupt its software while it produces a block (-10 %).
#[test]
fn interrupted_sender_raises_doubt() {
    let groups = [("c", 0, 1, 0.0), ("b", 0, 4, 0.0), ("a", 0, 2, 8.77885e-4)];
    let flows = [("c", "a", 250.42, 9664.0, 0.0), ("b", "b", 96.12, 3560.0, 0.0), ("a", "a", 278.56, 4296.0, 0.0)];
    let times_s = [4.396_999e-3, 7.715_198e-3, 0.0];
    let copy = C { blocks: 1024, window: 1, data: (1.0, 8696.0), reply: (1.0, 1056.0), times_s };
    outside(&copied(topology(&[(100, ring(3.31e-7, Discipline::Gated))], &groups, &flows), &copy));
}

/// The token has passed the gateway when the reply is ready, and the stations behind send their
/// accumulated packets (-12 %).
#[test]
fn reply_from_beyond_a_ring_raises_doubt() {
    let groups = [("b", 0, 13, 0.0), ("c", 1, 1, 0.0), ("a", 1, 1, 0.0)];
    let media = [(1000, switch(1.193e-5)), (16, ring(8.769e-6, Discipline::Exhaustive))];
    let two = joined(topology(&media, &groups, &[("c", "b", 2295.3, 1216.0, 0.158)]), 1.1859e-5, Law::Constant);
    let times_s = [0.0, 0.0, 1.676e-2];
    outside(&copied(two, &C { blocks: 16, window: 1, data: (45.0, 12_152.0), reply: (1.0, 1032.0), times_s }));
}

/// At a full port the station's own earlier packets, delayed by others, precede the reply (-14 %).
#[test]
fn full_port_behind_own_packets_raises_doubt() {
    let groups = [("a", 0, 90, 4.1118e-5), ("c", 0, 1, 9.312e-6), ("b", 1, 3, 9.28e-5)];
    let media = [(100, ring(1e-8, Discipline::OneLimited)), (10, switch(1.9866e-5))];
    let two = joined(topology(&media, &groups, &[("b", "c", 482.1, 5368.0, 0.0)]), 7.4652e-5, Law::Constant);
    let copy = C { blocks: 718, window: 1, data: (1.0, 12_184.0), reply: (1.0, 1280.0), times_s: [0.0; 3] };
    outside(&copied(two, &copy));
}
