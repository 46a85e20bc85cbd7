//! Running other programs from the root of the workspace.

use std::error::Error;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The result of a project command. The error is a message for a person.
pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// A failure that the output has already reported.
#[derive(Debug)]
pub(crate) struct Told;

impl Error for Told {}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("see above")
    }
}

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// Runs the `cargo` that runs this program, with these arguments.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).current_dir(root());
    command
}

/// The same command with the default action for signals. nohup(1) and shells behind `&` ignore some; tests would
/// inherit that, and they send these signals.
pub(crate) fn heeding_signals(command: Command) -> Command {
    const HEED: &str = "--default-signal=HUP,INT,QUIT,TERM";
    let can = Command::new("env").args([HEED, "true"]).stderr(Stdio::null()).status().is_ok_and(|s| s.success());
    if !can {
        return command;
    }
    let mut heeding = Command::new("env");
    heeding.arg(HEED).arg(command.get_program()).args(command.get_args());
    if let Some(dir) = command.get_current_dir() {
        heeding.current_dir(dir);
    }
    heeding
}

/// How a program of the workspace is built.
#[derive(Clone, Copy)]
pub(crate) enum Build {
    /// The tests' profile: nothing is compiled twice, and overflows are checked.
    Debug,
    /// The release profile.
    Release,
}

/// Builds `program` with the workspace's features, as the tests do, and returns its path. With the package's own
/// features half of the dependencies would be built again.
pub(crate) fn built(program: &str, build: Build) -> Result<PathBuf> {
    let (dir, flags): (_, &[&str]) = match build {
        Build::Debug => ("debug", &[]),
        Build::Release => ("release", &["--release"]),
    };
    run(cargo(&["build", "--quiet", "--workspace", "--bin", program]).args(flags))?;
    Ok(target_dir()?.join(dir).join(program))
}

/// Cargo's target directory.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root()).no_deps().exec()?;
    Ok(metadata.target_directory.into())
}

/// Runs a command in the foreground. An exit code other than 0 is an error that names the command.
pub(crate) fn run(command: &mut Command) -> Result {
    let status = command.status().map_err(|e| format!("cannot start {}: {e}", name(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{} failed ({status})", name(command)).into()) }
}

/// The command as a person would type it.
pub(crate) fn name(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let words = std::iter::once(program.file_name().unwrap_or(program.as_os_str())).chain(command.get_args());
    words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// The path of `program`, if the search path has it.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|dir| dir.join(program)).find(|p| p.is_file())
}

/// Whether this process runs as root: it owns /proc/self.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_reads_as_it_is_typed() {
        assert_eq!(name(Command::new("/usr/bin/cargo").args(["fmt", "--check"])), "cargo fmt --check");
    }

    #[test]
    fn failure_is_an_error_that_names_the_command() {
        let why = run(Command::new("false").arg("hood")).unwrap_err().to_string();
        assert!(why.starts_with("false hood failed"), "{why}");
        assert!(run(&mut Command::new("true")).is_ok());
        assert!(run(&mut Command::new("no-such-program-here")).unwrap_err().to_string().contains("cannot start"));
    }
}
