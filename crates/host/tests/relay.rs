//! The relay passes what the channel lets through, when the channel says.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use remora_base::{Rate, Time};
use remora_channel::{Config, Outage};
use remora_host::Clock;
use remora_host::relay::{Relay, RelayError};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn socket() -> UdpSocket {
    let s = UdpSocket::bind(LOOPBACK).unwrap();
    s.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    s
}

/// A server that sends back what it gets, for as long as anything comes within 2 s.
fn echo() -> SocketAddr {
    let s = socket();
    let addr = s.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 65_535];
        while let Ok((n, from)) = s.recv_from(&mut buffer) {
            s.send_to(&buffer[..n], from).unwrap();
        }
    });
    addr
}

fn relay(config: Config) -> (Relay, UdpSocket) {
    let relay = Relay::start(LOOPBACK, echo(), config, 1, Clock::start()).unwrap();
    let mobile = socket();
    mobile.connect(relay.addr()).unwrap();
    (relay, mobile)
}

#[test]
fn datagram_takes_airtime_and_delay_both_ways() {
    let config = Config { rate: Rate::mbit(1), delay: Duration::from_millis(30), ..Config::default() };
    let (relay, mobile) = relay(config);
    let mut buffer = [0; 2000];
    // The best of some, on a machine that may be busy.
    let exchanges = (0..5).map(|_| {
        let sent = Instant::now();
        // 1000 bytes and 28 of headers: 8.224 ms in the air.
        mobile.send(&[7; 1000]).unwrap();
        assert_eq!(mobile.recv(&mut buffer).unwrap(), 1000);
        sent.elapsed()
    });
    let took = exchanges.min().unwrap();
    let least = 2 * Duration::from_micros(8_224 + 30_000);
    assert!(took >= least, "{took:?} is sooner than the channel allows");
    assert!(took < least * 3, "{took:?} where {least:?} were due");
    let progress = relay.progress();
    assert_eq!(progress.len(), 1);
    assert_eq!(progress[0].mobile, mobile.local_addr().unwrap());
}

#[test]
fn datagrams_in_outage_are_lost() {
    let outage = Outage { start: Time::ZERO, length: Duration::from_millis(300) };
    let (_relay, mobile) = relay(Config { outages: vec![outage], ..Config::default() });
    mobile.send(b"lost").unwrap();
    std::thread::sleep(Duration::from_millis(400));
    mobile.send(b"kept").unwrap();
    let mut buffer = [0; 10];
    let n = mobile.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..n], b"kept");
}

#[test]
fn mobiles_have_links_of_their_own_and_a_bounded_number_of_them() {
    let (relay, first) = relay(Config { rate: Rate::mbit(10), ..Config::default() });
    let others: Vec<UdpSocket> = (0..70).map(|_| socket()).collect();
    let mut buffer = [0; 10];
    for s in std::iter::once(&first).chain(&others).take(64) {
        s.connect(relay.addr()).unwrap();
        s.send(b"hello").unwrap();
        assert_eq!(s.recv(&mut buffer).unwrap(), 5);
    }
    let late = others.last().unwrap();
    late.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    late.connect(relay.addr()).unwrap();
    late.send(b"hello").unwrap();
    assert!(late.recv(&mut buffer).is_err(), "the 65th is one too many");

    // Until one that has fallen silent makes room; the first is not silent.
    let began = Instant::now();
    let served = loop {
        first.send(b"hello").unwrap();
        assert_eq!(first.recv(&mut buffer).unwrap(), 5);
        late.send(b"hello").unwrap();
        if late.recv(&mut buffer).is_ok() || began.elapsed() > Duration::from_secs(20) {
            break relay.progress();
        }
    };
    let is_served = |s: &UdpSocket| served.iter().any(|p| p.mobile == s.local_addr().unwrap());
    assert!(is_served(late) && is_served(&first) && !is_served(&others[0]) && served.len() <= 64);
}

#[test]
fn dropped_relay_stops_at_once() {
    let (relay, _mobile) = relay(Config::default());
    let addr = relay.addr();
    let began = Instant::now();
    drop(relay);
    assert!(began.elapsed() < Duration::from_secs(1));
    UdpSocket::bind(addr).expect("its port is free again");

    let nonsense = Config { loss: 2.0, ..Config::default() };
    let refused = Relay::start(LOOPBACK, echo(), nonsense, 1, Clock::start());
    assert!(matches!(refused, Err(RelayError::Config(_))), "{refused:?}");
    let taken = socket();
    let refused = Relay::start(taken.local_addr().unwrap(), echo(), Config::default(), 1, Clock::start());
    assert!(matches!(refused, Err(RelayError::Socket { .. })), "{refused:?}");
}
