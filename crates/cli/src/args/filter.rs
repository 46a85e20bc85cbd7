//! `--include` and `--exclude`, whose order on the command line counts.

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

use crate::filter::{Filter, Pattern, Rule};

const INCLUDE: &str = "include";
const EXCLUDE: &str = "exclude";

/// The rules, in their order.
#[derive(Clone, Default, Debug)]
pub(crate) struct FilterArgs(pub(crate) Filter);

impl Args for FilterArgs {
    fn augment_args(command: Command) -> Command {
        let rule = |name: &'static str, help: &'static str| {
            let arg = Arg::new(name).long(name).value_name("GLOB").action(ArgAction::Append).help(help);
            arg.value_parser(ValueParser::from(Pattern::parse))
        };
        let includes = "With -r: copy files whose path in SRC matches, and no others; may be given several times, and \
                        mixed with --exclude: the first that matches decides";
        let excludes = "With -r: leave files out whose path in SRC matches; may be given several times";
        command.arg(rule(INCLUDE, includes)).arg(rule(EXCLUDE, excludes))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FilterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<FilterArgs, Error> {
        let mut rules = Vec::new();
        for (name, is_include) in [(INCLUDE, true), (EXCLUDE, false)] {
            let places = matches.indices_of(name).into_iter().flatten();
            let patterns = matches.get_many::<Pattern>(name).into_iter().flatten();
            rules.extend(places.zip(patterns.map(|pattern| Rule { is_include, pattern: pattern.clone() })));
        }
        rules.sort_by_key(|(place, _)| *place);
        Ok(FilterArgs(Filter { rules: rules.into_iter().map(|(_, rule)| rule).collect() }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
