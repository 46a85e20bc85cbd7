//! A topology as SVG: media as bars filled by their load, attached elements below, traffic as arcs.
//!
//! The drawing has the same width for three stations and for ten thousand, and is readable on a phone.

use std::collections::BTreeMap;
use std::fmt::Write;

use remora_model::{Kind, Report, Topology};

use crate::report::number::digits;
use crate::report::number::escape;

/// Rows drawn at most; a last line counts the others.
const ROWS_MAX: usize = 200;
const ARCS_MAX: usize = 24;
const WIDTH: usize = 460;
const ROW: usize = 34;
const INDENT: usize = 20;
/// Deepest level of indentation.
const DEPTH_MAX: usize = 7;
const ARCS: usize = 350;
const BAR: usize = 22;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    Medium(usize),
    Gateway(usize),
    Group(usize),
}

struct Row {
    node: Node,
    depth: usize,
    parent: Option<usize>,
}

/// The topology as SVG, with the loads of its report.
pub fn diagram(topology: &Topology, report: &Report) -> String {
    let rows = rows(topology);
    let shown = rows.len().min(ROWS_MAX);
    let more = rows.len() - shown;
    let height = (shown + usize::from(more > 0)) * ROW + 8;
    let mut svg = format!(
        "<svg class=\"topology\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"topology\" \
         font-family=\"sans-serif\" font-size=\"14\" fill=\"currentColor\">"
    );
    for (i, row) in rows.iter().take(shown).enumerate() {
        svg += &branch(row, i);
        svg += &match row.node {
            Node::Medium(m) => medium(topology, report, m, row.depth, i),
            Node::Gateway(g) => gateway(topology, report, g, row.depth, i),
            Node::Group(g) => group(topology, g, row.depth, i),
        };
    }
    svg += &arcs(topology, &rows[..shown]);
    if more > 0 {
        let _ = write!(svg, "<text x=\"8\" y=\"{}\">and {more} more</text>", middle(shown) + 5);
    }
    svg + "</svg>"
}

/// Every node once, each below its parent.
fn rows(topology: &Topology) -> Vec<Row> {
    let media: BTreeMap<&str, usize> = topology.media.iter().enumerate().map(|(i, m)| (m.name.as_str(), i)).collect();
    let (mut groups, mut gateways) = (vec![Vec::new(); topology.media.len()], vec![Vec::new(); topology.media.len()]);
    for (i, group) in topology.groups.iter().enumerate() {
        if let Some(m) = media.get(group.medium.as_str()) {
            groups[*m].push(i);
        }
    }
    for (i, gateway) in topology.gateways.iter().enumerate() {
        for m in gateway.joins.iter().filter_map(|name| media.get(name.as_str())) {
            gateways[*m].push(i);
        }
    }
    let (mut seen_media, mut seen_gateways) = (vec![false; topology.media.len()], vec![false; topology.gateways.len()]);
    let mut rows: Vec<Row> = Vec::new();
    // A stack: the last node pushed is drawn first.
    let mut waiting: Vec<Row> =
        (0..topology.media.len()).rev().map(|m| Row { node: Node::Medium(m), depth: 0, parent: None }).collect();
    while let Some(row) = waiting.pop() {
        let (at, depth) = (rows.len(), row.depth + 1);
        let below = |node| Row { node, depth, parent: Some(at) };
        match row.node {
            Node::Medium(m) if std::mem::replace(&mut seen_media[m], true) => continue,
            Node::Gateway(g) if std::mem::replace(&mut seen_gateways[g], true) => continue,
            Node::Medium(m) => {
                let open = gateways[m].iter().rev().filter(|g| !seen_gateways[**g]);
                waiting.extend(open.map(|g| below(Node::Gateway(*g))));
                waiting.extend(groups[m].iter().rev().map(|g| below(Node::Group(*g))));
            }
            Node::Gateway(g) => {
                let joined = topology.gateways[g].joins.iter().rev().filter_map(|name| media.get(name.as_str()));
                waiting.extend(joined.filter(|m| !seen_media[**m]).map(|m| below(Node::Medium(*m))));
            }
            Node::Group(_) => {}
        }
        rows.push(row);
    }
    rows
}

fn left(depth: usize) -> usize {
    8 + INDENT * depth.min(DEPTH_MAX)
}

fn middle(row: usize) -> usize {
    4 + row * ROW + ROW / 2
}

/// The line from a node to its parent.
fn branch(row: &Row, at: usize) -> String {
    let Some(parent) = row.parent else { return String::new() };
    let (x, from, to) = (left(row.depth.saturating_sub(1)) + 8, middle(parent) + BAR / 2, middle(at));
    let end = left(row.depth);
    format!("<path d=\"M{x} {from}V{to}H{end}\" fill=\"none\" stroke=\"currentColor\" stroke-opacity=\"0.4\"/>")
}

/// A name and a remark, cut to the available width.
fn label(name: &str, about: &str, depth: usize, row: usize) -> String {
    let x = left(depth) + 24;
    let room = (ARCS - x) / 7;
    let name = cut(name, room.saturating_sub(about.chars().count() + 1).max(6));
    let y = middle(row) + 5;
    format!("<text x=\"{x}\" y=\"{y}\">{} <tspan fill-opacity=\"0.65\">{}</tspan></text>", escape(&name), escape(about))
}

fn cut(name: &str, room: usize) -> String {
    if name.chars().count() <= room {
        return name.to_owned();
    }
    name.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

fn medium(topology: &Topology, report: &Report, m: usize, depth: usize, row: usize) -> String {
    let medium = &topology.media[m];
    let about = report.media.get(m);
    let (load, over) = about.map_or((0.0, false), |r| (r.load, r.busy.is_none()));
    let (x, y) = (left(depth), middle(row) - BAR / 2);
    let width = ARCS - 10 - x;
    let filled = (width as f64 * load.clamp(0.0, 1.0)).round();
    let colour = if over || load > 0.8 {
        "#d55e00"
    } else if load > 0.5 {
        "#e69f00"
    } else {
        "#009e73"
    };
    let kind = match medium.kind {
        Kind::Ethernet { .. } => "Ethernet",
        Kind::Ring { .. } => "ring",
        Kind::Switch { .. } => "switch",
        Kind::Wifi { .. } => "wifi",
    };
    let words = format!("{kind} {}, {} %", medium.rate, digits(load * 100.0));
    format!(
        "<g><title>{name}: {kind}, load {load} %{over}</title>\
         <rect x=\"{x}\" y=\"{y}\" width=\"{filled}\" height=\"{BAR}\" rx=\"4\" fill=\"{colour}\" fill-opacity=\"0.45\"/>\
         <rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{BAR}\" rx=\"4\" fill=\"none\" \
         stroke=\"currentColor\"/>{label}</g>",
        name = escape(&medium.name),
        load = digits(load * 100.0),
        over = if over { ", more than it can carry" } else { "" },
        // A bar has no symbol on its left.
        label = label(&medium.name, &words, depth, row).replacen(
            &format!("x=\"{}\"", x + 24),
            &format!("x=\"{}\"", x + 8),
            1
        ),
    )
}

fn gateway(topology: &Topology, report: &Report, g: usize, depth: usize, row: usize) -> String {
    let busy = report.gateways.get(g).map_or(0.0, |r| r.utilisation);
    let (x, y) = (left(depth) + 9, middle(row));
    format!(
        "<path d=\"M{} {y}L{x} {}L{} {y}L{x} {}Z\" fill=\"#56b4e9\"/>{}",
        x - 9,
        y - 9,
        x + 9,
        y + 9,
        label(&topology.gateways[g].name, &format!("{} % busy", digits(busy * 100.0)), depth, row)
    )
}

fn group(topology: &Topology, g: usize, depth: usize, row: usize) -> String {
    let group = &topology.groups[g];
    let (x, y) = (left(depth), middle(row) - 7);
    let about = if group.stations == 1 { String::new() } else { format!("× {}", group.stations) };
    format!(
        "<rect x=\"{x}\" y=\"{y}\" width=\"18\" height=\"12\" rx=\"2\" fill-opacity=\"0.55\"/>\
         <rect x=\"{}\" y=\"{}\" width=\"8\" height=\"3\" fill-opacity=\"0.55\"/>{}",
        x + 5,
        y + 13,
        label(&group.name, &about, depth, row)
    )
}

/// Arcs between groups: copies thick, flows thin.
fn arcs(topology: &Topology, rows: &[Row]) -> String {
    let place: BTreeMap<&str, usize> = rows
        .iter()
        .enumerate()
        .filter_map(|(i, row)| match row.node {
            Node::Group(g) => Some((topology.groups[g].name.as_str(), i)),
            _ => None,
        })
        .collect();
    let copies = topology.copies.iter().map(|c| (&c.from, &c.to, "copy", "#d55e00", 3));
    let flows = topology.flows.iter().filter(|f| f.rate.get() > 0.0).map(|f| (&f.from, &f.to, "flow", "#56b4e9", 1));
    let mut svg = String::new();
    for (lane, (from, to, what, colour, width)) in copies.chain(flows).take(ARCS_MAX).enumerate() {
        let (Some(a), Some(b)) = (place.get(from.as_str()), place.get(to.as_str())) else { continue };
        let reach = ARCS + 30 + (lane * 17) % (WIDTH - ARCS - 30);
        // Incoming lines end below outgoing ones.
        let (start, end) = (middle(*a) - 4, middle(*b) + 4);
        let _ = write!(
            svg,
            "<g><title>{what} {} to {}</title>\
             <path d=\"M{ARCS} {start}C{reach} {start} {reach} {end} {ARCS} {end}\" fill=\"none\" stroke=\"{colour}\" \
             stroke-width=\"{width}\"/><path d=\"M{} {end}l9 -5v10Z\" fill=\"{colour}\"/></g>",
            escape(from),
            escape(to),
            ARCS - 4
        );
    }
    svg
}

#[cfg(test)]
mod tests {
    use remora_model::{Group, Network, Seconds};

    use super::*;
    use crate::model::examples;

    fn drawn(topology: &Topology) -> String {
        diagram(topology, &Network::new(topology.clone()).unwrap().solve())
    }

    #[test]
    fn diagram_has_each_element_once_escaped() {
        let svg = drawn(&examples::office());
        for name in ["floor", "backbone", "hall", "machines", "desks", "servers", "robots", "controllers", "router"] {
            assert!(svg.contains(&format!(">{name} ")), "{name}: {svg}");
        }
        assert_eq!(svg.matches("access &lt;p").count(), 1, "{svg}");
        assert_eq!(svg.matches("<title>copy").count(), 1);
        assert_eq!(svg.matches("<title>flow").count(), 4);
    }

    #[test]
    fn diagram_of_many_groups_counts_the_rest() {
        let mut topology = examples::copy89(10.0);
        let group =
            |i| Group { name: format!("g{i}"), medium: "Local_Ethernet".into(), stations: 1, cost: Seconds::ZERO };
        topology.groups.extend((0..9000).map(group));
        let svg = drawn(&topology);
        assert!(svg.contains("and 8804 more") && svg.len() < 200_000, "{}", svg.len());
    }

    #[test]
    fn long_name_is_cut() {
        assert_eq!(cut("a name", 6), "a name");
        assert_eq!(cut("a longer name", 6), "a lon…");
    }
}
