//! Bounds on what one message may ask for and on what may wait.

use remora_base::Path;

/// Bounds of a server. The defaults suit a machine with a gigabyte to spare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest READ, WRITE or directory page on a stream, in bytes (FSINFO's `rtmax`,
    /// `wtmax`). Default 1 MiB.
    pub stream_io_max: u32,
    /// The same for datagrams, in bytes; what is above [`Limits::DATAGRAM_IO_CEILING`] is cut.
    /// Default 32 KiB.
    pub datagram_io_max: u32,
    /// Most requests being executed at once. Default 1024.
    pub in_flight_max: usize,
    /// Most requests of one client address being executed at once. Default 256.
    pub in_flight_per_client_max: usize,
    /// Most bytes that requests being executed may hold: their messages, and the replies that
    /// READ and the directory listings ask for. Default 256 MiB.
    pub in_flight_bytes_max: usize,
    /// Most lines in MOUNT's list of who mounted what. Default 1024.
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
    /// The most data that fits a UDP datagram (65,507 bytes) beside the headers of a reply, in
    /// whole pages.
    pub const DATAGRAM_IO_CEILING: u32 = 60 << 10;

    /// Largest READ, WRITE or directory page on `path`, in bytes.
    pub fn io_max(&self, path: Path) -> u32 {
        match path {
            Path::Datagram => self.datagram_io_max.min(Limits::DATAGRAM_IO_CEILING),
            Path::Stream(_) => self.stream_io_max,
        }
    }
}
