//! A tree of files in memory, and the steps that change it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use remora_wire::fuse::Errno;

/// Identifies an object of a model.
pub(super) type Number = usize;

const ROOT: Number = 0;
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

/// A change of a tree, or a look at it. Paths are relative to the tree's root, which is the empty path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Opens a file, new or truncated if `is_new`, writes, and closes it.
    Write {
        path: String,
        is_new: bool,
        parts: Vec<Part>,
        fsync: bool,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    /// Removes a file. If `is_open`, a program has it open, reads it afterwards and closes it.
    Unlink {
        path: String,
        is_open: bool,
    },
    MkDir {
        path: String,
    },
    RmDir {
        path: String,
    },
    Link {
        from: String,
        to: String,
    },
    SymLink {
        path: String,
        target: String,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    /// Sets the mtime in seconds.
    Utimes {
        path: String,
        secs: i64,
    },
    List {
        path: String,
    },
    Read {
        path: String,
    },
}

/// Bytes written at an offset.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) offset: usize,
    pub(super) data: Bytes,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{}", self.offset, self.data.len())
    }
}

impl Step {
    /// The file whose contents are unknown while the step runs.
    pub(super) fn written(&self) -> Option<&str> {
        match self {
            Step::Write { path, .. } | Step::Truncate { path, .. } => Some(path),
            _ => None,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Content {
    File(Rc<Vec<u8>>),
    Directory(BTreeMap<String, Number>),
    SymLink(String),
}

/// An object of a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Object {
    pub(super) content: Content,
    pub(super) mode: u32,
    /// As a program has set it after the last change of the contents.
    pub(super) mtime: Option<i64>,
}

/// A tree of objects.
#[derive(Clone, Debug)]
pub(super) struct Model {
    objects: BTreeMap<Number, Object>,
    next: Number,
}

/// What is seen at a path. Names of one file have the same number.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) content: Content,
    pub(super) mode: u32,
    pub(super) mtime: Option<i64>,
    pub(super) number: u64,
}

/// What is seen at each path below a root. Directories have no names in it.
pub(super) type View = BTreeMap<String, Seen>;

/// The directory and the name of a path.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// The path of a name in a directory.
pub(super) fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.into() } else { format!("{dir}/{name}") }
}

impl Model {
    pub(super) fn new() -> Model {
        let root = Object { content: Content::Directory(BTreeMap::new()), mode: DIRECTORY_MODE, mtime: None };
        Model { objects: BTreeMap::from([(ROOT, root)]), next: 1 }
    }

    /// The model of what was seen.
    pub(super) fn of_view(view: &View) -> Model {
        let mut model = Model::new();
        let mut known: BTreeMap<u64, Number> = BTreeMap::new();
        for (path, seen) in view {
            let number = known.get(&seen.number).copied().unwrap_or_else(|| {
                model.next += 1;
                let Seen { content, mode, mtime, .. } = seen.clone();
                // Times that no program has set mean nothing.
                model.objects.insert(model.next, Object { content, mode, mtime: mtime.filter(|_| false) });
                model.next
            });
            known.insert(seen.number, number);
            if let Ok(names) = model.names_mut(split(path).0) {
                names.insert(split(path).1.into(), number);
            }
        }
        model
    }

    pub(super) fn find(&self, path: &str) -> Option<Number> {
        let mut at = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let Content::Directory(names) = &self.objects.get(&at)?.content else { return None };
            at = *names.get(name)?;
        }
        Some(at)
    }

    pub(super) fn get(&self, path: &str) -> Option<&Object> {
        self.objects.get(&self.find(path)?)
    }

    fn get_mut(&mut self, path: &str) -> Result<&mut Object, Errno> {
        let number = self.find(path).ok_or(Errno::ENOENT)?;
        self.objects.get_mut(&number).ok_or(Errno::ENOENT)
    }

    /// The names in a directory.
    pub(super) fn names(&self, dir: &str) -> Option<&BTreeMap<String, Number>> {
        match &self.get(dir)?.content {
            Content::Directory(names) => Some(names),
            _ => None,
        }
    }

    fn names_mut(&mut self, dir: &str) -> Result<&mut BTreeMap<String, Number>, Errno> {
        match &mut self.get_mut(dir)?.content {
            Content::Directory(names) => Ok(names),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(super) fn data(&self, path: &str) -> Option<Rc<Vec<u8>>> {
        match &self.get(path)?.content {
            Content::File(data) => Some(data.clone()),
            _ => None,
        }
    }

    /// Paths of all directories, with the root's.
    pub(super) fn directories(&self) -> Vec<String> {
        let is_dir = |seen: &Seen| matches!(seen.content, Content::Directory(_));
        let mut found: Vec<String> =
            self.view().into_iter().filter(|(_, seen)| is_dir(seen)).map(|(path, _)| path).collect();
        found.push(String::new());
        found
    }

    /// Paths of all files.
    pub(super) fn files(&self) -> Vec<String> {
        let is_file = |seen: &Seen| matches!(seen.content, Content::File(_));
        self.view().into_iter().filter(|(_, seen)| is_file(seen)).map(|(path, _)| path).collect()
    }

    /// All paths of the object at `path`.
    pub(super) fn names_of(&self, path: &str) -> BTreeSet<String> {
        let number = self.find(path).map(|number| number as u64);
        let view = self.view().into_iter();
        view.filter(|(_, seen)| Some(seen.number) == number).map(|(path, _)| path).collect()
    }

    pub(super) fn view(&self) -> View {
        let mut view = View::new();
        let mut todo = vec![(String::new(), ROOT)];
        while let Some((path, number)) = todo.pop() {
            let Some(Object { content, mode, mtime }) = self.objects.get(&number).cloned() else { continue };
            let content = match content {
                Content::Directory(names) => {
                    todo.extend(names.iter().map(|(name, child)| (join(&path, name), *child)));
                    Content::Directory(BTreeMap::new())
                }
                content => content,
            };
            view.insert(path, Seen { content, mode, mtime, number: number as u64 });
        }
        view.remove("");
        view
    }

    fn add(&mut self, path: &str, content: Content, mode: u32) -> Result<(), Errno> {
        let (dir, name) = split(path);
        if self.names_mut(dir)?.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        self.next += 1;
        self.objects.insert(self.next, Object { content, mode, mtime: None });
        let number = self.next;
        self.names_mut(dir)?.insert(name.into(), number);
        Ok(())
    }

    /// Does a step, if it is possible.
    pub(super) fn apply(&mut self, step: &Step) -> Result<(), Errno> {
        match step {
            Step::Write { path, is_new, parts, .. } => self.write(path, *is_new, parts),
            Step::Truncate { path, size } => {
                let mut data = self.data(path).ok_or(Errno::ENOENT)?.to_vec();
                data.resize(*size as usize, 0);
                self.set_data(path, data)
            }
            Step::Rename { from, to } => self.rename(from, to),
            Step::Unlink { path, .. } => {
                let (dir, name) = split(path);
                self.names_mut(dir)?.remove(name).map(drop).ok_or(Errno::ENOENT)
            }
            Step::MkDir { path } => self.add(path, Content::Directory(BTreeMap::new()), DIRECTORY_MODE),
            Step::RmDir { path } => {
                if !self.names_mut(path)?.is_empty() {
                    return Err(Errno::ENOTEMPTY);
                }
                let (dir, name) = split(path);
                self.names_mut(dir)?.remove(name);
                Ok(())
            }
            Step::Link { from, to } => {
                let number = self.find(from).ok_or(Errno::ENOENT)?;
                let (dir, name) = split(to);
                let names = self.names_mut(dir)?;
                if names.contains_key(name) {
                    return Err(Errno::EEXIST);
                }
                names.insert(name.into(), number);
                Ok(())
            }
            Step::SymLink { path, target } => self.add(path, Content::SymLink(target.clone()), 0o777),
            Step::Chmod { path, mode } => self.get_mut(path).map(|object| object.mode = *mode),
            Step::Utimes { path, secs } => self.get_mut(path).map(|object| object.mtime = Some(*secs)),
            Step::List { path } => self.names(path).map(|_| ()).ok_or(Errno::ENOENT),
            Step::Read { path } => self.data(path).map(|_| ()).ok_or(Errno::ENOENT),
        }
    }

    fn set_data(&mut self, path: &str, data: Vec<u8>) -> Result<(), Errno> {
        let object = self.get_mut(path)?;
        object.content = Content::File(Rc::new(data));
        object.mtime = None;
        Ok(())
    }

    fn write(&mut self, path: &str, is_new: bool, parts: &[Part]) -> Result<(), Errno> {
        let mut data = match self.data(path) {
            Some(data) if !is_new => data.to_vec(),
            Some(_) => Vec::new(),
            None if is_new => {
                self.add(path, Content::File(Rc::default()), FILE_MODE)?;
                Vec::new()
            }
            None => return Err(Errno::ENOENT),
        };
        write_parts(&mut data, parts);
        self.set_data(path, data)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        let number = self.find(from).ok_or(Errno::ENOENT)?;
        let replaced = self.find(to);
        if replaced == Some(number) {
            return Ok(());
        }
        if self.names(to).is_some_and(|names| !names.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        let ((from_dir, from_name), (to_dir, to_name)) = (split(from), split(to));
        self.names_mut(to_dir)?.insert(to_name.into(), number);
        self.names_mut(from_dir)?.remove(from_name);
        Ok(())
    }
}

/// Writes `parts` into a file's data.
pub(super) fn write_parts(data: &mut Vec<u8>, parts: &[Part]) {
    for part in parts {
        let end = part.offset + part.data.len();
        data.resize(data.len().max(end), 0);
        data[part.offset..end].copy_from_slice(&part.data);
    }
}

/// What `found` has otherwise than `expected`. Of the files in `unknown` nothing is expected but that they are there.
pub(super) fn differences(expected: &View, found: &View, unknown: &BTreeSet<String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let paths: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let (mut ours, mut theirs) = (BTreeMap::new(), BTreeMap::new());
    for path in paths {
        match (expected.get(path), found.get(path)) {
            (Some(_), Some(_)) if unknown.contains(path) => {}
            (Some(a), Some(b)) => {
                all.extend(difference(a, b).map(|what| format!("{path} {what}")));
                let is_file = matches!(a.content, Content::File(_));
                if is_file
                    && (*ours.entry(a.number).or_insert(b.number) != b.number
                        || *theirs.entry(b.number).or_insert(a.number) != a.number)
                {
                    all.push(format!("{path} is a name of another file"));
                }
            }
            (Some(_), None) => all.push(format!("{path} is missing")),
            (None, _) => all.push(format!("{path} is there")),
        }
    }
    all
}

/// What differs between two objects.
pub(super) fn difference(expected: &Seen, found: &Seen) -> Option<String> {
    match (&expected.content, &found.content) {
        (Content::File(a), Content::File(b)) if a != b => {
            let at = a.iter().zip(b.iter()).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
            return Some(format!("differs at byte {at}: {} bytes expected, {} found", a.len(), b.len()));
        }
        (Content::SymLink(a), Content::SymLink(b)) if a != b => return Some(format!("leads to {b} instead of {a}")),
        (a, b) if std::mem::discriminant(a) != std::mem::discriminant(b) => return Some("has another type".into()),
        _ => {}
    }
    if expected.mode != found.mode && !matches!(expected.content, Content::SymLink(_)) {
        return Some(format!("has mode {:o} instead of {:o}", found.mode, expected.mode));
    }
    if expected.mtime.is_some() && expected.mtime != found.mtime {
        return Some(format!("has mtime {:?} instead of {:?}", found.mtime, expected.mtime));
    }
    None
}
