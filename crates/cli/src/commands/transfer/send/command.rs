//! `remora send`: files as ATP objects, with priorities and deadlines.

use std::io;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use remora_atp::session::{Identity, Refusal};
use remora_host::atp::{AtpEndpoint, AtpError, EndpointSettings, Remote};
use remora_host::clock;
use serde::Serialize;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinSet, block_in_place, spawn_blocking};
use tokio::time::timeout;

use crate::commands::transfer::send::answer_timeout::UnansweredBytes;
use crate::commands::transfer::send::failure::{Failure, Kind};
use crate::commands::transfer::send::file_transfer::{Sent, TransferContext};
use crate::commands::transfer::send::flags::Send;
use crate::commands::transfer::send::sources::{Source, Sources, Unsent};
use crate::commands::transfer::send::{answers, file_transfer, sources};
use crate::commands::transfer::transfer_protocol::PART_MAX;
use crate::config::{address, units};
use crate::cp::ui::progress::Progress;
use crate::interrupt;
use crate::output::exit::{Error, Result};
use crate::output::{escape, stdio};

/// Memory for parts, in KiB: two of the largest, less than a receiver buffers per peer.
const ROOM_KIB: usize = 2 * (PART_MAX >> 10) as usize;
/// Files sent concurrently, each with an open descriptor.
const FILES_AT_ONCE: usize = 32;
/// Queued answers, and their bytes.
const RECEIVED_MAX: usize = 256;
const RECEIVED_BYTES_MAX: usize = 1 << 20;
/// Limit for cleanup and messages after an interruption.
const TIDY_MAX: Duration = Duration::from_millis(500);

const UNHEARD: &str = "hint: check that remora recv runs there on this port, and that UDP passes";
const FULL: &str = "hint: the receiver has its maximum number of senders; try again later";

/// What `--json` prints of each file.
#[derive(Serialize)]
struct SentFileRecord<'a> {
    file: &'a str,
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    bytes: u64,
    kept_bytes: u64,
    seconds: f64,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Outcome {
    Failed(Kind),
    /// It was not for it to fail: `stored` or `cancelled`.
    Ended(&'static str),
}

/// State that the handler of an interruption needs.
#[derive(Default)]
struct Interruptible {
    endpoint: OnceLock<AtpEndpoint>,
    /// Files without a reported outcome, in the order of the command line.
    untold: Mutex<Vec<String>>,
}

impl Interruptible {
    fn tell(&self, name: &str) {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner).retain(|untold| untold != name);
    }

    /// Takes the names of the files without a reported outcome; the caller reports them.
    fn take_untold(&self) -> Vec<String> {
        std::mem::take(&mut self.untold.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(crate) async fn run(args: Send) -> Result {
    let (started, json) = (Instant::now(), args.json);
    let stop = interrupt::catch();
    let now = Arc::new(Interruptible::default());
    // On a task of its own: names may take long to be looked up, and what is printed to be read.
    let mut work = tokio::spawn(send(args, started, now.clone()));
    let result = tokio::select! {
        result = &mut work => result.unwrap_or_else(|e| Err(Error::refused("remora", e.to_string()))),
        number = stop => {
            // What is on its way is cancelled as its owners are dropped.
            work.abort();
            let _ = timeout(TIDY_MAX, work).await;
            let now = now.clone();
            let _ = timeout(TIDY_MAX, spawn_blocking(move || cancelled(json, &now.take_untold(), started))).await;
            Err(Error::Interrupted(number))
        }
    };
    if let Some(endpoint) = now.endpoint.get() {
        endpoint.close().await;
    }
    result
}

async fn send(args: Send, started: Instant, now: Arc<Interruptible>) -> Result {
    let Some((to, paths)) = args.paths.split_last().filter(|(_, paths)| !paths.is_empty()) else {
        return Err(Error::Usage("files and receiver are missing: remora send FILE... HOST:PORT".into()));
    };
    let to = to.to_string_lossy();
    let to = to.strip_prefix("atp://").unwrap_or(&to).trim_end_matches('/');
    let Sources { files, dirs, unsent, .. } = block_in_place(|| sources::find(paths, args.name.as_deref()))?;
    now.untold.lock().unwrap_or_else(PoisonError::into_inner).extend(files.iter().map(|file| file.name.clone()));
    let identity = block_in_place(|| args.peer.identity());
    let resolved = block_in_place(|| address::resolve_all(to, || no_receiver(to)));
    if let Err(e @ Error::Usage(_)) = resolved {
        return Err(e);
    }
    let given = files.len();
    for Unsent { name, why } in &unsent {
        show(&args, name, &Err(why.clone()), Duration::ZERO)?;
    }
    let mut sources = block_in_place(|| readable(&args, files, &now))?;
    let all_sent = unsent.is_empty() && sources.len() == given;
    sources.extend(dirs);
    let (identity, addrs) = match identity.and_then(|identity| Ok((identity, resolved?.1))) {
        Ok(both) => both,
        Err(e) => return none_tried(&args, &sources, e, started, &now),
    };
    if sources.is_empty() {
        return and_others(Ok(()), all_sent);
    }
    let endpoint = bind(&addrs, identity)?;
    // It is the first.
    let _ = now.endpoint.set(endpoint.clone());
    let result = match connect(&args, &endpoint, &addrs, started).await {
        Ok(remote) => send_all(&args, &endpoint, remote, sources, started, &now).await,
        Err(why) => none_sent(&args, to, &sources, &why, started, &now),
    };
    and_others(result, all_sent)
}

/// Opens the sources; reports those that cannot be opened at once.
fn readable(args: &Send, sources: Vec<Source>, now: &Interruptible) -> Result<Vec<Source>> {
    let mut readable = Vec::new();
    for mut source in sources {
        match source.prepare() {
            Ok(()) => readable.push(source),
            Err(why) => {
                now.tell(&source.name);
                show(args, &source.name, &Err(why), Duration::ZERO)?;
            }
        }
    }
    Ok(readable)
}

/// Reports the cancelled files as JSON.
fn cancelled(json: bool, untold: &[String], started: Instant) -> Result {
    let seconds = started.elapsed().as_secs_f64();
    let why = Some("interrupted");
    for file in untold.iter().filter(|_| json) {
        printed(stdio::print_json(&SentFileRecord {
            file,
            outcome: Outcome::Ended("cancelled"),
            why,
            bytes: 0,
            kept_bytes: 0,
            seconds,
        }))?;
    }
    Ok(())
}

/// Files are sent, and how that went is what counts, whether or not somebody reads of it.
fn printed(result: Result) -> Result {
    match result {
        Err(Error::Pipe) => Ok(()),
        result => result,
    }
}

/// How it went in all, where some files could not even be tried.
fn and_others(result: Result, all_tried: bool) -> Result {
    match result {
        Ok(()) if !all_tried => Err(Error::Reported(Kind::Refused.code())),
        result => result,
    }
}

fn no_receiver(to: &str) -> String {
    format!("the last argument must be the receiver, such as host.example.net:4100; {to} is not")
}

fn bind(to: &[SocketAddr], identity: Identity) -> Result<AtpEndpoint> {
    let settings = EndpointSettings {
        received_max: RECEIVED_MAX,
        received_bytes_max: RECEIVED_BYTES_MAX,
        ..EndpointSettings::sender()
    };
    AtpEndpoint::bind_towards(to, settings, identity).map_err(Error::endpoint)
}

/// Turns to the receiver; says who we are if it does not know us.
async fn connect(
    args: &Send,
    endpoint: &AtpEndpoint,
    addrs: &[SocketAddr],
    started: Instant,
) -> Result<Remote, Failure> {
    let refused = |why: String| Failure::new(Kind::Refused, why);
    let up = async {
        let remote = endpoint.connect_any(addrs, args.peer.key).await?;
        remote.up().await.map(|()| remote)
    };
    let timeout = args.peer.timeout();
    let left = args.deadline.map_or(Duration::MAX, |deadline| deadline.saturating_sub(started.elapsed()));
    // The deadline is a moment of the world; silence is time in which this process could have heard something.
    let Ok(heard) = tokio::time::timeout(left, clock::timeout(timeout, up)).await else {
        return Err(Failure::new(Kind::Expired, "the deadline passed before the receiver answered"));
    };
    let Ok(answer) = heard else {
        let why = format!("no answer for {} s", timeout.as_secs_f64());
        return Err(Failure::new(Kind::Lost, why).with_hint(UNHEARD));
    };
    match answer {
        Ok(remote) => Ok(remote),
        Err(AtpError::Refused(Refusal::WrongKey)) => Err(refused("the receiver has another key than --key".into())),
        Err(AtpError::Refused(Refusal::NotAdmitted)) => Err(refused(file_transfer::not_let_in(endpoint.public_key()))),
        Err(e @ AtpError::Refused(Refusal::Silent)) => Err(Failure::new(Kind::Lost, e.to_string()).with_hint(UNHEARD)),
        Err(e @ AtpError::Refused(Refusal::Full)) => Err(Failure::new(Kind::Lost, e.to_string()).with_hint(FULL)),
        Err(AtpError::Refused(why @ Refusal::Mtu { .. })) => Err(refused(why.to_string())),
        Err(AtpError::Connect(e)) => Err(refused(e.to_string())),
        Err(e) => Err(Failure::new(Kind::Lost, e.to_string())),
    }
}

/// Reports to programs that no file was sent, and returns the error.
fn none_tried(args: &Send, sources: &[Source], e: Error, started: Instant, now: &Interruptible) -> Result {
    let kind = if e.code() == Kind::Lost.code() { Kind::Lost } else { Kind::Refused };
    none_of(args, sources, &Failure::new(kind, e.to_string()), started, now)?;
    Err(e)
}

/// Reports that the receiver did not answer: once as text, per file as JSON.
fn none_sent(
    args: &Send,
    to: &str,
    sources: &[Source],
    why: &Failure,
    started: Instant,
    now: &Interruptible,
) -> Result {
    block_in_place(|| {
        stdio::print_error("send", &Error::refused(to, why.why.as_str()));
        why.hint.into_iter().for_each(stdio::eprint);
    });
    none_of(args, sources, why, started, now)?;
    Err(Error::Reported(why.kind.code()))
}

/// Prints the failure of each file as JSON.
fn none_of(args: &Send, sources: &[Source], why: &Failure, started: Instant, now: &Interruptible) -> Result {
    let seconds = started.elapsed().as_secs_f64();
    for Source { name, .. } in sources.iter().filter(|source| args.json && !source.is_dir()) {
        let (outcome, why) = (Outcome::Failed(why.kind), Some(why.why.as_str()));
        now.tell(name);
        printed(stdio::print_json(&SentFileRecord { file: name, outcome, why, bytes: 0, kept_bytes: 0, seconds }))?;
    }
    Ok(())
}

/// Sends all files, several concurrently; the scheduler orders them by priority.
async fn send_all(
    args: &Send,
    endpoint: &AtpEndpoint,
    remote: Remote,
    sources: Vec<Source>,
    started: Instant,
    now: &Interruptible,
) -> Result {
    let progress = Arc::new(Progress::new(!args.quiet && !args.json));
    let (tell, silent) = watch::channel(None);
    let lane = TransferContext {
        remote,
        key: endpoint.public_key(),
        priority: args.priority,
        deadline: args.deadline.and_then(|d| started.checked_add(d)),
        part: args.part,
        room: Arc::new(Semaphore::new(ROOM_KIB)),
        silent,
        unanswered: UnansweredBytes::default(),
        progress: progress.clone(),
        full: (!args.quiet).then(|| Arc::new(Once::new())),
    };
    let on_way = answers::AnswerRouter::default();
    let mut aside = JoinSet::new();
    aside.spawn(answers::answers(endpoint.clone(), on_way.clone()));
    aside.spawn(answers::weather(endpoint.clone(), lane.remote.id(), tell, progress.clone(), args.quiet));
    let mut under_way = JoinSet::new();
    let (mut worst, mut rank) = (0, usize::MAX);
    for (number, source) in (0..).zip(sources) {
        // A directory gets its time when nothing more comes into it.
        let next = std::mem::replace(&mut rank, source.rank());
        while (under_way.len() >= FILES_AT_ONCE || rank < next && !under_way.is_empty())
            && let Some(done) = under_way.join_next().await
        {
            worst = report(args, &progress, now, done)?.max(worst);
        }
        progress.expect(if source.is_dir() {
            0
        } else {
            source.open().and_then(|f| f.metadata()).map_or(0, |m| m.len())
        });
        let (lane, name, verdicts) = (lane.clone(), source.name.clone(), on_way.add(number));
        under_way.spawn(async move {
            let began = Instant::now();
            (name, file_transfer::ship(lane, source, number, verdicts).await, began.elapsed())
        });
    }
    while let Some(done) = under_way.join_next().await {
        worst = report(args, &progress, now, done)?.max(worst);
    }
    if worst == 0 { Ok(()) } else { Err(Error::Reported(worst)) }
}

type Done = (String, Result<Sent, Failure>, Duration);

/// Says what became of a file; the exit code it stands for.
fn report(
    args: &Send,
    progress: &Progress,
    now: &Interruptible,
    done: Result<Done, tokio::task::JoinError>,
) -> Result<u8> {
    let (name, end, took) = done.map_err(|e| Error::refused("remora", e.to_string()))?;
    now.tell(&name);
    let code = end.as_ref().map_or_else(|e| e.kind.code(), |_| 0);
    let mut shown = Ok(());
    let mut print = || shown = show(args, &name, &end, took);
    // What goes to a file or a pipe tears no bar.
    if end.is_err() || io::stdout().is_terminal() {
        progress.suspend(print)
    } else {
        print()
    }
    shown.map(|()| code)
}

fn show(args: &Send, name: &str, end: &Result<Sent, Failure>, took: Duration) -> Result {
    printed(block_in_place(|| show_end(args, name, end, took)))
}

fn show_end(args: &Send, name: &str, end: &Result<Sent, Failure>, took: Duration) -> Result {
    let (bytes, kept_bytes) = end.as_ref().map_or((0, 0), |sent| (sent.bytes, sent.kept));
    let (outcome, why) = match end {
        Ok(_) if name.ends_with('/') => return Ok(()),
        Ok(sent) if !args.json => return tell(name, sent, took),
        Err(e) if !args.json => {
            stdio::eprint(format_args!("remora: send: {}: {}", escape::printable(name.as_bytes()), e.why));
            return Ok(());
        }
        Ok(_) => (Outcome::Ended("stored"), None),
        Err(e) => (Outcome::Failed(e.kind), Some(e.why.as_str())),
    };
    stdio::print_json(&SentFileRecord { file: name, outcome, why, bytes, kept_bytes, seconds: took.as_secs_f64() })
}

fn tell(name: &str, sent: &Sent, took: Duration) -> Result {
    let kept = match sent.kept {
        0 => String::new(),
        kept => format!(", {} were already there", units::human(kept)),
    };
    let name = escape::printable(name.as_bytes());
    stdio::print(&format!("{name}: stored, {} in {:.1} s{kept}\n", units::human(sent.bytes), took.as_secs_f64()))
}
