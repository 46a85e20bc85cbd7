//! A network's file with some of its numbers changed, and everything else as it was, comments too.

use remora_base::Rate;
use remora_lab::model::{Input, Unit};
use toml_edit::{DocumentMut, Item, TableLike, Value};

/// `text` with these inputs at these values; an error says what could not be changed.
pub(crate) fn changed(text: &str, inputs: &[(&Input, f64)]) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|e: toml_edit::TomlError| e.message().to_owned())?;
    for (input, value) in inputs {
        let (table, index, key) = input.place();
        let missing = || format!("{}: is not in the file", input.name);
        let table = document.get_mut(table).and_then(|item| nth(item, index)).ok_or_else(missing)?;
        put(table, key, written(input.unit(), *value));
    }
    Ok(document.to_string())
}

/// The `index`th of an array of tables, however it is written.
fn nth(item: &mut Item, index: usize) -> Option<&mut dyn TableLike> {
    match item {
        Item::ArrayOfTables(tables) => tables.get_mut(index).map(|t| t as &mut dyn TableLike),
        Item::Value(Value::Array(tables)) => {
            tables.get_mut(index)?.as_inline_table_mut().map(|t| t as &mut dyn TableLike)
        }
        _ => None,
    }
}

/// Sets a key; what stands around the value stays.
fn put(table: &mut dyn TableLike, key: &str, mut value: Value) {
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        None => _ = table.insert(key, Item::Value(value)),
    }
}

/// A value as files have it.
fn written(unit: Unit, value: f64) -> Value {
    match unit {
        // Whole numbers need no point; none of them is large.
        Unit::Number | Unit::Count if value.fract() == 0.0 && value.abs() < 1e15 => Value::from(value as i64),
        Unit::Number | Unit::Count => Value::from(value),
        Unit::Bytes => Value::from(bytes(value as u64)),
        Unit::Seconds => Value::from(time(value)),
        Unit::BitsPerSecond => Value::from(Rate::from_bits(value as u64).map_or_else(String::new, |r| r.to_string())),
    }
}

fn bytes(value: u64) -> String {
    match value {
        0 => "0".into(),
        v if v.is_multiple_of(1 << 20) => format!("{}M", v >> 20),
        v if v.is_multiple_of(1 << 10) => format!("{}K", v >> 10),
        v => format!("{v}B"),
    }
}

/// Seconds, to the nanosecond.
fn time(value: f64) -> String {
    let (scaled, digits, unit) = match value {
        v if v >= 1.0 => (v, 9, "s"),
        v if v >= 1e-3 => (v * 1e3, 6, "ms"),
        v => (v * 1e6, 3, "us"),
    };
    let text = format!("{scaled:.digits$}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use remora_lab::model::inputs;

    use super::*;
    use crate::commands::model::{example, network_file};

    #[test]
    fn values_are_written_as_people_do_and_read_as_the_same() {
        for (value, text) in [(0.0, "0us"), (5e-6, "5us"), (0.002, "2ms"), (1.5, "1.5s"), (0.0123456, "12.3456ms")] {
            assert_eq!(time(value), text);
        }
        for (value, text) in [(1420, "1420B"), (8192, "8K"), (100 << 20, "100M")] {
            assert_eq!(bytes(value), text);
            assert_eq!(crate::config::units::bytes(text), Ok(value));
        }
    }

    #[test]
    fn a_saved_file_has_the_changes_and_all_its_comments() {
        let (topology, _) = network_file::parse(example::OFFICE).unwrap();
        let all = inputs(&topology);
        let to = |name: &str, value: f64| (all.iter().find(|i| i.name == name).unwrap(), value);
        let changes = [
            to("flow.1.rate", 12.5),
            to("copy.1.window", 7.0),
            to("copy.1.disk", 0.0035),
            to("medium.floor.rate", 25e6),
            to("medium.hall.bad", 0.0405),
            to("copy.1.packet", 1000.0),
        ];
        let text = changed(example::OFFICE, &changes).unwrap();
        let (again, _) = network_file::parse(&text).unwrap_or_else(|(line, why)| panic!("{line}: {why}\n{text}"));
        for input in &all {
            let set = changes.iter().find(|(i, _)| *i == input).map(|(_, v)| *v);
            let (got, expected) = (input.get(&again).unwrap(), set.unwrap_or(input.get(&topology).unwrap()));
            assert!((got - expected).abs() < 1e-9 * expected.max(1.0), "{}: {got} {expected}", input.name);
        }
        let comments = |t: &str| t.matches('#').count();
        assert_eq!(comments(&text), comments(example::OFFICE), "{text}");
    }

    #[test]
    fn tables_in_an_array_are_changed_too() {
        let inline = "medium = [{ name = \"e\", type = \"ethernet\", rate = \"10Mbit\" }] # one\n";
        let (topology, _) = network_file::parse(inline).unwrap();
        let rate = &inputs(&topology)[0];
        let text = changed(inline, &[(rate, 2e7)]).unwrap();
        assert_eq!(text, inline.replace("10Mbit", "20Mbit"));
    }
}
