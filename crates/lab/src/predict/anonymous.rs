//! Names replaced by their rank in the directory, so that their order stays and they do not.

use std::collections::BTreeMap;

/// The rank of each part of each path among its siblings, below the directory that all are in.
pub(super) fn ranks<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, Vec<u32>> {
    let paths: Vec<&str> = paths.collect();
    let mut directories: BTreeMap<&str, BTreeMap<&str, u32>> = BTreeMap::new();
    for path in &paths {
        for part in parts(path) {
            directories.entry(part.directory).or_default().insert(part.name, 0);
        }
    }
    for names in directories.values_mut() {
        names.values_mut().zip(0..).for_each(|(rank, number)| *rank = number);
    }
    let rank = |part: PathPart<'_>| directories.get(part.directory)?.get(part.name).copied();
    let ranked: BTreeMap<&str, Vec<u32>> =
        paths.iter().map(|path| (*path, parts(path).filter_map(rank).collect())).collect();
    let common = common_directories(ranked.values());
    ranked.into_iter().map(|(path, ranks)| (path, ranks.into_iter().skip(common).collect())).collect()
}

/// Number of directories above all paths.
fn common_directories<'a>(mut paths: impl Iterator<Item = &'a Vec<u32>>) -> usize {
    let Some(first) = paths.next() else { return 0 };
    let shared = |path: &Vec<u32>| {
        let directories = path.len().saturating_sub(1);
        path.iter().take(directories).zip(first).take_while(|(a, b)| a == b).count()
    };
    paths.map(shared).fold(first.len().saturating_sub(1), usize::min)
}

struct PathPart<'a> {
    directory: &'a str,
    name: &'a str,
}

/// The parts of an absolute path, each with the directory that it is in.
fn parts(path: &str) -> impl Iterator<Item = PathPart<'_>> {
    let ends = path.match_indices('/').skip(1).map(|(at, _)| at).chain([path.len()]);
    ends.filter_map(|end| {
        let (directory, name) = path.get(..end)?.rsplit_once('/')?;
        Some(PathPart { directory, name })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_keep_the_order_of_names() {
        let ranks = ranks(["/a/z", "/b", "/a/b/c", "/a/b/d"].into_iter());
        let of = |path: &str| ranks.get(path).cloned().unwrap();
        assert_eq!(
            [of("/a/z"), of("/b"), of("/a/b/c"), of("/a/b/d")],
            [vec![0, 1], vec![1], vec![0, 0, 0], vec![0, 0, 1]]
        );
    }
}
