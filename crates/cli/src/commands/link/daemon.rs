//! Runs an end of a link until a signal, `q` or a failure.

use remora_host::link::LinkError;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use remora_host::link::control::{ControlSocket, directory};
use remora_host::link::{Daemon, LinkSettings};
use serde::Serialize;

use crate::commands::link::dashboard;
use crate::commands::link::flags::EndpointFlags;
use crate::interrupt;
use crate::metrics::endpoint::{self, MetricsPage};
use crate::metrics::tables;
use crate::output::background_writer::BackgroundWriter;
use crate::output::exit::{Error, Result, io_text};
use crate::output::stdio;
use crate::service_manager::{self, Watchdog};

/// How often notices are looked for.
const TICK: Duration = Duration::from_millis(100);
/// How often figures are printed, in ticks.
const FIGURES_EVERY: u32 = 10;

/// The `--json` record at startup.
#[derive(Serialize)]
struct Ready<'a> {
    listen: SocketAddr,
    device: &'a str,
    mtu: u16,
    key: String,
    control: Option<&'a std::path::Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<SocketAddr>,
}

/// The `--json` record of an event.
#[derive(Serialize)]
struct Changed {
    notice: String,
}

pub(crate) async fn run(settings: LinkSettings, ends: &EndpointFlags) -> Result {
    // A signal that comes while the link starts ends it as well, but in an orderly way.
    let stop = interrupt::catch();
    tokio::pin!(stop);
    let (device, key) = (settings.device.clone(), settings.identity.public);
    let metrics = ends.metrics.bind().await?;
    let daemon = tokio::task::block_in_place(|| Daemon::start(settings)).map_err(link_error)?;
    let control = open_control(&daemon, &device);
    let figures = daemon.control();
    let metrics = metrics.map(|open| open.serve(move || tables::link::families(&figures.report())));
    let result = if ends.view {
        dashboard::run(&daemon, stop).await
    } else {
        let control = control.as_ref().map(ControlSocket::path);
        let (listen, mtu, key) = (daemon.listen(), daemon.control().report().mtu, key.to_string());
        let metrics = metrics.as_ref().map(MetricsPage::address);
        watch(&daemon, Ready { listen, device: &device, mtu, key, control, metrics }, ends.json, stop).await
    };
    service_manager::stopping();
    // Tells the peers, removes the device and its routes. The control socket answers with the last figures meanwhile.
    let ended = tokio::task::block_in_place(|| daemon.stop());
    drop(control);
    result.and(ended.map_err(link_error))
}

/// A link without a control socket still works; `status` and `handoff` do not.
fn open_control(daemon: &Daemon, device: &str) -> Option<ControlSocket> {
    let opened = match directory() {
        Some(dir) => ControlSocket::open(&dir, device, daemon.control()),
        None => return None,
    };
    opened.map_err(|e| stdio::eprint(format_args!("remora: link: no control socket: {}", io_text(&e)))).ok()
}

/// Prints what changes, and with `--json` the figures each second, until a signal (`stop`), a
/// failure of the link or one of the output.
async fn watch(daemon: &Daemon, ready: Ready<'_>, json: bool, mut stop: Pin<&mut impl Future<Output = u8>>) -> Result {
    let mut printer = BackgroundWriter::stdout()?;
    let changed = |notice: String| match json {
        true => stdio::json_line(&Changed { notice }),
        false => Ok(notice),
    };
    printer.print(if json {
        stdio::json_line(&ready)?
    } else {
        let Ready { listen, device, mtu, key, metrics, .. } = ready;
        let role = daemon.control().report().role;
        let metrics = metrics.map_or_else(String::new, |at| format!("\n{}", endpoint::notice(at)));
        format!("{role} on {device}, packets up to {mtu} bytes, UDP {listen}, key {key}{metrics}")
    });
    let mut ticks = tokio::time::interval(TICK);
    let mut n = 0;
    let (mut watchdog, mut last_counted) = (Watchdog::start(), -1.0);
    service_manager::ready();
    let result = loop {
        tokio::select! {
            _ = &mut stop => break Ok(()),
            () = watchdog.due() => {
                // The worker counts on, or the manager hears nothing.
                let counted = daemon.control().report().seconds;
                if counted > last_counted {
                    watchdog.works();
                }
                last_counted = counted;
            }
            failed = printer.failed() => break Err(failed),
            _ = ticks.tick() => {}
        }
        printer.report_dropped(|missed| {
            changed(format!("{missed} lines of output were dropped: nobody read them in time"))
        })?;
        while let Some(notice) = daemon.notice(Duration::ZERO) {
            printer.print(changed(notice.to_string())?);
        }
        n += 1;
        if json && n % FIGURES_EVERY == 0 {
            printer.print(stdio::json_line(&daemon.control().report())?);
        }
        if daemon.has_ended() {
            break Ok(());
        }
    };
    printer.finish().await;
    result
}

/// A link's error in the command's terms.
fn link_error(error: LinkError) -> Error {
    match error {
        LinkError::Settings(why) => Error::Usage(why),
        LinkError::Overlap { .. } | LinkError::Loop { .. } | LinkError::Mtu { .. } => Error::Usage(error.to_string()),
        LinkError::DeviceGone(_) => Error::refused("stopped", error.to_string()),
        other => Error::refused("cannot start", other.to_string()),
    }
}
