//! Imports inside a crate run in one direction: no two files of a crate import from each other, not even through
//! others. Cargo checks this between crates; this test parses the sources. It does not see paths inside macro
//! calls.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The module path of a file in its crate: `["turn", "open"]` for `turn/open.rs`, empty for the crate's root.
type Module = Vec<String>;

/// The modules that a module imports from, with the imported paths.
type Imports = BTreeMap<Module, BTreeMap<Module, BTreeSet<String>>>;

/// The packages of the workspace, except the root, with their source files.
fn crates(dir: &Path, found: &mut BTreeMap<PathBuf, Vec<PathBuf>>, of: &Path) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let own = dir != Path::new(ROOT) && dir.join("Cargo.toml").is_file();
    let of = if own { dir } else { of };
    for path in entries {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            crates(&path, found, of);
        } else if name.ends_with(".rs") && of != Path::new(ROOT) {
            found.entry(of.to_owned()).or_default().push(path);
        }
    }
}

fn module_of(file: &Path, of: &Path) -> Module {
    let inside = file.strip_prefix(of).unwrap().with_extension("");
    let mut parts: Module = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

fn for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => false,
    })
}

/// Collects the paths that one file uses.
struct Taken<'a> {
    module: &'a Module,
    modules: &'a BTreeSet<Module>,
    from: BTreeMap<Module, BTreeSet<String>>,
}

impl Taken<'_> {
    /// Records a path if it leads into another file of the crate.
    fn path(&mut self, path: &[String]) {
        let Some(first) = path.first() else { return };
        let beside: Module = self.module.iter().chain([first]).cloned().collect();
        let whole: Module = match first.as_str() {
            "crate" => path[1..].to_vec(),
            "self" => self.module.iter().chain(&path[1..]).cloned().collect(),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                let Some(kept) = self.module.len().checked_sub(up) else { return };
                self.module[..kept].iter().chain(&path[up..]).cloned().collect()
            }
            _ if self.modules.contains(&beside) => self.module.iter().chain(path).cloned().collect(),
            _ => return,
        };
        let file = (0..=whole.len()).rev().map(|len| whole[..len].to_vec()).find(|file| self.modules.contains(file));
        if let Some(file) = file.filter(|file| file != self.module) {
            let name = whole.get(file.len()).map_or("the file itself", String::as_str).to_owned();
            self.from.entry(file).or_default().insert(name);
        }
    }

    fn tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &syn::Ident| before.iter().cloned().chain([name.to_string()]).collect::<Vec<_>>();
        match tree {
            UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(before, tree)),
            UseTree::Name(name) if name.ident == "self" => self.path(before),
            UseTree::Name(name) => self.path(&with(&name.ident)),
            UseTree::Rename(name) => self.path(&with(&name.ident)),
            UseTree::Glob(_) => self.path(before),
        }
    }
}

impl<'ast> Visit<'ast> for Taken<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(module) if for_tests(&module.attrs) => {}
            Item::Use(import) if for_tests(&import.attrs) => {}
            Item::Use(import) => self.tree(&[], &import.tree),
            other => visit::visit_item(self, other),
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if parts.len() > 1 {
            self.path(&parts);
        }
        visit::visit_path(self, path);
    }
}

fn imports_of(of: &Path, files: &[PathBuf]) -> Imports {
    let modules: BTreeSet<Module> = files.iter().map(|file| module_of(file, of)).collect();
    files
        .iter()
        .map(|file| {
            let source = std::fs::read_to_string(file).unwrap();
            let parsed = syn::parse_file(&source).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let module = module_of(file, of);
            let mut taken = Taken { module: &module, modules: &modules, from: BTreeMap::new() };
            taken.visit_file(&parsed);
            let from = taken.from;
            (module, from)
        })
        .collect()
}

/// The shortest import cycle through `start`, if there is one.
fn cycle(imports_of: &Imports, start: &Module) -> Option<Vec<Module>> {
    let mut came: BTreeMap<&Module, &Module> = BTreeMap::new();
    let mut next = std::collections::VecDeque::from([start]);
    while let Some(at) = next.pop_front() {
        for to in imports_of.get(at).into_iter().flat_map(BTreeMap::keys) {
            if to == start {
                let mut way = vec![at.clone()];
                while let Some(before) = way.last().filter(|last| *last != start).and_then(|last| came.get(last)) {
                    way.push((*before).clone());
                }
                way.reverse();
                return Some(way);
            }
            if !came.contains_key(to) {
                came.insert(to, at);
                next.push_back(to);
            }
        }
    }
    None
}

fn shown(module: &Module) -> String {
    if module.is_empty() { "the crate's root".to_owned() } else { module.join("::") }
}

/// The import cycles of a crate as text, each once.
fn cycles(of: &Path, files: &[PathBuf]) -> Vec<String> {
    let imports_of = imports_of(of, files);
    let mut reported: BTreeSet<BTreeSet<Module>> = BTreeSet::new();
    let mut words = Vec::new();
    for start in imports_of.keys() {
        let Some(way) = cycle(&imports_of, start) else { continue };
        if reported.insert(way.iter().cloned().collect()) {
            let steps: Vec<String> = way
                .iter()
                .zip(way.iter().cycle().skip(1))
                .map(|(from, to)| {
                    let names: Vec<&str> = imports_of[from][to].iter().map(String::as_str).take(5).collect();
                    format!("\n    {} takes {} from {}", shown(from), names.join(", "), shown(to))
                })
                .collect();
            words.push(format!("{}:{}", of.strip_prefix(ROOT).unwrap().display(), steps.concat()));
        }
    }
    words
}

#[test]
fn no_crate_has_an_import_cycle() {
    let mut found = BTreeMap::new();
    crates(Path::new(ROOT), &mut found, Path::new(ROOT));
    assert!(found.len() > 10, "the rooms were not found: {:?}", found.keys());
    let words: Vec<String> = found.iter().flat_map(|(of, files)| cycles(of, files)).collect();
    assert!(
        words.is_empty(),
        "{} cycles. What several files need stands in one that takes from none of them:\n{}",
        words.len(),
        words.join("\n")
    );
}

#[test]
fn an_import_cycle_is_found_with_its_imports() {
    let dir = tempfile::tempdir().unwrap();
    let files: Vec<PathBuf> = [
        ("lib.rs", "mod a; mod b; pub use a::A;"),
        ("a.rs", "use super::b::{B, c::C}; pub struct A(B, C); #[cfg(test)] mod tests { use crate::A; }"),
        ("b/mod.rs", "pub mod c; pub struct B;"),
        ("b/c.rs", "pub struct C; fn f() -> usize { size_of::<crate::a::A>() }"),
    ]
    .into_iter()
    .map(|(name, source)| {
        let file = dir.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, source).unwrap();
        file
    })
    .collect();
    let imports_of = imports_of(dir.path(), &files);
    let names = |modules: &[&str]| modules.iter().map(|part| (*part).to_owned()).collect::<Module>();
    assert_eq!(cycle(&imports_of, &names(&["a"])), Some(vec![names(&["a"]), names(&["b", "c"])]));
    assert_eq!(cycle(&imports_of, &names(&["b"])), None);
    assert_eq!(cycle(&imports_of, &names(&[])), None);
}
