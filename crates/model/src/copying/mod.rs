//! Copies in a network: each a closed network beside the flows and the other copies.
//!
//! A copy's own packets change the media (its replies contend with its data), so its rate is a
//! fixed point: rate, demand, rate. A higher rate never lowers the demand, so the fixed point is
//! unique, and bisection finds it.
//!
//! Several copies are solved together by relaxation: each beside the others' last rates, in steps
//! towards its solution until all rates converge. Where two saturate the same place any split would
//! satisfy the equations; equal ones get equal shares, unequal ones keep the difference of their
//! rates alone, and both are marked ([`Reason::SharedBottleneck`]).
//!
//! `solution` finds the rates, `round` a copy's round at one rate, `demand` the servers that it loads,
//! `bunching` the interaction of its blocks. Read them in this order.

mod bunching;
mod demand;
mod round;
mod solution;

pub(crate) use round::traffic;
pub(crate) use solution::{Solved, solve};
