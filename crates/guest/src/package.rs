//! Debian packages, downloaded and unpacked below the user's cache directory, and not installed.
//! Later runs reuse them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Missing;

/// The directory of the unpacked `package`, which contains `file`; downloads it if needed.
pub fn unpacked(package: &str, file: &str) -> Result<PathBuf, Missing> {
    let fetch = || {
        let place = cache()?.join(package);
        if !place.join(file).is_file() {
            unpack(package, &place)?;
        }
        if place.join(file).is_file() { Ok(place) } else { Err(format!("{package} has no {file}")) }
    };
    fetch().map_err(|why| Missing(format!("install {package} ({why})")))
}

/// The cache directory of all packages.
pub fn cache() -> Result<PathBuf, String> {
    let home = || std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|p| p.is_absolute()).or_else(home);
    Ok(cache.ok_or("there is no cache directory")?.join("remora"))
}

/// Downloads a package and unpacks it in `place`, which exists once all of it does.
pub(crate) fn unpack(package: &str, place: &Path) -> Result<(), String> {
    let io = |e: io::Error| e.to_string();
    let above = place.parent().ok_or("there is no place for it")?;
    fs::create_dir_all(above).map_err(io)?;
    let scratch = tempfile::tempdir_in(above).map_err(io)?;
    ask("apt-get", &["download", package], scratch.path())?;
    let is_package = |p: &PathBuf| p.extension().is_some_and(|e| e == "deb");
    let file = entries(scratch.path()).into_iter().find(is_package).ok_or("apt-get downloaded nothing")?;
    ask("dpkg-deb", &["-x", &file.to_string_lossy(), "unpacked"], scratch.path())?;
    if place.exists() {
        fs::remove_dir_all(place).map_err(io)?;
    }
    fs::rename(scratch.path().join("unpacked"), place).map_err(io)
}

/// Runs a program in `place` and returns its output.
pub(crate) fn ask(program: &str, arguments: &[&str], place: &Path) -> Result<String, String> {
    let output = Command::new(program).args(arguments).current_dir(place).stdin(Stdio::null()).output();
    let output = output.map_err(|_| format!("there is no {program}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(format!("{program} {} failed", arguments.join(" "))) }
}

/// The entries of a directory; empty if it cannot be read.
pub(crate) fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).map(|all| all.flatten().map(|e| e.path()).collect()).unwrap_or_default()
}
