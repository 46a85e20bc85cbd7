//! Parser of exports files in TOML: `[[export]]` tables. Unknown keys are errors with their line.

use std::fmt;
use std::ops::Range;

use remora_server::{Access, Rule, Terms};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use toml::Spanned;

use super::clients::{self, Named};
use super::types::{Entry, Parsed, Resolve, Wrong, line_at};

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    export: Vec<Spanned<Export>>,
}

/// A table with the keys of [`Terms`] in addition to its own. (Serde's `flatten` does not work with
/// `deny_unknown_fields`.)
macro_rules! table {
    ($(#[$doc:meta])* struct $name:ident { $($key:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name {
            $($key: $type,)*
            read_only: Option<bool>,
            squash: Option<Squash>,
            anon_uid: Option<Id>,
            anon_gid: Option<Id>,
            secure: Option<bool>,
            acl: Option<bool>,
        }

        impl $name {
            /// The table's terms, with `defaults` for missing keys.
            fn terms(&self, defaults: Terms) -> Terms {
                Terms {
                    read_only: self.read_only.unwrap_or(defaults.read_only),
                    squash: self.squash.map_or(defaults.squash, Squash::to_core),
                    anon_uid: self.anon_uid.map_or(defaults.anon_uid, |id| id.0),
                    anon_gid: self.anon_gid.map_or(defaults.anon_gid, |id| id.0),
                    secure: self.secure.unwrap_or(defaults.secure),
                    acl: self.acl.unwrap_or(defaults.acl),
                }
            }
        }
    };
}

table! {
    struct Export {
        path: String,
        names: Option<Vec<String>>,
        clients: Option<Vec<Spanned<ClientValue>>>,
    }
}

table! {
    /// A client with its own terms.
    struct ClientTable {
        client: Client,
    }
}

/// A client as a string or as a table.
enum ClientValue {
    Text(Client),
    Table(ClientTable),
}

/// A client specification as a string.
struct Client(Named);

/// Which callers become anonymous.
#[derive(Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Squash {
    Root,
    All,
    None,
}

impl Squash {
    fn to_core(self) -> remora_server::Squash {
        match self {
            Squash::Root => remora_server::Squash::Root,
            Squash::All => remora_server::Squash::All,
            Squash::None => remora_server::Squash::None,
        }
    }
}

/// The anonymous user or group ID.
#[derive(Clone, Copy)]
struct Id(u32);

pub(super) fn parse(text: &str, resolve: Resolve<'_>) -> Result<Parsed, Wrong> {
    let file: File = toml::from_str(text).map_err(|e| wrong(text, e.span(), e.message()))?;
    let mut notes = Vec::new();
    let mut entries = Vec::with_capacity(file.export.len());
    let (mut line, mut counted) = (1, 0);
    for table in file.export {
        // Counts lines from table to table: counting from the start each time is slow for many tables.
        let start = table.span().start;
        line += text.get(counted..start).map_or(0, |between| between.matches('\n').count());
        counted = start;
        let for_all = table.get_ref().clients.is_none();
        let entry = entry(text, table.into_inner(), line, resolve)?;
        if for_all {
            notes.push((entry.line, format!("'{}' has no clients: whoever reaches the server may use it", entry.path)));
        }
        entries.push(entry);
    }
    Ok(Parsed { entries, notes })
}

fn entry(text: &str, export: Export, line: usize, resolve: Resolve<'_>) -> Result<Entry, Wrong> {
    let terms = export.terms(Terms::default());
    let access = match &export.clients {
        None => Ok(Access::everybody(terms)),
        Some(clients) => {
            let rules = |client: &Spanned<ClientValue>| {
                let rules = client.get_ref().rules(terms, resolve);
                rules.map_err(|why| self::wrong(text, Some(client.span()), &why))
            };
            Access::new(clients.iter().map(rules).collect::<Result<Vec<_>, Wrong>>()?.concat())
        }
    };
    let wrong = |why: String| Wrong::at(line, format!("'{}': {why}", export.path));
    let access = access.map_err(|e| wrong(e.to_string()))?;
    if export.names.as_ref().is_some_and(Vec::is_empty) {
        return Err(wrong("it has no names, so nobody could mount it".into()));
    }
    Ok(Entry { line, path: export.path, names: export.names, access })
}

impl ClientValue {
    fn rules(&self, defaults: Terms, resolve: Resolve<'_>) -> Result<Vec<Rule>, String> {
        let (Client(named), terms) = match self {
            ClientValue::Text(client) => (client, defaults),
            ClientValue::Table(table) => (&table.client, table.terms(defaults)),
        };
        Ok(named.clients(resolve)?.into_iter().map(|clients| Rule { clients, terms }).collect())
    }
}

impl<'de> Deserialize<'de> for ClientValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ClientValue, D::Error> {
        struct TextOrTable;

        // Written by hand, because an untagged enum's error names neither the cause nor the place.
        impl<'de> Visitor<'de> for TextOrTable {
            type Value = ClientValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a client, as in \"10.0.0.0/8\" or { client = \"10.0.0.0/8\", read_only = true }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ClientValue, E> {
                clients::read(text).map(|named| ClientValue::Text(Client(named))).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ClientValue, A::Error> {
                ClientTable::deserialize(MapAccessDeserializer::new(map)).map(ClientValue::Table)
            }
        }

        deserializer.deserialize_any(TextOrTable)
    }
}

impl<'de> Deserialize<'de> for Client {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Client, D::Error> {
        let text = String::deserialize(deserializer)?;
        clients::read(&text).map(Client).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Id, D::Error> {
        let id = u32::deserialize(deserializer)?;
        // The largest ID is reserved: in the kernel it means "no change".
        if id == u32::MAX { Err(de::Error::custom("no user or group has this number")) } else { Ok(Id(id)) }
    }
}

/// An error with its line, the key and what was expected.
fn wrong(text: &str, span: Option<Range<usize>>, message: &str) -> Wrong {
    let (number, line) = line_at(text, span.map_or(text.len(), |s| s.start));
    let message = message.trim().replace('\n', ": ");
    if line.is_empty() { Wrong::at(number, message) } else { Wrong::at(number, format!("{line}: {message}")) }
}

#[cfg(test)]
mod tests;
