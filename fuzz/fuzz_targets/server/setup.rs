//! How a server is set up: with bounds that an input of a few hundred bytes can reach.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use remora_base::Peer;
use remora_server::{Access, Config, Durability, Export, Exports, Limits, Squash, Terms, cache};
use remora_vfs::MemFs;

/// More than the server may hold with these limits, in bytes.
pub(crate) const MEMORY_MAX: usize = 8 << 20;
/// Of a small cache.
pub(crate) const CACHE_MAX: usize = 8 << 10;

/// The form of the cache and how durable changes are.
pub(crate) fn config(setup: u8, vfs: Arc<MemFs>) -> Config {
    let durability = if setup & 0x80 == 0 { Durability::Strict } else { Durability::NamesLater };
    let limits = Limits {
        stream_io_max: 4 << 10,
        datagram_io_max: 2 << 10,
        in_flight_max: 6,
        in_flight_per_client_max: 3,
        in_flight_bytes_max: 32 << 10,
        mounts_max: 3,
    };
    Config { cache: form(setup), limits, durability, ..Config::new(Arc::new(exports(vfs))) }
}

/// The disk; with one bit set it does not tell apart what is flushed.
pub(crate) fn disk(setup: u8) -> Arc<MemFs> {
    let vfs = Arc::new(MemFs::new(1));
    vfs.set_capacity(1 << 20);
    vfs.set_file_max(1 << 20);
    if setup & 0x40 == 0 {
        vfs.defer();
    }
    vfs
}

/// Whether nothing is evicted before its time: an input fills no cache of the default size.
pub(crate) fn is_exact(setup: u8) -> bool {
    setup & 0x3f == 0
}

/// Whether the cache is one of [`CACHE_MAX`].
pub(crate) fn is_small(setup: u8) -> bool {
    matches!(form(setup), cache::Config::Full { bytes_max: CACHE_MAX, .. })
}

fn form(setup: u8) -> cache::Config {
    match setup & 0x3f {
        0 => cache::Config::full(),
        n => match n % 6 {
            0 => cache::Config::full(),
            1 | 2 => cache::Config::Full { bytes_max: CACHE_MAX, keep: Duration::from_secs(2) },
            3 => cache::Config::Juszczak { entries: 3, throwaway: Duration::from_millis(500) },
            4 => cache::Config::Reference { entries: 3 },
            _ => cache::Config::Off,
        },
    }
}

/// One disk to change and to read, and another.
fn exports(vfs: Arc<MemFs>) -> Exports {
    let all = Terms { squash: Squash::None, ..Terms::default() };
    let read = Terms { read_only: true, squash: Squash::All, ..Terms::default() };
    let list = vec![
        Export { access: Access::everybody(all), ..Export::new("/", vfs.clone()) },
        Export { access: Access::everybody(read), ..Export::new("/ro", vfs) },
        Export::new("/other", Arc::new(MemFs::new(2))),
    ];
    Exports::new(list, &[7; 16]).expect("sound exports")
}

/// Clients of three machines, two of them with several paths; one has a port that is not privileged.
pub(crate) fn peers() -> [Peer; 6] {
    let addr = |n: u8, port: u16| -> SocketAddr { ([10, 0, 0, n], port).into() };
    [
        Peer::datagram(([127, 0, 0, 1], 700).into()),
        Peer::datagram(addr(1, 701)),
        Peer::stream(addr(1, 800), 1),
        Peer::stream(addr(1, 801), 2),
        Peer::stream(addr(2, 800), 3),
        Peer::stream(addr(2, 5000), 4),
    ]
}
