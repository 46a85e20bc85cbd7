//! The transport of a session's messages.

/// The transport of the messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Datagrams: lost, duplicated and reordered.
    Udp,
    /// A stream: the transport retransmits. After a reconnect every unanswered request is sent again.
    Tcp,
    /// Objects, one a message (ATP 02): the transport retransmits, delivers each object when it is complete, and says
    /// when it gives one up ([`Client::undelivered`](crate::Client::undelivered)). After a reconnect every unanswered
    /// request is sent again.
    Atp,
}

impl Transport {
    /// Whether messages arrive as long as the connection lives.
    pub fn is_reliable(self) -> bool {
        self != Transport::Udp
    }
}
