//! `windows`: lists the occurrences of the maintenance windows in UTC and in the policy's time zones, and how clock changes
//! and exclusions affect them.

use jiff::{SignedDuration, Timestamp};
use noderotation_shared::duration::human;
use noderotation_shared::instant;
use noderotation_shared::policy::Policy;
use noderotation_shared::schedule::{Entry, Occurrence, Shift};
use serde::Serialize;

use crate::input::{parse_instant, read};
use crate::output::{OutputFormat, print, table};

/// The flags of `windows`.
#[derive(clap::Args)]
pub struct WindowsArgs {
    /// Files or folders with RotationPolicies; - is standard input.
    #[arg(short, long = "filename", required = true, num_args = 1.., value_name = "FILE")]
    filename: Vec<String>,
    /// Read the folders below the given ones as well.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// List occurrences that close after this instant (RFC 3339) or the begin of this day in UTC [default: now].
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    from: Option<Timestamp>,
    /// List occurrences that open before this instant (RFC 3339) or the begin of this day in UTC [default: four weeks after --from].
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    to: Option<Timestamp>,
    /// List only the windows of the policy with this name.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
}

/// One line of the output. Its JSON form is stable: fields may be added but do not change.
#[derive(Serialize)]
struct Row {
    policy: String,
    /// `None` if an exclusion covers the whole occurrence, or if the window is always open.
    opens: Option<String>,
    closes: Option<String>,
    /// The occurrence in each of the policy's time zones.
    local: Vec<Local>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Local {
    zone: String,
    opens: String,
    closes: String,
}

/// Runs the command; returns whether all policies are valid.
pub fn run(args: &WindowsArgs) -> anyhow::Result<bool> {
    let from = args.from.unwrap_or_else(Timestamp::now);
    let input = read(&args.filename, args.recursive, from)?;
    let to = args.to.unwrap_or_else(|| instant::plus(from, SignedDuration::from_hours(24 * 28)));
    anyhow::ensure!(from < to, "--from {from} must be earlier than --to {to}");
    let wanted = |name: &str| args.policy.as_ref().is_none_or(|only| only == name);
    let selected: Vec<_> = input.policies.iter().filter(|p| wanted(&p.parsed.name)).collect();
    let files = args.filename.join(", ");
    match &args.policy {
        Some(name) => anyhow::ensure!(!selected.is_empty(), "{files}: no RotationPolicy is named {name}"),
        None => anyhow::ensure!(!selected.is_empty(), "{files}: no RotationPolicy found"),
    }
    let mut rows = Vec::new();
    let mut all_valid = true;
    for policy in selected {
        match &policy.parsed.verdict {
            Ok(parsed) => rows.extend(rows_of(&policy.parsed.name, parsed, from, to)),
            Err(problems) => {
                all_valid = false;
                eprintln!("RotationPolicy {} in {}:\n{problems}", policy.parsed.name, policy.place);
            }
        }
    }
    print(args.output, &rows, || as_table(&rows))?;
    Ok(all_valid)
}

fn rows_of(name: &str, policy: &Policy, from: Timestamp, to: Timestamp) -> Vec<Row> {
    let mut rows = Vec::new();
    for whole in policy.schedule.recurring(from).take_while(|o| o.open < to) {
        let pieces: Vec<Occurrence> = policy
            .schedule
            .occurrences(whole.open)
            .take_while(|o| o.open < whole.close && o.open < to)
            .filter(|o| o.open >= whole.open && o.close > from)
            .collect();
        let mut notes = clock_change_notes(policy, whole);
        for exclusion in policy.exclusions.iter().filter(|e| e.span.open < whole.close && e.span.close > whole.open) {
            let effect = if pieces.is_empty() { "excluded" } else { "shortened" };
            let name = if exclusion.name.is_empty() { "an exclusion" } else { &exclusion.name };
            let until = instant::format(exclusion.span.close);
            notes.push(format!("{effect} by {name} ({} – {until})", instant::format(exclusion.span.open)));
        }
        if pieces.is_empty() {
            rows.push(Row { policy: name.into(), opens: None, closes: None, local: local_times(policy, whole), notes });
            continue;
        }
        for piece in pieces {
            rows.push(Row {
                policy: name.into(),
                opens: piece.opening().map(instant::format),
                closes: piece.closing().map(instant::format),
                local: local_times(policy, piece),
                notes: notes.clone(),
            });
        }
    }
    rows
}

fn local_times(policy: &Policy, o: Occurrence) -> Vec<Local> {
    let mut zones: Vec<&Entry> = Vec::new();
    for entry in policy.schedule.entries() {
        if !zones.iter().any(|listed| listed.zone() == entry.zone()) {
            zones.push(entry);
        }
    }
    let local =
        |entry: &Entry, at: Timestamp| at.to_zoned(entry.zone().clone()).strftime("%a %Y-%m-%d %H:%M %Z").to_string();
    zones
        .into_iter()
        .map(|entry| Local {
            zone: entry.zone().iana_name().unwrap_or("UTC").to_owned(),
            opens: o.opening().map_or_else(|| "always".into(), |at| local(entry, at)),
            closes: o.closing().map_or_else(|| "always".into(), |at| local(entry, at)),
        })
        .collect()
}

/// Notes on how clock changes moved the entries that make up an occurrence.
fn clock_change_notes(policy: &Policy, whole: Occurrence) -> Vec<String> {
    let mut notes = Vec::new();
    // an occurrence that practically never ends would yield a note for every clock change
    if whole.length() > SignedDuration::from_hours(24 * 14) {
        return notes;
    }
    for entry in policy.schedule.entries() {
        let mut date = entry.local_date(instant::minus(whole.open, SignedDuration::from_hours(48)));
        let last = entry.local_date(whole.close);
        while date <= last {
            if let Some((o, shift)) =
                entry.on_with_shift(date).filter(|(o, _)| o.open < whole.close && o.close > whole.open)
            {
                let zone = entry.zone().iana_name().unwrap_or("UTC");
                match shift {
                    Shift::None => {}
                    Shift::Whole(gap) => {
                        notes.push(format!("start does not exist in {zone}: moved {} later", human(gap)));
                    }
                    Shift::End(gap) => {
                        notes.push(format!("end does not exist in {zone}: moved {} later", human(gap)));
                    }
                    Shift::First => notes.push(format!(
                        "start or end exists twice in {zone}: the first is used; open for {}",
                        human(o.length())
                    )),
                }
            }
            match date.tomorrow() {
                Ok(next) => date = next,
                Err(_) => break,
            }
        }
    }
    notes
}

fn as_table(rows: &[Row]) -> String {
    let mut lines = table(&["POLICY", "OPENS (UTC)", "CLOSES (UTC)", "LOCAL", "NOTE"]);
    for row in rows {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        let local: Vec<String> = row.local.iter().map(|l| format!("{} – {}", l.opens, l.closes)).collect();
        lines.add_row([
            row.policy.clone(),
            or_dash(&row.opens),
            or_dash(&row.closes),
            local.join("\n"),
            row.notes.join("\n"),
        ]);
    }
    lines.to_string()
}
