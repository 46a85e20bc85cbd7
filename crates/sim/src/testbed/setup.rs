//! The testbed's configuration, its runs, and their evaluation.

use std::ops::Range;
use std::time::Duration;

use remora_base::Rate;
use remora_channel::{ErrorModel, Receiver};
use remora_client::{BlockSize, RetryPolicy, WindowSize};

use crate::copy::{self, CopyConfig, CopyError, Direction, Manner};
use crate::world::ServerConfig;
use crate::world::disk::DiskModel;
use crate::world::slow_host::SlowHost;

/// Block size of the tables, in bytes.
pub const BLOCK: u32 = 4096;
/// The server's disk: seek and rotation of one synchronous operation. A WRITE of version 2 takes
/// two.
const SERVER_SEEK: Duration = Duration::from_millis(24);
/// Maximum increase of an operation by the positions of arm and platter.
const SERVER_JITTER: f64 = 0.1;
/// Processor time of a request at the server.
const SERVER_CPU: Duration = Duration::from_millis(2);
/// A mobile's receive buffer, with its service time: one reader takes its frames as slowly as two of them
/// share the radio (NFS/W 95, tables 4, 7 and 8). Four blocks of 4096 bytes fit while it is emptied, four of 8192 do not.
const RECEIVER: Receiver = Receiver { frames: 10, service: Duration::from_millis(43) };
/// A mobile's processor and disk.
const MOBILE: SlowHost = SlowHost {
    message: Duration::from_millis(13),
    frame: Duration::from_millis(5),
    device_frames: 7,
    disk: LOCAL_DISK,
    read_ahead: 6,
    stable_writes: true,
};
/// Transfer rate of a mobile's local file system.
const LOCAL_DISK: Rate = Rate::of_bits(585_000);
/// Outstanding requests: one for each block I/O daemon.
const DAEMONS: u32 = 4;
/// Initial timeout: above the papers' minimum of 0.7 s, as of a client that measures the RTT of such
/// hosts.
const FIRST_TIMEOUT: Duration = Duration::from_millis(1300);
/// Factor of the exponential back-off, between the 2 of most ports and the 4 of the reference port
/// (DRC 89, section 2.1).
const FACTOR: u32 = 3;
/// Step of the linear back-off of the first retransmissions (NFS/W 97, section 5.2).
const STEP: Duration = Duration::from_millis(100);
const LINEAR_RETRIES: u32 = 3;
/// Maximum timeout, that of the reference port.
const LAST_TIMEOUT: Duration = Duration::from_secs(60);

/// The papers' treatments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Treatment {
    /// Exponential back-off in the client; frames in bad periods are lost.
    NoChanges,
    /// Hybrid linear back-off in the client (NFS/W 95, section 4.2).
    Linear,
    /// Emulated link-level retransmission: frames are held until the end of a bad period (section
    /// 4.3).
    Retransmit,
    /// Linear and Retransmit (section 4.4).
    Both,
}

impl Treatment {
    /// All treatments in the order of the papers' tables.
    pub const ALL: [Treatment; 4] = [Treatment::NoChanges, Treatment::Linear, Treatment::Retransmit, Treatment::Both];

    /// The name in the papers' tables.
    pub const fn name(self) -> &'static str {
        match self {
            Treatment::NoChanges => "no changes",
            Treatment::Linear => "linear",
            Treatment::Retransmit => "retransmit",
            Treatment::Both => "linear + retransmit",
        }
    }

    fn retry(self) -> RetryPolicy {
        match self {
            Treatment::NoChanges | Treatment::Retransmit => {
                RetryPolicy::Exponential { initial: FIRST_TIMEOUT, factor: FACTOR, max: LAST_TIMEOUT }
            }
            Treatment::Linear | Treatment::Both => RetryPolicy::HybridLinear {
                initial: FIRST_TIMEOUT,
                step: STEP,
                linear_retries: LINEAR_RETRIES,
                max: LAST_TIMEOUT,
            },
        }
    }

    fn holds(self) -> bool {
        matches!(self, Treatment::Retransmit | Treatment::Both)
    }
}

/// A copy of 1 MB on the testbed. `bad_mean` is the mean length of bad periods (0 to 30 s; 0: no
/// errors), `block` the bytes of a READ or WRITE (1 KiB to 60 KiB), `mobiles` the number of
/// concurrent copies (1 to 64).
pub fn copy_config(
    treatment: Treatment,
    direction: Direction,
    bad_mean: Duration,
    block: u32,
    mobiles: usize,
) -> CopyConfig {
    let client = remora_client::ClientConfig {
        retry: treatment.retry(),
        block: BlockSize::Fixed(block),
        window: WindowSize::Fixed(DAEMONS),
        ..remora_client::ClientConfig::stock()
    };
    let channel = remora_channel::Config {
        errors: ErrorModel::bursts(bad_mean),
        hold: treatment.holds(),
        receiver: Some(RECEIVER),
        ..Default::default()
    };
    let disk = DiskModel { cpu: SERVER_CPU, seek: SERVER_SEEK, jitter: SERVER_JITTER, ..DiskModel::instant() };
    CopyConfig {
        channel,
        server: ServerConfig { disk, ..ServerConfig::default() },
        mobiles,
        manner: Manner::Mounted,
        host: Some(MOBILE),
        ..CopyConfig::new(client, direction)
    }
}

/// Reduction of a time in percent.
pub fn reduction(before: f64, after: f64) -> f64 {
    100.0 * (1.0 - after / before)
}

/// Times of copies with several seeds, evaluated as in the papers.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Seconds of the first mobile's copies that were done by the limit, in the order of seeds.
    pub seconds: Vec<f64>,
    /// Copies not done by the limit. The papers repeated such runs, so they are not counted.
    pub censored: usize,
}

impl Measured {
    /// The mean; NaN if no copy was done.
    pub fn mean(&self) -> f64 {
        self.seconds.iter().sum::<f64>() / self.seconds.len() as f64
    }

    /// The standard error of the mean; NaN for fewer than two copies.
    pub fn standard_error(&self) -> f64 {
        let (n, mean) = (self.seconds.len() as f64, self.mean());
        let squares: f64 = self.seconds.iter().map(|s| (s - mean).powi(2)).sum();
        (squares / (n - 1.0) / n).sqrt()
    }

    /// The minimum; infinite if no copy was done.
    pub fn min(&self) -> f64 {
        self.seconds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The maximum; 0 if no copy was done.
    pub fn max(&self) -> f64 {
        self.seconds.iter().copied().fold(0.0, f64::max)
    }
}

/// Runs a copy once for each seed.
pub fn measure(config: &CopyConfig, seeds: Range<u64>) -> Result<Measured, CopyError> {
    let mut measured = Measured { seconds: Vec::new(), censored: 0 };
    for seed in seeds {
        match copy::run(config, seed)?.first().seconds {
            Some(seconds) => measured.seconds.push(seconds),
            None => measured.censored += 1,
        }
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_standard_error_are_those_of_the_sample() {
        let measured = Measured { seconds: vec![2.0, 4.0, 4.0, 6.0], censored: 1 };
        assert_eq!((measured.mean(), measured.min(), measured.max()), (4.0, 2.0, 6.0));
        // Variance 8/3, over 4.
        assert!((measured.standard_error() - (2.0_f64 / 3.0).sqrt()).abs() < 1e-12);
    }
}
