//! `remora exports`: what a server has to be mounted.

use std::net::Ipv6Addr;

use remora_host::client::Target;
use remora_wire::mount::Export;
use serde::Serialize;

use crate::args::Exports;
use crate::exit::Result;
use crate::out;
use crate::servers::Servers;

/// What `--json` prints of an export.
#[derive(Serialize)]
struct Listed {
    /// Bytes that are not UTF-8 are replaced, and `path_hex` has them all.
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    clients: Vec<String>,
}

impl Listed {
    fn new(export: &Export) -> Listed {
        let is_text = std::str::from_utf8(&export.dir).is_ok();
        Listed {
            path: String::from_utf8_lossy(&export.dir).into_owned(),
            path_hex: (!is_text).then(|| export.dir.iter().map(|b| format!("{b:02x}")).collect()),
            clients: export.groups.iter().map(|group| String::from_utf8_lossy(group).into_owned()).collect(),
        }
    }
}

pub(crate) async fn run(args: Exports) -> Result {
    let exports = Servers::new(args.link).exports(&url(&args.server)).await?;
    if args.json {
        return exports.iter().try_for_each(|export| out::json(&Listed::new(export)));
    }
    if exports.is_empty() {
        out::say(format_args!("{} lists no exports to this machine", out::shown(args.server.as_bytes())));
    }
    out::text(&table(&exports))
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
    let paths: Vec<String> = exports.iter().map(|export| out::shown(&export.dir)).collect();
    let width = paths.iter().map(|path| path.chars().count()).max().unwrap_or_default();
    let clients = |export: &Export| match &export.groups[..] {
        [] => "(everyone)".to_owned(),
        groups => groups.iter().map(|group| out::shown(group)).collect::<Vec<_>>().join(","),
    };
    paths.iter().zip(exports).map(|(path, export)| format!("{path:<width$}  {}\n", clients(export))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
