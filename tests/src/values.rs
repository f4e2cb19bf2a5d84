//! The README of the chart, generated from the comments of its values.

use std::fmt::Write;

/// The text before the table of values.
const HEAD: &str = "\
# The chart of noderotation

```sh
helm install noderotation charts/noderotation --namespace noderotation --create-namespace
```

Controller (one leads, the others stand by) and webhook (all serve), each with its own service account and the rights it needs.
Kubernetes 1.30 or newer.

The CustomResourceDefinition is part of the release (`crds.enabled`): upgrades and rollbacks change it, uninstallation leaves
it and every RotationPolicy (`crds.keep`). One that is there already and does not belong to the release, as of an older chart
or applied by hand, is taken over with `--take-ownership` (helm ≥ 3.17), once; otherwise helm refuses it.

The webhook's certificate is kept three ways, `webhook.certificate.mode`: `own` needs nothing; `cert-manager` needs cert-manager;
`secret` needs a Secret of yours for `<fullname>-webhook.<namespace>.svc` and its authority in `caBundle`.

`helm uninstall` removes the release, webhook configurations included, then runs a Job that removes what the controller wrote to nodes,
NodeClaims and NodePools. If the Job cannot run, or something cannot be removed, helm ends with `uninstallation completed with 1 error(s)`,
and the release is gone all the same: nothing that blocks is left behind. To remove the rest, see to the cause, install the release again, and
uninstall it. `helm template` renders no such Job. GitOps: `docs/gitops.md` in the repository.

What stays behind: the CustomResourceDefinition with all policies, the Secret `<fullname>-webhook` with the webhook's CA (mode `own`),
and the Lease `noderotation-controller`. One release to a cluster: the guard of a second one would refuse the first one's controller.

No image is published. `controller.image` and `webhook.image` name yours, or `global.imageRegistry` does for all images. Placeholders pull
theirs with `placeholder.imagePullSecrets`.

With `webhook.hostNetwork` two replicas of one node would need the same ports: see `webhook.ports`, and have as many nodes as
replicas. On a cluster without IPv4 or without IPv6 nothing needs to be set: the programs listen on both.

## When the webhook is dead

Freezing, cordoning, uncordoning, `suspend`, `rotate` requests, and every write that sets a new `noderotation.io/break-glass: \"<reason>\"` do not
depend on the webhook; nor do rotations, Karpenter and ordinary work. A policy's other fields and guarded keys cannot be changed meanwhile. If it does
not come back, for example because its namespace was deleted, this opens everything (an upgrade or installation brings the guard back):

```sh
kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration -l app.kubernetes.io/part-of=noderotation
```

## Values

Made from `values.yaml` by `make chart-readme`; `values.schema.json` refuses what is not here.

| value | default | meaning |
|---|---|---|
";

/// The README for the text of a `values.yaml`.
pub fn readme(values: &str) -> String {
    let mut text = HEAD.to_owned();
    let mut path: Vec<(usize, String)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in values.lines() {
        let (indent, line) = (line.len() - line.trim_start().len(), line.trim());
        if let Some(words) = line.strip_prefix('#') {
            comment.push(words.trim());
            continue;
        }
        let Some((key, value)) = line.split_once(':') else {
            comment.clear();
            continue;
        };
        path.retain(|(depth, _)| *depth < indent);
        path.push((indent, key.to_owned()));
        let (value, meaning) = (value.trim(), std::mem::take(&mut comment).join(" "));
        if value.is_empty() && meaning.is_empty() {
            continue;
        }
        let name = path.iter().map(|(_, key)| key.as_str()).collect::<Vec<_>>().join(".");
        let default = if value.is_empty() { String::new() } else { format!("`{value}`") };
        // writing to a String cannot fail
        let _ = writeln!(text, "| `{name}` | {default} | {} |", meaning.replace('|', "\\|"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_rows() {
        let text = readme("# About a.\na:\n  # Of b,\n  # two lines.\n  b: 1\n\nc: {}\n");
        assert!(
            text.ends_with("| `a` |  | About a. |\n| `a.b` | `1` | Of b, two lines. |\n| `c` | `{}` |  |\n"),
            "{text}"
        );
    }

    #[test]
    fn the_charts_readme_is_up_to_date() {
        let chart = noderotation_rig::repository().join("charts/noderotation");
        let read = |name: &str| std::fs::read_to_string(chart.join(name)).unwrap_or_default();
        assert_eq!(read("README.md"), readme(&read("values.yaml")), "run make chart-readme");
    }
}
