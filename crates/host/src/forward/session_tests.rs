//! Tests with a gateway whose name moves or does not resolve.

use std::collections::{BTreeMap, BTreeSet};
use std::net::UdpSocket;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use remora_atp::session::Guests;
use tokio::sync::{mpsc, watch};

use super::*;
use crate::gateway::{Gateway, GatewaySettings as There, Service};

/// Generous guard for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn identity(n: u8) -> Identity {
    Identity::from_secret([n; 32]).unwrap()
}

/// A gateway on a runtime of its own, which ends with the test.
fn gateway(listen: &str) -> Gateway {
    let (targets, streams) = (BTreeSet::new(), Config::default());
    Gateway::bind(There {
        listen: listen.parse().unwrap(),
        identity: identity(1),
        guests: Guests::Only([identity(2).public()].into()),
        mobiles_max: 8,
        hold: Duration::from_secs(3600),
        service: Service::Targets { targets, streams, connections_max: 8 },
    })
    .unwrap()
}

fn shared() -> (ForwardState, mpsc::Receiver<ForwardEvent>) {
    let (tell, hear) = mpsc::channel(16);
    (ForwardState { current: watch::Sender::new(None), tell, report: Arc::default() }, hear)
}

/// Addresses by the gateway's port.
static KNOWN: Mutex<BTreeMap<u16, Vec<SocketAddr>>> = Mutex::new(BTreeMap::new());

fn know(at: SocketAddr, addrs: &[SocketAddr]) {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).insert(at.port(), addrs.to_vec());
}

/// A session with the gateway at `at`, whose name resolves to this machine at first, then to the known addresses.
async fn link(at: SocketAddr, key: PublicKey, resolve_interval: Duration) -> GatewaySession {
    let target = Target::new("127.0.0.1", at.port()).unwrap();
    let hold = Duration::from_secs(3600);
    let mut link = GatewaySession::bind(target, key, identity(2), Config::default(), hold).await.unwrap();
    link.gateway.find = |target| {
        let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(known.get(&target.port()).cloned().unwrap_or_default())
    };
    link.resolve_interval = resolve_interval;
    link
}

/// One address is tried, or two in parallel; then the name does not resolve for a while, and then it has moved.
#[tokio::test(flavor = "multi_thread")]
async fn name_of_silent_gateway_is_resolved_again() {
    let silent: Vec<_> = (0..2).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for nobody in [&silent[..1], &silent] {
        let mut gateway = gateway("127.0.0.1:0");
        let (at, key) = (gateway.local_addr(), gateway.public_key());
        let there = tokio::spawn(async move { gateway.run(|_| {}).await });
        let mut link = link(at, key, Duration::from_millis(50)).await;
        know(at, &nobody.iter().map(|socket| socket.local_addr().unwrap()).collect::<Vec<_>>());
        let (shared, _news) = shared();
        let mut up = shared.current.subscribe();
        let here = tokio::spawn(async move { link.run(&shared).await });
        for socket in nobody {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            tokio::task::block_in_place(|| socket.recv_from(&mut [0; 1 << 16])).unwrap();
        }
        know(at, &[]);
        tokio::time::sleep(Duration::from_millis(200)).await;
        know(at, &[at]);
        let started = Instant::now();
        let found = tokio::time::timeout(PATIENCE, up.wait_for(Option::is_some)).await;
        assert!(found.is_ok_and(|found| found.is_ok()), "nobody is found after {:?}", started.elapsed());
        here.abort();
        there.abort();
    }
}

/// Captive portals, and blocked names, resolve to an address that no host has.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_gateway_address_is_retried() {
    let mut gateway = gateway("127.0.0.1:0");
    let (at, key) = (gateway.local_addr(), gateway.public_key());
    let there = tokio::spawn(async move { gateway.run(|_| {}).await });
    let mut link = link(at, key, PATIENCE).await;
    let nowhere = ["0.0.0.0", "::"].map(|ip| SocketAddr::new(ip.parse().unwrap(), at.port()));
    know(at, &nowhere[..1]);
    let (shared, _news) = shared();
    let mut up = shared.current.subscribe();
    let here = tokio::spawn(async move { link.run(&shared).await });
    for addrs in [&nowhere[..], &[at]] {
        tokio::time::sleep(RECONNECT.0).await;
        know(at, addrs);
    }
    let found = tokio::time::timeout(PATIENCE, up.wait_for(Option::is_some)).await;
    let ended = here.is_finished();
    assert!(found.is_ok_and(|found| found.is_ok()), "ended: {ended}");
    here.abort();
    there.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_changing_from_ipv4_to_ipv6_is_reached() {
    if UdpSocket::bind("[::1]:0").is_err() {
        return skip::skipped(&skip::this_test(), "needs IPv6");
    }
    let mut gateway = gateway("[::1]:0");
    let (at, key) = (gateway.local_addr(), gateway.public_key());
    let there = tokio::spawn(async move { gateway.run(|_| {}).await });
    let mut link = link(at, key, PATIENCE * 2).await;
    know(at, &[at]);
    let (shared, _news) = shared();
    let mut up = shared.current.subscribe();
    let here = tokio::spawn(async move { link.run(&shared).await });
    let found = tokio::time::timeout(PATIENCE, up.wait_for(Option::is_some)).await;
    assert!(found.is_ok_and(|found| found.is_ok()));
    here.abort();
    there.abort();
}
