//! `remora serve --check`: what would be served, and whether its ports are distinct.

use std::net::SocketAddr;

use remora_host::server::{Descriptors, ServerOptions};
use serde::Serialize;

use crate::commands::serve::exports::export_list::ExportView;
use crate::commands::serve::exports::exports_file::Pipes;
use crate::commands::serve::exports::plan::Plan;
use crate::commands::serve::exports::{export_list, open_exports, plan};
use crate::commands::serve::flags::Serve;
use crate::commands::serve::keys::Keys;
use crate::commands::serve::output::warnings;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

/// Fails if it would take a port twice: of the second try the system says only that somebody has it.
pub(crate) fn distinct(args: &Serve) -> Result {
    let beside = |port| SocketAddr::new(args.listen.ip(), port);
    let ports = [
        ("--listen", Some(args.listen)),
        ("--mount-port", args.mount_port.map(beside)),
        ("--portmap", args.portmap.map(beside)),
        ("--atp", args.atp),
    ];
    let ports: Vec<(&str, SocketAddr)> = ports.into_iter().filter_map(|(flag, addr)| Some((flag, addr?))).collect();
    for (i, (flag, addr)) in ports.iter().enumerate() {
        if let Some((other, _)) = ports.iter().take(i).find(|(_, other)| clash(other, addr)) {
            let port = addr.port();
            return Err(Error::Usage(format!("{other} and {flag} both use port {port}: choose another for one")));
        }
    }
    Ok(())
}

/// Whether only one of them can be had. Port 0 is any that is free.
fn clash(a: &SocketAddr, b: &SocketAddr) -> bool {
    let (x, y) = (a.ip(), b.ip());
    // `[::]` takes IPv4, too.
    let takes = |x: std::net::IpAddr, y: std::net::IpAddr| x.is_unspecified() && (x.is_ipv6() || y.is_ipv4());
    a.port() == b.port() && a.port() != 0 && (x == y || takes(x, y) || takes(y, x))
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    exports: Vec<ExportView<'a>>,
    notes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// Reads flags and files, opens the directories, and shows the exports. Whatever is wrong with
/// them is wrong usage.
pub(crate) fn run(args: &Serve) -> Result {
    match planned(args) {
        Ok(plan) => show(args, &plan),
        Err(error) => {
            let error = error.to_string();
            if args.json {
                stdio::print_json(&Report { ok: false, exports: Vec::new(), notes: &[], error: Some(&error) })?;
            }
            Err(Error::Usage(error))
        }
    }
}

fn planned(args: &Serve) -> Result<Plan> {
    distinct(args)?;
    // No handle is signed, so any key will do, and none need be made.
    let loaded = open_exports::open(plan::plan(args, Pipes::Read)?, &Keys::default(), None)?;
    let exports = loaded.plan.shares.len();
    let descriptors = Descriptors::count(exports, ServerOptions::default_threads());
    descriptors.check().map_err(|e| Error::Usage(e.to_string()))?;
    let mut plan = loaded.plan;
    plan.notes.extend(warnings::of_user(&plan.shares));
    plan.notes.extend(warnings::of_room(descriptors.connections(), exports, descriptors.max));
    Ok(plan)
}

fn show(args: &Serve, plan: &Plan) -> Result {
    if args.json {
        let exports = export_list::views(&plan.shares);
        return stdio::print_json(&Report { ok: true, exports, notes: &plan.notes, error: None });
    }
    plan.notes.iter().for_each(stdio::eprint);
    stdio::print(&export_list::text(&plan.shares))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::commands::{Cli, Command};

    #[test]
    fn a_port_is_taken_once() {
        for (line, wrong) in [
            ("--listen 127.0.0.1:2390 --mount-port 2390", Some("--listen and --mount-port both use port 2390")),
            ("--listen 127.0.0.1:2390 --portmap=2390", Some("--listen and --portmap both use port 2390")),
            ("--portmap --mount-port 111", Some("--mount-port and --portmap both use port 111")),
            ("--listen [::]:2390 --atp 127.0.0.1:2390", Some("--listen and --atp both use port 2390")),
            ("--listen 0.0.0.0:2390 --atp [::1]:2390", None),
            ("--listen 127.0.0.1:2390 --atp 127.0.0.2:2390", None),
            ("--listen 127.0.0.1:0 --mount-port 0 --portmap=0 --atp 127.0.0.1:0", None),
            ("--listen 127.0.0.1:2390 --mount-port 2391", None),
        ] {
            let words = ["remora", "serve", "/"].into_iter().chain(line.split(' '));
            let Command::Serve(args) = Cli::try_parse_from(words).unwrap().command else { panic!("{line}") };
            let error = distinct(&args).err().map(|e| (e.code(), e.to_string()));
            let want = wrong.map(|wrong| (2, format!("{wrong}: choose another for one")));
            assert_eq!(error, want, "{line}");
        }
    }
}
