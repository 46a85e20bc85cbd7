//! The configuration file of an end, in TOML. Unknown keys are errors that name their line.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use remora_base::Rate;
use remora_host::link::LinkPublicKey;
use serde::Deserialize;
use toml::Spanned;

use crate::commands::link::flags::{Class, Mode, Scheduler};
use crate::config::duplex::Duplex;
use crate::config::text_file;
use crate::config::text_file::{AddressInNetwork, ListenAddress, Network, Text, Time, line_at};
use crate::output::exit::{Error, Result};

/// Nobody has a longer one.
const BYTES_MAX: u64 = 1 << 20;

/// Settings of either end, in the examples.
macro_rules! common_example {
    () => {
        r#"#device = "rlink0"
#mtu = 1500                        # longest IP packet on the hop
#duplex = "half"                   # or "full": each direction has its own medium
#mode = "arq"                      # or "none": nothing is sent again
#scheduler = "airtime"             # or "round-robin"
#queue-delay = "60ms"              # how long packets may stand in a queue before some are dropped (20ms unless set)
#forward = true                    # pass packets on between networks while the link is up (not unless set)

#[lifetime]                        # how long packets are worth sending, by class (DSCP)
#interactive = "200ms"
#default = "20s"
#bulk = "20s"
#probe = "1s"

#[attempts]                        # and how many times each is sent at most
#interactive = 12
#default = 30
#bulk = 30
#probe = 30

"#
    };
}

pub(crate) const BASE_EXAMPLE: &str = concat!(
    r#"# The base of a link: remora link base --config FILE. Flags come before this file.

key = "/var/lib/remora/link.key"   # from `remora link keys`; a relative path is beside this file
listen = "0.0.0.0:51900"           # UDP; where mobiles call
address = ["10.78.0.1/24"]         # this end in the tunnel, and the tunnel's network
rate = "1Mbit"                     # what the hop carries; without it, that is learned
"#,
    common_example!(),
    r#"[[mobile]]
name = "robot"
key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="   # what `remora link keys` prints there
address = "10.78.0.2"
#routes = ["fd78::2", "192.168.7.0/24"] # its IPv6 address, networks behind it
#psk = "robot.psk"                 # a secret shared with it, on top of the keys
"#
);

pub(crate) const MOBILE_EXAMPLE: &str = concat!(
    r#"# A mobile of a link: remora link mobile --config FILE. Flags come before this file.

key = "/var/lib/remora/link.key"   # from `remora link keys`; a relative path is beside this file
address = ["10.78.0.2/24"]         # this end in the tunnel, and the tunnel's network
rate = "1Mbit"                     # what the hop carries; without it, that is learned
"#,
    common_example!(),
    r#"[base]
endpoint = "base.example.net:51900"
key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="   # what `remora link keys` prints there
routes = ["192.168.1.0/24"]        # reached through the tunnel; "0.0.0.0/0" for everything
#keepalive = "5s"                  # a sign of life after so much silence
#psk = "robot.psk"                 # a secret shared with it, on top of the keys
"#
);

/// A file of either end.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct File {
    pub(crate) key: Option<PathBuf>,
    pub(crate) device: Option<String>,
    #[serde(default)]
    pub(crate) address: Vec<Text<AddressInNetwork>>,
    pub(crate) mtu: Option<u16>,
    pub(crate) rate: Option<Text<Rate>>,
    pub(crate) duplex: Option<Duplex>,
    pub(crate) mode: Option<Mode>,
    pub(crate) scheduler: Option<Scheduler>,
    pub(crate) queue_delay: Option<Text<Time>>,
    #[serde(default)]
    pub(crate) forward: bool,
    #[serde(default)]
    pub(crate) lifetime: PerClass<Text<Time>>,
    #[serde(default)]
    pub(crate) attempts: PerClass<u32>,
    /// A base's alone.
    pub(crate) listen: Option<Spanned<Text<ListenAddress>>>,
    /// A base's alone.
    #[serde(default)]
    pub(crate) mobile: Vec<Spanned<MobileTable>>,
    /// A mobile's alone.
    pub(crate) base: Option<Spanned<BaseTable>>,
}

/// A table with a value for each class of packets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PerClass<T> {
    pub(crate) interactive: Option<T>,
    pub(crate) default: Option<T>,
    pub(crate) bulk: Option<T>,
    pub(crate) probe: Option<T>,
}

impl<T> Default for PerClass<T> {
    fn default() -> PerClass<T> {
        PerClass { interactive: None, default: None, bulk: None, probe: None }
    }
}

impl<T> PerClass<T> {
    /// The classes that the table sets, with their values.
    pub(crate) fn given(self) -> impl Iterator<Item = (Class, T)> {
        let all = [
            (Class::Interactive, self.interactive),
            (Class::Default, self.default),
            (Class::Bulk, self.bulk),
            (Class::Probe, self.probe),
        ];
        all.into_iter().filter_map(|(class, value)| Some((class, value?)))
    }
}

/// `[[mobile]]` at a base.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MobileTable {
    pub(crate) name: Option<String>,
    pub(crate) key: Text<LinkPublicKey>,
    pub(crate) address: Text<IpAddr>,
    #[serde(default)]
    pub(crate) routes: Vec<Text<Network>>,
    pub(crate) psk: Option<PathBuf>,
}

/// `[base]` at a mobile.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BaseTable {
    pub(crate) endpoint: String,
    pub(crate) key: Text<LinkPublicKey>,
    #[serde(default)]
    pub(crate) routes: Vec<Text<Network>>,
    pub(crate) keepalive: Option<Text<Time>>,
    pub(crate) psk: Option<PathBuf>,
}

/// The end that a file configures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConfigRole {
    Base,
    Mobile,
}

impl File {
    /// Reads the file at `path`; without one, nothing is set.
    pub(crate) fn load(path: Option<&Path>, whose: ConfigRole) -> Result<File> {
        let Some(path) = path else { return Ok(File::default()) };
        let text = text_file::read(path, BYTES_MAX, "the settings of a link")?;
        let mut file = File::parse(&text, whose).map_err(|why| Error::Usage(format!("{}: {why}", path.display())))?;
        file.beside(path.parent().unwrap_or(Path::new("")));
        Ok(file)
    }

    fn parse(text: &str, whose: ConfigRole) -> Result<File, String> {
        let file: File = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
        let stray = match whose {
            ConfigRole::Base => file.base.as_ref().map(|b| ("[base]", "a mobile's", b.span())),
            ConfigRole::Mobile => {
                let listen = file.listen.as_ref().map(|l| ("listen", "a base's", l.span()));
                listen.or_else(|| file.mobile.first().map(|m| ("[[mobile]]", "a base's", m.span())))
            }
        };
        let Some((key, whose, span)) = stray else { return Ok(file) };
        let line = line_at(text, span.start).0;
        Err(format!("line {line}: {key} belongs in {whose} file"))
    }

    /// Relative paths are meant from where the file is.
    fn beside(&mut self, dir: &Path) {
        let paths = self.key.iter_mut();
        let paths = paths.chain(self.mobile.iter_mut().filter_map(|m| m.get_mut().psk.as_mut()));
        let paths = paths.chain(self.base.iter_mut().filter_map(|b| b.get_mut().psk.as_mut()));
        paths.for_each(|p| *p = dir.join(&*p));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An example with all that is optional.
    fn with_all(text: &str) -> String {
        let lines = text.lines().map(|l| l.strip_prefix('#').filter(|l| !l.starts_with(' ')).unwrap_or(l));
        lines.map(|l| l.to_owned() + "\n").collect()
    }

    /// The keys that a table takes, as the error tells them that another key gets.
    fn keys(header: &str) -> Vec<String> {
        let error = toml::from_str::<File>(&format!("{header}\nno-such-key = 1\n")).unwrap_err().to_string();
        let (_, expected) = error.split_once("expected").expect("an unknown key");
        expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_examples_show_every_key() {
        for (text, theirs) in [(BASE_EXAMPLE, "[[mobile]]"), (MOBILE_EXAMPLE, "[base]")] {
            let whole: toml::Table = toml::from_str(&with_all(text)).unwrap();
            for header in ["", "[lifetime]", "[attempts]", theirs] {
                let table = match whole.get(header.trim_matches(['[', ']'])) {
                    Some(toml::Value::Array(tables)) => tables[0].as_table().unwrap(),
                    Some(table) => table.as_table().unwrap(),
                    None => &whole,
                };
                let others = if theirs == "[base]" { &["listen", "mobile"][..] } else { &["base"] };
                let missing: Vec<String> = keys(header)
                    .into_iter()
                    .filter(|key| !(table.contains_key(key) || header.is_empty() && others.contains(&key.as_str())))
                    .collect();
                assert_eq!(missing, [""; 0], "{header} in the example with {theirs}");
            }
        }
    }

    #[test]
    fn config_examples_parse_with_and_without_options() {
        for (text, whose) in [(BASE_EXAMPLE, ConfigRole::Base), (MOBILE_EXAMPLE, ConfigRole::Mobile)] {
            File::parse(text, whose).unwrap();
            let all = with_all(text);
            let file = File::parse(&all, whose).unwrap_or_else(|e| panic!("{e}"));
            assert!(file.forward && file.lifetime.bulk.is_some() && file.device.as_deref() == Some("rlink0"));
        }
    }

    #[test]
    fn errors_name_line_and_key() {
        for (text, whose, words) in [
            ("key = \"k\"\nspeed = 3\n", ConfigRole::Base, &["line 2", "speed"][..]),
            ("rate = \"fast\"", ConfigRole::Base, &["line 1", "rate", "'fast' is not a rate"]),
            ("\naddress = [\"10.0.0.1\"]", ConfigRole::Mobile, &["line 2", "lacks the prefix length", "10.0.0.1/24"]),
            ("[[mobile]]\nname = \"x\"\naddress = \"10.0.0.2\"\n", ConfigRole::Base, &["line 1", "key"]),
            ("[[mobile]]\nkey = \"short\"\naddress = \"10.0.0.2\"\n", ConfigRole::Base, &["line 2", "not a key"]),
            ("mtu = 70000", ConfigRole::Base, &["line 1", "mtu"]),
            ("[lifetime]\nbulk = \"soon\"", ConfigRole::Base, &["line 2", "bulk", "length of time"]),
            ("[attempts]\nbulk = \"often\"", ConfigRole::Base, &["line 2", "bulk", "u32"]),
            ("[attempts]\nslow = 3", ConfigRole::Mobile, &["line 2", "slow", "interactive"]),
            ("mode = \"some\"", ConfigRole::Base, &["line 1", "arq"]),
            ("\n\nlisten = \"0.0.0.0:1\"", ConfigRole::Mobile, &["line 3", "listen", "a base's"]),
            ("key = 7", ConfigRole::Base, &["line 1"]),
            ("= 3", ConfigRole::Base, &["line 1"]),
        ] {
            let error = File::parse(text, whose).map(|_| ()).unwrap_err();
            assert!(words.iter().all(|w| error.contains(w)), "{text:?}: {error}");
        }
    }

    #[test]
    fn relative_paths_are_beside_the_file() {
        let mut file = File { key: Some("a.key".into()), ..File::default() };
        file.beside(Path::new("/etc/remora"));
        assert_eq!(file.key, Some("/etc/remora/a.key".into()));
        file.key = Some("/b.key".into());
        file.beside(Path::new("/etc/remora"));
        assert_eq!(file.key, Some("/b.key".into()));
    }
}
