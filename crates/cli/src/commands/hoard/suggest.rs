//! `remora hoard suggest`: entries that observed use speaks for.

use std::collections::{BTreeMap, BTreeSet};

use remora_host::mount::control_client::KnownMount;
use remora_host::mount::report::{HoardUsage, HoardUseReport};

use crate::commands::hoard::flags::Suggest;
use crate::commands::hoard::operand;
use crate::commands::hoard::profile::{self, Profile, ProfileEntry};
use crate::commands::mount::known_mounts;
use crate::output::exit::Result;
use crate::output::{escape, stdio};

/// Opens of a directory's files that speak for it.
const OPENS_MIN: u64 = 5;
/// Proposals that are printed.
const SHOWN: usize = 10;
/// Programs that are named.
const PROGRAMS_SHOWN: usize = 3;

pub(crate) fn run(args: &Suggest) -> Result {
    let mount = known_mounts::around(&args.dir)?;
    let usage = mount.usage().map_err(|error| known_mounts::unanswered(&mount, error))?;
    let export = operand::export(&mount.note.url)?;
    let mut entries = Profile::read(&profile::path()?)?.entries;
    entries.retain(|entry| entry.is_of(&export));
    let proposals = proposals(usage, &entries);
    if proposals.is_empty() {
        stdio::eprint("nothing to propose: since the mount began, programs opened little that is not hoarded");
    }
    let mut text = String::new();
    for proposal in proposals.iter().take(SHOWN) {
        text += &line(&mount, proposal)?;
    }
    stdio::print(&text)
}

/// An entry, and what speaks for it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Proposal {
    path: String,
    recursive: bool,
    /// Times that something there was missed while the mount was disconnected.
    missed: usize,
    opens: u64,
    files: usize,
    programs: BTreeMap<String, u64>,
}

/// What is proposed beside `entries`, the best first.
fn proposals(usage: HoardUsage, entries: &[ProfileEntry]) -> Vec<Proposal> {
    let mut found: BTreeMap<String, Proposal> = BTreeMap::new();
    let new = |path: &str| Proposal {
        path: path.to_owned(),
        recursive: false,
        missed: 0,
        opens: 0,
        files: 0,
        programs: BTreeMap::new(),
    };
    for missed in usage.missed {
        // The directory: what is beside it will be missed next.
        let dir = parent(&missed);
        found.entry(dir.to_owned()).or_insert_with(|| new(dir)).missed += 1;
    }
    for HoardUseReport { path, opens, files, programs } in usage.used {
        if opens >= OPENS_MIN || found.contains_key(&path) {
            let proposal = found.entry(path.clone()).or_insert_with(|| new(&path));
            (proposal.opens, proposal.files, proposal.programs) = (opens, files, programs);
        }
    }
    let mut proposals = joined(found.into_values().collect());
    proposals.retain(|proposal| !entries.iter().any(|entry| covers(entry, proposal)));
    proposals.sort_by(|one, other| {
        (other.missed, other.opens).cmp(&(one.missed, one.opens)).then(one.path.cmp(&other.path))
    });
    proposals
}

/// Proposals whose directories have a common parent become one of the parent, unless that is the mounted directory.
fn joined(mut proposals: Vec<Proposal>) -> Vec<Proposal> {
    loop {
        let mut children: BTreeMap<&str, usize> = BTreeMap::new();
        let mut known: BTreeSet<&str> = BTreeSet::new();
        for proposal in &proposals {
            known.insert(&proposal.path);
            if proposal.path != "/" {
                *children.entry(parent(&proposal.path)).or_default() += 1;
            }
        }
        let is_common = |(path, count): &(&&str, &usize)| **path != "/" && (**count > 1 || known.contains(**path));
        // The deepest first, so that a tree grows from its leaves.
        let common = children.iter().filter(is_common).max_by_key(|(path, _)| path.matches('/').count());
        let Some(common) = common.map(|(path, _)| (*path).to_owned()) else { return proposals };
        let (inside, mut rest): (Vec<Proposal>, Vec<Proposal>) =
            proposals.into_iter().partition(|proposal| proposal.path == common || parent(&proposal.path) == common);
        let mut inside = inside.into_iter();
        let Some(mut whole) = inside.next() else { return rest };
        (whole.path, whole.recursive) = (common, true);
        for part in inside {
            whole.missed += part.missed;
            whole.opens += part.opens;
            whole.files += part.files;
            part.programs.into_iter().for_each(|(name, opens)| *whole.programs.entry(name).or_default() += opens);
        }
        rest.push(whole);
        proposals = rest;
    }
}

/// Whether an entry has all that a proposal has.
fn covers(entry: &ProfileEntry, proposal: &Proposal) -> bool {
    let inside = proposal.path.trim_end_matches('/').strip_prefix(entry.path.trim_end_matches('/'));
    let is_same = inside == Some("");
    let is_below = inside.is_some_and(|rest| rest.starts_with('/'));
    let is_deep = entry.recursive || !proposal.recursive;
    entry.glob.is_none() && (is_same && is_deep || is_below && entry.recursive)
}

/// The directory of a path.
fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        None | Some(("", _)) => "/",
        Some((parent, _)) => parent,
    }
}

fn line(mount: &KnownMount, proposal: &Proposal) -> Result<String> {
    let path = operand::shown(mount, &proposal.path);
    let mut words: Vec<String> = ["remora", "hoard", "add"].map(str::to_owned).into();
    words.extend(proposal.recursive.then(|| "--recursive".to_owned()));
    words.push(path);
    let evidence = escape::printable(evidence(proposal).as_bytes());
    Ok(format!("# {evidence}\n{}\n", stdio::for_shell(&words)?))
}

fn evidence(proposal: &Proposal) -> String {
    let mut parts = Vec::new();
    if proposal.missed > 0 {
        parts.push(format!("{} missed while disconnected", count(proposal.missed as u64, "path")));
    }
    if proposal.opens > 0 {
        let mut programs: Vec<(&String, &u64)> = proposal.programs.iter().collect();
        programs.sort_by_key(|(_, opens)| std::cmp::Reverse(**opens));
        let named = programs.iter().filter(|(name, _)| !name.is_empty()).take(PROGRAMS_SHOWN);
        let named: Vec<String> = named.map(|(name, opens)| format!("{name} {opens}")).collect();
        let by = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
        let files = count(proposal.files as u64, "file");
        parts.push(format!("{} of {files}{by}", count(proposal.opens, "open")));
    }
    parts.join(", ")
}

fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(path: &str, opens: u64, program: &str) -> HoardUseReport {
        HoardUseReport { path: path.into(), opens, files: 2, programs: BTreeMap::from([(program.into(), opens)]) }
    }

    fn paths(proposals: &[Proposal]) -> Vec<(&str, bool)> {
        proposals.iter().map(|proposal| (proposal.path.as_str(), proposal.recursive)).collect()
    }

    #[test]
    fn directories_with_a_common_parent_are_proposed_as_one() {
        let used = vec![
            used("/p/src/a", 20, "rustc"),
            used("/p/src/b", 10, "vim"),
            used("/p", 5, "make"),
            used("/mail", 40, "mutt"),
            used("/once", 1, "cat"),
            used("/", 50, "ls"),
        ];
        let found = proposals(HoardUsage { used, missed: Vec::new() }, &[]);
        assert_eq!(paths(&found), [("/", false), ("/mail", false), ("/p", true)]);
        assert_eq!(evidence(&found[2]), "35 opens of 6 files (rustc 20, vim 10, make 5)");
    }

    #[test]
    fn missed_paths_come_first_and_hoarded_ones_not_at_all() {
        let used = vec![used("/mail", 40, "mutt"), used("/p/src", 9, "make")];
        let missed = vec!["/docs/a.txt".to_owned(), "/docs/b.txt".to_owned(), "/p/x".to_owned()];
        let entry = |path: &str, recursive| ProfileEntry {
            url: "nfs://nas/".into(),
            path: path.into(),
            priority: 50,
            recursive,
            glob: None,
        };
        let usage = HoardUsage { used, missed };
        let found = proposals(usage.clone(), &[entry("/mail", false)]);
        assert_eq!(paths(&found), [("/docs", false), ("/p", true)]);
        assert_eq!(evidence(&found[0]), "2 paths missed while disconnected");
        let found = proposals(usage, &[entry("/mail/", false), entry("/p", true), entry("/docs", true)]);
        assert_eq!(paths(&found), []);
    }
}
