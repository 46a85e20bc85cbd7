//! Starts programs as process 1 of a new PID namespace each.
//!
//! All from one thread that lives as long as the emulator: what it starts asks to be killed
//! when the *thread* that started it ends (`PR_SET_PDEATHSIG`, prctl(2)).

use std::fs::File;
use std::io;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use nix::sched::{CloneFlags, setns, unshare};

/// A command to start and where the child is wanted.
type Request = (Command, Sender<io::Result<Child>>);

/// The thread; dropping it kills everything it started.
#[derive(Debug)]
pub(super) struct Spawner {
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Spawner {
    pub(super) fn start() -> io::Result<Spawner> {
        let (requests, incoming) = channel();
        let own = File::open("/proc/self/ns/pid")?;
        let thread = std::thread::Builder::new().name("spawner".into()).spawn(move || serve(&own, &incoming))?;
        Ok(Spawner { requests: Some(requests), thread: Some(thread) })
    }

    pub(super) fn spawn(&self, command: Command) -> io::Result<Child> {
        let gone = || io::Error::other("the thread that starts programs has ended");
        let (reply, answer) = channel();
        self.requests.as_ref().ok_or_else(gone)?.send((command, reply)).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(own: &File, incoming: &Receiver<Request>) {
    while let Ok((mut command, reply)) = incoming.recv() {
        let child = in_new_pid_namespace(own, || command.spawn());
        // Whoever asked is waiting.
        let _ = reply.send(child);
    }
}

/// The next child of this thread is the first of a new PID namespace; those after it not.
fn in_new_pid_namespace<T>(own: &File, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    unshare(CloneFlags::CLONE_NEWPID)?;
    let started = start();
    setns(own, CloneFlags::CLONE_NEWPID)?;
    started
}
