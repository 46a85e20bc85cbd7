//! Warnings at startup: squashing, nested exports, short-lived handles, few connections.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use remora_server::Squash;
use remora_vfs::local::HandleLifetime;

use crate::commands::serve::exports::share::{Share, shown};

/// A lower limit of connections causes a warning.
const CONNECTIONS_FEW: usize = 256;

/// The user that executes requests, if it is not the caller's.
pub(crate) fn of_user(shares: &[Share]) -> Vec<String> {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return of_squash(shares);
    }
    let what = "only a server that runs as root can run each as its own user";
    vec![format!("all requests run as user {}; {what}", user.as_raw())]
}

/// Squashing of the exports, and the option that changes it.
pub(crate) fn of_squash(shares: &[Share]) -> Vec<String> {
    let rules = shares.iter().flat_map(|share| share.access.rules().iter().map(move |rule| (share, rule.terms)));
    let mut told = BTreeSet::new();
    for (share, terms) in rules {
        let user = terms.anon_uid;
        let trusts = if share.is_from_file() { "no_root_squash" } else { "--squash none" };
        match terms.squash {
            Squash::None => {}
            Squash::Root => {
                let what = "root's requests run as user";
                told.insert(format!("{what} {user} (root squashing); use {trusts} to run them as root"));
            }
            Squash::All => {
                let each = if share.is_from_file() { "no_all_squash" } else { "--squash root" };
                told.insert(format!("all requests run as user {user}; use {each} to run each as its own user"));
            }
        }
    }
    told.into_iter().collect()
}

/// Exports that are reachable through another export with different access rules: the same directory, or one nested
/// in it on the same file system.
pub(crate) fn of_nesting(shares: &[Share]) -> Vec<String> {
    let mut by_dir: HashMap<&Path, Vec<Placed<'_>>> = HashMap::new();
    let device = |share: &Share| std::fs::metadata(&share.dir).map(|found| found.dev()).ok();
    let placed: Vec<Placed<'_>> = shares.iter().map(|share| Placed { share, device: device(share) }).collect();
    for one in &placed {
        by_dir.entry(&one.share.dir).or_default().push(*one);
    }
    let differing = |dir: &Path, one: &Placed<'_>| {
        let there = by_dir.get(dir)?;
        there.iter().find(|there| there.device == one.device && there.share.access != one.share.access)
    };
    let twice = |one: &Placed<'_>| {
        let first = by_dir.get(one.share.dir.as_path())?.first()?;
        let (name, known) = (one.share.names.first()?, first.share.names.first()?);
        let text = format!("{known} and {name} are the same directory: each export allows what the other one forbids");
        (first.share.access != one.share.access).then_some(text)
    };
    let nested = |one: &Placed<'_>| {
        let outer = one.share.dir.ancestors().skip(1).find_map(|dir| differing(dir, one))?;
        let (inner, outer) = (shown(&one.share.dir), shown(&outer.share.dir));
        Some(format!("{inner} is inside {outer}: clients of {outer} reach it with the options of {outer}"))
    };
    placed.iter().flat_map(|one| twice(one).into_iter().chain(nested(one))).collect()
}

/// A share and its device number.
#[derive(Clone, Copy)]
struct Placed<'a> {
    share: &'a Share,
    device: Option<u64>,
}

/// Handles in `dir` become stale while the export exists.
pub(crate) fn of_handles(dir: &Path, end: HandleLifetime) -> String {
    let dir = shown(dir);
    let until = match end {
        HandleLifetime::UntilUnmount => "the file system is mounted again",
        HandleLifetime::UntilServerExit => "the server restarts",
    };
    format!(
        "{dir}: file handles in it become stale when {until}, because its inode numbers may then belong to other files"
    )
}

/// Few connections fit into the descriptor limit.
pub(crate) fn of_room(connections: usize, exports: usize, files: usize) -> Option<String> {
    (connections < CONNECTIONS_FEW).then(|| {
        let s = if exports == 1 { "" } else { "s" };
        format!(
            "at most {connections} TCP connections fit beside {exports} export{s} where {files} files may be open: raise \
             that limit (ulimit -Hn; LimitNOFILE= in a unit of systemd)"
        )
    })
}
