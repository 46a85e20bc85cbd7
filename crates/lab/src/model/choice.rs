//! Which numbers are looked at where a network has more of them than that: first those that the
//! results hang on, and of the rest media last, since there a network has many that are alike.

use std::collections::BTreeSet;

use remora_model::{Gateway, Topology};

use super::input::Input;
use super::study::{Output, outputs};

/// Some of a network's numbers.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// Those to look at, in the order of the file's tables.
    pub inputs: Vec<Input>,
    /// How many more there are.
    pub left_out: usize,
}

/// At most `max` of `all`.
pub fn choose(topology: &Topology, all: Vec<Input>, max: usize) -> Choice {
    let left_out = all.len().saturating_sub(max);
    if left_out == 0 {
        return Choice { inputs: all, left_out };
    }
    let near = Near::of(topology);
    let mut ranked: Vec<(usize, Input)> = all.into_iter().enumerate().collect();
    ranked.sort_by_cached_key(|(at, input)| (near.rank(topology, input), *at));
    ranked.truncate(max);
    ranked.sort_by_key(|(at, _)| *at);
    Choice { inputs: ranked.into_iter().map(|(_, input)| input).collect(), left_out }
}

/// What the results that people ask for hang on in the first place.
struct Near<'a> {
    flows: BTreeSet<usize>,
    groups: BTreeSet<&'a str>,
    media: BTreeSet<&'a str>,
}

impl<'a> Near<'a> {
    fn of(topology: &'a Topology) -> Near<'a> {
        let flows: BTreeSet<usize> = outputs(topology).iter().filter_map(Output::flow).collect();
        let ends = flows.iter().filter_map(|i| topology.flows.get(*i)).map(|f| [&f.from, &f.to]);
        let ends = ends.chain(topology.copies.iter().map(|c| [&c.from, &c.to]));
        let groups: BTreeSet<&str> = ends.flatten().map(String::as_str).collect();
        let of_these = topology.groups.iter().filter(|g| groups.contains(g.name.as_str()));
        let media = of_these.map(|g| g.medium.as_str()).collect();
        Near { flows, groups, media }
    }

    /// The lower, the sooner.
    fn rank(&self, topology: &Topology, input: &Input) -> u8 {
        let (table, i, _) = input.place();
        match table {
            "copy" => 0,
            "flow" if self.flows.contains(&i) => 1,
            "gateway" if topology.gateways.get(i).is_some_and(|g| self.joined(g)) => 2,
            "group" if topology.groups.get(i).is_some_and(|g| self.groups.contains(g.name.as_str())) => 3,
            "medium" if topology.media.get(i).is_some_and(|m| self.media.contains(m.name.as_str())) => 4,
            "flow" => 5,
            "gateway" => 6,
            "group" => 7,
            _ => 8,
        }
    }

    fn joined(&self, gateway: &Gateway) -> bool {
        gateway.joins.iter().filter(|j| self.media.contains(j.as_str())).count() > 1
    }
}

#[cfg(test)]
mod tests {
    use remora_model::{Group, Medium};

    use super::super::examples;
    use super::super::input::inputs;
    use super::*;

    /// The office with so many more groups, each on a medium of its own, which stand first in the file.
    fn large(more: usize) -> Topology {
        let mut topology = examples::office();
        for i in 0..more {
            let medium = Medium { name: format!("floor {i}"), ..topology.media[topology.media.len() - 4].clone() };
            let group = Group { name: format!("desks {i}"), medium: medium.name.clone(), ..topology.groups[0].clone() };
            topology.media.insert(0, medium);
            topology.groups.push(group);
        }
        topology
    }

    #[test]
    fn what_the_results_hang_on_is_looked_at_however_many_media_there_are() {
        let topology = large(200);
        let all = inputs(&topology);
        let count = all.len();
        let Choice { inputs: got, left_out } = choose(&topology, all.clone(), 100);
        assert_eq!((got.len(), left_out), (100, count - 100));
        let office = inputs(&examples::office());
        for input in &office {
            assert!(got.iter().any(|i| i.name == input.name), "{} is missing", input.name);
        }
        let order: Vec<usize> = got.iter().filter_map(|i| all.iter().position(|a| a == i)).collect();
        assert!(order.is_sorted(), "the order is the file's");
        assert!(got.iter().all(|i| !i.name.starts_with("medium.floor ")), "groups come before media");
    }

    #[test]
    fn nothing_is_left_out_where_there_is_room() {
        let topology = examples::office();
        let all = inputs(&topology);
        let room = all.len();
        assert_eq!(choose(&topology, all.clone(), room), Choice { inputs: all, left_out: 0 });
    }
}
