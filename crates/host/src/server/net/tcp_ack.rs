//! What the peer of a TCP connection has acknowledged (tcp(7)).

use std::os::fd::AsFd;

use crate::tcp::info;

/// Whether the peer has acknowledged everything written to `socket`: nothing is in flight, and nothing unsent because
/// the peer's window is closed (for which the system sends probes). After a reset the system has no record of
/// unacknowledged bytes.
pub(crate) fn is_all_acknowledged(socket: &impl AsFd) -> bool {
    info(socket).is_some_and(|info| info.tcpi_unacked + info.tcpi_notsent_bytes == 0 && info.tcpi_probes == 0)
}

/// The number of bytes that the peer has acknowledged.
pub(crate) fn acknowledged(socket: &impl AsFd) -> Option<u64> {
    info(socket).map(|info| info.tcpi_bytes_acked)
}

/// Whether no acknowledgement is overdue: the peer may have received everything and acknowledge it later.
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
    fn received_bytes_are_acknowledged_and_those_without_room_not() {
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
        // Until the buffers of both ends are full.
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 65536]).is_ok() {}
        while is_all_acknowledged(&socket) || is_none_overdue(&socket) {
            assert!(Instant::now() < end, "nobody reads");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    #[test]
    fn bytes_to_a_closed_peer_are_not_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut socket = listener.accept().unwrap().0;
        drop(other);
        assert_eq!(socket.read(&mut [0]).unwrap(), 0);
        assert!(is_all_acknowledged(&socket), "nothing was sent");
        socket.write_all(b"reply").unwrap();
        // On the loopback interface the reset arrives within this time.
        std::thread::sleep(Duration::from_millis(100));
        assert!(!is_all_acknowledged(&socket));
    }
}
