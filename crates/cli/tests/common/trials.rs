//! Tests that are skipped by name where a program or a right they need is missing.

use std::path::PathBuf;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use super::is_root;

/// A trial, or its place-holder where something it needs is missing; `tell` says so.
pub(crate) fn trial(name: &'static str, programs: &[&str], root: bool, run: fn(), tell: bool) -> Trial {
    let missing = programs.iter().find(|p| find(p).is_none()).map(|p| format!("{p} is not installed"));
    let missing = missing.or_else(|| (root && !is_root()).then(|| "needs root".to_owned()));
    let missing =
        missing.or_else(|| (root && !can_make_namespaces()).then(|| "cannot make network namespaces".to_owned()));
    let Some(reason) = missing else {
        return Trial::test(name, move || {
            run();
            Ok(())
        });
    };
    if skip::all_required() {
        return Trial::test(name, move || Err(Failed::from(reason)));
    }
    if tell {
        skip::skipped(name, &reason);
    }
    Trial::test(name, || Ok(())).with_ignored_flag(true)
}

pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    places.map(|p| p.join(program)).find(|p| p.is_file())
}

pub(crate) fn program(name: &str) -> Command {
    Command::new(find(name).unwrap_or_else(|| name.into()))
}

fn can_make_namespaces() -> bool {
    program("unshare").args(["--net", "--pid", "--fork", "true"]).output().is_ok_and(|o| o.status.success())
}
