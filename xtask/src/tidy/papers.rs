//! Papers: links resolve, lines fit, files say what they are.

use super::Tree;

/// Longest line of a paper, in characters. Tables and lines with an address cannot be broken.
const COLUMNS_MAX: usize = 120;
/// What a program writes stands between such a line and the next one.
const GENERATED: &str = "<!-- Written by ";
const GENERATED_END: &str = "<!-- to here. -->";
/// Longest architecture, in lines: it is a tour.
const ARCHITECTURE_LINES_MAX: usize = 400;

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".md") {
        let mut is_code = false;
        let mut is_generated = false;
        for (number, line) in text.lines().enumerate() {
            let at = format!("{path}:{}", number + 1);
            is_code ^= line.starts_with("```");
            is_generated = (is_generated || line.starts_with(GENERATED)) && line != GENERATED_END;
            let can_be_broken =
                !is_code && !is_generated && !line.starts_with('|') && !line.contains("://");
            if can_be_broken && line.chars().count() > COLUMNS_MAX {
                findings.push(format!("{at}: longer than {COLUMNS_MAX} columns"));
            }
            if !is_code {
                let dead = links(line).filter(|link| !resolves(tree, path, link));
                findings.extend(dead.map(|link| format!("{at}: nothing at {link}")));
            }
        }
    }
    let changes = tree.text("CHANGELOG.md").unwrap_or_default();
    if !changes.lines().any(|line| line == "## Unreleased") {
        findings.push("CHANGELOG.md: no section `## Unreleased`".to_owned());
    }
    let lines = tree.text("ARCHITECTURE.md").unwrap_or_default().lines().count();
    if lines > ARCHITECTURE_LINES_MAX {
        findings.push(format!("ARCHITECTURE.md: {lines} lines, of {ARCHITECTURE_LINES_MAX}"));
    }
    for (path, text) in tree.ending(".rs") {
        if !text.starts_with("//!") {
            findings.push(format!("{path}: the first line says not what this file is (`//! …`)"));
        }
    }
    findings
}

/// The targets of the links in a line of Markdown.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// Whether a link leads to a file or folder, and to a heading if it names one. Addresses are not asked.
fn resolves(tree: &Tree, from: &str, link: &str) -> bool {
    if link.contains("://") || link.starts_with("mailto:") {
        return true;
    }
    let (target, heading) = link.split_once('#').unwrap_or((link, ""));
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let path = if target.is_empty() { from.to_owned() } else { joined(folder, target) };
    if !tree.has(path.trim_end_matches('/')) {
        return false;
    }
    let Some(text) = tree.text(&path).filter(|_| !heading.is_empty()) else { return true };
    text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == heading)
}

fn joined(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchor that a heading has.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGES: (&str, &str) = ("CHANGELOG.md", "# Changelog\n\n## Unreleased\n");

    fn check_with(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[CHANGES, (path, text)]))
    }

    #[test]
    fn dead_links_are_found_and_living_ones_are_not() {
        let found = check_with("docs/a.md", "see [b](../b.md), [c](../CHANGELOG.md)");
        assert_eq!(found, ["docs/a.md:1: nothing at ../b.md"]);
        assert_eq!(check_with("a.md", "[x](CHANGELOG.md#unreleased)\n[y](https://x.y/z)"), [""; 0]);
        let found = check_with("a.md", "[x](CHANGELOG.md#released)");
        assert_eq!(found, ["a.md:1: nothing at CHANGELOG.md#released"]);
        assert_eq!(check_with("a.md", "# The *first* one\n[x](#the-first-one)"), [""; 0]);
    }

    #[test]
    fn lines_have_up_to_120_columns_but_for_tables_and_addresses() {
        assert_eq!(check_with("a.md", &"ä".repeat(120)), [""; 0]);
        assert_eq!(check_with("a.md", &"x".repeat(121)), ["a.md:1: longer than 120 columns"]);
        let long = "x".repeat(121);
        assert_eq!(check_with("a.md", &format!("| {long} |")), [""; 0]);
        let generated = format!("<!-- Written by me -->\n{long}\n<!-- to here. -->\n{long}");
        assert_eq!(check_with("a.md", &generated), ["a.md:4: longer than 120 columns"]);
    }

    #[test]
    fn a_changelog_without_a_place_for_the_next_change_is_found() {
        let found = check(&Tree::of(&[("CHANGELOG.md", "## 1.0\n")]));
        assert_eq!(found, ["CHANGELOG.md: no section `## Unreleased`"]);
    }

    #[test]
    fn a_source_file_that_does_not_say_what_it_is_is_found() {
        let found = check_with("crates/a/src/b.rs", "use std::fmt;\n");
        assert_eq!(
            found,
            ["crates/a/src/b.rs: the first line says not what this file is (`//! …`)"]
        );
        assert_eq!(check_with("crates/a/src/b.rs", "//! Words.\n"), [""; 0]);
    }
}
