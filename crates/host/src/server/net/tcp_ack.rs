//! Whether what was sent on a TCP connection has got there, as far as the system knows (tcp(7)).

use std::os::fd::AsFd;

use crate::tcp::info;

/// Whether the other end has acknowledged all that `socket` was given to send. Sent and not
/// acknowledged is one thing; not sent yet, because the other end takes no more, another: then the
/// system asks it now and then. Of a connection that was reset the system has forgotten what was not acknowledged.
pub(crate) fn is_all_acknowledged(socket: &impl AsFd) -> bool {
    info(socket).is_some_and(|info| info.tcpi_unacked + info.tcpi_notsent_bytes == 0 && info.tcpi_probes == 0)
}

/// How many bytes the other end has acknowledged.
pub(crate) fn acknowledged(socket: &impl AsFd) -> Option<u64> {
    info(socket).map(|info| info.tcpi_bytes_acked)
}

/// Whether no acknowledgement is overdue. An end that has got everything may take a moment to say so.
pub(crate) fn is_none_overdue(socket: &impl AsFd) -> bool {
    info(socket).is_some_and(|info| info.tcpi_retransmits == 0 && info.tcpi_probes == 0)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_the_other_end_has_is_acknowledged_and_what_it_has_no_room_for_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut socket = listener.accept().unwrap().0;
        socket.write_all(b"reply").unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while !is_all_acknowledged(&socket) {
            assert!(Instant::now() < end, "it is on this machine");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(is_none_overdue(&socket));
        // Until neither end has room.
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 65536]).is_ok() {}
        while is_all_acknowledged(&socket) || is_none_overdue(&socket) {
            assert!(Instant::now() < end, "nobody reads");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    #[test]
    fn what_is_sent_to_who_has_closed_its_end_is_not_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut socket = listener.accept().unwrap().0;
        drop(other);
        assert_eq!(socket.read(&mut [0]).unwrap(), 0);
        assert!(is_all_acknowledged(&socket), "nothing was sent");
        socket.write_all(b"reply").unwrap();
        // It is on this machine: the reset is there, or will be.
        std::thread::sleep(Duration::from_millis(100));
        assert!(!is_all_acknowledged(&socket));
    }
}
