//! No circle between files: inside each package, who imports whom, read from the code itself. A file may use what the modules
//! around it declare, so arrows to those are not counted; a name that a module passes on counts for the file that it comes from.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use std::collections::BTreeMap;
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Item, ItemUse, UseTree, Visibility};

/// The way to a module, from the package's root.
type Module = Vec<String>;

/// One file.
#[derive(Debug, Default)]
struct Seen {
    /// What it names, as it is written: from `crate`, `super` or a module below.
    named: Vec<Vec<String>>,
    /// What it passes on under its own path: the name, and where it comes from as it is written.
    passed_on: Vec<(String, Vec<String>)>,
    /// The modules of files that it declares.
    children: Vec<String>,
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|it| {
        it.path().is_ident("test")
            || it.path().is_ident("cfg") && it.parse_args::<Ident>().is_ok_and(|it| it == "test")
    })
}

/// All paths of a `use`, with the name that each is known by.
fn flattened(tree: &UseTree, before: &mut Vec<String>, found: &mut Vec<(String, Vec<String>)>) {
    let last = match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flattened(&path.tree, before, found);
            before.pop();
            return;
        }
        UseTree::Group(group) => return group.items.iter().for_each(|it| flattened(it, before, found)),
        UseTree::Name(name) => (name.ident.to_string(), Some(name.ident.to_string())),
        UseTree::Rename(rename) => (rename.rename.to_string(), Some(rename.ident.to_string())),
        UseTree::Glob(_) => ("*".to_owned(), None),
    };
    let (name, ident) = last;
    found.push((name, before.iter().cloned().chain(ident).collect()));
}

impl<'ast> Visit<'ast> for Seen {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(it) => &it.attrs,
            Item::Fn(it) => &it.attrs,
            Item::Impl(it) => &it.attrs,
            Item::Use(it) => &it.attrs,
            _ => return visit::visit_item(self, item),
        };
        if is_for_tests(attributes) {
            return;
        }
        if let Item::Mod(module) = item
            && module.content.is_none()
        {
            self.children.push(module.ident.to_string());
        }
        visit::visit_item(self, item);
    }
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let mut found = Vec::new();
        flattened(&item.tree, &mut Vec::new(), &mut found);
        if !matches!(item.vis, Visibility::Inherited) {
            self.passed_on.extend(found);
            return;
        }
        self.named.extend(found.into_iter().map(|(_, path)| path));
    }
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.named.push(path.segments.iter().map(|it| it.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }
}

/// The package's files by the module that each is.
fn read(root: &Path, folder: &Path, found: &mut BTreeMap<Module, Seen>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["tests", "bin"].contains(&name.as_str()) {
                read(root, &path, found);
            }
            continue;
        }
        if path.extension().is_none_or(|it| it != "rs")
            || ["tests", "testing", "main"].contains(&name.as_str())
        {
            continue;
        }
        let below = path.strip_prefix(root).unwrap().with_extension("");
        let mut module: Module = below.iter().map(|it| it.to_string_lossy().into_owned()).collect();
        if ["mod", "lib"].contains(&name.as_str()) {
            module.pop();
        }
        let mut seen = Seen::default();
        seen.visit_file(&syn::parse_file(&std::fs::read_to_string(&path).unwrap()).unwrap());
        found.insert(module, seen);
    }
}

/// The file that a path leads to, from a module: the longest way along modules, and on through what they pass on.
fn resolve(modules: &BTreeMap<Module, Seen>, from: &Module, path: &[String], depth: usize) -> Option<Module> {
    // A name may be passed on several times, and a circle of that would be one of its own.
    const PASSED_ON_MAX: usize = 8;
    let mut at = from.clone();
    let mut rest = path.iter();
    match path.first()?.as_str() {
        "crate" => {
            at.clear();
            rest.next();
        }
        "self" => _ = rest.next(),
        "super" => {
            while rest.as_slice().first().is_some_and(|it| it == "super") {
                at.pop();
                rest.next();
            }
        }
        first if modules.get(from)?.children.iter().any(|it| it == first) => {}
        _ => return None,
    }
    for name in rest {
        at.push(name.clone());
        if modules.contains_key(&at) {
            continue;
        }
        at.pop();
        let here = modules.get(&at)?;
        let on = here.passed_on.iter().find(|(known_by, _)| known_by == name).map(|(_, way)| way);
        return match on.filter(|_| depth < PASSED_ON_MAX) {
            Some(way) => resolve(modules, &at, way, depth + 1).or(Some(at)),
            None => Some(at),
        };
    }
    Some(at)
}

/// The circles of a package, each the modules in it.
fn circles(modules: &BTreeMap<Module, Seen>) -> Vec<Vec<String>> {
    let names: Vec<&Module> = modules.keys().collect();
    let mut arrows = DiGraphMap::<usize, ()>::new();
    for (from, (module, seen)) in modules.iter().enumerate() {
        for path in &seen.named {
            let Some(to) = resolve(modules, module, path, 0) else { continue };
            if !module.starts_with(&to) {
                arrows.add_edge(from, names.binary_search(&&to).unwrap(), ());
            }
        }
    }
    let connected = tarjan_scc(&arrows).into_iter().filter(|files| files.len() > 1);
    connected.map(|files| files.into_iter().map(|file| names[file].join("::")).collect()).collect()
}

fn package(files: &[(&str, &str)]) -> BTreeMap<Module, Seen> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let mut found = BTreeMap::new();
    read(folder.path(), folder.path(), &mut found);
    found
}

#[test]
fn no_files_of_a_package_import_each_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let crates = std::fs::read_dir(root.join("crates")).unwrap().map(|it| it.unwrap().path());
    let mut found = Vec::new();
    let mut file_count = 0;
    for folder in crates.chain([root.join("slurm-spank")]) {
        let mut modules = BTreeMap::new();
        read(&folder.join("src"), &folder.join("src"), &mut modules);
        file_count += modules.len();
        found.extend(circles(&modules).into_iter().map(|circle| format!("{}: {circle:?}", folder.display())));
    }
    assert!(file_count > 500, "only {file_count} files were read");
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_circle_is_found_through_names_that_are_passed_on() {
    let mut files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::Known; fn ask(it: Known) { it.go() }"),
        ("b/mod.rs", "mod c; pub use c::Known;"),
        ("b/c.rs", "pub struct Known; fn back() { crate::a::ask(Known) }"),
    ];
    assert_eq!(circles(&package(&files)).len(), 1);
    files[3].1 = "pub struct Known; #[cfg(test)] mod tests { fn back() { crate::a::ask(super::Known) } }";
    assert_eq!(circles(&package(&files)), Vec::<Vec<String>>::new(), "tests may look back");
    files[2].1 = "mod c; pub use c::Known; pub const LIMIT: u8 = 1; fn all() { c::back() }";
    files[3].1 = "pub struct Known; pub fn back() -> u8 { super::LIMIT }";
    assert_eq!(circles(&package(&files)), Vec::<Vec<String>>::new(), "what the module around it declares");
}
