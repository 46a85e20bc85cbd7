//! Bytes on the wire, one file a protocol: XDR, ONC RPC, MOUNT, portmapper, NFSv3.
