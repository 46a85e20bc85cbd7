//! Scripted treatment of chosen calls: what a test needs to make one race happen.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use remora_wire::nfs3::Proc;

use crate::describe;

/// What to do with one transmission of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Calls of this procedure,
    pub proc: Proc,
    /// the client's how manieth such message, retransmissions counted, from 0,
    pub nth: u32,
    /// are treated like this.
    pub action: RuleAction,
}

/// See [`Rule`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleAction {
    /// It is lost.
    Drop,
    /// It arrives after this long.
    Delay(Duration),
}

/// The rules of one link and how often each procedure was seen.
#[derive(Clone, Default, Debug)]
pub struct Script {
    rules: Vec<Rule>,
    seen: BTreeMap<Proc, u32>,
}

impl Script {
    pub(super) fn new(rules: Vec<Rule>) -> Script {
        Script { rules, seen: BTreeMap::new() }
    }

    /// What the rules say of this call, which counts as seen.
    pub(super) fn action(&mut self, message: &Bytes) -> Option<RuleAction> {
        if self.rules.is_empty() {
            return None;
        }
        let proc = describe::read_call(message)?.call.proc();
        let seen = self.seen.entry(proc).or_default();
        let nth = *seen;
        *seen += 1;
        self.rules.iter().find(|r| r.proc == proc && r.nth == nth).map(|r| r.action)
    }
}
