//! What `--example` prints: a file with all keys, or a network of 10,000 stations.

use std::fmt::Write;

use crate::commands::model::flags::Example;

/// A file with all keys.
pub(crate) const OFFICE: &str = include_str!("../../../../../docs/examples/office.toml");

/// Shared Ethernets of the campus.
const LANS: u32 = 200;

pub(crate) fn text(example: Example) -> String {
    match example {
        Example::Office => OFFICE.to_owned(),
        Example::Campus => campus(),
    }
}

fn campus() -> String {
    let mut text = String::from(CAMPUS_CENTRE);
    for lan in 1..=LANS {
        // To write to a string cannot fail.
        let _ = write!(
            text,
            "\n[[medium]]\nname = \"lan {lan}\"\ntype = \"ethernet\"\nrate = \"10Mbit\"\n\
             \n[[group]]\nname = \"desks {lan}\"\nmedium = \"lan {lan}\"\nstations = 50\n\
             \n[[gateway]]\nname = \"router {lan}\"\njoins = [\"backbone\", \"lan {lan}\"]\ncost = \"50us\"\n\
             \n[[flow]]\nfrom = \"desks {lan}\"\nto = \"servers\"\nrate = 2\nsize = \"300B\"\n\
             \n[[flow]]\nfrom = \"servers\"\nto = \"desks {lan}\"\nrate = 5\nsize = \"1000B\"\n"
        );
    }
    text
}

const CAMPUS_CENTRE: &str = "\
# 10,000 desks on 200 shared Ethernets, and servers on the backbone between them; two of those copy to others.

[[medium]]
name = \"backbone\"
type = \"switch\"
rate = \"1Gbit\"

[[group]]
name = \"servers\"
medium = \"backbone\"
stations = 16

[[group]]
name = \"archive\"
medium = \"backbone\"
stations = 2

[[group]]
name = \"studio\"
medium = \"backbone\"
stations = 2

[[copy]]
from = \"archive\"
to = \"studio\"
file = \"100M\"
block = \"8K\"
window = 2
packets = 6
packet = \"1420B\"
reply = \"150B\"
disk = \"2ms\"
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::model::network_file::parse;

    #[test]
    fn the_campus_has_ten_thousand_desks() {
        let (_, network) = parse(&text(Example::Campus)).unwrap();
        assert_eq!(network.stations(), 10_020);
        assert!(network.solve().copies[0].outcome.value().is_some());
    }

    /// With the defaults of all that is commented out, too, and with other windows of the copy.
    #[test]
    fn examples_are_within_the_bands_of_their_formulas() {
        for text in [OFFICE.to_owned(), text(Example::Campus), OFFICE.replace("window = 2 ", "window = 16 ")] {
            let (_, network) = parse(&text).unwrap();
            let shown = super::super::tables::text(&network.solve(), usize::MAX);
            assert!(shown.contains("by formula (within 10 %)\n") && !shown.contains('['), "{shown}");
        }
    }
}
