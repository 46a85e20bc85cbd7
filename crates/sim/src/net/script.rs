use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use remora_wire::nfs3::Proc;

use crate::describe;

/// The treatment of one transmission of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Procedure of the call.
    pub proc: Proc,
    /// Number among the client's transmissions of the procedure, from 0.
    pub nth: u32,
    pub action: RuleAction,
}

/// The action of a [`Rule`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleAction {
    /// The message is lost.
    Drop,
    /// The message arrives after this delay.
    Delay(Duration),
}

/// The rules of one link, and the transmissions seen by procedure.
#[derive(Clone, Default, Debug)]
pub struct Script {
    rules: Vec<Rule>,
    seen: BTreeMap<Proc, u32>,
}

impl Script {
    pub(super) fn new(rules: Vec<Rule>) -> Script {
        Script { rules, seen: BTreeMap::new() }
    }

    /// The action for this call, which counts as seen.
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
