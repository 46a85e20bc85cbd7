//! Exports as they are understood: as text for people, as objects for programs, and what
//! changed from one time to the next.

use std::borrow::Cow;
use std::collections::HashMap;

use remora_server::{Rule, Squash};
use serde::Serialize;

use crate::commands::serve::exports::open_exports::Loaded;
use crate::commands::serve::exports::share::{Share, list, plain, shown};
use crate::output::escape;

/// An export as `--json` prints it.
#[derive(Serialize)]
pub(crate) struct ExportView<'a> {
    /// What is no text in it is replaced: JSON has nothing else.
    directory: Cow<'a, str>,
    names: Vec<&'a String>,
    clients: Vec<RuleView>,
}

/// Some of its clients, in the order in which they are looked at.
#[derive(Serialize)]
struct RuleView {
    client: String,
    read_only: bool,
    squash: &'static str,
    anon_uid: u32,
    anon_gid: u32,
    secure: bool,
    acl: bool,
}

/// What came of reading everything again.
#[derive(Serialize, PartialEq, Eq, Debug, Default)]
pub(crate) struct Changes {
    /// First names of the added exports.
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) changed: Vec<String>,
    /// How many are as before.
    pub(crate) kept: usize,
}

/// The exports as objects.
pub(crate) fn views(shares: &[Share]) -> Vec<ExportView<'_>> {
    let clients = |s: &Share| s.access.rules().iter().map(rule_view).collect();
    shares
        .iter()
        .map(|s| ExportView { directory: s.dir.to_string_lossy(), names: s.paths().collect(), clients: clients(s) })
        .collect()
}

fn rule_view(rule: &Rule) -> RuleView {
    let terms = rule.terms;
    RuleView {
        client: rule.clients.to_string(),
        read_only: terms.read_only,
        squash: squash(terms.squash),
        anon_uid: terms.anon_uid,
        anon_gid: terms.anon_gid,
        secure: terms.secure,
        acl: terms.acl,
    }
}

fn squash(squash: Squash) -> &'static str {
    match squash {
        Squash::Root => "root",
        Squash::All => "all",
        Squash::None => "none",
    }
}

/// The exports as text: a line each, and one for each of its rules.
pub(crate) fn text(shares: &[Share]) -> String {
    shares.iter().map(|s| format!("{}{}", line(s), rules(s.access.rules()))).collect()
}

/// An export on a line.
pub(crate) fn line(share: &Share) -> String {
    format!("{} as {}\n", shown(&share.dir), list(share.paths().map(|name| escape::printable(name.as_bytes()))))
}

fn rules(rules: &[Rule]) -> String {
    let width = rules.iter().map(|r| r.clients.to_string().len()).max().unwrap_or_default();
    let line = |rule: &Rule| {
        let terms = rule.terms;
        let access = if terms.read_only { "read-only " } else { "read-write" };
        let who = match terms.squash {
            Squash::Root => format!("root as {}:{}", terms.anon_uid, terms.anon_gid),
            Squash::All => format!("all users as {}:{}", terms.anon_uid, terms.anon_gid),
            Squash::None => "all users as themselves".to_owned(),
        };
        let ports = if terms.secure { ", from ports below 1024 only" } else { "" };
        let acls = if terms.acl { "" } else { ", without ACLs" };
        format!("    {:width$}  {access}  {who}{ports}{acls}\n", rule.clients.to_string())
    };
    rules.iter().map(line).collect()
}

impl Changes {
    /// From `before` to `now`. Exports are the same if their first names are, however spelt.
    pub(crate) fn between(before: &Loaded, now: &Loaded) -> Changes {
        let (old, new) = (&before.plan.shares, &now.plan.shares);
        let mut changes = Changes::default();
        let known = by_name(old);
        for (i, share) in new.iter().enumerate() {
            let Some(name) = share.names.first().cloned() else { continue };
            match known.get(&plain(&name)).copied() {
                None => changes.added.push(name),
                Some(was) if same(&old[was], share) && now.same_directory(before, i, was) => changes.kept += 1,
                Some(_) => changes.changed.push(name),
            }
        }
        let known = by_name(new);
        changes.removed =
            old.iter().filter_map(|s| s.names.first()).filter(|n| !known.contains_key(&plain(n))).cloned().collect();
        changes
    }
}

/// Where the shares of these first names are.
fn by_name(shares: &[Share]) -> HashMap<Vec<u8>, usize> {
    shares.iter().enumerate().filter_map(|(i, share)| Some((plain(share.names.first()?), i))).collect()
}

/// Whether two shares of a name mean the same to clients, wherever they are written.
fn same(a: &Share, b: &Share) -> bool {
    (&a.dir, &a.names, &a.unlisted, &a.access) == (&b.dir, &b.names, &b.unlisted, &b.access)
}

impl std::fmt::Display for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |names: &[String]| list(names.iter().map(|name| escape::printable(name.as_bytes())));
        let part = |what: &str, names: &[String]| (!names.is_empty()).then(|| format!("{what} {}", shown(names)));
        let parts = [part("added", &self.added), part("removed", &self.removed), part("changed", &self.changed)];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        match parts.is_empty() {
            true => f.write_str("nothing changed"),
            false => f.write_str(&parts.join("; ")),
        }?;
        write!(f, "; {} as before", self.kept)
    }
}
