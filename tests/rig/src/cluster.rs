//! What a test does with the rig: read, apply, wait for conditions, act as somebody.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::Rig;
use crate::pki::{Credential, kubeconfig};

/// What the API server answered.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The HTTP status.
    pub code: u16,
    /// The object, or the status.
    pub body: Value,
    /// The texts of `Warning` headers.
    pub warnings: Vec<String>,
}

impl Reply {
    /// The message of a refusal.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

/// Sends a request as whoever the client is; `headers` are added.
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

/// `299 - "text"`, unquoted.
fn warning_text(header: &str) -> String {
    let quoted = header.splitn(3, ' ').nth(2).unwrap_or_default();
    quoted.trim_matches('"').replace("\\\"", "\"").replace("\\\\", "\\")
}

impl Rig {
    /// Reads an object or list by path.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let request = http::Request::get(path).body(Vec::new())?;
        Ok(self.client.request::<Value>(request).await?)
    }

    /// Reads an object that may not be there (yet).
    pub async fn try_get(&self, path: &str) -> anyhow::Result<Option<Value>> {
        match self.get(path).await {
            Ok(value) => Ok(Some(value)),
            Err(error) => match error.downcast_ref::<kube::Error>() {
                Some(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// The items of a list.
    pub async fn list(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        let mut list = self.get(path).await?;
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    /// Sends a request with a JSON body; gives code and answer, whatever they are.
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

    /// A client of somebody's kubeconfig.
    pub async fn client_of(kubeconfig: &std::path::Path) -> anyhow::Result<kube::Client> {
        crate::boot::client(kubeconfig).await
    }

    /// Karpenter's kinds without Karpenter.
    pub fn install_karpenter_kinds(&self) -> anyhow::Result<()> {
        let crds = self.programs.share.join("crds").display().to_string();
        self.kubectl(&["apply", "--server-side", "-f", &crds])?;
        self.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]).map(|_| ())
    }

    /// A merge patch that must land.
    pub async fn merge(&self, path: &str, patch: Value) -> anyhow::Result<Value> {
        match self.send("PATCH", path, "application/merge-patch+json", &patch).await? {
            (200, answer) => Ok(answer),
            (code, answer) => bail!("patching {path}: {code}: {}", answer["message"]),
        }
    }

    /// Deletes an object that must be there.
    pub async fn delete(&self, path: &str) -> anyhow::Result<()> {
        match self.send("DELETE", path, "application/json", &json!({})).await? {
            (200, _) => Ok(()),
            (code, answer) => bail!("deleting {path}: {code}: {}", answer["message"]),
        }
    }

    /// Applies objects as an administrator, server-side.
    pub fn apply(&self, object: &Value) -> anyhow::Result<()> {
        self.apply_text(&object.to_string())
    }

    /// Applies YAML or JSON text.
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

    /// A `kubectl` command as an administrator.
    pub fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut kubectl = Command::new(self.programs.path("kubectl"));
        kubectl.env("KUBECONFIG", self.admin()).args(arguments);
        kubectl
    }

    /// Runs `kubectl`; gives its standard output, or its error.
    pub fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        output_of(self.kubectl_command(arguments), "kubectl")
    }

    /// Runs `helm` as an administrator.
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

    /// Asks until the answer is `Some`; the bound is generous, never a measure.
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
                    Some(error) => return Err(error.context(format!("waited {patience:?} for {what}"))),
                    None => bail!("waited {patience:?} for {what} in vain"),
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// A token of a service account, valid for hours.
    pub async fn token(&self, namespace: &str, account: &str) -> anyhow::Result<String> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 14_400}});
        let (code, answer) = self.send("POST", &path, "application/json", &body).await?;
        let token = answer.pointer("/status/token").and_then(Value::as_str);
        token
            .map(str::to_owned)
            .with_context(|| format!("no token for {namespace}/{account}: {code}: {}", answer["message"]))
    }

    /// A kubeconfig with which a process is this service account and nothing else.
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

    /// The writes of the audit log so far, oldest first.
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
