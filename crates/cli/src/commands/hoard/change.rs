//! `remora hoard add`, `remove` and `list`: the entries of the profile.

use remora_host::mount::control_client::KnownMount;

use crate::commands::hoard::flags::{Add, List, Remove};
use crate::commands::hoard::operand::{self, MountedPath};
use crate::commands::hoard::profile::{self, Profile, ProfileEntry};
use crate::commands::mount::known_mounts;
use crate::output::exit::{Error, Result};
use crate::output::{escape, stdio};

pub(crate) fn add(args: &Add) -> Result {
    let MountedPath { mount, path } = operand::find(&args.path)?;
    let entry = ProfileEntry {
        url: mount.note.url.clone(),
        path,
        priority: args.priority,
        recursive: args.recursive,
        glob: args.glob.as_ref().map(|glob| glob.text().to_owned()),
    };
    Profile::read(&profile::path()?)?.add(&operand::export(&mount.note.url)?, &entry)?;
    reload(&mount)
}

pub(crate) fn remove(args: &Remove) -> Result {
    let MountedPath { mount, path } = operand::find(&args.path)?;
    let profile = Profile::read(&profile::path()?)?;
    let removed = profile.remove(&operand::export(&mount.note.url)?, &path, args.glob.as_deref())?;
    if removed == 0 {
        let why = "the profile has no such entry";
        return Err(Error::refused(args.path.display(), why).with_hint("remora hoard list shows the entries"));
    }
    reload(&mount)
}

/// Has the mount read the profile. It says why it hoards nothing.
fn reload(mount: &KnownMount) -> Result {
    let report = mount.reload_hoard().map_err(|error| known_mounts::unanswered(mount, error))?;
    if let Some(why) = report.error {
        return Err(Error::refused(mount.note.dir.display(), why));
    }
    if !report.has_disk {
        stdio::eprint("the mount has no cache on disk, so nothing is kept: mount without --cache-size 0");
    }
    Ok(())
}

pub(crate) fn list(args: &List) -> Result {
    let mut entries = Profile::read(&profile::path()?)?.entries;
    if let Some(dir) = &args.dir {
        let export = operand::export(&known_mounts::around(dir)?.note.url)?;
        entries.retain(|entry| entry.is_of(&export));
    }
    // In the order of a walk.
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.priority));
    if args.json {
        return entries.iter().try_for_each(stdio::print_json);
    }
    if entries.is_empty() {
        stdio::eprint("the profile has no entries; remora hoard add makes one");
    }
    stdio::print(&entries.iter().map(line).collect::<String>())
}

fn line(entry: &ProfileEntry) -> String {
    let ProfileEntry { url, path, priority, recursive, glob } = entry;
    let recursive = if *recursive { ", recursive" } else { "" };
    let glob = glob.as_ref().map_or(String::new(), |glob| format!(", only {glob}"));
    let text = format!("{priority:>3}  {path}{recursive}{glob}  ({url})");
    format!("{}\n", escape::printable(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_entry_is_one_line() {
        let entry = ProfileEntry {
            url: "nfs://nas/srv".into(),
            path: "/a\nb".into(),
            priority: 7,
            recursive: true,
            glob: Some("*.rs".into()),
        };
        assert_eq!(line(&entry), "  7  /a\\nb, recursive, only *.rs  (nfs://nas/srv)\n");
    }
}
