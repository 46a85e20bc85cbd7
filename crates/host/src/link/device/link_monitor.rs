//! Detects that the network device was set down and up again, which removes its routes and IPv6 addresses without an
//! error for its reader. rtnetlink(7) reports all changes in order, even short ones. After an overflow of its buffer
//! the current state is queried instead.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use rustix::io::Errno;
use rustix::net::netdevice::index_to_name;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// The multicast group of device changes (`RTMGRP_LINK`).
const LINKS: u32 = 1;
/// A device is new or has changed (`RTM_NEWLINK`).
const NEW_LINK: u16 = 16;
/// The device is up (`IFF_UP`).
const UP: u32 = 1;
/// Length of `struct nlmsghdr`: length, type, flags, sequence, port.
const HEADER: usize = 16;
/// Alignment of messages.
const ALIGN: usize = 4;
/// Buffer size, larger than the message of one device.
const MESSAGE_MAX: usize = 16 << 10;

/// A change of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::link) enum DeviceChange {
    /// The device was set down.
    Down,
    /// The device is up again.
    Up,
    /// The device is up; it may have been down meanwhile.
    Perhaps,
}

/// Monitors the changes of one device.
pub(in crate::link) struct LinkMonitor {
    socket: OwnedFd,
    index: u32,
    is_up: bool,
    /// Whether changes were lost by an overflow.
    has_missed: bool,
}

impl LinkMonitor {
    /// Monitors the device `index`, which is up.
    pub(in crate::link) fn of(index: u32) -> io::Result<LinkMonitor> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, LINKS))?;
        Ok(LinkMonitor { socket, index, is_up: true, has_missed: false })
    }

    /// The changes since the last call, in order, without an up followed by a down.
    pub(in crate::link) fn take(&mut self) -> Vec<DeviceChange> {
        let mut changes = Vec::new();
        let mut buffer = vec![0; MESSAGE_MAX];
        loop {
            match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((n, _)) => self.read(buffer.get(..n).unwrap_or_default(), &mut changes),
                // The buffer overflowed, so changes are lost. The messages still readable are older.
                Err(Errno::NOBUFS) => self.has_missed = true,
                Err(_) => break,
            }
        }
        if self.has_missed
            && let Ok(is_up) = self.is_up_now()
        {
            self.settle(is_up, &mut changes);
        }
        changes
    }

    /// Whether the device is up according to the kernel.
    pub(in crate::link) fn is_up_now(&self) -> io::Result<bool> {
        let name = index_to_name(&self.socket, self.index)?;
        let mut all = getifaddrs()?;
        Ok(all.any(|a| a.interface_name == name && a.flags.contains(InterfaceFlags::IFF_UP)))
    }

    /// Sets the known state after lost changes.
    fn settle(&mut self, is_up: bool, changes: &mut Vec<DeviceChange>) {
        self.has_missed = false;
        if is_up && self.is_up && changes.is_empty() {
            changes.push(DeviceChange::Perhaps);
        }
        self.note(is_up, changes);
    }

    fn note(&mut self, is_up: bool, changes: &mut Vec<DeviceChange>) {
        if is_up == self.is_up {
            return;
        }
        self.is_up = is_up;
        if is_up {
            changes.push(DeviceChange::Up);
        } else if changes.last() == Some(&DeviceChange::Up) {
            // A device that was up only for a moment needs no restoration.
            changes.pop();
        } else {
            changes.push(DeviceChange::Down);
        }
    }

    fn read(&mut self, mut messages: &[u8], changes: &mut Vec<DeviceChange>) {
        while let Some((is_up, rest)) = next(messages, self.index) {
            if let Some(is_up) = is_up {
                self.note(is_up, changes);
            }
            messages = rest;
        }
    }
}

impl AsFd for LinkMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The state of device `index` in the first message, if it has one, and the messages after it.
fn next(messages: &[u8], index: u32) -> Option<(Option<bool>, &[u8])> {
    let word = |at: usize| Some(u32::from_ne_bytes(*messages.get(at..)?.first_chunk()?));
    let kind = u16::from_ne_bytes(*messages.get(4..)?.first_chunk()?);
    let len = usize::try_from(word(0)?).ok().filter(|len| *len >= HEADER)?;
    // `struct ifinfomsg`: family, type, index, flags, and changed flags.
    let (device, flags) = (word(HEADER + 4), word(HEADER + 8));
    let is_it = kind == NEW_LINK && device == Some(index);
    let rest = messages.get(len.next_multiple_of(ALIGN)..).unwrap_or_default();
    Some((flags.filter(|_| is_it).map(|flags| flags & UP != 0), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, index: u32, flags: u32) -> Vec<u8> {
        let len = HEADER as u32 + 16 + 3;
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend([0; 4]);
        bytes.extend([index, flags, 0].iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend([7; 3]);
        bytes.push(0);
        bytes
    }

    #[test]
    fn device_changes_are_read_in_order() {
        let mut monitor = LinkMonitor::of(5).unwrap();
        let mut read = |messages: &[Vec<u8>]| {
            let mut changes = Vec::new();
            monitor.read(&messages.concat(), &mut changes);
            changes
        };
        let up = || message(NEW_LINK, 5, 0x10d1);
        assert_eq!(read(&[up(), message(NEW_LINK, 6, 0), message(17, 5, 0)]), []);
        assert_eq!(read(&[message(NEW_LINK, 5, 0x1090), up()]), [DeviceChange::Down, DeviceChange::Up]);
        let down = || message(NEW_LINK, 5, 0);
        assert_eq!(read(&[down(), up(), down(), down()]), [DeviceChange::Down]);
        assert_eq!(read(&[up(), down()]), []);
        // Truncated messages and wrong lengths.
        for bad in [&up()[..20], &[0; 40], &[0xff; 40], &[]] {
            assert_eq!(read(&[bad.to_vec()]), []);
        }
    }

    #[test]
    fn overflow_queries_current_device_state() {
        for (was_up, read, is_up, changes) in [
            (true, &[][..], true, &[DeviceChange::Perhaps][..]),
            (true, &[], false, &[DeviceChange::Down]),
            (false, &[], true, &[DeviceChange::Up]),
            // A device that is still down causes no change.
            (false, &[], false, &[]),
            // The readable messages are older than the lost ones.
            (true, &[false, true], false, &[DeviceChange::Down]),
            (true, &[false, true], true, &[DeviceChange::Down, DeviceChange::Up]),
            (true, &[false], true, &[DeviceChange::Down, DeviceChange::Up]),
        ] {
            let mut monitor = LinkMonitor { is_up: was_up, has_missed: true, ..LinkMonitor::of(5).unwrap() };
            let mut said = Vec::new();
            read.iter().for_each(|up| monitor.note(*up, &mut said));
            monitor.settle(is_up, &mut said);
            assert_eq!(said, changes, "was up: {was_up}, read {read:?}, is up: {is_up}");
            assert!(monitor.is_up == is_up && !monitor.has_missed);
        }
    }

    #[test]
    fn kernel_reports_device_state() {
        let monitor = LinkMonitor::of(1).unwrap();
        let Ok(flags) = std::fs::read_to_string("/sys/class/net/lo/flags") else { return };
        let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap();
        assert_eq!(monitor.is_up_now().unwrap(), flags & UP != 0);
        assert!(LinkMonitor::of(u32::MAX >> 1).unwrap().is_up_now().is_err());
    }
}
