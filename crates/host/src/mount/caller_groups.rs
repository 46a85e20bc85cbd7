//! Supplementary groups of calling threads, from `/proc`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::fuse::proc_file;

/// How long the groups of a thread are not read again.
const AGE_MAX: Duration = Duration::from_secs(1);
/// Threads whose groups are kept.
const KNOWN_MAX: usize = 1024;

/// A thread as one user. A program that changes its user changes its groups, too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Caller {
    pid: u32,
    uid: u32,
}

/// Groups that were read lately.
#[derive(Debug, Default)]
pub(super) struct CallerGroups {
    known: Mutex<BTreeMap<Caller, GroupList>>,
}

#[derive(Clone, Debug)]
struct GroupList {
    read_at: Instant,
    groups: Arc<[u32]>,
}

impl CallerGroups {
    /// The supplementary groups of thread `pid`, which acts as `uid`; none for the kernel itself (0) and for threads
    /// that cannot be seen from here.
    pub(super) fn of(&self, pid: u32, uid: u32) -> Arc<[u32]> {
        self.of_at(pid, uid, Instant::now())
    }

    fn of_at(&self, pid: u32, uid: u32, now: Instant) -> Arc<[u32]> {
        if pid == 0 {
            return Arc::default();
        }
        let caller = Caller { pid, uid };
        let is_fresh = |list: &GroupList| now.saturating_duration_since(list.read_at) < AGE_MAX;
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = lock().get(&caller).filter(|list| is_fresh(list)) {
            return list.groups.clone();
        }
        let status = proc_file(pid, "status").unwrap_or_default();
        let groups: Arc<[u32]> = parse(&status).into();
        let mut known = lock();
        if known.len() >= KNOWN_MAX {
            known.retain(|_, list| is_fresh(list));
        }
        if known.len() < KNOWN_MAX {
            known.insert(caller, GroupList { read_at: now, groups: groups.clone() });
        }
        groups
    }
}

/// The groups in a `/proc/PID/status`.
fn parse(status: &str) -> Vec<u32> {
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_of_proc() {
        assert_eq!(parse("Name:\tcat\nGid:\t7\t7\t7\t7\nGroups:\t4 24 1000 \nNStgid:\t1\n"), [4, 24, 1000]);
        assert!(parse("Groups:\t \n").is_empty() && parse("").is_empty());
        let known = CallerGroups::default();
        let (pid, uid) = (std::process::id(), rustix::process::getuid().as_raw());
        let mut own: Vec<u32> = rustix::process::getgroups().unwrap().iter().map(|group| group.as_raw()).collect();
        let mut read = known.of(pid, uid).to_vec();
        own.sort_unstable();
        read.sort_unstable();
        assert_eq!(read, own);
        let now = Instant::now();
        let [first, second] = [(); 2].map(|()| known.of_at(pid, uid, now));
        assert!(Arc::ptr_eq(&first, &second), "the second look reads nothing");
        assert_eq!(known.of(0, 0).len() + known.of(u32::MAX, 0).len(), 0);
    }

    #[test]
    fn table_of_groups_is_bounded() {
        let known = CallerGroups::default();
        let now = Instant::now();
        (0..2 * KNOWN_MAX as u32).for_each(|uid| drop(known.of_at(std::process::id(), uid, now)));
        assert_eq!(known.known.lock().unwrap().len(), KNOWN_MAX);
    }
}
