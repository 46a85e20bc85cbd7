//! What waits to be told, in its order; but objects stand apart, so that whoever has no room for
//! them still hears the rest, the ends of its requests above all. The end of a connection stays
//! behind the objects that came over it.

use std::collections::VecDeque;

use super::event::Event;

/// Events that wait.
#[derive(Debug, Default)]
pub(super) struct Told {
    next: u64,
    objects: VecDeque<(u64, Event)>,
    others: VecDeque<(u64, Event)>,
}

impl Told {
    pub(super) fn push_back(&mut self, event: Event) {
        let queue = match event {
            Event::Received { .. } | Event::Down { .. } => &mut self.objects,
            _ => &mut self.others,
        };
        queue.push_back((self.next, event));
        self.next += 1;
    }

    /// The oldest.
    pub(super) fn pop_front(&mut self) -> Option<Event> {
        let object = self.objects.front().map_or(u64::MAX, |(n, _)| *n);
        let other = self.others.front().map_or(u64::MAX, |(n, _)| *n);
        let queue = if object < other { &mut self.objects } else { &mut self.others };
        queue.pop_front().map(|(_, event)| event)
    }

    /// The oldest that waits for no object.
    pub(super) fn pop_other(&mut self) -> Option<Event> {
        self.others.pop_front().map(|(_, event)| event)
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len() + self.others.len()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::event::PeerId;
    use super::*;
    use crate::Priority;

    #[test]
    fn objects_can_be_left_waiting_and_keep_their_place() {
        let mut told = Told::default();
        let (heard, peer) = (|n| Event::Heard { peer: PeerId(n) }, PeerId(9));
        told.push_back(heard(0));
        told.push_back(Event::Received { peer, priority: Priority::LOW, object: Bytes::new() });
        told.push_back(heard(1));
        told.push_back(heard(2));
        let is_heard = |event: Option<Event>, n| matches!(event, Some(Event::Heard { peer }) if peer == PeerId(n));
        assert!(is_heard(told.pop_other(), 0) && is_heard(told.pop_other(), 1));
        assert!(matches!(told.pop_front(), Some(Event::Received { .. })));
        assert!(is_heard(told.pop_front(), 2) && told.pop_front().is_none() && told.len() == 0);
    }
}
