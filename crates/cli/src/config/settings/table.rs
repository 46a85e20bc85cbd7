//! The table of a command: its keys are the command's long flags, and clap's definition of those says which values they
//! take.

use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command, Id};
use toml::Spanned;
use toml::de::{DeInteger, DeString, DeTable, DeValue};

use crate::config::settings::config_file::{ConfigFile, Problem, unknown};

/// Most repetitions of a flag that counts (`-vv`).
const COUNT_MAX: usize = 9;
/// Errors of clap that depend on a value, and not on the flags beside it.
const OF_VALUES: [ErrorKind; 5] = [
    ErrorKind::InvalidValue,
    ErrorKind::ValueValidation,
    ErrorKind::InvalidUtf8,
    ErrorKind::TooManyValues,
    ErrorKind::WrongNumberOfValues,
];

/// A flag that a file sets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FlagSetting {
    /// The flag's identifier in clap.
    pub(crate) id: Id,
    /// The words of a command line; none for `false`.
    pub(crate) words: Vec<OsString>,
}

/// What the table of a command sets.
#[derive(Debug, Default)]
pub(crate) struct TableSettings {
    pub(crate) flags: Vec<FlagSetting>,
    pub(crate) problems: Vec<Problem>,
}

/// The flags that `table` of `file` sets for `command`, and what is wrong with it. Tables of subcommands are left out.
pub(crate) fn flags(file: &ConfigFile, table: &DeTable<'_>, command: &Command) -> TableSettings {
    let mut found = TableSettings::default();
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        if command.find_subcommand(name).is_some() {
            if !value.get_ref().is_table() {
                let why = format!("'{name}' is a command: write a table, as in [{name}]");
                found.problems.push(file.problem(value.span(), why));
            }
            continue;
        }
        let Some(arg) = settable(command).find(|arg| arg.get_long() == Some(name)) else {
            let names = settable(command).filter_map(Arg::get_long);
            let subcommands = command.get_subcommands().filter(|c| !c.is_hide_set()).map(Command::get_name);
            let what = format!("flag of {}", command.get_name());
            found.problems.push(file.problem(key.span(), unknown(&what, name, names.chain(subcommands))));
            continue;
        };
        let words = words(file, arg, value.get_ref()).map_err(|why| format!("{name}: {why}"));
        match words.and_then(|words| check(command, &words).map(|()| words)) {
            Ok(words) => found.flags.push(FlagSetting { id: arg.get_id().clone(), words }),
            Err(why) => found.problems.push(file.problem(value.span(), why)),
        }
    }
    let all: Vec<OsString> = found.flags.iter().flat_map(|flag| flag.words.clone()).collect();
    // Each is right by itself.
    if let Some(e) = parse_error(command, &all).filter(|e| e.kind() == ErrorKind::ArgumentConflict) {
        let at = table.keys().map(Spanned::span).next().unwrap_or_default();
        found.problems.push(file.problem(at, message(&e)));
    }
    found
}

/// The mistakes in `table` of `file` for `command` and its subcommands.
pub(crate) fn problems(file: &ConfigFile, table: &DeTable<'_>, command: &Command) -> Vec<Problem> {
    let mut found = flags(file, table, command).problems;
    for (key, value) in table {
        if let (Some(inner), DeValue::Table(table)) = (command.find_subcommand(key.get_ref().as_ref()), value.get_ref())
        {
            found.extend(problems(file, table, inner));
        }
    }
    found
}

/// Whether the two flags exclude each other.
pub(crate) fn exclude(command: &Command, one: &Arg, other: &Arg) -> bool {
    let forbids = |a: &Arg, b: &Arg| command.get_arg_conflicts_with(a).iter().any(|arg| arg.get_id() == b.get_id());
    let in_one_group = command.get_groups().filter(|group| !(*group).clone().is_multiple()).any(|group| {
        let has = |arg: &Arg| group.get_args().any(|id| id == arg.get_id());
        has(one) && has(other)
    });
    one.get_id() != other.get_id() && (forbids(one, other) || forbids(other, one) || in_one_group)
}

/// The flags of a command that a file can set.
fn settable(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_help = |action: &ArgAction| {
        matches!(action, ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version)
    };
    command
        .get_arguments()
        .filter(move |arg| arg.get_long().is_some() && !arg.is_hide_set() && !is_help(arg.get_action()))
}

/// The words for a flag with this value.
fn words(file: &ConfigFile, arg: &Arg, value: &DeValue<'_>) -> Result<Vec<OsString>, String> {
    let name = format!("--{}", arg.get_long().unwrap_or_default());
    let flag = || OsString::from(&name);
    let with = |value: &DeValue<'_>| Ok(joined(&name, &text(file, arg, value)?));
    let takes_none = arg.get_num_args().is_some_and(|range| range.min_values() == 0);
    match (arg.get_action(), value) {
        (ArgAction::SetTrue, DeValue::Boolean(is_set)) => Ok(is_set.then(flag).into_iter().collect()),
        (ArgAction::SetTrue, other) => Err(format!("expected true or false, found {}", kind(other))),
        (ArgAction::Count, DeValue::Boolean(is_set)) => Ok(is_set.then(flag).into_iter().collect()),
        (ArgAction::Count, DeValue::Integer(n)) => match decimal(n).parse() {
            Ok(n) if n <= COUNT_MAX => Ok(std::iter::repeat_with(flag).take(n).collect()),
            _ => Err(format!("expected 0 to {COUNT_MAX}")),
        },
        (ArgAction::Append, DeValue::Array(values)) => values.iter().map(|value| with(value.get_ref())).collect(),
        (ArgAction::Append, DeValue::Table(pairs)) if takes_pairs(arg) => {
            let pair = |(key, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| {
                let value = text(file, arg, value.get_ref())?;
                Ok(joined(&name, &joined(key.get_ref().as_ref() as &str, &value)))
            };
            pairs.iter().map(pair).collect()
        }
        (_, DeValue::Boolean(is_set)) if takes_none => Ok(is_set.then(flag).into_iter().collect()),
        (_, value) => Ok(vec![with(value)?]),
    }
}

/// Whether each value is a pair such as `NAME=DIR`, which is written as a line of a table, too.
fn takes_pairs(arg: &Arg) -> bool {
    arg.get_value_names().is_some_and(|names| names.iter().any(|name| name.contains('=')))
}

fn joined(name: impl AsRef<OsStr>, value: &OsStr) -> OsString {
    let mut word = name.as_ref().to_owned();
    word.push("=");
    word.push(value);
    word
}

/// A value as it is written behind a flag.
fn text(file: &ConfigFile, arg: &Arg, value: &DeValue<'_>) -> Result<OsString, String> {
    let is_path = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
    match value {
        DeValue::String(text) if is_path => Ok(file.path_of(text).into()),
        DeValue::String(text) => Ok(text.as_ref().into()),
        DeValue::Integer(n) if !is_path => Ok(decimal(n).into()),
        DeValue::Float(x) if !is_path => Ok(x.as_str().into()),
        other if is_path => Err(format!("expected a path in quotes, found {}", kind(other))),
        other => Err(format!("expected a text in quotes or a number, found {}", kind(other))),
    }
}

/// A number as people write it, whatever its radix in the file.
fn decimal(n: &DeInteger<'_>) -> String {
    match (n.radix(), i64::from_str_radix(n.as_str(), n.radix())) {
        (10, _) | (_, Err(_)) => n.as_str().to_owned(),
        (_, Ok(n)) => n.to_string(),
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Has clap judge the values of a flag.
fn check(command: &Command, words: &[OsString]) -> Result<(), String> {
    match parse_error(command, words).filter(|e| OF_VALUES.contains(&e.kind())) {
        Some(e) => Err(message(&e)),
        None => Ok(()),
    }
}

fn parse_error(command: &Command, words: &[OsString]) -> Option<clap::Error> {
    let line = std::iter::once(OsString::from(command.get_name())).chain(words.iter().cloned());
    command.clone().try_get_matches_from(line).err()
}

/// What clap says is wrong, without how to call the command.
fn message(error: &clap::Error) -> String {
    let text = error.to_string();
    let said = text.split("\n\nUsage:").next().and_then(|text| text.split("\n\nFor more").next()).unwrap_or_default();
    let lines = said.strip_prefix("error: ").unwrap_or(said).lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use clap::{ArgGroup, value_parser};

    use super::*;

    fn command() -> Command {
        Command::new("serve")
            .arg(Arg::new("listen").long("listen").default_value("1").value_parser(value_parser!(u16)))
            .arg(Arg::new("allow").long("allow").action(ArgAction::Append))
            .arg(Arg::new("export").long("export").value_name("NAME=DIR").action(ArgAction::Append))
            .arg(Arg::new("read_only").long("read-only").action(ArgAction::SetTrue).conflicts_with("exports"))
            .arg(Arg::new("exports").long("exports").value_parser(value_parser!(PathBuf)).action(ArgAction::Append))
            .arg(Arg::new("portmap").long("portmap").num_args(0..=1).require_equals(true).default_missing_value("111"))
            .arg(Arg::new("verbose").long("verbose").action(ArgAction::Count))
            .arg(Arg::new("daemon").long("daemon").action(ArgAction::SetTrue).hide(true))
            .arg(Arg::new("mode").long("mode").value_parser(["fast", "slow"]))
            .arg(Arg::new("to").long("to"))
            .arg(Arg::new("nfs").long("nfs"))
            .group(ArgGroup::new("service").required(true).args(["to", "nfs"]))
            .arg(Arg::new("dir").required(true))
            .subcommand(Command::new("inner").arg(Arg::new("device").long("device")))
    }

    fn settings(text: &str) -> TableSettings {
        let file = ConfigFile::from_text("/etc/remora/config.toml", text);
        flags(&file, &file.table().unwrap(), &command())
    }

    #[test]
    fn value_becomes_the_words_of_its_flag() {
        for (text, words) in [
            ("listen = 2049", &["--listen=2049"][..]),
            ("listen = 0x10", &["--listen=16"]),
            ("listen = \"2049\"", &["--listen=2049"]),
            ("allow = \"10.0.0.0/8\"", &["--allow=10.0.0.0/8"]),
            ("allow = [\"a\", \"b\"]", &["--allow=a", "--allow=b"]),
            ("[export]\nmusic = \"/srv/m\"", &["--export=music=/srv/m"]),
            ("exports = [\"/a\", \"b.toml\"]", &["--exports=/a", "--exports=/etc/remora/b.toml"]),
            ("read-only = true", &["--read-only"]),
            ("read-only = false", &[]),
            ("portmap = true", &["--portmap"]),
            ("portmap = 1111", &["--portmap=1111"]),
            ("verbose = 2", &["--verbose", "--verbose"]),
            ("verbose = true", &["--verbose"]),
            ("[inner]\ndevice = \"x\"", &[]),
        ] {
            let found = settings(text);
            assert_eq!(found.problems, [], "{text}");
            assert_eq!(found.flags.into_iter().flat_map(|flag| flag.words).collect::<Vec<_>>(), words, "{text}");
        }
    }

    #[test]
    fn wrong_value_is_a_problem_of_its_line() {
        for (text, line, words) in [
            ("\nlistn = 1", 2, &["no flag of serve 'listn'", "did you mean 'listen'"][..]),
            ("read_only = true", 1, &["did you mean 'read-only'"]),
            ("daemon = true", 1, &["no flag of serve 'daemon'"]),
            ("dir = \"/srv\"", 1, &["no flag of serve 'dir'"]),
            ("inner = 3", 1, &["[inner]"]),
            ("listen = \"x\"", 1, &["invalid value 'x'", "--listen"]),
            ("listen = 70000", 1, &["70000", "--listen"]),
            ("listen = true", 1, &["listen: expected a text in quotes or a number, found true or false"]),
            ("listen = [1, 2]", 1, &["found a list"]),
            ("allow = [1979-05-27]", 1, &["found a date"]),
            ("exports = 3", 1, &["expected a path in quotes"]),
            ("read-only = \"yes\"", 1, &["expected true or false, found a text"]),
            ("verbose = 99", 1, &["expected 0 to 9"]),
            ("allow = { a = \"b\" }", 1, &["found a table"]),
            ("mode = \"medium\"", 1, &["'medium'", "fast, slow"]),
            ("\nexports = \"/a\"\nread-only = true", 2, &["cannot be used with"]),
        ] {
            let problems = settings(text).problems;
            let [Problem { line: found, why }] = &problems[..] else { panic!("{text}: {problems:?}") };
            assert!(*found == line && words.iter().all(|word| why.contains(word)), "{text}: {found}: {why}");
        }
    }

    #[test]
    fn flags_exclude_each_other_both_ways_and_by_group() {
        let command = command();
        let arg = |id: &str| command.get_arguments().find(|arg| arg.get_id() == id).unwrap();
        for (one, other, is_exclusive) in [
            ("read_only", "exports", true),
            ("exports", "read_only", true),
            ("to", "nfs", true),
            ("listen", "allow", false),
            ("to", "to", false),
        ] {
            assert_eq!(exclude(&command, arg(one), arg(other)), is_exclusive, "{one} {other}");
        }
    }
}
