//! Names of the files in the state directory that describe unfinished copies.
//!
//! A name has neither the server's address nor this machine's host name in it, for both may be others when `--resume`
//! comes. It has a file handle of the server instead.

use std::fs;
use std::path::{Path, PathBuf};

use remora_wire::nfs3::Fh;

use crate::config::state_dir;
use crate::cp::resume::temp_name::part_name;
use crate::remote::servers::Place;

/// Path of the journal of an upload of `source` to `name` in a directory; `None` without a state directory.
pub(crate) fn upload_journal(source: &Path, dir_fh: &Fh, name: &[u8]) -> Option<PathBuf> {
    let dir = state_dir::user_dir()?;
    state_dir::make_private(&dir).ok()?;
    let name = digest(&[&user(), &dir_fh.0, name, whole_path(source).as_os_str().as_encoded_bytes()]);
    Some(dir.join(format!("upload-{name}.json")))
}

/// Direction of a tree copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Up,
    Down,
}

/// Path of the marker of a tree copy between `here` and `place`; `None` without a state directory.
pub(crate) fn tree_marker(direction: Direction, here: &Path, place: &Place) -> Option<PathBuf> {
    let way: &[u8] = if direction == Direction::Up { b"up" } else { b"down" };
    // Components leave out a slash at the end.
    let here: PathBuf = here.components().collect();
    let here = std::path::absolute(&here).unwrap_or(here);
    let name = digest(&[&user(), way, place.path.as_bytes(), here.as_os_str().as_encoded_bytes()]);
    Some(state_dir::user_dir()?.join(format!("tree-{name}")))
}

/// The temporary name of an upload, the same in each run. Names of other users, clients and sources differ: RENAME moves
/// whatever has the temporary name.
pub(crate) fn upload_temp_name(source: &Path, name: &[u8]) -> Vec<u8> {
    let source = whole_path(source);
    let tag = digest(&[&user(), &state_dir::own_id().bytes, name, source.as_os_str().as_encoded_bytes()]);
    part_name(name, &format!("-{}", &tag[..8]))
}

/// A hash of a file handle. Unlike an inode number it differs for the next file that gets the same number, and some
/// servers give all files one number.
pub(crate) fn handle_hash(fh: &Fh) -> String {
    blake3::hash(&fh.0).to_hex()[..32].to_owned()
}

fn whole_path(source: &Path) -> PathBuf {
    fs::canonicalize(source).unwrap_or_else(|_| source.to_owned())
}

fn user() -> Vec<u8> {
    rustix::process::geteuid().as_raw().to_string().into_bytes()
}

fn digest(parts: &[&[u8]]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.finalize().to_hex()[..32].to_owned()
}
