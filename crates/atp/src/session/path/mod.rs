//! A server's path to a client whose address changes (RFC 9000, sections 8 and 9).

mod amplification;
mod revalidation;

pub(crate) use amplification::{AmplificationLimit, validated_frames};
pub(crate) use revalidation::PathRevalidation;
