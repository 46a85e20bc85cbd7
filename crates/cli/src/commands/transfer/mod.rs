//! `remora send`, `recv` and `keys`: files over ATP. Start with [`transfer_protocol`].

pub(crate) mod keys;
pub(crate) mod recv;
pub(crate) mod send;
pub(crate) mod transfer_protocol;
