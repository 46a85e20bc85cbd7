//! Changes of names and attributes that the server does not have yet.

pub(crate) mod record;
