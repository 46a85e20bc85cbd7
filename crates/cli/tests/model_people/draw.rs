//! Networks that nobody chose: what stands in them from one seed, their numbers from another one.

use std::fmt::Write;

use remora_base::Rng;

/// A network's file. The same `structure` has the same media, groups, gateways, flows and copies, whatever
/// their numbers are.
pub(crate) fn network(structure: u64, numbers: u64) -> String {
    let mut which = Rng::stream(structure, "structure");
    let mut draw = Numbers(Rng::stream(numbers, "numbers"));
    let mut text = String::new();
    let media = 1 + which.below(3);
    let mut shared = false;
    for i in 0..media {
        let kind = which.below(6);
        shared |= kind == 0;
        medium(&mut text, i, kind, &mut draw);
    }
    for group in 0..2 * media {
        let (medium, stations, cost) = (group / 2, draw.of(2, 12), draw.of(0, 80));
        let _ = write!(text, "[[group]]\nname = \"g{group}\"\nmedium = \"m{medium}\"\n");
        let _ = write!(text, "stations = {stations}\ncost = \"{cost}us\"\n");
    }
    for i in 1..media {
        let law = if which.chance(0.5) { "constant" } else { "exponential" };
        let (before, cost) = (i - 1, draw.of(10, 150));
        let _ = write!(text, "[[gateway]]\nname = \"r{i}\"\njoins = [\"m{before}\", \"m{i}\"]\n");
        let _ = write!(text, "cost = \"{cost}us\"\nlaw = \"{law}\"\n");
    }
    for _ in 0..2 + which.below(3) {
        let from = which.below(2 * media);
        let to = (from + which.below(2 * media)) % (2 * media);
        let (rate, size) = (draw.of(1, 40), draw.of(100, 1500));
        let _ = write!(text, "[[flow]]\nfrom = \"g{from}\"\nto = \"g{to}\"\nrate = {rate}\n");
        let variation = draw.of(0, 150) as f64 / 100.0;
        let _ = write!(text, "size = \"{size}B\"\nvariation = {variation:?}\n");
    }
    // A copy over a shared Ethernet is many cells; the examples have it.
    if !shared && which.chance(0.6) {
        copy(&mut text, 2 * media - 1, &mut draw);
    }
    text
}

fn medium(text: &mut String, i: u64, kind: u64, draw: &mut Numbers) {
    let (name, rate) = (["ethernet", "ring", "ring", "ring", "switch", "wifi"][kind as usize], draw.of(8_000, 40_000));
    let _ = write!(text, "[[medium]]\nname = \"m{i}\"\ntype = \"{name}\"\nrate = \"{rate}kbit\"\n");
    let (first, second, third) = (draw.of(1, 20), draw.of(500, 3000), draw.of(0, 90));
    let _ = match kind {
        0 => writeln!(text, "propagation = \"{first}us\""),
        1 => writeln!(text, "walk = \"{first}us\""),
        2 => writeln!(text, "walk = \"{first}us\"\ndiscipline = \"gated\""),
        3 => writeln!(text, "walk = \"{first}us\"\ndiscipline = \"one-limited\""),
        4 => writeln!(text, "latency = \"{first}us\""),
        _ => writeln!(text, "overhead = \"{first}0us\"\ngood = \"{second}ms\"\nbad = \"{third}ms\""),
    };
}

fn copy(text: &mut String, last: u64, draw: &mut Numbers) {
    let _ = write!(text, "[[copy]]\nfrom = \"g0\"\nto = \"g{last}\"\n");
    let (file, block, window) = (draw.of(1, 50), draw.of(4_000, 10_000), draw.of(1, 20));
    let _ = write!(text, "file = \"{file}M\"\nblock = \"{block}B\"\nwindow = {window}\n");
    let (packets, packet, reply) = (draw.of(1, 8), draw.of(400, 1500), draw.of(64, 200));
    let _ = write!(text, "packets = {packets}\npacket = \"{packet}B\"\nreply = \"{reply}B\"\n");
    let (software, disk, think) = (draw.of(0, 2000), draw.of(0, 3000), draw.of(0, 500));
    let _ = write!(text, "software = \"{software}us\"\ndisk = \"{disk}us\"\nthink = \"{think}us\"\n");
}

/// Where numbers come from.
struct Numbers(Rng);

impl Numbers {
    /// A whole number from `low` to `high`.
    fn of(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.below(high - low + 1)
    }
}
