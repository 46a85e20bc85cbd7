//! `remora release`: ends all system calls that wait for the server.

use crate::commands::mount::flags::Release;
use crate::commands::mount::known_mounts;
use crate::output::exit::Result;
use crate::output::stdio;

pub(crate) fn run(args: &Release) -> Result {
    let mount = known_mounts::around(&args.dir)?;
    let calls = mount.release().map_err(|error| known_mounts::unanswered(&mount, error))?;
    stdio::eprint(format_args!("ended {calls} call{}", if calls == 1 { "" } else { "s" }));
    Ok(())
}
