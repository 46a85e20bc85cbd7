//! `remora recv`: takes what `remora send` sends.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirBuilder;
use std::future::Future;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, io};

use remora_atp::session::{Config, Guests, PublicKey};
use remora_atp::{Options, Priority};
use remora_host::atp::{AtpEndpoint, EndpointSettings, Received, Remote};
use rustix::fs::Mode;
use rustix::process::umask;
use serde::Serialize;
use tokio::task::{Id, JoinSet, block_in_place};

use crate::commands::forwarding::gateway::DroppedLines;
use crate::commands::transfer::keys;
use crate::commands::transfer::recv::flags::Recv;
use crate::commands::transfer::recv::request_queue::{Message, Reply, RequestQueue};
use crate::commands::transfer::recv::storage::quota::{Census, Holder, Limits};
use crate::commands::transfer::recv::storage::store::ReceivePolicy;
use crate::commands::transfer::transfer_protocol::{Announcement, Answer, Verdict};
use crate::config::units;
use crate::interrupt;
use crate::metrics::endpoint::{self, MetricsPage};
use crate::metrics::tables;
use crate::metrics::tables::recv::ReceiveCounts;
use crate::output::background_writer::BackgroundWriter;
use crate::output::exit::{Error, Result};
use crate::output::{escape, stdio};
use crate::service_manager::{self, Watchdog};

/// Limit for delivering the last answers at the end.
const FAREWELL_MAX: Duration = Duration::from_secs(5);
/// Queued answers for disconnected senders; further ones are dropped.
const ANSWERS: Limits = Limits { of_key: 128, of_host: 512, all: 4096 };
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Lines that wait to be read. A name has 255 bytes at most.
const LINES_MAX: usize = 1 << 14;
/// How long the last ones may take.
const LINES_PATIENCE: Duration = Duration::from_secs(2);

/// What `--json` prints when files are taken.
#[derive(Serialize)]
struct Ready {
    listen: SocketAddr,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<SocketAddr>,
}

/// What `--json` prints of each file.
#[derive(Serialize)]
struct ReceivedFileRecord<'a> {
    file: &'a str,
    from: String,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    bytes: u64,
}

pub(crate) async fn run(args: Recv) -> Result {
    let stop = interrupt::catch();
    block_in_place(|| make_dir(&args.dir)).map_err(Error::local(args.dir.display()))?;
    let identity = keys::identity(args.key.as_deref())?;
    let guests = if args.from_anyone { Guests::Anyone } else { Guests::Only(args.from.iter().copied().collect()) };
    let mut session = Config { guests, ..Config::default() };
    (session.scheduler.objects_max, session.scheduler.bytes_max) = (ANSWERS.all, ANSWER_BYTES_MAX);
    let settings = EndpointSettings { session, ..EndpointSettings::receiver(args.listen) };
    let metrics = args.metrics.bind().await?;
    let endpoint = AtpEndpoint::bind(settings, identity).map_err(Error::endpoint)?;
    let is_open = args.from_anyone;
    let counts = Arc::<Mutex<ReceiveCounts>>::default();
    let mut voice = ReceiveLog {
        is_open,
        counts: counts.clone(),
        json: args.json,
        out: BackgroundWriter::stdout_with_queue(LINES_MAX)?,
        err: BackgroundWriter::stderr_with_queue(LINES_MAX)?,
    };
    let metrics = metrics.map(|open| open.serve(move || tables::recv::families(&counted(&counts))));
    voice.announce(&args, &endpoint, metrics.as_ref().map(MetricsPage::address))?;
    service_manager::ready();
    let result = take_files(&args, &endpoint, &mut voice, stop).await;
    service_manager::stopping();
    endpoint.close().await;
    let owned_up = voice.report_dropped();
    let printed = voice.out.finish_within(LINES_PATIENCE).await;
    voice.err.finish().await;
    result.and(owned_up).and(printed)
}

/// Creates the target directory with mode 0700 if it is missing.
fn make_dir(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    if fs::metadata(dir)?.is_dir() { Ok(()) } else { Err(io::Error::other("is not a directory")) }
}

/// The process's umask.
fn umasked() -> u32 {
    // umask(2) can only be read by setting it. No file is created meanwhile.
    let mask = umask(Mode::RWXG | Mode::RWXO);
    umask(mask);
    mask.as_raw_mode()
}

/// Receives files until `--once` is met or a signal arrives.
async fn take_files(
    args: &Recv,
    endpoint: &AtpEndpoint,
    voice: &mut ReceiveLog,
    stop: impl Future<Output = u8>,
) -> Result {
    let size_max = args.max_size.unwrap_or(u64::MAX);
    let rules = ReceivePolicy { dir: args.dir.clone(), overwrite: args.overwrite, size_max, umask: umasked() };
    let (mut desk, mut left) =
        (RequestQueue::new(rules), RemainingFiles { files: args.once, counted: BTreeSet::new() });
    let mut answers = Answers::default();
    let mut watchdog = Watchdog::start();
    tokio::pin!(stop);
    loop {
        let told = tokio::select! {
            _ = &mut stop => return Ok(()),
            () = watchdog.due() => {
                watchdog.works();
                continue;
            }
            e = voice.out.failed() => return Err(e),
            received = endpoint.recv() => {
                let message = voice.read(received.map_err(|e| Error::refused("stopped", e.to_string()))?);
                block_in_place(|| message.map_or(Vec::new(), |message| desk.take(message)))
            }
            done = desk.next() => block_in_place(|| desk.settle(done)),
            () = answers.next() => continue,
        };
        for Reply { to, from, said, verdict } in told {
            let is_enough = verdict == Verdict::Stored && left.is_last(&said);
            answers.give(&to, from, said.file, verdict.clone());
            voice.tell(from.key, &said, &verdict)?;
            if is_enough {
                // The last answers are to get there, unless somebody is in a hurry.
                tokio::select! {
                    _ = &mut stop => {}
                    _ = tokio::time::timeout(FAREWELL_MAX, answers.all()) => {}
                }
                return Ok(());
            }
        }
    }
}

/// How many files are to be stored before it ends, and those that were: a sender may ask about one again.
struct RemainingFiles {
    files: Option<u64>,
    counted: BTreeSet<(String, [u8; 32])>,
}

impl RemainingFiles {
    /// Whether this file, which is there now, is the last.
    fn is_last(&mut self, said: &Announcement) -> bool {
        let Some(left) = self.files.as_mut().filter(|_| !said.is_dir()) else { return false };
        *left -= u64::from(self.counted.insert((said.name.clone(), *said.hash.as_bytes())));
        *left == 0
    }
}

fn counted(counts: &Mutex<ReceiveCounts>) -> MutexGuard<'_, ReceiveCounts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Output of a running receiver. A stalled reader delays nothing.
struct ReceiveLog {
    /// Senders whose keys are not listed are let in.
    is_open: bool,
    counts: Arc<Mutex<ReceiveCounts>>,
    json: bool,
    out: BackgroundWriter,
    err: BackgroundWriter,
}

impl ReceiveLog {
    /// Says where we are, and how to send to us.
    fn announce(&mut self, args: &Recv, endpoint: &AtpEndpoint, metrics: Option<SocketAddr>) -> Result {
        let (listen, key) = (endpoint.local_addr(), endpoint.public_key().to_string());
        if self.json {
            self.out.print(stdio::json_line(&Ready { listen, key, metrics })?);
            return Ok(());
        }
        let to = match listen.ip().is_unspecified() {
            true => format!("HOST:{}", listen.port()),
            false => listen.to_string(),
        };
        let dir = args.dir.display();
        self.out
            .print(format!("receiving into {dir} on {listen}; public key {key}\nremora send FILE... {to} --key {key}"));
        if let Some(metrics) = metrics {
            self.out.print(endpoint::notice(metrics));
        }
        Ok(())
    }

    /// What an object says, if it is one of ours.
    fn read(&mut self, received: Received) -> Option<Message<Remote>> {
        // One whose connection is over already cannot be answered either.
        let key = received.from.key()?;
        let from = match self.is_open {
            true => {
                let status = received.from.status().ok()?;
                Holder::stranger(key, status.came_from.unwrap_or(status.addr))
            }
            false => Holder { key, host: None },
        };
        match Announcement::read(received.object) {
            Ok((said, data)) => Some(Message { to: received.from, from, said, data }),
            Err(e) => {
                counted(&self.counts).malformed += 1;
                let why = escape::printable(e.to_string().as_bytes());
                self.err.print(format!("remora: recv: an object of {key} is {why}"));
                None
            }
        }
    }

    fn tell(&mut self, from: PublicKey, said: &Announcement, verdict: &Verdict) -> Result {
        let (outcome, why) = match verdict {
            Verdict::Missing { .. } | Verdict::Waits => return Ok(()),
            Verdict::Stored if said.is_dir() => return Ok(()),
            Verdict::Stored => ("stored", None),
            Verdict::Refused { why } => ("refused", Some(why.as_str())),
        };
        let mut counts = counted(&self.counts);
        match why {
            None => (counts.stored, counts.stored_bytes) = (counts.stored + 1, counts.stored_bytes + said.size),
            Some(_) => counts.refused += 1,
        }
        drop(counts);
        let (name, size) = (escape::printable(said.name.as_bytes()), units::human(said.size));
        match why {
            _ if self.json => {
                let line =
                    ReceivedFileRecord { file: &said.name, from: from.to_string(), outcome, why, bytes: said.size };
                self.out.print(stdio::json_line(&line)?);
            }
            None => self.out.print(format!("{name}: {size} from {from}")),
            Some(why) => self.err.print(format!("remora: recv: {name}, {size} from {from}: refused: {why}")),
        }
        self.report_dropped()
    }

    /// Says how many lines were not read in time.
    fn report_dropped(&mut self) -> Result {
        self.err.report_dropped(|lines| DroppedLines::line(false, lines))?;
        self.out.report_dropped(|lines| DroppedLines::line(self.json, lines))
    }
}

/// The answers that have not reached their senders yet.
#[derive(Default)]
struct Answers {
    under_way: JoinSet<()>,
    to: BTreeMap<Id, Holder>,
}

impl Answers {
    /// Sends an answer, unless too many to this sender are under way: then it does not read them.
    fn give(&mut self, to: &Remote, holder: Holder, file: u32, verdict: Verdict) {
        if Census::of(self.to.values().copied()).shortage(ANSWERS, holder).is_some() {
            return;
        }
        let options = Options { priority: Priority::HIGH, ..Options::default() };
        let object = Answer::new(file, verdict).object().ok();
        // A sender that is gone gets no answer; it will ask again.
        let Some(request) = object.and_then(|object| to.send(object, options).ok()) else { return };
        let task = self.under_way.spawn(async move {
            let _ = request.await;
        });
        self.to.insert(task.id(), holder);
    }

    /// Waits until one has got there, or cannot.
    async fn next(&mut self) {
        match self.under_way.join_next_with_id().await {
            Some(Ok((id, ()))) => drop(self.to.remove(&id)),
            Some(Err(e)) => drop(self.to.remove(&e.id())),
            None => std::future::pending().await,
        }
    }

    /// Waits until all have.
    async fn all(&mut self) {
        while self.under_way.join_next().await.is_some() {}
    }
}
