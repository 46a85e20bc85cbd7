//! Rules about Rust functions: their length, their parameters, the names of tests.

use proc_macro2::LineColumn;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, FnArg, ImplItemFn, ItemFn, ItemImpl, Pat, Signature, TraitItemFn, Type};

use super::violation::{File, Violation};

/// What fits a screen, in lines from the signature to the closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// What fits a line of the test runner's list, in characters.
const TEST_NAME_CHARS_MAX: usize = 60;

/// Checks every Rust file.
pub(super) fn check(files: &[File]) -> Vec<Violation> {
    let rust = files.iter().filter(|f| f.path.ends_with(".rs"));
    rust.flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Violation> {
    // The compiler has a better message for a file that does not parse.
    let Ok(syntax) = syn::parse_file(&file.text) else { return Vec::new() };
    let mut reader = Reader { path: &file.path, in_trait_impl: false, found: Vec::new() };
    reader.visit_file(&syntax);
    reader.found
}

struct Reader<'a> {
    path: &'a str,
    /// In an implementation of a trait, which decides the parameters.
    in_trait_impl: bool,
    found: Vec<Violation>,
}

impl Reader<'_> {
    fn report(&mut self, at: LineColumn, what: String) {
        self.found.push(Violation::new(self.path, at.line, what));
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, body: Option<&Block>) {
        let (start, name) = (signature.span().start(), signature.ident.to_string());
        let lines = body.map_or(0, |b| b.span().end().line + 1 - start.line);
        if lines > FUNCTION_LINES_MAX {
            let what = format!("fn {name} has {lines} lines, at most {FUNCTION_LINES_MAX}: give its steps names");
            self.report(start, what);
        }
        let chars = name.chars().count();
        if attributes.iter().any(|a| a.path().is_ident("test")) && chars > TEST_NAME_CHARS_MAX {
            let what =
                format!("test {name}: {chars} characters, at most {TEST_NAME_CHARS_MAX}: subject_condition_result");
            self.report(start, what);
        }
        for input in &signature.inputs {
            let FnArg::Typed(input) = input else { continue };
            if !self.in_trait_impl && is_tuple(&input.ty) && matches!(*input.pat, Pat::Ident(_) | Pat::Tuple(_)) {
                let what = format!("fn {name} takes a tuple: use a struct with named fields, or more parameters");
                self.report(input.span().start(), what);
            }
        }
    }
}

/// A tuple of two or more, or a reference to one.
fn is_tuple(of: &Type) -> bool {
    match of {
        Type::Tuple(tuple) => tuple.elems.len() > 1,
        Type::Reference(reference) => is_tuple(&reference.elem),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.attrs, &item.sig, Some(&item.block));
        visit::visit_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        self.in_trait_impl = item.trait_.is_some();
        visit::visit_item_impl(self, item);
        self.in_trait_impl = false;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.function(&item.attrs, &item.sig, Some(&item.block));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        self.function(&item.attrs, &item.sig, item.default.as_ref());
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::super::violation::file;
    use super::*;

    #[test]
    fn function_rule_finds_what_it_is_for() {
        let body = |lines: usize| format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2));
        let test = |chars: usize| format!("#[test]\nfn {}() {{}}\n", "a".repeat(chars));
        let cases: &[(&str, String, &[usize])] = &[
            ("as long as allowed", body(FUNCTION_LINES_MAX), &[]),
            ("too long", body(FUNCTION_LINES_MAX + 1), &[1]),
            ("a method too long", format!("impl S {{\n{}}}\n", body(FUNCTION_LINES_MAX + 1)), &[2]),
            ("a test's name", test(TEST_NAME_CHARS_MAX), &[]),
            ("a test's long name", test(TEST_NAME_CHARS_MAX + 1), &[2]),
            ("a tuple", "fn f(range: (u64, u64)) {}\n".to_owned(), &[1]),
            ("a reference to a tuple", "fn f(range: &(u64, u64)) {}\n".to_owned(), &[1]),
            ("unit", "fn f(nothing: ()) {}\n".to_owned(), &[]),
            ("no Rust", "fn".to_owned(), &[]),
        ];
        for (name, text, expected) in cases {
            let lines: Vec<usize> = check(&[file("a.rs", text)]).iter().map(|v| v.line).collect();
            assert_eq!(lines, *expected, "{name}");
        }
    }
}
