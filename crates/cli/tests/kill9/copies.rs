//! Uploads by `remora cp`, one after the other, whatever becomes of the server meanwhile.

use std::fs;
use std::net::SocketAddr;

use crate::common::{Place, Running, noise, until};

const SIZE: usize = 3_000_000;

/// The uploads that run while the server is killed.
pub(crate) struct Copies<'a> {
    place: &'a Place,
    addr: SocketAddr,
    running: Option<Running>,
    started: usize,
    /// Those that found no server when they began.
    unreached: usize,
    content: Vec<u8>,
}

impl<'a> Copies<'a> {
    pub(crate) fn new(place: &'a Place, addr: SocketAddr) -> Copies<'a> {
        let content = noise(SIZE, 11);
        fs::write(place.here("source"), &content).unwrap();
        Copies { place, addr, running: None, started: 0, unreached: 0, content }
    }

    /// How many have left their file.
    pub(crate) fn done(&self) -> usize {
        self.started - self.unreached - usize::from(self.running.is_some())
    }

    /// Looks at the one that has ended, if it has, and starts the next.
    pub(crate) fn go_on(&mut self) {
        if self.running.as_mut().is_some_and(|r| !r.has_ended()) {
            return;
        }
        self.finish();
        let proto = if self.started.is_multiple_of(2) { "tcp" } else { "udp" };
        let to = format!("nfs://{}/copy{}?proto={proto}", self.addr, self.started);
        self.running = Some(self.place.start(&["cp", "source", &to]));
        self.started += 1;
    }

    /// Waits for the one under way, which must leave the whole file.
    pub(crate) fn finish(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        // How long a copy takes while servers come and go is not bounded; once they stay it is.
        until("the end of a copy", || running.has_ended());
        let out = running.finish();
        let name = format!("copy{}", self.started - 1);
        // Without a server when it begins it says so, and has made nothing.
        if out.code == 3 && out.stderr.contains("cannot reach") {
            let made = fs::read_dir(self.place.srv("")).unwrap().map(|e| e.unwrap().file_name());
            assert!(!made.into_iter().any(|n| n.to_string_lossy().contains(&name)), "{out:?}");
            self.unreached += 1;
            return;
        }
        assert!(out.code == 0, "{out:?}");
        let copy = self.place.srv(&name);
        assert!(fs::read(&copy).unwrap() == self.content, "{}", copy.display());
        fs::remove_file(&copy).unwrap();
    }
}
