//! `remora stat`: an object's attributes. Symbolic links are not followed.

use remora_wire::nfs3::{Attr, FileType};

use super::several::Several;
use crate::args::Stat;
use crate::exit::{Error, Result};
use crate::object::{Object, mode_text, type_name};
use crate::servers::Servers;
use crate::{out, units};

pub(crate) async fn run(args: Stat) -> Result {
    let mut servers = Servers::new(args.link);
    let mut several = Several::new("stat");
    for url in &args.urls {
        several.settle(show(&mut servers, url, args.json).await)?;
    }
    several.finish()
}

async fn show(servers: &mut Servers, url: &str, json: bool) -> Result {
    let place = servers.place(url).await?;
    let failed = |e| Error::remote(url)(e);
    let node = place.look(false).await.map_err(failed)?;
    let target = match node.attr.kind {
        FileType::SymLink => Some(place.remote.readlink(&node.fh).await.map_err(failed)?),
        _ => None,
    };
    let name = place.name().unwrap_or("/");
    match json {
        true => out::json(&Object::new(name.as_bytes(), &node.attr, target.as_deref())),
        false => out::text(&text(name, &node.attr, target.as_deref())),
    }
}

fn text(name: &str, a: &Attr, target: Option<&[u8]>) -> String {
    let mut text = format!("name:      {}\ntype:      {}\n", out::shown(name.as_bytes()), type_name(a.kind));
    if let Some(target) = target {
        text += &format!("target:    {}\n", out::shown(target));
    }
    text += &format!("size:      {} bytes ({} on the disk)\n", a.size, a.used);
    text += &format!("mode:      {} ({:04o})\n", mode_text(a), a.mode & 0o7777);
    text += &format!("owner:     {}:{}\n", a.uid, a.gid);
    text += &format!("links:     {}\n", a.nlink);
    text += &format!("file:      {} on file system {:x}\n", a.fileid, a.fsid);
    for (what, time) in [("modified:  ", a.mtime), ("changed:   ", a.ctime), ("accessed:  ", a.atime)] {
        text += &format!("{what}{}.{:09} UTC\n", units::date(time.secs), time.nanos);
    }
    text
}
