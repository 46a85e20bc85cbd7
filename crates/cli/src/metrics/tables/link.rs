//! Metrics of `remora link base` and `remora link mobile`.

use std::borrow::Cow;

use remora_host::link::{ChannelState, Drops, LinkReport, PeerFigures, PeerReport};

use crate::metrics::table::{Family, Number, grouped};

/// Most peers with labels of their own.
const PEERS_MAX: usize = 64;

/// A peer, or several of one name.
type Peer<'a> = (Cow<'static, str>, Vec<&'a PeerReport>);

/// The metrics of one end of a link.
pub(crate) fn families(report: &LinkReport) -> Vec<Family> {
    let labels = vec![("role", report.role.clone().into()), ("device", report.device.clone().into())];
    let up = report.peers.iter().filter(|peer| peer.up).count();
    let rate = report.rate_bits.map(|bits| bits as f64 / 8.0);
    let mut all = vec![
        Family::info("link", "Role and network device of this end", labels),
        Family::gauge("link_uptime", "Time since the start").in_seconds().value(report.seconds),
        Family::gauge("link_rate_bytes_per_second", "Rate of the hop, configured or learned").maybe(rate),
        Family::gauge("link_peers", "Peers by whether there is a session")
            .by("state", [("up", up), ("down", report.peers.len() - up)]),
        drops(&report.drops),
    ];
    let peers = grouped(&report.peers, |peer| peer.name.as_str(), PEERS_MAX);
    all.extend(states(&peers));
    all.extend(queues(&peers));
    all.extend(counters(&peers));
    all
}

fn drops(drops: &Drops) -> Family {
    Family::counter("link_drops", "Datagrams and packets dropped, by reason").by(
        "reason",
        [
            ("forged", drops.forged),
            ("replayed", drops.replayed),
            ("refused", drops.refused),
            ("strangers", drops.strangers),
            ("limited", drops.limited),
            ("no_route", drops.no_route),
            ("own", drops.own),
            ("no_session", drops.no_session),
            ("not_theirs", drops.not_theirs),
            ("no_unicast", drops.no_unicast),
            ("unsent", drops.unsent),
            ("undelivered", drops.undelivered),
        ],
    )
}

/// A sample for each peer.
fn each<N: Into<Number>>(family: Family, peers: &[Peer<'_>], number: impl Fn(&[&PeerReport]) -> N) -> Family {
    peers.iter().fold(family, |family, (name, members)| family.sample(vec![("peer", name.clone())], number(members)))
}

/// The sums of a figure.
fn total<N: Into<Number> + std::iter::Sum>(
    family: Family,
    peers: &[Peer<'_>],
    figure: impl Fn(&PeerFigures) -> N,
) -> Family {
    each(family, peers, |members| members.iter().map(|peer| figure(&peer.figures)).sum::<N>())
}

fn states(peers: &[Peer<'_>]) -> [Family; 3] {
    const STATES: [(&str, ChannelState); 3] =
        [("good", ChannelState::Good), ("suspect", ChannelState::Suspect), ("hand_off", ChannelState::HandOff)];
    let mut channel = Family::gauge("link_peer_channel_state", "1 for the state of the channel to the peer");
    for (name, members) in peers {
        for (label, state) in STATES {
            let labels = vec![("peer", name.clone()), ("state", label.into())];
            channel =
                channel.sample(labels, members.iter().filter(|peer| peer.up && peer.state == Some(state)).count());
        }
    }
    let mut trips =
        Family::gauge("link_peer_round_trip", "Smoothed time from a frame to its acknowledgement").in_seconds();
    for (name, members) in peers {
        let longest = members.iter().filter_map(|peer| peer.figures.round_trip_ms).reduce(f64::max);
        if let Some(ms) = longest {
            trips = trips.sample(vec![("peer", name.clone())], ms / 1e3);
        }
    }
    let up = Family::gauge("link_peer_up", "Whether there is a session with the peer");
    [each(up, peers, |members| members.iter().filter(|peer| peer.up).count()), channel, trips]
}

fn queues(peers: &[Peer<'_>]) -> [Family; 4] {
    let gauge = Family::gauge;
    [
        total(gauge("link_peer_queue_packets", "Packets queued for their first transmission"), peers, |f| {
            f.queue_packets
        }),
        total(gauge("link_peer_queue", "Bytes queued for their first transmission").in_bytes(), peers, |f| {
            f.queue_bytes
        }),
        total(gauge("link_peer_unacknowledged_packets", "Packets sent and not acknowledged"), peers, |f| {
            f.unacknowledged
        }),
        total(gauge("link_peer_held_packets", "Packets from the peer that wait for earlier ones"), peers, |f| f.held),
    ]
}

fn counters(peers: &[Peer<'_>]) -> [Family; 13] {
    let count = |name, help, figure: fn(&PeerFigures) -> u64| total(Family::counter(name, help), peers, figure);
    let bytes =
        |name, help, figure: fn(&PeerFigures) -> u64| total(Family::counter(name, help).in_bytes(), peers, figure);
    let seconds =
        |name, help, figure: fn(&PeerFigures) -> f64| total(Family::counter(name, help).in_seconds(), peers, figure);
    [
        seconds("link_peer_airtime", "Airtime used for the peer", |f| f.airtime_seconds.unwrap_or(0.0)),
        seconds("link_peer_suspect", "Time in which the channel was suspect", |f| f.suspect_seconds),
        count("link_peer_suspicions", "Times that the channel became suspect", |f| f.suspicions),
        count("link_peer_packets_offered", "Packets enqueued for the peer", |f| f.offered),
        count("link_peer_packets_acknowledged", "Packets that the peer acknowledged", |f| f.acknowledged),
        bytes("link_peer_acknowledged", "Bytes that the peer acknowledged", |f| f.acknowledged_bytes),
        count("link_peer_packets_delivered", "Packets delivered from the peer", |f| f.delivered),
        bytes("link_peer_delivered", "Bytes delivered from the peer", |f| f.delivered_bytes),
        count("link_peer_frames", "DATA frames sent, retransmissions included", |f| f.frames),
        count("link_peer_frames_retransmitted", "DATA frames that were retransmissions", |f| f.retransmitted),
        count("link_peer_probes", "Probes sent", |f| f.probes),
        count("link_peer_packets_dropped", "Packets dropped before transmission", |f| f.dropped),
        count("link_peer_packets_abandoned", "Packets given up at the limit of lifetime or attempts", |f| f.abandoned),
    ]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::metrics::table::Format;

    fn peer(name: String) -> PeerReport {
        let figures = PeerFigures {
            queue_bytes: 10,
            airtime_seconds: Some(0.5),
            round_trip_ms: Some(20.0),
            ..Default::default()
        };
        PeerReport {
            name,
            key: String::new(),
            address: None,
            endpoint: None,
            up: true,
            state: Some(ChannelState::Suspect),
            heard_seconds: None,
            figures,
        }
    }

    /// A link with so many peers.
    pub(crate) fn report(peers: usize) -> LinkReport {
        let peers = (0..peers).map(|n| peer(format!("m{n}"))).collect();
        let drops = Drops { no_route: 3, ..Drops::default() };
        LinkReport { role: "base".into(), rate_bits: Some(8000), drops, peers, ..LinkReport::default() }
    }

    #[test]
    fn page_has_state_queue_and_airtime_of_each_peer() {
        let page = Format::Prometheus.page(families(&report(2))).unwrap();
        for line in [
            "remora_link_rate_bytes_per_second 1000.0",
            "remora_link_drops_total{reason=\"no_route\"} 3",
            "remora_link_peers{state=\"up\"} 2",
            "remora_link_peer_channel_state{peer=\"m1\",state=\"suspect\"} 1",
            "remora_link_peer_channel_state{peer=\"m1\",state=\"good\"} 0",
            "remora_link_peer_queue_bytes{peer=\"m0\"} 10",
            "remora_link_peer_round_trip_seconds{peer=\"m0\"} 0.02",
            "remora_link_peer_airtime_seconds_total{peer=\"m0\"} 0.5",
        ] {
            assert!(page.lines().any(|l| l == line), "{line}:\n{page}");
        }
    }

    #[test]
    fn peers_beyond_the_bound_share_one_label() {
        let lines = |peers| Format::Prometheus.page(families(&report(peers))).unwrap().lines().count();
        assert_eq!(lines(10_000), lines(PEERS_MAX + 1));
        let page = Format::Prometheus.page(families(&report(10_000))).unwrap();
        let rest = 10 * (10_000 - PEERS_MAX);
        assert!(page.contains(&format!("remora_link_peer_queue_bytes{{peer=\"other\"}} {rest}\n")), "{page}");
    }
}
