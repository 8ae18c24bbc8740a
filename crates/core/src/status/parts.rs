//! What a status is made of.

use serde::{Deserialize, Deserializer, Serialize};

/// The cause that marks a revision from the future (W16).
pub(super) const TOO_LARGE: &str = "ResourceVersionTooLarge";

/// Which object a status is about, and more of why.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusDetails {
    /// Name of the object.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group; empty for the core group.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource's plural, or a kind where that is what is wrong.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Uid of the object.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// One by one.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// When to try again; 0 if the server did not say.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One of the things that are wrong.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct StatusCause {
    /// The machine's word, such as `FieldValueInvalid`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The sentence for people.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The field that is wrong, if it is one.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl StatusCause {
    fn on(field: &str, reason: &str, message: String) -> Self {
        Self { reason: reason.to_owned(), message, field: field.to_owned() }
    }

    /// A field that may not be set here.
    pub fn forbidden(field: &str, why: &str) -> Self {
        Self::on(field, "FieldValueForbidden", format!("Forbidden: {why}"))
    }

    /// A value that is not among the few that are possible.
    pub fn not_supported(field: &str, value: &str, supported: &[&str]) -> Self {
        let supported: Vec<_> = supported.iter().map(|it| format!("{it:?}")).collect();
        let supported = supported.join(", ");
        let message = format!("Unsupported value: {value:?}: supported values: {supported}");
        Self::on(field, "FieldValueNotSupported", message)
    }

    /// A value that breaks a rule.
    pub fn invalid(field: &str, value: &str, why: &str) -> Self {
        Self::on(field, "FieldValueInvalid", format!("Invalid value: {value:?}: {why}"))
    }

    /// A field that must be set.
    pub fn required(field: &str, why: &str) -> Self {
        let colon = if why.is_empty() { "" } else { ": " };
        Self::on(field, "FieldValueRequired", format!("Required value{colon}{why}"))
    }

    /// Field and message as one sentence.
    pub(super) fn sentence(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }
}

/// What a status has in place of an object's metadata.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(super) struct Meta {
    #[serde(
        default,
        rename = "resourceVersion",
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub(super) resource_version: String,
    #[serde(
        default,
        rename = "continue",
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub(super) continue_token: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(seconds: &u32) -> bool {
    *seconds == 0
}

/// `null` is what absent is, as Go reads it.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
