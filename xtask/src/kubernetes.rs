//! The version of Kubernetes that `k8s-openapi` is built for: binaries and tests choose one, libraries never.
//!
//! The build script of `k8s-openapi` refuses two versions at once, so a library that chose one could not be
//! used by a program that needs another.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

const K8S_OPENAPI: &str = "k8s-openapi";

/// Crates of other projects that are built on `k8s-openapi`.
const BUILT_ON_IT: [&str; 5] = [K8S_OPENAPI, "kube", "kube-client", "kube-core", "kube-runtime"];

/// What `cargo metadata` says of the workspace.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
    features: BTreeMap<String, Vec<String>>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// None for a normal dependency, else `dev` or `build`.
    kind: Option<String>,
    features: Vec<String>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

/// Fails if a library of the workspace chooses a version of Kubernetes, or if a binary or the tests of a
/// library choose none.
pub(crate) fn check() -> Result<()> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--no-deps", "--format-version", "1", "--locked"]);
    let output = cargo.output().context("cargo metadata cannot be run")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata = serde_json::from_slice(&output.stdout).context("of cargo metadata")?;
    let wrong = violations(&metadata);
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

/// Every package that breaks the rule, and how.
fn violations(metadata: &Metadata) -> Vec<String> {
    let concerned = built_on_it(metadata);
    let packages = metadata.packages.iter().filter(|package| concerned.contains(&*package.name));
    packages
        .filter_map(|package| Some(format!("{}: {}", package.name, package.violation()?)))
        .collect()
}

/// The packages of the workspace that `k8s-openapi` is built for.
fn built_on_it(metadata: &Metadata) -> BTreeSet<&str> {
    let mut found = BTreeSet::from(BUILT_ON_IT);
    // Each round finds at least one more package or is the last.
    for _ in &metadata.packages {
        let found_before = found.len();
        for package in &metadata.packages {
            if package.dependencies.iter().any(|dependency| found.contains(&*dependency.name)) {
                found.insert(&package.name);
            }
        }
        if found.len() == found_before {
            break;
        }
    }
    found
}

impl Package {
    fn violation(&self) -> Option<&'static str> {
        let is_library =
            self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "lib"));
        let for_others = self.chooses_in(|kind| kind != Some("dev")) || self.forwards_a_version();
        match (is_library, for_others) {
            (true, true) => Some("a library must not choose a version of k8s-openapi"),
            (true, false) if !self.chooses_in(|kind| kind == Some("dev")) => {
                Some("the tests need a version of k8s-openapi: a dev-dependency with `latest`")
            }
            (false, false) => Some("a binary has to choose a version of k8s-openapi: `latest`"),
            _ => None,
        }
    }

    /// Returns `true` if a dependency of such a kind has a version.
    fn chooses_in(&self, is_kind: impl Fn(Option<&str>) -> bool) -> bool {
        let direct = self.dependencies.iter().filter(|dependency| dependency.name == K8S_OPENAPI);
        let mut of_kind = direct.filter(|dependency| is_kind(dependency.kind.as_deref()));
        of_kind.any(|dependency| dependency.features.iter().any(|feature| is_version(feature)))
    }

    /// Returns `true` if a feature of the package enables a version.
    fn forwards_a_version(&self) -> bool {
        let enabled = self.features.values().flatten();
        let mut forwarded = enabled.filter_map(|feature| {
            let (dependency, feature) = feature.split_once('/')?;
            (dependency.trim_end_matches('?') == K8S_OPENAPI).then_some(feature)
        });
        forwarded.any(is_version)
    }
}

fn is_version(feature: &str) -> bool {
    matches!(feature, "latest" | "earliest") || feature.starts_with("v1_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_keeps_the_rule() {
        check().expect("libraries leave the version to binaries");
    }

    /// The violations of a package with one target, these dependencies and these features.
    fn violations_of(target: &str, dependencies: &str, features: &str) -> Vec<String> {
        let package = format!(
            r#"{{"name": "it", "targets": [{{"kind": ["{target}"]}}], "dependencies": {dependencies}, "features": {features}}}"#
        );
        let below = r#"{"name": "below", "targets": [{"kind": ["lib"]}], "features": {}, "dependencies": [
            {"name": "kube-client", "kind": null, "features": []},
            {"name": "k8s-openapi", "kind": "dev", "features": ["latest"]}]}"#;
        let text = format!(r#"{{"packages": [{package}, {below}]}}"#);
        violations(&serde_json::from_str(&text).expect("it is written above"))
    }

    const DEV: &str = r#"{"name": "k8s-openapi", "kind": "dev", "features": ["latest"]}"#;

    #[test]
    fn a_library_leaves_the_version_to_others_and_its_tests_choose_one() {
        assert!(violations_of("lib", &format!("[{DEV}]"), "{}").is_empty());
        let plain = r#"{"name": "k8s-openapi", "kind": null, "features": ["std"]}"#;
        assert!(violations_of("lib", &format!("[{plain}, {DEV}]"), "{}").is_empty());
        for version in ["latest", "earliest", "v1_34"] {
            for kind in ["null", "\"build\""] {
                let chosen = format!(
                    r#"{{"name": "k8s-openapi", "kind": {kind}, "features": ["{version}"]}}"#
                );
                let wrong = violations_of("lib", &format!("[{chosen}, {DEV}]"), "{}");
                assert_eq!(wrong, ["it: a library must not choose a version of k8s-openapi"]);
            }
            for link in ["", "?"] {
                let feature = format!(r#"{{"default": ["k8s-openapi{link}/{version}"]}}"#);
                assert_eq!(violations_of("lib", &format!("[{plain}, {DEV}]"), &feature).len(), 1);
            }
        }
        let untested =
            violations_of("lib", r#"[{"name": "below", "kind": null, "features": []}]"#, "{}");
        assert!(untested[0].starts_with("it: the tests need a version"), "{untested:?}");
    }

    #[test]
    fn a_binary_chooses_a_version_if_anything_below_it_needs_one() {
        let below = r#"{"name": "below", "kind": null, "features": []}"#;
        let wrong = violations_of("bin", &format!("[{below}, {DEV}]"), "{}");
        assert!(wrong[0].starts_with("it: a binary has to choose a version"), "{wrong:?}");
        let chosen = r#"{"name": "k8s-openapi", "kind": null, "features": ["latest"]}"#;
        assert!(violations_of("bin", &format!("[{below}, {chosen}]"), "{}").is_empty());
        assert!(
            violations_of("bin", r#"[{"name": "clap", "kind": null, "features": []}]"#, "{}")
                .is_empty()
        );
    }
}
