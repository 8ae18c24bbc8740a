//! Label selectors (W26).

use std::collections::{BTreeMap, BTreeSet};

use masthead_core::{LabelSelector, SelectorError};
use proptest::prelude::*;

use crate::fixture;

type Labels = BTreeMap<String, String>;

/// `a=1 b=2`.
fn labels(text: &str) -> Labels {
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap();
        (key.to_owned(), value.to_owned())
    };
    text.split_whitespace().map(pair).collect()
}

#[test]
fn w26_selectors_read_and_match_as_in_kubernetes() {
    fixture::run("label_selectors.txt", |directive, input| match directive {
        "parse" => match input.parse::<LabelSelector>() {
            Ok(selector) if selector.is_everything() => "everything".to_owned(),
            Ok(selector) => {
                assert_eq!(selector.to_string().parse(), Ok(selector.clone()), "{input}");
                selector.to_string()
            }
            Err(error) => format!("error: {error}"),
        },
        "match" => {
            let (selector, objects) = input.split_once('\n').unwrap();
            let selector: LabelSelector = selector.parse().unwrap();
            let answer = |line| if selector.matches(&labels(line)) { "yes" } else { "no" };
            objects.lines().map(answer).collect::<Vec<_>>().join("\n")
        }
        other => panic!("no directive {other:?}"),
    });
}

/// A term as it was meant, never parsed.
#[derive(Clone, Debug)]
struct Term {
    key: String,
    operator: &'static str,
    values: Vec<String>,
    number: i64,
}

impl Term {
    fn holds(&self, labels: &Labels) -> bool {
        let set: BTreeSet<&String> = self.values.iter().collect();
        let Some(label) = labels.get(&self.key) else {
            return matches!(self.operator, "!" | "!=" | "notin");
        };
        let first = &self.values[0];
        match self.operator {
            "" => true,
            "!" => false,
            "=" | "==" => label == first,
            "!=" => label != first,
            "in" => set.contains(label),
            "notin" => !set.contains(label),
            ">" => label.parse::<i64>().is_ok_and(|it| it > self.number),
            "<" => label.parse::<i64>().is_ok_and(|it| it < self.number),
            _ => unreachable!(),
        }
    }

    fn write(&self, space: &str) -> String {
        let Self { key, operator, values, number } = self;
        let (first, list) = (&values[0], values.join(&format!("{space},{space}")));
        match *operator {
            "" => key.clone(),
            "!" => format!("!{space}{key}"),
            "in" | "notin" => format!("{key} {operator}{space}({space}{list}{space})"),
            ">" | "<" => format!("{key}{space}{operator}{space}{number}"),
            _ => format!("{key}{space}{operator}{space}{first}"),
        }
    }
}

fn term() -> impl Strategy<Value = Term> {
    let operators = prop::sample::select(vec!["", "!", "=", "==", "!=", "in", "notin", ">", "<"]);
    let values = prop::collection::vec("[ab1]?|in|[0-9]", 1..5);
    ("[abc]|in|x\\.io/n", operators, values, 0..12_i64)
        .prop_map(|(key, operator, values, number)| Term { key, operator, values, number })
}

fn some_labels() -> impl Strategy<Value = Labels> {
    prop::collection::btree_map("[abc]|in|x\\.io/n", "[ab1]?|in|[0-9]{1,2}|-3", 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn selectors_agree_with_a_naive_matcher(
        terms in prop::collection::vec(term(), 0..5),
        objects in prop::collection::vec(some_labels(), 4),
        space in "[ \t\r\n]{0,2}",
    ) {
        let text: Vec<_> = terms.iter().map(|term| term.write(&space)).collect();
        let text = format!("{space}{}{space}", text.join(&format!("{space},")));
        let selector: LabelSelector = text.parse().unwrap();
        let again: LabelSelector = selector.to_string().parse().unwrap();
        prop_assert_eq!(&again, &selector);
        prop_assert_eq!(again.to_string(), selector.to_string());
        for labels in objects {
            let expected = terms.iter().all(|term| term.holds(&labels));
            prop_assert_eq!(selector.matches(&labels), expected, "{} on {:?}", text, labels);
        }
    }

    /// What is accepted at all prints as something that reads the same.
    #[test]
    fn any_text_is_refused_or_comes_back(text in r"([a-c/_.,=!()<> -]|in|notin|[0-9]){0,24}") {
        if let Ok(selector) = text.parse::<LabelSelector>() {
            prop_assert_eq!(selector.to_string().parse(), Ok(selector.clone()), "{}", text);
        }
    }

    #[test]
    fn any_text_is_read_without_panic(text in "\\PC{0,40}") {
        let _: Result<LabelSelector, SelectorError> = text.parse();
    }
}
