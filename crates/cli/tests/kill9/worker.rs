//! A connection that several actors share, over the lives of many servers.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use remora_lab::raw::{self, Stream};
use remora_wire::nfs3::{Call, CreateArgs, CreateHow, DirOp, Fh, MkDirArgs, Reply, SetAttr};

use crate::actor::{ATTR, Actor, DATA};

/// No reply takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Worker {
    actors: Vec<Actor>,
    next_xid: u32,
}

impl Worker {
    /// Actors in directories of their own under `srv`, which `addr` serves as its root.
    pub(crate) fn new(number: u32, actors: u32, seed: u64, srv: &Path, addr: SocketAddr) -> Worker {
        let mut stream = Stream::connect(addr, PATIENCE).unwrap();
        let root = stream.mount("/").unwrap();
        let actor = |n: u32| {
            let number = number * actors + n;
            let name = format!("a{number}");
            let at = |dir: &Fh, name: &str| DirOp { dir: dir.clone(), name: name.to_owned().into() };
            let attr = |mode| SetAttr { mode: Some(mode), ..SetAttr::NONE };
            let dir = made(&mut stream, &Call::MkDir(MkDirArgs { at: at(&root, &name), attr: attr(0o755) }));
            let [data, attr] = [DATA, ATTR].map(|name| {
                let how = CreateHow::Guarded(attr(0o644));
                made(&mut stream, &Call::Create(CreateArgs { at: at(&dir, name), how }))
            });
            Actor::new(number.into(), seed, srv.join(name), [dir, data, attr])
        };
        Worker { actors: (0..actors).map(actor).collect(), next_xid: number << 24 }
    }

    pub(crate) fn actors(&self) -> &[Actor] {
        &self.actors
    }

    /// Works until the server dies. First repeats the requests in flight at the last death, with the same xids.
    pub(crate) fn run(&mut self, addr: SocketAddr) -> Result<(), String> {
        let Ok(mut stream) = Stream::connect(addr, PATIENCE) else { return Ok(()) };
        let again: Vec<Bytes> = self.actors.iter_mut().filter_map(Actor::restarted).collect();
        // A server that dies is noticed by the reader.
        again.iter().for_each(|message| drop(stream.send(message)));
        loop {
            for actor in self.actors.iter_mut().filter(|a| !a.is_waiting()) {
                self.next_xid += 1;
                let _ = stream.send(&actor.next(self.next_xid));
            }
            let Some(reply) = stream.receive().map_err(|e| format!("no reply: {e}"))? else { return Ok(()) };
            let mut taken = false;
            for actor in &mut self.actors {
                taken |= actor.answered(&reply)?;
            }
            if !taken {
                return Err(format!("a reply to nothing, xid {:x}", raw::xid(&reply)));
            }
        }
    }
}

fn made(stream: &mut Stream, call: &Call) -> Fh {
    match stream.call(call).unwrap() {
        Reply::Create(Ok(ok)) | Reply::MkDir(Ok(ok)) => ok.fh.unwrap(),
        other => panic!("{other:?}"),
    }
}
