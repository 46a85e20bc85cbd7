//! `remora ls`: lists directories sorted by name, with `-R` recursively.

use std::sync::Arc;

use bytes::Bytes;
use clap::Args;
use remora_host::client::ClientError;
use remora_wire::nfs3::{Fh, FileType};

use crate::commands::files::operands::OperandErrors;
use crate::config::settings::names;
use crate::output::exit::{Error, Result};
use crate::output::{escape, exit, stdio};
use crate::remote::attributes::{Object, long_line};
use crate::remote::concurrency::{Ahead, NEAR_MAX, jobs_max};
use crate::remote::filesystem::Remote;
use crate::remote::flags::LinkArgs;
use crate::remote::listing::Node;
use crate::remote::listing::{DEPTH_MAX, Entry, Listing};
use crate::remote::servers::{Place, Servers};

pub(crate) const LS_HELP: &str = "\
Examples:
  remora ls nfs://nas/home
  remora ls -lh nfs://nas/home nfs://nas/media
  remora ls -R --json nfs://nas/home | jq -r .name";

#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Ls {
    /// Show mode, link count, owner, group, size and modification time (UTC)
    #[arg(short)]
    pub(crate) long: bool,
    /// With -l: show sizes in K, M, G and so on (powers of 1024), like ls -lh
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,
    /// No effect: hidden names are always listed, '.' and '..' never
    #[arg(short, long)]
    pub(crate) all: bool,
    /// List directories recursively, as paths relative to URL
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Print an object for each entry: name (with -R the path from URL), type, mode, nlink, uid, gid, size, used, fsid,
    /// fileid, atime, mtime and ctime (seconds, nanoseconds); target of a link; name_hex of a name that is not UTF-8;
    /// with several URLs url, the one that led to it
    #[arg(long)]
    pub(crate) json: bool,
    /// Print this help
    #[arg(long, action = clap::ArgAction::Help)]
    pub(crate) help: Option<bool>,
    /// Directories or files to list; several directories get headings
    #[arg(value_name = "URL", required = true, value_parser = names::url)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

/// So much is written at a time, in bytes: a long listing needs neither many writes nor much room.
const PAGE: usize = 1 << 16;

pub(crate) async fn run(args: Ls) -> Result {
    let mut servers = Servers::new(args.link.clone());
    let mut told = OperandErrors::new("ls");
    let is_one = args.urls.len() == 1;
    let (mut tops, mut is_first) = (Vec::new(), true);
    for url in &args.urls {
        let found = find(&mut servers, &args, url).await;
        let done = match found {
            Ok((place, node)) if node.is_dir() => {
                tops.push((place.remote, ListedDir::top(url, node.fh)));
                Ok(())
            }
            Ok((place, node)) => {
                is_first = false;
                // With several it is called what it was asked for by, as ls does.
                let name = if is_one || args.json { place.name().unwrap_or_default() } else { url };
                let entry = Entry { name: name.to_owned().into(), node };
                print(&place.remote, &args, &ListedDir::top(url, place.remote.session().root().clone()), &[entry]).await
            }
            Err(e) => Err(e),
        };
        told.settle(done)?;
    }
    for (remote, top) in tops {
        if !is_one && !args.json {
            let gap = if is_first { "" } else { "\n" };
            stdio::print(&format!("{gap}{}:\n", escape::printable(top.url.as_bytes())))?;
        }
        is_first = false;
        list_tree(&remote, &args, top, &mut told).await?;
    }
    told.finish()
}

/// Looks up a URL.
async fn find(servers: &mut Servers, args: &Ls, url: &str) -> Result<(Place, Node)> {
    let place = servers.place(url).await?;
    let node = place.look(!args.long).await.map_err(Error::remote(url))?;
    Ok((place, node))
}

/// Lists a directory, and with `-R` those below it.
async fn list_tree(remote: &Remote, args: &Ls, top: ListedDir, told: &mut OperandErrors) -> Result {
    let mut dirs = Ahead::new(NEAR_MAX, |dir| list(remote.clone(), dir));
    dirs.push(top);
    while let Some((dir, early)) = dirs.next().await? {
        let Listing { mut entries, unknown } = match remote.list_now(&dir.fh, early).await {
            Ok(listing) => listing,
            Err(e) => {
                told.settle(Err(Error::remote(&dir.url)(e)))?;
                continue;
            }
        };
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        print(remote, args, &dir, &entries).await?;
        // Errors come after all listings.
        for (name, e) in unknown {
            told.settle(Err(Error::remote(format!("{}: {}", dir.url, escape::printable(&name)))(e)))?;
        }
        for inner in entries.iter().filter(|entry| args.recursive && entry.node.is_dir()) {
            let inner = dir.inner(inner);
            match inner.depth > DEPTH_MAX {
                true => told.settle(Err(Error::refused(inner.url, "directories are nested too deeply")))?,
                false => dirs.push(inner),
            }
        }
    }
    Ok(())
}

/// A directory to be listed.
struct ListedDir {
    fh: Fh,
    url: String,
    /// The URL on the command line that it was found by.
    given: Arc<str>,
    /// From the one that was named, which has none.
    path: Vec<u8>,
    depth: usize,
}

impl ListedDir {
    /// One that was named.
    fn top(url: &str, fh: Fh) -> ListedDir {
        ListedDir { fh, url: url.to_owned(), given: url.into(), path: Vec::new(), depth: 0 }
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        match self.depth {
            0 => name.to_owned(),
            _ => [&self.path, &b"/"[..], name].concat(),
        }
    }

    fn inner(&self, Entry { name, node }: &Entry) -> ListedDir {
        let (url, path) = (escape::child_url(&self.url, name), self.path_of(name));
        ListedDir { fh: node.fh.clone(), url, given: self.given.clone(), path, depth: self.depth + 1 }
    }
}

/// Lists it, before its turn perhaps.
async fn list(remote: Remote, dir: ListedDir) -> (ListedDir, std::result::Result<Option<Listing>, ClientError>) {
    let early = remote.list_early(&dir.fh, dir.depth).await;
    (dir, early)
}

/// Prints what is in a directory, or what was named and is none.
async fn print(remote: &Remote, args: &Ls, dir: &ListedDir, entries: &[Entry]) -> Result {
    let mut targets = Ahead::new(jobs_max(remote.session()), |link| target(remote.clone(), link));
    if args.long || args.json {
        entries.iter().filter(|e| is_link(e)).for_each(|link| targets.push(link.node.fh.clone()));
    }
    let mut page = String::new();
    for entry in entries {
        let target = match is_link(entry) {
            true => targets.next().await?.unwrap_or(Ok(None)),
            false => Ok(None),
        };
        let target = match target {
            Ok(target) => target,
            Err(e) => {
                stdio::print(&page)?;
                return Err(Error::remote(&dir.url)(e));
            }
        };
        page.push_str(&line(args, dir, entry, target.as_deref())?);
        if page.len() > PAGE {
            stdio::print(&page)?;
            page.clear();
        }
    }
    stdio::print(&page)
}

fn line(args: &Ls, dir: &ListedDir, entry: &Entry, target: Option<&[u8]>) -> Result<String> {
    let (path, attr) = (dir.path_of(&entry.name), &entry.node.attr);
    if args.json {
        let object = Object::new(&path, attr, target);
        let object = if args.urls.len() > 1 { object.found_by(&dir.given) } else { object };
        return Ok(stdio::json_line(&object)? + "\n");
    }
    match args.long {
        true => Ok(long_line(&path, attr, target, args.human_readable)),
        false => Ok(escape::printable(&path) + "\n"),
    }
}

fn is_link(entry: &Entry) -> bool {
    entry.node.attr.kind == FileType::SymLink
}

/// What a symbolic link points at; a link that cannot be read is shown without. Fails if the server is out of
/// reach: what is asked next would be waited for as long.
async fn target(remote: Remote, link: Fh) -> Result<Option<Bytes>, ClientError> {
    match remote.readlink(&link).await {
        Err(e) if exit::is_lost(&e) => Err(e),
        target => Ok(target.ok()),
    }
}
