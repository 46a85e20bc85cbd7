//! What a race needs: the file, a server on a directory of its own, relays.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use remora_base::Rng;
use remora_host::Clock;
use remora_host::client::ClientError;
use remora_host::relay::RelayError;
use remora_host::server::{Serving, StartError};
use remora_server::{Config, Export, Exports, ExportsError};
use remora_vfs::LocalDisk;
use remora_vfs::local::Options as LocalOptions;
use tempfile::TempDir;

use super::leg::{self, LegResult};
use super::report::Bars;
use super::{Options, SAMPLE_BYTES, Way, racers};

/// The file as the server has it.
pub(super) const SAMPLE: &str = "sample";

/// The largest file that is taken.
const FILE_MAX: u64 = 256 << 20;

/// Why there was no race.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The given file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The server's directory could not be made.
    #[error("cannot set up the server's directory: {0}")]
    Directory(io::Error),
    /// The server could not be set up.
    #[error(transparent)]
    Exports(#[from] ExportsError),
    /// The server did not start.
    #[error(transparent)]
    Server(#[from] StartError),
    /// A relay did not start.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// A client failed.
    #[error("{racer} could not {}: {source}", match way { Way::Write => "write", Way::Read => "read" })]
    Client {
        /// Which.
        racer: &'static str,
        /// What it tried.
        way: Way,
        /// Why.
        source: ClientError,
    },
    /// The report cannot be written.
    #[error("cannot write the report {}: {source}", path.display())]
    Report {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Everything that stands while the racers run; it all goes away with it.
pub(super) struct Stage {
    directory: TempDir,
    serving: Serving,
    file: Bytes,
}

impl Stage {
    pub(super) fn set_up(options: &Options) -> Result<Stage, DemoError> {
        let file = load(options)?;
        let directory = tempfile::Builder::new().prefix("remora-demo-").tempdir().map_err(DemoError::Directory)?;
        std::fs::write(directory.path().join(SAMPLE), &file).map_err(DemoError::Directory)?;
        let serving = serve(directory.path(), options.seed)?;
        Ok(Stage { directory, serving, file })
    }

    pub(super) fn len(&self) -> u64 {
        self.file.len() as u64
    }

    pub(super) fn file(&self) -> &Bytes {
        &self.file
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn server(&self) -> SocketAddr {
        self.serving.local_addrs().first().copied().unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// Lets all racers go one way, side by side, from the same moment of the same weather.
    pub(super) async fn race(&self, way: Way, options: &Options) -> Result<Vec<LegResult>, DemoError> {
        let clock = Clock::start();
        let bars = Bars::new(way, self.len(), options.bars);
        let racers = racers();
        let [a, b, c] = racers.each_ref().map(|racer| leg::run(self, racer, way, clock, options, bars.bar(racer.name)));
        let (a, b, c) = tokio::join!(a, b, c);
        Ok(vec![a?, b?, c?])
    }
}

fn load(options: &Options) -> Result<Bytes, DemoError> {
    match &options.file {
        Some(path) => read_file(path).map_err(|source| DemoError::File { path: path.clone(), source }),
        None => {
            let mut sample = vec![0; SAMPLE_BYTES];
            Rng::stream(options.seed, "sample").fill(&mut sample);
            Ok(Bytes::from(sample))
        }
    }
}

/// All of a regular file that is not too large to be kept in memory.
fn read_file(path: &Path) -> io::Result<Bytes> {
    let meta = std::fs::metadata(path)?;
    if !meta.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if meta.len() > FILE_MAX {
        return Err(io::Error::other("more than 256 MiB, which no racer could carry in time"));
    }
    std::fs::read(path).map(Bytes::from)
}

fn serve(directory: &Path, seed: u64) -> Result<Serving, DemoError> {
    let mut random = [0; 24];
    Rng::stream(seed, "server").fill(&mut random);
    let (verifier, key) = random.split_at(8);
    let mut disk = LocalOptions::new(verifier.try_into().unwrap_or_default());
    // The demonstration's files are its own user's, whoever that is.
    disk.honour_credentials = false;
    let disk = LocalDisk::open(directory, disk).map_err(DemoError::Directory)?;
    let export = Export::new("/", Arc::new(disk));
    let exports = Arc::new(Exports::new(vec![export], key.try_into().unwrap_or(&[0; 16]))?);
    let mut options = remora_host::server::Options::new(Config::new(exports));
    options.listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    options.seed = Some(seed);
    Ok(Serving::start(options)?)
}
