//! Reserved ports, which only privileged processes can bind. Servers take them as proof that a request's credential
//! comes from the client's administrator; Linux requires them unless an export has `insecure` (exports(5)). A
//! privileged client uses one, others any port.

use std::io;
use std::net::{self, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

/// The range that mount(8) uses, above the ports of most services.
const PORTS: Range<u16> = 665..1024;
/// Ports in the range of services over UDP or TLS, which could not start while one is taken.
const SERVICES: [u16; 13] = [749, 750, 751, 783, 853, 860, 873, 953, 989, 990, 992, 993, 995];

/// Connects from `port` if it is free, otherwise from a reserved port, otherwise from any.
pub(crate) async fn connect(server: SocketAddr, port: Option<u16>) -> io::Result<TcpStream> {
    for port in port.into_iter().chain(all()) {
        match connect_from(server, port).await {
            Err(e) if is_taken(&e) => {}
            // Unprivileged: any port will do.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => break,
            done => return done,
        }
    }
    TcpStream::connect(server).await
}

/// The same, blocking, for at most `patience`.
pub fn stream(server: SocketAddr, patience: Duration) -> io::Result<net::TcpStream> {
    let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    for port in all() {
        let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // The timeout applies to connect(2), too.
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(patience))?;
        let bound = rustix::net::bind(&socket, &any(server, port)).map_err(io::Error::from);
        match bound.and_then(|()| Ok(rustix::net::connect(&socket, &server)?)) {
            Err(e) if is_taken(&e) => {}
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => break,
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            done => {
                return done
                    .and_then(|()| Ok(sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, None)?))
                    .map(|()| socket.into());
            }
        }
    }
    net::TcpStream::connect_timeout(&server, patience)
}

/// A socket for datagrams to `server`, at a reserved port if possible.
pub fn datagrams(server: SocketAddr) -> io::Result<net::UdpSocket> {
    for port in all() {
        match net::UdpSocket::bind(any(server, port)) {
            Err(e) if is_taken(&e) => {}
            Err(_) => break,
            done => return done,
        }
    }
    net::UdpSocket::bind(any(server, 0))
}

/// The same for asynchronous callers.
pub(crate) async fn bind(server: SocketAddr) -> io::Result<UdpSocket> {
    let socket = datagrams(server)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

/// All reserved ports in order, from a random one on.
fn all() -> impl Iterator<Item = u16> {
    let many = PORTS.end - PORTS.start;
    let first = getrandom::u32().map_or(0, |n| (n % u32::from(many)) as u16);
    (0..many).map(move |n| PORTS.start + (first + n) % many).filter(|port| !SERVICES.contains(port))
}

async fn connect_from(server: SocketAddr, port: u16) -> io::Result<TcpStream> {
    let socket = if server.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(any(server, port))?;
    socket.connect(server).await
}

/// The wildcard address of the server's family, with `port`.
fn any(server: SocketAddr, port: u16) -> SocketAddr {
    if server.is_ipv4() { ([0, 0, 0, 0], port).into() } else { ([0u16; 8], port).into() }
}

fn is_taken(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn reserved_ports_are_below_1024_and_distinct() {
        let ports: std::collections::BTreeSet<u16> = all().collect();
        assert!(ports.len() == PORTS.len() - SERVICES.len() && ports.iter().all(|p| PORTS.contains(p)), "{ports:?}");
    }

    #[tokio::test]
    async fn reserved_port_is_used_wherever_allowed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let may = all().any(|port| std::net::UdpSocket::bind(any(server, port)).is_ok());
        let tcp = connect(server, None).await.unwrap();
        assert_eq!(tcp.peer_addr().unwrap(), server);
        let local = tcp.local_addr().unwrap().port();
        assert_eq!(PORTS.contains(&local), may, "{local}");
        let udp = bind(server).await.unwrap().local_addr().unwrap().port();
        let blocking = stream(server, Duration::from_secs(5)).unwrap().local_addr().unwrap().port();
        assert_eq!([udp, blocking].map(|port| PORTS.contains(&port)), [may; 2], "{udp} {blocking}");
        // A port in use is skipped.
        let other = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let taken = other.local_addr().unwrap().port();
        assert_ne!(connect(server, Some(taken)).await.unwrap().local_addr().unwrap().port(), taken);
    }

    #[tokio::test]
    async fn refused_reserved_port_costs_no_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let first = connect(server, None).await.unwrap();
        let port = first.local_addr().unwrap().port();
        let connect_again = || async {
            let again = tokio::time::timeout(Duration::from_millis(500), connect(server, Some(port))).await;
            again.expect("at once").unwrap()
        };
        // The port has a connection to this server, or one in TIME_WAIT.
        assert_ne!(connect_again().await.local_addr().unwrap().port(), port);
        drop(first);
        drop(connect_again().await);
        connect_again().await;
    }
}
