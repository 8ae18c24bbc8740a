//! The naive selectors that the checker trusts.

use super::*;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn label(selector: &str, labels: &[(&str, &str)]) -> bool {
    LabelSelector::parse(selector).unwrap().matches(&map(labels))
}

fn field(selector: &str, fields: &[(&str, &str)]) -> bool {
    FieldSelector::parse(selector).unwrap().matches(&map(fields))
}

#[test]
fn every_label_operator_has_its_meaning() {
    let web = [("app", "web"), ("n", "5")];
    for yes in [
        "",
        " ",
        "app",
        "!tier",
        "app=web",
        "app == web",
        "app!=db",
        "tier!=x",
        "app in (db, web)",
        "app notin (db)",
        "tier notin (x)",
        "n>4",
        "n<6",
        "app=web,n",
    ] {
        assert!(label(yes, &web), "`{yes}` should match");
    }
    for no in [
        "tier",
        "!app",
        "app=db",
        "app!=web",
        "app in (db)",
        "app notin (web)",
        "n>5",
        "n<5",
        "app>1",
        "tier>1",
        "app=web,tier",
        "app=",
        "app in ()",
    ] {
        assert!(!label(no, &web), "`{no}` should not match");
    }
}

#[test]
fn empty_places_are_the_empty_value() {
    for selector in ["a=", "a==", "a in ()", "a in (,x)", "a in (x,)", "a=,b", "a,b="] {
        assert!(label(selector, &[("a", ""), ("b", "")]), "`{selector}`");
    }
    assert!(!label("a=", &[]));
    assert!(!label("a!=", &[("a", "")]));
}

#[test]
fn operator_words_may_be_keys_and_values() {
    assert!(label("in in (in)", &[("in", "in")]));
    assert!(label("notin", &[("notin", "")]));
    assert!(label("a=in", &[("a", "in")]));
    assert!(label("a in (in,notin)", &[("a", "notin")]));
}

#[test]
fn what_kubernetes_refuses_is_refused() {
    for bad in [
        ",",
        "a,",
        ",a",
        "a,,b",
        "!",
        "!!a",
        "!a=b",
        "a b",
        "a in",
        "a in x",
        "a in (x",
        "a in (x y)",
        "a=b=c",
        "a>x",
        "a>",
        "a>1.5",
        "a>-1",
        "-a",
        "a=-",
        "a/b/c",
        "/a",
        "A.b/c=d",
        "a=b)",
        "a(b)",
        "a=%",
    ] {
        assert!(LabelSelector::parse(bad).is_err(), "`{bad}` should be refused");
    }
    assert!(LabelSelector::parse(&format!("a={}", "x".repeat(63))).is_ok());
    assert!(LabelSelector::parse(&format!("a={}", "x".repeat(64))).is_err());
}

#[test]
fn field_terms_compare_and_absent_fields_are_empty() {
    let pod = [("spec.nodeName", "n1"), ("status.phase", "Running")];
    for yes in [
        "",
        "spec.nodeName=n1",
        "spec.nodeName==n1",
        "spec.nodeName!=n2",
        "x!=y",
        "x=",
        "spec.nodeName=n1,status.phase=Running",
        "spec.nodeName=n1,",
        ",",
    ] {
        assert!(field(yes, &pod), "`{yes}` should match");
    }
    for no in ["spec.nodeName=n2", "spec.nodeName!=n1", "x=y", "x!=", "status.phase= Running"] {
        assert!(!field(no, &pod), "`{no}` should not match");
    }
}

#[test]
fn escapes_in_field_values_are_undone() {
    assert!(field(r"a=1\,2\=3\\4", &[("a", r"1,2=3\4")]));
    assert!(field(r"a=x\\,b=y", &[("a", r"x\"), ("b", "y")]));
    for bad in ["a", r"a=\n", r"a=x\", "a=b=c", "a===b"] {
        assert!(FieldSelector::parse(bad).is_err(), "`{bad}` should be refused");
    }
}
