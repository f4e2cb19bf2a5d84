//! What a test does with a running rig: read and write objects, wait for conditions, act as another user.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::Rig;
use crate::pki::{Credential, kubeconfig};

/// A response of the API server, successful or not.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The HTTP status.
    pub code: u16,
    /// The body: an object, or a `Status` that says why the request failed. A string where it is not JSON.
    pub body: Value,
    /// The texts of the `Warning` headers, unquoted.
    pub warnings: Vec<String>,
}

impl Reply {
    /// The `message` of a `Status`; empty for any other body.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

/// Sends a request with the identity of `client`, with further headers. An error only where there is no response.
pub async fn exchange(
    client: &kube::Client,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> anyhow::Result<Reply> {
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = client.send(request.body(kube::client::Body::from(body.to_string().into_bytes()))?).await?;
    let code = answer.status().as_u16();
    let warnings =
        answer.headers().get_all("warning").iter().map(|w| warning_text(&String::from_utf8_lossy(w.as_bytes())));
    let warnings = warnings.collect();
    let bytes = answer.into_body().collect_bytes().await?;
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into());
    Ok(Reply { code, body, warnings })
}

/// The text of a `Warning` header, which looks like `299 - "text"`.
fn warning_text(header: &str) -> String {
    let quoted = header.splitn(3, ' ').nth(2).unwrap_or_default();
    quoted.trim_matches('"').replace("\\\"", "\"").replace("\\\\", "\\")
}

impl Rig {
    /// Reads the object or list at a path. An error where the API server refuses.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let request = http::Request::get(path).body(Vec::new())?;
        Ok(self.client.request::<Value>(request).await?)
    }

    /// Reads an object; `None` where there is none (404).
    pub async fn try_get(&self, path: &str) -> anyhow::Result<Option<Value>> {
        match self.get(path).await {
            Ok(value) => Ok(Some(value)),
            Err(error) => match error.downcast_ref::<kube::Error>() {
                Some(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Reads the items of a collection.
    pub async fn list(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        let mut list = self.get(path).await?;
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    /// Sends a request with a JSON body; the status and body of the response, successful (as 200) or not.
    pub async fn send(&self, method: &str, path: &str, content: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .body(body.to_string().into_bytes())?;
        match self.client.request::<Value>(request).await {
            Ok(answer) => Ok((200, answer)),
            Err(kube::Error::Api(status)) => Ok((status.code, serde_json::to_value(&*status)?)),
            Err(other) => Err(other.into()),
        }
    }

    /// A client with the identity of a kubeconfig.
    pub async fn client_of(kubeconfig: &std::path::Path) -> anyhow::Result<kube::Client> {
        crate::boot::client(kubeconfig).await
    }

    /// Installs Karpenter's CRDs and waits until they are served.
    pub fn install_karpenter_kinds(&self) -> anyhow::Result<()> {
        let crds = self.programs.share.join("crds").display().to_string();
        self.kubectl(&["apply", "--server-side", "-f", &crds])?;
        self.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]).map(|_| ())
    }

    /// Sends a merge patch. An error where it is refused.
    pub async fn merge(&self, path: &str, patch: Value) -> anyhow::Result<Value> {
        match self.send("PATCH", path, "application/merge-patch+json", &patch).await? {
            (200, answer) => Ok(answer),
            (code, answer) => bail!("patching {path}: {code}: {}", answer["message"]),
        }
    }

    /// Deletes an object. An error where there is none.
    pub async fn delete(&self, path: &str) -> anyhow::Result<()> {
        match self.send("DELETE", path, "application/json", &json!({})).await? {
            (200, _) => Ok(()),
            (code, answer) => bail!("deleting {path}: {code}: {}", answer["message"]),
        }
    }

    /// Applies an object server-side, as cluster administrator.
    pub fn apply(&self, object: &Value) -> anyhow::Result<()> {
        self.apply_text(&object.to_string())
    }

    /// Applies the objects of a YAML or JSON text server-side, as cluster administrator.
    pub fn apply_text(&self, text: &str) -> anyhow::Result<()> {
        let mut child = self
            .kubectl_command(&["apply", "--server-side", "--force-conflicts", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("no standard input")?.write_all(text.as_bytes())?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("kubectl apply: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    /// A `kubectl` command, ready to run as cluster administrator.
    pub fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut kubectl = Command::new(self.programs.path("kubectl"));
        kubectl.env("KUBECONFIG", self.admin()).args(arguments);
        kubectl
    }

    /// Runs `kubectl` as cluster administrator; its standard output. The error shows its standard error.
    pub fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        output_of(self.kubectl_command(arguments), "kubectl")
    }

    /// Runs `helm` as cluster administrator; its standard output. The error shows its standard error.
    pub fn helm(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut helm = Command::new(self.programs.path("helm"));
        let home = self.folder().join("helm");
        helm.env("KUBECONFIG", self.admin())
            .env("HELM_CACHE_HOME", &home)
            .env("HELM_CONFIG_HOME", &home)
            .env("HELM_DATA_HOME", &home);
        helm.args(arguments);
        output_of(helm, "helm")
    }

    /// Calls `ask` every 100 ms until it returns `Some`. After `patience` it gives up with the last error, naming `what` it
    /// waited for. `patience` should be generous: it bounds a failure and measures nothing.
    pub async fn wait<T>(
        &self,
        what: &str,
        patience: Duration,
        mut ask: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let until = Instant::now() + patience;
        loop {
            let failure = match ask().await {
                Ok(Some(value)) => return Ok(value),
                Ok(None) => None,
                Err(error) => Some(error),
            };
            if Instant::now() > until {
                match failure {
                    Some(error) => return Err(error.context(format!("gave up waiting for {what} after {patience:?}"))),
                    None => bail!("gave up waiting for {what} after {patience:?}"),
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// A new token of a service account, valid for four hours.
    pub async fn token(&self, namespace: &str, account: &str) -> anyhow::Result<String> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 14_400}});
        let (code, answer) = self.send("POST", &path, "application/json", &body).await?;
        let token = answer.pointer("/status/token").and_then(Value::as_str);
        token
            .map(str::to_owned)
            .with_context(|| format!("no token for {namespace}/{account}: {code}: {}", answer["message"]))
    }

    /// Writes a kubeconfig with a new token of a service account and returns its path. A process with it has the rights of
    /// that account only.
    pub async fn kubeconfig_for(&self, namespace: &str, account: &str) -> anyhow::Result<PathBuf> {
        let token = self.token(namespace, account).await?;
        let config = kubeconfig(&self.folder().join("pki"), self.url(), &Credential::Token(&token));
        let path = self.folder().join("kubeconfig").join(format!("{namespace}.{account}"));
        // another process of the same account may be reading it at this moment
        let new = path.with_file_name(format!("{namespace}.{account}.new"));
        std::fs::write(&new, config.to_string())?;
        std::fs::rename(&new, &path)?;
        Ok(path)
    }

    /// The events of the audit log so far, oldest first. An error without [`Options::audit`](crate::Options).
    pub fn audit(&self) -> anyhow::Result<Vec<Value>> {
        let text = std::fs::read_to_string(self.audit_log())?;
        let mut events: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        events.sort_by(|a, b| a["requestReceivedTimestamp"].as_str().cmp(&b["requestReceivedTimestamp"].as_str()));
        Ok(events)
    }
}

fn output_of(mut command: Command, what: &str) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{what} cannot be run"))?;
    if !output.status.success() {
        let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        bail!("{what} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
