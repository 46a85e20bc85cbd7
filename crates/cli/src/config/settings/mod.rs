//! The configuration file: flags of every command, aliases of hosts, names of keys.
//!
//! [`config_file`] reads the files and finds lines; [`table`] turns a command's table into flags, by clap's definition of
//! the command; [`names`] has the aliases and names; [`command_line`] puts all of it to the words of the user.

pub(crate) mod command_line;
pub(crate) mod config_file;
pub(crate) mod names;
pub(crate) mod table;
