//! What an application asks of a request under way (ATP 02's `reqctl`).

use remora_base::Time;

use super::{Object, Scheduler};
use crate::object::{Command, Gone, Outcome, Progress, RequestId, State, Upcall, Why};

impl Scheduler {
    /// Asks something of a request (the paper's `reqctl`), and tells how far it was.
    pub fn control(&mut self, now: Time, id: RequestId, command: Command) -> Result<Progress, Gone> {
        self.expire(now);
        let mut object = *self.objects.get(&id).ok_or(Gone)?;
        let before = self.progress(id).ok_or(Gone)?;
        match command {
            Command::Inspect => return Ok(before),
            Command::Cancel => {
                self.end(now, id, Outcome::Cancelled);
                return Ok(before);
            }
            Command::Suspend => object.asked = !object.finishing,
            Command::Restart => (object.asked, object.short) = (false, false),
            Command::Prioritise(priority) => object.priority = priority,
            Command::Deadline(limit) => object.deadline = limit.map(|d| now + d),
        }
        if object.short && object.deadline.is_none() {
            // Without a deadline any bandwidth will do.
            object.short = false;
            self.upcalls.push_back(Upcall::Resumed { request: id });
        }
        self.replace(id, object);
        // A deadline that has passed already is no lack of bandwidth.
        self.expire(now);
        let asks_again = matches!(command, Command::Restart | Command::Prioritise(_) | Command::Deadline(_));
        if asks_again && !object.short {
            self.reconsider(now, id);
        }
        self.refresh(now, false);
        Ok(self.progress(id).unwrap_or(before))
    }

    /// Changes a request in all tables at once.
    fn replace(&mut self, id: RequestId, object: Object) {
        let Some(old) = self.objects.insert(id, object) else { return };
        self.dequeue(id, &old);
        if let Some(at) = old.deadline {
            self.expiries.remove(&(at, id));
        }
        if let Some(at) = object.deadline {
            self.expiries.insert((at, id));
        }
        self.enqueue(id, &object);
    }

    /// How far a request is; `None` when it has ended.
    pub fn progress(&self, id: RequestId) -> Option<Progress> {
        let o = self.objects.get(&id)?;
        let state = match o {
            _ if o.finishing => State::Finishing,
            _ if o.asked => State::Suspended(Why::Asked),
            _ if self.away.contains(&o.dest) => State::Suspended(Why::Disconnected),
            _ if o.short => State::Suspended(Why::InsufficientBandwidth),
            _ if o.written == 0 => State::Waiting,
            _ => State::Sending,
        };
        let Object { size, written, acknowledged, dest, priority, deadline, .. } = *o;
        Some(Progress { size, written, acknowledged, state, dest, priority, deadline })
    }
}
