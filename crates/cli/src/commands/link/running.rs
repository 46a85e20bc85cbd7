//! An end of a link, from its start to a signal, `q` or a failure.

use std::time::Duration;

use remora_host::link::control::{ControlSocket, directory};
use remora_host::link::{Daemon, Settings};
use serde::Serialize;

use super::{link_error, view};
use crate::args::tunnel::Ends;
use crate::exit::{Error, Result, io_text};
use crate::{interrupt, out};

/// How often notices are looked for.
const TICK: Duration = Duration::from_millis(100);
/// How often figures are printed, in ticks.
const FIGURES_EVERY: u32 = 10;

/// What `--json` prints when the link is ready.
#[derive(Serialize)]
struct Ready<'a> {
    listen: std::net::SocketAddr,
    device: &'a str,
    mtu: u16,
    key: String,
    control: Option<&'a std::path::Path>,
}

/// What `--json` prints when something changes.
#[derive(Serialize)]
struct Changed {
    notice: String,
}

pub(super) async fn run(settings: Settings, ends: &Ends) -> Result {
    let (device, key) = (settings.device.clone(), settings.identity.public);
    let daemon = tokio::task::block_in_place(|| Daemon::start(settings)).map_err(link_error)?;
    let control = open_control(&daemon, &device);
    let control_path = control.as_ref().map(ControlSocket::path);
    let report = daemon.control().report();
    if ends.json {
        let (listen, mtu, key) = (daemon.listen(), report.mtu, key.to_string());
        out::json(&Ready { listen, device: &device, mtu, key, control: control_path })?;
    } else if !ends.view {
        let at = daemon.listen();
        out::text(&format!("{} on {device}, packets up to {} bytes, UDP {at}, key {key}\n", report.role, report.mtu))?;
    }
    let result = if ends.view { view::run(&daemon).await } else { watch(&daemon, ends.json).await };
    // The other ends are told, the device and its routes go.
    drop(control);
    let ended = tokio::task::block_in_place(|| daemon.stop());
    result.and(ended.map_err(link_error))
}

/// A link without a control socket still works; `status` and `handoff` do not.
fn open_control(daemon: &Daemon, device: &str) -> Option<ControlSocket> {
    let opened = match directory() {
        Some(dir) => ControlSocket::open(&dir, device, daemon.control()),
        None => return None,
    };
    opened.map_err(|e| out::say(format_args!("remora: link: no control socket: {}", io_text(&e)))).ok()
}

/// Prints what changes, and with `--json` the figures each second.
async fn watch(daemon: &Daemon, json: bool) -> Result {
    let stop = interrupt::wait();
    tokio::pin!(stop);
    let mut ticks = tokio::time::interval(TICK);
    let mut n = 0;
    loop {
        tokio::select! {
            signal = &mut stop => return Err(Error::Interrupted(signal)),
            _ = ticks.tick() => {}
        }
        while let Some(notice) = daemon.notice(Duration::ZERO) {
            let notice = notice.to_string();
            if json { out::json(&Changed { notice })? } else { out::text(&format!("{notice}\n"))? }
        }
        n += 1;
        if json && n % FIGURES_EVERY == 0 {
            out::json(&daemon.control().report())?;
        }
        if daemon.has_ended() {
            return Ok(());
        }
    }
}
