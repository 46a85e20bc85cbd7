//! The load beside a copy: stations of their own that send to the server's station.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use remora_base::{Rate, Rng};
use remora_host::emulate::{Emulator, Station};
use remora_host::load::{self, DURATION_MAX, Law, Plan, Runs, Sent};

use super::plan::LOADERS;
use crate::wireless::real::{Result, failed, failed_with};

/// Where the load goes.
const PORT: u16 = 5001;
/// Payload of a packet, as in Copy 89, in bytes.
const PAYLOAD: usize = 1000;
/// How long the load runs before the copy begins: queues have filled by then, if they will.
const WARM_UP: Duration = Duration::from_millis(500);

/// A running load. Dropping it stops it.
#[derive(Debug)]
pub(super) struct Background {
    stop: Arc<AtomicBool>,
    stop_receiver: Arc<AtomicBool>,
    runs: Arc<Runs>,
    names: Vec<u64>,
    packet_bytes: u64,
    senders: Vec<JoinHandle<std::io::Result<Sent>>>,
    receiver: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts a load of `percent` of `rate`, shared evenly by the load stations, and waits until it
    /// has settled. The same seed gives the same packets.
    pub(super) fn start(emulator: &Emulator, percent: f64, rate: Rate, seed: u64) -> Result<Background> {
        let to = SocketAddr::from((emulator.addr(Station::Base), PORT));
        let each = rate.bits() as f64 * percent / 100.0 / LOADERS as f64;
        let (stop, stop_receiver) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let runs = Arc::new(Runs::default());
        let mut background = Background {
            stop: stop.clone(),
            stop_receiver: stop_receiver.clone(),
            runs: runs.clone(),
            names: Vec::new(),
            packet_bytes: 0,
            senders: Vec::new(),
            receiver: None,
        };
        let Some(each) = Rate::from_bits(each as u64) else { return Ok(background) };
        let socket = emulator.within(Station::Base, || load::listen(to)).map_err(failed_with("the load's receiver"))?;
        background.receiver = Some(spawn("load receiver", move || {
            // What it has counted stands, whatever ends it.
            let _ = load::receive(&socket, &runs, &stop_receiver, |_| ());
        })?);
        for station in 0..LOADERS {
            let name = Rng::stream(seed, &format!("load station {station}")).next_u64();
            let plan = Plan::new(to.ip(), each, PAYLOAD, Law::Poisson, DURATION_MAX, name);
            let plan = plan.map_err(|e| failed(e.to_string()))?;
            let socket = emulator.within(Station::Mobile(1 + station), || load::connect(to));
            let socket = socket.map_err(failed_with("a load station"))?;
            let stop = stop.clone();
            background.names.push(name);
            background.packet_bytes = plan.packet_bytes();
            background.senders.push(spawn("load", move || load::send(&socket, &plan, &stop))?);
        }
        thread::sleep(WARM_UP);
        Ok(background)
    }

    /// Packets that have come until now.
    pub(super) fn packets(&self) -> u64 {
        self.names.iter().map(|name| self.runs.carried(*name).packets).sum()
    }

    /// A packet's length in bytes, headers of IP and UDP included; 0 without a load.
    pub(super) fn packet_bytes(&self) -> u64 {
        self.packet_bytes
    }

    /// Ends it; what the senders have to say.
    pub(super) fn end(mut self) -> Vec<Sent> {
        self.stop.store(true, Ordering::Release);
        let sent = self.senders.drain(..).filter_map(|sender| sender.join().ok()?.ok()).collect();
        self.stop_receiver.store(true, Ordering::Release);
        if let Some(receiver) = self.receiver.take() {
            let _ = receiver.join();
        }
        sent
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.stop_receiver.store(true, Ordering::Release);
    }
}

fn spawn<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(failed_with("a thread"))
}
