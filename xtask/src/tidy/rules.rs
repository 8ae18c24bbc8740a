//! The rules of the contract: cited ones exist, and each is held by a test that names it.
//!
//! A rule is defined by a line of `docs/contract/*.md` that begins with `- **W7**`. It is cited by its id in
//! a comment, in a paper or in the name of a test. A test holds the rules that its name begins with, as in
//! `w07_…`, `w09_w15_…` or `planted_w07_…`; so does a history `w7_….txt` below `crates/sim/tests/histories`, which is also
//! a planted violation. Exceptions stand in a table of `docs/contract/README.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Tree;

/// The families of rules, by the first letter of their ids.
const FAMILIES: &str = "WRSLKIVPGUA";
/// The families that need a planted violation of each rule, too.
const PLANTED_FAMILIES: &str = "WSA";

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    let defined = definitions(tree, &mut findings);
    // The tests of this check cite rules that do not exist.
    let all = tree.ending(".rs").chain(tree.ending(".md"));
    for (path, text) in all.filter(|(path, _)| !path.starts_with("xtask/src/tidy/")) {
        for (line, id) in citations(path, text) {
            if !defined.contains(&id) {
                findings.push(format!("{path}:{line}: rule {id} is not in docs/contract"));
            }
        }
    }
    let held = held(tree);
    let excepted = exceptions(tree, &mut findings);
    for id in &defined {
        let needs_planted = PLANTED_FAMILIES.contains(&id[..1]);
        let needs = [("test", true), ("planted", needs_planted)];
        for (what, _) in needs.iter().filter(|(_, needed)| *needed) {
            let is_held = held.get(*what).is_some_and(|ids| ids.contains(id));
            let is_excepted = excepted.contains(&((*what).to_owned(), id.clone()));
            if !is_held && !is_excepted {
                findings.push(format!("rule {id} has no {what} that names it"));
            }
            if is_held && is_excepted {
                findings.push(format!("rule {id} has a {what}, so it is no exception"));
            }
        }
    }
    findings
}

fn definitions(tree: &Tree, findings: &mut Vec<String>) -> BTreeSet<String> {
    let mut defined = BTreeSet::new();
    let contract = tree.ending(".md").filter(|(path, _)| path.starts_with("docs/contract/"));
    for (path, text) in contract {
        for (line, text) in text.lines().enumerate() {
            let id = text.strip_prefix("- **").and_then(|rest| rest.split_once("**"));
            let Some((id, rest)) = id.filter(|(id, _)| is_id(id)) else { continue };
            if !defined.insert(id.to_owned()) {
                findings.push(format!("{path}:{}: rule {id} is defined twice", line + 1));
            }
            if rest.trim().is_empty() {
                findings.push(format!("{path}:{}: rule {id} says nothing", line + 1));
            }
        }
    }
    defined
}

/// The ids that a file cites, with their lines. Of code only comments count: `V4` is also a name in Rust.
fn citations(path: &str, text: &str) -> Vec<(usize, String)> {
    let is_code = Path::new(path).extension().is_some_and(|extension| extension == "rs");
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let part =
            if is_code { line.split_once("//").map_or("", |(_, comment)| comment) } else { line };
        let words = part.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        found.extend(words.filter(|word| is_id(word)).map(|id| (number + 1, id.to_owned())));
        let (_, named) = test_name(line).map(rules_of).unwrap_or_default();
        found.extend(named.into_iter().map(|id| (number + 1, id)));
    }
    found
}

/// The rules that are held by a test and those with a planted violation.
fn held(tree: &Tree) -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut held: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    for (_, text) in tree.ending(".rs") {
        for (is_planted, ids) in text.lines().filter_map(test_name).map(rules_of) {
            held.entry(if is_planted { "planted" } else { "test" }).or_default().extend(ids);
        }
    }
    for (path, _) in tree.ending(".txt") {
        let Some(name) = path.strip_prefix("crates/sim/tests/histories/") else { continue };
        let (_, ids) = rules_of(name);
        held.entry("test").or_default().extend(ids.iter().cloned());
        held.entry("planted").or_default().extend(ids);
    }
    held
}

/// The exceptions: rows `| W1, W2 | planted | why |` of a table.
fn exceptions(tree: &Tree, findings: &mut Vec<String>) -> BTreeSet<(String, String)> {
    let mut excepted = BTreeSet::new();
    let path = "docs/contract/README.md";
    for (number, line) in tree.text(path).unwrap_or_default().lines().enumerate() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, ids, what @ ("test" | "planted"), why, _] = cells[..] else { continue };
        if why.is_empty() {
            findings.push(format!("{path}:{}: an exception without a reason", number + 1));
        }
        let ids = ids.split(',').map(|id| id.trim().to_owned());
        excepted.extend(ids.map(|id| (what.to_owned(), id)));
    }
    excepted
}

/// The name of the function that a line declares.
fn test_name(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("fn ")?;
    rest.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next()
}

/// Whether a test is about a planted violation, and the rules that its name begins with: `w9_w15_…` has two.
fn rules_of(name: &str) -> (bool, Vec<String>) {
    let rest = name.strip_prefix("planted_");
    let words: Vec<_> = rest.unwrap_or(name).split('_').collect();
    let ids: Vec<_> = words.iter().map_while(|word| rule_of_word(word)).collect();
    // A name that says nothing else, such as `p99`, is that of a helper.
    let is_test = ids.len() < words.len();
    (rest.is_some(), ids.into_iter().filter(|_| is_test).collect())
}

/// The id that a word of a test's name stands for: `r07` is R7.
fn rule_of_word(word: &str) -> Option<String> {
    let family = word.chars().next().filter(char::is_ascii_lowercase)?.to_ascii_uppercase();
    let id = format!("{family}{}", word[1..].trim_start_matches('0'));
    is_id(&id).then_some(id)
}

/// Whether a word is the id of a rule: a family, one or two digits, perhaps a letter.
fn is_id(word: &str) -> bool {
    let Some(rest) = word.strip_prefix(|family: char| FAMILIES.contains(family)) else {
        return false;
    };
    let digits = rest.trim_end_matches(['a', 'b', 'c']);
    let is_number = (1..=2).contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_digit());
    is_number && rest.len() - digits.len() <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRACT: (&str, &str) =
        ("docs/contract/reflector.md", "- **R7** A stream is resumed.\n");

    fn check_with(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[CONTRACT, (path, text)]))
    }

    #[test]
    fn a_rule_with_a_test_that_names_it_is_fine() {
        let test = "/// R7: at once.\nfn r07_is_resumed() {}";
        assert_eq!(check_with("crates/a/src/lib.rs", test), [""; 0]);
        let second = "- **R8** A list follows.\n";
        let both =
            Tree::of(&[CONTRACT, ("docs/contract/wire.md", second), ("a.rs", "fn r7_r8_x() {}")]);
        assert_eq!(check(&both), [""; 0]);
    }

    #[test]
    fn an_unknown_rule_is_found_in_comments_papers_and_names_of_tests_but_not_in_code() {
        let held = "fn r7_is_resumed() {}\n";
        let cited = |path, text: &str| check_with(path, &format!("{held}{text}"));
        assert_eq!(cited("a.rs", "// as R8 says"), ["a.rs:2: rule R8 is not in docs/contract"]);
        assert_eq!(cited("a.rs", "fn w99_x() {}"), ["a.rs:2: rule W99 is not in docs/contract"]);
        assert_eq!(cited("a.rs", "let a = IpAddr::V4(x);"), [""; 0]);
        let paper = Tree::of(&[CONTRACT, ("a.rs", held), ("README.md", "see S3.")]);
        assert_eq!(check(&paper), ["README.md:1: rule S3 is not in docs/contract"]);
    }

    #[test]
    fn a_rule_without_a_test_is_found_unless_it_is_an_exception_with_a_reason() {
        assert_eq!(check_with("a.rs", ""), ["rule R7 has no test that names it"]);
        let excepted = "| R7 | test | held by every run |\n";
        assert_eq!(check_with("docs/contract/README.md", excepted), [""; 0]);
        let without = check_with("docs/contract/README.md", "| R7 | test | |\n");
        assert_eq!(without, ["docs/contract/README.md:1: an exception without a reason"]);
        let both = Tree::of(&[
            CONTRACT,
            ("docs/contract/README.md", excepted),
            ("a.rs", "fn r07_is_resumed() {}"),
        ]);
        assert_eq!(check(&both), ["rule R7 has a test, so it is no exception"]);
    }

    #[test]
    fn some_families_need_a_planted_violation_too() {
        let contract = ("docs/contract/invariants.md", "- **S3** No gap.\n");
        let test = ("a.rs", "fn s03_no_gap() {}");
        let missing = check(&Tree::of(&[contract, test]));
        assert_eq!(missing, ["rule S3 has no planted that names it"]);
        let planted = ("b.rs", "fn planted_s03_gap_is_caught() {}");
        assert_eq!(check(&Tree::of(&[contract, test, planted])), [""; 0]);
        let history = ("crates/sim/tests/histories/s3_gap.txt", "# expect: S3");
        assert_eq!(check(&Tree::of(&[contract, history])), [""; 0]);
    }

    #[test]
    fn a_rule_is_defined_once() {
        let twice = ("docs/contract/wire.md", "- **R7** Again.\n");
        let found = check(&Tree::of(&[CONTRACT, twice, ("a.rs", "fn r7_x() {}")]));
        assert_eq!(found, ["docs/contract/wire.md:1: rule R7 is defined twice"]);
    }
}
