//! What cargo knows of this workspace and everything it depends on.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::tools::{cargo, output};

/// All packages, and which needs which.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
    /// By their ids.
    pub(crate) packages: BTreeMap<String, Package>,
}

/// A package.
#[derive(Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Whether it is one of ours.
    pub(crate) local: bool,
    pub(crate) licence: Option<String>,
    /// The names of what its manifest asks for besides tests, unless it is optional.
    pub(crate) required: BTreeSet<String>,
    /// The ids of what it is built from, tests left out, with the features in use.
    pub(crate) built_from: Vec<String>,
}

impl Metadata {
    /// Asks cargo. The network is used for packages that have not been fetched yet, because they
    /// are for other systems, and only for them.
    pub(crate) fn load() -> Result<Self, String> {
        output(cargo().args(["fetch", "--locked"]))?;
        let format = ["--format-version", "1", "--all-features"];
        let text = output(
            cargo()
                .args(["metadata", "--offline", "--locked"])
                .args(format),
        )?;
        let value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let metadata = Self::parse(&value);
        match metadata.packages.len() {
            0 => Err("cargo metadata names no package".into()),
            _ => Ok(metadata),
        }
    }

    /// The package of ours that has this name.
    pub(crate) fn ours(&self, name: &str) -> Result<&Package, String> {
        self.packages
            .values()
            .find(|package| package.local && package.name == name)
            .ok_or_else(|| format!("there is no package {name} in the workspace"))
    }

    /// Everything that a package of ours is built from, tests left out, and itself.
    pub(crate) fn tree(&self, name: &str) -> Result<Vec<&Package>, String> {
        let mut seen = BTreeSet::new();
        let mut tree = vec![self.ours(name)?];
        let mut next = 0;
        while let Some(package) = tree.get(next).copied() {
            let needed = package.built_from.iter();
            let fresh = needed.filter(|id| seen.insert(id.as_str()));
            tree.extend(fresh.filter_map(|id| self.packages.get(id)));
            next += 1;
        }
        Ok(tree)
    }

    fn parse(value: &Value) -> Self {
        let nodes = array(&value["resolve"]["nodes"]);
        let built_from: BTreeMap<_, _> = nodes
            .map(|node| {
                let deps =
                    array(&node["deps"]).filter(|dep| array(&dep["dep_kinds"]).any(is_build));
                let ids = deps.filter_map(|dep| dep["pkg"].as_str());
                (node["id"].as_str(), ids.map(str::to_owned).collect())
            })
            .collect();
        let packages = array(&value["packages"]).map(|package| {
            let id = package["id"].as_str();
            let required = array(&package["dependencies"])
                .filter(|dep| is_build(dep) && dep["optional"] != true);
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let package = Package {
                name: text(&package["name"]).unwrap_or_default(),
                version: text(&package["version"]).unwrap_or_default(),
                local: package["source"].is_null(),
                licence: text(&package["license"]),
                required: required.filter_map(|dep| text(&dep["name"])).collect(),
                built_from: built_from.get(&id).cloned().unwrap_or_default(),
            };
            (id.unwrap_or_default().to_owned(), package)
        });
        Self {
            packages: packages.collect(),
        }
    }
}

/// Whether a dependency is for more than tests.
fn is_build(dependency: &Value) -> bool {
    dependency["kind"] != "dev"
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tests_are_left_out_of_the_tree() {
        let node = |id: &str, deps: Value| json!({"id": id, "deps": deps});
        let dep = |id: &str, kind: Value| json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        let package = |id: &str| json!({"id": id, "name": id, "source": null, "dependencies": []});
        let metadata = Metadata::parse(&json!({
            "packages": [package("a"), package("b"), package("c"), package("d")],
            "resolve": {"nodes": [
                node("a", json!([dep("b", Value::Null), dep("c", json!("dev"))])),
                node("b", json!([dep("d", json!("build")), dep("a", json!("dev"))])),
            ]},
        }));
        let tree = metadata.tree("a").unwrap();
        let names: Vec<_> = tree.iter().map(|package| &*package.name).collect();
        assert_eq!(names, ["a", "b", "d"]);
        assert!(metadata.tree("e").is_err());
    }

    #[test]
    fn optional_dependencies_are_not_required() {
        let metadata = Metadata::parse(&json!({
            "packages": [{"id": "a", "name": "a", "source": null, "dependencies": [
                {"name": "one", "kind": null, "optional": false},
                {"name": "two", "kind": null, "optional": true},
                {"name": "three", "kind": "dev", "optional": false},
            ]}],
        }));
        let required = &metadata.ours("a").unwrap().required;
        assert_eq!(required.iter().collect::<Vec<_>>(), ["one"]);
    }
}
