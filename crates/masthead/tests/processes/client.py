"""What a controller in Python does, against the server that the kubeconfig names."""

import sys

from kubernetes import client, config, watch

config.load_kube_config(sys.argv[1])
core = client.CoreV1Api()
NS = "default"
MERGE = "application/merge-patch+json"


def make(name, **data):
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data=data)
    return core.create_namespaced_config_map(NS, body)


for number in range(25):
    make(f"m{number:02}", n=str(number))

listed = core.list_namespaced_config_map(NS)
assert len(listed.items) == 25, len(listed.items)

names, token, versions = [], None, set()
while True:
    page = core.list_namespaced_config_map(NS, limit=10, _continue=token)
    names += [item.metadata.name for item in page.items]
    versions.add(page.metadata.resource_version)
    token = page.metadata._continue
    if not token:
        break
assert names == [f"m{number:02}" for number in range(25)], names
assert len(versions) == 1, "pages show one revision"

# A watch with bookmarks; the last one comes two seconds before the end.
start = listed.metadata.resource_version
make("during", a="1")
seen, last = [], start
stream = watch.Watch().stream(
    core.list_namespaced_config_map, NS, resource_version=start, timeout_seconds=3,
    allow_watch_bookmarks=True,
)
for event in stream:
    raw = event["raw_object"]
    last = raw["metadata"]["resourceVersion"]
    seen.append((event["type"], raw["metadata"].get("name")))
assert seen == [("ADDED", "during"), ("BOOKMARK", None)], seen

# Cut off and back again: exactly what came between.
core.patch_namespaced_config_map("during", NS, {"data": {"a": "2"}}, _content_type=MERGE)
core.delete_namespaced_config_map("m00", NS)
again = []
watcher = watch.Watch()
for event in watcher.stream(
    core.list_namespaced_config_map, NS, resource_version=last, timeout_seconds=20
):
    again.append((event["type"], event["object"].metadata.name))
    if len(again) == 2:
        watcher.stop()
assert again == [("MODIFIED", "during"), ("DELETED", "m00")], again

try:
    core.read_namespaced_config_map("m00", NS)
    raise AssertionError("it was deleted")
except client.ApiException as error:
    assert error.status == 404, error.status

stale = core.read_namespaced_config_map("m01", NS)
core.patch_namespaced_config_map("m01", NS, {"data": {"n": "x"}}, _content_type=MERGE)
try:
    core.replace_namespaced_config_map("m01", NS, stale)
    raise AssertionError("it was stale")
except client.ApiException as error:
    assert error.status == 409, error.status

pod = client.V1Pod(
    metadata=client.V1ObjectMeta(generate_name="job-"),
    spec=client.V1PodSpec(containers=[client.V1Container(name="main", image="x")]),
)
made = core.create_namespaced_pod(NS, pod)
assert made.status.phase == "Pending" and made.metadata.name.startswith("job-")

client.ApiextensionsV1Api().create_custom_resource_definition({
    "metadata": {"name": "sails.ship.example"},
    "spec": {
        "group": "ship.example", "scope": "Namespaced",
        "names": {"plural": "sails", "kind": "Sail"},
        "versions": [{"name": "v1", "served": True, "storage": True,
                      "schema": {"openAPIV3Schema": {"type": "object"}}}],
    },
})
custom = client.CustomObjectsApi()
custom.create_namespaced_custom_object(
    "ship.example", "v1", NS, "sails",
    {"apiVersion": "ship.example/v1", "kind": "Sail", "metadata": {"name": "main"}, "spec": {}},
)
sails = custom.list_namespaced_custom_object("ship.example", "v1", NS, "sails")
assert [it["metadata"]["name"] for it in sails["items"]] == ["main"], sails

print("all is well")
