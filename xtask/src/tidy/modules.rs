//! Module circles: a file of a crate must not import, by way of others, a file that imports it.
//!
//! A file imports another where a path outside its tests leads to an item that the other file defines. A re-export
//! (`pub use`) imports nothing; a path that leads to one counts for the file that defines the item. A declaration
//! (`mod child;`) counts: a child that uses its parent's items forms a circle with it, and what both need belongs into a
//! file of its own beside the child.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Path, UseTree, Visibility};

use super::violation::{File, Violation};

/// A module's path from the root of its crate.
type ModulePath = Vec<String>;

/// The files of a crate by the module that each holds.
type Modules<'a> = BTreeMap<ModulePath, &'a File>;

/// Finds the circles of each crate, one violation a circle.
pub(super) fn check(files: &[File]) -> Vec<Violation> {
    let mut crates: BTreeMap<&str, Modules<'_>> = BTreeMap::new();
    for file in files {
        if let Some((root, module)) = place(&file.path) {
            crates.entry(root).or_default().insert(module, file);
        }
    }
    crates.values().flat_map(circles).collect()
}

/// The source folder of a library or program, and the module that a file in it holds.
fn place(path: &str) -> Option<(&str, ModulePath)> {
    let at = path.find("/src/")? + "/src/".len();
    let (root, inside) = path.split_at(at);
    let inside = inside.strip_suffix(".rs")?;
    // Programs of their own, and modules of tests.
    if inside.starts_with("bin/") || inside.split('/').any(|name| name == "tests" || name.ends_with("_tests")) {
        return None;
    }
    let mut module: ModulePath = inside.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|name| name == "mod") || matches!(inside, "lib" | "main") {
        module.pop();
    }
    Some((root, module))
}

/// Finds the circles of one crate.
fn circles(modules: &Modules<'_>) -> Vec<Violation> {
    // The compiler has a better message for a file that does not parse.
    let parsed = modules.iter().filter_map(|(m, f)| Some((m, syn::parse_file(&f.text).ok()?)));
    let sources: BTreeMap<&ModulePath, syn::File> = parsed.collect();
    let mut names: Names = sources.keys().map(|m| ((*m).clone(), BTreeMap::new())).collect();
    for (module, source) in &sources {
        let uses = source.items.iter().filter_map(|item| if let Item::Use(u) = item { Some(u) } else { None });
        uses.for_each(|u| {
            flatten(&[], &u.tree, &mut |path, name| {
                names.entry((*module).clone()).or_default().insert(name.to_owned(), path.to_vec());
            })
        });
    }
    let mut imports: BTreeMap<&ModulePath, BTreeSet<ModulePath>> = BTreeMap::new();
    for (module, source) in &sources {
        let mut reader = Reader { inside: (*module).clone(), paths: Vec::new() };
        reader.visit_file(source);
        let resolve = |(inside, path): &(ModulePath, Vec<String>)| defining(&names, inside, path, 0);
        let mut direct: BTreeSet<ModulePath> = reader.paths.iter().filter_map(resolve).collect();
        direct.remove(*module);
        imports.insert(module, direct);
    }
    let mut reported = BTreeSet::new();
    let mut found = Vec::new();
    for (&module, direct) in &imports {
        if reported.contains(module) {
            continue;
        }
        let shortest = direct.iter().filter_map(|next| way(&imports, next, module)).min_by_key(Vec::len);
        if let Some(way) = shortest {
            let files: Vec<&str> = way.iter().map(|m| modules[m].path.as_str()).collect();
            reported.extend(way.iter().cloned());
            let path = &modules[module].path;
            let what = format!("imports itself by way of {}: move what both need below both", files.join(", "));
            found.push(Violation::new(path, 1, what));
        }
    }
    found
}

/// The module of a file that defines what `path` leads to from inside a module, if it is of this crate.
fn defining(names: &Names, inside: &[String], path: &[String], depth: usize) -> Option<ModulePath> {
    let (first, rest) = path.split_first()?;
    let file =
        |module: &[String]| (0..=module.len()).rev().map(|n| module[..n].to_vec()).find(|m| names.contains_key(m));
    let (mut module, mut rest) = match first.as_str() {
        "crate" => (Vec::new(), rest),
        "self" => (inside.to_vec(), rest),
        "super" => (inside[..inside.len().saturating_sub(1)].to_vec(), rest),
        _ => (inside.to_vec(), path),
    };
    let relative = matches!(first.as_str(), "crate" | "self" | "super");
    while let Some((name, after)) = rest.split_first() {
        if name == "super" {
            module.pop();
            rest = after;
            continue;
        }
        let child = [module.as_slice(), std::slice::from_ref(name)].concat();
        if names.contains_key(&child) {
            module = child;
            rest = after;
            continue;
        }
        let imported = names.get(&module).and_then(|n| n.get(name));
        if let Some(target) = imported
            && depth < 8
        {
            let on = [target.as_slice(), after].concat();
            return defining(names, &module, &on, depth + 1);
        }
        return if relative || module != inside { file(&module) } else { None };
    }
    file(&module)
}

/// Calls `each` with every path of a tree of imports and the name that it gets here.
fn flatten(before: &[String], tree: &UseTree, each: &mut impl FnMut(&[String], &str)) {
    let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
    match tree {
        UseTree::Path(path) => flatten(&with(&path.ident), &path.tree, each),
        UseTree::Name(name) if name.ident == "self" => {
            if let Some(last) = before.last() {
                each(before, &last.clone());
            }
        }
        UseTree::Name(name) => each(&with(&name.ident), &name.ident.to_string()),
        UseTree::Rename(rename) => each(&with(&rename.ident), &rename.rename.to_string()),
        UseTree::Glob(_) => each(before, &format!("*{}", before.join("::"))),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(before, tree, each)),
    }
}

/// The shortest way along imports, without its end `to`.
fn way(
    imports: &BTreeMap<&ModulePath, BTreeSet<ModulePath>>,
    from: &ModulePath,
    to: &ModulePath,
) -> Option<Vec<ModulePath>> {
    let mut ways = VecDeque::from([vec![from.clone()]]);
    let mut seen = BTreeSet::from([from.clone()]);
    while let Some(way) = ways.pop_front() {
        let last = way.last()?;
        for next in imports.get(last).into_iter().flatten() {
            if next == to {
                return Some(way);
            }
            if seen.insert(next.clone()) {
                ways.push_back([way.as_slice(), std::slice::from_ref(next)].concat());
            }
        }
    }
    None
}

/// What the names that each module imports lead to. A glob has a name that begins with `*`.
type Names = BTreeMap<ModulePath, BTreeMap<String, Vec<String>>>;

/// Collects the paths of one file, each with the module that it stands in.
struct Reader {
    /// The module at this place of the file: its own, or one written inside it.
    inside: ModulePath,
    paths: Vec<(ModulePath, Vec<String>)>,
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_of_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if item.content.is_none() {
            self.paths.push((self.inside.clone(), vec!["self".to_owned(), item.ident.to_string()]));
        }
        self.inside.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.inside.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if matches!(item.vis, Visibility::Inherited) {
            flatten(&[], &item.tree, &mut |path, _| self.paths.push((self.inside.clone(), path.to_vec())));
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
            self.paths.push((self.inside.clone(), names));
        }
        visit::visit_path(self, path);
    }

    /// `pub(in crate::x)` imports nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

/// Whether an item is compiled for tests alone.
pub(super) fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| {
        let is_test = |a: &Attribute| a.parse_args::<Path>().is_ok_and(|p| p.is_ident("test"));
        a.path().is_ident("test") || (a.path().is_ident("cfg") && is_test(a))
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::super::violation::file;
    use super::*;

    #[test]
    fn circle_of_files_is_found_once() {
        type Sources<'a> = &'a [(&'a str, &'a str)];
        let cases: &[(&str, Sources<'_>, usize)] = &[
            ("no import", &[("lib.rs", "mod a; mod b;"), ("a.rs", ""), ("b.rs", "use crate::a::A;")], 0),
            (
                "two files",
                &[("lib.rs", "mod a; mod b;"), ("a.rs", "fn f() { crate::b::g() }"), ("b.rs", "use super::a::A;")],
                1,
            ),
            ("a child and its parent", &[("lib.rs", "mod a; struct S;"), ("a.rs", "use super::S;")], 1),
            (
                "a re-export leads to the definition",
                &[("lib.rs", "mod a; mod b; pub use b::B;"), ("a.rs", "use crate::B;"), ("b.rs", "")],
                0,
            ),
            (
                "by way of a re-export",
                &[("lib.rs", "mod a; mod b; pub use b::B;"), ("a.rs", "use crate::B;"), ("b.rs", "use crate::a::A;")],
                1,
            ),
            (
                "tests do not count",
                &[("lib.rs", "mod a; struct S;"), ("a.rs", "#[cfg(test)] mod tests { use crate::S; }")],
                0,
            ),
            (
                "a module written inside",
                &[
                    ("lib.rs", "mod a; mod b;"),
                    ("a.rs", "mod inner { use super::super::b::B; }"),
                    ("b.rs", "use crate::a::A;"),
                ],
                1,
            ),
        ];
        for (name, sources, expected) in cases {
            let files: Vec<File> =
                sources.iter().map(|(path, text)| file(&format!("crates/x/src/{path}"), text)).collect();
            let found = check(&files);
            assert_eq!(found.len(), *expected, "{name}: {found:?}");
        }
    }
}
