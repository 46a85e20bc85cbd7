//! `remora conflicts`: lists what was changed here and elsewhere, and ends such conflicts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use remora_host::mount::control_client::KnownMount;
use remora_host::mount::report::{ConflictName, ConflictReport};

use crate::commands::mount::flags::{Conflicts, KeptVersion};
use crate::commands::mount::known_mounts;
use crate::commands::mount::status::path_text;
use crate::config::units;
use crate::output::exit::{Error, Result};
use crate::output::{escape, stdio};

/// Exit code of diff(1) for trouble.
const DIFF_FAILED: i32 = 2;

pub(crate) fn run(args: &Conflicts) -> Result {
    let mount = known_mounts::around(&args.dir)?;
    let mut conflicts = mount.conflicts().map_err(|error| known_mounts::unanswered(&mount, error))?;
    if let Some(path) = &args.path {
        let path = path_in_mount(&mount.note.dir, path)?;
        conflicts.retain(|conflict| conflict.path == path || conflict.copy.as_deref() == Some(&*path));
        if conflicts.is_empty() {
            let why = "it has no conflict";
            return Err(Error::refused(&path, why).with_hint("remora conflicts DIR lists the conflicts"));
        }
    }
    if let Some(version) = args.keep {
        return keep(&mount, one(&conflicts)?, version);
    }
    if args.diff {
        return diff(&mount.note.dir, one(&conflicts)?);
    }
    if args.json {
        return conflicts.iter().try_for_each(stdio::print_json);
    }
    if conflicts.is_empty() {
        stdio::eprint("no conflicts");
    }
    stdio::print(&conflicts.iter().map(line).collect::<String>())
}

/// `path` as a path from the mounted directory: it is one already, or one of this machine, or relative to `dir`.
fn path_in_mount(dir: &Path, path: &Path) -> Result<String> {
    let local = std::path::absolute(path).map_err(Error::local(path.display()))?;
    // The parent may be reached by a symbolic link; the object may be one.
    let parent = local.parent().and_then(|parent| fs::canonicalize(parent).ok());
    let resolved = parent.zip(local.file_name()).map(|(parent, name)| parent.join(name));
    let inside = [resolved, Some(local)]
        .into_iter()
        .flatten()
        .find_map(|path| path.strip_prefix(dir).ok().map(|path| Path::new("/").join(path)));
    let path = inside.unwrap_or_else(|| Path::new("/").join(path));
    Ok(path.to_string_lossy().into_owned())
}

/// The only one of these.
fn one(conflicts: &[ConflictReport]) -> Result<&ConflictReport> {
    match conflicts {
        [conflict] => Ok(conflict),
        [first, ..] => {
            let why = format!("it has {} conflicts", conflicts.len());
            let hint = "name the copy of one of them: remora conflicts DIR lists them";
            Err(Error::refused(&first.path, why).with_hint(hint))
        }
        [] => Err(Error::Usage("--keep and --diff take the PATH of a conflict".into())),
    }
}

/// A path from the mounted directory as one of this machine.
fn local_path(dir: &Path, path: &str) -> PathBuf {
    dir.join(path.trim_start_matches('/'))
}

/// Makes one version the only one, and forgets the conflict.
fn keep(mount: &KnownMount, conflict: &ConflictReport, version: KeptVersion) -> Result {
    let dir = &mount.note.dir;
    let name = local_path(dir, &conflict.path);
    let copy = conflict.copy.as_ref().map(|copy| local_path(dir, copy));
    match (version, copy, conflict.kind) {
        (KeptVersion::Both, ..) => {}
        (KeptVersion::Mine, Some(copy), _) => fs::rename(&copy, &name).map_err(Error::local(path_text(&copy)))?,
        (KeptVersion::Theirs, Some(copy), _) => remove(&copy)?,
        // Ours is there again, at its name.
        (KeptVersion::Mine, None, ConflictName::RemovedThere | ConflictName::DirectoryRemovedThere) => {}
        (KeptVersion::Theirs, None, ConflictName::RemovedThere) => remove(&name)?,
        // We had removed it.
        (KeptVersion::Mine, None, ConflictName::ChangedThere) => remove(&name)?,
        (KeptVersion::Theirs, None, kind) if kind != ConflictName::DirectoryRemovedThere => {}
        (KeptVersion::Mine | KeptVersion::Theirs, None, _) => {
            let why = "there are not two versions of which one could be removed";
            let hint = "change it as you want it; --keep both then forgets the conflict";
            return Err(Error::refused(&conflict.path, why).with_hint(hint));
        }
    }
    // It may have been dismissed meanwhile.
    mount.dismiss(conflict.id).map(drop).map_err(|error| known_mounts::unanswered(mount, error))
}

/// Removes a version; only an empty directory.
fn remove(path: &Path) -> Result {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        // Somebody has removed it already.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(Error::local(path_text(path))),
    }
}

/// Compares the server's version with ours.
fn diff(dir: &Path, conflict: &ConflictReport) -> Result {
    let Some(copy) = &conflict.copy else {
        let why = "only one version is left";
        return Err(Error::refused(&conflict.path, why).with_hint("remora conflicts DIR says what became of it"));
    };
    let mut command = Command::new("diff");
    command.arg("-u").arg(local_path(dir, &conflict.path)).arg(local_path(dir, copy));
    let status = command.status().map_err(Error::local("diff"))?;
    match status.code() {
        Some(code) if code < DIFF_FAILED => Ok(()),
        // It has printed why.
        _ => Err(Error::Reported(1)),
    }
}

fn line(conflict: &ConflictReport) -> String {
    let printable = |text: &str| escape::printable(text.as_bytes());
    let copy = conflict.copy.as_deref().map_or(String::new(), |copy| format!("; ours is {}", printable(copy)));
    let what = match conflict.kind {
        ConflictName::Content => "both wrote it",
        ConflictName::Type => "it is of another type on the server",
        ConflictName::RemovedThere => "changed here, removed there: it is there again",
        ConflictName::ChangedThere => "removed here, changed there: it stays",
        ConflictName::Renamed => "both renamed it: the server's name stays",
        ConflictName::Skipped => "the change here is not possible any more, and was skipped",
        ConflictName::DirectoryRemovedThere => "the directory was removed there, and is there again for our changes",
        ConflictName::Attributes => "both changed its attributes: the server's stay",
    };
    let at = units::date(u32::try_from(conflict.at_ms / 1000).unwrap_or(u32::MAX));
    format!("{at} UTC  {}: {what}{copy}\n", printable(&conflict.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict(kind: ConflictName, copy: Option<&str>) -> ConflictReport {
        ConflictReport { id: 1, kind, path: "/a\n".into(), copy: copy.map(str::to_owned), at_ms: 1_000_000_000_999 }
    }

    #[test]
    fn line_names_both_versions_and_the_time() {
        assert_eq!(
            line(&conflict(ConflictName::Content, Some("/a (conflict)"))),
            "2001-09-09 01:46:40 UTC  /a\\n: both wrote it; ours is /a (conflict)\n"
        );
        assert!(line(&conflict(ConflictName::Skipped, None)).ends_with("was skipped\n"));
    }

    #[test]
    fn path_may_be_local_or_as_listed() {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        std::os::unix::fs::symlink(&top, top.join("link")).unwrap();
        for path in [top.join("x/y"), top.join("link/x/y"), "/x/y".into(), "x/y".into()] {
            fs::create_dir_all(top.join("x")).unwrap();
            assert_eq!(path_in_mount(&top, &path).unwrap(), "/x/y", "{}", path.display());
        }
    }

    #[test]
    fn one_conflict_must_be_meant() {
        let two = [conflict(ConflictName::Content, Some("/1")), conflict(ConflictName::Content, Some("/2"))];
        assert!(one(&two[..1]).is_ok());
        let why = one(&two).unwrap_err();
        assert!(why.to_string().contains("2 conflicts") && why.hint().is_some_and(|hint| hint.contains("copy")));
        assert!(one(&[]).is_err());
    }
}
