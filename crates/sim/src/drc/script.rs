//! Scripted worlds: one client, one directory, chosen calls delayed, to reproduce a paper's
//! example.

use std::collections::BTreeMap;
use std::time::Duration;

use remora_base::{Path, Time};
use remora_client::ClientConfig;
use remora_server::cache;
use remora_vfs::{Cred, Vfs};
use remora_wire::nfs3::SetAttr;

use crate::events::Packet;
use crate::events::Trace;
use crate::net::{Hop, Medium, Rule};
use crate::swarm::oracle::Op;
use crate::swarm::workload::{Actor, ActorConfig, Users, Worker};
use crate::world::ClientNode;
use crate::world::World;
use crate::world::disk::{DiskModel, Stall};
use crate::world::{Execution, ServerConfig, ServerNode};

/// The client's directory.
const HOME: &str = "home";
/// Beyond every timeout of a scripted world.
const DEADLINE: Time = Time::from_secs(120);

/// A scripted world.
#[derive(Clone, Debug)]
pub struct Script {
    pub client: ClientConfig,
    pub cache: cache::Config,
    pub slots: usize,
    /// Service time of every request.
    pub service: Duration,
    /// One-way delay of the network.
    pub delay: Duration,
    /// The client's operations, in order. LOOKUPs of missing handles are added.
    pub operations: Vec<Op>,
    /// Messages to delay or drop.
    pub messages: Vec<Rule>,
    /// Executions to delay.
    pub stalls: Vec<Stall>,
}

#[derive(Clone, Debug, Default)]
pub struct ScriptResult {
    /// Violations found by the oracle, as text.
    pub violations: Vec<String>,
    /// Messages sent and received by the client.
    pub packets: Vec<Packet>,
    /// Executions by the daemons; xids count from the client's first call, as packet numbers do.
    pub executions: Vec<Execution>,
    /// Every file of the client's directory with its final size.
    pub sizes: BTreeMap<String, u64>,
}

/// Runs a script; returns the violations.
pub fn run(script: &Script, trace: Trace) -> Vec<String> {
    play(script, trace).violations
}

/// Runs a script and returns its whole record.
pub fn play(script: &Script, trace: Trace) -> ScriptResult {
    let disk = DiskModel { cpu: script.service, ..DiskModel::instant() };
    let config = ServerConfig { cache: script.cache, slots: script.slots, disk, ..ServerConfig::default() };
    let io_max = config.limits.io_max(Path::Datagram);
    let mut server = ServerNode::new(config, 0);
    server.disk_mut().set_stalls(script.stalls.clone());
    server.log_executions();
    let fs = server.fs().clone();
    let root = Cred { uid: 0, gid: 0, gids: Vec::new() };
    let attr = SetAttr { mode: Some(0o777), ..SetAttr::NONE };
    let made = fs.mkdir(&root, &fs.root(), HOME.as_bytes(), &attr);
    let (Ok(_), Some(root)) = (made, server.root_handle()) else {
        return ScriptResult { violations: vec!["the server cannot be set up".into()], ..ScriptResult::default() };
    };
    let home = HOME.to_string();
    let actor = ActorConfig {
        home,
        root,
        fs: fs.clone(),
        think: Duration::ZERO,
        io_max,
        disk_errors: false,
        group_commit: false,
    };
    let actor = Worker::Actor(Actor::scripted(actor, script.operations.clone()));
    let users = Users::new(vec![actor], fs.clone());
    let mut world = World::new(0, server, trace);
    let mut client = ClientNode::new(script.client.clone(), 0, users);
    client.log_packets();
    world.add_client(client, Medium::Hop(Hop::clean(script.delay)));
    world.net.set_script(0, script.messages.clone());

    // Quiet, not merely done: the harmful duplicates arrive last.
    let quiet = |w: &World<Users>| w.clients[0].user().is_idle() && w.net.is_empty() && w.server.jobs() == 0;
    let ended = world.run(DEADLINE, quiet);
    let (now, tree) = (world.now(), fs.tree());
    world.tell(0, |users| users.check(now, &tree, "in the end"));
    let mut violations: Vec<String> = world.clients[0].user().violations().cloned().collect();
    match ended {
        Ok(true) => {}
        Ok(false) => violations.push("the script did not end".into()),
        Err(stuck) => violations.push(stuck.to_string()),
    }
    let packets = world.clients[0].packets().to_vec();
    let first = world.server.executions().first().map_or(0, |e| e.xid);
    let counted = |e: &Execution| Execution { xid: e.xid.wrapping_sub(first), ..*e };
    let executions = world.server.executions().iter().map(counted).collect();
    let inside = |path: &[u8]| {
        Some(String::from_utf8_lossy(path.strip_prefix(HOME.as_bytes())?.strip_prefix(b"/")?).into_owned())
    };
    let sizes = tree.iter().filter_map(|(path, node)| Some((inside(path)?, node.attr.size))).collect();
    ScriptResult { violations, packets, executions, sizes }
}
