//! Directory listings, to the byte.

use proptest::prelude::*;
use remora_server::{Limits, cache};
use remora_vfs::Vfs;
use remora_wire::Xdr;
use remora_wire::nfs3::{Call, CreateHow, Fh, ReadDirArgs, ReadDirPlusArgs, Reply, SetAttr, Status};

use crate::world::{ROOT, World, tcp};

/// A directory with files whose names have these lengths; each name begins with its number.
fn world(names: &[usize]) -> (World, Fh) {
    let limits = Limits { stream_io_max: 4096, ..Limits::default() };
    let mut w = World::with(cache::Config::Off, limits, |_| {});
    for (i, len) in names.iter().enumerate() {
        let name = format!("{i:03}{}", "x".repeat(*len));
        w.fs.create(&ROOT, &w.fs.root(), name.as_bytes(), &CreateHow::Guarded(SetAttr::NONE)).unwrap();
    }
    let root = w.root();
    (w, root)
}

/// One page: the names and the last cookie, whether it is the last, how long the results are.
struct Page {
    names: Vec<Vec<u8>>,
    /// Bytes that each entry counts for: in the results, and as directory information.
    sizes: Vec<(usize, usize)>,
    cookie: u64,
    verf: [u8; 8],
    eof: bool,
    len: usize,
}

/// A request for a page of a directory.
#[derive(Clone, Copy)]
struct PageRequest {
    plus: bool,
    cookie: u64,
    verf: [u8; 8],
    dir_count: u32,
    max_count: u32,
}

fn page(w: &mut World, dir: &Fh, request: PageRequest) -> Result<Page, Status> {
    let PageRequest { plus, cookie, verf, dir_count, max_count } = request;
    let dir = dir.clone();
    if plus {
        let args = ReadDirPlusArgs { dir, cookie, verf, dir_count, max_count };
        let Reply::ReadDirPlus(res) = w.call_from(tcp(1), &Call::ReadDirPlus(args)) else { panic!() };
        let ok = res.map_err(|e| e.status)?;
        let list = &ok.entries.list;
        assert!(list.iter().all(|e| e.attr.is_some() && e.fh.is_some()));
        let info = |name: &[u8]| 8 + 4 + name.len().next_multiple_of(4) + 8;
        Ok(Page {
            names: list.iter().map(|e| e.name.to_vec()).collect(),
            sizes: list.iter().map(|e| (4 + e.to_bytes().len(), info(&e.name))).collect(),
            cookie: list.last().map_or(cookie, |e| e.cookie),
            verf: ok.verf,
            eof: ok.entries.eof,
            len: ok.to_bytes().len(),
        })
    } else {
        let Reply::ReadDir(res) =
            w.call_from(tcp(1), &Call::ReadDir(ReadDirArgs { dir, cookie, verf, count: max_count }))
        else {
            panic!()
        };
        let ok = res.map_err(|e| e.status)?;
        let list = &ok.entries.list;
        Ok(Page {
            names: list.iter().map(|e| e.name.to_vec()).collect(),
            sizes: list.iter().map(|e| (4 + e.to_bytes().len(), 0)).collect(),
            cookie: list.last().map_or(cookie, |e| e.cookie),
            verf: ok.verf,
            eof: ok.entries.eof,
            len: ok.to_bytes().len(),
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pages_respect_the_counts_and_bring_everything_once(
        names in prop::collection::vec(0usize..40, 0..30),
        plus: bool,
        dir_count in 0u32..2000,
        max_count in 400u32..6000,
    ) {
        let (mut w, root) = world(&names);
        let (mut seen, mut cookie, mut verf) = (vec![], 0, [0; 8]);
        loop {
            let p = page(&mut w, &root, PageRequest { plus, cookie, verf, dir_count, max_count }).unwrap();
            prop_assert!(p.len <= max_count.min(4096) as usize);
            if plus {
                let names: usize = p.sizes.iter().map(|s| s.1).sum();
                prop_assert!(names <= dir_count as usize || p.sizes.len() == 1);
            }
            prop_assert!(p.eof || !p.names.is_empty());
            seen.extend(p.names);
            (cookie, verf) = (p.cookie, p.verf);
            if p.eof {
                break;
            }
        }
        seen.sort();
        prop_assert_eq!(seen.len(), names.len() + 2);
        seen.dedup();
        prop_assert_eq!(seen.len(), names.len() + 2);
    }
}

#[test]
fn entry_beyond_the_dircount_is_alone() {
    let (mut w, root) = world(&[30, 1, 2, 3]);
    for (hint, cookie) in [(0, 0), (40, 0), (40, 1), (40, 2), (40, 3)] {
        let p = page(&mut w, &root, PageRequest { plus: true, cookie, verf: [0; 8], dir_count: hint, max_count: 4096 })
            .unwrap();
        assert!(p.sizes.len() == 1 || p.sizes.iter().map(|s| s.1).sum::<usize>() <= hint as usize, "{hint} {cookie}");
    }
}

#[test]
fn entry_one_byte_too_large_is_left_out() {
    for plus in [false, true] {
        let (mut w, root) = world(&[5, 9]);
        let whole =
            page(&mut w, &root, PageRequest { plus, cookie: 0, verf: [0; 8], dir_count: 4096, max_count: 4096 })
                .unwrap();
        assert!(whole.eof);
        let fits = |w: &mut World, dir_count: u32, max_count: usize| {
            let request = PageRequest { plus, cookie: 0, verf: [0; 8], dir_count, max_count: max_count as u32 };
            page(w, &root, request).map(|p| (p.names.len(), p.eof))
        };
        let n = whole.names.len();
        assert_eq!(fits(&mut w, 4096, whole.len), Ok((n, true)));
        assert_eq!(fits(&mut w, 4096, whole.len - 1), Ok((n - 1, false)));
        let empty = whole.len - whole.sizes.iter().map(|s| s.0).sum::<usize>();
        let one = empty + whole.sizes[0].0;
        assert_eq!(fits(&mut w, 4096, one), Ok((1, false)));
        for too_small in [0, 1, empty, one - 1] {
            assert_eq!(fits(&mut w, 4096, too_small), Err(Status::TooSmall), "{too_small}");
        }
        if plus {
            let info: usize = whole.sizes.iter().map(|s| s.1).sum();
            assert_eq!(fits(&mut w, info as u32, 4096), Ok((n, true)));
            assert_eq!(fits(&mut w, info as u32 - 1, 4096), Ok((n - 1, false)));
            for hint in [0, 1, whole.sizes[0].1 as u32 - 1] {
                assert_eq!(fits(&mut w, hint, 4096), Ok((1, false)), "one goes on, however small the hint");
            }
        }
    }
}
