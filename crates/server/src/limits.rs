//! Bounds on a single message and on what waits.

use remora_base::Path;

/// Limits of a server. The defaults suit a machine with a gigabyte of spare memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest READ, WRITE or directory page on a stream, in bytes (FSINFO's `rtmax` and `wtmax`). Default 1 MiB.
    pub stream_io_max: u32,
    /// The same for datagrams; at most [`Limits::DATAGRAM_IO_CEILING`]. Default 32 KiB.
    pub datagram_io_max: u32,
    /// Most requests that execute at the same time. Default 1024.
    pub in_flight_max: usize,
    /// The same for one client address. Default 256.
    pub in_flight_per_client_max: usize,
    /// Most bytes that executing requests hold: their messages, and the data that READ and directory listings ask
    /// for. Default 256 MiB.
    pub in_flight_bytes_max: usize,
    /// Most entries in MOUNT's list of mounts. Default 1024.
    pub mounts_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            stream_io_max: 1 << 20,
            datagram_io_max: 32 << 10,
            in_flight_max: 1024,
            in_flight_per_client_max: 256,
            in_flight_bytes_max: 256 << 20,
            mounts_max: 1024,
        }
    }
}

impl Limits {
    /// The most data, in whole pages, that fits a UDP datagram (65,507 bytes) with a reply's headers.
    pub const DATAGRAM_IO_CEILING: u32 = 60 << 10;

    pub fn io_max(&self, path: Path) -> u32 {
        match path {
            Path::Datagram => self.datagram_io_max.min(Limits::DATAGRAM_IO_CEILING),
            Path::Stream(_) => self.stream_io_max,
        }
    }
}
