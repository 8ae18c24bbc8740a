//! kubectl with its default flags.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::server::{Server, masthead};

/// Oldest minor version of kubectl 1 that will do.
const MINOR_MIN: u32 = 27;

/// The kubectl on `PATH` if it is new enough, otherwise one that is built from its Go modules.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let installed = minor("kubectl").is_some_and(|minor| minor >= MINOR_MIN);
        if installed { "kubectl".into() } else { build() }
    })
}

/// The minor version that a kubectl tells of itself.
fn minor(program: &str) -> Option<u32> {
    let output = Command::new(program).args(["version", "--client", "-o", "json"]).output().ok()?;
    let version: Value = serde_json::from_slice(&output.stdout).ok()?;
    let minor = version["clientVersion"]["minor"].as_str()?;
    minor.trim_end_matches('+').parse().ok()
}

fn build() -> PathBuf {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tools/kubectl");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubectl");
    let built =
        Command::new("go").arg("build").arg("-o").arg(&program).current_dir(module).status();
    let built = built.expect("kubectl 1.27 or newer, or Go 1.24 or newer to build one, on PATH");
    assert!(built.success(), "kubectl could not be built: {built}");
    program
}

/// kubectl against one server, with a home of its own for its caches.
struct Kubectl<'a> {
    server: &'a Server,
    home: &'a Path,
}

impl Kubectl<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(arguments).env("HOME", self.home).env("KUBECONFIG", &self.server.kubeconfig);
        command
    }

    /// Runs to its end; what it printed.
    #[track_caller]
    fn run(&self, arguments: &[&str], input: &str) -> String {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(arguments, "")).unwrap()
    }

    fn watch(&self, arguments: &[&str]) -> Watch {
        let mut child = self.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Watch { child, lines }
    }
}

struct Watch {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Watch {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const MANIFEST: &str = "\
apiVersion: v1
kind: Namespace
metadata:
  name: shop
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: shop
  labels: {app: web}
data:
  colour: blue
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: example.com/web}]}
";

const DEFINITION: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sails.ship.example}
spec:
  group: ship.example
  scope: Namespaced
  names: {plural: sails, singular: sail, kind: Sail, shortNames: [sl]}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

const SAIL: &str = "\
apiVersion: ship.example/v1
kind: Sail
metadata: {name: main, namespace: shop}
spec: {colour: red}
";

#[test]
fn w31_kubectl_works_with_its_default_flags() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"), &[]);
    let kubectl = Kubectl { server: &server, home: directory.path() };

    let made = kubectl.run(&["create", "-f", "-"], MANIFEST);
    assert_eq!(
        made.lines().collect::<Vec<_>>(),
        ["namespace/shop created", "configmap/settings created", "deployment.apps/web created"]
    );
    let map = kubectl.json(&["get", "configmap", "settings", "-n", "shop", "-o", "json"]);
    assert_eq!(map["data"]["colour"], "blue");
    let yaml = kubectl.run(&["get", "cm", "settings", "-n", "shop", "-o", "yaml"], "");
    assert!(yaml.contains("colour: blue"), "{yaml}");
    let names = kubectl.run(&["get", "deploy,cm", "-n", "shop", "-o", "name"], "");
    assert_eq!(names.trim(), "deployment.apps/web\nconfigmap/settings");
    let table = kubectl.run(&["get", "namespaces"], "");
    assert!(table.contains("shop"), "{table}");

    let mut watch = kubectl.watch(&["get", "cm", "-n", "shop", "-w", "-o", "name"]);
    assert_eq!(watch.line(), "configmap/settings");
    let merge = r#"{"data":{"colour":"green"}}"#;
    kubectl.run(&["patch", "cm", "settings", "-n", "shop", "--type=merge", "-p", merge], "");
    assert_eq!(watch.line(), "configmap/settings");
    let json = r#"[{"op":"add","path":"/data/size","value":"9"}]"#;
    kubectl.run(&["patch", "cm", "settings", "-n", "shop", "--type=json", "-p", json], "");
    assert_eq!(watch.line(), "configmap/settings");
    kubectl.run(&["label", "cm", "settings", "-n", "shop", "tier=front"], "");
    assert_eq!(watch.line(), "configmap/settings");
    kubectl.run(&["annotate", "cm", "settings", "-n", "shop", "note=x"], "");
    let map = kubectl.json(&["get", "cm", "-n", "shop", "-l", "tier=front", "-o", "json"]);
    assert_eq!(map["items"][0]["data"], serde_json::json!({"colour": "green", "size": "9"}));
    assert_eq!(map["items"][0]["metadata"]["annotations"]["note"], "x");
    let none = kubectl.run(
        &["get", "cm", "-n", "shop", "--field-selector", "metadata.name!=settings", "-o", "name"],
        "",
    );
    assert_eq!(none, "");

    kubectl.run(&["scale", "deployment", "web", "-n", "shop", "--replicas=4"], "");
    let path = "jsonpath={.spec.replicas}";
    assert_eq!(kubectl.run(&["get", "deploy", "web", "-n", "shop", "-o", path], ""), "4");
    let replaced = MANIFEST.split("---\n").nth(1).unwrap().replace("blue", "white");
    kubectl.run(&["replace", "-f", "-"], &replaced);

    kubectl.run(&["create", "-f", "-"], DEFINITION);
    kubectl.run(&["create", "-f", "-"], SAIL);
    assert_eq!(
        kubectl.run(&["get", "sl", "-n", "shop", "-o", "name"], "").trim(),
        "sail.ship.example/main"
    );
    let resources = kubectl.run(&["api-resources", "--api-group=ship.example"], "");
    assert!(resources.contains("sails"), "{resources}");

    kubectl.run(&["delete", "cm", "settings", "-n", "shop"], "");
    kubectl.run(&["delete", "namespace", "shop"], "");
    let left = kubectl.run(&["get", "sails", "--all-namespaces", "-o", "name"], "");
    assert_eq!(left, "", "deleting a namespace deletes what is in it");
    // Not `kubectl version`: one that was built from modules does not know its own.
    assert_eq!(kubectl.json(&["get", "--raw", "/version"])["major"], "1");
}

/// Runs the commands that a server prints once it is ready. Returns what they print.
fn run_printed_commands(home: &Path, arguments: &[&str]) -> String {
    let data = home.join("data");
    let mut server = masthead(&["serve", "--store", "memory", "--data-dir"])
        .arg(&data)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let printed: Vec<String> = lines.take_while(|line| line != "Ctrl-C stops it.").collect();
    let commands: Vec<&str> = printed.iter().filter_map(|line| line.strip_prefix("  ")).collect();
    let path = std::env::var("PATH").unwrap();
    let tools = program().parent().unwrap().to_str().unwrap();
    let output = Command::new("sh")
        .args(["-ec", &commands.join("\n")])
        .env("HOME", home)
        .env("PATH", format!("{tools}:{path}"))
        .output();
    server.kill().unwrap();
    server.wait().unwrap();
    let output = output.unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed:#?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_commands_that_a_server_prints_work_however_it_is_reached() {
    let home = tempfile::tempdir().unwrap();
    let given = home.path().join("given");
    drop(Server::start(&given, &[]));
    let file = |name: &str| given.join("credentials").join(name).to_str().unwrap().to_owned();
    let (certificate, key, authority) = (file("server.crt"), file("server.key"), file("ca.crt"));
    let own = ["--tls-cert", &certificate, "--tls-key", &key];
    for arguments in [
        &[][..],
        &["--insecure-http"],
        &own,
        &[&own[..], &["--tls-ca", &authority]].concat(),
        &[&own[..], &["--listen", "127.0.0.2:0"]].concat(),
        &["--listen", "0.0.0.0:0"],
        &["--listen", "0.0.0.0:0", "--advertise-address", "127.0.0.3"],
        &["--advertise-address", "localhost", "--tls-san", "masthead.example.com"],
    ] {
        let arguments = match arguments {
            with_address if with_address.contains(&"--listen") => with_address.to_vec(),
            others => [others, &["--listen", "127.0.0.1:0"]].concat(),
        };
        let printed = run_printed_commands(home.path(), &arguments);
        assert!(printed.contains("kube-system"), "{arguments:?}: {printed}");
    }
}
