//! Runs the command as users do, and checks output, exit codes and messages.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Runs the command with `input` on standard input; returns the exit code, standard output and standard error.
fn run(arguments: &[&str], input: &str) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-noderotation"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // a command that refuses its flags has ended before it read anything
    if let Err(error) = child.stdin.take().unwrap().write_all(input.as_bytes()) {
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn example(name: &str) -> String {
    format!("{}/../examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

const POLICY: &str = r#"
apiVersion: noderotation.io/v1alpha1
kind: RotationPolicy
metadata: {name: a}
spec:
  nodePoolSelector: {matchLabels: {w: api}}
  maintenanceWindows:
  - {timezone: Asia/Tokyo, days: [Wed, Sat], start: "02:00", end: "06:00"}
"#;

const POOL: &str = r"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: api, labels: {w: api}}
spec: {template: {spec: {expireAfter: 336h, terminationGracePeriod: 1h}}}
";

fn documents(parts: &[&str]) -> String {
    parts.join("\n---\n")
}

#[test]
fn the_examples_have_no_problems() {
    let (code, out, err) =
        run(&["check", "-f", &example("api.yaml"), &example("catch-all.yaml"), &example("nodepool.yaml")], "");
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    for line in [
        "NodePool api in ",
        "  derived  a node is due at the age of 5d22h43m\n",
        "  derived  windows open at least every 4d, for at least 4h, and at least 2d20h apart\n",
        "  derived  a rotation takes about 15m, 1h17m at most\n",
        "  derived  2 windows are guaranteed before a node expires\n",
        "  derived  10 rotations fit into one window\n",
    ] {
        assert!(out.contains(line), "{line:?} is not in\n{out}");
    }
}

#[test]
fn every_problem_names_its_field_and_what_to_write() {
    let bad = POLICY.replace("Asia/Tokyo", "JST").replace("\"02:00\"", "\"2:00\"").replace("[Wed, Sat]", "[Wed, Wed]");
    let (code, out, _) = run(&["check", "-f", "-"], &documents(&[POOL, &bad]));
    assert_eq!(code, 1);
    for part in [
        "RotationPolicy a in - (document 2, line 9)",
        "spec.maintenanceWindows[0].timezone: found \"JST\": is not in the IANA time zone database; write Asia/Tokyo",
        "spec.maintenanceWindows[0].start: found \"2:00\": must be HH:MM on the 24-hour clock; write \"02:00\"",
        "spec.maintenanceWindows[0].days[1]: found \"Wed\": is listed more than once",
        "RotationPolicy a would govern this NodePool but is invalid, so nothing would rotate",
    ] {
        assert!(out.contains(part), "{part} is not in\n{out}");
    }
}

#[test]
fn unknown_fields_and_wrong_types_are_reported() {
    let bad =
        POLICY.replace("maintenanceWindows:", "suspendd: true\n  minRotationChances: \"2\"\n  maintenanceWindows:");
    let (code, out, _) = run(&["check", "-f", "-"], &bad);
    assert_eq!(code, 1);
    assert!(
        out.contains("spec.suspendd: is not a known field")
            && out.contains("spec.minRotationChances: found \"2\": must be a whole number"),
        "{out}"
    );
}

#[test]
fn ties_static_pools_and_our_keys_in_templates_are_refused() {
    let second = POLICY.replace("name: a", "name: b");
    let (code, out, _) = run(&["check", "-f", "-"], &documents(&[POLICY, &second, POOL]));
    assert_eq!(code, 1);
    assert!(out.contains("  refused  metadata.labels: RotationPolicies a and b are equally specific"), "{out}");
    let tie =
        "  refused  spec.nodePoolSelector: RotationPolicies a and b would be equally specific for NodePool api, so";
    assert_eq!(out.matches(tie).count(), 2, "of either policy: {out}");

    let fixed = POOL.replace("spec: {template", "spec: {replicas: 3, template");
    let (code, out, _) = run(&["check", "-f", "-"], &documents(&[POLICY, &fixed]));
    assert!(code == 1 && out.contains("spec.replicas: a static NodePool cannot surge"), "{out}");
    assert!(out.contains("  refused  spec.nodePoolSelector: would govern NodePool api, which is static"), "{out}");

    let marked =
        POOL.replace("{template: {spec", "{template: {metadata: {annotations: {noderotation.io/rotate: now}}, spec");
    let (code, out, _) = run(&["check", "-f", "-"], &documents(&[POLICY, &marked]));
    assert!(code == 1 && out.contains("spec.template.metadata.annotations[noderotation.io/rotate]"), "{out}");

    let frozen = POOL.replace("labels: {w: api}", "labels: {w: api}, annotations: {noderotation.io/freeze: 72h}");
    let (code, out, _) = run(&["check", "-f", "-"], &documents(&[POLICY, &frozen]));
    assert!(code == 1 && out.contains("must be an RFC 3339 instant"), "{out}");
    let (_, out, _) = run(&["check", "-f", "-", "--at", "2027-01-01T00:00:00Z"], &documents(&[POLICY, &frozen]));
    assert!(out.contains("write 2027-01-04T00:00:00Z"), "the instant that it would mean at --at: {out}");
}

/// Ties are judged by the NodePools that are given, as admission judges them by those of the cluster (§10).
#[test]
fn a_tie_is_refused_only_over_a_nodepool_and_only_of_those_who_tie() {
    let second = POLICY.replace("name: a", "name: b");
    let (code, out, _) = run(&["check", "-f", "-"], &documents(&[POLICY, &second]));
    assert_eq!(code, 0, "no NodePool is given: {out}");
    for other in ["a", "b"] {
        let warning = format!("  warning  spec.nodePoolSelector: is as specific as that of RotationPolicy {other}; ");
        assert!(out.contains(&warning), "{out}");
    }

    let other_label = POLICY.replace("name: a", "name: b").replace("{w: api}", "{team: x}");
    let both = POOL.replace("labels: {w: api}", "labels: {w: api, team: x}");
    let of_x = POOL.replace("{name: api, labels: {w: api}}", "{name: x, labels: {team: x}}");
    let (code, out, _) = run(&["check", "-f", "-"], &documents(&[POLICY, &other_label, POOL, &of_x]));
    assert!(code == 0 && out.contains("  warning  spec.nodePoolSelector: is as specific as that of"), "{out}");
    let (code, out, _) = run(&["check", "-f", "-"], &documents(&[POLICY, &other_label, &both]));
    assert!(code == 1 && out.contains("RotationPolicies a and b would be equally specific for NodePool api"), "{out}");

    let fallback = POLICY.replace("name: a", "name: c").replace("{matchLabels: {w: api}}", "{}");
    let (code, out, _) = run(&["check", "-o", "json", "-f", "-"], &documents(&[POLICY, &second, &fallback, POOL]));
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["refusals"]), (1, &3.into()), "a, b and the NodePool: {out}");
    assert_eq!(report["policies"][2]["refusals"], serde_json::json!([]), "c takes no part in the tie");
    let warning = report["policies"][2]["warnings"][0].as_str().unwrap();
    assert!(warning.contains("RotationPolicies a and b would be equally specific for NodePool api"), "{warning}");
    assert!(warning.ends_with("they tie with and without this policy; add a label to the selector of one of them"));
}

#[test]
fn a_flag_that_is_no_instant_is_answered_with_one() {
    for flag in ["--from", "--to"] {
        for text in ["yesterday", "2026-12-32", "20 December"] {
            let (code, _, err) = run(&["windows", "-f", "-", flag, text], POLICY);
            assert!(code == 2 && err.contains("such as 2026-12-20T00:00:00Z, or a date, such as 2026-12-20,"), "{err}");
        }
    }
}

#[test]
fn findings_are_exit_code_1() {
    let saturday = POLICY.replace("[Wed, Sat]", "[Sat]");
    let (code, out, _) = run(&["check", "-o", "json", "-f", "-"], &documents(&[&saturday, POOL]));
    assert_eq!(code, 1);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["refusals"], 0);
    assert_eq!(report["nodePools"][0]["governedBy"], "a");
    assert_eq!(report["nodePools"][0]["findings"][0]["code"], "ANonPositive");
    assert_eq!(report["nodePools"][0]["findings"][0]["severity"], "fatal");
    assert_eq!(report["nodePools"][0]["derived"]["windowPeriodSeconds"], 604_800);
}

#[test]
fn json_yaml_and_lists_are_read() {
    let (_, json, _) = run(&["check", "-o", "json", "-f", "-"], &documents(&[POLICY, POOL]));
    let (_, yaml, _) = run(&["check", "-o", "yaml", "-f", "-"], &documents(&[POLICY, POOL]));
    let from_yaml: Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), from_yaml);
    let items: Vec<Value> = [POLICY, POOL].iter().map(|t| serde_saphyr::from_str(t).unwrap()).collect();
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let (code, out, _) = run(&["check", "-f", "-"], &list);
    assert!(code == 0 && out.contains("RotationPolicy a"), "{out}");
}

#[test]
fn unreadable_input_is_exit_code_2_and_says_where() {
    for (input, part) in [
        ("kind: [", "- (document 1, line 1): not valid YAML or JSON: error: line 1 column 7"),
        ("a: b", "not a Kubernetes object"),
        ("", "neither a RotationPolicy nor a NodePool"),
        ("kind: RotationPolicy\napiVersion: noderotation.io/v1alpha1\nspec: {}", "metadata.name is missing"),
    ] {
        let (code, _, err) = run(&["check", "-f", "-"], input);
        assert!(code == 2 && err.contains(part), "{input:?}: {code} {err}");
    }
    let (code, _, err) = run(&["check", "-f", "/nowhere/at/all.yaml"], "");
    assert!(code == 2 && err.contains("/nowhere/at/all.yaml cannot be read"), "{err}");
    assert_eq!(run(&["check"], "").0, 2, "wrong usage");
    assert_eq!(
        run(&["windows", "-f", "-", "--from", "2026-12-02T00:00:00Z", "--to", "2026-12-01T00:00:00Z"], POLICY).0,
        2
    );
}

#[test]
fn two_objects_of_one_kind_and_name_are_an_error_that_names_both_places() {
    let changed = POLICY.replace("02:00", "03:00");
    let list = r#"{"kind": "List", "items": [{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}},
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}}]}"#;
    for (verb, input, message) in [
        (
            "check",
            documents(&[POLICY, POOL, &changed]),
            "- (document 3, line 19): RotationPolicy a stands twice, first in - (document 1, line 2)",
        ),
        (
            "check",
            documents(&[POOL, POOL]),
            "- (document 2, line 9): NodePool api stands twice, first in - (document 1, line 2)",
        ),
        (
            "check",
            list.to_owned(),
            "- (document 1, line 1, item 2): NodePool a stands twice, first in - (document 1, line 1, item 1)",
        ),
        (
            "windows",
            documents(&[POLICY, POLICY]),
            "- (document 2, line 12): RotationPolicy a stands twice, first in - (document 1, line 2)",
        ),
    ] {
        let (code, out, err) = run(&[verb, "-f", "-"], &input);
        let advice = "; in a cluster it would replace that one, so remove or rename one of the two, or name its file only once\n";
        assert_eq!((code, out.as_str(), err), (2, "", format!("error: {message}{advice}")));
    }
    let file = example("api.yaml");
    let (code, _, err) = run(&["check", "-f", &file, &file], "");
    assert!(
        code == 2 && err.contains(&format!(": RotationPolicy api stands twice, first in {file} (document 1, line")),
        "{err}"
    );
    let same_name = POOL.replace("name: api", "name: a");
    assert_eq!(run(&["check", "-f", "-"], &documents(&[POLICY, &same_name])).0, 0, "of different kinds");
}

#[test]
fn windows_show_the_effect_of_clock_changes_and_exclusions() {
    let berlin = POLICY
        .replace("Asia/Tokyo", "Europe/Berlin")
        .replace("[Wed, Sat]", "[Sun]")
        .replace("06:00\"}", "03:30\"}\n  exclusions:\n  - {name: easter, timezone: Europe/Berlin, from: \"2027-04-04\", until: \"2027-04-04\"}")
        .replace("\"02:00\"", "\"02:30\"");
    let (code, out, _) = run(
        &["windows", "-f", "-", "-o", "json", "--from", "2027-03-20T00:00:00Z", "--to", "2027-04-12T00:00:00Z"],
        &berlin,
    );
    assert_eq!(code, 0, "{out}");
    let rows: Value = serde_json::from_str(&out).unwrap();
    let row = |n: usize| (rows[n]["opens"].clone(), rows[n]["closes"].clone(), rows[n]["notes"].to_string());
    assert_eq!(row(0), ("2027-03-21T01:30:00Z".into(), "2027-03-21T02:30:00Z".into(), "[]".into()));
    let (opens, closes, note) = row(1);
    assert_eq!((opens, closes), ("2027-03-28T01:30:00Z".into(), "2027-03-28T02:30:00Z".into()));
    assert!(note.contains("start does not exist in Europe/Berlin: moved 1h later"), "{note}");
    assert!(rows[2]["opens"].is_null() && row(2).2.contains("excluded by easter"), "{}", rows[2]);
    assert_eq!(rows[3]["local"][0]["opens"], "Sun 2027-04-11 02:30 CEST");
}

#[test]
fn a_reader_that_stops_early_is_not_an_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-noderotation"))
        .args([
            "windows",
            "-f",
            &example("api.yaml"),
            "--from",
            "2026-01-01T00:00:00Z",
            "--to",
            "2046-01-01T00:00:00Z",
            "-o",
            "json",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()), (Some(0), ""));
}

/// Everything of §6.1 that files can show ends with exit 1 and a line that names it.
#[test]
fn what_keeps_a_pool_from_being_rotated_is_named() {
    let with = |text: &str, from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    };
    let excluded =
        format!("{POLICY}  exclusions:\n  - {{timezone: UTC, from: \"2026-11-01\", until: \"2099-12-31\"}}\n");
    let in_template = "metadata: {name: api}\nspec: {template: {metadata: {labels: {w: api}}, spec: {";
    let pool = |from, to| with(POOL, from, to);
    for (word, policy, pool) in [
        ("Suspended", format!("{POLICY}  suspend: true\n"), POOL.to_owned()),
        ("NoWindowAhead", excluded, POOL.to_owned()),
        ("NeverDue", POLICY.to_owned(), pool("336h", "Never")),
        ("StaticNodePool", POLICY.to_owned(), pool("spec: {template", "spec: {replicas: 2, template")),
        ("LimitsExhausted", POLICY.to_owned(), pool("spec: {template", "spec: {limits: {cpu: 0}, template")),
        ("FatalFinding", POLICY.to_owned(), pool("336h", "24h")),
        (
            "Frozen",
            POLICY.to_owned(),
            pool(
                "labels: {w: api}",
                "labels: {w: api}, annotations: {noderotation.io/freeze: \"2099-01-01T00:00:00Z\"}",
            ),
        ),
        (
            "FreezeUnreadable",
            POLICY.to_owned(),
            pool("labels: {w: api}", "labels: {w: api}, annotations: {noderotation.io/freeze: tomorrow}"),
        ),
        (
            "Unselected",
            POLICY.to_owned(),
            pool("metadata: {name: api, labels: {w: api}}\nspec: {template: {spec: {", in_template),
        ),
        ("PolicyConflict", documents(&[POLICY, &with(POLICY, "name: a", "name: b")]), POOL.to_owned()),
        ("InvalidPolicy", with(POLICY, "Asia/Tokyo", "JST"), POOL.to_owned()),
    ] {
        let input = documents(&[&pool, &policy]);
        let (code, out, err) = run(&["check", "-o", "json", "--at", "2026-12-01T00:00:00Z", "-f", "-"], &input);
        assert_eq!((code, err.as_str()), (1, ""), "{word}: {out}");
        let report: Value = serde_json::from_str(&out).unwrap();
        let blocked = &report["nodePools"][0]["blocked"];
        assert_eq!((&blocked[0]["reason"], blocked.as_array().unwrap().len()), (&Value::from(word), 1), "{out}");
        let (_, table, _) = run(&["check", "--at", "2026-12-01T00:00:00Z", "-f", "-"], &input);
        let line = if word == "FatalFinding" { "  fatal    ".to_owned() } else { format!("  blocked  {word}: ") };
        assert!(table.contains(&line), "{table}");
    }
    // another policy's mistake: none of these pools is selected
    let other = with(POLICY, "{w: api}", "{w: web}");
    let (code, out, _) = run(&["check", "-f", "-"], &documents(&[POOL, &other]));
    assert_eq!(code, 1);
    assert!(out.contains("  blocked  Unselected: nodePoolSelector selects none of these NodePools"), "{out}");
    let (code, out, _) = run(&["check", "-f", "-"], POLICY);
    assert_eq!(code, 0, "without NodePools nothing can be said: {out}");
}

/// Each message says what the person meant to write: by the ways in which people write these values.
#[test]
fn what_was_meant_is_suggested() {
    let spec = |from: &str, to: &str| {
        assert!(POLICY.contains(from), "{from}");
        POLICY.replace(from, to)
    };
    let excluded = |fields: &str| format!("{POLICY}  exclusions: [{{{fields}}}]\n");
    let window =
        "  maintenanceWindows:\n  - {timezone: Asia/Tokyo, days: [Wed, Sat], start: \"02:00\", end: \"06:00\"}\n";
    let pool = |from: &str, to: &str| POOL.replace(from, to);
    for (input, expected) in [
        (
            spec("v1alpha1", "v1"),
            "apiVersion: found \"noderotation.io/v1\": is a version that is not served; write noderotation.io/v1alpha1",
        ),
        (
            spec("name: a", "name: Web_Pool"),
            "metadata.name: found \"Web_Pool\": must consist of lower-case letters, digits, - and ., and begin and end with a letter or digit; write web-pool",
        ),
        (
            spec("[Wed, Sat]", "[saturday]"),
            "spec.maintenanceWindows[0].days[0]: found \"saturday\": is not an allowed value; write Sat",
        ),
        (
            spec("[Wed, Sat]", "[]"),
            "spec.maintenanceWindows[0].days: found []: must not be empty; write the days on which the window opens, such as [Wed, Sat]",
        ),
        (
            spec("\"02:00\"", "6pm"),
            "spec.maintenanceWindows[0].start: found \"6pm\": must be HH:MM on the 24-hour clock; write \"18:00\"",
        ),
        (
            spec("\"02:00\"", "\"2:00 am\""),
            "spec.maintenanceWindows[0].start: found \"2:00 am\": must be HH:MM on the 24-hour clock; write \"02:00\"",
        ),
        (
            spec("\"02:00\"", "two"),
            "spec.maintenanceWindows[0].start: found \"two\": must be HH:MM on the 24-hour clock; write \"00:00\" to \"23:59\"",
        ),
        (
            spec(window, ""),
            "spec.maintenanceWindows: is required; write when rotations may start, for example [{timezone: Asia/Tokyo, days: [Wed, Sat], start: \"02:00\", end: \"06:00\"}]",
        ),
        (
            excluded("timezone: UTC"),
            "spec.exclusions[0].from: is required; write the first day on which nothing is rotated, such as \"2026-12-26\"",
        ),
        (
            excluded("timezone: UTC, from: \"2026-12-24\""),
            "spec.exclusions[0].until: is required; write the last day on which nothing is rotated, such as \"2027-01-04\"",
        ),
        (
            excluded("timezone: UTC, from: \"2026-12-24T18:00:00Z\", until: \"2026-12-26\""),
            "spec.exclusions[0].from: found \"2026-12-24T18:00:00Z\": must be a local time, without an offset: its zone stands in timezone; write \"2026-12-24T18:00\"",
        ),
        (
            excluded("timezone: UTC, from: \"2026-12-24T18:00Z\", until: \"2026-12-26\""),
            "without an offset (timezone gives the time zone); write \"2026-12-24T18:00\"",
        ),
        (
            pool("336h", "1.5h"),
            "spec.template.spec.expireAfter: found \"1.5h\": must be whole hours, minutes and seconds, as Karpenter takes them; write 1h30m",
        ),
        (
            pool("1h}", "1500ms}"),
            "spec.template.spec.terminationGracePeriod: found \"1500ms\": must be whole hours, minutes and seconds, as Karpenter takes them; write 2s",
        ),
        (
            pool("336h", "14d"),
            "spec.template.spec.expireAfter: found \"14d\": must be whole hours, minutes and seconds, as Karpenter takes them; write 336h",
        ),
        (
            pool("karpenter.sh/v1", "karpenter.sh/v1beta1"),
            "apiVersion: found \"karpenter.sh/v1beta1\": is a version that is not served; write karpenter.sh/v1",
        ),
        (
            pool("spec: {template", "spec: {disruption: {expireAfter: 336h}, template"),
            "spec.disruption.expireAfter: found \"336h\": is no field of karpenter.sh/v1, which would drop it, so that nodes live for 720h; write spec.template.spec.expireAfter",
        ),
    ] {
        let (code, out, err) = run(&["check", "-f", "-"], &input);
        assert!(code == 1 && out.contains(expected), "{expected}\n{out}{err}");
    }
}

/// A folder of its own for a test, removed at the end.
struct Folder(std::path::PathBuf);

impl Folder {
    fn with(name: &str, files: &[(&str, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("noderotation-cli-{}-{name}", std::process::id()));
        for (file, text) in files {
            let path = folder.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Self(folder)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn names(out: &str, list: &str) -> Vec<String> {
    let report: serde_json::Value = serde_json::from_str(out).unwrap();
    report[list].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn folders_are_read_as_kubectl_reads_them() {
    let folder = Folder::with(
        "folders",
        &[
            ("pool.yml", POOL),
            ("notes.txt", "not a manifest"),
            ("values.yaml", "replicas: 2\n"),
            ("kustomization.yaml", "resources: [pool.yml]\n"),
            ("deeper/policy.yaml", POLICY),
        ],
    );
    let (code, out, err) = run(&["check", "-o", "json", "-f", folder.path()], "");
    assert_eq!(
        (code, names(&out, "nodePools"), names(&out, "policies").len()),
        (0, vec!["api".to_owned()], 0),
        "{err}"
    );
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let passed: Vec<&str> =
        report["passedOver"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
    assert!(passed[0].ends_with("/kustomization.yaml") && passed[1].ends_with("/values.yaml"), "{passed:?}");
    let (_, table, _) = run(&["check", "-f", folder.path()], "");
    assert!(table.contains("values.yaml holds no Kubernetes object"), "{table}");
    let (code, out, _) = run(&["check", "-o", "json", "-R", "-f", folder.path()], "");
    assert_eq!((code, names(&out, "policies")), (0, vec!["a".to_owned()]));
    assert_eq!(run(&["windows", "-R", "-f", folder.path()], "").0, 0);
    let empty = Folder::with("empty", &[("deeper/policy.yaml", POLICY)]);
    let (code, _, err) = run(&["check", "-f", empty.path()], "");
    assert!(code == 2 && err.contains("has no file that ends in .yaml, .yml or .json; -R also looks"), "{err}");
}

/// One bad file hides no other.
#[test]
fn every_unreadable_file_and_document_is_named() {
    let folder = Folder::with(
        "bad",
        &[
            ("a.yaml", "kind: [\n"),
            ("b.yaml", "kind: RotationPolicy\nmetadata: {name: {{ .Values.name }}}\n"),
            ("c.yaml", "a: b\n----\nc: d\n"),
        ],
    );
    let (code, out, err) = run(&["check", "-f", folder.path()], "");
    assert_eq!((code, out.as_str()), (2, ""));
    for part in [
        "a.yaml (document 1, line 1): not valid YAML or JSON",
        "b.yaml (document 1, line 1): line 2 has \"metadata: {name: {{ .Values.name }}}\": this is a template; render it first",
        "c.yaml: line 2 is \"----\", which separates no documents; write ---",
    ] {
        assert!(err.contains(part), "{part} is not in\n{err}");
    }
    assert_eq!(
        err.matches("error: /").count(),
        err.lines().filter(|line| line.starts_with("error: ")).count(),
        "{err}"
    );
}

#[test]
fn json_lines_are_read() {
    let line = |yaml: &str| serde_json::to_string(&serde_saphyr::from_str::<serde_json::Value>(yaml).unwrap()).unwrap();
    let input = format!("{}\n{}\n", line(POLICY), line(POOL));
    let (code, out, err) = run(&["check", "-o", "json", "-f", "-"], &input);
    assert_eq!(
        (code, names(&out, "policies"), names(&out, "nodePools")),
        (0, vec!["a".into()], vec!["api".into()]),
        "{err}"
    );
}

/// 500 nodes are too many for a weekly window, 5 are not.
#[test]
fn nodes_can_be_given_for_each_pool() {
    let input = documents(&[POLICY, POOL]);
    let findings = |flags: &[&str]| {
        let (code, out, err) = run(&[&["check", "-o", "json", "-f", "-"], flags].concat(), &input);
        if code == 2 {
            return err;
        }
        let report: serde_json::Value = serde_json::from_str(&out).unwrap();
        report["nodePools"][0]["findings"].to_string()
    };
    assert!(findings(&["--nodes", "5000"]).contains("Throughput"));
    assert!(findings(&["--nodes", "api=5000"]).contains("Throughput"));
    assert!(!findings(&["--nodes", "5000", "--nodes", "api=5"]).contains("Throughput"));
    assert!(!findings(&["--nodes", "5"]).contains("Throughput"));
    assert!(findings(&["--nodes", "apa=5"]).contains("--nodes apa=…: no such NodePool; there are api"));
    for wrong in ["api=", "x", "100001", "api=-1"] {
        assert!(findings(&["--nodes", wrong]).contains("write a number from 0 to 100000"), "{wrong}");
    }
}

#[test]
fn what_fails_the_check_can_be_chosen() {
    let saturday = POLICY.replace("[Wed, Sat]", "[Sat]");
    let input = documents(&[&saturday, POOL]);
    assert_eq!(run(&["check", "-f", "-"], &input).0, 1, "a finding");
    assert_eq!(run(&["check", "-f", "-", "--fail-on", "refuse"], &input).0, 0);
    let bad = documents(&[&POLICY.replace("Asia/Tokyo", "JST"), POOL]);
    assert_eq!(run(&["check", "-f", "-", "--fail-on", "refuse"], &bad).0, 1);
}

#[test]
fn a_date_is_its_begin_in_utc() {
    let of_day = run(&["windows", "-f", "-", "--from", "2026-12-01", "--to", "2026-12-08"], POLICY);
    let of_instant =
        run(&["windows", "-f", "-", "--from", "2026-12-01T00:00:00Z", "--to", "2026-12-08T00:00:00Z"], POLICY);
    assert_eq!((of_day.0, &of_day), (0, &of_instant));
    assert!(of_day.1.contains("2026-12-01T17:00:00Z"), "{}", of_day.1);
}

/// A folder may hold either form.
#[test]
fn json_in_a_folder_is_read() {
    let json = |yaml: &str| serde_json::to_string(&serde_saphyr::from_str::<Value>(yaml).unwrap()).unwrap();
    let folder = Folder::with("json", &[("policy.json", &json(POLICY)), ("pool.jsonl", &json(POOL))]);
    let (code, out, err) = run(&["check", "-o", "json", "-f", folder.path()], "");
    assert_eq!(
        (code, names(&out, "policies"), names(&out, "nodePools")),
        (0, vec!["a".into()], vec!["api".into()]),
        "{err}"
    );
}

/// What blocks a NodePool is judged as of `--at`, too.
#[test]
fn a_freeze_that_has_passed_by_then_blocks_nothing() {
    let frozen = POOL.replace(
        "labels: {w: api}",
        "labels: {w: api}, annotations: {noderotation.io/freeze: \"2099-01-01T00:00:00Z\"}",
    );
    let input = documents(&[POLICY, &frozen]);
    for (at, code) in [("2098-12-31T23:59:59Z", 1), ("2099-01-01T00:00:00Z", 0)] {
        let found = run(&["check", "-f", "-", "--at", at], &input);
        assert_eq!((found.0, found.1.contains("  blocked  Frozen: ")), (code, code == 1), "{at}: {}", found.1);
    }
}

/// One bad item hides no other.
#[test]
fn every_unreadable_item_of_a_list_is_named() {
    let list = r#"{"kind": "List", "items": [{"apiVersion": "karpenter.sh/v1", "kind": "NodePool"}, {"a": 1}]}"#;
    let (code, out, err) = run(&["check", "-f", "-"], list);
    assert_eq!((code, out.as_str()), (2, ""));
    for part in [
        "- (document 1, line 1, item 1): metadata.name is missing",
        "- (document 1, line 1, item 2): not a Kubernetes object",
    ] {
        assert!(err.contains(part), "{part} is not in\n{err}");
    }
}
