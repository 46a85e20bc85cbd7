//! Control of a running link: by the program that started it (`command`) and by others on this machine through a
//! Unix socket (`socket`).

mod command;
mod socket;

pub(super) use command::LinkCommand;
pub use command::LinkControl;
pub use socket::{ControlSocket, device_of, directory, hand_off, sockets, status};
