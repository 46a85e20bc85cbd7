//! ATP's endpoints on loopback: objects, requests, keys, roaming and the blocking calls.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use remora_atp::session::{Config, Ending, Guests, Identity, PublicKey, Refusal};
use remora_atp::{Options, Outcome, Priority, State};
use remora_host::atp::blocking::{BlockingEndpoint, wait};
use remora_host::atp::{AtpEndpoint, AtpError, AtpNotice, EndpointSettings, keys};

const PATIENCE: Duration = Duration::from_secs(20);

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn receiver(guests: Guests) -> AtpEndpoint {
    receiver_at(loopback(), keys::generate().unwrap(), guests)
}

fn receiver_at(listen: SocketAddr, identity: Identity, guests: Guests) -> AtpEndpoint {
    let session = Config { guests, ..Config::default() };
    AtpEndpoint::bind(EndpointSettings { session, ..EndpointSettings::receiver(listen) }, identity).unwrap()
}

/// The address and the key of a receiver that is not there yet, and what brings it up: until then
/// a sender's requests can be told to wait without a race against their delivery.
fn later() -> (SocketAddr, PublicKey, impl FnOnce() -> AtpEndpoint) {
    let place = std::net::UdpSocket::bind(loopback()).unwrap();
    let (address, identity) = (place.local_addr().unwrap(), keys::generate().unwrap());
    let key = identity.public();
    let appear = move || {
        drop(place);
        receiver_at(address, identity, Guests::Anyone)
    };
    (address, key, appear)
}

fn sender(identity: Identity) -> AtpEndpoint {
    AtpEndpoint::bind(EndpointSettings { listen: loopback(), ..EndpointSettings::sender() }, identity).unwrap()
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}

fn object(n: usize) -> Bytes {
    (0..n).map(|i| (i * 31 + n) as u8).collect()
}

#[tokio::test]
async fn objects_arrive_whole_and_every_request_ends_once() {
    let (to, from) = (receiver(Guests::Anyone), sender(keys::generate().unwrap()));
    let peer = from.connect(to.local_addr(), to.public_key()).unwrap();
    let sizes = [0, 1, 1200, 40_000, 1_000_000];
    let requests: Vec<_> = sizes.iter().map(|n| peer.send(object(*n), Options::default()).unwrap()).collect();
    in_time(peer.up()).await.unwrap();
    assert_eq!(peer.key(), Some(to.public_key()));
    let mut got = Vec::new();
    for _ in sizes {
        let received = in_time(to.recv()).await.unwrap();
        assert_eq!(received.object, object(received.object.len()));
        got.push(received.object.len());
    }
    got.sort_unstable();
    assert_eq!(got, sizes);
    for request in requests {
        assert_eq!(in_time(request).await.unwrap().outcome, Outcome::Delivered);
    }
    in_time(from.close()).await;
    assert!(matches!(from.connect(to.local_addr(), to.public_key()), Err(AtpError::Closed)));
    in_time(to.close()).await;
    assert!(matches!(in_time(to.recv()).await, Err(AtpError::Closed)));
}

/// The first address is nobody's, and the second one is asked soon; a wrong key is reported before silence.
#[tokio::test]
async fn answering_address_of_several_is_used() {
    let to = receiver(Guests::Anyone);
    let mute = std::net::UdpSocket::bind(loopback()).unwrap();
    let addrs = ["[::1]:9".parse().unwrap(), mute.local_addr().unwrap(), to.local_addr()];
    let from = AtpEndpoint::bind_towards(&addrs, EndpointSettings::sender(), keys::generate().unwrap()).unwrap();
    let peer = in_time(from.connect_any(&addrs, to.public_key())).await.unwrap();
    let sent = peer.send(object(10), Options::default()).unwrap();
    assert_eq!(in_time(sent).await.unwrap().outcome, Outcome::Delivered);
    assert!(matches!(from.connect_any(&[], to.public_key()).await, Err(AtpError::Refused(Refusal::Silent))));
    let other = keys::generate().unwrap().public();
    let twice = [to.local_addr(), to.local_addr()];
    let why = in_time(from.connect_any(&twice, other)).await.err();
    assert!(matches!(why, Some(AtpError::Refused(Refusal::WrongKey))), "{why:?}");
}

#[tokio::test]
async fn close_of_one_connection_is_reported_at_both_ends() {
    let ((address, key, appear), from) = (later(), sender(keys::generate().unwrap()));
    let peer = from.connect(address, key).unwrap();
    let held = peer.send(object(100), Options::default()).unwrap();
    held.suspend().unwrap();
    let to = appear();
    let first = peer.send(object(10), Options::default()).unwrap();
    let received = in_time(to.recv()).await.unwrap();
    assert_eq!(in_time(first).await.unwrap().outcome, Outcome::Delivered);

    peer.close();
    assert_eq!(in_time(held).await.unwrap().outcome, Outcome::Lost);
    assert!(matches!(peer.ended(), Some(AtpError::Down(Ending::Closed))), "{:?}", peer.ended());
    assert!(peer.send(object(1), Options::default()).is_err());
    in_time(async {
        while received.from.ended().is_none() {
            to.notice().await.unwrap();
        }
    })
    .await;
    let theirs = received.from.ended();
    assert!(matches!(theirs, Some(AtpError::Down(Ending::ClosedByPeer))), "{theirs:?}");
    peer.close(); // again, which changes nothing

    // The endpoints live on.
    let again = from.connect(to.local_addr(), to.public_key()).unwrap();
    let end = in_time(again.send(object(5), Options::default()).unwrap()).await.unwrap();
    assert_eq!(end.outcome, Outcome::Delivered);
}

#[tokio::test]
async fn suspended_request_resumes_and_cancelled_one_ends() {
    let ((address, key, appear), from) = (later(), sender(keys::generate().unwrap()));
    let peer = from.connect(address, key).unwrap();
    let first = peer.send(object(100_000), Options::default()).unwrap();
    first.suspend().unwrap();
    let second = peer.send(object(50_000), Options::default()).unwrap();
    second.suspend().unwrap();
    let to = appear();
    in_time(peer.up()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(matches!(first.progress().unwrap().state, State::Suspended(_)));
    assert!(to.try_recv().is_none());
    first.set_priority(Priority::HIGH).unwrap();
    first.set_deadline(Some(PATIENCE)).unwrap();
    first.restart().unwrap();
    assert_eq!(in_time(to.recv()).await.unwrap().object.len(), 100_000);
    assert_eq!(in_time(first).await.unwrap().outcome, Outcome::Delivered);
    let control = second.control();
    second.cancel().unwrap();
    assert_eq!(in_time(second).await.unwrap().outcome, Outcome::Cancelled);
    assert!(control.ask(remora_atp::Command::Inspect).is_err());
}

/// Both ends send, and one takes nothing: it still hears how its own requests end, and of what
/// the other sent nothing is lost.
#[tokio::test]
async fn request_ends_while_objects_wait_for_program() {
    let settings = |guests| {
        let session = Config { guests, ..Config::default() };
        EndpointSettings { session, received_max: 1, received_bytes_max: 1, ..EndpointSettings::receiver(loopback()) }
    };
    let to = AtpEndpoint::bind(settings(Guests::Anyone), keys::generate().unwrap()).unwrap();
    let from = AtpEndpoint::bind(settings(Guests::Nobody), keys::generate().unwrap()).unwrap();
    let peer = from.connect(to.local_addr(), to.public_key()).unwrap();
    peer.send(object(1), Options::default()).unwrap().await.unwrap();
    let back = in_time(to.recv()).await.unwrap().from;
    for n in 0..5 {
        let request = back.send(object(100 + n), Options::default()).unwrap();
        assert_eq!(in_time(request).await.unwrap().outcome, Outcome::Delivered);
    }
    let request = peer.send(object(2), Options::default()).unwrap();
    assert_eq!(in_time(request).await.unwrap().outcome, Outcome::Delivered);
    for n in 0..5 {
        assert_eq!(in_time(from.recv()).await.unwrap().object, object(100 + n));
    }
}

#[tokio::test]
async fn wrong_keys_are_refused_on_either_side() {
    let friend = keys::generate().unwrap();
    let to = receiver(Guests::Only([friend.public()].into()));
    let stranger = sender(keys::generate().unwrap());
    let peer = stranger.connect(to.local_addr(), to.public_key()).unwrap();
    let lost = peer.send(object(10), Options::default()).unwrap();
    assert_eq!(in_time(lost).await.unwrap().outcome, Outcome::Lost);
    let from = sender(friend);
    let wrong = from.connect(to.local_addr(), stranger.public_key()).unwrap();
    assert!(matches!(in_time(wrong.up()).await, Err(AtpError::Refused(Refusal::WrongKey))));
    let right = from.connect(to.local_addr(), to.public_key()).unwrap();
    in_time(right.up()).await.unwrap();
}

#[tokio::test]
async fn address_change_during_object_loses_nothing() {
    let (to, from) = (receiver(Guests::Anyone), sender(keys::generate().unwrap()));
    let peer = from.connect(to.local_addr(), to.public_key()).unwrap();
    in_time(peer.up()).await.unwrap();
    let request = peer.send(object(3_000_000), Options::default()).unwrap();
    let before = from.local_addr();
    assert_ne!(in_time(from.rebind(loopback())).await.unwrap(), before);
    assert_eq!(in_time(to.recv()).await.unwrap().object, object(3_000_000));
    assert_eq!(in_time(request).await.unwrap().outcome, Outcome::Delivered);
}

#[tokio::test]
async fn closed_endpoint_does_not_rebind() {
    let a = sender(keys::generate().unwrap());
    let b = a.clone();
    in_time(a.close()).await;
    assert!(matches!(in_time(b.rebind(loopback())).await, Err(AtpError::Closed)));
}

/// More notices than fit before the received packets are read.
#[tokio::test]
async fn closing_endpoint_informs_all_peers() {
    const PEERS: usize = 100;
    let identities: Vec<_> = (0..PEERS).map(|_| keys::generate().unwrap()).collect();
    let to = receiver(Guests::Only(identities.iter().map(Identity::public).collect()));
    let senders: Vec<_> = identities.into_iter().map(sender).collect();
    let peers: Vec<_> = senders.iter().map(|s| s.connect(to.local_addr(), to.public_key()).unwrap()).collect();
    for peer in &peers {
        in_time(peer.up()).await.unwrap();
    }
    // What comes up at last is up at the other end, too.
    for _ in &peers {
        in_time(async { while !matches!(to.notice().await.unwrap(), AtpNotice::Up { .. }) {} }).await;
    }
    in_time(to.close()).await;
    let told = || peers.iter().filter(|p| matches!(p.ended(), Some(AtpError::Down(Ending::ClosedByPeer)))).count();
    let end = tokio::time::Instant::now() + PATIENCE;
    while told() < PEERS && tokio::time::Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(told(), PEERS);
}

#[test]
fn blocking_calls_need_no_runtime() {
    let to = receiver(Guests::Anyone);
    let settings = EndpointSettings { listen: loopback(), ..EndpointSettings::sender() };
    let from = BlockingEndpoint::bind(settings, keys::generate().unwrap()).unwrap();
    let peer = from.connect(to.local_addr(), to.public_key(), PATIENCE).unwrap().unwrap();
    assert_eq!(from.send(&peer, object(5000), Options::default()).unwrap().outcome, Outcome::Delivered);
    let request = peer.send(object(7), Options::default()).unwrap();
    assert_eq!(wait(request).unwrap().outcome, Outcome::Delivered);
    assert!(from.recv(Some(Duration::from_millis(10))).is_none());
    from.close();
}
