//! NFS server core: dispatch, duplicate request cache, handles, exports.
