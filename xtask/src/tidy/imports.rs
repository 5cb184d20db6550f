//! Import cycles between the modules of a crate, computed from their `use` lines.
//!
//! A module and those below it are one node beside the other modules of their parent, and may import each other. A
//! re-export counts as the module that it leads to, not as the module that contains it. Imports of tests do not count.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A module as the names from the root of its crate.
type Module = Vec<String>;

/// The imports of each module and those below it: the other modules of its parent that they need.
type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// The cycles in these source files, named by their paths from the root of the workspace.
pub(super) fn faults(sources: &BTreeMap<String, String>) -> Vec<String> {
    let mut crates: BTreeMap<&str, BTreeMap<Module, &str>> = BTreeMap::new();
    for (path, text) in sources {
        let Some((directory, file)) = path.split_once("/src/") else {
            continue;
        };
        let library = sources.contains_key(&format!("{directory}/src/lib.rs"));
        if let Some(module) = module(file, library) {
            let text = without_tests(text);
            crates.entry(directory).or_default().insert(module, text);
        }
    }
    let mut faults = Vec::new();
    for (directory, texts) in crates {
        for (module, cycle) in cycles(&imports(&texts)) {
            let names = cycle
                .iter()
                .chain([&module])
                .map(|module| module.join("::"));
            let names: Vec<_> = names.collect();
            let cycle = names.join(" -> ");
            faults.push(format!("{directory}: an import cycle: {cycle}"));
        }
    }
    faults
}

/// The module in a file of `src`, unless it has tests only. Programs beside the crate's root are crates of their own.
fn module(file: &str, library: bool) -> Option<Module> {
    let mut names: Module = file
        .strip_suffix(".rs")?
        .split('/')
        .map(str::to_owned)
        .collect();
    match names.last()?.as_str() {
        _ if names[0] == "bin" || names.iter().any(|name| name == "tests") => return None,
        "main" if names.len() == 1 && library => return None,
        "main" | "lib" if names.len() == 1 => names.clear(),
        "mod" => drop(names.pop()),
        _ => {}
    }
    Some(names)
}

/// Each module that is part of a cycle, with the shortest one from there.
fn cycles(imports: &Imports) -> Vec<(Module, Vec<Module>)> {
    let cycle = |start: &Module| {
        let mut paths = VecDeque::from([vec![start]]);
        let mut reached = BTreeSet::new();
        while let Some(path) = paths.pop_front() {
            let last = path[path.len() - 1];
            for next in imports.get(last).into_iter().flatten() {
                if next == start {
                    return Some(path.into_iter().cloned().collect());
                }
                if reached.insert(next) {
                    paths.push_back([&path[..], &[next]].concat());
                }
            }
        }
        None
    };
    let modules = imports.keys();
    modules
        .filter_map(|module| Some((module.clone(), cycle(module)?)))
        .collect()
}

fn imports(texts: &BTreeMap<Module, &str>) -> Imports {
    let mut paths = Vec::new();
    let mut exports = BTreeMap::new();
    for (module, text) in texts {
        for Use { public, path, name } in used(text) {
            let Some(path) = absolute(module, &path, texts) else {
                continue;
            };
            if public {
                exports.insert([module.as_slice(), &[name]].concat(), path.clone());
            }
            paths.push((module, path));
        }
    }
    let mut imports = Imports::new();
    for (module, path) in paths {
        let target = definition(path, &exports, texts);
        let common = module.iter().zip(&target).take_while(|(a, b)| a == b);
        let common = common.count();
        if let (Some(from), Some(to)) = (module.get(..=common), target.get(..=common)) {
            imports
                .entry(from.to_vec())
                .or_default()
                .insert(to.to_vec());
        }
    }
    imports
}

/// The module that defines an item: behind all re-exports, the longest part of the path that is a module.
fn definition(
    mut path: Module,
    exports: &BTreeMap<Module, Module>,
    modules: &BTreeMap<Module, &str>,
) -> Module {
    // More re-exports than this form a cycle.
    for _ in 0..10 {
        let mut lengths = (0..=path.len()).rev();
        let len = lengths.find(|len| modules.contains_key(&path[..*len]));
        let len = len.unwrap_or_default();
        match path.get(..=len).and_then(|name| exports.get(name)) {
            Some(target) if *target != path[..=len] => {
                path = [target.as_slice(), &path[len + 1..]].concat();
            }
            _ => {
                path.truncate(len);
                break;
            }
        }
    }
    path
}

/// A path from the root of the crate. `None` for paths into other crates.
fn absolute(
    module: &[String],
    path: &[String],
    modules: &BTreeMap<Module, &str>,
) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module, rest].concat()),
        "super" => {
            let ups = path.iter().take_while(|name| *name == "super").count();
            let base = &module[..module.len().checked_sub(ups)?];
            Some([base, &path[ups..]].concat())
        }
        _ => {
            let child = [module, &path[..1]].concat();
            modules
                .contains_key(&child)
                .then(|| [module, path].concat())
        }
    }
}

/// One name that a `use` line brings in.
struct Use {
    public: bool,
    path: Vec<String>,
    name: String,
}

fn used(text: &str) -> Vec<Use> {
    let lines = text.lines();
    let lines = lines.map(|line| line.split("//").next().unwrap_or_default().trim());
    let code = lines.collect::<Vec<_>>().join(" ");
    let mut used = Vec::new();
    let statements = code.split(';').filter_map(|code| code.rsplit_once("use "));
    for (before, tree) in statements {
        if !before.is_empty() && !before.ends_with(' ') {
            continue;
        }
        let public = before.ends_with("pub ") || before.ends_with(") ");
        expand(tree, &mut |path| {
            let (path, alias) = path.split_once(" as ").unwrap_or((path, ""));
            let path = path.trim_end_matches("::self").split("::");
            let path: Vec<_> = path.map(str::to_owned).collect();
            let name = path.last().filter(|_| alias.is_empty());
            let name = name.map_or(alias, String::as_str).to_owned();
            used.push(Use { public, path, name });
        });
    }
    used
}

/// Calls `found` with each path in a tree such as `a::{b, c::{self, d as e}}`.
fn expand(tree: &str, found: &mut dyn FnMut(&str)) {
    let Some((prefix, rest)) = tree.split_once('{') else {
        return found(tree.trim());
    };
    let mut depth = 0;
    let body = rest.rsplit_once('}').map_or(rest, |(body, _)| body);
    let parts = body.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
        expand(&format!("{prefix}{part}"), found);
    }
}

/// The text before the tests at its end.
pub(super) fn without_tests(text: &str) -> &str {
    let (code, _) = text.split_once("\nmod tests {").unwrap_or((text, ""));
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(files: &[(&str, &str)]) -> Vec<String> {
        let source =
            |(path, text): &(&str, &str)| (format!("crates/a/src/{path}.rs"), (*text).to_owned());
        faults(&files.iter().map(source).collect())
    }

    const CYCLE: [(&str, &str); 4] = [
        ("lib", "mod b;\nmod c;\nmod d;\n"),
        ("b", "use crate::{\n    c::C, // why\n};\n"),
        ("c", "pub(crate) use super::d::{self, D as E};\n"),
        ("d/mod", "fn f() {\n    use crate::b::B;\n}\n"),
    ];

    #[test]
    fn a_cycle_is_printed_from_each_of_its_modules() {
        let faults = faults_of(&CYCLE);
        assert_eq!(faults.len(), 3);
        assert_eq!(faults[0], "crates/a: an import cycle: b -> c -> d -> b");
        assert!(faults_of(&CYCLE[..3]).is_empty());
    }

    #[test]
    fn a_module_and_those_below_it_are_one_node() {
        let parent = ("b/mod", "use self::c::C;\npub struct B;\n");
        let child = ("b/c", "use super::B;\n");
        assert!(faults_of(&[parent, child, ("lib", "")]).is_empty());
        let grandchild = ("b/c/d", "use crate::b::{self, B};\n");
        let user = ("b/mod", "use self::c::d::D;\npub struct B;\n");
        assert!(faults_of(&[user, child, grandchild, ("lib", "")]).is_empty());
        let other = ("e", "use crate::b::B;\n");
        assert!(faults_of(&[user, child, grandchild, other, ("lib", "")]).is_empty());
        let through_parent = ("b/c", "use crate::e::E;\n");
        let lines = faults_of(&[user, through_parent, grandchild, other, ("lib", "")]);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0], "crates/a: an import cycle: b -> e -> b");
    }

    #[test]
    fn a_re_export_counts_as_its_definition() {
        let root = ("b/mod", "pub use self::c::C;\npub use self::d::*;\n");
        let c = ("b/c", "struct C;\n");
        let d = ("b/d", "use crate::b::C;\n");
        let e = ("b/e/mod", "use crate::b::C;\n");
        assert!(faults_of(&[root, c, d, e, ("lib", "pub use b::C;\n")]).is_empty());
        let tied = ("b/c", "use crate::b::e::E;\n");
        let lines = faults_of(&[root, tied, d, e, ("lib", "")]);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0], "crates/a: an import cycle: b::c -> b::e -> b::c");
    }

    #[test]
    fn tests_and_programs_do_not_count() {
        let b = ("b", "use crate::c::C;\n#[cfg(test)]\nmod tests;\n");
        let tests = ("b/tests", "use crate::d::D;\n");
        let c = ("c", "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n");
        let d = ("d", "use crate::c::C;\n");
        let program = ("bin/b", "use crate::c::C;\n");
        assert!(faults_of(&[b, tests, c, d, program, ("lib", "")]).is_empty());
    }
}
