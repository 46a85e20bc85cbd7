//! Portmapper version 2: which port a program answers on (RFC 1833, section 3).

/// The program's number.
pub const PROGRAM: u32 = 100_000;
/// The version spoken.
pub const VERSION: u32 = 2;
/// The port it answers on.
pub const PORT: u16 = 111;
/// PMAPPROC_GETPORT.
pub const PROC_GETPORT: u32 = 3;

/// IP's number for TCP.
pub const IPPROTO_TCP: u32 = 6;
/// IP's number for UDP.
pub const IPPROTO_UDP: u32 = 17;

xdr_struct! {
    /// A program on a port; in a question the port is 0. The answer is the port alone, a
    /// `u32`, 0 for none.
    pub struct Mapping {
        /// Program.
        pub prog: u32,
        /// Version.
        pub vers: u32,
        /// [`IPPROTO_TCP`] or [`IPPROTO_UDP`].
        pub prot: u32,
        /// Port.
        pub port: u32,
    }
}
