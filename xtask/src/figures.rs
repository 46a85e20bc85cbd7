//! `cargo xtask figures`: runs commands that documents name, and compares what they print with the documents' figures.
//!
//! `docs/figures.toml` lists the figures. A command runs whole, or in a short form; then a figure has a tolerance.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::Value;

use crate::cmd::{self, Build, Result};

const MANIFEST: &str = "docs/figures.toml";

/// The list of figures.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    command: Vec<Listed>,
}

/// A command, and figures that it prints.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    /// The command as the documents name it, without its program.
    named: String,
    /// The arguments that are run. They make it print JSON.
    run: Vec<String>,
    /// It takes minutes in the tests' build, which leaves it out.
    #[serde(default)]
    is_slow: bool,
    figure: Vec<Figure>,
}

/// Figures in a piece of a document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    /// Path of the document from the root.
    doc: String,
    /// A piece of its text.
    quote: String,
    value: Vec<Quoted>,
}

/// A number in a quotation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Quoted {
    /// The number as the quotation has it.
    text: String,
    /// Where the command prints it; see [`select`].
    at: String,
    /// Factor from the printed number to the quoted one, as 100 for percent.
    #[serde(default = "one")]
    scale: f64,
    /// Largest relative difference. Default: half a unit of the last digit.
    within: Option<f64>,
}

fn one() -> f64 {
    1.0
}

/// Runs the commands whose names contain `filter`, and compares.
pub(crate) fn run(filter: Option<&str>, build: Build) -> Result {
    let text = std::fs::read_to_string(cmd::root().join(MANIFEST)).map_err(|e| format!("{MANIFEST}: {e}"))?;
    let manifest: Manifest = toml::from_str(&text).map_err(|e| format!("{MANIFEST}: {e}"))?;
    let listed = manifest.command.iter().filter(|listed| filter.is_none_or(|filter| listed.named.contains(filter)));
    let listed: Vec<&Listed> = listed.collect();
    if listed.is_empty() {
        return Err(format!("{MANIFEST} has no such command").into());
    }
    let program = cmd::built("remora", build)?;
    let mut wrong = Vec::new();
    let mut figures = 0;
    for listed in listed {
        if listed.is_slow && matches!(build, Build::Debug) {
            println!("left out, for it is slow in this build: remora {}", listed.named);
            continue;
        }
        println!("remora {}", listed.run.join(" "));
        let printed = printed(&program, &listed.run)?;
        for figure in &listed.figure {
            let doc =
                std::fs::read_to_string(cmd::root().join(&figure.doc)).map_err(|e| format!("{}: {e}", figure.doc))?;
            figures += figure.value.len();
            wrong.extend(differences(&listed.named, figure, &doc, &printed));
        }
    }
    if wrong.is_empty() {
        println!("{figures} figures are as printed");
        return Ok(());
    }
    wrong.iter().for_each(|why| println!("{why}"));
    Err(format!("{} differences", wrong.len()).into())
}

/// What the command prints.
fn printed(program: &Path, args: &[String]) -> Result<Value> {
    let mut command = Command::new(program);
    command.args(args).current_dir(cmd::root()).stdin(Stdio::null()).stderr(Stdio::inherit());
    let out = command.output().map_err(|e| format!("cannot start {}: {e}", cmd::name(&command)))?;
    if !out.status.success() {
        return Err(format!("{} failed ({})", cmd::name(&command), out.status).into());
    }
    serde_json::from_slice(&out.stdout).map_err(|e| format!("{} prints no JSON: {e}", cmd::name(&command)).into())
}

/// Differences between the document and the command's output.
fn differences(named: &str, figure: &Figure, doc: &str, printed: &Value) -> Vec<String> {
    let Figure { doc: path, quote, value } = figure;
    // Prose is wrapped.
    let unwrapped = doc.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut wrong: Vec<String> = [(named, "does not name the command"), (quote.as_str(), "does not say")]
        .into_iter()
        .filter(|(text, _)| !unwrapped.contains(*text))
        .map(|(text, what)| format!("{path} {what}: {text}"))
        .collect();
    for Quoted { text, at, scale, within } in value {
        let Some(number) = number(text).filter(|_| quote.contains(text.as_str())) else {
            wrong.push(format!("{path}: not a number of the quotation: {text}"));
            continue;
        };
        let Some(found) = select(printed, at).and_then(Value::as_f64).map(|found| found * scale) else {
            wrong.push(format!("{path}: {named} prints no number at {at}"));
            continue;
        };
        let allowed = within.map_or_else(|| half_a_unit(text), |within| within * number.abs());
        if (found - number).abs() > allowed * 1.000_001 {
            wrong.push(format!("{path}: {text} in \"{quote}\", but {named} prints {found}"));
        }
    }
    wrong
}

/// A number with commas between thousands.
fn number(text: &str) -> Option<f64> {
    text.replace(',', "").parse().ok()
}

/// Half a unit of a number's last digit.
fn half_a_unit(text: &str) -> f64 {
    let digits = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    0.5 * 10f64.powi(-i32::try_from(digits).unwrap_or(0))
}

/// The value at a path of segments between slashes: a key, an index, or `{key=value, other.key=value}` for the first
/// element of an array in which these keys have these values.
fn select<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('/').try_fold(value, |value, segment| {
        match segment.strip_prefix('{').and_then(|s| s.strip_suffix('}')) {
            Some(wanted) => value.as_array()?.iter().find(|element| wanted.split(", ").all(|pair| has(element, pair))),
            None => match value {
                Value::Array(elements) => elements.get(segment.parse::<usize>().ok()?),
                value => value.get(segment),
            },
        }
    })
}

/// Whether a key has a text as its value: `key=value`.
fn has(element: &Value, pair: &str) -> bool {
    let Some((keys, wanted)) = pair.split_once('=') else { return false };
    let found = keys.split('.').try_fold(element, |value, key| value.get(key));
    found.and_then(Value::as_str) == Some(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn figure(quote: &str, text: &str, at: &str, within: Option<f64>) -> Figure {
        let value = vec![Quoted { text: text.into(), at: at.into(), scale: 1.0, within }];
        Figure { doc: "page.md".into(), quote: quote.into(), value }
    }

    #[test]
    fn select_finds_elements_by_keys_and_indices() {
        let value = json!({ "cells": [{ "labels": { "bad mean": "0 ms" }, "n": [1] }, { "labels": { "bad mean": "5 s" }, "n": [7, 8] }] });
        assert_eq!(select(&value, "cells/{labels.bad mean=5 s}/n/1"), Some(&json!(8)));
        assert_eq!(select(&value, "cells/0/n/0"), Some(&json!(1)));
        for missing in ["cells/2", "cells/{labels.bad mean=1 s}/n", "other", "cells/{n}"] {
            assert_eq!(select(&value, missing), None, "{missing}");
        }
    }

    #[test]
    fn differences_are_those_beyond_the_tolerance() {
        let printed = json!({ "a": 1.234, "b": 1150 });
        let doc = "By `lab x` it is 1.23, and\n1,150 bytes.";
        let cases = [
            (figure("it is 1.23, and 1,150", "1.23", "a", None), 0),
            (figure("and 1,150 bytes", "1,150", "b", None), 0),
            (figure("it is 1.23", "1.23", "b", None), 1),
            (figure("it is 1.23", "1.23", "c", None), 1),
            (figure("it is 1.24", "1.24", "a", None), 2),
            (figure("it is 1.24", "1.24", "a", Some(0.01)), 1),
            (figure("it is 1.23", "1.22", "a", Some(0.1)), 1),
        ];
        for (figure, expected) in cases {
            let wrong = differences("lab x", &figure, doc, &printed);
            assert_eq!(wrong.len(), expected, "{wrong:?}");
        }
        assert_eq!(differences("lab y", &figure("it is 1.23", "1.23", "a", None), doc, &printed).len(), 1);
    }
}
