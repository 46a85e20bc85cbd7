//! `cargo xtask tidy`: the rules of the project that the compiler does not know.
//!
//! Each rule is a module with a function from files to violations. Read `violation` first.

mod clocks;
mod commits;
mod imports;
mod licences;
mod links;
mod manifest;
mod modules;
mod prose;
mod syntax;
mod text;
mod violation;

use std::process::Command;

use cargo_metadata::MetadataCommand;

use crate::cmd::{self, Result, root};
use violation::File;

/// Applies all rules and prints the violations.
pub(crate) fn run() -> Result {
    let files = project_files()?;
    let metadata = MetadataCommand::new().current_dir(root()).no_deps().exec()?;
    let mut found = imports::check(&metadata, &files);
    found.extend(manifest::check(&files));
    found.extend(licences::check(&files)?);
    found.extend(clocks::check(&files));
    found.extend(commits::check()?);
    found.extend(links::check(&files, |path| root().join(path).exists()));
    found.extend(text::check_all(&files));
    found.extend(modules::check(&files));
    found.extend(prose::check(&files));
    found.extend(syntax::check(&files));
    found.sort();
    found.iter().for_each(|violation| println!("{violation}"));
    match found.len() {
        0 => Ok(()),
        n => Err(format!("tidy found {n} violation{}", if n == 1 { "" } else { "s" }).into()),
    }
}

/// The text files that git tracks, or would track after `git add`.
fn project_files() -> Result<Vec<File>> {
    let mut git = Command::new("git");
    // On a build machine the checkout may belong to another user.
    git.args(["-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]);
    let out = git.current_dir(root()).output().map_err(|e| format!("cannot start git: {e}"))?;
    if !out.status.success() {
        return Err(format!("{} failed: {}", cmd::name(&git), String::from_utf8_lossy(&out.stderr).trim()).into());
    }
    let mut paths: Vec<&str> = std::str::from_utf8(&out.stdout)?.split('\0').filter(|p| !p.is_empty()).collect();
    paths.sort_unstable();
    paths.dedup();
    // Files that are not UTF-8 are not text; tracked files may be deleted.
    let read = |path: &&str| {
        let text = std::fs::read_to_string(root().join(path)).ok()?;
        Some(File { path: (*path).to_owned(), text })
    };
    Ok(paths.iter().filter_map(read).collect())
}
