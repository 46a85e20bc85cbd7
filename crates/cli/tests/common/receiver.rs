//! A `remora recv`, and senders to it.

use std::fs;
use std::os::unix::fs::MetadataExt;

use remora_host::atp::keys;

use super::{Daemon, Output, Place, Running, names};

/// A receiver into `srv`, and what to tell a sender.
pub(crate) struct Receiver {
    pub(crate) place: Place,
    pub(crate) daemon: Daemon,
    pub(crate) key: String,
}

impl Receiver {
    pub(crate) fn start(args: &[&str]) -> Receiver {
        let place = Place::new();
        let (dir, key) = (place.srv(""), place.state().join("recv.key"));
        let base = ["recv", dir.to_str().unwrap(), "--listen", "127.0.0.1:0", "--json"];
        let mut command = place.command(&[&base[..], args].concat());
        let daemon = Daemon::start({
            command.arg("--key").arg(&key);
            command
        });
        let key = keys::load(&key).unwrap().public().to_string();
        Receiver { place, daemon, key }
    }

    /// `remora send` of files in `here`, to that address.
    pub(crate) fn send(&self, to: &str, files: &[&str], args: &[&str]) -> Running {
        let identity = self.place.state().join("send.key");
        let end = [to, "--key", &self.key, "--identity", identity.to_str().unwrap()];
        self.place.start(&[&["send"][..], files, &end, args].concat())
    }

    pub(crate) fn sent(&self, files: &[&str], args: &[&str]) -> Output {
        self.send(&self.daemon.addr.to_string(), files, args).finish()
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) {
        fs::write(self.place.here(name), bytes).unwrap();
    }

    pub(crate) fn arrived(&self, name: &str) -> Vec<u8> {
        fs::read(self.place.srv(name)).unwrap()
    }

    /// Bytes that the hidden file of an unfinished one takes; its parts may come in any order.
    pub(crate) fn unfinished(&self) -> u64 {
        let part = names(&self.place.srv("")).into_iter().find(|name| name.contains(".remora-part"));
        part.and_then(|name| fs::metadata(self.place.srv(&name)).ok()).map_or(0, |meta| meta.blocks() * 512)
    }
}
