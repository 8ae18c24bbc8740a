//! Saying how an object is.

use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_client::api::{Patch, PatchParams};
use kube_client::{Api, Error};
use kube_core::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// Sets one of an object's conditions. The time of its last transition is now if its status changes, and
/// what it was if it does not, whatever the given one says. Says whether anything changed: if not, there is
/// nothing to write.
pub fn set_condition(conditions: &mut Vec<Condition>, mut condition: Condition) -> bool {
    condition.last_transition_time = Time(Timestamp::now());
    let Some(before) = conditions.iter_mut().find(|it| it.type_ == condition.type_) else {
        conditions.push(condition);
        return true;
    };
    if before.status == condition.status {
        condition.last_transition_time = before.last_transition_time.clone();
    }
    let changed = *before != condition;
    *before = condition;
    changed
}

/// Writes the status of an object, on condition that it is still the one that was read. Members that the
/// status does not have are left alone.
pub async fn patch_status<K>(api: &Api<K>, object: &K, status: impl Serialize) -> Result<K, Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let meta = object.meta();
    let metadata = json!({"resourceVersion": meta.resource_version, "uid": meta.uid});
    let patch = json!({"metadata": metadata, "status": status});
    let name = meta.name.as_deref().unwrap_or_default();
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(status: &str, message: &str) -> Condition {
        let last_transition_time = Time(Timestamp::UNIX_EPOCH);
        Condition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            reason: "Because".to_owned(),
            message: message.to_owned(),
            last_transition_time,
            observed_generation: None,
        }
    }

    #[test]
    fn a_transition_has_a_time_and_what_stays_keeps_it() {
        let mut all = vec![condition("False", "not yet")];
        assert!(set_condition(&mut all, condition("False", "nearly")));
        assert_eq!(all, [condition("False", "nearly")]);
        assert!(!set_condition(&mut all, condition("False", "nearly")));
        assert!(set_condition(&mut all, condition("True", "now")));
        assert!(all[0].last_transition_time.0 > Timestamp::UNIX_EPOCH);
        let other = Condition { type_: "Other".to_owned(), ..condition("True", "") };
        assert!(set_condition(&mut all, other));
        assert_eq!(all.len(), 2);
    }
}
