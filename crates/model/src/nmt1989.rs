//! The Network Modeling Tool of Copy 89, section 4: its formulas, including their faults, to
//! reproduce its figures 9 and 10 to the last digit. Use the rest of this crate for anything else.
//!
//! Its faults: it uses the offered load as the channel's traffic G, so 93.7 % offered shows as 48 %
//! utilised; a propagation time of 5.12 us, probably a slip for the slot time of 51.2 us; and the
//! larger of two delays as the copy's time, which is right for strict stop-and-wait alone.

use std::f64::consts::E;

use serde::Serialize;

use crate::copying;
use crate::network::Network;
use crate::quantity::{Seconds, Traffic};
use crate::topology::{Flow, Group, Kind};

/// The paper's sheet: its inputs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sheet {
    /// Bits a second of the Ethernet.
    pub bits_per_s: f64,
    /// Its propagation time in seconds; the paper's is 5.12e-6.
    pub propagation_s: f64,
    /// Offered traffic of all stations.
    pub offered: Traffic,
    /// Packets a second of the copy's sender.
    pub sender_packets_per_s: f64,
    /// Mean packet of the copy's sender, in bits.
    pub packet_bits: f64,
    pub file_bytes: f64,
}

/// The paper's sheet: its outputs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Results {
    /// Per-packet delay in seconds.
    pub delay_s: f64,
    /// Utilisation of the Ethernet (0 to 1).
    pub utilisation: f64,
    /// Effective throughput in packets a second.
    pub throughput_packets_per_s: f64,
    /// Packets in the file; fractional, as in the paper.
    pub packets: f64,
    /// Packets times per-packet delay, in seconds.
    pub aggregate_s: f64,
    /// Packets over the sender's rate, in seconds.
    pub simple_s: f64,
    /// The larger of `aggregate_s` and `simple_s`, in seconds.
    pub total_s: f64,
}

/// The flows that cross the copy's Ethernet, including those between gateways, with the number of
/// stations that send each: the copy's background. `network` must have a sheet.
pub fn background(network: &Network) -> impl Iterator<Item = (&Flow, f64)> {
    let topology = network.topology();
    let medium = network.copy_routes().first().and_then(|(there, _)| there.hops.first()).map(|hop| hop.medium);
    let across = topology.flows.iter().zip(network.flow_routes()).filter_map(move |(flow, route)| {
        let crosses = route.hops.iter().any(|hop| Some(hop.medium) == medium);
        crosses.then_some((flow, topology.groups.get(route.from)?))
    });
    across.map(|(flow, from)| (flow, f64::from(from.stations)))
}

impl Sheet {
    /// The sheet of a network with one copy that stays on one Ethernet, and all flows that cross
    /// it. The copy's packets come at the rate of the sender's software alone, as the paper
    /// measured them. An error says what is missing.
    pub fn of(network: &Network) -> Result<Sheet, &'static str> {
        let topology = network.topology();
        let [copy] = &topology.copies[..] else {
            return Err(if topology.copies.is_empty() { "there is no copy" } else { "there is more than one copy" });
        };
        let group = |name: &str| topology.groups.iter().find(|g| g.name == name).ok_or("a group is not there");
        let on = |g: &Group| topology.media.iter().find(|m| m.name == g.medium).ok_or("a medium is not there");
        let medium = on(group(&copy.from)?)?;
        if group(&copy.to)?.medium != medium.name {
            return Err("the copy leaves its medium");
        }
        let Kind::Ethernet { propagation } = medium.kind else { return Err("the copy's medium is not an Ethernet") };
        if copy.software.get() <= 0.0 {
            return Err("the copy has no software time, which determines its sender's rate");
        }
        let blocks_per_s = 1.0 / copy.software.get();
        let (data, reply) = copying::traffic(copy, blocks_per_s);
        let mut offered = data.plus(reply);
        for (flow, stations) in background(network) {
            offered = offered.plus(Traffic::new(flow.rate, flow.size).times(stations));
        }
        Ok(Sheet {
            bits_per_s: medium.rate.bits() as f64,
            propagation_s: propagation.get(),
            offered,
            sender_packets_per_s: data.packets_per_s(),
            packet_bits: copy.data.size.mean_bits(),
            file_bytes: copy.file_bytes as f64,
        })
    }

    /// Calculates the sheet. `None` without traffic, or at a pole of the delay formula.
    pub fn results(&self) -> Option<Results> {
        let x = self.offered.mean_bits() / self.bits_per_s;
        let lambda = self.offered.packets_per_s();
        if x <= 0.0 || self.packet_bits <= 0.0 || self.sender_packets_per_s <= 0.0 {
            return None;
        }
        let delay_s = delay(x, lambda, self.propagation_s);
        let utilisation = throughput(x, lambda, self.propagation_s);
        let packets = self.file_bytes * 8.0 / self.packet_bits;
        let aggregate_s = packets * delay_s;
        let simple_s = packets / self.sender_packets_per_s;
        let total_s = aggregate_s.max(simple_s);
        let fits = Seconds::new(delay_s).is_ok() && Seconds::new(total_s).is_ok();
        fits.then_some(Results {
            delay_s,
            utilisation,
            throughput_packets_per_s: utilisation / x,
            packets,
            aggregate_s,
            simple_s,
            total_s,
        })
    }
}

/// Lam's mean delay (1980) for CSMA/CD, with `2*t` for the first term where Lam has `t/2`.
/// Packets of `x` seconds, `l` of them a second, propagation `t` seconds; seconds.
fn delay(x: f64, l: f64, t: f64) -> f64 {
    let idle = (-2.0 * l * t).exp();
    let collided =
        (1.0 - idle) * (2.0 / l + 2.0 * t / E - 6.0 * t) / (2.0 * ((-l * x - l * t - 1.0).exp() - 1.0 + idle));
    let square = x * x + (4.0 * E + 2.0) * t * x + 5.0 * t * t + 4.0 * E * (2.0 * E - 1.0) * t * t;
    let queued = l * square / (2.0 * (1.0 - l * (x + t + 2.0 * E * t)));
    x + 2.0 * t + 2.0 * E * t - collided + queued
}

/// Throughput of unslotted non-persistent CSMA/CD with jams of two propagation times (Tobagi & Hunt
/// 1980), as a share of the rate. The offered load replaces the channel's traffic G.
fn throughput(x: f64, l: f64, t: f64) -> f64 {
    const JAM: f64 = 2.0;
    let (g, a) = (l * x, t / x);
    let clear = (-a * g).exp();
    g * clear / (g * clear + (JAM + 2.0) * a * g * (1.0 - clear) + 2.0 - clear)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::{Bits, PacketRate, Size};

    fn empty() -> Sheet {
        Sheet {
            bits_per_s: 1e7,
            propagation_s: 5.12e-6,
            offered: Traffic::default(),
            sender_packets_per_s: 60.0,
            packet_bits: 11_680.0,
            file_bytes: 1e8,
        }
    }

    /// The paper's copy of 100 MB beside `background` packets of 8376 bits a second.
    fn paper(background: f64) -> Results {
        let traffic = |pps, bits| Traffic::new(PacketRate::new(pps).unwrap(), Size::constant(Bits::new(bits).unwrap()));
        let offered = traffic(60.0, 11_680.0).plus(traffic(10.0, 1_104.0)).plus(traffic(background, 8_376.0));
        let sheet = Sheet { offered, ..empty() };
        sheet.results().unwrap()
    }

    #[test]
    fn figures_9_and_10_equal_the_papers() {
        for (background, delay_ms, utilisation, pps, aggregate, total) in [
            (0.0, "1.06671584", "6.64", "65.30", "73.06", "1141.55"),
            (1034.0, "17.1082081", "48.10", "566.52", "1171.80", "1171.80"),
        ] {
            let got = paper(background);
            let digits = delay_ms.len() - delay_ms.find('.').unwrap() - 1;
            assert_eq!(format!("{:.digits$}", got.delay_s * 1e3), delay_ms);
            assert_eq!(format!("{:.2}", got.utilisation * 100.0), utilisation);
            assert_eq!(format!("{:.2}", got.throughput_packets_per_s), pps);
            assert_eq!(format!("{:.2}", got.aggregate_s), aggregate);
            assert_eq!(format!("{:.2}", got.total_s), total);
            assert_eq!(format!("{:.2}", got.simple_s), "1141.55");
            assert_eq!(format!("{:.4}", got.packets), "68493.1507");
        }
        assert_eq!(format!("{:.5}", paper(1034.0).aggregate_s), "1171.79507");
    }

    #[test]
    fn crossover_equals_that_of_the_paper() {
        let longer = |background| paper(background).aggregate_s > paper(background).simple_s;
        assert!(!longer(1033.0) && longer(1034.0));
        assert_eq!((0..2000).find(|b| longer(f64::from(*b))), Some(1034));
    }

    #[test]
    fn empty_sheet_has_no_results() {
        assert_eq!(empty().results(), None);
    }
}
