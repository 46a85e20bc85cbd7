//! Programs of this machine, and what is missing.

use std::path::PathBuf;

/// A missing program or kernel, and how to get it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing(pub String);

/// Finds a program on the path or among the administrators' programs.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    places.map(|p| p.join(program)).find(|p| p.is_file())
}
