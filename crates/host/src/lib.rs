//! The real world: sockets, disk executor, clocks, signals.
