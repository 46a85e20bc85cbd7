//! `--include` and `--exclude`: rules that select the files of a tree to copy.
//!
//! As in rclone, the first rule whose pattern matches a file's path decides. A file that no rule matches is copied
//! unless there is an `--include`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use globset::{GlobBuilder, GlobMatcher};

/// Any name, for what a pattern says of all names.
const ANY: &str = "any";

/// A glob for paths below the directory that is copied. Without a leading `/` it may match at any depth.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    whole: GlobMatcher,
    /// The parts between slashes of a pattern with a leading `/`; `None` for `**`.
    parts: Vec<Option<GlobMatcher>>,
    is_anchored: bool,
    /// It ends in `**`, and so says the same of all that is below a directory.
    is_of_trees: bool,
    /// It matches every file.
    is_of_all: bool,
}

impl Pattern {
    pub(crate) fn parse(text: &str) -> Result<Pattern, String> {
        let bad = |why: &str| format!("'{text}' is not a pattern: {why}");
        let (is_anchored, body) = match text.strip_prefix('/') {
            Some(body) => (true, body),
            None => (false, text),
        };
        let body = match body.strip_suffix('/') {
            Some(dir) => format!("{dir}/**"),
            None => body.to_owned(),
        };
        if body.is_empty() || body == "/**" {
            return Err(bad("it contains no name"));
        }
        if body.split('/').any(|part| part.contains("**") && part != "**") {
            return Err(bad("'**' stands alone between slashes, as in '**/*.jpg'"));
        }
        let glob = |glob: &str| {
            let built = GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).build();
            built.map(|glob| glob.compile_matcher()).map_err(|e| bad(&e.kind().to_string()))
        };
        // A brace may have slashes in it.
        let is_split = is_anchored && !body.contains('{');
        let part = |part| if part == "**" { Ok(None) } else { glob(part).map(Some) };
        Ok(Pattern {
            whole: if is_anchored { glob(&body)? } else { glob(&format!("**/{body}"))? },
            parts: if is_split { body.split('/').map(part).collect::<Result<_, _>>()? } else { Vec::new() },
            is_anchored,
            is_of_trees: body == "**" || body.ends_with("/**"),
            is_of_all: body == "**" || (body == "*" && !is_anchored),
        })
    }

    /// Whether it matches all that is below `dir`.
    fn covers(&self, dir: &Path) -> bool {
        self.is_of_all || (self.is_of_trees && self.whole.is_match(dir.join(ANY)))
    }

    /// Whether it may match something below `dir`.
    fn may_match_below(&self, dir: &Path) -> bool {
        if !self.is_anchored || self.parts.is_empty() {
            return true;
        }
        let mut parts = self.parts.iter();
        for name in dir {
            match parts.next() {
                Some(Some(part)) if part.is_match(name) => {}
                Some(None) => return true,
                _ => return false,
            }
        }
        parts.next().is_some()
    }
}

/// A pattern, and what becomes of the files that it matches.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) is_include: bool,
    pub(crate) pattern: Pattern,
}

/// Rules in their order. Paths are those below the directory that is copied.
#[derive(Clone, Default, Debug)]
pub(crate) struct Filter {
    pub(crate) rules: Vec<Rule>,
}

impl Filter {
    /// Whether a file, or what else is no directory, is copied.
    pub(crate) fn takes(&self, path: &Path) -> bool {
        let decides = self.rules.iter().find(|rule| rule.pattern.whole.is_match(path));
        decides.map_or(!self.has_include(), |rule| rule.is_include)
    }

    /// Whether something below a directory may be copied.
    pub(crate) fn enters(&self, dir: &Path) -> bool {
        for Rule { is_include, pattern } in &self.rules {
            match is_include {
                true if pattern.may_match_below(dir) => return true,
                false if pattern.covers(dir) => return false,
                _ => {}
            }
        }
        !self.has_include()
    }

    /// The same of a name in a directory.
    pub(crate) fn takes_in(&self, dir: &Path, name: &[u8], is_dir: bool) -> bool {
        if self.rules.is_empty() {
            return true;
        }
        let path = dir.join(OsStr::from_bytes(name));
        if is_dir { self.enters(&path) } else { self.takes(&path) }
    }

    fn has_include(&self) -> bool {
        self.rules.iter().any(|rule| rule.is_include)
    }
}

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
        let includes = "With -r: copy only files whose path in SRC matches; may be repeated, and mixed with --exclude: the first that matches decides";
        let excludes = "With -r: skip files whose path in SRC matches; may be repeated";
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `+ PATTERN` and `- PATTERN`.
    fn filter(rules: &[&str]) -> Filter {
        let rule = |rule: &&str| {
            let (sign, pattern) = rule.split_once(' ').unwrap();
            Rule { is_include: sign == "+", pattern: Pattern::parse(pattern).unwrap() }
        };
        Filter { rules: rules.iter().map(rule).collect() }
    }

    #[test]
    fn patterns_match_as_in_rclone() {
        // From rclone's page on filtering, mostly.
        for (pattern, matches, others) in [
            ("file.jpg", &["file.jpg", "directory/file.jpg"][..], &["afile.jpg", "directory/afile.jpg"][..]),
            ("/file.jpg", &["file.jpg"], &["afile.jpg", "directory/file.jpg"]),
            ("*.jpg", &["file.jpg", "directory/file.jpg"], &["file.jpg/anotherfile.png"]),
            ("l?ss", &["less", "dir/lass"], &["floss", "l/ss"]),
            ("h[ae]llo", &["hello", "hallo"], &["hullo"]),
            ("{one,two}_potato", &["one_potato", "two_potato"], &["three_potato", "_potato"]),
            ("\\*.jpg", &["*.jpg"], &["a.jpg"]),
            ("dir/", &["dir/a", "dir/b/c", "x/dir/a"], &["dir", "adir/a"]),
            ("/dir/**", &["dir/a", "dir/b/c"], &["x/dir/a"]),
            ("potato/*", &["potato/a", "x/potato/a"], &["potato/a/b"]),
            ("/a/**/z", &["a/z", "a/b/z", "a/b/c/z"], &["b/a/z"]),
            ("**", &["a", "a/b"], &[]),
        ] {
            let takes = filter(&[&format!("+ {pattern}")]);
            for path in matches {
                assert!(takes.takes(Path::new(path)), "{pattern} is to match {path}");
            }
            for path in others {
                assert!(!takes.takes(Path::new(path)), "{pattern} is not to match {path}");
            }
        }
        for bad in ["", "/", "a**b", "**.jpg", "[a", "{a,b"] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn first_rule_that_matches_decides() {
        let takes = |rules: &[&str], path| filter(rules).takes(Path::new(path));
        assert!(takes(&["- *.bak", "+ *.jpg"], "a.jpg") && !takes(&["- *.bak", "+ *.jpg"], "a.png"));
        assert!(!takes(&["- secret*.jpg", "+ *.jpg"], "secret1.jpg"));
        assert!(takes(&["+ *.jpg", "- secret*.jpg"], "secret1.jpg"));
        assert!(takes(&["- *.bak"], "a.png") && takes(&[], "a"));
        assert!(filter(&["- \u{fffd}*"]).takes_in(Path::new(""), b"\xff", false), "names are bytes");
    }

    #[test]
    fn directory_is_entered_if_something_in_it_may_be_copied() {
        for (rules, enters, stays_out) in [
            (&["- cache/"][..], &["a", "a/b"][..], &["cache", "a/cache", "cache/b"][..]),
            (&["- cache/*"], &["cache"], &[]),
            (&["+ /cache/keep", "- cache/"], &["cache"], &["a/cache"]),
            (&["+ /photos/20*/**"], &["photos", "photos/2026", "photos/2026/nov"], &["music", "photos/1999"]),
            (&["+ *.jpg"], &["a", "a/b"], &[]),
            (&["- *"], &[], &["a"]),
            (&["- /d/[!a]*/**"], &["d"], &["d/b"]),
            (&["+ /{a,b/c}/x"], &["a", "b", "z"], &[]),
            (&["+ /a"], &[], &["a"]),
        ] {
            for dir in enters {
                assert!(filter(rules).enters(Path::new(dir)), "{rules:?} is to enter {dir}");
            }
            for dir in stays_out {
                assert!(!filter(rules).enters(Path::new(dir)), "{rules:?} is to stay out of {dir}");
            }
        }
    }
}
