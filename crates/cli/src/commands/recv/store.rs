//! Files that come in: checked, gathered under hidden names, and given their own when whole. What takes long is
//! handed out, to be done aside ([`Work`]).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use remora_atp::session::PublicKey;

use super::known::{Known, Stamp};
use super::unfinished::Unfinished;
use super::work::{Found, Work};
use crate::cp::names::is_plain;
use crate::exit::io_text;
use crate::out;
use crate::parcel::{Announcement, Verdict};
use crate::units::human;

/// Unfinished files at once, each with an open descriptor.
const UNFINISHED_MAX: usize = 64;
/// After so long without a word an unfinished file makes room for another.
const STALE: Duration = Duration::from_secs(600);
/// The longest name that most file systems take, in bytes.
const NAME_MAX: usize = 255;
/// A larger file is hashed aside, while others are taken.
pub(super) const AT_ONCE_MAX: u64 = 1 << 20;
/// Files of one sender, and of all, that are worked on aside or wait for that.
const ASIDE_OF_ONE_MAX: usize = 64;
const ASIDE_MAX: usize = 512;

/// What is taken.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// Where files go.
    pub(super) dir: PathBuf,
    /// Whether files of the same name are replaced.
    pub(super) overwrite: bool,
    /// The largest file, in bytes.
    pub(super) size_max: u64,
}

/// The files that come in. Dropped, it removes what is unfinished.
#[derive(Debug)]
pub(super) struct Store {
    rules: Rules,
    unfinished: BTreeMap<Owner, Unfinished>,
    /// Those that are worked on aside: nothing else is done about them until that is done.
    aside: BTreeMap<Owner, Aside>,
    known: Known,
    /// Those that were given their names here. They need not have come to rest: it is what was stored that counts.
    placed: Known,
}

/// What is worked on aside.
#[derive(Debug)]
struct Aside {
    said: Announcement,
    /// All of it has come; else a file that is there is looked at.
    finishes: bool,
}

/// What is to be done about an object.
#[derive(Debug)]
pub(super) enum Step {
    /// This is to be answered; if nothing is, more bytes are on their way.
    Answer(Option<Verdict>),
    /// This takes long. What comes of it is to be settled.
    Aside(Work),
    /// The file is worked on, and what comes of that comes first.
    Wait,
}

/// Whether the very file that is announced is there already.
enum There {
    No,
    Yes,
    /// To find out takes long.
    Perhaps,
}

/// Whose file, and its name: two senders may use the same one.
pub(super) type Owner = (PublicKey, String);

/// Why a file is refused, for the sender and for us.
pub(super) type Refusal = String;

impl Store {
    pub(super) fn new(rules: Rules) -> Store {
        Store {
            rules,
            unfinished: BTreeMap::new(),
            aside: BTreeMap::new(),
            known: Known::default(),
            placed: Known::default(),
        }
    }

    /// Takes an announcement and the bytes with it.
    pub(super) fn take(&mut self, from: PublicKey, said: &Announcement, data: &[u8]) -> Step {
        let owner = (from, said.name.clone());
        if self.aside.contains_key(&owner) {
            return Step::Wait;
        }
        self.add(&owner, said, data).unwrap_or_else(|why| {
            self.unfinished.remove(&owner);
            Step::Answer(Some(Verdict::Refused { why }))
        })
    }

    /// What is worked on aside of this owner's.
    pub(super) fn worked_on(&self, owner: &Owner) -> Option<&Announcement> {
        self.aside.get(owner).map(|aside| &aside.said)
    }

    /// Takes what came of work that was done aside. Says what is to be answered.
    pub(super) fn settle(&mut self, owner: &Owner, found: Found) -> Verdict {
        let Some(Aside { said, .. }) = self.aside.remove(owner) else {
            return Verdict::Refused { why: "nothing is known of it".into() };
        };
        let settled = match found {
            Found::Finished(done) => done.map(|stamp| {
                stamp.into_iter().for_each(|stamp| self.placed.insert(stamp, said.hash));
                Verdict::Stored
            }),
            Found::Looked(looked) => self.looked(owner, &said, looked),
        };
        settled.unwrap_or_else(|why| Verdict::Refused { why })
    }

    /// A file of this name and size was hashed, or could not be.
    fn looked(
        &mut self,
        owner: &Owner,
        said: &Announcement,
        looked: io::Result<(Stamp, blake3::Hash, SystemTime)>,
    ) -> Result<Verdict, Refusal> {
        let there = looked.ok().is_some_and(|(stamp, hash, began)| {
            self.known.note(stamp, hash, began);
            // What took its place meanwhile is another.
            let now = fs::symlink_metadata(self.rules.dir.join(&said.name)).map(|meta| Stamp::of(&meta));
            hash == said.hash && now.is_ok_and(|now| now == stamp)
        });
        if there {
            return Ok(Verdict::Stored);
        }
        self.may_replace()?;
        self.begin(owner, said)?;
        Ok(Verdict::Missing { missing: vec![(0, said.size)] })
    }

    fn add(&mut self, owner: &Owner, said: &Announcement, data: &[u8]) -> Result<Step, Refusal> {
        let place = span(said, data.len())?;
        let goes_on = |u: &Unfinished| (u.size, u.hash) == (said.size, said.hash);
        if !self.unfinished.get(owner).is_some_and(goes_on) {
            self.unfinished.remove(owner);
            check_name(&said.name)?;
            match self.is_there(said)? {
                There::Yes => return Ok(Step::Answer(Some(Verdict::Stored))),
                There::Perhaps if said.at.is_none() => return self.look(owner, said),
                // Another sender with this key was the first to send all of it.
                There::Perhaps if self.was_placed(said) => return Ok(Step::Answer(Some(Verdict::Stored))),
                // Who sends bytes and did not ask finds out when all of it is here.
                There::Perhaps | There::No => {}
            }
            self.begin(owner, said)?;
        }
        let Some(unfinished) = self.unfinished.get_mut(owner) else { return Ok(Step::Answer(None)) };
        unfinished.touched = Instant::now();
        unfinished.write(place, data)?;
        let missing = unfinished.done.missing(said.size);
        if missing.is_empty() {
            return self.finish(owner, said);
        }
        let missing = missing.into_iter().map(|r| (r.start, r.end)).collect();
        Ok(Step::Answer(said.at.is_none().then_some(Verdict::Missing { missing })))
    }

    fn begin(&mut self, owner: &Owner, said: &Announcement) -> Result<(), Refusal> {
        self.check_room(said.size)?;
        let new = Unfinished::create(&self.rules.dir, owner, said).map_err(|e| refusal(&e))?;
        self.unfinished.insert(owner.clone(), new);
        Ok(())
    }

    /// Has a file that is there hashed.
    fn look(&mut self, owner: &Owner, said: &Announcement) -> Result<Step, Refusal> {
        let of_one = self.aside.keys().filter(|(from, _)| *from == owner.0).count();
        if of_one >= ASIDE_OF_ONE_MAX || self.aside.len() >= ASIDE_MAX {
            return Err(TOO_MANY.into());
        }
        self.aside.insert(owner.clone(), Aside { said: said.clone(), finishes: false });
        Ok(Step::Aside(Work::look(owner.clone(), self.rules.dir.join(&said.name))))
    }

    /// All of a file is here.
    fn finish(&mut self, owner: &Owner, said: &Announcement) -> Result<Step, Refusal> {
        let Some(whole) = self.unfinished.remove(owner) else { return Ok(Step::Answer(None)) };
        let work = Work::finish(owner.clone(), whole, self.rules.dir.join(&said.name), self.rules.overwrite);
        self.aside.insert(owner.clone(), Aside { said: said.clone(), finishes: true });
        if said.size > AT_ONCE_MAX {
            return Ok(Step::Aside(work));
        }
        let found = work.run(&Default::default());
        Ok(Step::Answer(Some(self.settle(owner, found))))
    }

    /// Whether this very file is there under its name; another one is in the way.
    fn is_there(&self, said: &Announcement) -> Result<There, Refusal> {
        let path = self.rules.dir.join(&said.name);
        let Ok(meta) = fs::symlink_metadata(&path) else { return Ok(There::No) };
        if meta.is_dir() {
            return Err("a directory has this name".into());
        }
        // The answer to an earlier copy may have been lost.
        if meta.is_file() && meta.len() == said.size {
            let hash = match self.known.get(&Stamp::of(&meta)) {
                Some(hash) => Some(hash),
                None if said.size > AT_ONCE_MAX => return Ok(There::Perhaps),
                None => super::known::hash_at(&path, &Default::default()).ok().map(|(_, hash)| hash),
            };
            if hash == Some(said.hash) {
                return Ok(There::Yes);
            }
        }
        self.may_replace().map(|()| There::No)
    }

    /// Whether what has the name is this very file, as it was stored.
    fn was_placed(&self, said: &Announcement) -> bool {
        let now = fs::symlink_metadata(self.rules.dir.join(&said.name)).map(|meta| Stamp::of(&meta));
        now.is_ok_and(|now| self.placed.get(&now) == Some(said.hash))
    }

    fn may_replace(&self) -> Result<(), Refusal> {
        if self.rules.overwrite { Ok(()) } else { Err(TAKEN.into()) }
    }

    fn check_room(&mut self, size: u64) -> Result<(), Refusal> {
        if size > self.rules.size_max {
            return Err(format!("larger than {} is not taken", human(self.rules.size_max)));
        }
        let finishing = self.aside.values().filter(|aside| aside.finishes).count();
        if self.unfinished.len() + finishing >= UNFINISHED_MAX {
            let oldest = self.unfinished.iter().min_by_key(|(_, u)| u.touched);
            let stale = oldest.filter(|(_, u)| u.touched.elapsed() >= STALE).map(|(owner, _)| owner.clone());
            let stale = stale.ok_or(TOO_MANY)?;
            self.unfinished.remove(&stale);
        }
        // Where the system does not say, the writes will.
        if let Ok(stat) = rustix::fs::statvfs(&self.rules.dir) {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            if size > free {
                return Err(format!("no room on the receiver's disk: {} are free", human(free)));
            }
        }
        Ok(())
    }
}

const TOO_MANY: &str = "too many files are on their way";
pub(super) const TAKEN: &str = "a file of this name is there, and is kept (the receiver can allow --overwrite)";

/// Where the bytes belong, if that is within the file.
fn span(said: &Announcement, len: usize) -> Result<Range<u64>, Refusal> {
    let Some(at) = said.at else { return Ok(0..0) };
    let end = u64::try_from(len).ok().and_then(|len| at.checked_add(len));
    match end {
        Some(end) if end <= said.size => Ok(at..end),
        _ => Err("a part goes beyond the file's end".into()),
    }
}

/// A name from the network: one component, visible, and harmless on a terminal.
fn check_name(name: &str) -> Result<(), Refusal> {
    let why = match name {
        "" | "." | ".." => "it names a directory",
        name if !is_plain(name.as_bytes()) => "it leads elsewhere",
        name if name.len() > NAME_MAX => "it is too long",
        name if name.starts_with('.') => "it is hidden",
        name if name.chars().any(char::is_control) => "it has control characters",
        name if name.chars().any(out::rearranges) => "it has characters that rearrange what is around them",
        _ => return Ok(()),
    };
    Err(format!("the name is not allowed: {why}"))
}

pub(super) fn refusal(e: &io::Error) -> Refusal {
    format!("the receiver cannot keep it: {}", io_text(e))
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
