//! Passes datagrams on, from another address once told so: what an address translator does, or a
//! walk to another network. Told to, it passes nothing for a while.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;

pub(crate) struct Translator {
    /// Where the client is to send to.
    pub(crate) at: SocketAddr,
    /// The client has another address from now on.
    pub(crate) moved: Arc<AtomicBool>,
    pub(crate) cut: Arc<AtomicBool>,
    /// Nothing of the server's passes.
    pub(crate) deaf: Arc<AtomicBool>,
    /// Datagrams of the client's that passed after it had moved.
    pub(crate) passed_after: Arc<AtomicU64>,
}

impl Translator {
    pub(crate) fn towards(server: SocketAddr) -> Translator {
        let front = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let backs: Vec<_> = (0..2).map(|_| Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap())).collect();
        let (moved, cut) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let deaf = Arc::new(AtomicBool::new(false));
        let passed_after = Arc::new(AtomicU64::new(0));
        let client = Arc::new(Mutex::new(None));
        let at = front.local_addr().unwrap();
        for (nth, back) in backs.iter().enumerate() {
            let (back, front, client) = (back.clone(), front.clone(), client.clone());
            let (moved, cut, deaf) = (moved.clone(), cut.clone(), deaf.clone());
            thread::spawn(move || {
                let mut buffer = [0; 65_536];
                while let Ok((n, _)) = back.recv_from(&mut buffer) {
                    let to = *client.lock().unwrap();
                    // Where one has moved away from nothing is heard any more.
                    let passes = moved.load(Relaxed) == (nth == 1) && !cut.load(Relaxed) && !deaf.load(Relaxed);
                    if let Some(to) = to.filter(|_| passes) {
                        let _ = front.send_to(&buffer[..n], to);
                    }
                }
            });
        }
        let (told, dead, passed) = (moved.clone(), cut.clone(), passed_after.clone());
        thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok((n, from)) = front.recv_from(&mut buffer) {
                *client.lock().unwrap() = Some(from);
                let second = told.load(Relaxed);
                if !dead.load(Relaxed) {
                    passed.fetch_add(u64::from(second), Relaxed);
                    let _ = backs[usize::from(second)].send_to(&buffer[..n], server);
                }
            }
        });
        Translator { at, moved, cut, deaf, passed_after }
    }
}
