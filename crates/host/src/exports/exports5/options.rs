//! The options of exports(5), and their effect.

use remora_server::{ANONYMOUS, Squash, Terms};

/// The options of a client. The defaults are exports(5)'s, except that any port is accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Options {
    read_only: bool,
    root_squash: bool,
    all_squash: bool,
    anon_uid: u32,
    anon_gid: u32,
    secure: bool,
    acl: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            read_only: true,
            root_squash: true,
            all_squash: false,
            anon_uid: ANONYMOUS,
            anon_gid: ANONYMOUS,
            // Linux requires a reserved port, which Remora's own client has only as root.
            secure: false,
            acl: true,
        }
    }
}

/// An option without effect on the terms.
enum Other {
    /// Requests what is always the case.
    AsEver,
    /// Has no effect here, for this reason.
    Idle(&'static str),
    /// Requests what the server does not support.
    Refused(&'static str),
}

impl Options {
    /// Applies a list such as `rw,sync`. `note` gets the options without effect.
    pub(super) fn with(mut self, list: &str, note: &mut impl FnMut(String)) -> Result<Options, String> {
        for option in list.split(',').filter(|o| !o.is_empty()) {
            if self.set(option)? {
                continue;
            }
            match other(option) {
                Some(Other::AsEver) => {}
                Some(Other::Idle(why)) => note(format!("'{option}' changes nothing: {why}")),
                Some(Other::Refused(why)) => return Err(format!("'{option}' is refused: {why}")),
                None => return Err(format!("'{option}' is no option that exports(5) knows")),
            }
        }
        Ok(self)
    }

    /// The terms of these options.
    pub(super) fn terms(self) -> Terms {
        let squash = match (self.all_squash, self.root_squash) {
            (true, _) => Squash::All,
            (false, true) => Squash::Root,
            (false, false) => Squash::None,
        };
        let Options { read_only, anon_uid, anon_gid, secure, acl, .. } = self;
        Terms { read_only, squash, anon_uid, anon_gid, secure, acl }
    }

    /// Applies one option. Returns false if it has no effect on the terms.
    fn set(&mut self, option: &str) -> Result<bool, String> {
        match option.split_once('=') {
            Some(("anonuid", id)) => self.anon_uid = number(option, id)?,
            Some(("anongid", id)) => self.anon_gid = number(option, id)?,
            _ => match option {
                "rw" => self.read_only = false,
                "ro" => self.read_only = true,
                "root_squash" => self.root_squash = true,
                "no_root_squash" => self.root_squash = false,
                "all_squash" => self.all_squash = true,
                "no_all_squash" => self.all_squash = false,
                "secure" => self.secure = true,
                "insecure" => self.secure = false,
                "acl" => self.acl = true,
                "no_acl" => self.acl = false,
                _ => return Ok(false),
            },
        }
        Ok(true)
    }
}

fn other(option: &str) -> Option<Other> {
    use Other::{AsEver, Idle, Refused};
    let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
    Some(match (name, value) {
        ("sync" | "hide" | "nocrossmnt" | "no_subtree_check" | "no_pnfs", None) => AsEver,
        ("sec", Some("sys")) | ("xprtsec", Some("none")) => AsEver,
        ("wdelay" | "no_wdelay", None) => Idle("flushes are shared, and none waits for another write"),
        ("subtree_check", None) => Idle("no handle leaves the exported tree anyway"),
        ("fsid", Some(_)) => Idle("handles hold the export's path"),
        ("auth_nlm" | "no_auth_nlm" | "secure_locks" | "insecure_locks", None) => Idle("there is no lock manager"),
        ("nordirplus", None) => Refused("READDIRPLUS is always answered"),
        ("async", None) => Refused("what a client was told to be on stable storage is there"),
        ("nohide" | "crossmnt", None) => {
            Refused("of what is mounted inside, clients see the directory below: export it on a line of its own")
        }
        ("mountpoint" | "mp", _) => Refused("whether it is mounted is not looked at"),
        ("sec" | "xprtsec", _) => Refused("there is neither Kerberos nor TLS: only sec=sys and xprtsec=none"),
        ("refer" | "replicas", _) => Refused("there is no NFSv4"),
        ("pnfs" | "security_label" | "zfs_snapdir", None) => Refused("there is no such service"),
        _ => return None,
    })
}

fn number(option: &str, text: &str) -> Result<u32, String> {
    // By convention -2 is nobody.
    let id = text.parse().ok().or_else(|| text.parse::<i32>().ok().map(i32::cast_unsigned));
    id.filter(|n| *n != u32::MAX).ok_or_else(|| format!("'{option}': expected a number from 0 on"))
}
