//! `remora cat`, `stat`, `df` and `exports`: commands that read from a server.

use std::net::Ipv6Addr;

use clap::Args;
use remora_host::client::Target;
use remora_wire::mount::Export;
use remora_wire::nfs3::{Attr, FileType, Status};
use serde::Serialize;

use crate::commands::files::operands::OperandErrors;
use crate::config::settings::names;
use crate::config::units;
use crate::cp::transfer::in_order_read;
use crate::output::exit::{Error, Result};
use crate::output::{escape, stdio};
use crate::remote::attributes::{Object, mode_text, type_name};
use crate::remote::flags::LinkArgs;
use crate::remote::servers::Servers;

pub(crate) const CAT_HELP: &str = "\
Examples:
  remora cat nfs://nas/home/notes.txt
  remora cat nfs://nas/logs/day.gz | gunzip | less";

#[derive(Args, Debug)]
pub(crate) struct Cat {
    /// Files to write, in this order
    #[arg(value_name = "URL", required = true, value_parser = names::url)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

pub(crate) async fn cat(args: Cat) -> Result {
    let mut servers = Servers::new(args.link);
    let mut several = OperandErrors::new("cat");
    for url in &args.urls {
        several.settle(print(&mut servers, url).await)?;
    }
    several.finish()
}

async fn print(servers: &mut Servers, url: &str) -> Result {
    let place = servers.source(url).await?;
    let node = place.look(true).await.map_err(Error::remote(url))?;
    match node.attr.kind {
        FileType::Regular => {}
        FileType::Directory => return Err(Error::remote(url)(Status::IsDir.into())),
        _ => return Err(Error::refused(url, "not a regular file")),
    }
    let print = |data: &[u8]| stdio::bytes(data);
    let end = in_order_read::read(&place.remote, &node, print).await.map_err(stdio::transfer_failed(url))?;
    // One that grew, or whose server says that nothing is in it, was read as it was found.
    if end < node.attr.size {
        return Err(Error::refused(url, format!("was truncated while it was read: it ended after {end} bytes")));
    }
    Ok(())
}

pub(crate) const STAT_HELP: &str = "\
Examples:
  remora stat nfs://nas/home/notes.txt
  remora stat --json nfs://nas/home/notes.txt | jq .size";

#[derive(Args, Debug)]
pub(crate) struct Stat {
    /// Print a JSON object as ls --json does
    #[arg(long)]
    pub(crate) json: bool,
    /// Files, directories or links to show
    #[arg(value_name = "URL", required = true, value_parser = names::url)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

pub(crate) async fn stat(args: Stat) -> Result {
    let mut servers = Servers::new(args.link);
    let mut several = OperandErrors::new("stat");
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
        true => stdio::print_json(&Object::new(name.as_bytes(), &node.attr, target.as_deref())),
        false => stdio::print(&text(name, &node.attr, target.as_deref())),
    }
}

fn text(name: &str, a: &Attr, target: Option<&[u8]>) -> String {
    let mut text = format!("name:      {}\ntype:      {}\n", escape::printable(name.as_bytes()), type_name(a.kind));
    if let Some(target) = target {
        text += &format!("target:    {}\n", escape::printable(target));
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

pub(crate) const DF_HELP: &str = "\
Examples:
  remora df nfs://nas/home
  remora df --json nfs://nas/home | jq .available";

#[derive(Args, Debug)]
pub(crate) struct Df {
    /// Print a JSON object: total, free, available (bytes), files, files_free, files_available
    #[arg(long)]
    pub(crate) json: bool,
    /// Any path in the file system
    #[arg(value_name = "URL", value_parser = names::url)]
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

/// What `--json` prints; sizes in bytes.
#[derive(Serialize)]
struct FreeSpaceRecord {
    total: u64,
    free: u64,
    available: u64,
    files: u64,
    files_free: u64,
    files_available: u64,
}

pub(crate) async fn df(args: Df) -> Result {
    let place = Servers::new(args.link).place(&args.url).await?;
    let failed = |e| Error::remote(&args.url)(e);
    let node = place.look(true).await.map_err(failed)?;
    let s = place.remote.fsstat(&node.fh).await.map_err(failed)?;
    if args.json {
        return stdio::print_json(&FreeSpaceRecord {
            total: s.total,
            free: s.free,
            available: s.avail,
            files: s.files,
            files_free: s.files_free,
            files_available: s.files_avail,
        });
    }
    stdio::print(&format!("{:>8} {:>8} {:>8} {:>5}\n", "size", "used", "free", "use"))?;
    stdio::print(&line(s.total, s.free, s.avail))
}

/// The figures as a line. A file system of 0 bytes in all is one that knows none.
fn line(total: u64, free: u64, avail: u64) -> String {
    if total == 0 {
        return format!("{0:>8} {0:>8} {0:>8} {0:>5}\n", "-");
    }
    let used = total.saturating_sub(free);
    // The used share of the space that the caller may use, without root's reserve, as in df(1).
    let share = (used as f64 / (used.saturating_add(avail)).max(1) as f64 * 100.0).ceil();
    let [total, used, avail] = [total, used, avail].map(units::human);
    format!("{total:>8} {used:>8} {avail:>8} {share:>4}%\n")
}

pub(crate) const EXPORTS_HELP: &str = "\
Examples:
  remora exports nas
  remora exports 'nfs://127.0.0.1:2049/?mountport=20048'
  remora exports --json nas | jq -r .path

Each line has a path and the clients that may mount it, as the server's MOUNT
program lists them to this machine. A server may serve more than it lists.";

#[derive(Args, Debug)]
pub(crate) struct Exports {
    /// Print a JSON object for each export: path, clients (empty: all), path_hex if path is not UTF-8
    #[arg(long)]
    pub(crate) json: bool,
    /// The server: a name, an address, HOST:PORT, or a URL whose path is ignored
    #[arg(value_name = "HOST|URL", value_parser = names::server)]
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

/// What `--json` prints of an export.
#[derive(Serialize)]
struct ExportRecord {
    /// Bytes that are not UTF-8 are replaced, and `path_hex` has them all.
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    clients: Vec<String>,
}

impl ExportRecord {
    fn new(export: &Export) -> ExportRecord {
        let is_text = std::str::from_utf8(&export.dir).is_ok();
        ExportRecord {
            path: String::from_utf8_lossy(&export.dir).into_owned(),
            path_hex: (!is_text).then(|| export.dir.iter().map(|b| format!("{b:02x}")).collect()),
            clients: export.groups.iter().map(|group| String::from_utf8_lossy(group).into_owned()).collect(),
        }
    }
}

pub(crate) async fn exports(args: Exports) -> Result {
    let exports = Servers::new(args.link).exports(&url(&args.server)).await?;
    if args.json {
        return exports.iter().try_for_each(|export| stdio::print_json(&ExportRecord::new(export)));
    }
    if exports.is_empty() {
        stdio::eprint(format_args!("{} lists no exports to this machine", escape::printable(args.server.as_bytes())));
    }
    stdio::print(&table(&exports))
}

/// The URL of a server that is named as one, or by its name or address.
fn url(server: &str) -> String {
    if Target::is_url(server) {
        return server.to_owned();
    }
    let (ip, _zone) = server.split_once('%').unwrap_or((server, ""));
    match ip.parse::<Ipv6Addr>() {
        Ok(_) => format!("nfs://[{server}]/"),
        Err(_) => Target::guess(server).unwrap_or_else(|| format!("nfs://{server}/")),
    }
}

fn table(exports: &[Export]) -> String {
    let paths: Vec<String> = exports.iter().map(|export| escape::printable(&export.dir)).collect();
    let width = paths.iter().map(|path| path.chars().count()).max().unwrap_or_default();
    let clients = |export: &Export| match &export.groups[..] {
        [] => "(everyone)".to_owned(),
        groups => groups.iter().map(|group| escape::printable(group)).collect::<Vec<_>>().join(","),
    };
    paths.iter().zip(exports).map(|(path, export)| format!("{path:<width$}  {}\n", clients(export))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn df_prints_dashes_for_unknown_figures() {
        assert_eq!(line(0, 0, 0).split_whitespace().collect::<Vec<_>>(), ["-"; 4]);
        assert!(line(1000, 500, 400).ends_with("56%\n"));
    }

    #[test]
    fn server_is_a_name_an_address_or_a_url() {
        for (server, want) in [
            ("nas", "nfs://nas/"),
            ("nas:2050", "nfs://nas:2050/"),
            ("nas:/srv", "nfs://nas/srv"),
            ("fe80::1%eth0", "nfs://[fe80::1%eth0]/"),
            ("::1", "nfs://[::1]/"),
            ("[::1]:2050", "nfs://[::1]:2050/"),
            ("nfs://nas/x?proto=udp", "nfs://nas/x?proto=udp"),
        ] {
            assert_eq!(url(server), want);
        }
    }

    #[test]
    fn table_has_paths_and_clients() {
        let export = |dir: &str, groups: &[&str]| Export {
            dir: dir.to_owned().into(),
            groups: groups.iter().map(|group| group.to_string().into()).collect(),
        };
        let exports = [export("/srv", &["10.0.0.0/8", "nas"]), export("/a\n", &[])];
        assert_eq!(table(&exports), "/srv  10.0.0.0/8,nas\n/a\\n  (everyone)\n");
    }
}
