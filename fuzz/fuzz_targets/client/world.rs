//! The client, the program above it that copies, and what is under way between it and the server.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Core, Path, Peer, Time};
use remora_client::{
    Answer, BlockSize, CallFailure, CallId, Client, ClientConfig, ClientEvent, Download, Piece, Request, RetryPolicy,
    Transport, Upload, WindowSize,
};
use remora_wire::nfs3::{Call, Fh, Reply};

use crate::server::{ALL, Disk, READ_SIZE, WRITE_SIZE, content};

/// Calls of the program at a time.
const FLYING_MAX: usize = 24;
/// The most that it asks for at once, in bytes.
const BLOCK_MAX: u32 = 1 << 20;
/// Calls under way; more are lost.
const UNDER_MAX: usize = 256;
/// Answers kept to be given once more.
const OLD_MAX: usize = 64;

/// What the program waits for.
enum Job {
    Read(Piece),
    Write(Piece),
    Commit,
    Other,
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) client: Client,
    pub(crate) server: Peer,
    pub(crate) disk: Disk,
    /// The server has said nothing but the truth.
    pub(crate) honest: bool,
    jobs: BTreeMap<CallId, Job>,
    /// The copies; `None`: given up.
    down: Option<Download>,
    up: Option<Upload>,
    got: Vec<bool>,
    /// On their way to the server.
    under: Vec<Bytes>,
    /// Answers that were given.
    old: Vec<Bytes>,
}

/// Of the file, whichever.
pub(crate) fn fh() -> Fh {
    Fh(Bytes::from_static(b"file"))
}

fn config(setup: u8) -> ClientConfig {
    let transport = [Transport::Udp, Transport::Udp, Transport::Tcp, Transport::Atp][usize::from(setup & 3)];
    let mut config = match setup >> 2 & 3 {
        0 | 1 => ClientConfig::new(transport),
        2 => ClientConfig { transport, ..ClientConfig::paper() },
        _ => ClientConfig { transport, ..ClientConfig::stock() },
    };
    if setup & 0x10 != 0 {
        config.block = BlockSize::Fixed(8192);
    }
    if setup & 0x20 != 0 {
        config.window = WindowSize::Fixed(3);
    }
    if setup & 0x40 != 0 {
        config.retry = RetryPolicy::Adaptive;
    }
    if setup & 0x80 != 0 {
        config.give_up = Some(Duration::from_secs(30));
    }
    config
}

impl World {
    pub(crate) fn new(setup: u8) -> World {
        let config = config(setup);
        let addr = ([127, 0, 0, 1], 2049).into();
        let server = if config.transport == Transport::Udp { Peer::datagram(addr) } else { Peer::stream(addr, 1) };
        let mut world = World {
            now: Time::ZERO,
            client: Client::new(config, server, u64::from(setup), Time::ZERO),
            server,
            disk: Disk::new(),
            honest: true,
            jobs: BTreeMap::new(),
            down: Some(Download::new(fh(), 0..READ_SIZE)),
            up: Some(Upload::new(fh(), 0..WRITE_SIZE)),
            got: vec![false; READ_SIZE as usize],
            under: Vec::new(),
            old: Vec::new(),
        };
        world.connect();
        world
    }

    fn has_connection(&self) -> bool {
        self.server.path != Path::Datagram
    }

    /// There is a connection.
    pub(crate) fn connect(&mut self) {
        if self.has_connection() {
            self.client.connected(self.now, self.server);
        }
    }

    /// The connection breaks, with all that was under way; there may be another at once.
    pub(crate) fn disconnect(&mut self, again: bool) {
        if self.has_connection() {
            self.client.disconnected(self.now);
            self.under.clear();
            if again {
                self.connect();
            }
        }
    }

    /// One of the calls under way, which is so no more.
    pub(crate) fn pick(&mut self, what: u8) -> Option<Bytes> {
        let n = self.under.len();
        (n > 0).then(|| self.under.remove(usize::from(what) % n))
    }

    pub(crate) fn give(&mut self, answer: Bytes) {
        if self.old.len() < OLD_MAX {
            self.old.push(answer.clone());
        }
        self.client.handle_input(self.now, self.server, answer);
    }

    /// An answer that was given comes again.
    pub(crate) fn give_old(&mut self, what: u8) {
        if !self.old.is_empty() {
            let answer = self.old[usize::from(what) % self.old.len()].clone();
            self.client.handle_input(self.now, self.server, answer);
        }
    }

    /// A call beside the copies.
    pub(crate) fn ask(&mut self, call: Call) {
        if self.jobs.len() < 2 * FLYING_MAX {
            self.submit(call, Job::Other);
        }
    }

    /// Whether the client takes it.
    fn submit(&mut self, call: Call, job: Job) -> bool {
        let id = self.client.submit(self.now, Request::Nfs(call)).ok();
        id.map(|id| self.jobs.insert(id, job)).is_some()
    }

    /// Asks for as much as there is room for, as a program that copies does.
    fn pump(&mut self) {
        while self.jobs.len() < FLYING_MAX && self.client.room() > 0 {
            if !self.read_on().or_else(|| self.write_on()).unwrap_or(false) {
                return;
            }
        }
    }

    /// Whether the client took it; `None`: there is nothing to ask for.
    fn read_on(&mut self) -> Option<bool> {
        let block = self.client.read_block(BLOCK_MAX).max(1);
        let (piece, call) = self.down.as_mut()?.poll(block)?;
        let taken = self.submit(call, Job::Read(piece.clone()));
        if !taken {
            self.down.as_mut()?.put_back(piece);
        }
        Some(taken)
    }

    fn write_on(&mut self) -> Option<bool> {
        let up = self.up.as_mut()?;
        up.sync_tail(self.client.sync_tail());
        let block = self.client.write_block(up.fh(), BLOCK_MAX).max(1);
        let Some(piece) = up.poll(block) else {
            let call = up.poll_commit()?;
            let taken = self.submit(call, Job::Commit);
            if !taken {
                self.up = None;
            }
            return Some(taken);
        };
        let call = up.write(piece.start, content(piece.clone()));
        let taken = self.submit(call, Job::Write(piece.clone()));
        if !taken {
            self.up.as_mut()?.put_back(piece);
        }
        Some(taken)
    }

    /// Lets the client come to rest at this moment.
    pub(crate) fn settle(&mut self) {
        for _ in 0..2_000 {
            self.pump();
            let mut quiet = true;
            if self.client.poll_timeout().is_some_and(|at| at <= self.now) {
                self.client.handle_timeout(self.now);
            }
            while let Some(transmit) = self.client.poll_transmit(self.now) {
                quiet = false;
                if self.under.len() < UNDER_MAX {
                    self.under.push(transmit.payload);
                }
            }
            while let Some(ClientEvent::Done { id, result }) = self.client.poll_event() {
                quiet = false;
                let job = self.jobs.remove(&id).expect("a call ends once");
                self.done(job, result);
            }
            if quiet {
                return;
            }
        }
        panic!("no end of it");
    }

    /// Handles the end of a call. A copy ends at the first nonsensical reply.
    fn done(&mut self, job: Job, result: Result<Answer, CallFailure>) {
        match (job, result) {
            (Job::Read(piece), Err(_)) => self.down.iter_mut().for_each(|down| down.put_back(piece.clone())),
            (Job::Read(piece), Ok(Answer::Nfs(Reply::Read(Ok(ok))))) => {
                let Some(down) = &mut self.down else { return };
                match down.on_read(piece.clone(), ok) {
                    Ok(bytes) => self.read(&piece, &bytes),
                    Err(_) => self.down = None,
                }
            }
            (Job::Read(_), Ok(_)) => self.down = None,
            (Job::Write(piece), Err(_)) => self.up.iter_mut().for_each(|up| up.put_back(piece.clone())),
            (Job::Write(piece), Ok(Answer::Nfs(Reply::Write(Ok(ok))))) => {
                self.up.take_if(|up| up.on_write(piece.clone(), &ok).is_err());
            }
            (Job::Commit, Ok(Answer::Nfs(Reply::Commit(Ok(ok))))) => {
                self.up.take_if(|up| up.on_commit(&ok).is_err());
            }
            (Job::Write(_) | Job::Commit, _) => self.up = None,
            (Job::Other, _) => {}
        }
    }

    fn read(&mut self, piece: &Piece, bytes: &Bytes) {
        let end = piece.start + bytes.len() as u64;
        assert!(end <= piece.end, "more than was asked for");
        assert!(!self.honest || *bytes == content(piece.start..end), "other bytes than the file's");
        self.got[piece.start as usize..end as usize].fill(true);
    }

    fn is_done(&self) -> bool {
        self.down.as_ref().is_none_or(Download::is_done) && self.up.as_ref().is_none_or(Upload::is_done)
    }

    /// The network is good from now on, and the server honest: both copies must come to their end.
    pub(crate) fn heal(&mut self) {
        self.disconnect(true);
        for _ in 0..3_000 {
            self.settle();
            if self.is_done() {
                break;
            }
            if self.under.is_empty() {
                let at = self.client.poll_timeout().expect("a client that waits for something has a timer");
                self.now = self.now.max(at);
                continue;
            }
            self.now += Duration::from_millis(1);
            while let Some(call) = self.pick(0) {
                let reply = self.disk.answer(&call, ALL);
                self.client.handle_input(self.now, self.server, reply);
            }
        }
        assert!(self.is_done(), "it does not go on");
        if self.honest {
            assert!(self.down.is_none() || self.got.iter().all(|there| *there), "bytes are missing");
            assert!(self.up.is_none() || self.disk.is_stable(), "bytes are not stable");
        }
    }
}
