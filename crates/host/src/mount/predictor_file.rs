//! The file beside the disk cache that keeps the model of the files that programs open.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use remora_cache::Cache;

const NAME: &str = "predictor";
/// Its new contents until they are complete.
const NAME_NEW: &str = "predictor.new";
/// Bytes of the largest model, and some room.
const BYTES_MAX: u64 = 4 << 20;

/// Goes on with the model of the last mount, if there is one. A damaged one is left out and replaced later.
pub(super) fn load(dir: &Path, cache: &mut Cache) {
    let model = match read(&dir.join(NAME)) {
        Ok(model) => model,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => return tracing::warn!(%error, "the model of opened files cannot be read"),
    };
    if let Err(error) = cache.import_predictor(model.into()) {
        tracing::warn!(%error, "the model of opened files begins anew");
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut model = Vec::new();
    File::open(path)?.take(BYTES_MAX).read_to_end(&mut model)?;
    Ok(model)
}

/// Replaces the model. What a power failure leaves of it is recognised by its checksum.
pub(super) fn save(dir: &Path, model: &[u8]) {
    let new = dir.join(NAME_NEW);
    // It has names of files.
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
    let written = file.and_then(|mut file| file.write_all(model));
    if let Err(error) = written.and_then(|()| fs::rename(&new, dir.join(NAME))) {
        tracing::warn!(%error, "the model of opened files cannot be saved");
    }
}

#[cfg(test)]
mod tests {
    use remora_base::Time;
    use remora_wire::nfs3::Fh;

    use super::*;

    fn cache() -> Cache {
        Cache::new(remora_cache::Config::default(), Fh(bytes::Bytes::from_static(b"root")), Time::ZERO)
    }

    #[test]
    fn saved_model_is_loaded_unless_it_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        load(dir.path(), &mut cache());
        let mut predictor = remora_cache::Predictor::new(remora_cache::PredictorConfig::default());
        predictor.observe(b"cc1", remora_cache::FileKey(7));
        let model = predictor.export();
        save(dir.path(), &model);
        let mut loaded = cache();
        load(dir.path(), &mut loaded);
        assert_eq!(loaded.export_predictor(), model);
        save(dir.path(), &model[..model.len() - 1]);
        let mut damaged = cache();
        load(dir.path(), &mut damaged);
        assert_eq!(damaged.export_predictor(), cache().export_predictor());
    }
}
