//! Parser of exports(5) files of Linux's nfs-utils. No crate exists for the format.
//!
//! Options that are contradictory, or that the server does not support, are errors; `docs/reference/exports.md` lists all
//! options.

mod options;
mod words;

use std::collections::HashMap;

use remora_server::{Access, Rule};

use super::clients::{self, Named};
use super::types::{Entry, Parsed, Resolve, Wrong};
use options::Options;
use words::Word;

/// Parses a file. Lines with the same path make one export.
pub(super) fn parse(text: &str, resolve: Resolve<'_>) -> Result<Parsed, Wrong> {
    let mut paths: Vec<(Word, Vec<Rule>)> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut notes = Vec::new();
    for line in words::lines(text)? {
        let Some((path, clients)) = line.split_first() else { continue };
        let rules = rules(path, clients, &mut notes, resolve)?;
        let at = *known.entry(path.text.clone()).or_insert(paths.len());
        match paths.get_mut(at) {
            Some((_, known)) => known.extend(rules),
            None => paths.push((path.clone(), rules)),
        }
    }
    let entry = |(path, rules): (Word, Vec<Rule>)| {
        let access = Access::new(rules).map_err(|e| path.wrong(format!("'{}': {e}", path.text)))?;
        Ok(Entry { line: path.line, names: Some(vec![path.text.clone()]), path: path.text, access })
    };
    let entries = paths.into_iter().map(entry).collect::<Result<_, Wrong>>()?;
    Ok(Parsed { entries, notes })
}

/// The rules from the words behind a path.
fn rules(
    path: &Word,
    words: &[Word],
    notes: &mut Vec<(usize, String)>,
    resolve: Resolve<'_>,
) -> Result<Vec<Rule>, Wrong> {
    if !path.text.starts_with('/') {
        return Err(path.wrong(format!("'{}' is not a path: it must begin with '/'", path.text)));
    }
    let mut defaults = Options::default();
    let mut rules = Vec::new();
    for word in words {
        let mut note = |text: String| notes.push((word.line, text));
        if let Some(list) = word.text.strip_prefix('-') {
            defaults = defaults.with(list, &mut note).map_err(|why| word.wrong(why))?;
            continue;
        }
        let (named, list) = client(word)?;
        let terms = defaults.with(list, &mut note).map_err(|why| word.wrong(why))?.terms();
        let clients = named.clients(resolve).map_err(|why| word.wrong(why))?;
        rules.extend(clients.into_iter().map(|clients| Rule { clients, terms }));
    }
    if rules.is_empty() {
        return Err(path.wrong(format!("'{}' has no clients: write * for everybody", path.text)));
    }
    Ok(rules)
}

/// Parses `CLIENT` or `CLIENT(OPTIONS)`.
fn client(word: &Word) -> Result<(Named, &str), Wrong> {
    let (name, list) = match word.text.split_once('(') {
        Some((name, list)) => {
            let list = list.strip_suffix(')').filter(|list| !list.contains(['(', ')']));
            let unclosed = || word.wrong(format!("'{}': expected CLIENT(OPTION,...) without blanks", word.text));
            (name, list.ok_or_else(unclosed)?)
        }
        None => (word.text.as_str(), ""),
    };
    if name.is_empty() {
        let why = format!("'{}' names no clients: no blank may stand before '(', and everybody is *", word.text);
        return Err(word.wrong(why));
    }
    Ok((clients::read(name).map_err(|why| word.wrong(why))?, list))
}

#[cfg(test)]
mod tests;
