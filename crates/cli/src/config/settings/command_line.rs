//! The user's words with what the configuration adds to them. Flags of the user go before those of a file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, Id};
use toml::de::{DeTable, DeValue};

use crate::config::settings::config_file::{ConfigFile, Problem, unknown};
use crate::config::settings::names::{HOSTS, KEYS, Names};
use crate::config::settings::table;
use crate::output::exit::Result;

/// The flag that names a file in place of the usual ones. It stands before the command.
const FLAG: &str = "--config";
/// The command that judges files, and therefore takes nothing from them.
const JUDGE: &str = "config";

/// A command line and what files have added to it.
#[derive(Debug)]
pub(crate) struct CommandLine {
    pub(crate) words: Vec<OsString>,
    /// The flags of the files, for messages.
    pub(crate) added: Vec<OsString>,
    /// Flags of the files that exclude one of the user's.
    pub(crate) left_out: Vec<String>,
}

/// The words before the command.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct BeforeCommand {
    /// The configuration that they name.
    pub(crate) config: Option<PathBuf>,
    /// Where the command's name is.
    pub(crate) command_at: usize,
}

impl BeforeCommand {
    pub(crate) fn of(words: &[OsString]) -> BeforeCommand {
        let second = words.get(1).map(|word| word.to_string_lossy()).unwrap_or_default();
        let value = second.strip_prefix(FLAG).and_then(|rest| rest.strip_prefix('='));
        match value {
            Some(path) => BeforeCommand { config: Some(path.into()), command_at: 2 },
            None if second == FLAG => BeforeCommand { config: words.get(2).map(PathBuf::from), command_at: 3 },
            None => BeforeCommand { config: None, command_at: 1 },
        }
    }
}

/// Adds the configuration to `words`, and sets the names of this process.
pub(crate) fn with_config(definition: &Command, words: Vec<OsString>) -> Result<CommandLine> {
    let BeforeCommand { config, command_at } = BeforeCommand::of(&words);
    let untouched = |words| CommandLine { words, added: Vec::new(), left_out: Vec::new() };
    if words.get(command_at).is_none_or(|word| word == JUDGE) {
        return Ok(untouched(words));
    }
    let files = match config {
        Some(path) => vec![ConfigFile::named(&path)?],
        None => ConfigFile::usual()?,
    };
    let mut parsed = Vec::new();
    let mut names = Names::default();
    for file in &files {
        let root = file.table().map_err(|problem| file.error(&problem))?;
        let problems = [stray_tables(file, &root, definition), names.add(file, &root)].concat();
        problems.first().map_or(Ok(()), |problem| Err(file.error(problem)))?;
        parsed.push((file, root));
    }
    if parsed.is_empty() {
        return Ok(untouched(words));
    }
    names.set();
    // Its table has names.
    if words.get(command_at).is_some_and(|word| word == KEYS) {
        return Ok(untouched(words));
    }
    let mut builder = Builder { line: untouched(words), at: command_at };
    // The parser reports what is wrong with the words when they are complete.
    if let Ok(given) = definition.clone().ignore_errors(true).try_get_matches_from(&builder.line.words) {
        let tables = parsed.iter().map(|(file, root)| (*file, root)).collect();
        builder.add(definition, &given, tables)?;
    }
    Ok(builder.line)
}

/// The mistakes in a file.
pub(crate) fn problems(file: &ConfigFile, definition: &Command, names: &mut Names) -> Vec<Problem> {
    let root = match file.table() {
        Ok(root) => root,
        Err(problem) => return vec![problem],
    };
    let mut found = names.add(file, &root);
    names.clone().set();
    found.extend(stray_tables(file, &root, definition));
    for (key, value) in root.iter().filter(|(key, _)| key.get_ref() != KEYS) {
        if let (Some(command), DeValue::Table(inner)) = (definition.find_subcommand(&**key.get_ref()), value.get_ref())
        {
            found.extend(table::problems(file, inner, command));
        }
    }
    found.sort_by_key(|problem| problem.line);
    found
}

/// Keys of the file that are neither a command's table nor one of names.
fn stray_tables(file: &ConfigFile, root: &DeTable<'_>, definition: &Command) -> Vec<Problem> {
    let commands = || definition.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != JUDGE);
    let known = || commands().map(Command::get_name).chain([HOSTS, KEYS]);
    let strays = root.iter().filter_map(|(key, value)| {
        let name = key.get_ref().as_ref();
        match (known().any(|known| known == name), value.get_ref().is_table()) {
            (true, true) => None,
            (true, false) => Some(file.problem(value.span(), format!("{name}: expected a table, as in [{name}]"))),
            (false, _) => Some(file.problem(key.span(), unknown("table", name, known()))),
        }
    });
    strays.collect()
}

/// Words to which flags are added behind the names of commands.
struct Builder {
    line: CommandLine,
    at: usize,
}

impl Builder {
    /// Adds what the tables of `command`'s subcommand say, those of the last file first.
    fn add(&mut self, command: &Command, given: &ArgMatches, tables: Vec<(&ConfigFile, &DeTable<'_>)>) -> Result {
        let Some((name, given)) = given.subcommand() else { return Ok(()) };
        let Some(command) = command.find_subcommand(name) else { return Ok(()) };
        let Some(offset) = self.line.words.iter().skip(self.at).position(|word| word == name) else { return Ok(()) };
        self.at += offset + 1;
        let (mut flags, mut inner) = (BTreeMap::<Id, Vec<OsString>>::new(), Vec::new());
        for (file, table) in tables {
            let Some(DeValue::Table(table)) = table.get(name).map(|value| value.get_ref()) else { continue };
            let found = table::flags(file, table, command);
            found.problems.first().map_or(Ok(()), |problem| Err(file.error(problem)))?;
            flags.extend(found.flags.into_iter().map(|flag| (flag.id, flag.words)));
            inner.push((file, table));
        }
        let is_given = |id: &Id| given.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        let all: Vec<&clap::Arg> = command.get_arguments().collect();
        let yields = |id: &Id| {
            let own = all.iter().find(|arg| arg.get_id() == id);
            own.is_none_or(|own| all.iter().any(|arg| is_given(arg.get_id()) && table::exclude(command, own, arg)))
        };
        let (out, added): (Vec<_>, Vec<_>) =
            flags.into_iter().filter(|(id, _)| !is_given(id)).partition(|(id, _)| yields(id));
        let flag = |words: Vec<OsString>| Some(words.first()?.to_string_lossy().split('=').next()?.to_owned());
        self.line.left_out.extend(out.into_iter().filter_map(|(_, words)| flag(words)));
        let words: Vec<_> = added.into_iter().flat_map(|(_, words)| words).collect();
        let end = self.at + words.len();
        self.line.added.extend(words.iter().cloned());
        self.line.words.splice(self.at..self.at, words);
        self.at = end;
        self.add(command, given, inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::{Arg, ArgAction};

    use super::*;

    fn definition() -> Command {
        let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
        let ls = Command::new("ls")
            .arg(Arg::new("proto").long("proto"))
            .arg(Arg::new("allow").long("allow").action(ArgAction::Append))
            .arg(flag("json"))
            .arg(flag("long").conflicts_with("json"))
            .arg(Arg::new("url").required(true).num_args(1..));
        let link = Command::new("link").arg(Arg::new("device").long("device")).subcommand(
            Command::new("base")
                .arg(Arg::new("rate").long("rate"))
                .arg(Arg::new("rest").trailing_var_arg(true).num_args(0..)),
        );
        Command::new("remora").arg(Arg::new("config").long("config")).subcommands([ls, link, Command::new("config")])
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn with(text: &str, line: &str) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        fs::write(&path, text).unwrap();
        let named = format!("remora --config={} {line}", path.display());
        let done = with_config(&definition(), words(&named)).map_err(|e| e.to_string())?;
        Ok(done.words[2..].iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn flags_of_the_file_stand_behind_the_command() {
        let ls = "[ls]\nproto = \"tcp\"\nallow = [\"a\", \"b\"]\n";
        for (text, line, expected) in [
            (ls, "ls u", "ls --allow=a --allow=b --proto=tcp u"),
            (ls, "ls --proto udp u", "ls --allow=a --allow=b --proto udp u"),
            (ls, "ls u --allow c", "ls --proto=tcp u --allow c"),
            (ls, "ls ls", "ls --allow=a --allow=b --proto=tcp ls"),
            // The parser reports what is wrong with the user's words.
            (ls, "ls", "ls --allow=a --allow=b --proto=tcp"),
            ("[ls]\nlong = true", "ls --json u", "ls --json u"),
            ("[ls]\njson = true", "ls --long u", "ls --long u"),
            ("[ls]\njson = false", "ls u", "ls u"),
            (ls, "link base x", "link base x"),
            ("[link]\ndevice = \"d\"\n[link.base]\nrate = 3", "link base x -y", "link --device=d base --rate=3 x -y"),
            ("", "ls u", "ls u"),
        ] {
            assert_eq!(with(text, line).as_deref(), Ok(expected), "{text}: {line}");
        }
    }

    #[test]
    fn flag_that_excludes_one_of_the_user_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        fs::write(&path, "[ls]\nlong = true\nproto = \"tcp\"\n").unwrap();
        for (flag, left_out) in [("--json", &["--long"][..]), ("--long", &[]), ("--allow=a", &[])] {
            let line = format!("remora --config={} ls {flag} u", path.display());
            assert_eq!(with_config(&definition(), words(&line)).unwrap().left_out, left_out, "{flag}");
        }
    }

    #[test]
    fn wrong_file_stops_the_commands_that_it_concerns() {
        for (text, line, words) in [
            ("[ls]\nprot = 1", "ls u", &["c.toml:2", "'prot'", "'proto'"][..]),
            ("[ls]\nlong = 1", "ls u", &["c.toml:2", "long"]),
            ("[lnik]\n", "ls u", &["c.toml:1", "no table 'lnik'", "'link'"]),
            ("ls = 1", "ls u", &["c.toml:1", "[ls]"]),
            ("[hosts]\nx = 1", "ls u", &["c.toml:2", "hosts.x"]),
            ("a = 1\na = 2", "ls u", &["c.toml:2", "duplicate"]),
            ("[config]\n", "ls u", &["no table 'config'"]),
        ] {
            let why = with(text, line).unwrap_err();
            assert!(words.iter().all(|word| why.contains(word)), "{text}: {why}");
        }
        assert_eq!(with("[ls]\nprot = 1", "link base").as_deref(), Ok("link base"));
        assert_eq!(with("nonsense", "config check").as_deref(), Ok("config check"));
    }

    #[test]
    fn words_before_the_command_may_name_a_file() {
        for (line, config, command_at) in [
            ("remora ls --config x", None, 1),
            ("remora --config x ls", Some("x"), 3),
            ("remora --config=x ls", Some("x"), 2),
            ("remora --config", None, 3),
            ("remora", None, 1),
        ] {
            let expected = BeforeCommand { config: config.map(PathBuf::from), command_at };
            assert_eq!(BeforeCommand::of(&words(line)), expected, "{line}");
        }
    }

    #[test]
    fn every_mistake_of_a_file_is_found() {
        let text = "[ls]\nprot = 1\nlong = 1\n[sl]\n[link.base]\nrat = 2\n[keys]\nx = \"y\"\n";
        let file = ConfigFile::from_text("c.toml", text);
        let found = problems(&file, &definition(), &mut Names::default());
        assert_eq!(found.iter().map(|problem| problem.line).collect::<Vec<_>>(), [2, 3, 4, 6, 8]);
    }
}
