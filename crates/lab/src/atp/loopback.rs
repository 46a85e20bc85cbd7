//! `remora bench --atp`: ATP's throughput on loopback beside plain QUIC.
//!
//! Both send the same objects over 127.0.0.1 within this process, in turns: ATP by its endpoints, QUIC by quinn
//! with its default configuration and a stream for each object. Both seal with ring and discover the packet size.
//! A run ends when all objects have arrived and are acknowledged.
//!
//! Each round has a run of both in random order. The report has the median of the rounds' ratios and its
//! interval, so that other load on the machine affects both alike.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, MtuDiscoveryConfig, ServerConfig, TokioRuntime, TransportConfig,
};
use remora_atp::Outcome;
use remora_atp::session::{Config, Guests};
use remora_base::Rng;
use remora_host::atp::blocking::{BlockingEndpoint, wait};
use remora_host::atp::{EndpointSettings, Request, keys};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::report::error::failed;
use crate::report::number::count;
use crate::report::statistics::Summary;
use crate::report::table::Table;

pub use crate::report::error::Error;

/// Least ratio of ATP's rate to QUIC's.
pub const BAR: f64 = 1.0;
const AHEAD: usize = 16;
pub const BYTES_MAX: u64 = 16 << 30;
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Objects in a run (at least 1).
    pub objects: u64,
    /// Bytes of each (1 to 64 MiB).
    pub size: usize,
    /// Rounds; fewer than 6 give no interval.
    pub rounds: usize,
    /// Draws the order of the runs.
    pub seed: u64,
    /// Largest datagrams of both, in bytes without IP and UDP headers (1200 to 65527); `None`: the defaults.
    pub datagram: Option<u16>,
}

impl Default for Options {
    /// 256 MiB in objects of 1 MiB, seven rounds.
    fn default() -> Options {
        Options { objects: 256, size: 1 << 20, rounds: 7, seed: 1, datagram: None }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LoopbackCarrier {
    Atp,
    Quinn,
}

impl LoopbackCarrier {
    const BOTH: [LoopbackCarrier; 2] = [LoopbackCarrier::Atp, LoopbackCarrier::Quinn];

    fn name(self) -> &'static str {
        match self {
            LoopbackCarrier::Atp => "ATP",
            LoopbackCarrier::Quinn => "QUIC (quinn)",
        }
    }

    fn run(self, load: &LoopbackLoad) -> Result<Duration, Error> {
        match self {
            LoopbackCarrier::Atp => run_atp(load),
            LoopbackCarrier::Quinn => run_quic(load),
        }
    }
}

#[derive(Clone, Debug)]
struct LoopbackLoad {
    /// The same object every time, without a copy.
    object: Bytes,
    count: u64,
    datagram: Option<u16>,
}

impl LoopbackLoad {
    fn bytes(&self) -> u64 {
        self.object.len() as u64 * self.count
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Row {
    pub carrier: LoopbackCarrier,
    /// Bytes of objects a second.
    pub bytes_per_second: Summary,
    /// Processor time of both ends, in nanoseconds a byte.
    pub cpu_ns_per_byte: Summary,
}

#[derive(Clone, Debug, Serialize)]
pub struct LoopbackReport {
    pub version: &'static str,
    pub objects: u64,
    pub size: usize,
    /// Largest datagrams of both, if configured.
    pub datagram: Option<u16>,
    pub rows: Vec<Row>,
    /// ATP's rate over QUIC's, round by round.
    pub ratio: Summary,
}

/// Runs the comparison: some seconds on a fast machine.
pub fn run(options: &Options) -> Result<LoopbackReport, Error> {
    let object = Bytes::from(vec![0x5a; options.size]);
    let load = LoopbackLoad { object, count: options.objects.max(1), datagram: options.datagram };
    let mut rng = Rng::stream(options.seed, "atp-loopback");
    let mut rates: [Vec<f64>; 2] = Default::default();
    let mut costs: [Vec<f64>; 2] = Default::default();
    for _ in 0..options.rounds.max(1) {
        let order = if rng.chance(0.5) { [0, 1] } else { [1, 0] };
        for n in order {
            let before = cpu();
            let took = LoopbackCarrier::BOTH[n].run(&load)?;
            let spent = cpu().saturating_sub(before);
            rates[n].push(load.bytes() as f64 / took.as_secs_f64());
            costs[n].push(spent.as_nanos() as f64 / load.bytes() as f64);
        }
    }
    let none = || failed("the figures")("there are none");
    let ratios: Vec<f64> = rates[0].iter().zip(&rates[1]).map(|(a, b)| a / b).collect();
    let row = |n: usize| {
        let (bytes_per_second, cpu_ns_per_byte) = (Summary::of(&rates[n])?, Summary::of(&costs[n])?);
        Some(Row { carrier: LoopbackCarrier::BOTH[n], bytes_per_second, cpu_ns_per_byte })
    };
    Ok(LoopbackReport {
        version: env!("CARGO_PKG_VERSION"),
        objects: load.count,
        size: options.size,
        datagram: options.datagram,
        rows: [0, 1].into_iter().map(row).collect::<Option<_>>().ok_or_else(none)?,
        ratio: Summary::of(&ratios).ok_or_else(none)?,
    })
}

fn cpu() -> Duration {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
}

fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

impl LoopbackReport {
    pub fn holds(&self) -> bool {
        self.ratio.median >= BAR
    }

    /// The report as text, its tables at most `width` characters wide.
    pub fn to_text(&self, width: usize) -> String {
        let head = ["carrier", "MB/s", "95 %", "CPU ns a byte"];
        let interval = |s: &Summary, unit: f64, digits: usize| match s.interval() {
            Some((low, high)) => format!("{:.digits$}..{:.digits$}", low / unit, high / unit),
            None => String::new(),
        };
        let row = |r: &Row| {
            vec![
                r.carrier.name().to_owned(),
                format!("{:.0}", r.bytes_per_second.median / 1e6),
                interval(&r.bytes_per_second, 1e6, 0),
                format!("{:.2}", r.cpu_ns_per_byte.median),
            ]
        };
        let table = Table::new(1, head, self.rows.iter().map(row)).to_text_within(width);
        let interval = interval(&self.ratio, 1.0, 2);
        let interval = if interval.is_empty() { interval } else { format!(" (95 %: {interval})") };
        let held = self.datagram.map_or_else(String::new, |bytes| format!(" in datagrams of {bytes}"));
        format!(
            "{} objects of {} bytes{held} over loopback, {}, medians\n\n{table}\nATP is {:.2} times as fast as \
             QUIC{interval}; bar: {BAR:.1}\n",
            self.objects,
            self.size,
            count(self.ratio.runs as u64, "round"),
            self.ratio.median
        )
    }
}

/// Sends all objects and returns the time it took.
fn run_atp(load: &LoopbackLoad) -> Result<Duration, Error> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let key = || keys::generate().map_err(failed("a key"));
    let session = Config { guests: Guests::Anyone, ..Config::default() };
    let receiver = EndpointSettings { session, datagram_max: load.datagram, ..EndpointSettings::receiver(at) };
    let receiver = BlockingEndpoint::bind(receiver, key()?).map_err(failed("the receiver"))?;
    let sender = EndpointSettings { listen: at, datagram_max: load.datagram, ..EndpointSettings::sender() };
    let sender = BlockingEndpoint::bind(sender, key()?).map_err(failed("the sender"))?;
    let (to, their_key) = (receiver.endpoint().local_addr(), receiver.endpoint().public_key());
    let remote =
        sender.connect(to, their_key, PATIENCE).ok_or("time limit exceeded").map_err(failed("the connection"))?;
    let remote = remote.map_err(failed("the connection"))?;
    let (began, until) = (Instant::now(), deadline());
    thread::scope(|scope| {
        let taking = scope.spawn(|| take(&receiver, load, until));
        let mut under_way: VecDeque<Request> = VecDeque::new();
        for _ in 0..load.count {
            if under_way.len() >= AHEAD {
                atp_delivered(under_way.pop_front())?;
            }
            under_way.push_back(
                remote.send(load.object.clone(), remora_atp::Options::default()).map_err(failed("sending"))?,
            );
        }
        while !under_way.is_empty() {
            atp_delivered(under_way.pop_front())?;
        }
        taking.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
    })?;
    Ok(began.elapsed())
}

/// Waits until a request is delivered.
fn atp_delivered(request: Option<Request>) -> Result<(), Error> {
    let Some(request) = request else { return Ok(()) };
    match wait(request).map_err(failed("sending"))?.outcome {
        Outcome::Delivered => Ok(()),
        other => Err(failed("an object")(format!("{other:?}"))),
    }
}

fn take(receiver: &BlockingEndpoint, load: &LoopbackLoad, until: Instant) -> Result<(), Error> {
    for _ in 0..load.count {
        let left = until.saturating_duration_since(Instant::now());
        let received = receiver.recv(Some(left)).ok_or("time limit exceeded").map_err(failed("receiving"))?;
        if received.map_err(failed("receiving"))?.object.len() != load.object.len() {
            return Err(failed("an object")("the object arrived with a different size"));
        }
    }
    Ok(())
}

const NAME: &str = "localhost";

/// Sends all objects and returns the time it took.
fn run_quic(load: &LoopbackLoad) -> Result<Duration, Error> {
    let (server, client) = configs(load.datagram)?;
    let (told, hear) = oneshot::channel();
    thread::scope(|scope| {
        let receiving = scope.spawn(move || runtime()?.block_on(receive(server, told, load)));
        let sent = runtime()?.block_on(async {
            let to = hear.await.map_err(|_| failed("the receiver")("the transfer did not begin"))?;
            timeout(PATIENCE, send(client, to, load)).await.map_err(failed("sending"))?
        });
        let received = receiving.join().unwrap_or_else(|e| std::panic::resume_unwind(e));
        received.and(sent)
    })
}

fn runtime() -> Result<Runtime, Error> {
    Builder::new_current_thread().enable_all().build().map_err(failed("a runtime"))
}

/// A server with a self-signed certificate and a client that trusts it.
fn configs(datagram: Option<u16>) -> Result<(ServerConfig, ClientConfig), Error> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(failed("a certificate"))?;
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut server = ServerConfig::with_single_cert(vec![certificate.clone()], key.into()).map_err(failed("TLS"))?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(failed("TLS"))?;
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots)).map_err(failed("TLS"))?;
    if let Some(bytes) = datagram {
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(bytes);
        let mut transport = TransportConfig::default();
        transport.mtu_discovery_config(Some(discovery));
        let transport = Arc::new(transport);
        server.transport_config(transport.clone());
        client.transport_config(transport);
    }
    Ok((server, client))
}

/// An endpoint on any port of loopback.
fn endpoint(server: Option<ServerConfig>, datagram: Option<u16>) -> Result<Endpoint, Error> {
    let mut config = EndpointConfig::default();
    if let Some(bytes) = datagram.filter(|bytes| u64::from(*bytes) > config.get_max_udp_payload_size()) {
        config.max_udp_payload_size(bytes).map_err(failed("an endpoint"))?;
    }
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed("a socket"))?;
    Endpoint::new(config, server, socket, Arc::new(TokioRuntime)).map_err(failed("an endpoint"))
}

async fn send(config: ClientConfig, to: SocketAddr, load: &LoopbackLoad) -> Result<Duration, Error> {
    let mut endpoint = endpoint(None, load.datagram)?;
    endpoint.set_default_client_config(config);
    let connection = endpoint.connect(to, NAME).map_err(failed("the connection"))?;
    let connection = connection.await.map_err(failed("the connection"))?;
    let began = Instant::now();
    let mut under_way = JoinSet::new();
    for _ in 0..load.count {
        if under_way.len() >= AHEAD {
            quic_delivered(under_way.join_next().await)?;
        }
        under_way.spawn(send_one(connection.clone(), load.object.clone()));
    }
    while !under_way.is_empty() {
        quic_delivered(under_way.join_next().await)?;
    }
    let took = began.elapsed();
    connection.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(took)
}

async fn send_one(connection: Connection, object: bytes::Bytes) -> Result<(), Error> {
    let mut stream = connection.open_uni().await.map_err(failed("a stream"))?;
    stream.write_chunk(object).await.map_err(failed("sending"))?;
    stream.finish().map_err(failed("sending"))?;
    // Waits until everything is acknowledged.
    match stream.stopped().await.map_err(failed("sending"))? {
        None => Ok(()),
        Some(code) => Err(failed("an object")(format!("the stream was stopped: {code}"))),
    }
}

fn quic_delivered(ended: Option<Result<Result<(), Error>, tokio::task::JoinError>>) -> Result<(), Error> {
    ended.map_or(Ok(()), |e| e.map_err(failed("sending"))?)
}

async fn receive(config: ServerConfig, told: oneshot::Sender<SocketAddr>, load: &LoopbackLoad) -> Result<(), Error> {
    let endpoint = endpoint(Some(config), load.datagram)?;
    // The receiver exists until this ends.
    let _ = told.send(endpoint.local_addr().map_err(failed("the receiver"))?);
    let taking = async {
        let incoming = endpoint.accept().await.ok_or("it was closed").map_err(failed("the receiver"))?;
        let connection = incoming.await.map_err(failed("the connection"))?;
        let mut under_way = JoinSet::new();
        for _ in 0..load.count {
            let mut stream = connection.accept_uni().await.map_err(failed("receiving"))?;
            let size = load.object.len();
            under_way.spawn(async move { stream.read_to_end(size).await.map(|object| object.len()) });
        }
        while let Some(read) = under_way.join_next().await {
            let size = read.map_err(failed("receiving"))?.map_err(failed("receiving"))?;
            if size != load.object.len() {
                return Err(failed("an object")("the object arrived with a different size"));
            }
        }
        // The sender closes after the last acknowledgement.
        connection.closed().await;
        Ok(())
    };
    timeout(PATIENCE, taking).await.map_err(failed("receiving"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_run_delivers_all_and_reports_rates() {
        let options = Options { objects: 12, size: 40_000, rounds: 1, seed: 3, datagram: Some(1452) };
        let report = run(&options).unwrap();
        assert_eq!(report.rows.iter().map(|r| r.carrier).collect::<Vec<_>>(), LoopbackCarrier::BOTH);
        assert!(report.rows.iter().all(|r| r.bytes_per_second.median > 1e4 && r.cpu_ns_per_byte.median > 0.0));
        let [a, b] = [0, 1].map(|n: usize| report.rows[n].bytes_per_second.median);
        assert!((report.ratio.median - a / b).abs() < 1e-9);
        let text = report.to_text(usize::MAX);
        assert!(
            text.contains("12 objects of 40000 bytes in datagrams of 1452") && text.contains("QUIC (quinn)"),
            "{text}"
        );
    }
}
