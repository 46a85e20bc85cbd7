//! `remora ls`: lists a directory, sorted by name.

use bytes::Bytes;
use remora_host::client::ClientError;
use remora_wire::nfs3::{Fh, FileType};

use crate::ahead::Ahead;
use crate::args::Ls;
use crate::exit::{self, Error, Result};
use crate::object::{Object, long_line};
use crate::out;
use crate::pool::jobs_max;
use crate::remote::{Entry, Listing, Remote};
use crate::servers::Servers;

pub(crate) async fn run(args: Ls) -> Result {
    let place = Servers::new(args.link).place(&args.url).await?;
    let failed = |e| Error::remote(&args.url)(e);
    let node = place.look(!args.long).await.map_err(failed)?;
    let Listing { mut entries, unknown } = if node.is_dir() {
        place.remote.list(&node.fh).await.map_err(failed)?
    } else {
        let name = place.name().unwrap_or_default().to_owned();
        Listing { entries: vec![Entry { name: name.into(), node }], unknown: Vec::new() }
    };
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let remote = &place.remote;
    let mut targets = Ahead::new(jobs_max(remote.session()), |link| target(remote.clone(), link));
    if args.long || args.json {
        entries.iter().filter(|e| is_link(e)).for_each(|link| targets.push(link.node.fh.clone()));
    }
    let mut page = String::new();
    for entry in &entries {
        let target = match is_link(entry) {
            true => targets.next().await?.unwrap_or(Ok(None)),
            false => Ok(None),
        };
        let target = match target {
            Ok(target) => target,
            Err(e) => {
                out::text(&page)?;
                return Err(failed(e));
            }
        };
        page.push_str(&line(entry, target.as_deref(), args.long, args.json)?);
        // Written in pages, so that a long listing needs neither many writes nor much room.
        if page.len() > 1 << 16 {
            out::text(&page)?;
            page.clear();
        }
    }
    out::text(&page)?;
    complain(&args.url, unknown)
}

/// What could not be looked at is told when all else is.
fn complain(url: &str, unknown: Vec<(Bytes, ClientError)>) -> Result {
    let mut code = 0;
    for (name, e) in unknown {
        let error = Error::remote(format!("{url}: {}", out::shown(&name)))(e);
        exit::show("ls", &error);
        code = error.code().max(code);
    }
    if code == 0 { Ok(()) } else { Err(Error::Reported(code)) }
}

fn line(entry: &Entry, target: Option<&[u8]>, long: bool, json: bool) -> Result<String> {
    if json {
        return Ok(out::json_line(&Object::new(&entry.name, &entry.node.attr, target))? + "\n");
    }
    if long {
        return Ok(long_line(&entry.name, &entry.node.attr, target));
    }
    Ok(out::shown(&entry.name) + "\n")
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
