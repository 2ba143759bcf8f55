use serde_json::json;

use super::super::PatchKind;
use super::*;
use crate::resource::Registry;

fn maps() -> Resource {
    Resource::clone(Registry::builtin().find("", "v1", "configmaps").unwrap())
}

fn pods() -> Resource {
    Resource::clone(Registry::builtin().find("", "v1", "pods").unwrap())
}

fn applied(
    resource: &Resource,
    manager: &str,
    force: bool,
    wanted: &Value,
    current: &Value,
) -> Result<Value, Status> {
    let request = Request {
        kind: PatchKind::Apply,
        body: &[],
        manager,
        force,
        strict: true,
        subresource: "",
    };
    apply(&request, wanted, current, resource)
}

fn map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data})
}

fn managers(value: &Value) -> Vec<(String, Value)> {
    let mut managers: Vec<(String, Value)> =
        entries(value).into_iter().map(|e| (e.manager.clone(), e.fields.json())).collect();
    managers.sort_by(|a, b| a.0.cmp(&b.0));
    managers
}

#[test]
fn what_is_no_longer_stated_goes_unless_somebody_else_owns_it() {
    let maps = maps();
    let first =
        applied(&maps, "a", false, &map(json!({"x": "1", "y": "2", "z": "3"})), &Value::Null)
            .unwrap();
    let shared = applied(&maps, "b", false, &map(json!({"y": "2"})), &first).unwrap();
    let next = applied(&maps, "a", false, &map(json!({"x": "1"})), &shared).unwrap();
    assert_eq!(next["data"], json!({"x": "1", "y": "2"}));
    assert_eq!(
        managers(&next),
        [
            ("a".into(), json!({"f:data": {"f:x": {}}})),
            ("b".into(), json!({"f:data": {"f:y": {}}}))
        ]
    );
    assert_eq!(applied(&maps, "a", false, &map(json!({"x": "1"})), &next).unwrap(), next, "again");
}

#[test]
fn contradicting_another_manager_is_a_conflict_until_it_is_forced() {
    let maps = maps();
    let first =
        applied(&maps, "a", false, &map(json!({"x": "1", "y": "2"})), &Value::Null).unwrap();
    let error = applied(&maps, "b", false, &map(json!({"x": "9"})), &first).unwrap_err();
    assert_eq!(error.message, "Apply failed with 1 conflict: conflict with \"a\": .data.x");
    let error = applied(&maps, "b", false, &map(json!({"x": "9", "y": "9"})), &first).unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 2 conflicts: conflicts with \"a\":\n- .data.x\n- .data.y"
    );
    let next = applied(&maps, "b", true, &map(json!({"x": "9"})), &first).unwrap();
    assert_eq!(next["data"], json!({"x": "9", "y": "2"}));
    assert_eq!(managers(&next)[0].1, json!({"f:data": {"f:y": {}}}));
}

#[test]
fn whoever_updates_a_field_owns_it() {
    let maps = maps();
    let first = applied(&maps, "a", false, &map(json!({"x": "1"})), &Value::Null).unwrap();
    let mut edited = first.clone();
    edited["data"]["x"] = "2".into();
    track(&maps, "", Some(&first), &mut edited, "kubectl-edit");
    assert_eq!(managers(&edited), [("kubectl-edit".into(), json!({"f:data": {"f:x": {}}}))]);
    let error = applied(&maps, "a", false, &map(json!({"x": "1"})), &edited).unwrap_err();
    assert!(error.message.contains("\"kubectl-edit\" using v1 at "), "{}", error.message);
}

#[test]
fn entries_of_lists_are_merged_by_their_keys() {
    let pods = pods();
    let pod = |containers: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}});
    let first = applied(
        &pods,
        "a",
        false,
        &pod(json!([{"name": "c", "image": "i"}, {"name": "d", "image": "i"}])),
        &Value::Null,
    )
    .unwrap();
    let other = applied(
        &pods,
        "b",
        false,
        &pod(json!([{"name": "c", "env": [{"name": "X", "value": "1"}]}])),
        &first,
    )
    .unwrap();
    assert_eq!(
        other["spec"]["containers"][0],
        json!({"name": "c", "image": "i", "env": [{"name": "X", "value": "1"}]})
    );
    let next =
        applied(&pods, "a", false, &pod(json!([{"name": "d", "image": "j"}])), &other).unwrap();
    assert_eq!(
        next["spec"]["containers"],
        json!([{"name": "c", "env": [{"name": "X", "value": "1"}]}, {"name": "d", "image": "j"}])
    );
    let error =
        applied(&pods, "b", false, &pod(json!([{"name": "d", "image": "k"}])), &next).unwrap_err();
    assert!(error.message.ends_with(".spec.containers[name=\"d\"].image"), "{}", error.message);
}

#[test]
fn a_deleted_map_is_nobodys() {
    let maps = maps();
    let first = applied(&maps, "a", false, &map(json!({"x": "1"})), &Value::Null).unwrap();
    let mut emptied = first.clone();
    field::remove(&mut emptied, "data");
    track(&maps, "", Some(&first), &mut emptied, "b");
    assert!(managers(&emptied).iter().all(|(_, fields)| fields["f:data"].is_null()));
}
