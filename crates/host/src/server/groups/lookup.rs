//! The look-up of a user's groups.

use std::ffi::CString;
use std::sync::Arc;
use std::{fmt, io};

use nix::unistd::{Uid, User, getgrouplist};

/// Looks up the groups of a user. It may block for long: a name service may be on the network.
#[derive(Clone)]
pub struct GroupLookup(Arc<Find>);

type Find = dyn Fn(u32) -> io::Result<Option<Vec<u32>>> + Send + Sync;

impl GroupLookup {
    /// Calls `find` for the groups of a user; `None` is an unknown user.
    pub fn new(find: impl Fn(u32) -> io::Result<Option<Vec<u32>>> + Send + Sync + 'static) -> GroupLookup {
        GroupLookup(Arc::new(find))
    }

    /// Asks the name service of this machine (nsswitch.conf(5)).
    pub fn of_machine() -> GroupLookup {
        GroupLookup::new(groups_of)
    }

    pub(crate) fn find(&self, uid: u32) -> io::Result<Option<Vec<u32>>> {
        (self.0)(uid)
    }
}

impl fmt::Debug for GroupLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupLookup")
    }
}

fn groups_of(uid: u32) -> io::Result<Option<Vec<u32>>> {
    let Some(user) = User::from_uid(Uid::from_raw(uid))? else { return Ok(None) };
    let name = CString::new(user.name).map_err(io::Error::other)?;
    Ok(Some(getgrouplist(&name, user.gid)?.into_iter().map(|gid| gid.as_raw()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_knows_root_and_no_user_of_a_high_number() {
        assert!(groups_of(0).unwrap().is_some_and(|groups| groups.contains(&0)));
        assert_eq!(groups_of(u32::MAX - 7).unwrap(), None);
    }
}
