//! Settings of an end: flags override the configuration file, the file overrides defaults.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use remora_host::link::{LinkIdentity, LinkPublicKey, LinkRole, LinkSettings, LinkTuning, SharedSecret};
use remora_host::{KeyFileError, link};
use remora_link::{ArqMode, Class, Duplex, MediumScheduler};

use crate::commands::link::config_file::{ConfigRole, File};
use crate::commands::link::flags;
use crate::commands::link::flags::{Base, EndpointFlags, Mobile};
use crate::config::settings::names;
use crate::config::text_file::{Text, Time};
use crate::config::{address, state_dir, state_version, units};
use crate::output::exit::{Error, Result, io_text};

const DEVICE: &str = "rlink0";
/// Longest name of a network device, in bytes.
const DEVICE_MAX: usize = 15;
const MTU: u16 = 1500;
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 51900);
const KEEPALIVE: Duration = Duration::from_secs(5);
const KEEPALIVE_MIN: Duration = Duration::from_millis(500);

/// A base's settings.
pub(crate) fn base(args: &Base) -> Result<LinkSettings> {
    let file = File::load(args.ends.config.as_deref(), ConfigRole::Base)?;
    let mut mobiles = Vec::new();
    for text in &args.mobile {
        mobiles.push(mobile_flag(text).map_err(Error::Usage)?);
    }
    if mobiles.is_empty() {
        for m in file.mobile.iter().map(|m| m.get_ref()) {
            mobiles.push(link::MobileSettings {
                name: m.name.clone().unwrap_or_else(|| m.address.0.to_string()),
                key: m.key.0,
                secret: secret(m.psk.as_deref())?,
                address: m.address.0,
                routes: m.routes.iter().map(|r| r.0.0).collect(),
            });
        }
    }
    if mobiles.is_empty() {
        return Err(Error::Usage("no mobile is configured: give one with --mobile KEY=ADDR".into()));
    }
    let listen = args.listen.or(file.listen.as_ref().map(|l| l.get_ref().0.0)).unwrap_or(LISTEN);
    settings(&args.ends, file, LinkRole::Base { listen, mobiles })
}

/// A mobile's settings. Looks up the base's name.
pub(crate) fn mobile(args: &Mobile) -> Result<LinkSettings> {
    let file = File::load(args.ends.config.as_deref(), ConfigRole::Mobile)?;
    let told = file.base.as_ref().map(|b| b.get_ref().clone());
    let told = told.as_ref();
    let endpoint = args.base.as_ref().or(told.map(|b| &b.endpoint));
    let endpoint =
        endpoint.ok_or_else(|| Error::Usage("the base's address is missing: give it with --base HOST:PORT".into()))?;
    let key = match &args.base_key {
        Some(text) => Some(names::key(text).map_err(|e| Error::Usage(format!("--base-key: {e}")))?),
        None => told.map(|b| b.key.0),
    };
    let key: LinkPublicKey = key.ok_or_else(|| {
        Error::Usage("the base's key is missing: give it with --base-key KEY; remora link keys prints it there".into())
    })?;
    let psk = args.psk.as_deref().or(told.and_then(|b| b.psk.as_deref()));
    let routes = if args.route.is_empty() {
        told.map(|b| b.routes.iter().map(|r| r.0.0).collect()).unwrap_or_default()
    } else {
        args.route.clone()
    };
    let keepalive = args.keepalive.or(told.and_then(|b| b.keepalive.as_ref().map(|k| k.0.0))).unwrap_or(KEEPALIVE);
    if keepalive < KEEPALIVE_MIN {
        return Err(Error::Usage(format!("--keepalive must be at least {KEEPALIVE_MIN:?}")));
    }
    let role = LinkRole::Mobile {
        base: address::resolve(endpoint, || format!("'{endpoint}': expected HOST:PORT"))?,
        key,
        secret: secret(psk)?,
        routes,
        keepalive,
    };
    settings(&args.ends, file, role)
}

fn settings(ends: &EndpointFlags, file: File, role: LinkRole) -> Result<LinkSettings> {
    let addresses =
        if ends.address.is_empty() { file.address.iter().map(|a| a.0.0).collect() } else { ends.address.clone() };
    if addresses.is_empty() {
        return Err(Error::Usage(
            "this end's address in the tunnel is missing: give it with --address ADDR/LEN".into(),
        ));
    }
    if let Some(bare) = addresses.iter().find(|a| is_network(a)) {
        return Err(Error::Usage(format!(
            "--address: {bare} is the address of a network; expected that of a host, such as 10.78.0.1/24"
        )));
    }
    let device = ends.device.clone().or(file.device).unwrap_or_else(|| DEVICE.into());
    if device.is_empty()
        || device.len() > DEVICE_MAX
        || device.contains(['/', ' ', '%', '@'])
        || device.starts_with('.')
    {
        return Err(Error::Usage(format!(
            "'{device}' is not a device name: expected 1 to {DEVICE_MAX} letters and digits"
        )));
    }
    let class = |c: flags::Class| match c {
        flags::Class::Interactive => Class::Interactive,
        flags::Class::Default => Class::Default,
        flags::Class::Bulk => Class::Bulk,
        flags::Class::Probe => Class::Probe,
    };
    // Flags last: a later entry wins.
    let lifetimes = file.lifetime.given().map(|(c, Text(Time(time)))| (c, time)).chain(ends.lifetime.iter().copied());
    let attempts = file.attempts.given().chain(ends.attempts.iter().copied());
    let tuning = LinkTuning {
        rate: ends.rate.or(file.rate.map(|r| r.0)),
        duplex: ends.duplex.or(file.duplex).map(|d| match d {
            crate::config::duplex::Duplex::Half => Duplex::Half,
            crate::config::duplex::Duplex::Full => Duplex::Full,
        }),
        mode: ends.mode.or(file.mode).map(|m| match m {
            flags::Mode::Arq => ArqMode::Arq,
            flags::Mode::None => ArqMode::None,
        }),
        scheduler: ends.scheduler.or(file.scheduler).map(|s| match s {
            flags::Scheduler::RoundRobin => MediumScheduler::RoundRobin,
            flags::Scheduler::Airtime => MediumScheduler::Airtime,
        }),
        queue_delay: ends.queue_delay.or(file.queue_delay.map(|t| t.0.0)),
        lifetimes: lifetimes.map(|(c, time)| (class(c), time)).collect(),
        attempts: attempts.map(|(c, times)| (class(c), times)).collect(),
    };
    some_time(&tuning)?;
    let outer_mtu = ends.mtu.or(file.mtu).unwrap_or(MTU);
    let identity = load_key(ends, file.key)?;
    Ok(LinkSettings { identity, role, device, addresses, outer_mtu, forward: ends.forward || file.forward, tuning })
}

/// Rejects a lifetime of 0, which would drop every packet, and 0 attempts, which would send none.
fn some_time(tuning: &LinkTuning) -> Result {
    let none = |what, such| Err(Error::Usage(format!("{what} of 0 drops every packet; expected {such}")));
    match tuning {
        LinkTuning { queue_delay: Some(Duration::ZERO), .. } => none("a queue delay", "one as in 200ms"),
        LinkTuning { lifetimes, .. } if lifetimes.iter().any(|(_, time)| time.is_zero()) => {
            none("a lifetime", "one as in 200ms")
        }
        LinkTuning { attempts, .. } if attempts.iter().any(|(_, times)| *times == 0) => {
            none("a number of attempts", "1 or more")
        }
        _ => Ok(()),
    }
}

/// `10.78.0.0/24` is no end's address, but `10.78.0.0/32` and `/31` are.
fn is_network(net: &IpNet) -> bool {
    net.addr() == net.network() && net.max_prefix_len() - net.prefix_len() > 1
}

/// Reads `KEY=ADDR[,NET]...`; keys may end in `=` themselves.
fn mobile_flag(text: &str) -> Result<link::MobileSettings, String> {
    let bad = |why: String| format!("--mobile {text}: {why}");
    let (key, places) = text.rsplit_once('=').ok_or_else(|| bad("expected KEY=ADDR, as in AbC...=10.78.0.2".into()))?;
    let key = names::key(key).map_err(bad)?;
    let mut places = places.split(',').map(str::trim);
    let address = places.next().unwrap_or_default();
    let address: IpAddr = address.parse().map_err(|_| bad(format!("'{address}' is not an address")))?;
    let routes = places.map(|r| units::network(r).map_err(bad));
    let routes = routes.collect::<Result<Vec<IpNet>, String>>()?;
    Ok(link::MobileSettings { name: address.to_string(), key, secret: None, address, routes })
}

fn secret(path: Option<&Path>) -> Result<Option<SharedSecret>> {
    path.map(|p| SharedSecret::load(p).map_err(|e| secret_error(p, &e))).transpose()
}

fn secret_error(path: &Path, error: &KeyFileError) -> Error {
    match error {
        KeyFileError::File(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Error::refused(path.display(), "the pre-shared secret does not exist").with_hint(
                "create 32 random bytes in base64, the same at both ends: (umask 077; head -c 32 /dev/urandom | base64 > FILE)",
            )
        }
        other => key_error(path, other),
    }
}

/// Path of the key: `told`, or the default.
pub(crate) fn key_path(told: Option<PathBuf>) -> Result<PathBuf> {
    if let Some(path) = told {
        state_dir::check_named(&path)?;
        return Ok(path);
    }
    let root = rustix::process::geteuid().is_root();
    let dir = if root { Some(PathBuf::from("/var/lib/remora")) } else { state_dir::user_dir() };
    let dir =
        dir.ok_or_else(|| Error::Usage("no home directory for the link's key: give a file with --key FILE".into()))?;
    state_version::check(&dir)?;
    Ok(dir.join("link.key"))
}

fn load_key(ends: &EndpointFlags, in_file: Option<PathBuf>) -> Result<LinkIdentity> {
    let path = key_path(ends.key.clone().or(in_file))?;
    LinkIdentity::load(&path).map_err(|e| key_error(&path, &e))
}

pub(crate) fn key_error(path: &Path, error: &KeyFileError) -> Error {
    match error {
        KeyFileError::File(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Error::refused(path.display(), "the key does not exist: create it with remora link keys")
        }
        KeyFileError::File(e) => Error::refused(path.display(), io_text(e)),
        other => Error::refused(path.display(), other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use remora_host::link::LinkIdentity;

    use super::*;

    #[test]
    fn mobiles_are_read_from_flags() {
        let key = LinkIdentity::generate().unwrap().public;
        let m = mobile_flag(&format!("{key}=10.78.0.2,192.168.7.0/24, fd00::/64,fd78::2")).unwrap();
        assert_eq!((m.key, m.address, m.routes.len()), (key, "10.78.0.2".parse().unwrap(), 3));
        assert_eq!(m.routes[2].to_string(), "fd78::2/128");
        for (bad, why) in [
            (format!("{key}"), "not a key"),
            ("10.78.0.2".into(), "expected KEY=ADDR"),
            ("short=10.78.0.2".into(), "not a key"),
            (format!("{key}=10.78.0.2,lan"), "'lan' is not a network"),
        ] {
            let error = mobile_flag(&bad).map(|_| ()).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn no_time_at_all_is_refused() {
        let tuning = |queue_ms, bulk_ms, attempts| LinkTuning {
            queue_delay: Some(Duration::from_millis(queue_ms)),
            lifetimes: vec![(Class::Default, Duration::from_secs(1)), (Class::Bulk, Duration::from_millis(bulk_ms))],
            attempts: vec![(Class::Default, 3), (Class::Bulk, attempts)],
            ..LinkTuning::default()
        };
        for (queue_ms, bulk_ms, attempts, usable) in
            [(1, 1, 1, true), (0, 1, 1, false), (1, 0, 1, false), (1, 1, 0, false)]
        {
            let checked = some_time(&tuning(queue_ms, bulk_ms, attempts));
            assert_eq!(checked.is_ok(), usable, "{queue_ms} {bulk_ms} {attempts}");
            assert!(checked.err().is_none_or(|e| e.code() == 2));
        }
    }

    #[test]
    fn networks_are_not_addresses() {
        for (net, is) in [("10.0.0.0/24", true), ("10.0.0.1/24", false), ("10.0.0.0/31", false), ("10.0.0.0/32", false)]
        {
            assert_eq!(is_network(&net.parse().unwrap()), is, "{net}");
        }
    }
}
