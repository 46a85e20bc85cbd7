//! Loss detection over datagrams: from the order of replies (RACK, RFC 8985) and from probes, without fixed timeouts.
//!
//! Read [`detector`] first, which takes every reply and loss. [`path_model`] has the estimates of the path;
//! [`loss_timer`] says when a request is lost or a probe is due; [`probes`] has the probes in flight. The others are
//! parts of these.

pub(crate) mod detector;
pub(crate) mod loss_rate;
pub(crate) mod loss_timer;
pub(crate) mod path_model;
pub(crate) mod probes;
pub(crate) mod reordering;
pub(crate) mod slow_server;
