//! Bounds on the requests that execute, in total and for each client.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::Limits;

/// The requests that execute.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    requests: usize,
    bytes: usize,
    clients: BTreeMap<IpAddr, usize>,
}

impl InFlight {
    pub(crate) fn requests(&self) -> usize {
        self.requests
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether another request of `client` may start. If nothing executes, any request may, whatever its size.
    pub(crate) fn has_room(&self, limits: &Limits, client: IpAddr, bytes: usize) -> bool {
        let mine = self.clients.get(&client).copied().unwrap_or(0);
        self.requests == 0
            || (self.requests < limits.in_flight_max
                && mine < limits.in_flight_per_client_max
                && self.bytes.saturating_add(bytes) <= limits.in_flight_bytes_max)
    }

    pub(crate) fn start(&mut self, client: IpAddr, bytes: usize) {
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        *self.clients.entry(client).or_default() += 1;
    }

    pub(crate) fn end(&mut self, client: IpAddr, bytes: usize) {
        self.requests = self.requests.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(mine) = self.clients.get_mut(&client) {
            *mine = mine.saturating_sub(1);
            if *mine == 0 {
                self.clients.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_binds_and_everything_is_given_back() {
        let limits =
            Limits { in_flight_max: 3, in_flight_per_client_max: 2, in_flight_bytes_max: 100, ..Limits::default() };
        let [a, b]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|s| s.parse().unwrap());
        let mut f = InFlight::default();
        assert!(f.has_room(&limits, a, 1000), "a lone request always has room");
        f.start(a, 10);
        assert!(!f.has_room(&limits, b, 91));
        f.start(a, 10);
        assert!(!f.has_room(&limits, a, 0) && f.has_room(&limits, b, 0));
        f.start(b, 10);
        assert!(!f.has_room(&limits, b, 0));
        for client in [a, a, b] {
            f.end(client, 10);
        }
        assert_eq!((f.requests(), f.bytes(), f.clients.len()), (0, 0, 0));
    }
}
