//! A station: its namespace, its TUN device and its address.

use std::fmt;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::io::Errno;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use super::congestion;
use super::namespace::Namespace;
use super::setup::{DEVICE, EmulateError, EmulationSetup, Station};

/// Queue length of the device: long, so that the channel's queue drops the packets of a burst.
const DEVICE_QUEUE: u32 = 10_000;

/// A station's namespace and device.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) station: Station,
    namespace: Namespace,
    device: Arc<Tun>,
}

impl Link {
    pub(super) fn make(station: Station, setup: &EmulationSetup) -> Result<Link, EmulateError> {
        let namespace = Namespace::create().map_err(EmulateError::system("a network namespace"))?;
        congestion::set(&setup.congestion, |choose| namespace.run(choose))?;
        let mtu = u16::try_from(setup.config.mtu).unwrap_or(u16::MAX);
        let device = namespace.run(|| Tun::make(station.addr(setup.network), setup.network.prefix_len(), mtu));
        let device = device.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => EmulateError::NoTun,
            _ => EmulateError::system("a TUN device")(e),
        })?;
        Ok(Link { station, namespace, device: Arc::new(device) })
    }

    pub(super) fn device(&self) -> Arc<Tun> {
        self.device.clone()
    }

    pub(super) fn set_mtu(&self, mtu: usize) -> io::Result<()> {
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        // The device's name is valid only in its namespace.
        self.namespace.run(|| self.device.0.set_mtu(mtu))
    }

    /// Packets that the kernel dropped because the device's queue was full.
    pub(super) fn dropped(&self) -> io::Result<u64> {
        let devices = self.namespace.run(|| fs::read_to_string("/proc/thread-self/net/dev"))?;
        dropped(&devices).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no count of dropped packets"))
    }

    pub(super) fn namespace_path(&self) -> PathBuf {
        self.namespace.path()
    }

    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        self.namespace.run(work)
    }
}

/// Reads the drop counter from proc_net(5)'s `dev`: after the name eight receive counters, then transmitted bytes,
/// packets, errors, drops.
fn dropped(devices: &str) -> Option<u64> {
    let ours = devices.lines().find_map(|line| line.trim_start().strip_prefix(DEVICE)?.strip_prefix(':'))?;
    ours.split_ascii_whitespace().nth(11)?.parse().ok()
}

/// A TUN device without packet information and offloads: each read or write is one IP packet.
pub(super) struct Tun(SyncDevice);

impl Tun {
    fn make(addr: Ipv4Addr, prefix: u8, mtu: u16) -> io::Result<Tun> {
        let device = DeviceBuilder::new()
            .name(DEVICE)
            .layer(Layer::L3)
            .mtu(mtu)
            .tx_queue_len(DEVICE_QUEUE)
            .ipv4(addr, prefix, None)
            .build_sync()?;
        device.set_nonblocking(true)?;
        Ok(Tun(device))
    }

    /// Reads a packet into `buffer`; `None` if there is none. After an error there will be none.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.0.recv(buffer) {
            Ok(n) => Ok(Some(n)),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            // Temporarily down.
            Err(e) if e.raw_os_error() == Some(Errno::IO.raw_os_error()) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Writes a packet to the kernel; returns whether it was accepted.
    pub(super) fn write(&self, packet: &[u8]) -> bool {
        self.0.send(packet).is_ok()
    }
}

impl std::os::fd::AsFd for Tun {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl fmt::Debug for Tun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(DEVICE)
    }
}

#[cfg(test)]
mod tests {
    use ipnet::Ipv4Net;

    use super::*;

    #[test]
    fn dropped_packets_are_those_of_our_device_on_their_way_out() {
        let devices = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     1       2    3    4    5     6          7         8        9      10   11   12   13    14      15       16
remora0: 110 111 0 112 0 0 0 0 15683364 435649 0 14351 0 0 0 0
";
        assert_eq!(dropped(devices), Some(14351));
        assert_eq!(dropped("remora00: 1 2 3 4 5 6 7 8 9 10 11 12"), None);
    }

    #[test]
    fn addresses_follow_one_another() {
        let network = Ipv4Net::new_assert(Ipv4Addr::new(10, 77, 0, 0), 24);
        let addrs = [Station::Base, Station::Mobile(0), Station::Mobile(7)].map(|s| s.addr(network).to_string());
        assert_eq!(addrs, ["10.77.0.1", "10.77.0.2", "10.77.0.9"]);
    }
}
