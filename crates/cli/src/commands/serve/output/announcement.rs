//! What a server says when it answers: where it is, what it shares, and how to come to that.

use std::borrow::Cow;
use std::net::SocketAddr;

use remora_host::portmap::Registration;
use remora_host::server::Serving;
use remora_host::zone;
use remora_server::{Squash, Terms};
use rustix::process::{Uid, geteuid};
use serde::Serialize;

use crate::commands::serve::exports::export_list;
use crate::commands::serve::exports::export_list::ExportView;
use crate::commands::serve::exports::open_exports::Loaded;
use crate::commands::serve::exports::share::Share;
use crate::commands::serve::flags::{Durability, Serve};
use crate::commands::serve::output::console;
use crate::metrics::endpoint::{self, MetricsPage};
use crate::output::exit::Result;

/// What `--json` prints when the server answers.
#[derive(Serialize)]
struct Ready<'a> {
    listen: &'a [SocketAddr],
    mount: Option<SocketAddr>,
    portmap: Option<SocketAddr>,
    atp: Option<AtpView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<SocketAddr>,
    exports: Vec<ExportView<'a>>,
    notes: &'a [String],
}

/// Where clients find the server over ATP, and by which key they know it.
#[derive(Serialize)]
struct AtpView {
    listen: SocketAddr,
    key: String,
}

/// The text for standard output, and lines for standard error.
pub(crate) fn announcement(
    args: &Serve,
    loaded: &Loaded,
    serving: &Serving,
    metrics: Option<&MetricsPage>,
) -> Result<(String, Vec<String>)> {
    let (addrs, mount, portmap) = (serving.local_addrs(), serving.mount_addr(), serving.portmap_addr());
    let (shares, notes) = (&loaded.plan.shares, &loaded.plan.notes);
    if args.json {
        let atp = serving.objects().map(|(listen, key)| AtpView { listen, key: key.to_string() });
        let metrics = metrics.map(MetricsPage::address);
        let ready = Ready { listen: addrs, mount, portmap, atp, metrics, exports: export_list::views(shares), notes };
        return Ok((console::line(&ready)?, Vec::new()));
    }
    let mut text = String::new();
    for addr in addrs {
        let protocols = if serving.has_udp() { "UDP and TCP" } else { "TCP" };
        text += &format!("serving NFSv3, NFSv2 and MOUNT on {addr}, {protocols}\n");
    }
    if let Some(mount) = mount {
        text += &format!("MOUNT also on {mount}\n");
    }
    if let Some((addr, key)) = serving.objects() {
        text += &format!("NFS over ATP on {addr}, key {key}\n");
    }
    if let Some(portmap) = portmap {
        text += &format!("portmapper on {portmap}\n");
    }
    if args.rpcbind {
        text += &format!("registered with rpcbind at {}\n", Registration::RPCBIND);
    }
    if let Some(metrics) = metrics {
        text += &format!("{}\n", endpoint::notice(metrics.address()));
    }
    for share in shares {
        text += &export_list::line(share);
    }
    if let (Some(addr), Some(name)) = (addrs.first(), shares.first().and_then(|s| s.names.last())) {
        text += &examples(addr, mount.map_or(addr.port(), |m| m.port()), name);
    }
    if let (Some((addr, key)), Some(name)) = (serving.objects(), shares.first().and_then(|s| s.names.last())) {
        let host = if addr.ip().is_unspecified() { "THIS-HOST".to_owned() } else { host(&addr) };
        let (port, path) = (addr.port(), encode(name));
        text += &format!("             remora ls 'nfs://{host}:{port}{path}?proto=atp&key={key}'\n");
    }
    Ok((text, notes.iter().cloned().chain(warnings(args, addrs, shares)).collect()))
}

fn warnings(args: &Serve, addrs: &[SocketAddr], shares: &[Share]) -> Vec<String> {
    let crash = "a crash of this machine can undo the last 30 s of changes to names and attributes (--durability)";
    let later = (args.durability == Durability::NamesLater).then(|| crash.to_owned());
    later.into_iter().chain(reach(args, addrs)).chain(claims(addrs, shares, geteuid())).collect()
}

/// What any local user can do: nothing proves the uid that a request claims.
pub(crate) fn claims(addrs: &[SocketAddr], shares: &[Share], user: Uid) -> Option<String> {
    let is_here = addrs.iter().any(|a| a.ip().is_loopback() || a.ip().is_unspecified());
    let is_open = |terms: &Terms| !(terms.secure || user.is_root() && terms.squash == Squash::All);
    let open = shares.iter().find(|s| s.access.rules().iter().any(|rule| is_open(&rule.terms)));
    let how = if open.filter(|_| is_here)?.is_from_file() { "secure" } else { "--secure" };
    let what = match user.is_root() {
        true => "claim any uid".to_owned(),
        false => format!("use these files as user {}", user.as_raw()),
    };
    Some(format!("any local user can {what}; {how} requires client ports below 1024, which need root"))
}

/// Who can reach it, if that may be a surprise.
fn reach(args: &Serve, addrs: &[SocketAddr]) -> Option<String> {
    let here_only = addrs.iter().all(|a| a.ip().is_loopback());
    // Exports files state their clients; warnings cover the rest.
    match (here_only, args.exports.is_empty()) {
        (true, true) => Some(
            "only this machine can reach the server; use --listen 0.0.0.0:2049 --allow CIDR to share with others"
                .into(),
        ),
        (true, false) => {
            Some("only this machine can reach the server; use --listen 0.0.0.0:2049 to share with others".into())
        }
        (false, true) if args.allow.is_empty() => {
            let what = if args.read_only { "read" } else { "read and change" };
            Some(format!(
                "warning: every host that reaches this address can {what} these files; restrict them with --allow CIDR"
            ))
        }
        (false, _) => None,
    }
}

/// Commands that reach the share `name`.
fn examples(addr: &SocketAddr, mount_port: u16, name: &str) -> String {
    let (port, path) = (addr.port(), encode(name));
    let host = if addr.ip().is_unspecified() { "THIS-HOST".to_owned() } else { host(addr) };
    // Linux's mount requires an address of the same family as the given one; libnfs does not support IPv6.
    let tcp = if addr.is_ipv6() { "tcp6" } else { "tcp" };
    let mut text = format!("for example: remora ls 'nfs://{host}:{port}{path}'\n");
    if addr.is_ipv4() {
        text += &format!("             nfs-ls 'nfs://{host}{path}?version=3&nfsport={port}&mountport={mount_port}'\n");
    }
    let ports = format!("port={port},mountport={mount_port}");
    // mount(8) has zones as people do, and not as URLs do.
    let what = format!("{}:{name}", host.replacen("%25", "%", 1));
    // No name has a NUL in it.
    let what = shlex::try_quote(&what).unwrap_or(Cow::Borrowed(&what));
    text + &format!("             mount -o vers=3,proto={tcp},nolock,{ports},mountproto={tcp} {what} DIR\n")
}

/// An address as URLs have it.
fn host(addr: &SocketAddr) -> String {
    let text = zone::in_url(addr);
    text.rsplit_once(':').map_or(text.clone(), |(host, _port)| host.to_owned())
}

/// A path as URLs have it.
fn encode(path: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-._~".contains(&b);
    path.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_encoded_for_urls() {
        assert_eq!(encode("/a b/é?"), "/a%20b/%C3%A9%3F");
    }

    #[test]
    fn examples_work_with_the_address_they_name() {
        let v4 = examples(&"127.0.0.1:2049".parse().unwrap(), 2050, "/srv");
        assert!(v4.contains("'nfs://127.0.0.1:2049/srv'"), "{v4}");
        assert!(v4.contains("nfs-ls 'nfs://127.0.0.1/srv?version=3&nfsport=2049&mountport=2050'"), "{v4}");
        let mount = "vers=3,proto=tcp,nolock,port=2049,mountport=2050,mountproto=tcp 127.0.0.1:/srv DIR";
        assert!(v4.contains(mount), "{v4}");
        let odd = examples(&"127.0.0.1:2049".parse().unwrap(), 2049, "/it's $mine");
        assert!(odd.contains("mountproto=tcp \"127.0.0.1:/it's \"'$mine' DIR"), "{odd}");
        let scoped = examples(&"[fe80::1%1]:2049".parse().unwrap(), 2049, "/srv");
        assert!(
            scoped.contains("'nfs://[fe80::1%25lo]:2049/srv'") && scoped.contains("'[fe80::1%lo]:/srv'"),
            "{scoped}"
        );
        for (at, host) in [("[::1]:2049", "[::1]"), ("[::]:2049", "THIS-HOST")] {
            let v6 = examples(&at.parse().unwrap(), 2049, "/srv");
            assert!(v6.contains(&format!("'nfs://{host}:2049/srv'")) && !v6.contains("nfs-ls"), "{v6}");
            let what = if host.starts_with('[') { "'[::1]:/srv'" } else { "THIS-HOST:/srv" };
            let mount = format!("proto=tcp6,nolock,port=2049,mountport=2049,mountproto=tcp6 {what} DIR");
            assert!(v6.contains(&mount), "{v6}");
        }
    }
}
