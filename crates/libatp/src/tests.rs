//! Tests of the running library against an endpoint in Rust.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_atp::Options;
use remora_atp::session::{Config, Guests, Identity};
use remora_host::atp::blocking::BlockingEndpoint;
use remora_host::atp::{EndpointSettings, Remote, keys};

use crate::calls;
use crate::code::Code;
use crate::library::{self, Start};

const PATIENCE: Duration = Duration::from_secs(20);

/// A process has one library, and tests are threads of one process.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The library, held by one test.
struct Running {
    _alone: MutexGuard<'static, ()>,
}

impl Running {
    /// Starts it with any guest admitted and room for one object.
    fn start() -> Running {
        let alone = alone();
        library::start(Start {
            listen: Some(anywhere()),
            identity: keys::generate().unwrap(),
            guests: Guests::Anyone,
            received_max: 1,
            received_bytes_max: 1,
        })
        .unwrap();
        Running { _alone: alone }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        library::stop().unwrap();
    }
}

fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn peer(listen: SocketAddr, identity: Identity) -> BlockingEndpoint {
    peer_with(Config { guests: Guests::Anyone, ..Config::default() }, listen, identity)
}

fn peer_with(session: Config, listen: SocketAddr, identity: Identity) -> BlockingEndpoint {
    let begin = Instant::now();
    loop {
        let settings = EndpointSettings { session: session.clone(), ..EndpointSettings::receiver(listen) };
        match BlockingEndpoint::bind(settings, identity.clone()) {
            Ok(peer) => return peer,
            // The previous socket closes with its thread.
            Err(e) => assert!(begin.elapsed() < PATIENCE, "{e}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A peer that sends objects which the program does not take.
fn flood(count: usize, size: usize) -> (BlockingEndpoint, Remote) {
    let peer = peer(anywhere(), keys::generate().unwrap());
    let library = library::current().unwrap();
    let to = library.endpoint.local_addr();
    let remote = peer.connect(to, library.endpoint.public_key(), PATIENCE).unwrap().unwrap();
    let object = Bytes::from(vec![7; size]);
    let sent: Vec<_> = (0..count).map(|_| remote.send(object.clone(), Options::default()).unwrap()).collect();
    for request in sent {
        assert_eq!(remora_host::atp::blocking::wait(request).unwrap().outcome, remora_atp::Outcome::Delivered);
    }
    (peer, remote)
}

/// Number of objects in the table; the settings allow one.
fn held() -> usize {
    library::current().unwrap().table().held()
}

fn endpoint(to: &BlockingEndpoint) -> i32 {
    let (addr, key) = (to.endpoint().local_addr(), to.endpoint().public_key());
    calls::endpoint(&addr.ip().to_string(), addr.port(), key).unwrap()
}

fn send(eid: i32) -> Result<(), Code> {
    calls::send_sync(eid, Bytes::from_static(b"hello"), Options::default(), |_| {})
}

#[test]
fn the_end_of_a_connection_does_not_bring_in_what_nobody_takes() {
    let _running = Running::start();
    let (peer, _remote) = flood(200, 64 << 10);
    let addr = peer.endpoint().local_addr();
    let refused = calls::endpoint("127.0.0.1", addr.port(), keys::generate().unwrap().public()).unwrap();
    let begin = Instant::now();
    while calls::recv(refused, 0, 0).is_err_and(|e| e == crate::table::Refused::Code(Code::TIMED_OUT)) {
        assert!(begin.elapsed() < PATIENCE, "never refused");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(held() <= 1, "{}", held());
    peer.close();
}

/// Empty objects, because several of them wait below the table at the end.
#[test]
fn objects_before_the_end_of_a_connection_precede_it() {
    let _running = Running::start();
    let (peer, remote) = flood(5, 0);
    let eid = calls::accept(20_000).unwrap();
    remote.close();
    peer.close();
    std::thread::sleep(Duration::from_millis(300)); // the end is heard of meanwhile
    for n in 0..5 {
        assert!(calls::recv(eid, 0, 20_000).is_ok(), "{n}");
    }
    assert!(calls::recv(eid, 0, 20_000).is_err_and(|e| e == crate::table::Refused::Code(Code::DOWN)));
}

#[test]
fn returned_endpoint_reconnects_while_objects_wait() {
    let _running = Running::start();
    let (peer_a, _remote) = flood(5, 1000);
    let identity = keys::generate().unwrap();
    let listener = peer(anywhere(), identity.clone());
    let (addr, eid) = (listener.endpoint().local_addr(), endpoint(&listener));
    assert_eq!(send(eid), Ok(()));
    listener.close();
    drop(listener);
    let listener = peer(addr, identity);
    // Objects sent before the end is known are lost with the connection.
    let begin = Instant::now();
    let mut anew = send(eid);
    while anew == Err(Code::LOST) && begin.elapsed() < PATIENCE {
        anew = send(eid);
    }
    assert_eq!(anew, Ok(()));
    assert!(held() <= 1, "{}", held());
    peer_a.close();
    listener.close();
}

#[test]
fn an_endpoint_whose_peer_had_no_place_is_connected_anew() {
    let _running = Running::start();
    let session = Config { guests: Guests::Anyone, peers: 1, ..Config::default() };
    let listener = peer_with(session, anywhere(), keys::generate().unwrap());
    let other = peer(anywhere(), keys::generate().unwrap());
    let at = (listener.endpoint().local_addr(), listener.endpoint().public_key());
    other.connect(at.0, at.1, PATIENCE).unwrap().unwrap();
    let eid = endpoint(&listener);
    assert_eq!(send(eid), Err(Code::LOST));
    let gone = crate::table::Refused::Code(Code::DOWN);
    assert!(calls::recv(eid, 0, 20_000).is_err_and(|e| e == gone));
    other.close();
    // Its slot is free once its last packets have expired.
    let begin = Instant::now();
    let mut anew = send(eid);
    while anew == Err(Code::LOST) && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
        anew = send(eid);
    }
    assert_eq!(anew, Ok(()));
    listener.close();
}
