//! A gateway that moves while nobody answers at the addresses that its name had.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use remora_atp::session::Guests;
use tokio::sync::{mpsc, watch};

use super::*;
use crate::gateway::{Gateway, Service, Settings as There};

/// Longer than anything here takes on a machine that is busy otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

fn identity(n: u8) -> Identity {
    Identity::from_secret([n; 32]).unwrap()
}

/// A gateway's own runtime ends with the test.
fn gateway() -> Gateway {
    let (targets, streams) = (BTreeSet::new(), Config::default());
    Gateway::bind(There {
        listen: "127.0.0.1:0".parse().unwrap(),
        identity: identity(1),
        guests: Guests::Only([identity(2).public()].into()),
        mobiles_max: 8,
        hold: Duration::from_secs(3600),
        service: Service::Targets { targets, streams, connections_max: 8 },
    })
    .unwrap()
}

fn shared() -> (Shared, mpsc::Receiver<News>) {
    let (tell, hear) = mpsc::channel(16);
    (Shared { current: watch::Sender::new(None), tell, report: Arc::default() }, hear)
}

static KNOWN: Mutex<Vec<SocketAddr>> = Mutex::new(Vec::new());

fn known() -> std::sync::MutexGuard<'static, Vec<SocketAddr>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One address is tried, or two side by side; then the name is not found for a while, and then it has moved.
#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_a_gateway_that_does_not_answer_is_looked_up_again() {
    let silent: Vec<_> = (0..2).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for nobody in [&silent[..1], &silent] {
        let mut gateway = gateway();
        let (at, key) = (gateway.local_addr(), gateway.public_key());
        let there = tokio::spawn(async move { gateway.run(|_| {}).await });
        let target = Target::new("127.0.0.1", at.port()).unwrap();
        let hold = Duration::from_secs(3600);
        let mut link = Link::bind(target, key, identity(2), Config::default(), hold).await.unwrap();
        link.gateway.find = |_| Ok(known().clone());
        link.look_up = Duration::from_millis(50);
        *known() = nobody.iter().map(|socket| socket.local_addr().unwrap()).collect();
        let (shared, _news) = shared();
        let mut up = shared.current.subscribe();
        let here = tokio::spawn(async move { link.run(&shared).await });
        for socket in nobody {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            tokio::task::block_in_place(|| socket.recv_from(&mut [0; 1 << 16])).unwrap();
        }
        known().clear();
        tokio::time::sleep(Duration::from_millis(200)).await;
        *known() = vec![at];
        let started = Instant::now();
        let found = tokio::time::timeout(PATIENCE, up.wait_for(Option::is_some)).await;
        assert!(found.is_ok_and(|found| found.is_ok()), "nobody is found after {:?}", started.elapsed());
        here.abort();
        there.abort();
    }
}
