//! What the transport below asks for: block sizes, fixed retransmission timeouts, and limits on the length of datagrams.

pub(crate) mod block_size;
pub(crate) mod pmtu_blackhole;
pub(crate) mod reassembly_budget;
pub(crate) mod retry_policy;

/// What carries the messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Datagrams: messages may be lost, doubled and reordered.
    Udp,
    /// A stream: the transport below retransmits; a broken connection is made again and every
    /// unanswered request sent once more.
    Tcp,
    /// Objects, one a message (ATP 02): the transport below retransmits, delivers each as soon as
    /// it is whole, and tells when it gives one up ([`Client::undelivered`](crate::Client::undelivered));
    /// a connection that ended is made again and every unanswered request sent once more.
    Atp,
}

impl Transport {
    /// Whether what is sent arrives for as long as the connection lives.
    pub fn is_reliable(self) -> bool {
        self != Transport::Udp
    }
}
