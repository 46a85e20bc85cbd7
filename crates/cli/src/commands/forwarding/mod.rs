//! `remora gateway` and `remora forward`: TCP connections over ATP.

pub(crate) mod forward;
pub(crate) mod gateway;
