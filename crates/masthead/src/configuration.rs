//! The configuration file: the flags of a command under their own names, as YAML.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Command;
use serde_json::Value;

/// Makes what a configuration file says the defaults of the command that is called, if it takes one. The
/// file is the one that `--config` or `MASTHEAD_CONFIG` names.
pub(crate) fn apply(
    command: Command,
    arguments: impl Iterator<Item = OsString>,
) -> anyhow::Result<Command> {
    let arguments: Vec<OsString> = arguments.collect();
    let Some(path) = path(&arguments) else { return Ok(command) };
    let called = arguments.get(1).and_then(|it| it.to_str()).unwrap_or_default();
    let Some(found) = command.find_subcommand(called) else { return Ok(command) };
    let known: Vec<String> =
        found.get_arguments().filter_map(|it| it.get_long().map(str::to_owned)).collect();
    if !known.iter().any(|name| name == "config") {
        return Ok(command);
    }
    let settings = read(&path)?;
    for name in settings.keys() {
        if !known.contains(name) || name == "config" {
            let all = known.join(", ");
            bail!("{}: {called} has no setting {name:?}; it has: {all}", path.display());
        }
    }
    Ok(command.mut_subcommand(called, |it| {
        it.mut_args(|argument| {
            let value = argument.get_long().and_then(|long| settings.get(long)).cloned();
            match value {
                Some(value) => argument.default_value(value),
                None => argument,
            }
        })
    }))
}

fn path(arguments: &[OsString]) -> Option<PathBuf> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let Some(text) = argument.to_str() else { continue };
        if text == "--config" {
            return arguments.next().map(PathBuf::from);
        }
        if let Some(path) = text.strip_prefix("--config=") {
            return Some(path.into());
        }
    }
    std::env::var_os("MASTHEAD_CONFIG").filter(|it| !it.is_empty()).map(PathBuf::from)
}

fn read(path: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let place = || format!("cannot read the configuration file {}", path.display());
    let text = std::fs::read_to_string(path).with_context(place)?;
    let values: BTreeMap<String, Value> = serde_saphyr::from_str(&text).with_context(place)?;
    let mut settings = BTreeMap::new();
    for (name, value) in values {
        let text = match value {
            Value::String(text) => text,
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            _ => bail!("{}: {name} must be one value", path.display()),
        };
        settings.insert(name, text);
    }
    Ok(settings)
}
