//! The names in a directory, and what each leads to.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use remora_wire::nfs3::Fh;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    File,
    Dir,
    /// With its target.
    SymLink(String),
}

/// Something with a name.
#[derive(Clone)]
pub(crate) struct Named {
    pub(crate) fh: Option<Fh>,
    pub(crate) kind: Kind,
    /// Of an exclusive CREATE.
    pub(crate) verf: Option<[u8; 8]>,
    /// Names of one object have the same number here.
    pub(crate) object: u64,
}

impl Named {
    /// Whether RENAME puts `moved` in its place.
    pub(crate) fn gives_way_to(&self, moved: &Named) -> bool {
        (self.kind == Kind::Dir) == (moved.kind == Kind::Dir)
    }
}

/// What is seen of a directory: of each name its kind, and the first name that leads to the same object.
pub(crate) type Seen = BTreeMap<String, (Kind, String)>;

/// What its only user knows of a directory.
#[derive(Clone, Default)]
pub(crate) struct Names(BTreeMap<String, Named>);

impl Names {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn nth(&self, n: usize) -> Option<(&String, &Named)> {
        self.0.iter().nth(n)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&String, &Named)> {
        self.0.iter()
    }

    pub(crate) fn insert(&mut self, name: String, named: Named) {
        self.0.insert(name, named);
    }

    pub(crate) fn extend(&mut self, made: Option<(String, Named)>) {
        self.0.extend(made);
    }

    /// The handle of what has this name.
    pub(crate) fn found(&mut self, name: &str, fh: &Fh) -> Result<(), String> {
        self.0.get_mut(name).ok_or("looked up what was not there")?.fh = Some(fh.clone());
        Ok(())
    }

    /// One more name of what `from` leads to.
    pub(crate) fn link(&mut self, from: &str, to: String) -> Result<(), String> {
        let named = self.0.get(from).ok_or("linked what was not there")?.clone();
        self.0.insert(to, named);
        Ok(())
    }

    /// The handle of what has no name any more, if that is so.
    pub(crate) fn remove(&mut self, name: &str) -> Option<Fh> {
        let named = self.0.remove(name)?;
        self.if_gone(named)
    }

    /// The same of what had the name `to`. Of two names of one object nothing changes.
    pub(crate) fn rename(&mut self, from: &str, to: String) -> Result<Option<Fh>, String> {
        let moved = self.0.get(from).ok_or("renamed what was not there")?.clone();
        if self.0.get(&to).is_some_and(|there| there.object == moved.object) {
            return Ok(None);
        }
        self.0.remove(from);
        let replaced = self.0.insert(to, moved);
        Ok(replaced.and_then(|named| self.if_gone(named)))
    }

    fn if_gone(&self, named: Named) -> Option<Fh> {
        if self.0.values().any(|other| other.object == named.object) { None } else { named.fh }
    }

    /// As [`on_disk`] must find it.
    pub(crate) fn seen(&self) -> Seen {
        seen(self.0.iter().map(|(name, named)| (name.clone(), named.kind.clone(), named.object)))
    }
}

/// What is in the directory at `path` beside `others`.
pub(crate) fn on_disk(path: &Path, others: &[&str]) -> io::Result<Seen> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let (name, meta, path) = {
            let entry = entry?;
            (entry.file_name().to_string_lossy().into_owned(), entry.metadata()?, entry.path())
        };
        let kind = match meta.file_type() {
            t if t.is_dir() => Kind::Dir,
            t if t.is_symlink() => Kind::SymLink(fs::read_link(path)?.to_string_lossy().into_owned()),
            _ => Kind::File,
        };
        if !others.contains(&&name[..]) {
            found.push((name, kind, meta.ino()));
        }
    }
    Ok(seen(found))
}

fn seen(found: impl IntoIterator<Item = (String, Kind, u64)>) -> Seen {
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let mut first: BTreeMap<u64, String> = BTreeMap::new();
    let look = |(name, kind, object): (String, Kind, u64)| {
        let of = first.entry(object).or_insert_with(|| name.clone()).clone();
        (name, (kind, of))
    };
    found.into_iter().map(look).collect()
}
