//! What whoever starts a server may like to know about what it is started as, beside its exports.

/// With fewer connections than these there is a word about it.
const CONNECTIONS_FEW: usize = 256;

/// That few connections fit, if so, beside so many exports where so many files may be open.
pub(super) fn of_room(connections: usize, exports: usize, files: usize) -> Option<String> {
    (connections < CONNECTIONS_FEW).then(|| {
        let s = if exports == 1 { "" } else { "s" };
        format!(
            "at most {connections} TCP connections fit beside {exports} export{s} where {files} files may be open: raise \
             that limit (ulimit -Hn; LimitNOFILE= in a unit of systemd)"
        )
    })
}
