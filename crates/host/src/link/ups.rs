//! Whether the network device was taken down and up again. That costs it its routes and IPv6 addresses, and whoever
//! reads from it is not told: rtnetlink(7) tells, in order, and so even of what was over in an instant.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// The group of changes of devices (`RTMGRP_LINK`).
const LINKS: u32 = 1;
/// A device is new or has changed (`RTM_NEWLINK`).
const NEW_LINK: u16 = 16;
/// It is up (`IFF_UP`).
const UP: u32 = 1;
/// `struct nlmsghdr`: length, type, flags, sequence, port.
const HEADER: usize = 16;
/// The length of one is rounded up to this.
const ALIGN: usize = 4;
/// Longer than what is told of one device.
const MESSAGE_MAX: usize = 16 << 10;

/// What happened to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// It was taken down.
    Down,
    /// It is up again.
    Up,
}

/// Listens for what happens to one device.
pub(super) struct Ups {
    socket: OwnedFd,
    index: u32,
    is_up: bool,
}

impl Ups {
    /// Of the device `index`, which is up.
    pub(super) fn of(index: u32) -> io::Result<Ups> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, LINKS))?;
        Ok(Ups { socket, index, is_up: true })
    }

    /// What happened since this was last asked, in order.
    pub(super) fn take(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut buffer = vec![0; MESSAGE_MAX];
        loop {
            match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((n, _)) => self.read(buffer.get(..n).unwrap_or_default(), &mut changes),
                // More than was read in time: it may have been anything.
                Err(Errno::NOBUFS) => changes.push(Change::Up),
                Err(_) => return changes,
            }
        }
    }

    fn read(&mut self, mut messages: &[u8], changes: &mut Vec<Change>) {
        while let Some((is_up, rest)) = next(messages, self.index) {
            if let Some(is_up) = is_up.filter(|is_up| *is_up != self.is_up) {
                self.is_up = is_up;
                changes.push(if is_up { Change::Up } else { Change::Down });
            }
            messages = rest;
        }
    }
}

impl AsFd for Ups {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether the first message says of device `index` that it is up, and what comes after it.
fn next(messages: &[u8], index: u32) -> Option<(Option<bool>, &[u8])> {
    let word = |at: usize| Some(u32::from_ne_bytes(*messages.get(at..)?.first_chunk()?));
    let kind = u16::from_ne_bytes(*messages.get(4..)?.first_chunk()?);
    let len = usize::try_from(word(0)?).ok().filter(|len| *len >= HEADER)?;
    // `struct ifinfomsg`: family, type, index, flags, and which of them changed.
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
    fn what_happens_to_the_device_is_read_in_order() {
        let mut ups = Ups::of(5).unwrap();
        let mut read = |messages: &[Vec<u8>]| {
            let mut changes = Vec::new();
            ups.read(&messages.concat(), &mut changes);
            changes
        };
        let up = || message(NEW_LINK, 5, 0x10d1);
        assert_eq!(read(&[up(), message(NEW_LINK, 6, 0), message(17, 5, 0)]), []);
        assert_eq!(read(&[message(NEW_LINK, 5, 0x1090), up()]), [Change::Down, Change::Up]);
        assert_eq!(read(&[message(NEW_LINK, 5, 0), message(NEW_LINK, 5, 0)]), [Change::Down]);
        // What is cut short or lies about its length.
        for bad in [&up()[..20], &[0; 40], &[0xff; 40], &[]] {
            assert_eq!(read(&[bad.to_vec()]), []);
        }
    }
}
