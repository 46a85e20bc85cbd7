//! The shares of a server: directories, names and clients, from flags and exports files.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use remora_host::exports::Entry;
use remora_server::{Access, Clients, ExportsError, Terms};

use crate::commands::serve::exports::exports_file;
use crate::commands::serve::exports::exports_file::Pipes;
use crate::commands::serve::exports::share::{Share, list, plain, shown};
use crate::commands::serve::flags::Serve;
use crate::commands::serve::output::warnings;
use crate::output::exit::{Error, Result, io_text};

/// The shares of a server, and notes about their files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub(crate) shares: Vec<Share>,
    /// Notes for the author of the exports files.
    pub(crate) notes: Vec<String>,
}

/// Reads the flags and the files they name. Has no side effects; blocks.
pub(crate) fn plan(args: &Serve, pipes: Pipes) -> Result<Plan> {
    let access = access(args)?;
    let (mut shares, mut notes) = (Vec::new(), Vec::new());
    for dir in &args.dirs {
        let dir = directory(dir)?;
        let path = utf8(&dir)?.to_owned();
        let (names, aliases, unlisted) = (vec![path], aliases(&dir), Vec::new());
        shares.push(Share { dir, names, aliases, unlisted, access: access.clone(), place: None });
    }
    for export in &args.export {
        let (name, dir) = named(export)?;
        let (dir, names, unlisted) = (directory(dir)?, vec![name], vec!["/".to_owned()]);
        shares.push(Share { dir, names, aliases: Vec::new(), unlisted, access: access.clone(), place: None });
    }
    for path in &args.exports {
        let parsed = exports_file::read(path, args.exports_format, pipes)?;
        notes.extend(
            parsed.notes.into_iter().map(|(line, text)| exports_file::at(path, line, format_args!("note: {text}"))),
        );
        for entry in parsed.entries {
            shares.push(from_file(path, entry)?);
        }
    }
    if shares.is_empty() {
        return Err(Error::Usage(match &args.exports[..] {
            [] => "nothing to share: give a directory".into(),
            files => format!("nothing to share in {}", list(files.iter().map(|f| f.display()))),
        }));
    }
    settle(&mut shares);
    can_be_shown(&shares)?;
    no_name_twice(&shares)?;
    notes.extend(warnings::of_nesting(&shares));
    Ok(Plan { shares, notes })
}

/// Parses `NAME=DIR`. NAME is UTF-8, DIR any bytes.
fn named(export: &OsStr) -> Result<(String, &Path)> {
    let wrong = |why: &str| Error::Usage(format!("--export {}: {why}", export.display()));
    let bytes = export.as_bytes();
    let at = bytes.iter().position(|b| *b == b'=');
    let (name, dir) =
        at.map(|at| bytes.split_at(at)).ok_or_else(|| wrong("expected NAME=DIR, such as /photos=/srv/photos"))?;
    let name = std::str::from_utf8(name).map_err(|_| wrong("the name is not UTF-8"))?;
    let name = if name.starts_with('/') { name.to_owned() } else { format!("/{name}") };
    Ok((name, Path::new(OsStr::from_bytes(dir.get(1..).unwrap_or_default()))))
}

/// Access rules of the command line's directories.
fn access(args: &Serve) -> Result<Access> {
    let (read_only, squash, secure) = (args.read_only, args.squash.into(), args.secure);
    let terms = Terms { read_only, squash, secure, ..Terms::default() };
    if args.allow.is_empty() {
        return Ok(Access::everybody(terms));
    }
    let wrong = |e: String| Error::Usage(format!("--allow: {e}"));
    let clients = args.allow.iter().map(|a| a.parse::<Clients>());
    let clients = clients.collect::<Result<Vec<_>, String>>().map_err(wrong)?;
    Access::of(clients, terms).map_err(|e| wrong(e.to_string()))
}

fn from_file(path: &Path, entry: Entry) -> Result<Share> {
    let wrong = |why: String| Error::Usage(exports_file::at(path, entry.line, why));
    if !entry.path.starts_with('/') {
        return Err(wrong(format!("'{}' is not an absolute path", entry.path)));
    }
    let dir = std::fs::canonicalize(&entry.path).map_err(|e| wrong(format!("{}: {}", entry.path, io_text(&e))))?;
    if !dir.is_dir() {
        return Err(wrong(format!("{} is not a directory", entry.path)));
    }
    let (names, aliases) = match entry.names {
        Some(names) => (names, Vec::new()),
        // Verbatim: clients mount what the file says.
        None => (vec![entry.path.clone()], aliases(Path::new(&entry.path))),
    };
    Ok(Share {
        dir,
        names,
        aliases,
        unlisted: Vec::new(),
        access: entry.access,
        place: Some((path.to_owned(), entry.line)),
    })
}

/// Aliases of a directory: its last name, and `/`.
fn aliases(dir: &Path) -> Vec<String> {
    let last = dir.file_name().and_then(|n| n.to_str()).map(|n| format!("/{n}"));
    last.into_iter().chain(["/".to_owned()]).collect()
}

/// Gives each share the aliases that no other share claims.
fn settle(shares: &mut [Share]) {
    let names: HashSet<Vec<u8>> = shares.iter().flat_map(|s| &s.names).map(|name| plain(name)).collect();
    let mut claims: HashMap<String, usize> = HashMap::new();
    for alias in shares.iter().flat_map(|s| s.aliases.iter().chain(&s.unlisted)) {
        *claims.entry(alias.clone()).or_default() += 1;
    }
    let alone = shares.len() == 1;
    let is_free =
        |alias: &String| claims.get(alias) == Some(&1) && !names.contains(&plain(alias)) && (alone || alias != "/");
    for share in shares {
        share.names.extend(std::mem::take(&mut share.aliases).into_iter().filter(is_free));
        share.unlisted.retain(is_free);
    }
}

/// Rejects control characters in names: showmount and others print them.
fn can_be_shown(shares: &[Share]) -> Result {
    let named = |share: &&Share| share.paths().any(|name| name.contains(char::is_control));
    let Some(share) = shares.iter().find(named) else { return Ok(()) };
    let why = "its name contains control characters; give it another name (names = [...] in TOML, --export NAME=DIR)";
    Err(share.wrong(format!("{}: {why}", shown(&share.dir))))
}

/// The server core rejects duplicates, too, but without file and line.
fn no_name_twice(shares: &[Share]) -> Result {
    let mut taken: HashMap<&String, usize> = HashMap::new();
    for (i, share) in shares.iter().enumerate() {
        for name in &share.names {
            // One share may have a name twice by itself, which the core refuses.
            if *taken.entry(name).or_insert(i) != i {
                return Err(share.wrong(format!("'{name}' is exported twice")));
            }
        }
    }
    Ok(())
}

/// The server core's error about a name, with file and line.
pub(crate) fn wrong_name(shares: &[Share], why: &ExportsError) -> Error {
    let (ExportsError::BadName(name) | ExportsError::Twice(name)) = why else { return Error::Usage(why.to_string()) };
    let named = shares.iter().rev().find(|s| s.paths().any(|n| n == name));
    named.map_or_else(|| Error::Usage(why.to_string()), |share| share.wrong(why.to_string()))
}

fn directory(dir: &Path) -> Result<PathBuf> {
    let whole = std::fs::canonicalize(dir).map_err(Error::local(dir.display()))?;
    if whole.is_dir() { Ok(whole) } else { Err(Error::refused(dir.display(), "is not a directory")) }
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str()
        .ok_or_else(|| Error::refused(path.display(), "its path is not UTF-8; give it a name with --export NAME=DIR"))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
