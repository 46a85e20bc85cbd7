//! Received files: checked, assembled under temporary names, renamed when complete. Long work is handed out as a
//! [`BackgroundJob`].

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use tokio::time::Instant;

use crate::commands::transfer::recv::background_jobs::{BackgroundJob, Found};
use crate::commands::transfer::recv::refusal::{Refusal, TAKEN, refusal};
use crate::commands::transfer::recv::storage::hash_cache::{HashCache, Stamp};
use crate::commands::transfer::recv::storage::partial_file::{Finish, PartialFile};
use crate::commands::transfer::recv::storage::quota::Owner;
use crate::commands::transfer::recv::storage::quota::{Census, Holder, Limits, Session};
use crate::commands::transfer::recv::storage::received_names::GivenNames;
use crate::commands::transfer::recv::storage::target_tree::{Target, Tree, check_name};
use crate::commands::transfer::transfer_protocol::{ASK_FROM, Announcement, Verdict};
use crate::config::units::human;
use crate::output::escape;

/// Most partial files at once, each with one or two descriptors. `remora send` has 32 in flight.
pub(crate) const PLACES: Limits = Limits { of_key: 32, of_host: 64, all: 256 };
/// A partial file that is silent for this long yields to a sender with fewer files. A stranger's file yields at once
/// to another host with fewer, because idle bytes cost a stranger nothing.
const SILENT: Duration = Duration::from_secs(10);
/// After this time a silent partial file yields to any sender.
const STALE: Duration = Duration::from_secs(600);
/// Larger files are hashed by a background job.
pub(crate) const AT_ONCE_MAX: u64 = 1 << 20;
/// Most files with a background job, running or queued.
const ASIDE: Limits = Limits { of_key: 16, of_host: 32, all: 128 };

/// What the receiver accepts.
#[derive(Clone, Debug)]
pub(crate) struct ReceivePolicy {
    pub(crate) dir: PathBuf,
    /// Whether files of the same name are replaced.
    pub(crate) overwrite: bool,
    /// The largest file, in bytes.
    pub(crate) size_max: u64,
    /// Permission bits that no file gets.
    pub(crate) umask: u32,
}

/// The received files. Removes partial files on drop.
#[derive(Debug)]
pub(crate) struct Store {
    rules: ReceivePolicy,
    tree: Tree,
    unfinished: BTreeMap<Owner, PartialFile>,
    /// Files with a background job; other requests for them wait.
    aside: BTreeMap<Owner, BusyFile>,
    known: HashCache,
    /// Hashes of files stored in this run. They are trusted without a settling time.
    placed: HashCache,
    /// A place may have become free since the last call of `has_room`.
    has_room: bool,
    /// Names of the files stored in this run.
    given: GivenNames,
}

/// A file with a background job.
#[derive(Debug)]
struct BusyFile {
    from: Holder,
    session: Arc<dyn Session>,
    said: Announcement,
    /// It holds a place: it was a partial file, or may become one.
    has_place: bool,
}

/// The result of taking an object.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send this answer; with `None` more parts are expected.
    Answer(Option<Verdict>),
    /// Run this job and settle its result.
    Background(Box<BackgroundJob>),
    /// A background job has the file; wait for it.
    Wait,
    /// No place is free; repeat the request later.
    Queue,
}

/// Whether the announced file is stored already.
enum Presence {
    No,
    Yes,
    /// Unknown until a background job has hashed the existing file of that name.
    Perhaps,
}

impl Store {
    pub(crate) fn new(rules: ReceivePolicy) -> Store {
        Store {
            tree: Tree::new(rules.dir.clone(), rules.umask),
            rules,
            unfinished: BTreeMap::new(),
            aside: BTreeMap::new(),
            known: HashCache::default(),
            placed: HashCache::default(),
            has_room: false,
            given: GivenNames::default(),
        }
    }

    /// Handles an announcement and its data.
    pub(crate) fn take(&mut self, from: Holder, session: Arc<dyn Session>, said: &Announcement, data: &[u8]) -> Step {
        if said.is_dir() {
            return Step::Answer(Some(self.take_dir(from, said, data)));
        }
        let owner = (from.key, said.name.clone());
        if self.aside.contains_key(&owner) {
            return Step::Wait;
        }
        self.add(from, session, said, data).unwrap_or_else(|why| {
            self.forget(&owner);
            Step::Answer(Some(Verdict::Refused { why }))
        })
    }

    /// Creates an announced directory.
    fn take_dir(&mut self, from: Holder, said: &Announcement, data: &[u8]) -> Verdict {
        let name = said.name.strip_suffix('/').unwrap_or_default();
        let is_bare = said.size == 0 && data.is_empty();
        let bare = if is_bare { Ok(()) } else { Err("a directory has no bytes".to_owned()) };
        let made = bare.and_then(|()| check_name(name)).and_then(|()| self.tree.make_dir(from, name, said.kept));
        made.map_or_else(|why| Verdict::Refused { why }, |()| Verdict::Stored)
    }

    /// Whether something has ended since the last call that others may have waited for.
    pub(crate) fn has_room(&mut self) -> bool {
        std::mem::take(&mut self.has_room)
    }

    fn forget(&mut self, owner: &Owner) -> Option<PartialFile> {
        let forgotten = self.unfinished.remove(owner);
        self.has_room |= forgotten.is_some();
        forgotten
    }

    /// The announcement whose background job runs for `owner`.
    pub(crate) fn worked_on(&self, owner: &Owner) -> Option<&Announcement> {
        self.aside.get(owner).map(|aside| &aside.said)
    }

    /// Handles the result of a background job; returns the answer.
    pub(crate) fn settle(&mut self, owner: &Owner, found: Found) -> Verdict {
        let Some(BusyFile { from, session, said, .. }) = self.aside.remove(owner) else {
            return Verdict::Refused { why: "the receiver does not know this file".into() };
        };
        self.has_room = true;
        let settled = match found {
            Found::Finished(done) => done.map(|meta| {
                if let Some(meta) = meta {
                    self.placed.insert(Stamp::of(&meta), said.hash);
                    self.given.note(&meta, &said.name);
                }
                Verdict::Stored
            }),
            Found::Looked(looked) => self.looked(from, session, &said, looked),
        };
        settled.unwrap_or_else(|why| Verdict::Refused { why })
    }

    /// A file of this name and size was hashed, or could not be. If it is another, the new one takes the place that was
    /// held for it aside.
    fn looked(
        &mut self,
        from: Holder,
        session: Arc<dyn Session>,
        said: &Announcement,
        looked: io::Result<(Stamp, blake3::Hash, SystemTime)>,
    ) -> Result<Verdict, Refusal> {
        let there = looked.ok().is_some_and(|(stamp, hash, began)| {
            self.known.note(stamp, hash, began);
            // What took its place meanwhile is another.
            let now = self.metadata(&said.name).filter(|now| hash == said.hash && Stamp::of(now) == stamp);
            now.as_ref().into_iter().for_each(|now| self.given.note(now, &said.name));
            now.is_some()
        });
        if there {
            return Ok(Verdict::Stored);
        }
        self.may_replace()?;
        self.begin(from, session, said)?;
        Ok(Verdict::Missing { missing: vec![(0, said.size)] })
    }

    fn add(
        &mut self,
        from: Holder,
        session: Arc<dyn Session>,
        said: &Announcement,
        data: &[u8],
    ) -> Result<Step, Refusal> {
        let place = span(said, data.len())?;
        let owner = &(from.key, said.name.clone());
        let goes_on = |u: &PartialFile| (u.size, u.hash) == (said.size, said.hash);
        let is_new = !self.unfinished.get(owner).is_some_and(goes_on);
        if is_new {
            self.forget(owner);
            check_name(&said.name)?;
            match self.is_there(said)? {
                Presence::Yes => return Ok(Step::Answer(Some(Verdict::Stored))),
                Presence::Perhaps if said.at.is_none() => return self.look(from, session, said),
                // Another sender with this key was the first to send all of it.
                Presence::Perhaps if self.was_placed(said) => return Ok(Step::Answer(Some(Verdict::Stored))),
                // Who sends bytes and did not ask finds out when all of it is here.
                Presence::Perhaps | Presence::No => {}
            }
            // What is whole and small is stored at once.
            let is_whole = said.size <= AT_ONCE_MAX && u64::try_from(data.len()) == Ok(said.size);
            if !is_whole && self.make_place(from).is_err() {
                return Ok(Step::Queue);
            }
            self.begin(from, session.clone(), said)?;
        }
        let Some(unfinished) = self.unfinished.get_mut(owner) else { return Ok(Step::Answer(None)) };
        unfinished.touched = Instant::now();
        unfinished.session = session.clone();
        unfinished.write(place, data)?;
        let missing = unfinished.done.missing(said.size);
        if missing.is_empty() {
            return self.finish(from, session, said);
        }
        let missing = missing.into_iter().map(|r| (r.start, r.end)).collect();
        // A part of a file that is not known: it has made room for another, and its sender does not know yet.
        let is_asked = said.at.is_none() || is_new && said.size > ASK_FROM;
        Ok(Step::Answer(is_asked.then_some(Verdict::Missing { missing })))
    }

    fn begin(&mut self, from: Holder, session: Arc<dyn Session>, said: &Announcement) -> Result<(), Refusal> {
        self.check_room(said.size)?;
        let target = self.tree.make(from, &said.name)?;
        let new = PartialFile::create(target.clone(), from, session, said);
        let new = new.map_err(|e| self.why_not(from, &target, &e))?;
        self.unfinished.insert((from.key, said.name.clone()), new);
        Ok(())
    }

    /// Refuses a file that exceeds the limit or the free space.
    fn why_not(&self, from: Holder, target: &Target, e: &io::Error) -> Refusal {
        match self.unfinished.iter().find(|(_, other)| other.is_in_the_way(from, target)) {
            Some(((_, name), _)) => {
                format!("its name is here the same as '{}', which is in transfer", escape::printable(name.as_bytes()))
            }
            None => refusal(e),
        }
    }

    /// Starts a job that hashes the existing file.
    fn look(&mut self, from: Holder, session: Arc<dyn Session>, said: &Announcement) -> Result<Step, Refusal> {
        let target = self.tree.find(&said.name)?.ok_or("its directory was removed")?;
        let held = Census::of(self.aside.values().map(|aside| aside.from));
        if held.shortage(ASIDE, from).is_some() {
            return Ok(Step::Queue);
        }
        // Without --overwrite nothing begins here.
        let has_place = self.rules.overwrite;
        if has_place && self.make_place(from).is_err() {
            return Ok(Step::Queue);
        }
        let owner = (from.key, said.name.clone());
        self.aside.insert(owner, BusyFile { from, session, said: said.clone(), has_place });
        Ok(Step::Background(Box::new(BackgroundJob::look(from, said.name.clone(), target))))
    }

    /// Finishes a complete file.
    fn finish(&mut self, from: Holder, session: Arc<dyn Session>, said: &Announcement) -> Result<Step, Refusal> {
        let owner = (from.key, said.name.clone());
        let Some(whole) = self.forget(&owner) else { return Ok(Step::Answer(None)) };
        let (dress, given) = (self.tree.dress(said.kept), self.given.clone());
        let finish = Finish { dress, overwrite: self.rules.overwrite, given };
        let work = BackgroundJob::finish(from, said.name.clone(), whole, finish);
        self.aside.insert(owner.clone(), BusyFile { from, session, said: said.clone(), has_place: true });
        if said.size > AT_ONCE_MAX {
            return Ok(Step::Background(Box::new(work)));
        }
        let found = work.run(&Default::default());
        Ok(Step::Answer(Some(self.settle(&owner, found))))
    }

    /// Whether this very file is there under its name; another one is in the way.
    fn is_there(&self, said: &Announcement) -> Result<Presence, Refusal> {
        let Some(Target { path, .. }) = &self.tree.find(&said.name)? else { return Ok(Presence::No) };
        let Ok(meta) = fs::symlink_metadata(path) else { return Ok(Presence::No) };
        if meta.is_dir() {
            return Err("a directory has this name".into());
        }
        self.given.check(path, &said.name)?;
        // The answer to an earlier copy may have been lost.
        if meta.is_file() && meta.len() == said.size {
            let hash = match self.known.get(&Stamp::of(&meta)) {
                Some(hash) => Some(hash),
                None if said.size > AT_ONCE_MAX => return Ok(Presence::Perhaps),
                None => crate::commands::transfer::recv::storage::hash_cache::hash_at(path, &Default::default())
                    .ok()
                    .map(|(_, hash)| hash),
            };
            if hash == Some(said.hash) {
                self.given.note(&meta, &said.name);
                return Ok(Presence::Yes);
            }
        }
        self.may_replace().map(|()| Presence::No)
    }

    /// Whether what has the name is this very file, as it was stored.
    fn was_placed(&self, said: &Announcement) -> bool {
        self.stamp(&said.name).is_some_and(|now| self.placed.get(&now) == Some(said.hash))
    }

    /// The state of the file that has the name now.
    fn stamp(&self, name: &str) -> Option<Stamp> {
        self.metadata(name).as_ref().map(Stamp::of)
    }

    fn metadata(&self, name: &str) -> Option<fs::Metadata> {
        let target = self.tree.find(name).ok().flatten()?;
        fs::symlink_metadata(target.path).ok()
    }

    fn may_replace(&self) -> Result<(), Refusal> {
        if self.rules.overwrite { Ok(()) } else { Err(TAKEN.into()) }
    }

    fn check_room(&self, size: u64) -> Result<(), Refusal> {
        if size > self.rules.size_max {
            return Err(format!("it is larger than {}, the receiver's limit", human(self.rules.size_max)));
        }
        // Where the system does not say, the writes will.
        match self.tree.free().filter(|free| size > *free) {
            Some(free) => Err(format!("no space on the receiver's disk: {} are free", human(free))),
            None => Ok(()),
        }
    }

    /// Takes a place for one more unfinished file of this sender: just before the file begins.
    fn make_place(&mut self, from: Holder) -> Result<(), Option<Instant>> {
        if let Some(silent) = self.place_for(from)? {
            self.unfinished.remove(&silent);
        }
        Ok(())
    }

    /// Whether there is a place for one more unfinished file of this sender, and whose file makes room for it if none
    /// is free. If there is no place, says when the next one may be had.
    pub(crate) fn place_for(&self, from: Holder) -> Result<Option<Owner>, Option<Instant>> {
        let aside = self.aside.values().filter(|aside| aside.has_place).map(|aside| aside.from);
        let held = Census::of(self.unfinished.values().map(|u| u.from).chain(aside));
        let Some(shortage) = held.shortage(PLACES, from) else { return Ok(None) };
        let now = Instant::now();
        let due = |u: &PartialFile| match held.outweighs(u.from, from) {
            _ if u.session.has_ended() => now,
            true if u.from.host != from.host => now,
            true => u.touched + SILENT,
            false => u.touched + STALE,
        };
        let candidates = || self.unfinished.iter().filter(|(_, u)| shortage.is_met_by(u.from, from));
        let silent = candidates().filter(|(_, u)| due(u) <= now);
        // Files of ended sessions go first.
        match silent.max_by_key(|(_, u)| (u.session.has_ended(), held.load(u.from), Reverse(u.touched))) {
            Some((owner, _)) => Ok(Some(owner.clone())),
            None => Err(candidates().map(|(_, u)| due(u)).min()),
        }
    }

    /// As if all unfinished files had been heard of last at that time.
    #[cfg(test)]
    pub(crate) fn touch(&mut self, at: Instant) {
        self.unfinished.values_mut().for_each(|u| u.touched = at);
    }
}

/// Where the bytes belong, if that is within the file.
fn span(said: &Announcement, len: usize) -> Result<Range<u64>, Refusal> {
    let Some(at) = said.at else { return Ok(0..0) };
    let end = u64::try_from(len).ok().and_then(|len| at.checked_add(len));
    match end {
        Some(end) if end <= said.size => Ok(at..end),
        _ => Err("a part extends beyond the end of the file".into()),
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
