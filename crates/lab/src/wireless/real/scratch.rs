//! A bench's directory: in memory, so that no disk's moods get into the figures; every system
//! has the same.

use std::io;
use std::path::Path;

pub(super) use guest::Scratch;

const IN_MEMORY: &str = "/dev/shm";
const PREFIX: &str = "remora-lab-";

/// An empty directory with these ones in it.
pub(super) fn in_memory(inside: &[&str]) -> io::Result<Scratch> {
    let here = |place: &Path| Scratch::new(place, PREFIX, inside);
    here(Path::new(IN_MEMORY)).or_else(|_| here(&std::env::temp_dir()))
}
