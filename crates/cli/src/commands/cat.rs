//! `remora cat`: writes files to standard output.

use remora_wire::nfs3::{FileType, Status};

use super::several::Several;
use crate::args::Cat;
use crate::cp::transfer::in_order_read;
use crate::exit::{Error, Result};
use crate::out;
use crate::servers::Servers;

pub(crate) async fn run(args: Cat) -> Result {
    let mut servers = Servers::new(args.link);
    let mut several = Several::new("cat");
    for url in &args.urls {
        several.settle(print(&mut servers, url).await)?;
    }
    several.finish()
}

async fn print(servers: &mut Servers, url: &str) -> Result {
    let place = servers.source(url).await?;
    let node = place.look(true).await.map_err(Error::remote(url))?;
    match node.attr.kind {
        FileType::Regular => {}
        FileType::Directory => return Err(Error::remote(url)(Status::IsDir.into())),
        _ => return Err(Error::refused(url, "not a regular file")),
    }
    let print = |data: &[u8]| out::bytes(data);
    let end = in_order_read::read(&place.remote, &node, print).await.map_err(out::transfer_failed(url))?;
    // One that grew, or whose server says that nothing is in it, was read as it was found.
    if end < node.attr.size {
        return Err(Error::refused(url, format!("became shorter while it was read: it ended after {end} bytes")));
    }
    Ok(())
}
