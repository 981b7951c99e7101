//! Which module of a crate uses which, read from its sources.

use crate::workspace::Source;
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

/// The path of a module below the crate's root: empty for the root itself.
pub type Module = Vec<String>;

/// One crate's modules, without those of its tests.
#[derive(Default)]
pub struct Modules {
    /// What each module brings into scope by `use`: the name there, and the path that it stands for.
    imports: BTreeMap<Module, BTreeMap<String, Vec<String>>>,
    /// Every path that a module names.
    named: Vec<(Module, Vec<String>)>,
    /// Modules in files of their own that are declared for tests only.
    for_tests: BTreeSet<Module>,
}

impl Modules {
    /// Reads the files below a crate's `src` folder, which is given relative to the root as in [`Source::path`].
    pub fn read(files: &[Source], src: &str) -> Result<Modules, String> {
        let mut modules = Modules::default();
        for file in files {
            let Some(path) = file.path.strip_prefix(src).and_then(|path| path.strip_suffix(".rs")) else {
                continue;
            };
            let mut module: Module = path.trim_matches('/').split('/').map(str::to_owned).collect();
            if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
                module.pop();
            }
            if module.iter().any(|name| name == "tests" || name == "fuzzing" || name == "bin") {
                continue;
            }
            let parsed = syn::parse_file(&file.text).map_err(|error| format!("{}: {error}", file.path))?;
            modules.imports.entry(module.clone()).or_default();
            Reader { modules: &mut modules, module }.visit_file(&parsed);
        }
        Ok(modules)
    }

    /// Each use of one module by another, as often as it is named.
    pub fn uses(&self) -> Vec<(&Module, Module)> {
        let found = self.named.iter().filter_map(|(user, path)| {
            let used = self.module_of(user, path, 0)?;
            let is_for_tests = (1..=user.len()).any(|len| self.for_tests.contains(&user[..len]));
            (used != *user && !is_for_tests).then_some((user, used))
        });
        found.collect()
    }

    /// The module that holds what a path names.
    fn module_of(&self, from: &Module, path: &[String], depth: u32) -> Option<Module> {
        const REEXPORTS_MAX: u32 = 16;
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Module::new(),
            "self" => from.clone(),
            "super" => from.split_last()?.1.to_vec(),
            child => {
                let below = [from.as_slice(), &[child.to_owned()]].concat();
                self.imports.contains_key(&below).then_some(below)?
            }
        };
        while let Some((next, behind)) = rest.split_first() {
            let below = [at.as_slice(), std::slice::from_ref(next)].concat();
            if next == "super" {
                at.pop();
            } else if self.imports.contains_key(&below) {
                at = below;
            } else {
                // An item of this module's own, or one that it has from elsewhere.
                let elsewhere = self.imports.get(&at).and_then(|names| names.get(next));
                return match elsewhere {
                    Some(path) if depth < REEXPORTS_MAX => self.module_of(&at, path, depth + 1),
                    _ => Some(at),
                };
            }
            rest = behind;
        }
        Some(at)
    }
}

/// Walks one file.
struct Reader<'a> {
    modules: &'a mut Modules,
    module: Module,
}

impl Reader<'_> {
    fn import(&mut self, tree: &syn::UseTree, before: &[String]) {
        let with = |ident: &syn::Ident| [before, &[ident.to_string()]].concat();
        let (path, name) = match tree {
            syn::UseTree::Path(path) => return self.import(&path.tree, &with(&path.ident)),
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|item| self.import(item, before));
            }
            syn::UseTree::Glob(_) => return self.modules.named.push((self.module.clone(), before.to_vec())),
            syn::UseTree::Name(name) if name.ident == "self" => {
                (before.to_vec(), before.last().cloned().unwrap_or_default())
            }
            syn::UseTree::Name(name) => (with(&name.ident), name.ident.to_string()),
            syn::UseTree::Rename(rename) => (with(&rename.ident), rename.rename.to_string()),
        };
        self.modules.named.push((self.module.clone(), path.clone()));
        self.modules.imports.entry(self.module.clone()).or_default().insert(name, path);
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_for_tests(&item.attrs) && item.content.is_none() {
            let module = [self.module.as_slice(), &[item.ident.to_string()]].concat();
            self.modules.for_tests.insert(module);
        }
        if is_for_tests(&item.attrs) || item.content.is_none() {
            return;
        }
        self.module.push(item.ident.to_string());
        self.modules.imports.entry(self.module.clone()).or_default();
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            syn::Item::Const(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let names = path.segments.iter().map(|segment| segment.ident.to_string());
            self.modules.named.push((self.module.clone(), names.collect()));
        }
        visit::visit_path(self, path);
    }
}

/// Whether something is compiled for tests, fuzzing or model checking only.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let mut only_there = BTreeSet::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")) {
        let Ok(list) = attribute.meta.require_list() else { continue };
        let condition = list.tokens.to_string();
        for word in ["test", "fuzzing", "loom"] {
            let names = condition.split(|ch: char| !ch.is_alphanumeric() && ch != '_');
            if names.clone().any(|name| name == word) && !condition.contains("not") {
                only_there.insert(word);
            }
        }
    }
    !only_there.is_empty()
}
