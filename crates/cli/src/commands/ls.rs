//! `remora ls`: lists a directory, sorted by name.

use remora_wire::nfs3::FileType;

use crate::args::Ls;
use crate::exit::{Error, Result};
use crate::object::{Object, long_line};
use crate::out;
use crate::remote::{Entry, Remote};
use crate::servers::Servers;

pub(crate) async fn run(args: Ls) -> Result {
    let place = Servers::new(args.link).place(&args.url).await?;
    let failed = |e| Error::remote(&args.url)(e);
    let node = place.remote.walk(&place.parts, !args.long || place.is_dir).await.map_err(failed)?;
    let entries = if node.is_dir() {
        let mut entries = place.remote.list(&node.fh).await.map_err(failed)?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries
    } else {
        let name = place.parts.last().cloned().unwrap_or_default();
        vec![Entry { name: name.into(), node }]
    };
    let mut page = String::new();
    for entry in &entries {
        let target = if args.long || args.json { target(&place.remote, entry).await } else { None };
        page.push_str(&line(entry, target.as_deref(), args.long, args.json)?);
        // Written in pages, so that a long listing needs neither many writes nor much room.
        if page.len() > 1 << 16 {
            out::text(&page)?;
            page.clear();
        }
    }
    out::text(&page)
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

/// What a symbolic link points at; a link that cannot be read is shown without.
async fn target(remote: &Remote, entry: &Entry) -> Option<bytes::Bytes> {
    if entry.node.attr.kind != FileType::SymLink {
        return None;
    }
    remote.readlink(&entry.node.fh).await.ok()
}
