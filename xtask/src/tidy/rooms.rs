//! Rooms: which crate may import which.
//!
//! Crates are in the order of `CRATES`. Each may import what stands behind it in the list, and nothing before it.

use super::Tree;

/// The crates, from the one that may know everything to those that know nothing, each with the crates behind it
/// that it may not know all the same.
const CRATES: [(&str, &[&str]); 12] = [
    ("masthead", &[]),
    ("controller", &["server", "store"]),
    ("informer", &["server", "store"]),
    ("server", &["upstream"]),
    ("sim", &["upstream", "store"]),
    ("upstream", &["store"]),
    ("store", &["reflector", "cache", "compact"]),
    ("reflector", &["compact"]),
    ("compact", &["cache"]),
    ("cache", &[]),
    ("core", &[]),
    ("lab", &[]),
];

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending("/Cargo.toml") {
        let Some(name) = path.strip_prefix("crates/").and_then(|it| it.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        let Some(place) = CRATES.iter().position(|(known, _)| *known == name) else {
            findings.push(format!("{path}: the crate has no place in xtask/src/tidy/rooms.rs"));
            continue;
        };
        for imported in dependencies(text) {
            let is_below = CRATES[place + 1..].iter().any(|(below, _)| *below == imported);
            if !is_below || CRATES[place].1.contains(&imported) {
                findings.push(format!("{path}: {name} may not know {imported}"));
            }
        }
    }
    findings
}

/// The crates of the workspace that a manifest's `[dependencies]` name.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let section = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let section = section.take_while(|line| !line.starts_with('['));
    section.filter_map(|line| {
        let name = line.split(['.', ' ', '=']).next()?;
        name.strip_prefix("masthead-")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_manifest(name: &str, imported: &str) -> Vec<String> {
        let path = format!("crates/{name}/Cargo.toml");
        let text = format!(
            "[package]\n\n[dependencies]\nserde.workspace = true\nmasthead-{imported}.workspace = true\n\n[dev-dependencies]\nmasthead-sim.workspace = true\n"
        );
        check(&Tree::of(&[(&path, &text)]))
    }

    #[test]
    fn a_crate_may_know_what_is_below_it_and_nothing_else() {
        assert_eq!(check_manifest("cache", "core"), [""; 0]);
        assert_eq!(
            check_manifest("core", "cache"),
            ["crates/core/Cargo.toml: core may not know cache"]
        );
        let found = check_manifest("informer", "server");
        assert_eq!(found, ["crates/informer/Cargo.toml: informer may not know server"]);
        let unknown = check_manifest("elsewhere", "core");
        assert!(unknown[0].contains("has no place"), "{unknown:?}");
    }
}
