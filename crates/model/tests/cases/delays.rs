//! Delays of flows.

use remora_model::ring::Discipline;
use remora_model::wifi::Periods;
use remora_model::{Law, Reason};

use crate::networks::{joined, near, outside, ring, solved, switch, topology, wifi};

/// All others meet the long packets of one station: a station with short ones waits longer than its
/// load suggests.
#[test]
fn work_in_progress_counts_on_a_ring() {
    let groups = [("a", 0, 23, 0.0), ("b", 0, 5, 0.0), ("c", 0, 1, 0.0)];
    let flows = [
        ("a", "c", 21.64, 1295.5, 0.0),
        ("b", "a", 76.4, 1114.3, 0.0),
        ("c", "b", 71.23, 10_368.4, 0.0),
        ("a", "a", 6.715, 2530.6, 1.089),
    ];
    let media = [(4, ring(4.5115e-7, Discipline::Exhaustive))];
    near(topology(&media, &groups, &flows), &[1.1598, 1.2322, 3.2384, 1.4699]);
}

/// A processor slower than the medium: packets of one station never meet there.
#[test]
fn packets_spaced_by_processor_do_not_meet() {
    let groups = [("a", 0, 5, 1e-4), ("b", 0, 2, 0.0), ("c", 0, 21, 0.0)];
    let media = [(100, ring(1.474e-7, Discipline::OneLimited))];
    near(topology(&media, &groups, &[("a", "b", 1923.0, 6552.2, 0.121)]), &[0.1176]);
    let groups = [("a", 0, 2, 2e-4), ("b", 0, 1, 1.05e-5)];
    let flows = [("b", "a", 1411.9, 4614.7, 0.0), ("a", "b", 1758.9, 1657.1, 0.238)];
    near(topology(&[(10, switch(1.93e-5))], &groups, &flows), &[1.3712, 0.4442]);
}

/// A long packet reaches a switch's port after those of its sender before it are gone.
#[test]
fn long_packets_wait_less_at_switch_port() {
    let flows = [("a", "a", 81_058.7, 2103.0, 1.265), ("a", "a", 30_142.5, 9956.2, 0.0)];
    near(topology(&[(1000, switch(1.02e-5))], &[("a", 0, 2, 0.0)], &flows), &[0.0221, 0.0339]);
}

/// Both queues of a station stop in the same bad periods.
#[test]
fn bad_periods_hold_up_both_directions() {
    let groups = [("base", 0, 1, 0.0), ("a", 0, 5, 0.0), ("b", 0, 1, 0.0)];
    let flows =
        [("b", "base", 154.63, 619.1, 1.366), ("base", "b", 91.85, 2055.8, 0.0), ("base", "b", 105.92, 8285.1, 0.0)];
    let media = [(11, wifi(1e-4, 0.3508, 0.0365, Periods::Constant))];
    near(topology(&media, &groups, &flows), &[2.2361, 2.4555, 3.0587]);
}

/// One packet a turn: another station's long packets delay a station with many short ones, on a
/// ring and in a cell.
#[test]
fn unequal_queues_that_take_turns_raise_doubt() {
    let groups = [("a", 0, 2, 0.0), ("b", 0, 2, 0.0)];
    let flows = [("b", "a", 64.76, 9128.6, 0.386), ("a", "b", 435.16, 1564.0, 0.0)];
    outside(topology(&[(4, ring(5.534e-7, Discipline::OneLimited))], &groups, &flows));
    let groups = [("a", 0, 1, 0.0), ("b", 0, 1, 0.0)];
    let flows = [("a", "b", 70.1, 7468.2, 0.656), ("b", "a", 291.0, 689.1, 0.091)];
    outside(topology(&[(2, wifi(4e-4, 0.2827, 0.002, Periods::Uniform))], &groups, &flows));
    let flows = [("a", "b", 118.36, 1738.0, 0.8), ("b", "a", 75.11, 10_483.1, 0.0)];
    outside(topology(&[(2, wifi(6.52e-5, 0.39, 0.0, Periods::Constant))], &groups, &flows));
}

/// Frames of very different lengths: the longest are lost again and again.
#[test]
fn long_frames_in_short_good_periods_raise_doubt() {
    let flows = [("b", "a", 37.85, 1177.7, 0.0), ("b", "a", 14.24, 6588.5, 1.163)];
    let groups = [("a", 0, 1, 0.0), ("b", 0, 3, 1e-4)];
    outside(topology(&[(1, wifi(2e-4, 0.174, 1e-3, Periods::Constant))], &groups, &flows));
    // Exponential bad periods (+12 %).
    let groups = [("a", 0, 1, 0.0), ("b", 0, 2, 0.0), ("c", 0, 5, 5.5e-5)];
    let flows = [
        ("a", "b", 10.675, 1040.0, 0.55),
        ("a", "b", 7.272, 7664.0, 0.0),
        ("a", "c", 12.3, 976.0, 0.0),
        ("a", "b", 1.596, 9352.0, 0.0),
    ];
    outside(topology(&[(1, wifi(2.895_62e-4, 0.1868, 0.015_522, Periods::Exponential))], &groups, &flows));
}

/// Over consecutive lines short packets catch up with the same long ones at each.
#[test]
fn consecutive_lines_raise_doubt() {
    let groups = [("a", 0, 42, 0.0), ("b", 1, 7, 5.9e-5), ("c", 1, 1, 0.0)];
    let flows = [("a", "b", 13.27, 2847.1, 0.216), ("c", "a", 1226.4, 2758.0, 1.399)];
    outside(joined(
        topology(&[(10, switch(1.07e-5)), (10, switch(7.3e-6))], &groups, &flows),
        3.7e-5,
        Law::Exponential,
    ));
}

/// The packets that a token brings together queue at a gateway slower than the ring.
#[test]
fn bursts_out_of_a_ring_raise_doubt() {
    let groups = [("a", 0, 11, 0.0), ("b", 1, 120, 0.0)];
    let media = [(100, switch(5.2e-6)), (16, ring(1.7632e-5, Discipline::Exhaustive))];
    outside(joined(topology(&media, &groups, &[("b", "a", 20.34, 1183.3, 0.0)]), 2.2e-4, Law::Constant));
}

/// Long packets of one ring on the next one: short packets catch up with them again (-18 % there).
#[test]
fn consecutive_rings_raise_doubt() {
    let groups = [("a", 0, 18, 0.0), ("b", 1, 18, 0.0)];
    let media = [(4, ring(7.673e-6, Discipline::Exhaustive)), (4, ring(3.9373e-5, Discipline::Exhaustive))];
    let two = joined(topology(&media, &groups, &[("a", "b", 4.383, 10_248.0, 1.475)]), 2.3e-5, Law::Exponential);
    outside(two);
}

/// Packets spaced by a slow line never wait at a faster gateway behind it (+11 %).
#[test]
fn gateway_behind_slow_line_raises_doubt() {
    let groups = [("a", 0, 71, 0.0), ("b", 1, 47, 0.0)];
    let media = [(10, switch(9.144e-6)), (10, switch(9.581e-6))];
    let two = joined(topology(&media, &groups, &[("a", "b", 28.475, 1872.0, 0.0)]), 1.055e-4, Law::Constant);
    assert!(!solved(two).gateways[0].delay_s.outside().is_empty());
}

/// Behind a saturated resource less arrives than the flows offer: all figures there are in doubt.
#[test]
fn flow_behind_saturated_medium_raises_doubt() {
    let groups = [("a", 0, 2, 0.0), ("b", 1, 2, 0.0), ("c", 1, 2, 0.0)];
    let media = [(4, ring(1e-6, Discipline::Exhaustive)), (100, switch(1e-5))];
    let flows = [("a", "b", 300.0, 10_000.0, 0.0), ("c", "b", 10.0, 10_000.0, 0.0), ("b", "c", 1.0, 8000.0, 0.0)];
    let report = solved(joined(topology(&media, &groups, &flows), 1e-4, Law::Constant));
    let starved = |outside: &[Reason]| outside.contains(&Reason::Starved);
    let flows: Vec<bool> = report.flows.iter().map(|f| starved(f.delay_s.outside())).collect();
    assert_eq!(flows, [true, true, false]);
    assert!(starved(report.gateways[0].delay_s.outside()));
    assert!(starved(report.media[1].delay_s.as_ref().unwrap().outside()));
}

/// Two senders that saturate a port together, and their own ports, are spaced by their lines: they
/// wait less than the formula has (+14 %).
#[test]
fn switch_with_two_busy_ports_raises_doubt() {
    outside(topology(&[(10, switch(1.7166e-5))], &[("a", 0, 3, 0.0)], &[("a", "a", 913.2, 10_144.0, 0.0)]));
}

/// Short packets behind long ones that waited for one another before: two moments of their sizes do
/// not determine the second wait (+11 %).
#[test]
fn switch_busy_with_varied_sizes_raises_doubt() {
    let groups = [("a", 0, 1, 0.0), ("b", 0, 1, 0.0)];
    let flows = [("a", "b", 14_388.1, 1184.0, 0.398), ("a", "b", 4383.7, 7656.0, 0.0)];
    outside(topology(&[(100, switch(8.251e-6))], &groups, &flows));
}

/// One station has long packets, the others the same load in short ones: the division of the wait
/// is a guess (-10 %).
#[test]
fn full_ring_of_unequal_stations_raises_doubt() {
    let groups = [("a", 0, 1, 0.0), ("b", 0, 1, 0.0), ("c", 0, 1, 0.0)];
    let flows =
        [("a", "b", 28_767.8, 904.0, 1.288), ("c", "b", 49_277.9, 616.0, 0.66), ("b", "c", 3196.9, 8048.0, 0.0)];
    outside(topology(&[(100, ring(9.3e-8, Discipline::Exhaustive))], &groups, &flows));
}

/// Packets spaced by one station's processor do not wait at a slower medium behind a gateway either
/// (+61 %).
#[test]
fn processor_before_slow_medium_raises_doubt() {
    let groups = [("b", 0, 143, 3.564e-6), ("c", 0, 1, 0.0), ("a", 1, 1, 6.735_25e-4)];
    let media = [(16, ring(7.4e-8, Discipline::OneLimited)), (1000, switch(5.267e-6))];
    outside(joined(topology(&media, &groups, &[("a", "c", 1047.78, 8736.0, 0.0)]), 5.465e-5, Law::Constant));
}
