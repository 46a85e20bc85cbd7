//! Random steps that a kernel would let through to the file system.

use bytes::Bytes;
use remora_base::Rng;

use super::model::{Model, Part, Step, join, split};

const FILE_NAMES: [&str; 4] = ["a", "b", "c", "d"];
const DIRECTORY_NAMES: [&str; 3] = ["p", "q", "r"];
const SYMLINK_NAMES: [&str; 2] = ["s", "t"];
/// Suffix of an editor's temporary file.
const TEMPORARY: &str = "~tmp";
const DEPTH_MAX: usize = 3;
const FILE_MAX: u64 = 12_000;

/// Draws the steps of what a user does at once.
pub(super) fn draw(rng: &mut Rng, model: &Model) -> Vec<Step> {
    let step = match rng.below(20) {
        0..=3 => write_new(rng, model),
        4 | 5 => overwrite(rng, model),
        6 => file(rng, model).map(|path| Step::Truncate { path, size: rng.below(FILE_MAX) }),
        7 | 8 => rename_file(rng, model),
        9 => rename_directory(rng, model),
        10 => file(rng, model).map(|path| Step::Unlink { path, is_open: rng.chance(0.2) }),
        11 | 12 => new_directory(rng, model),
        13 => old_directory(rng, model).map(|path| Step::RmDir { path }),
        14 => link(rng, model),
        15 => symlink(rng, model),
        16 => file(rng, model).map(|path| Step::Chmod { path, mode: [0o600, 0o640, 0o755][rng.below(3) as usize] }),
        17 => file(rng, model).map(|path| Step::Utimes { path, secs: 1_000_000_000 + rng.below(1_000_000) as i64 }),
        18 => return save(rng, model),
        _ => Some(look(rng, model)),
    };
    step.into_iter().collect()
}

/// A look at a file or directory.
fn look(rng: &mut Rng, model: &Model) -> Step {
    match file(rng, model) {
        Some(path) if rng.chance(0.7) => Step::Read { path },
        _ => Step::List { path: directory(rng, model) },
    }
}

fn pick<T: Clone>(rng: &mut Rng, from: &[T]) -> Option<T> {
    from.get(rng.below(from.len().max(1) as u64) as usize).cloned()
}

fn file(rng: &mut Rng, model: &Model) -> Option<String> {
    pick(rng, &model.files())
}

/// Any directory, also the root.
fn directory(rng: &mut Rng, model: &Model) -> String {
    pick(rng, &model.directories()).unwrap_or_default()
}

fn old_directory(rng: &mut Rng, model: &Model) -> Option<String> {
    Some(directory(rng, model)).filter(|path| !path.is_empty())
}

fn path_in(rng: &mut Rng, dir: &str, names: &[&str]) -> String {
    join(dir, names[rng.below(names.len() as u64) as usize])
}

/// Random data at some places of a file.
pub(super) fn parts(rng: &mut Rng, is_new: bool) -> Vec<Part> {
    let mut end = 0;
    let count = if is_new { rng.below(3) } else { 1 + rng.below(3) };
    let part = |_| {
        let offset = if is_new { end } else { rng.below(FILE_MAX) as usize };
        let mut data = vec![0; 1 + rng.below(FILE_MAX / 3) as usize];
        rng.fill(&mut data);
        end += data.len();
        Part { offset, data: Bytes::from(data) }
    };
    (0..count).map(part).collect()
}

fn write_new(rng: &mut Rng, model: &Model) -> Option<Step> {
    let dir = directory(rng, model);
    let path = path_in(rng, &dir, &FILE_NAMES);
    Some(Step::Write { path, is_new: true, parts: parts(rng, true), fsync: rng.chance(0.2) })
}

fn overwrite(rng: &mut Rng, model: &Model) -> Option<Step> {
    let path = file(rng, model)?;
    Some(Step::Write { path, is_new: false, parts: parts(rng, false), fsync: rng.chance(0.2) })
}

fn rename_file(rng: &mut Rng, model: &Model) -> Option<Step> {
    let (from, dir) = (file(rng, model)?, directory(rng, model));
    let to = path_in(rng, &dir, &FILE_NAMES);
    Some(Step::Rename { from, to })
}

fn rename_directory(rng: &mut Rng, model: &Model) -> Option<Step> {
    let (from, dir) = (old_directory(rng, model)?, directory(rng, model));
    let to = path_in(rng, &dir, &DIRECTORY_NAMES);
    let is_within = |inner: &str, outer: &str| inner == outer || inner.starts_with(&format!("{outer}/"));
    let is_possible = !is_within(&to, &from) && !is_within(&from, &to) && is_shallow(&to);
    is_possible.then_some(Step::Rename { from, to })
}

fn is_shallow(path: &str) -> bool {
    path.split('/').count() <= DEPTH_MAX
}

fn new_directory(rng: &mut Rng, model: &Model) -> Option<Step> {
    let dir = directory(rng, model);
    let path = path_in(rng, &dir, &DIRECTORY_NAMES);
    is_shallow(&path).then_some(Step::MkDir { path })
}

fn link(rng: &mut Rng, model: &Model) -> Option<Step> {
    let (from, dir) = (file(rng, model)?, directory(rng, model));
    let to = path_in(rng, &dir, &FILE_NAMES);
    Some(Step::Link { from, to })
}

fn symlink(rng: &mut Rng, model: &Model) -> Option<Step> {
    let dir = directory(rng, model);
    let path = path_in(rng, &dir, &SYMLINK_NAMES);
    if model.find(&path).is_some() && rng.chance(0.7) {
        return Some(Step::Unlink { path, is_open: false });
    }
    Some(Step::SymLink { path, target: format!("target{}", rng.below(1000)) })
}

/// An editor's save: a temporary file, fsync, rename.
fn save(rng: &mut Rng, model: &Model) -> Vec<Step> {
    let Some(path) = file(rng, model) else { return Vec::new() };
    let (dir, name) = split(&path);
    let temporary = join(dir, &format!("{name}{TEMPORARY}"));
    let write = Step::Write { path: temporary.clone(), is_new: true, parts: parts(rng, true), fsync: true };
    vec![write, Step::Rename { from: temporary, to: path }]
}
