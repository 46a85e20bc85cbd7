//! Files that come in: checked, gathered under hidden names, and given their own when whole.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use remora_atp::session::PublicKey;
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use crate::cp::lock::{TRIES_MAX, busy, is_at, lock};
use crate::cp::names::{is_plain, part_name};
use crate::cp::ranges::Ranges;
use crate::exit::io_text;
use crate::out;
use crate::parcel::{Announcement, RANGES_MAX, Verdict};
use crate::units::human;

/// Unfinished files at once, each with an open descriptor.
const UNFINISHED_MAX: usize = 64;
/// After so long without a word an unfinished file makes room for another.
const STALE: Duration = Duration::from_secs(600);
/// The longest name that most file systems take, in bytes.
const NAME_MAX: usize = 255;

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
}

/// Whose file, and its name: two senders may use the same one.
type Owner = (PublicKey, String);

/// Why a file is refused, for the sender and for us.
type Refusal = String;

/// A file under its hidden name, which goes with this.
#[derive(Debug)]
struct Unfinished {
    file: File,
    path: PathBuf,
    size: u64,
    hash: blake3::Hash,
    done: Ranges,
    touched: Instant,
}

impl Store {
    pub(super) fn new(rules: Rules) -> Store {
        Store { rules, unfinished: BTreeMap::new() }
    }

    /// Takes an announcement and the bytes with it. Says what is to be answered; nothing if more
    /// bytes are on their way.
    pub(super) fn take(&mut self, from: PublicKey, said: &Announcement, data: &[u8]) -> Option<Verdict> {
        let owner = (from, said.name.clone());
        match self.add(&owner, said, data) {
            Ok(verdict) => verdict,
            Err(why) => {
                self.unfinished.remove(&owner);
                Some(Verdict::Refused { why })
            }
        }
    }

    fn add(&mut self, owner: &Owner, said: &Announcement, data: &[u8]) -> Result<Option<Verdict>, Refusal> {
        let place = span(said, data.len())?;
        let goes_on = |u: &Unfinished| (u.size, u.hash) == (said.size, said.hash);
        if !self.unfinished.get(owner).is_some_and(goes_on) {
            self.unfinished.remove(owner);
            check_name(&said.name)?;
            if self.is_there(said)? {
                return Ok(Some(Verdict::Stored));
            }
            self.check_room(said.size)?;
            let new = Unfinished::create(&self.rules.dir, owner, said).map_err(|e| refusal(&e))?;
            self.unfinished.insert(owner.clone(), new);
        }
        let Some(unfinished) = self.unfinished.get_mut(owner) else { return Ok(None) };
        unfinished.touched = Instant::now();
        unfinished.write(place, data)?;
        let missing = unfinished.done.missing(said.size);
        if missing.is_empty() {
            if let Some(whole) = self.unfinished.remove(owner) {
                whole.finish(&self.rules, &said.name)?;
            }
            return Ok(Some(Verdict::Stored));
        }
        let missing = missing.into_iter().map(|r| (r.start, r.end)).collect();
        Ok(said.at.is_none().then_some(Verdict::Missing { missing }))
    }

    /// Whether this very file is there under its name; another one is in the way.
    fn is_there(&self, said: &Announcement) -> Result<bool, Refusal> {
        let path = self.rules.dir.join(&said.name);
        let Ok(meta) = fs::symlink_metadata(&path) else { return Ok(false) };
        if meta.is_dir() {
            return Err("a directory has this name".into());
        }
        // The answer to an earlier copy may have been lost.
        if meta.is_file() && meta.len() == said.size && hash_of(&path).is_ok_and(|hash| hash == said.hash) {
            return Ok(true);
        }
        if self.rules.overwrite { Ok(false) } else { Err(TAKEN.into()) }
    }

    fn check_room(&mut self, size: u64) -> Result<(), Refusal> {
        if size > self.rules.size_max {
            return Err(format!("larger than {} is not taken", human(self.rules.size_max)));
        }
        if self.unfinished.len() >= UNFINISHED_MAX {
            let oldest = self.unfinished.iter().min_by_key(|(_, u)| u.touched);
            let stale = oldest.filter(|(_, u)| u.touched.elapsed() >= STALE).map(|(owner, _)| owner.clone());
            let stale = stale.ok_or("too many files are on their way")?;
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

const TAKEN: &str = "a file of this name is there, and is kept (the receiver can allow --overwrite)";

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

fn refusal(e: &io::Error) -> Refusal {
    format!("the receiver cannot keep it: {}", io_text(e))
}

fn hash_of(path: &Path) -> io::Result<blake3::Hash> {
    Ok(blake3::Hasher::new().update_reader(File::open(path)?)?.finalize())
}

impl Unfinished {
    fn create(dir: &Path, (from, name): &Owner, said: &Announcement) -> io::Result<Unfinished> {
        let tag = blake3::hash(from.as_bytes()).to_hex();
        let tag = format!("-{}", tag.get(..8).unwrap_or_default());
        let hidden = part_name(name.as_bytes(), &tag);
        let path = dir.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&hidden));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        // Never through a link that somebody put there.
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        for _ in 0..TRIES_MAX {
            let file = options.open(&path)?;
            lock(&file)?;
            // Another receiver may have finished it between the two: it has its own name by now.
            if !is_at(&path, &file) {
                continue;
            }
            // Left by one that was killed.
            file.set_len(0)?;
            let (size, hash) = (said.size, said.hash);
            return Ok(Unfinished { file, path, size, hash, done: Ranges::default(), touched: Instant::now() });
        }
        Err(busy())
    }

    fn write(&mut self, place: Range<u64>, data: &[u8]) -> Result<(), Refusal> {
        self.file.write_all_at(data, place.start).map_err(|e| refusal(&e))?;
        self.done.insert(place);
        if self.done.missing(self.size).len() > RANGES_MAX {
            return Err("it comes in too many pieces".into());
        }
        Ok(())
    }

    /// All of it is here: makes it safe and gives it its name.
    fn finish(self, rules: &Rules, name: &str) -> Result<(), Refusal> {
        let hash = hash_of(&self.path).map_err(|e| refusal(&e))?;
        if hash != self.hash {
            return Err("it is not what was announced: did it change while it was sent?".into());
        }
        let dest = rules.dir.join(name);
        self.place(&dest, rules.overwrite).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => TAKEN.into(),
            _ => refusal(&e),
        })
    }

    fn place(&self, dest: &Path, overwrite: bool) -> io::Result<()> {
        self.file.sync_all()?;
        if !is_at(&self.path, &self.file) {
            return Err(io::Error::other("somebody removed or replaced the unfinished file"));
        }
        if overwrite {
            fs::rename(&self.path, dest)?;
        } else {
            rename_new(&self.path, dest)?;
        }
        match dest.parent() {
            Some(dir) => File::open(dir)?.sync_all(),
            None => Ok(()),
        }
    }
}

/// Renames, unless the new name is taken.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system can; with a link it takes two steps. The first name goes in `drop`.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => fs::hard_link(from, to),
        result => Ok(result?),
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Gone already if it was given its name, and what has the hidden one then is another's. Best effort, with
        // nobody to tell.
        if is_at(&self.path, &self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
