//! Text fixtures: cases with blank lines between them, each a directive, the lines of its input,
//! `----` and what is expected. Lines that begin with `#` before a directive are comments.
//!
//! With `UPDATE_FIXTURES=1` in the environment the expectations are written anew, to be reviewed.

use std::fmt::Write;
use std::path::PathBuf;

/// Runs every case of a file of `tests/fixtures` and compares.
pub(crate) fn run(file: &str, answer: impl Fn(&str, &str) -> String) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let (mut fresh, mut wrong, mut count) = (String::new(), String::new(), 0);
    let mut lines = text.lines();
    while let Some(directive) = lines.next() {
        writeln!(fresh, "{directive}").unwrap();
        if directive.is_empty() || directive.starts_with('#') {
            continue;
        }
        let input: Vec<_> = lines.by_ref().take_while(|line| *line != "----").collect();
        let expected: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let (input, expected) = (input.join("\n"), expected.join("\n"));
        let found = answer(directive, &input);
        if found != expected {
            writeln!(wrong, "\n{directive}\n{input}\n---- expected\n{expected}").unwrap();
            writeln!(wrong, "---- found\n{found}").unwrap();
        }
        let behind = if input.is_empty() { "" } else { "\n" };
        write!(fresh, "{input}{behind}----\n{found}\n\n").unwrap();
        count += 1;
    }
    assert!(count > 0, "{file} has no cases");
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        std::fs::write(path, fresh.trim_end().to_owned() + "\n").unwrap();
        return;
    }
    assert!(wrong.is_empty(), "{file}:{wrong}");
}
