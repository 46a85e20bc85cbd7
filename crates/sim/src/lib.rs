//! Virtual-time world: clock, nodes, faults, checkers.
